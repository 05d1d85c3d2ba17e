//! One entry: a human-readable line of JSON with the hash of the previous entry and a signature.
//!
//! ```text
//! {"entry":{"index":3,"previous":"<hash of entry 2>","time":1735689600,"body":{"release":{...}}},"signature":"<...>"}
//! ```
//!
//! The hash of an entry is SHA-256, under a label, over the exact bytes of the value of `"entry"`, and the signature is
//! over that hash. So nothing depends on how JSON could also be written. Unknown fields and unknown bodies are refused
//! by name: what a reader does not understand it cannot account for.

use serde::{Deserialize, Serialize};

use crate::{
    approval::Approval,
    digest::{Digest, hex, unhex},
    head::Head,
    keys::{SigningKey, VerifyingKey},
    plan::{Plan, Unit},
};
use privacy::{
    event::{Adjacency, PrivacyEvent},
    rng::Randomness,
};

const LABEL: &str = "keyhush ledger entry v1";
const OPENS: &str = "{\"entry\":";
const SIGNATURE: &str = ",\"signature\":\"";
const CLOSES: &str = "\"}";
const SIGNATURE_DIGITS: usize = 128;

/// The version of this format, in every first entry.
pub(crate) const FORMAT: u32 = 2;

/// No line of a ledger is longer than this, in bytes.
pub const MAX_LINE: usize = 4 << 20;

/// A signed record of a ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The exact bytes that were hashed and signed.
    signed: String,
    hash: Digest,
    signature: [u8; 64],
    content: Content,
}

/// The signed part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Content {
    pub(crate) index: u64,
    pub(crate) previous: Digest,
    /// Seconds since 1970, as the caller's clock has it.
    pub(crate) time: u64,
    pub(crate) body: Body,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// The first entry: the whole plan.
    Opening(Box<Opening>),
    /// Something was released.
    Release(Release),
    /// Users took part, and nothing was released.
    FailedAttempt(FailedAttempt),
    /// Another ledger's cost belongs to this one's.
    Import(Import),
    /// The users' data is no longer what the run began with.
    DataChanged(DataChanged),
    /// The last entry.
    Closing(Closing),
}

/// The first entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// The version of the format.
    pub format: u32,
    /// Drawn at random: no two ledgers begin alike.
    pub id: Digest,
    /// The key that signs every entry.
    pub key: VerifyingKey,
    /// The plan.
    pub plan: Plan,
    /// The privacy officer's signature of it; none where nobody approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// How a release's event is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// It is added to what was there.
    Additional,
    /// It stands for its stream from the first step up to this one: only the last of a stream counts.
    Cumulative,
}

impl Charge {
    /// How an event counts: correlated noise has one event for all its steps, and so have rounds with limits on who takes
    /// part in them.
    #[must_use]
    pub fn of(event: &PrivacyEvent) -> Self {
        match event {
            PrivacyEvent::CorrelatedGaussian { .. } | PrivacyEvent::LimitedRounds { .. } => Self::Cumulative,
            PrivacyEvent::Compose { events } if events.iter().any(|e| Self::of(e) == Self::Cumulative) => {
                Self::Cumulative
            }
            _ => Self::Additional,
        }
    }
}

/// A release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The stream to which it belongs.
    pub stream: String,
    /// The step of the stream, from 0.
    pub step: u64,
    /// Which attempt at this step succeeded, from 0.
    pub attempt: u32,
    /// The privacy event of the release.
    pub event: PrivacyEvent,
    /// How the event is charged.
    pub charge: Charge,
    /// SHA-256 of the bytes of the released vector; never of a sum before its noise.
    pub digest: Digest,
    /// Who took part, as far as the ledger may know.
    pub participations: ParticipationNote,
}

/// The participants of an entry: the declared cohort, and a commitment to the observed participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParticipationNote {
    /// How many users the plan asked for. Never how many came: the size of a Poisson cohort is not released (P11).
    pub declared: u64,
    /// The digest of the record in the side file. The record holds a secret salt, so the digest shows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Users took part in an attempt of which nothing was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedAttempt {
    /// The stream.
    pub stream: String,
    /// The step that was attempted.
    pub step: u64,
    /// Which attempt it was, from 0.
    pub attempt: u32,
    /// The reason.
    pub reason: FailureReason,
    /// The participants.
    pub participations: ParticipationNote,
}

/// Why an attempt failed. No numbers: how many came is nobody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// Fewer users than the goal, or than a sum is opened for.
    BelowGoal,
    /// So many vanished that somebody's mask could not be taken off.
    OutOfReach,
    /// The masks did not cancel, or a secret could not be reconstructed: somebody sent something else than was agreed, and
    /// nothing proves who.
    NotWhole,
    /// It took too long.
    TimedOut,
    /// The process ended in the middle of it.
    Interrupted,
    /// A person stopped it.
    Cancelled,
}

