//! What the folder of a run holds, read back: all that a page shows, of a run that is over, going on or was killed.
//!
//! Nothing is asked of the data, the model or the keys, so a page can be made again at any time, by anyone who has the files.

use std::path::Path;

use durable::files::{self, FileError};
use ledger::{
    DataSource, Head, Ledger,
    statement::{Statement, rounded_up},
};
use privacy::{Delta, rng::Randomness};

use super::{
    CONFIG_FILE, LEDGER_FILE, RunError,
    ending::{counted, price},
    failed::failed_attempts,
    place, settings, tokens,
};
use crate::{
    config::Config,
    heads,
    ledger_file::FileStore,
    metrics::{DIAGNOSTICS_FILE, METRICS_FILE, Metrics, TIMING_FILE, Timing},
    numbers::grouped,
    price::{Meaning, Price},
    round::attempts::{Failed, settled_rounds},
};

/// A run as its folder has it.
#[derive(Debug)]
pub struct Kept {
    /// The name of the folder.
    pub name: String,
    /// When it was begun, in seconds since 1970.
    pub started: u64,
    /// Its settings.
    pub config: Config,
    /// The same, as the folder has them.
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
    /// Tokens that users have read, exactly; simulations only.
    pub tokens: Option<u64>,
}

impl Kept {
    /// Reads the folder. A line that was being written is left out.
    ///
    /// # Errors
    /// When there is no run in it, or its ledger or another file of it is damaged.
    pub fn read(folder: &Path) -> Result<Self, RunError> {
        let config = settings(folder)?;
        let path = folder.join(LEDGER_FILE);
        let heads: Vec<Head> = heads::check(&path)?.into_iter().map(|shown| shown.head).collect();
        let ledger = place(folder).read(&heads)?;
        let statement = Statement::of(&ledger)?;
        let metrics: Vec<Metrics> = files::read_whole_lines(&folder.join(METRICS_FILE))?;
        let failed = failed_attempts(&ledger);
        let simulated = statement.accounting.randomness != Randomness::Secret;
        Ok(Self {
            name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            started: started(&ledger)?,
            settings: files::read_text(&folder.join(CONFIG_FILE))?,
            timing: timing(folder)?,
            sentence: sentence(&config, settled_rounds(&ledger), metrics.last(), &failed, &statement),
            tokens: if simulated { Some(tokens(&folder.join(DIAGNOSTICS_FILE))?) } else { None },
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
        counted(&self.statement) + nobody
    }
}

/// When a run was begun, as its ledger says: in seconds since 1970.
pub(super) fn started(ledger: &Ledger<FileStore>) -> Result<u64, RunError> {
    Ok(ledger.entries()?.next().transpose()?.map_or(0, |entry| entry.time()))
}

/// The rounds of a run as they were timed; none where the noise is secret.
///
/// # Errors
/// When they cannot be read.
pub fn timing(folder: &Path) -> Result<Vec<Timing>, FileError> {
    files::read_whole_lines(&folder.join(TIMING_FILE))
}

/// What a person can quote: what the model does, for whom it was paid, and the price, if there is one (rule P23).
pub(super) fn sentence(
    config: &Config,
    rounds: u64,
    last: Option<&Metrics>,
    failed: &[Failed],
    statement: &Statement,
) -> String {
    let Some(Metrics { measured, .. }) = last else { return "Nothing was measured yet.".into() };
    let price = price(statement);
    let unit = statement.unit.name();
    let made_up = if statement.data.is_made_up() { "made-up " } else { "" };
    let (cohort, population) = (grouped(config.cohort(rounds)), grouped(statement.population));
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
