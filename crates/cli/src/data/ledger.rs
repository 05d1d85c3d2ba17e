//! The ledger entry of a vocabulary that was counted from the users' own text: a release that costs infinity (rule P11).

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use federated::ledger_file::{FileStore, Place};
use ledger::{Aggregation, Attempt, DataSource, Head, Ledger, LedgerError, Phase, Plan, Publication, Start, Unit};
use privacy::{AccountantKind, Adjacency, Delta, Participation, PrivacyEvent, rng::Randomness};

use crate::failure::BadInput;

/// The stream of a ledger to which vocabularies belong.
const STREAM: &str = "vocabulary";

/// Which ledger says that words were released.
#[derive(Args)]
pub(crate) struct LedgerOfWordsArgs {
    /// The ledger that records the users' words as released without privacy; it is begun if it is not there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from_list", "from_public_text"])]
    ledger: Option<PathBuf>,
    /// How many users there are, as declared: a ledger that is begun says so
    #[arg(long, value_name = "N", requires = "ledger")]
    population: Option<u64>,
}

/// An open ledger.
pub(super) struct LedgerOfWords(Ledger<FileStore>);

impl LedgerOfWordsArgs {
    /// Opens the ledger, or begins it.
    pub(super) fn open(&self, size: usize) -> anyhow::Result<LedgerOfWords> {
        let Some(path) = &self.ledger else {
            let why = "the users' words are released without privacy, and a ledger must say so".to_owned();
            return Err(BadInput::Missing { field: "ledger", why }.into());
        };
        let place = Place::new(path);
        if path.exists() {
            return Ok(LedgerOfWords(place.open(&[])?.0));
        }
        let Some(population) = self.population else {
            let why = format!(
                "there is no ledger {} yet, and one that is begun declares how many users there are",
                path.display()
            );
            return Err(BadInput::Missing { field: "population", why }.into());
        };
        let (ledger, _) = place.create(plan(population, size)?, now())?;
        Ok(LedgerOfWords(ledger))
    }
}

impl LedgerOfWords {
    /// Records that this was released without privacy. The same words again are not recorded twice.
    pub(super) fn record(&mut self, what: &str, bytes: &[u8]) -> anyhow::Result<Head> {
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
fn plan(population: u64, size: usize) -> anyhow::Result<Plan> {
    let wrong = |problem: String| BadInput::wrong("population", problem);
    if population == 0 {
        return Err(wrong("there must be somebody".into()).into());
    }
    let mechanism = "the most frequent words of the users' text, counted without noise".to_owned();
    Ok(Plan {
        software: federated::SOFTWARE.into(),
        data: DataSource::Users { what: "the text that the words were counted from".into() },
        unit: Unit::User,
        adjacency: Adjacency::AddOrRemove,
        population,
        // With an infinite epsilon it means nothing, but a plan has one, below 1/population.
        delta: Delta::new(0.5 / population as f64).map_err(|error| wrong(error.to_string()))?,
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
        public_data: Vec::new(),
        randomness: Randomness::Secret,
        aggregation: Aggregation::Plain { sees_updates: "whoever runs this program".into() },
    })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
