//! The signed record of every release (rules P12 to P15 and P17).
//!
//! A ledger is a chain of [`Entry`]s. The first is the whole [`Plan`]; after it come releases, failed attempts, imports
//! of other ledgers and the closing. Each carries the hash of the one before it and an Ed25519 signature. A release is
//! written down, together with the released vector itself, and made durable before anyone sees it: after a crash the
//! stored vector is used, and a released step is never computed again with another sum.
//!
//! What a ledger can show: that nobody without the signing key changed it, and, to whoever holds a [`Head`] of it, that
//! it was not cut short or forked. What it cannot: a chain cut at an entry boundary is a valid shorter chain, so
//! without a head nothing is known about its length; and against the holder of the signing key nothing is proved.
//!
//! | module         | what it is                                                                    |
//! |----------------|-------------------------------------------------------------------------------|
//! | `plan`         | the first entry: all that was decided before the data was opened              |
//! | `entry`        | one record, one line: index, hash of the one before, body, signature          |
//! | `chain`        | whether entries follow each other, and whether a head lies on them            |
//! | `account`      | what the entries amount to: streams, steps, the composed event                |
//! | `budget`       | whether one more release still fits (rule P14)                                |
//! | `rho`          | the rho of an event and the epsilon of a rho, for zCDP filters                |
//! | `guarantee`    | which epsilon holds: what was spent, the whole plan's or the budget's         |
//! | `participants` | who took part, as pseudonyms in a side file                                   |
//! | `observed`     | what that side file shows, and what it would cost                             |
//! | `together`     | what several ledgers cost a device that is in all of them                     |
//! | `store`        | where entries are kept: the trait, and one in memory                          |
//! | `book`         | [`Ledger`], the one to call                                                   |
//! | `written`      | a release as the bytes that are stored of it                                  |
//! | `recorded`     | receipts, and a release that the ledger has: what the optimizer takes         |
//! | `verify`       | everything checked and computed once more                                     |
//! | [`statement`]  | the guarantee in words, from a ledger and nothing else                        |
//! | `contract`     | what every store must do, as a suite for its tests (a feature)                |

mod account;
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
