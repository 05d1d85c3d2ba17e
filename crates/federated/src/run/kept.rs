//! Reads what a run has stored, whether it is finished, in progress or was killed: everything a page shows.
//!
//! Nothing is asked of the data, the model or the keys, so a page can be made again at any time, by anyone who has the files.

use std::path::Path;

use device::learner::{Layout, Part};
use ledger::{Ledger, LedgerStore, Start, statement::Statement};
use privacy::{Delta, rng::Randomness};

use super::{
    DiagnosticsLine, Over, RunError, Samples, Totals,
    failed::failed_attempts,
    is_undecided, known_heads, parsed, read_log,
    stated::{counted, price},
    told::{Told, notes},
    written_settings,
};
use crate::{
    burden::Burden,
    canaries::Shown,
    checkpoint,
    config::Config,
    home::{Home, HomeError, Log, Paper, Records},
    metrics::{Diagnostics, Measures, Metrics, Timing},
    plan::{Plan, Setting},
    price::Price,
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
    /// What the users of each round did, exactly; none where the noise is secret.
    pub diagnostics: Vec<Diagnostics>,
    /// What its model suggested after public prompts, at each evaluation.
    pub samples: Vec<Samples>,
    /// Rounds that are settled.
    pub rounds: u64,
    /// Why it is over, where it is closed.
    pub ended: Option<Over>,
    /// Failed attempts at its rounds.
    pub failed: Vec<Failed>,
    /// What its ledger states now.
    pub statement: Statement,
    /// What a person can quote.
    pub sentence: String,
    /// Whether it is one of a sweep that is not decided, so that its epsilon is not yet what it costs.
    pub undecided: bool,
    /// What users did, exactly; simulations only.
    pub totals: Option<Totals>,
    /// What else should be known of it, each in a sentence: how much noise its model bore, users whose training diverged.
    pub notes: Vec<String>,
    /// What its canaries show, where it has some and is over.
    pub audit: Option<Shown>,
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
        let failed = failed_attempts(&ledger);
        let rounds = settled_rounds(&ledger);
        // What was written after the ledger was read is told with the rounds that it is of.
        let mut metrics: Vec<Metrics> = read_log(home, Log::Metrics)?;
        metrics.retain(|line| line.round <= rounds);
        let mut samples: Vec<Samples> = read_log(home, Log::Samples)?;
        samples.retain(|line| line.round <= rounds);
        let simulated = statement.accounting.randomness != Randomness::Secret;
        let totals = if simulated { Some(Totals::read(home)?).filter(|totals| totals.rounds > 0) } else { None };
        let cohort = config.cohort(rounds);
        let told = Told { cohort, rounds, history: &metrics, totals, failed: &failed, statement: &statement };
        let sent = metrics.last().and_then(|line| line.sent);
        let name = home.name();
        Ok(Self {
            name: Path::new(&name).file_name().map_or(name.clone(), |last| last.to_string_lossy().into_owned()),
            started: started(&ledger)?,
            settings,
            timing: if simulated { read_log(home, Log::Timing)? } else { Vec::new() },
            diagnostics: if simulated { diagnostics(home)? } else { Vec::new() },
            samples,
            rounds,
            ended: ledger.closing().map(|closing| closing.because.into()),
            sentence: told.sentence() + alone(home)?,
            undecided: is_undecided(home)?,
            audit: audit(home)?,
            notes: notes(burden(home, &config, &statement, &metrics).as_ref(), totals.as_ref(), sent),
            totals,
            config,
            metrics,
            failed,
            statement,
        })
    }

    /// What it was to release, from its settings: enough for noise and accounting, and not for training. None where they do not tell.
    #[must_use]
    pub fn plan(&self, home: &dyn Home) -> Option<Plan> {
        plan(home, &self.config, &self.statement, &self.metrics)
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
            if self.statement.data.is_made_up() { ", on synthetic users: nobody real is protected" } else { "" };
        let alone = if self.undecided { ", for this run alone: its sweep has not finished" } else { "" };
        counted(&self.statement) + self.foreseen() + nobody + alone
    }

    /// What its epsilon counts beyond the rounds so far: before a run has ended, its whole plan.
    #[must_use]
    pub fn foreseen(&self) -> &'static str {
        let is_more = self.ended.is_none() && self.price().epsilon.is_finite();
        if is_more { ", for the whole plan" } else { "" }
    }
}

/// How much noise a run puts on its model, from what it left; none where that cannot be told.
fn burden(home: &dyn Home, config: &Config, statement: &Statement, metrics: &[Metrics]) -> Option<Burden> {
    Burden::of(&plan(home, config, statement, metrics)?)
}

/// What a run was to release, from what it left: enough for noise and accounting, and not for training. None where that cannot be told.
fn plan(home: &dyn Home, config: &Config, statement: &Statement, metrics: &[Metrics]) -> Option<Plan> {
    let part = Part { name: "all".into(), rows: 1, columns: checkpoint::parameters(home)? };
    let setting = Setting {
        parameters: Layout::new(vec![part]),
        data: statement.data.clone(),
        start: Start::Random,
        non_private: None,
        after: Vec::new(),
        public_data: Vec::new(),
        counted: device::evaluation::coordinates(Measures::of(metrics).name),
        general: None,
    };
    // What devices rehearse changes no noise, and its text may not be here.
    let config = Config { finetune: None, ..config.clone() };
    Plan::new(config, &setting).ok()
}

/// What canaries show, where that was written down.
fn audit(home: &dyn Home) -> Result<Option<Shown>, RunError> {
    let Some(text) = home.paper(Paper::Audit)? else { return Ok(None) };
    let wrong = |error: serde_json::Error| {
        let what = format!("the audit of {} cannot be parsed", home.name());
        HomeError::Other { what, source: error.into() }
    };
    Ok(Some(serde_json::from_str(&text).map_err(wrong)?))
}

/// The exact numbers of each round, without the warning that stands before them.
fn diagnostics(home: &dyn Home) -> Result<Vec<Diagnostics>, RunError> {
    let lines: Vec<DiagnosticsLine<Diagnostics>> = read_log(home, Log::Diagnostics)?;
    let of_round = |line| match line {
        DiagnosticsLine::Round(round) => Some(round),
        DiagnosticsLine::Head { .. } => None,
    };
    Ok(lines.into_iter().filter_map(of_round).collect())
}

/// When a run was begun, as its ledger says: in seconds since 1970.
pub(super) fn started<S: LedgerStore>(ledger: &Ledger<S>) -> Result<u64, RunError> {
    Ok(ledger.entries()?.next().transpose()?.map_or(0, |entry| entry.time()))
}

/// What must be said behind the sentence of a run of a sweep that is not decided (rule P22).
pub(super) fn alone(home: &(impl Home + Records)) -> Result<&'static str, RunError> {
    const ALONE: &str = " That is this run alone: it belongs to a sweep that has not finished, and any run chosen from it costs what all of them cost together.";
    Ok(if is_undecided(home)? { ALONE } else { "" })
}
