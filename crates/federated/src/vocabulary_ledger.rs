//! The ledger entry of a vocabulary counted from the users' own text: a release with infinite epsilon (rule P11).

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use ledger::{Aggregation, Attempt, DataSource, Head, Ledger, LedgerError, Phase, Plan, Publication, Start, Unit};
use privacy::{AccountantKind, Adjacency, Delta, Participation, PrivacyEvent, UnitError, rng::Randomness};
use thiserror::Error;

use crate::ledger_file::{FileStore, Place};

/// The stream of a ledger to which vocabularies belong.
const STREAM: &str = "vocabulary";

/// Why words cannot be recorded.
#[derive(Debug, Error)]
pub enum VocabularyLedgerError {
    /// A ledger that is begun declares how many users there are.
    #[error(
        "ledger {} does not exist yet, and a new one must declare the number of users",
        path.display()
    )]
    NoPopulation {
        /// The ledger that is not there.
        path: PathBuf,
    },
    /// A ledger of nobody.
    #[error("must be at least 1")]
    Nobody,
    /// A number of users that leaves no room for a delta.
    #[error(transparent)]
    Population(UnitError),
    /// The ledger itself.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// An open ledger that says that words were released.
pub struct VocabularyLedger(Ledger<FileStore>);

impl VocabularyLedger {
    /// Opens the ledger, or begins it for a vocabulary of so many entries of so many users, as declared.
    ///
    /// # Errors
    /// When it cannot be opened, or begun without knowing how many users there are.
    pub fn open(path: &Path, population: Option<u64>, size: usize) -> Result<Self, VocabularyLedgerError> {
        let place = Place::new(path);
        if path.exists() {
            return Ok(Self(place.open(&[])?.0));
        }
        let none = || VocabularyLedgerError::NoPopulation { path: path.to_owned() };
        let (ledger, _) = place.create(plan(population.ok_or_else(none)?, size)?, now())?;
        Ok(Self(ledger))
    }

    /// Records that this was released without privacy. The same words again are not recorded twice.
    ///
    /// # Errors
    /// When the ledger refuses it, or it cannot be made durable.
    pub fn record(&mut self, what: &str, bytes: &[u8]) -> Result<Head, VocabularyLedgerError> {
        let event = PrivacyEvent::NonPrivate { what: what.to_owned() };
        let plan = self.0.plan();
        let (randomness, declared) = (plan.randomness, plan.population);
        for step in 0.. {
            let publication = Publication { event: &event, randomness, step, bytes: Cow::Borrowed(bytes) };
            let attempt = Attempt { stream: STREAM, number: 0, declared, participations: None, time: now() };
            match self.0.publish(&publication, attempt) {
                Err(LedgerError::AlreadyReleased { .. } | LedgerError::StepBackwards { .. }) => {}
                outcome => return Ok(outcome?.head),
            }
        }
        Ok(self.0.head())
    }
}

/// The plan of a ledger that is about a vocabulary and nothing else.
fn plan(population: u64, size: usize) -> Result<Plan, VocabularyLedgerError> {
    if population == 0 {
        return Err(VocabularyLedgerError::Nobody);
    }
    let mechanism = "the most frequent words of the users' text, counted without noise".to_owned();
    Ok(Plan {
        software: crate::SOFTWARE.into(),
        data: DataSource::Users { what: "the text that the words were counted from".into() },
        unit: Unit::User,
        adjacency: Adjacency::AddOrRemove,
        population,
        // With an infinite epsilon it means nothing, but a plan has one, below 1/population.
        delta: Delta::new(0.5 / population as f64).map_err(VocabularyLedgerError::Population)?,
        phases: vec![Phase {
            stream: STREAM.into(),
            event: PrivacyEvent::NonPrivate { what: mechanism.clone() },
            mechanism,
            parameters: BTreeMap::from([("entries".into(), size.to_string())]),
            participation: Participation::Once,
            rounds: 1,
        }],
        participation_kept_by: "the program that counted the words, which reads all text once".into(),
        accountant: AccountantKind::Best,
        group: 1,
        budget: None,
        start: Start::Random,
        after: Vec::new(),
        public_data: Vec::new(),
        randomness: Randomness::Secret,
        aggregation: Aggregation::Plain { sees_updates: "whoever runs this program".into() },
    })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
