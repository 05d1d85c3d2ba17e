//! A run is a folder: begun, gone on with after any crash, and ended.
//!
//! | file                | what it holds                                                                        |
//! |---------------------|--------------------------------------------------------------------------------------|
//! | `config.toml`       | the settings, resolved                                                               |
//! | `ledger.jsonl`      | every release, with what belongs to it beside it ([`crate::ledger_file`])         |
//! | `secret/`           | keys; stays with the run                                                             |
//! | `metrics.jsonl`     | a line an evaluation                                                                 |
//! | `timing.jsonl`      | a line a round; simulations only: how long a round took tells how many took part      |
//! | `diagnostics.jsonl` | exact losses and norms, a line a round; simulations only, not private                |
//! | `checkpoints/`      | the two newest states                                                                |
//! | `model/`            | the model at the end                                                                 |
//! | `statement.md`, `.json` | the guarantee, from the ledger                                                   |
//!
//! Pages and the file for TensorBoard are made from these by the crate `report` ([`Kept`]).
//!
//! Killed at any moment, a run goes on from its newest checkpoint: what the ledger has beyond it is applied again, never
//! released again, and evaluated where that was due. So a simulation ends with the same model, metrics and events. With secret
//! noise what was recorded stays, and a step that was not is drawn anew (rule P21). Where updates are added up securely, a round
//! in whose midst it was killed has failed, as any other that comes to nothing: its users are not asked again (rule P24). A run that ends is closed: its noise
//! cannot be drawn again by anyone (rule P20).

mod beginning;
mod ending;
mod error;
mod failed;
mod kept;
mod opened;
mod price;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use self::beginning::{Beginning, Changed};
pub use self::{
    ending::{Ending, stated},
    error::RunError,
    kept::{Kept, timing},
    opened::Opened,
};
use crate::ledger_file::{FileStore, Place};
use crate::{
    checkpoint::Checkpoints,
    config::{Config, Document},
    engine::Means,
    evaluate::HeldOut,
    fleet::{Fleet, Stop},
    heads::{self, HeadsError},
    metrics::{DIAGNOSTICS_FILE, DiagnosticsHead, METRICS_FILE, Measured, Measures, Metrics, TIMING_FILE},
    plan::{BEFORE, Phase, Plan},
    randomness::RunRandomness,
    round::{
        Done, Loop, Replayed, Round, RoundError, State,
        attempts::{Failed, settled_rounds},
    },
};
use durable::files::{self, FileError, Lines};
use ledger::{Attempt, Ended, Import, Ledger, PseudonymKey, Publication, Unit, statement::Statement};
use lm::metrics::Targets;
use privacy::{
    PrivacyEvent,
    rng::{Randomness, SimulationKey},
    step_keys::LastStep,
};

/// The resolved settings.
pub const CONFIG_FILE: &str = "config.toml";
/// The ledger.
pub const LEDGER_FILE: &str = "ledger.jsonl";
/// The model.
pub const MODEL_FOLDER: &str = "model";
/// The guarantee in words.
pub const STATEMENT_FILE: &str = "statement.md";
/// The guarantee for programs.
pub const STATEMENT_JSON: &str = "statement.json";
/// The newest states.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

impl From<RoundError> for RunError {
    fn from(error: RoundError) -> Self {
        Self::Round(Box::new(error))
    }
}

impl From<HeadsError> for RunError {
    fn from(error: HeadsError) -> Self {
        match error {
            HeadsError::Ledger(error) => Self::Ledger(error),
            other => Self::Heads(Box::new(other)),
        }
    }
}

/// Why a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// All rounds are done.
    Done,
    /// The next round would cost more than the budget.
    Budget(String),
    /// The accuracy that was asked for is reached.
    Accurate,
    /// Somebody ended it.
    ByHand,
}

