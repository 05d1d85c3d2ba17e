//! The tests that every [`LedgerStore`] must pass: in memory, in files, in a database.
//!
//! The entries are those of a small ledger that was kept in memory, with vectors and participations attached. What a store cannot be
//! asked here, what is left after a power cut, is the matter of its own tests.

use std::{borrow::Cow, collections::BTreeMap};

use privacy::{
    Adjacency, Delta, NoiseMultiplier, Participation, PrivacyEvent, accountant::AccountantKind, rng::Randomness,
};

use crate::{
    Aggregation, Attached, Attempt, BegunAttempt, DataSource, Ended, Entry, FailureReason, Head, Keeping, KeyDestroyed,
    Ledger, LedgerError, LedgerStore, MemoryStore, NoiseDestroyed, ParticipationRecord, Participations, Phase, Plan,
    PseudonymKey, Publication, SigningKey, Start, Unit,
};

const STREAM: &str = "model";

/// What each of them costs.
fn release() -> PrivacyEvent {
    PrivacyEvent::gaussian(Adjacency::AddOrRemove, NoiseMultiplier::new(5.0).expect("five is a multiplier"))
}

/// A plan of a hundred releases.
#[must_use]
pub fn plan() -> Plan {
    Plan {
        software: "a contract".into(),
        data: DataSource::MadeUp { what: "nobody".into() },
        unit: Unit::User,
        adjacency: Adjacency::AddOrRemove,
        population: 1000,
        delta: Delta::new(1e-6).expect("a millionth is a delta"),
        phases: vec![Phase {
            stream: STREAM.into(),
            mechanism: "Gaussian noise".into(),
            parameters: BTreeMap::new(),
            participation: Participation::Once,
            rounds: 100,
            event: release().times(100),
        }],
        participation_kept_by: "nobody".into(),
        accountant: AccountantKind::Zcdp,
        group: 1,
        budget: None,
        start: Start::Random,
        after: Vec::new(),
        public_data: Vec::new(),
        randomness: Randomness::Secret,
        aggregation: Aggregation::Plain { sees_updates: "nobody".into() },
    }
}

/// What a store is asked to keep.
struct Story {
    entries: Vec<Entry>,
    released: Vec<Option<Vec<u8>>>,
    participations: Vec<ParticipationRecord>,
}

impl Story {
    /// The plan, three releases with who took part, an attempt that failed, one more release, and the end.
    fn new() -> Self {
        let key = SigningKey::generate().expect("there is randomness");
        let pseudonyms = PseudonymKey::generate().expect("there is randomness");
        let mut ledger = Ledger::create(MemoryStore::new(), plan(), key, 1).expect("a ledger in memory");
        let (mut released, mut participations) = (vec![None], Vec::new());
        for (step, number, fails) in [(0, 0, false), (1, 0, false), (2, 0, false), (3, 0, true), (3, 1, false)] {
            let users: Vec<String> = (0..4).map(|n| format!("user {n} of step {step}, attempt {number}")).collect();
            let users = users.iter().map(String::as_bytes);
            let record = pseudonyms.record(STREAM, step, number, users).expect("nobody is there twice");
            let attempt = Attempt { stream: STREAM, number, declared: 10, participations: Some(&record), time: step };
            let done = if fails {
                released.push(None);
                ledger.record_failed(step, FailureReason::Interrupted, attempt)
            } else {
                let bytes = vec![step as u8; 100 * step as usize];
                released.push(Some(bytes.clone()));
                let (event, randomness, bytes) = (&release(), Randomness::Secret, Cow::Owned(bytes));
                ledger.publish(&Publication { event, randomness, step, bytes }, attempt)
            };
            let _receipt = done.expect("it is planned");
            participations.push(record);
        }
        let gone = (KeyDestroyed::assertion(), NoiseDestroyed::assertion());
        let _receipt = ledger.close(Ended::ByHand, gone.0, gone.1, 9).expect("it can be closed");
        released.push(None);
        let entries = ledger.entries().expect("a ledger in memory").map(|entry| entry.expect("it is there")).collect();
        Self { entries, released, participations }
    }

    /// Keeps the vector of the next entry, and another one: before it, or after it, or not at all. Gives what is told of the right one.
    fn keep<S: LedgerStore>(&self, store: &mut S, index: usize) -> Option<Keeping> {
        let right = self.released[index].as_deref()?;
        let mut keep = |bytes: &[u8]| store.keep_vector(index as u64, bytes).expect("it can be kept");
        match index % 3 {
            0 => None,
            1 => {
                keep(b"a vector that was not recorded");
                keep(right)
            }
            _ => {
                let kept = keep(right);
                keep(b"a vector that was kept instead");
                kept
            }
        }
    }

    /// Appends an entry with all that belongs to it.
    fn append<S: LedgerStore>(&self, store: &mut S, index: usize, kept: Option<Keeping>) -> Result<Head, LedgerError> {
        let released = self.released[index].as_deref();
        let participations = index.checked_sub(1).and_then(|attempt| self.participations.get(attempt));
        store.append(&self.head(index), &self.entries[index], Attached { released, participations, kept })
    }

    /// The head before an entry.
    fn head(&self, index: usize) -> Head {
        index.checked_sub(1).map_or(Head::EMPTY, |before| self.entries[before].head())
    }

