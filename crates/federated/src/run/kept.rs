//! What a run has left, read back: all that a page shows, of a run that is over, going on or was killed.
//!
//! Nothing is asked of the data, the model or the keys, so a page can be made again at any time, by anyone who has the files.

use std::path::Path;

use ledger::{
    DataSource, Ledger, LedgerStore,
    statement::{Statement, rounded_up},
};
use privacy::{Delta, rng::Randomness};

use super::{
    RunError,
    ending::{counted, price},
    failed::failed_attempts,
    is_undecided, known_heads, parsed, read_log, tokens, written_settings,
};
use crate::{
    config::Config,
    home::{Home, Log, Records},
    metrics::{Metrics, Timing},
    numbers::grouped,
    price::{Meaning, Price},
    round::attempts::{Failed, settled_rounds},
};

/// A run as its home has it.
#[derive(Debug)]
pub struct Kept {
    /// Its name: that of its folder.
    pub name: String,
    /// When it was begun, in seconds since 1970.
    pub started: u64,
    /// Its settings.
    pub config: Config,
    /// The same, as they are written.
    pub settings: String,
    /// Its evaluations.
    pub metrics: Vec<Metrics>,
    /// Its rounds; none where the noise is secret.
    pub timing: Vec<Timing>,
    /// Attempts at its rounds that came to nothing.
    pub failed: Vec<Failed>,
    /// What its ledger states now.
    pub statement: Statement,
    /// What a person can quote.
    pub sentence: String,
    /// Whether it is one of a sweep that is not decided, so that its epsilon is not yet what it costs.
    pub undecided: bool,
    /// Tokens that users have read, exactly; simulations only.
    pub tokens: Option<u64>,
}

impl Kept {
    /// Reads them. A line that was being written is left out.
    ///
    /// # Errors
    /// When there is no run, or its ledger or something else of it is damaged.
    pub fn read(home: &(impl Home + Records)) -> Result<Self, RunError> {
        let settings = written_settings(home)?;
        let config = parsed(&settings)?;
        // Heads first: a ledger that is being written only grows.
        let heads = known_heads(home)?;
        let ledger = Ledger::open(home.read_store()?, None, &heads)?;
        let statement = Statement::of(&ledger)?;
        let metrics: Vec<Metrics> = read_log(home, Log::Metrics)?;
        let failed = failed_attempts(&ledger);
        let rounds = settled_rounds(&ledger);
        let simulated = statement.accounting.randomness != Randomness::Secret;
        let name = home.name();
        Ok(Self {
            name: Path::new(&name).file_name().map_or(name.clone(), |last| last.to_string_lossy().into_owned()),
            started: started(&ledger)?,
            settings,
            timing: if simulated { read_log(home, Log::Timing)? } else { Vec::new() },
            sentence: sentence(config.cohort(rounds), rounds, metrics.last(), &failed, &statement) + alone(home)?,
            undecided: is_undecided(home)?,
            tokens: if simulated { Some(tokens(home)?) } else { None },
            config,
            metrics,
            failed,
            statement,
        })
    }

    /// Whether its noise can be repeated, so that nothing is guaranteed.
    #[must_use]
    pub fn is_simulation(&self) -> bool {
        self.statement.accounting.randomness != Randomness::Secret
    }

    /// What its statement guarantees, or would if the noise were secret.
    #[must_use]
    pub fn price(&self) -> Price {
        price(&self.statement)
    }

    /// The delta of its epsilons.
    #[must_use]
    pub const fn delta(&self) -> Delta {
        self.statement.guarantee.delta
    }

    /// What must be said beside its epsilon; it may be nothing.
    #[must_use]
    pub fn remark(&self) -> String {
        let nobody =
            if self.statement.data.is_made_up() { ", of a made-up crowd: nobody real is protected" } else { "" };
        let alone = if self.undecided { ", for this run alone: its sweep is not decided" } else { "" };
        counted(&self.statement) + nobody + alone
    }
}

/// When a run was begun, as its ledger says: in seconds since 1970.
pub(super) fn started<S: LedgerStore>(ledger: &Ledger<S>) -> Result<u64, RunError> {
    Ok(ledger.entries()?.next().transpose()?.map_or(0, |entry| entry.time()))
}

/// What must be said behind the sentence of a run of a sweep that is not decided (rule P22).
pub(super) fn alone(home: &(impl Home + Records)) -> Result<&'static str, RunError> {
    const ALONE: &str = " That is this run alone: it is one of a sweep that is not decided, and whichever of its runs is taken costs what all of them cost together.";
    Ok(if is_undecided(home)? { ALONE } else { "" })
}

/// What a person can quote: what the model does, for whom it was paid, and the price, if there is one (rule P23).
pub(super) fn sentence(
    cohort: u64,
    rounds: u64,
    last: Option<&Metrics>,
    failed: &[Failed],
    statement: &Statement,
) -> String {
    let Some(Metrics { measured, .. }) = last else { return "Nothing was measured yet.".into() };
    let price = price(statement);
    let unit = statement.unit.name();
    let made_up = if statement.data.is_made_up() { "made-up " } else { "" };
    let (cohort, population) = (grouped(cohort), grouped(statement.population));
    let mood = if price.meaning == Meaning::IfSecret { "In simulation, the model" } else { "The model" };
    let does = (measured.measures().does)(measured.headline());
    let failed = match failed.iter().filter(|failed| failed.passed_over).count() {
        0 => String::new(),
        passed_over => format!(", {passed_over} of which came to nothing"),
    };
    let done = format!("{mood} {does} after {rounds} rounds of {cohort} of {population} {made_up}{unit}s{failed}");
    if !price.epsilon.is_finite() {
        return format!("{done}, with no privacy at all (epsilon is infinite).");
    }
    let (epsilon, delta) = (rounded_up(price.epsilon.get()), format!("{:e}", statement.guarantee.delta.get()));
    let (adjacency, counted) = (statement.adjacency, counted(statement));
    let private = format!("{unit}-level ({epsilon}, {delta})-differential privacy ({adjacency}){counted}");
    match (price.meaning, &statement.data) {
        (Meaning::IfSecret, _) => {
            format!("{done}. No guarantee: the noise was simulated; with secret noise it would be {private}.")
        }
        (_, DataSource::MadeUp { .. }) => format!("{done}, with {private}; nobody real is protected."),
        (_, DataSource::Users { .. }) => format!("{done}, with {private}."),
    }
}