impl From<Ended> for Over {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::PlanDone => Self::Done,
            Ended::BudgetSpent => Self::Budget("the next round would have cost more than the budget".into()),
            Ended::TargetReached => Self::Accurate,
            Ended::ByHand => Self::ByHand,
        }
    }
}

impl From<&Over> for Ended {
    fn from(over: &Over) -> Self {
        match over {
            Over::Done => Self::PlanDone,
            Over::Budget(_) => Self::BudgetSpent,
            Over::Accurate => Self::TargetReached,
            Over::ByHand => Self::ByHand,
        }
    }
}

/// What a step of a run came to.
#[derive(Debug)]
pub struct Step {
    /// The round that was done, if one was.
    pub done: Option<Box<Done>>,
    /// The attempt at a round that came to nothing, if it did.
    pub failed: Option<Failed>,
    /// The evaluation after it, where there was one.
    pub metrics: Option<Metrics>,
    /// Whether the run is over.
    pub over: Option<Over>,
}

/// A run.
pub struct Run<'a> {
    folder: PathBuf,
    plan: &'a Plan,
    opened: &'a Opened,
    means: Means,
    held_out: HeldOut,
    rounds: Loop<'a, FileStore>,
    checkpoints: Checkpoints,
    metrics: Lines,
    timing: Option<Lines>,
    diagnostics: Option<Lines>,
    history: Vec<Metrics>,
    started: u64,
    warnings: Vec<String>,
    over: Option<Over>,
    /// Tokens that were read by users, exactly; for simulations.
    tokens: u64,
}

/// Says in the folder of a run that it is one of a sweep, until the choice among them is counted in its ledger.
const UNDECIDED: &str = "part-of-a-sweep";

/// Whether the run of a folder is one of a sweep that is not decided.
#[must_use]
pub fn is_undecided(folder: &Path) -> bool {
    folder.join(UNDECIDED).exists()
}

/// Notes that the run of a folder, which may not be begun yet, is one of a sweep: its ledger stays open until the choice among
/// them is counted in it. A run whose ledger is closed is decided.
///
/// # Errors
/// When the disk fails, or the ledger is damaged.
pub fn belongs_to_a_sweep(folder: &Path) -> Result<(), RunError> {
    let place = place(folder);
    if place.is_begun()? && place.read(&[])?.is_closed() {
        return Ok(());
    }
    let words = "This run is one of a sweep. Its ledger is closed, and its price known, when the sweep is decided: run the same\nkeyhush sweep again.\n";
    files::make_folder(folder)?;
    Ok(files::write(&folder.join(UNDECIDED), words.as_bytes())?)
}

/// Ends a run whose data, settings or checkpoints cannot be had any more: what its noise was drawn from is destroyed, its
/// ledger closed and its statement written. There is no model.
///
/// # Errors
/// When the ledger cannot be opened, or the disk fails.
pub fn end_without_model(folder: &Path) -> Result<Statement, RunError> {
    let place = place(folder);
    let (mut ledger, _) = place.open(&[])?;
    if is_undecided(folder) && !ledger.is_closed() {
        return Err(RunError::Undecided { path: folder.to_owned() });
    }
    if !ledger.is_closed() {
        let because = place.closing_begun()?.unwrap_or(Ended::ByHand);
        let time = ledger_time(ledger.plan().randomness);
        place.close(&mut ledger, because, time)?;
    }
    ending::write_statement(folder, &ledger)
}

/// Reads the settings of a run that is there.
///
/// # Errors
/// When there is none.
pub fn settings(folder: &Path) -> Result<Config, RunError> {
    let path = folder.join(CONFIG_FILE);
    if !path.is_file() {
        return Err(RunError::NoRun { path: folder.to_owned() });
    }
    Ok(Document::new(&files::read_text(&path)?, &[])?.config()?)
}