    /// That the store holds the first entries, with all that belongs to them, and nothing more.
    fn check<S: LedgerStore>(&self, store: &S, length: usize) {
        assert_eq!(store.head().expect("a head"), self.head(length), "the head after {length} entries");
        for from in 0..=length + 1 {
            let read: Result<Vec<Entry>, _> = store.read(from as u64).expect("it can be read").collect();
            let want = self.entries.get(from..length).unwrap_or_default();
            assert!(read.expect("entries that were appended") == want, "the entries from {from} on, of {length}");
        }
        for index in 0..length {
            let released = store.released(index as u64).expect("a vector can be asked for");
            assert_eq!(released, self.released[index], "the vector of entry {index}");
        }
        assert_eq!(store.released(length as u64).expect("it can be asked for"), None, "a vector before its entry");
        let records = store.participations().expect("they can be asked for");
        let records: Vec<String> = records.map_or_else(Vec::new, |all| {
            all.map(|record| record.expect("a record that was attached").line().to_owned()).collect()
        });
        let attached = length.saturating_sub(1).min(self.participations.len());
        let want: Vec<&str> = self.participations[..attached].iter().map(ParticipationRecord::line).collect();
        assert_eq!(records, want, "who took part");
    }
}

/// The suite, for a store without entries. `again` closes a store that has entries and reopens it, as a restart does.
///
/// # Panics
/// When the store does not keep the contract.
pub fn store<S: LedgerStore>(empty: S, again: impl Fn(S) -> S) {
    let story = Story::new();
    let mut store = empty;
    assert_eq!(store.head().expect("a head"), Head::EMPTY);
    for index in 0..story.entries.len() {
        refuses_others(&story, &mut store, index);
        let kept = story.keep(&mut store, index);
        let head = story.append(&mut store, index, kept).expect("it follows the head");
        assert_eq!(head, story.head(index + 1), "what is acknowledged is the new head");
        story.check(&store, index + 1);
        store = again(store);
        story.check(&store, index + 1);
    }
    store = remembers_one_attempt(store, &again);
    lets_go_of_vectors(&story, store, again);
}

/// An entry that was made for another head changes nothing.
fn refuses_others<S: LedgerStore>(story: &Story, store: &mut S, length: usize) {
    for other in (0..story.entries.len()).filter(|other| *other != length) {
        let refused = story.append(store, other, None);
        assert!(matches!(refused, Err(LedgerError::NotTheHead { .. })), "entry {other} after {length}: {refused:?}");
        // The right head, and an entry that does not follow it.
        let refused = store.append(&story.head(length), &story.entries[other], Attached::default());
        assert!(refused.is_err(), "entry {other} is none after {length}");
    }
    if length > 0 {
        story.check(store, length);
    }
}

fn remembers_one_attempt<S: LedgerStore>(mut store: S, again: &impl Fn(S) -> S) -> S {
    let attempt = |step, attempt| BegunAttempt { stream: STREAM.into(), step, attempt, declared: 10 };
    let begun = |store: &S| store.begun_attempt().expect("it can be asked for");
    assert_eq!(begun(&store), None);
    for next in [attempt(3, 0), attempt(3, 1), attempt(40, 0)] {
        store.begin_attempt(&next).expect("it can be noted");
        assert_eq!(begun(&store), Some(next.clone()));
        store = again(store);
        assert_eq!(begun(&store), Some(next), "an attempt is not forgotten by a restart");
    }
    for _ in 0..2 {
        store.forget_attempt().expect("it can be forgotten, and once more");
        assert_eq!(begun(&store), None);
    }
    let store = again(store);
    assert_eq!(begun(&store), None, "and stays forgotten");
    store
}

/// Vectors below an index go; the entries stay, and so do the other vectors.
fn lets_go_of_vectors<S: LedgerStore>(story: &Story, mut store: S, again: impl Fn(S) -> S) {
    for below in [0, 2, 3, story.entries.len()] {
        store.discard_released(below as u64).expect("they can go");
        for restarted in [false, true] {
            if restarted {
                store = again(store);
            }
            for (index, released) in story.released.iter().enumerate() {
                let want = if index < below { &None } else { released };
                let got = store.released(index as u64).expect("it can be asked for");
                assert_eq!(&got, want, "the vector of entry {index}, those below {below} gone");
            }
            let read: Result<Vec<Entry>, _> = store.read(0).expect("it can be read").collect();
            assert!(read.expect("they are there") == story.entries, "entries stay when vectors go");
        }
    }
}

/// A store that keeps the vector of every other entry before it appends the entry, as a store with threads does: for crash tests.
#[derive(Debug)]
pub struct Keeps<S>(pub S);

impl<S: LedgerStore> LedgerStore for Keeps<S> {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        let kept = match attached.released {
            Some(bytes) if entry.index() % 2 == 1 => self.0.keep_vector(entry.index(), bytes)?,
            _ => attached.kept,
        };
        self.0.append(after, entry, Attached { kept, ..attached })
    }
    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
        self.0.read(from)
    }
    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        self.0.released(index)
    }
    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        self.0.discard_released(below)
    }
    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
        self.0.participations()
    }
    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
        self.0.begin_attempt(begun)
    }
    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        self.0.begun_attempt()
    }
    fn forget_attempt(&mut self) -> Result<(), LedgerError> {
        self.0.forget_attempt()
    }
    fn head(&self) -> Result<Head, LedgerError> {
        self.0.head()
    }
}
