//! The signed record of every release (rules P12 to P15 and P17).
//!
//! A ledger is a chain of [`Entry`]s. The first is the whole [`Plan`]; after it come releases, failed attempts, imports
//! of other ledgers and the closing. Each has the hash of the previous one and an Ed25519 signature. A release is
//! written down, together with the released vector itself, and made durable before anyone sees it: after a crash the
//! stored vector is used, and a released step is never computed again with another sum.
//!
//! What a ledger can show: that nobody without the signing key changed it, and, to the holder of a [`Head`] of it, that
//! it was not truncated or forked. What it cannot: a chain cut at an entry boundary is a valid shorter chain, so
//! without a head nothing is known about its length; and against the holder of the signing key nothing is proved.
//!
//! | module         | what it is                                                                    |
//! |----------------|-------------------------------------------------------------------------------|
//! | `plan`         | the plan in the first entry: everything decided before the data was opened    |
//! | `approval`     | a privacy officer's signature of a plan                                       |
//! | `entry`        | one entry, one line: index, hash of the previous one, body, signature         |
//! | `chain`        | checks that entries follow each other, and that a head lies on them           |
//! | `account`      | summarizes the entries: streams, steps, the composed event                    |
//! | `budget`       | whether the budget allows one more release (rule P14)                         |
//! | `rho`          | converts events to rho and rho to epsilon, for zCDP filters                   |
//! | `guarantee`    | which epsilon is guaranteed: what was spent, the whole plan's or the budget's |
//! | `participants` | participants, as pseudonyms in a side file                                    |
//! | `observed`     | observed participation, and the epsilon it would give                         |
//! | `together`     | the joint cost of several ledgers for a device in all of them                 |
//! | `store`        | storage of entries: the trait, and one in memory                              |
//! | `book`         | [`Ledger`], the public interface                                              |
//! | `written`      | a release as the bytes stored for it                                          |
//! | `recorded`     | receipts, and a recorded release, which the optimizer takes                   |
//! | `verify`       | checks everything and recomputes epsilon                                      |
//! | [`statement`]  | the guarantee in words, from a ledger alone                                   |
//! | `contract`     | the tests that every store must pass (a feature)                              |

mod account;
mod approval;
mod book;
mod budget;
mod chain;
#[cfg(feature = "contract")]
pub mod contract;
mod digest;
mod entry;
mod error;
mod extends;
mod guarantee;
mod head;
mod keys;
mod observed;
mod participants;
mod plan;
mod recorded;
mod rho;
pub mod statement;
mod store;
mod together;
mod verify;
mod written;

pub use account::Failure;
pub use approval::{Approval, Vouched};
pub use book::{Attempt, Ledger, Publication};
pub use chain::Chain;
pub use digest::{Digest, HexError, hex, unhex};
pub use entry::{
    BegunAttempt, Body, Charge, Closing, DataChanged, Ended, Entry, FailedAttempt, FailureReason, Import, ImportKind,
    MAX_LINE, Opening, ParticipationNote, Release,
};
pub use error::LedgerError;
pub use guarantee::Basis;
pub use head::{Head, HeadError};
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub use observed::NoObservedEpsilon;
pub use participants::{Frequency, KeyDestroyed, NoiseDestroyed, Observed, ParticipationRecord, PseudonymKey};
pub use plan::{Aggregation, Budget, DataSource, Phase, Plan, PublicData, Start, Unit};
pub use recorded::{Receipt, Recorded};
pub use store::{Attached, Keeping, LedgerStore, MemoryStore, Participations, check_follows};
pub use together::{Together, together, together_if_secret};
pub use verify::{HeadCheck, Verification};
pub use written::Written;
