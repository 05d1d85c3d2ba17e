//! Ledger errors: what was expected, what was found, what to do.

use thiserror::Error;

use crate::{digest::Digest, head::Head, keys::KeyError, keys::VerifyingKey};
use privacy::{
    accountant::AccountError,
    event::{Adjacency, EventError},
    rng::Randomness,
    stages::UnreadableRelease,
    step_keys::StepAt,
    units::Epsilon,
    workers::Undone,
};

/// Why a ledger does not open, or does not take an entry.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The place where it is kept failed.
    #[error("{doing}")]
    Storage {
        /// What was being done, to what.
        doing: String,
        /// The underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Workers that left something out.
    #[error("the release was not recorded and must not be used: {0}")]
    Undone(#[from] Undone),
    /// A privacy officer's approval is not valid, or is missing.
    #[error("the approval by a privacy officer is not valid: {problem}")]
    Approval {
        /// What is wrong with it.
        problem: String,
    },
    /// An earlier write failed, so what is durable is not known.
    #[error("an earlier write to this ledger failed; open it again to find out what was written")]
    Poisoned,
    /// An entry that is not what was written.
    #[error("damaged at entry {entry}: {problem}; restore the ledger from a copy, do not repair it by hand")]
    Damaged {
        /// Its index, from 0.
        entry: u64,
        /// A description of the problem.
        problem: String,
    },
    /// The side file of participations is not what was written.
    #[error("the participations of entry {entry} are damaged: {problem}")]
    ParticipationsDamaged {
        /// The entry whose digest they do not have.
        entry: u64,
        /// A description of the problem.
        problem: String,
    },
    /// A stored vector is not the one that was released.
    #[error("the vector stored with entry {entry} has digest {found}, but the entry says {expected}")]
    VectorDamaged {
        /// The entry.
        entry: u64,
        /// The digest in the entry.
        expected: Digest,
        /// The digest of the stored vector.
        found: Digest,
    },
    /// Shorter than a head that somebody has seen.
    #[error("rewound: the ledger has {have} entries, but according to the head {shown} it had {}", shown.length)]
    Rewound {
        /// The head that was shown.
        shown: Head,
        /// How many entries there are.
        have: u64,
    },
    /// Another history than the one that somebody has seen.
    #[error("forked: entry {} has the hash {have}, which contradicts the head {shown}", shown.length.saturating_sub(1))]
    Forked {
        /// The head that was shown.
        shown: Head,
        /// The hash at that length here.
        have: Digest,
    },
    /// The head beside the ledger is gone, so a torn record cannot be told from a damaged one.
    #[error("the ledger has {have} entries but no head file; write its last known head (LENGTH:HASH) to {place}")]
    HeadMissing {
        /// How many entries there are.
        have: u64,
        /// Where the head belongs.
        place: String,
    },
    /// The head beside the ledger cannot be read.
    #[error("{place} does not hold a head: {problem}; restore it from a copy, a checkpoint or a statement")]
    HeadDamaged {
        /// Its path.
        place: String,
        /// A description of the problem.
        problem: String,
    },
    /// There is nothing to open.
    #[error("the ledger has no entries because its creation was interrupted; create it again")]
    Empty,
    /// There is something where a ledger was to be created.
    #[error("{place} already holds a ledger; open it, or choose another place")]
    Exists {
        /// The path.
        place: String,
    },
    /// Another process writes it.
    #[error("{place} is locked: another process is writing this ledger; only one writer is allowed")]
    Locked {
        /// The lock.
        place: String,
    },
    /// It was opened for reading.
    #[error("this ledger was opened for reading; open it with its signing key to record anything")]
    ReadOnly,
    /// The entry does not follow the head that is durable.
    #[error("the entry follows {after}, but the head is {head}")]
    NotTheHead {
        /// The head it was written after.
        after: Head,
        /// The head of the chain.
        head: Head,
    },
    /// The key is not the one of the first entry.
    #[error("the ledger is signed by {expected}, not by the given key {got}")]
    WrongKey {
        /// The key in the first entry.
        expected: VerifyingKey,
        /// The key that was given.
        got: VerifyingKey,
    },
    /// A secret that others can read.
    #[error(
        "{place} has mode {mode:03o}, so other users can access it; it must be {wanted:03o}. Draw new keys if anyone may have read it"
    )]
    LooseSecret {
        /// The file or folder.
        place: String,
        /// Its mode.
        mode: u32,
        /// The required mode.
        wanted: u32,
    },
    /// A secret that is gone.
    #[error("{place} is missing; without it nothing can be added to this ledger")]
    SecretMissing {
        /// The file.
        place: String,
    },
    /// What says for which attempt users were asked last cannot be read.
    #[error(
        "{place} is damaged ({problem}). It records the last attempt for which users were asked; without it they could be asked twice. Restore it, or end the run with keyhush train --end DIR --without-model; do not remove it"
    )]
    AttemptDamaged {
        /// The file.
        place: String,
        /// A description of the problem.
        problem: String,
    },
    /// A secret of a step that the ledger does not have: the ledger is an older copy.
    #[error(
        "rewound: {place} belongs to round {kept}, but the ledger continues with round {asked}; the ledger is an older copy than its secrets"
    )]
    SecretAhead {
        /// The file.
        place: String,
        /// The round it is of.
        kept: u64,
        /// The round that the ledger continues with.
        asked: u64,
    },
    /// The noise key of a release that the ledger does not have.
    #[error(
        "rewound: secret/ has the noise key of {at}, which the ledger does not have; the ledger is an older copy than its keys"
    )]
    KeyAhead {
        /// The step.
        at: StepAt,
    },
    /// A release whose noise key is not there.
    #[error(
        "the ledger has {at}, but secret/ does not have its noise key; the keys are an older copy, and the run cannot continue with them"
    )]
    KeyBehind {
        /// The step.
        at: StepAt,
    },
    /// A release that is to be published by hand.
    #[error("the value to be published looks like a release; only what a mechanism released can be recorded as one")]
    IsRelease,
    /// A released vector behind the end of the ledger.
    #[error(
        "rewound: {place} was released with entry {entry}, but the ledger has only {have} entries; it was truncated"
    )]
    Orphan {
        /// The vector.
        place: String,
        /// The entry that it belongs to.
        entry: u64,
        /// How many entries there are.
        have: u64,
    },
    /// A key that is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A plan that says nothing, or contradicts itself.
    #[error("the plan's {field}: {problem}")]
    Plan {
        /// The field, as it is called in the first entry.
        field: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Noise from elsewhere than the plan says (rule P13).
    #[error("the plan says {}, but this release says {}", words(*plan), words(*got))]
    Randomness {
        /// What the first entry says.
        plan: Randomness,
        /// The randomness of the release.
        got: Randomness,
    },
    /// An event under another adjacency (rule P2).
    #[error("the plan uses {plan} adjacency, but this event {got}; they do not compose")]
    Adjacency {
        /// What the first entry says.
        plan: Adjacency,
        /// The value in the event.
        got: Adjacency,
    },
    /// An event with another participation than its stream's.
    #[error("the plan for {stream:?} says that {plan}, but this event says that {got}")]
    Participation {
        /// The stream.
        stream: String,
        /// What the first entry says.
        plan: String,
        /// The value in the event.
        got: String,
    },
    /// A release that the plan does not know.
    #[error("the plan has no stream {stream:?}; it has {known}")]
    UnknownStream {
        /// The unknown stream.
        stream: String,
        /// The known names.
        known: String,
    },
    /// More steps than were planned.
    #[error("step {step} of {stream:?} is beyond the {rounds} steps of the plan")]
    BeyondPlan {
        /// The stream.
        stream: String,
        /// The step, from 0.
        step: u64,
        /// The planned number of rounds.
        rounds: u64,
    },
    /// A step before one that is already there.
    #[error("step {step} of {stream:?} is not after step {last}, which was released before; steps only go forward")]
    StepBackwards {
        /// The stream.
        stream: String,
        /// The step that was offered.
        step: u64,
        /// The last one released.
        last: u64,
    },
    /// An attempt that is on record as failed.
    #[error("attempt {attempt} at step {step} of {stream:?}, or a later one, is already recorded as failed")]
    AttemptFailed {
        /// The stream.
        stream: String,
        /// The step.
        step: u64,
        /// The attempt.
        attempt: u32,
    },
    /// A sampled step is attempted once (rule P21).
    #[error(
        "step {step} of {stream:?} failed; a step with sampled users is attempted only once, so continue with the next"
    )]
    SampledOnce {
        /// The stream.
        stream: String,
        /// The step.
        step: u64,
    },
    /// A released step with another content (rule P13).
    #[error(
        "step {step} of {stream:?} was already released as {recorded} in entry {entry}, not as {offered}; a released step is never computed again, use the stored vector"
    )]
    AlreadyReleased {
        /// The stream.
        stream: String,
        /// The step.
        step: u64,
        /// The entry that released it.
        entry: u64,
        /// The digest there.
        recorded: Digest,
        /// The digest that was offered.
        offered: Digest,
    },
    /// An event of correlated noise that does not continue from the one before it.
    #[error("the event of step {step} of {stream:?} does not extend the one before it: {problem}")]
    DoesNotExtend {
        /// The stream.
        stream: String,
        /// The step.
        step: u64,
        /// What differs.
        problem: String,
    },
    /// Participations that are not those of the attempt they are recorded with.
    #[error("the participations are those of {got}, expected {expected}")]
    OtherAttempt {
        /// The attempt recorded.
        expected: String,
        /// The attempt that they name.
        got: String,
    },
    /// A user who takes part twice in one attempt.
    #[error("the same user takes part twice in {attempt}")]
    TwiceInOneAttempt {
        /// The attempt.
        attempt: String,
    },
    /// The side table shows that limits on participation were not kept: no epsilon that counts on them is true (rule P18).
    #[error(
        "the participation limits of {stream:?} were violated, so the guarantee does not hold: the plan says that {plan}; but a user took part in {times} releases{}",
        between.map_or_else(String::new, |n| format!(", two of them with only {n} other release{} between", if n == 1 { "" } else { "s" }))
    )]
    LimitsBroken {
        /// The stream.
        stream: String,
        /// What the plan says, in words.
        plan: String,
        /// The most releases that one user took part in.
        times: u64,
        /// The fewest rounds between two participations of a user.
        between: Option<u64>,
    },
    /// The side table has more users than the plan declares, so delta may be above one over their number (rule P11).
    #[error(
        "the plan declares {declared} users, but {different} were asked in {stream:?}; delta is then not below 1/population, which would permit publishing a user's data"
    )]
    MoreThanDeclared {
        /// The stream.
        stream: String,
        /// What the plan declares.
        declared: u64,
        /// How many different users are in the side table.
        different: u64,
    },
    /// Ledgers whose costs have no sum.
    #[error("these ledgers cannot be composed: {problem}")]
    NotTogether {
        /// The cause.
        problem: String,
    },
    /// One more release would cost more than the plan allows (rule P14).
    #[error(
        "this release would raise epsilon to {would_be}, above the plan's max_epsilon of {max_epsilon}; it is not recorded and must not be used, and the run ends here"
    )]
    BudgetExceeded {
        /// The plan's limit.
        max_epsilon: Epsilon,
        /// The epsilon it would have.
        would_be: Epsilon,
    },
    /// The ledger is closed.
    #[error("the ledger was closed by entry {entry}; a new run needs a new ledger")]
    Closed {
        /// The entry that closed it.
        entry: u64,
    },
    /// An entry longer than a reader accepts.
    #[error("an entry of {bytes} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A stored release that this version cannot read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRelease),
    /// The event contradicts itself.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The plan's accountant has no answer.
    #[error(transparent)]
    Account(#[from] AccountError),
}

impl LedgerError {
    /// A failure of the place where the ledger is kept; also for stores outside this crate.
    pub fn storage(doing: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Storage { doing: doing.into(), source: source.into() }
    }

    /// An entry that is not what was written; also for stores outside this crate.
    pub fn damaged(entry: u64, problem: impl std::fmt::Display) -> Self {
        Self::Damaged { entry, problem: problem.to_string() }
    }

    pub(crate) fn plan(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Plan { field, problem: problem.to_string() }
    }
}

/// Where noise comes from, in a few words.
pub(crate) fn words(randomness: Randomness) -> String {
    match randomness {
        Randomness::Secret => "noise from a secret key".into(),
        Randomness::Simulated { seed } => format!("simulated noise of seed {seed}"),
        Randomness::SimulatedFloatingPoint { seed } => format!("simulated floating-point noise of seed {seed}"),
    }
}