impl<'a> Run<'a> {
    /// Begins a run in a folder that holds none.
    ///
    /// # Errors
    /// When there is one, or something cannot be made.
    pub fn begin(folder: &Path, plan: &'a Plan, opened: &'a Opened, means: Means) -> Result<Self, RunError> {
        let place = place(folder);
        if folder.join(CONFIG_FILE).exists() || place.is_begun()? {
            return Err(RunError::Taken { path: folder.to_owned() });
        }
        files::make_folder(folder)?;
        if plan.randomness() == Randomness::Secret {
            place.draw_noise_key()?;
        }
        files::write(&folder.join(CONFIG_FILE), plan.settings.as_bytes())?;
        let (ledger, key) = begin_ledger(&place, plan, opened)?;
        Beginning::of(&key, &place, plan, opened)?.keep(&place)?;
        let state = State::new(plan, opened.first_parameters().to_vec())?;
        let randomness = randomness(&place, plan, &ledger)?;
        let mut run = Self::with(folder, plan, opened, means, randomness, ledger, state, None)?;
        run.evaluate_if_due()?;
        run.checkpoint()?;
        Ok(run)
    }

    /// Goes on with a run; what the ledger has beyond the newest checkpoint is applied again.
    ///
    /// # Errors
    /// When there is none, it was begun with other settings or other data, or it is damaged.
    pub fn resume(folder: &Path, plan: &'a Plan, opened: &'a Opened, means: Means) -> Result<Self, RunError> {
        Self::go_on(folder, plan, opened, means, None)
    }

    /// The same with a store that had to change, for a reason that the ledger keeps.
    ///
    /// # Errors
    /// As [`Run::resume`]; and when the limits on participation could not be kept.
    pub fn resume_with_changed_data(
        folder: &Path,
        plan: &'a Plan,
        opened: &'a Opened,
        means: Means,
        why: &str,
    ) -> Result<Self, RunError> {
        Self::go_on(folder, plan, opened, means, Some(why))
    }