impl FailureReason {
    /// Words that follow "because".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::BelowGoal => "too few devices were left",
            Self::OutOfReach => "too many devices dropped out to remove all masks",
            Self::NotWhole => {
                "the masks did not cancel: a device did not follow the protocol, and nothing proves which"
            }
            Self::TimedOut => "it took too long",
            Self::Interrupted => "the program was interrupted",
            Self::Cancelled => "it was stopped by hand",
        }
    }

    /// Whether it was the server's own doing, and says nothing about who took part.
    #[must_use]
    pub const fn is_of_the_server(self) -> bool {
        matches!(self, Self::Interrupted | Self::Cancelled)
    }
}

/// An attempt for which users are asked. It is noted, durably, before the first of them is: where nothing is recorded of it
/// afterwards, it was interrupted, and those who were asked may have sent an input (rule P24).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BegunAttempt {
    /// The stream.
    pub stream: String,
    /// The step.
    pub step: u64,
    /// Which attempt at it, from 0.
    pub attempt: u32,
    /// The declared number of users that a round asks.
    pub declared: u64,
}

/// Why another ledger's cost belongs to this one's (rule P15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportKind {
    /// The run started from that ledger's model.
    StartingModel,
    /// That ledger's run was an earlier task over the same devices.
    EarlierTask,
    /// That ledger's run was another of the same sweep over the same users.
    SweepRun,
}

/// Another ledger's cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Why it belongs here.
    pub kind: ImportKind,
    /// A description of the ledger.
    pub what: String,
    /// Its head when it was read.
    pub head: Head,
    /// The key that signed it.
    pub key: VerifyingKey,
    /// Whether chain, signatures and that head were checked when it was imported.
    pub verified: bool,
    /// What it protects as one.
    pub unit: Unit,
    /// Its adjacency.
    pub adjacency: Adjacency,
    /// Where its noise came from.
    pub randomness: Randomness,
    /// All that it released, its own imports included.
    pub event: PrivacyEvent,
}

/// The users' data is no longer what the run began with, and the run continues: somebody asked to be erased. Recorded before
/// anything is released from the changed data (rule P21).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataChanged {
    /// The reason, as given on resume.
    pub why: String,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All planned steps were released.
    PlanDone,
    /// The next release would have cost more than the budget.
    BudgetSpent,
    /// The target that the plan names was reached.
    TargetReached,
    /// A person ended it before its plan was done. Why is not known: it may have been for what was released.
    ByHand,
}

/// The last entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    /// Why the run ended.
    pub because: Ended,
    /// The run's noise key and all noise state are gone: nobody can draw its noise again (rule P20).
    pub noise_destroyed: bool,
    /// The key of the participants' pseudonyms is gone.
    pub pseudonym_key_destroyed: bool,
}

impl Entry {
    pub(crate) fn sign(content: Content, key: &SigningKey) -> Self {
        let signed = serde_json::to_string(&content).expect("entries have string keys and finite numbers");
        let hash = Digest::of(LABEL, signed.as_bytes());
        let signature = key.sign(&hash);
        Self { signed, hash, signature, content }
    }

    /// Reads a line, without its line break. Whether it belongs where it stands is the chain's part.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        if line.len() > MAX_LINE {
            return Err(format!("the line is longer than {MAX_LINE} bytes"));
        }
        let line = str::from_utf8(line).map_err(|_| "the line is not text".to_owned())?;
        let (signed, digits) = split(line).ok_or("the line does not have the form of an entry")?;
        let signature = unhex(digits).map_err(|e| format!("its signature: {e}"))?;
        let content: Content = serde_json::from_str(signed).map_err(|e| e.to_string())?;
        let hash = Digest::of(LABEL, signed.as_bytes());
        Ok(Self { signed: signed.to_owned(), hash, signature, content })
    }

    /// The line as it is stored, without a line break.
    #[must_use]
    pub fn line(&self) -> String {
        [OPENS, &self.signed, SIGNATURE, &hex(&self.signature), CLOSES].concat()
    }

    /// Its place in the ledger, from 0.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.content.index
    }

    /// The hash of the entry before it.
    #[must_use]
    pub const fn previous(&self) -> Digest {
        self.content.previous
    }

    /// When it was written: seconds since 1970 by the writer's clock.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.content.time
    }

    /// The content of the entry.
    #[must_use]
    pub const fn body(&self) -> &Body {
        &self.content.body
    }

    /// Its hash.
    #[must_use]
    pub const fn hash(&self) -> Digest {
        self.hash
    }

    /// The head of a ledger that ends with it.
    #[must_use]
    pub const fn head(&self) -> Head {
        Head { length: self.content.index.saturating_add(1), hash: self.hash }
    }

    /// Whether this key signed it.
    #[must_use]
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        key.verifies(&self.hash, &self.signature)
    }
}

/// The signed part of a line and the digits of its signature.
fn split(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix(OPENS)?.strip_suffix(CLOSES)?;
    let (before, digits) = rest.split_at_checked(rest.len().checked_sub(SIGNATURE_DIGITS)?)?;
    Some((before.strip_suffix(SIGNATURE)?, digits))
}