    fn go_on(
        folder: &Path,
        plan: &'a Plan,
        opened: &'a Opened,
        means: Means,
        data_changed: Option<&str>,
    ) -> Result<Self, RunError> {
        let place = place(folder);
        if !place.is_begun()? {
            // Nothing was recorded: it was killed while it was begun.
            let config = folder.join(CONFIG_FILE);
            fs::remove_file(&config).map_err(files::failed("remove", &config))?;
            return Self::begin(folder, plan, opened, means);
        }
        // Before anything is mended: what shows that entries are missing must not be cleared away.
        heads::check(&folder.join(LEDGER_FILE))?;
        let (mut ledger, key) = place.open(&[])?;
        if let (Some(because), false) = (place.closing_begun()?, ledger.is_closed()) {
            place.close(&mut ledger, because, ledger_time(plan.randomness()))?;
        }
        if ledger.is_closed() {
            place.end_closing()?;
        } else {
            let key = key.ok_or(RunError::RecognitionKeyMissing)?;
            recognise(&place, &mut ledger, &key, plan, opened, data_changed)?;
        }
        if !ledger.plan().is_same_run(&plan.ledger) {
            return Err(RunError::OtherPlan { path: folder.join(CONFIG_FILE) });
        }
        let checkpoints = Checkpoints::new(folder.join(CHECKPOINTS), ledger.opening().id, means.kernels.name());
        let (found, mut warnings) = checkpoints.newest(plan)?;
        found.iter().try_for_each(|found| ledger.check_head(&found.head))?;
        finish_beginning(&mut ledger, plan, opened)?;
        warnings.extend(ledger.warnings().iter().cloned());
        let randomness = randomness(&place, plan, &ledger)?;
        let kept = found.as_ref().map(|f| f.state.round);
        let state = match found {
            Some(found) => found.state,
            None => State::new(plan, opened.first_parameters().to_vec())?,
        };
        let mut run = Self::with(folder, plan, opened, means, randomness, ledger, state, kept)?;
        run.warnings = warnings;
        match run.replay() {
            Err(RunError::Round(error)) if matches!(*error, RoundError::Gone { .. }) && !run.warnings.is_empty() => {
                Err(RunError::NoCheckpoint { problems: run.warnings.join("; ") })
            }
            other => other.map(|()| run),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the two ways to a run, once")]
    fn with(
        folder: &Path,
        plan: &'a Plan,
        opened: &'a Opened,
        means: Means,
        randomness: RunRandomness,
        ledger: Ledger<FileStore>,
        state: State,
        kept: Option<u64>,
    ) -> Result<Self, RunError> {
        let simulated = plan.randomness() != Randomness::Secret;
        let started = kept::started(&ledger)?;
        let path = |name: &str| folder.join(name);
        let of_round = |line: &str| serde_json::from_str::<Metrics>(line).ok().map(|m| m.round);
        let metrics =
            Lines::open(&path(METRICS_FILE), |line| of_round(line).is_some_and(|r| kept.is_some_and(|k| r <= k)))?;
        let history = files::read_lines(&path(METRICS_FILE))?;
        // Rounds that the ledger has are not run again, and keep their lines.
        let recorded = settled_rounds(&ledger);
        let of_round = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("round")?.as_u64();
        let keep = |line: &str| of_round(line).is_some_and(|round| round < recorded);
        let timing = if simulated { Some(Lines::open(&path(TIMING_FILE), keep)?) } else { None };
        let diagnostics = if simulated { Some(diagnostics(&path(DIAGNOSTICS_FILE), keep)?) } else { None };
        let tokens = if simulated { tokens(&path(DIAGNOSTICS_FILE))? } else { 0 };
        Ok(Self {
            folder: folder.to_owned(),
            checkpoints: Checkpoints::new(folder.join(CHECKPOINTS), ledger.opening().id, means.kernels.name()),
            held_out: opened.held_out(&plan.evaluation)?,
            rounds: Loop::new(plan, opened.learner(), randomness, ledger, state, means.threads),
            plan,
            opened,
            means,
            metrics,
            timing,
            diagnostics,
            history,
            started,
            warnings: Vec::new(),
            over: None,
            tokens,
        })
    }

    /// Applies what the ledger has beyond the checkpoint.
    fn replay(&mut self) -> Result<(), RunError> {
        loop {
            self.evaluate_if_due()?;
            if self.rounds.replay()? == Replayed::Nothing {
                return Ok(());
            }
        }
    }

    /// One attempt at a round, with the evaluation and the checkpoint that are due after it.
    ///
    /// # Errors
    /// When the run cannot go on; what was recorded is not lost.
    pub fn step(&mut self, fleet: &mut dyn Fleet, stop: &Stop) -> Result<Step, RunError> {
        self.over = self.is_over();
        if let Some(over) = &self.over {
            return Ok(Step { done: None, failed: None, metrics: None, over: Some(over.clone()) });
        }
        let mut done = match self.rounds.round(fleet, stop, self.time())? {
            Round::OutOfBudget(why) => {
                self.over = Some(Over::Budget(why.to_string()));
                let metrics = self.evaluate_now()?;
                return Ok(Step { done: None, failed: None, metrics, over: self.over.clone() });
            }
            Round::Failed(failed) => return self.after_failed(failed),
            Round::Done(done) => done,
        };
        let watch = Instant::now();
        let metrics = self.evaluate_if_due()?;
        done.timing.evaluate_s = watch.elapsed().as_secs_f64();
        let watch = Instant::now();
        self.checkpoint_if_due()?;
        done.timing.checkpoint_s = watch.elapsed().as_secs_f64();
        self.note(&done)?;
        self.over = self.is_over();
        Ok(Step { done: Some(done), failed: None, metrics, over: self.over.clone() })
    }

    fn note(&mut self, done: &Done) -> Result<(), RunError> {
        if let Some(timing) = &mut self.timing {
            timing.append(&done.timing)?;
        }
        if let (Some(file), Some(seen)) = (&mut self.diagnostics, &done.diagnostics) {
            file.append(seen)?;
            self.tokens += seen.tokens;
        }
        Ok(())
    }

    fn is_over(&self) -> Option<Over> {
        let round = self.rounds.state().round;
        let reaches = |Metrics { measured, .. }: &Metrics, target| {
            measured.measures().headline.goal.reaches(measured.headline(), target)
        };
        let reached =
            |line: &Metrics| self.plan.evaluation.stop_at_accuracy.is_some_and(|target| reaches(line, target));
        if let Some(over @ Over::Budget(_)) = &self.over {
            return Some(over.clone());
        }
        if let Some(closing) = self.ledger().closing() {
            return Some(closing.because.into());
        }
        if round == self.plan.rounds {
            return Some(Over::Done);
        }
        self.history.last().filter(|line| line.round == round && reached(line)).map(|_| Over::Accurate)
    }

    /// Why the run is over, where that was not found out by its last step.
    fn find_out_whether_over(&mut self) -> Result<(), RunError> {
        self.over = self.over.take().or_else(|| self.is_over());
        if self.over.is_none() && !self.ledger().is_closed() {
            self.over = self.rounds.out_of_budget()?.map(|why| Over::Budget(why.to_string()));
        }
        Ok(())
    }

    /// Measures where that is due and was not done.
    fn evaluate_if_due(&mut self) -> Result<Option<Metrics>, RunError> {
        let round = self.rounds.state().round;
        let due = round.is_multiple_of(self.plan.evaluation.every) || round == self.plan.rounds;
        if due { self.evaluate_now() } else { Ok(None) }
    }

    fn evaluate_now(&mut self) -> Result<Option<Metrics>, RunError> {
        if self.history.last().is_some_and(|line| line.round >= self.rounds.state().round) {
            return Ok(None);
        }
        let line = self.measure()?;
        self.metrics.append(&line)?;
        self.metrics.sync()?;
        self.history.push(line.clone());
        Ok(Some(line))
    }

    fn measure(&self) -> Result<Metrics, RunError> {
        let (plan, state) = (self.plan, self.rounds.state());
        let Means { kernels, threads } = self.means;
        let learner = self.opened.learner();
        let measures = Measures::named(learner.metrics()).ok_or(RunError::NotMeasured { learner: learner.name() })?;
        let counts = self.held_out.evaluate(learner, &state.model, kernels, threads)?;
        Ok(Metrics {
            round: state.round,
            measured: Measured::of(measures, &counts),
            targets: counts.targets(Targets::ALL),
            clip_norm: Some(self.rounds.clip().get()),
            tracked_clip_norm: state.clip.map(|clip| clip.tracked().get()),
            fraction_below_clip: state.fraction_below_clip,
            server_learning_rate: f64::from(plan.stage(state.round).server_learning_rate),
            planned_participations: plan.planned_participations(state.round),
            failed_attempts: self.failed().iter().filter(|failed| failed.round < state.round).count() as u64,
            price: self.price(state.round)?,
            projected_epsilon: if state.round > 0 { plan.projected_epsilon(state.round)? } else { None },
        })
    }

    /// Keeps the state; what the ledger stored for rounds before the older checkpoint goes.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn checkpoint(&mut self) -> Result<(), RunError> {
        let head = self.rounds.ledger().head();
        let coarse = (self.plan.randomness() == Randomness::Secret).then(|| self.time());
        let kept = self.checkpoints.write(self.rounds.state(), head, coarse)?;
        if let [_, older, ..] = kept[..]
            && older < self.plan.rounds
        {
            let phase = self.plan.phase(older);
            let entry = self.rounds.ledger().released_in(&phase.stream, older - phase.first);
            if let Some(entry) = entry {
                self.rounds.ledger_mut().discard_released(entry)?;
            }
        }
        Ok(())
    }

    fn checkpoint_if_due(&mut self) -> Result<(), RunError> {
        let due = self.rounds.state().round.is_multiple_of(self.plan.checkpoint_every);
        if due { self.checkpoint() } else { Ok(()) }
    }

    /// The time as the ledger has it.
    fn time(&self) -> u64 {
        ledger_time(self.plan.randomness())
    }

    /// Ends the run for good: what its noise was drawn from is destroyed and the ledger closed (rule P20), unless that was done
    /// before. A run that is closed is decided.
    fn close(&mut self) -> Result<(), RunError> {
        if !self.ledger().is_closed() {
            let place = place(&self.folder);
            let because = Ended::from(&*self.over.get_or_insert(Over::ByHand));
            let time = self.time();
            self.rounds.end();
            place.close(self.rounds.ledger_mut(), because, time)?;
        }
        if is_undecided(&self.folder) {
            let mark = self.folder.join(UNDECIDED);
            fs::remove_file(&mark).map_err(files::failed("remove", &mark))?;
        }
        Ok(())
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> &State {
        self.rounds.state()
    }

    /// The ledger.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger<FileStore> {
        self.rounds.ledger()
    }

    /// Its evaluations so far.
    #[must_use]
    pub fn history(&self) -> &[Metrics] {
        &self.history
    }

    /// When it was begun, in seconds since 1970.
    #[must_use]
    pub const fn started(&self) -> u64 {
        self.started
    }

    /// Records what another run of the same sweep cost (rules P15 and P22), unless it is there.
    ///
    /// # Errors
    /// When it protects something else, or the disk fails.
    pub fn count_sweep_run(&mut self, other: Import) -> Result<(), RunError> {
        if !self.ledger().imports().iter().any(|known| self.covers(known, &other)) {
            if self.ledger().is_closed() {
                return Err(RunError::ChosenBefore { path: self.folder.clone(), other: other.what });
            }
            let time = self.time();
            let _receipt = self.rounds.ledger_mut().record_import(other, time)?;
        }
        Ok(())
    }

    /// Whether what was counted of a run is all that is to be counted of it now. The head of a run moves when others are counted
    /// in it, and its event may be another when it is closed, for no more; its key stays.
    fn covers(&self, known: &Import, now: &Import) -> bool {
        let ledger = &self.plan.ledger;
        let cost = |import: &Import| ledger.accountant.judge_group(&import.event, ledger.delta, ledger.group);
        let as_much = || matches!((cost(known), cost(now)), (Ok(known), Ok(now)) if known.epsilon >= now.epsilon);
        known.key == now.key && (known.event == now.event || as_much())
    }

    /// What was noticed when it was resumed.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Where the ledger of the run in a folder is, and its secrets.
#[must_use]
pub fn place(folder: &Path) -> Place {
    Place::new(folder.join(LEDGER_FILE))
}

/// What the run draws from, as far as its ledger goes.
fn randomness(place: &Place, plan: &Plan, ledger: &Ledger<FileStore>) -> Result<RunRandomness, RunError> {
    if ledger.is_closed() {
        return Ok(RunRandomness::over());
    }
    Ok(match plan.randomness() {
        Randomness::Simulated { seed } => RunRandomness::simulated(SimulationKey::new(seed)),
        Randomness::SimulatedFloatingPoint { seed } => {
            RunRandomness::simulated(SimulationKey::with_floating_point_noise(seed))
        }
        Randomness::Secret => {
            place.settle_cohort_seed(settled_rounds(ledger))?;
            RunRandomness::secret(place, last_step(plan, ledger))?
        }
    })
}

/// The last release of a ledger whose noise the run drew.
fn last_step(plan: &Plan, ledger: &Ledger<FileStore>) -> Option<LastStep> {
    let last = |phase: &Phase| phase.mechanism.as_ref()?.last_step(ledger.last_step(&phase.stream)?);
    plan.phases().iter().rev().find_map(last)
}

/// Refuses other settings and other data than the run began with, unless somebody says why the data had to change.
fn recognise(
    place: &Place,
    ledger: &mut Ledger<FileStore>,
    key: &PseudonymKey,
    plan: &Plan,
    opened: &Opened,
    data_changed: Option<&str>,
) -> Result<(), RunError> {
    let now = Beginning::of(key, place, plan, opened)?;
    let Some(began) = Beginning::read(place)? else {
        // It was killed while it was begun, or somebody took the file away.
        return if ledger.releases().keys().all(|stream| stream == BEFORE) {
            now.keep(place)
        } else {
            Err(RunError::BeginningMissing { place: "ledger.jsonl.beginning" })
        };
    };
    let counted = plan.phases().iter().any(Phase::counts_participations);
    // Posts are numbered one after the other: where they are the units, other text is other units.
    let posts = plan.ledger.unit == Unit::Example;
    match (began.compare(key, &now, &plan.config)?, data_changed) {
        (Changed::Nothing, _) => Ok(()),
        (Changed::Users, _) if counted => Err(RunError::UsersChanged),
        (Changed::Text, _) if counted && posts => Err(RunError::UsersChanged),
        (_, None) => Err(RunError::DataChanged),
        (_, Some(why)) => {
            let _receipt = ledger.record_data_changed(why, ledger_time(plan.randomness()))?;
            now.keep(place)
        }
    }
}

/// The ledger, and in it what was paid for before the first round; and the key of what the run must recognise.
fn begin_ledger(place: &Place, plan: &Plan, opened: &Opened) -> Result<(Ledger<FileStore>, PseudonymKey), RunError> {
    let (mut ledger, key) = place.create(plan.ledger.clone(), ledger_time(plan.randomness()))?;
    finish_beginning(&mut ledger, plan, opened)?;
    Ok((ledger, key))
}

/// Records what the run starts from, and what was released of its users before (rules P11 and P15), unless it is there.
fn finish_beginning(ledger: &mut Ledger<FileStore>, plan: &Plan, opened: &Opened) -> Result<(), RunError> {
    if let Some(import) = opened.import()
        && ledger.imports().is_empty()
    {
        let _receipt = ledger.record_import(import.clone(), ledger_time(plan.randomness()))?;
    }
    if let Some(what) = &plan.non_private {
        let event = PrivacyEvent::NonPrivate { what: what.clone() };
        let bytes = what.as_bytes().into();
        let publication = Publication { event: &event, randomness: plan.randomness(), step: 0, bytes };
        let declared = plan.ledger.population;
        let attempt =
            Attempt { stream: BEFORE, number: 0, declared, participations: None, time: ledger_time(plan.randomness()) };
        let _receipt = ledger.publish(&publication, attempt)?;
    }
    Ok(())
}

/// The file of exact numbers, with its warning first.
fn diagnostics(path: &Path, keep: impl Fn(&str) -> bool) -> Result<Lines, FileError> {
    let is_head = |line: &str| serde_json::from_str::<DiagnosticsHead>(line).is_ok();
    let mut lines = Lines::open(path, |line| is_head(line) || keep(line))?;
    if fs::metadata(path).map_err(files::failed("look at", path))?.len() == 0 {
        lines.append(&DiagnosticsHead::default())?;
    }
    Ok(lines)
}

/// Tokens that users have read so far, exactly.
fn tokens(path: &Path) -> Result<u64, FileError> {
    let text = match files::read_text(path) {
        Err(FileError { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let of_line = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("tokens")?.as_u64();
    Ok(text.lines().filter_map(of_line).sum())
}

/// The time of entries, in seconds since 1970. With secret noise it is the day: how long a round took follows the number of
/// users who took part in it, which is not released (rules P11 and P23).
fn ledger_time(randomness: Randomness) -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if randomness == Randomness::Secret { now / DAY * DAY } else { now }
}
