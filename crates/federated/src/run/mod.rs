//! A run: started, resumed after any crash, and ended. It is stored in a [`Home`], usually a folder ([`RunFolder`]):
//!
//! | file                | what it holds                                                                        |
//! |---------------------|--------------------------------------------------------------------------------------|
//! | `config.toml`       | the settings, resolved                                                               |
//! | `ledger.jsonl`      | every release, with what belongs to it beside it ([`crate::ledger_file`])         |
//! | `secret/`           | keys; stays with the run                                                             |
//! | `metrics.jsonl`     | one line per evaluation                                                              |
//! | `timing.jsonl`      | one line per round; simulations only: how long a round took tells how many took part  |
//! | `diagnostics.jsonl` | exact losses and norms, one line per round; simulations only, not private             |
//! | `samples.jsonl`     | what the model suggests after a few public prompts, at 51 evaluations or fewer       |
//! | `checkpoints/`      | the two newest states                                                                |
//! | `model/`            | the model at the end                                                                 |
//! | `statement.md`, `.json` | the guarantee, from the ledger                                                   |
//! | `audit.json`        | what canaries show of it, where there are some                                       |
//!
//! Pages and the file for TensorBoard are made from these by the crate `report` ([`Kept`]).
//!
//! Killed at any moment, a run continues from its newest checkpoint: what the ledger has beyond it is applied again, never
//! released again, and evaluated where that was due. So a simulation ends with the same model, metrics and events. With secret
//! noise what was recorded stays, and a step that was not is drawn again (rule P21). Where inputs leave their users, a round during
//! which it was killed is resumed by its fleet or has failed, like any other failed round: its users are not asked again
//! (rule P24). A run that ends is closed: its noise cannot be drawn again by anyone (rule P20).

mod beginning;
mod by_devices;
mod driven;
mod ending;
mod error;
mod failed;
mod kept;
mod opened;
mod presence;
mod price;
mod runaway;
mod salvaged;
mod samples;
mod stated;
mod told;
mod totals;

use std::{
    cell::RefCell,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, de::DeserializeOwned};

pub(crate) use self::stated::protects;
use self::{
    beginning::{Beginning, Why, recognise},
    price::Prices,
    samples::Sampler,
};
pub use self::{
    driven::{After, Course, Driven, Observer, Way},
    ending::{Ending, end_without_model},
    error::RunError,
    kept::Kept,
    opened::Opened,
    presence::Presence,
    salvaged::{Salvaged, salvage},
    samples::{PROMPTS, Sample, Samples, prompts_of},
    stated::stated,
    totals::Totals,
};
use crate::{
    checkpoint::{self, Checkpoints},
    config::{Config, Document},
    engine::{
        Means,
        measure::{self, Measurer},
    },
    evaluate::HeldOut,
    fleet::{Fleet, Stop},
    home::{Home, HomeError, Log, LogWriter, Paper, Records, RunFolder},
    metrics::{DiagnosticsHead, Measured, Measures, Metrics},
    plan::{BEFORE, Phase, Plan},
    randomness::RunRandomness,
    round::{
        Done, Loop, Replayed, Round, State,
        attempts::{Failed, settled_rounds},
        evaluation::{Due, FailedEvaluation},
    },
};
use ledger::{Attempt, Ended, Head, Import, Ledger, LedgerError, LedgerStore, Publication};
use lm::metrics::{Counts, Targets};
use privacy::{
    PrivacyEvent,
    rng::{Randomness, SimulationKey},
    step_keys::LastStep,
};

/// Why a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// All planned rounds are done.
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
            Ended::BudgetSpent => Self::Budget("the next round would have exceeded the budget".into()),
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

/// The result of a step of a run.
#[derive(Debug)]
pub struct Step {
    /// The round that was done, if one was.
    pub done: Option<Box<Done>>,
    /// The failed attempt at a round, if it failed.
    pub failed: Option<Failed>,
    /// The failed attempt at an evaluation by devices, if it failed.
    pub failed_evaluation: Option<FailedEvaluation>,
    /// The evaluation after it, where there was one.
    pub metrics: Option<Metrics>,
    /// Whether the run is over.
    pub over: Option<Over>,
}

/// A run.
pub struct Run<'a, H: Home + Records = RunFolder> {
    home: H,
    plan: &'a Plan,
    opened: &'a Opened,
    means: Means,
    held_out: HeldOut,
    /// Who measures models, once one was measured.
    measurer: RefCell<Option<Box<dyn Measurer + 'a>>>,
    rounds: Loop<'a, H::Store>,
    checkpoints: Checkpoints,
    metrics: Box<dyn LogWriter>,
    timing: Option<Box<dyn LogWriter>>,
    diagnostics: Option<Box<dyn LogWriter>>,
    /// What the model suggests, where it predicts words.
    samples: Option<Sampler>,
    history: Vec<Metrics>,
    started: u64,
    warnings: Vec<String>,
    over: Option<Over>,
    /// What users did so far, exactly; for simulations.
    totals: Option<Totals>,
}

/// Whether a run is one of a sweep that is not decided. One that is closed is decided, also where a crash left the note.
///
/// # Errors
/// When that cannot be told.
pub fn is_undecided(home: &(impl Home + Records)) -> Result<bool, RunError> {
    Ok(home.paper(Paper::PartOfASweep)?.is_some() && !is_closed(home)?)
}

fn is_closed(home: &impl Records) -> Result<bool, RunError> {
    Ok(home.is_begun()? && Ledger::open(home.read_store()?, None, &[])?.is_closed())
}

/// Notes that a run, which may not be begun yet, is one of a sweep: its ledger stays open until the choice among them is counted in
/// it. A run whose ledger is closed is decided.
///
/// # Errors
/// When it cannot be noted, or the ledger is damaged.
pub fn belongs_to_a_sweep(home: &(impl Home + Records)) -> Result<(), RunError> {
    if is_closed(home)? {
        return Ok(home.remove_paper(Paper::PartOfASweep)?);
    }
    let words = "This run belongs to a sweep. Its ledger is closed, and its cost known, once the sweep has finished: run the same\nkeyhush sweep command again.\n";
    Ok(home.write_paper(Paper::PartOfASweep, words)?)
}

/// Reads the settings of a run that is there.
///
/// # Errors
/// When there is none.
pub fn settings(home: &dyn Home) -> Result<Config, RunError> {
    parsed(&written_settings(home)?)
}

/// The settings of a run, as they are written.
fn written_settings(home: &dyn Home) -> Result<String, RunError> {
    home.paper(Paper::Settings)?.ok_or_else(|| RunError::NoRun { run: home.name() })
}

fn parsed(settings: &str) -> Result<Config, RunError> {
    Ok(Document::new(settings, &[])?.config()?)
}

impl<'a, H: Home + Records> Run<'a, H> {
    /// Begins a run in a home that has none.
    ///
    /// # Errors
    /// When there is one, or something cannot be made.
    pub fn begin(home: H, plan: &'a Plan, opened: &'a Opened, means: Means) -> Result<Self, RunError> {
        if home.paper(Paper::Settings)?.is_some() || home.is_begun()? {
            return Err(RunError::Taken { run: home.name() });
        }
        opened.check_presence(&plan.config)?;
        refuse_left_over(&home)?;
        let store = home.create_store()?;
        Self::begin_in(store, home, plan, opened, means)
    }

    /// Only the owner of the store begins a run; settings and keys that are there were left by one who did not get to it.
    fn begin_in(store: H::Store, home: H, plan: &'a Plan, opened: &'a Opened, means: Means) -> Result<Self, RunError> {
        let secrets = home.secrets();
        home.write_paper(Paper::Settings, &plan.settings)?;
        if plan.randomness() == Randomness::Secret {
            secrets.draw_noise_key()?;
        }
        let (approval, time) = (opened.approval().cloned(), ledger_time(plan.randomness()));
        let (mut ledger, key) = secrets.begin_approved_ledger(store, plan.ledger.clone(), approval, time)?;
        finish_beginning(&mut ledger, plan, opened)?;
        Beginning::of(&key, &secrets, plan, opened)?.keep(&secrets)?;
        let state = State::new(plan, opened.first_parameters().to_vec())?;
        let randomness = randomness(&home, plan, &ledger)?;
        let mut run = Self::with(home, plan, opened, means, randomness, ledger, state, None)?;
        run.evaluate_if_due()?;
        run.checkpoint()?;
        Ok(run)
    }

    /// Continues with a run; what the ledger has beyond the newest checkpoint is applied again.
    ///
    /// # Errors
    /// When there is none, it was begun with other settings or other data, or it is damaged.
    pub fn resume(home: H, plan: &'a Plan, opened: &'a Opened, means: Means) -> Result<Self, RunError> {
        Self::go_on(home, plan, opened, means, Why::Rounds(None))
    }

    /// The same to end it as it stands. No round is computed any more, so what computed the others need not be there.
    ///
    /// # Errors
    /// As [`Run::resume`].
    pub fn resume_to_end(home: H, plan: &'a Plan, opened: &'a Opened, means: Means) -> Result<Self, RunError> {
        Self::go_on(home, plan, opened, means, Why::End)
    }

    /// The same with a store that had to change, for a reason that the ledger keeps.
    ///
    /// # Errors
    /// As [`Run::resume`]; and when the limits on participation could not be kept.
    pub fn resume_with_changed_data(
        home: H,
        plan: &'a Plan,
        opened: &'a Opened,
        means: Means,
        why: &str,
    ) -> Result<Self, RunError> {
        Self::go_on(home, plan, opened, means, Why::Rounds(Some(why)))
    }

    fn go_on(home: H, plan: &'a Plan, opened: &'a Opened, means: Means, why: Why<'_>) -> Result<Self, RunError> {
        if !home.is_begun()? {
            // Nothing was recorded: it was killed while it was begun, or there is none.
            written_settings(&home)?;
            refuse_left_over(&home)?;
            let store = home.create_store()?;
            return Self::begin_in(store, home, plan, opened, means);
        }
        // Before anything is mended: what shows that entries are missing must not be cleared away.
        let heads = known_heads(&home)?;
        let secrets = home.secrets();
        let (mut ledger, key) = secrets.open_ledger(home.open_store()?, &heads)?;
        if let (Some(because), false) = (secrets.closing_begun()?, ledger.is_closed()) {
            secrets.close_ledger(&mut ledger, because, ledger_time(plan.randomness()))?;
        }
        if ledger.is_closed() {
            secrets.end_closing()?;
            home.remove_paper(Paper::PartOfASweep)?;
        } else {
            let key = key.ok_or(RunError::RecognitionKeyMissing)?;
            recognise(&secrets, &mut ledger, &key, plan, opened, why.data_changed())?;
        }
        if !ledger.plan().is_same_run(&plan.ledger) {
            return Err(RunError::OtherPlan { run: home.name() });
        }
        let mut checkpoints = Checkpoints::of(ledger.opening().id, means);
        match checkpoints.other_arithmetic(&home)? {
            Some(theirs) if why == Why::End => checkpoints = Checkpoints::new(ledger.opening().id, &theirs),
            Some(theirs) if !ledger.is_closed() => {
                return Err(RunError::OtherArithmetic { theirs, ours: means.arithmetic() });
            }
            _ => {}
        }
        let (found, mut warnings) = checkpoints.newest(&home, plan)?;
        found.iter().try_for_each(|found| ledger.check_head(&found.head))?;
        refuse_gap(plan, &ledger, found.as_ref().map_or(0, |found| found.state.round), &warnings)?;
        finish_beginning(&mut ledger, plan, opened)?;
        warnings.extend(ledger.warnings().iter().cloned());
        let randomness = randomness(&home, plan, &ledger)?;
        let kept = found.as_ref().map(|f| f.state.round);
        let state = match found {
            Some(found) => found.state,
            None => State::new(plan, opened.first_parameters().to_vec())?,
        };
        let mut run = Self::with(home, plan, opened, means, randomness, ledger, state, kept)?;
        run.warnings = warnings;
        if plan.upload.keeps_rest() && why != Why::End && !run.ledger().is_closed() {
            // Their users train once more, which needs a fleet: `step` does it.
            run.evaluate_if_due()?;
        } else {
            run.replay()?;
        }
        Ok(run)
    }

    #[allow(clippy::too_many_arguments, reason = "the two ways to a run, once")]
    fn with(
        home: H,
        plan: &'a Plan,
        opened: &'a Opened,
        means: Means,
        randomness: RunRandomness,
        ledger: Ledger<H::Store>,
        state: State,
        kept: Option<u64>,
    ) -> Result<Self, RunError> {
        let simulated = plan.randomness() != Randomness::Secret;
        let started = kept::started(&ledger)?;
        // What is measured again goes; what cannot be understood is not left out in silence.
        let lines = read_log::<Metrics>(&home, Log::Metrics)?;
        let history: Vec<Metrics> = lines.into_iter().filter(|line| kept.is_some_and(|k| line.round <= k)).collect();
        let of_round = |line: &str| serde_json::from_str::<OfRound>(line).ok().map(|line| line.round);
        let measured = |line: &str| of_round(line).is_some_and(|r| kept.is_some_and(|k| r <= k));
        let metrics = home.open_log(Log::Metrics, &measured)?;
        let samples = Sampler::open(&home, opened, means, &measured)?;
        // Rounds that the ledger has are not run again, and keep their lines.
        let recorded = settled_rounds(&ledger);
        let keep = |line: &str| of_round(line).is_some_and(|round| round <= recorded);
        read_log::<OfRound>(&home, Log::Timing)?;
        let timing = if simulated { Some(home.open_log(Log::Timing, &keep)?) } else { None };
        let diagnostics = if simulated { Some(diagnostics(&home, recorded)?) } else { None };
        let totals = if simulated { Some(Totals::read(&home)?) } else { None };
        Ok(Self {
            checkpoints: Checkpoints::of(ledger.opening().id, means),
            held_out: opened.held_out(&plan.evaluation)?,
            measurer: RefCell::new(None),
            rounds: Loop::new(plan, opened.learner(), randomness, ledger, state, means.threads),
            home,
            plan,
            opened,
            means,
            metrics,
            timing,
            diagnostics,
            samples,
            history,
            started,
            warnings: Vec::new(),
            over: None,
            totals,
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

    /// One attempt at a round, with the evaluation and the checkpoint that are due after it; or one attempt at an evaluation by devices,
    /// where that is due.
    ///
    /// # Errors
    /// When the run cannot continue; what was recorded is not lost.
    pub fn step(&mut self, fleet: &mut dyn Fleet, stop: &Stop) -> Result<Step, RunError> {
        self.over = self.is_over();
        if self.over.is_some() {
            return Ok(self.stands(None));
        }
        if let Due::Step(_) = self.rounds.evaluation_due() {
            return self.ask_devices(fleet, stop);
        }
        if self.plan.upload.keeps_rest() && self.rounds.replay_with(fleet, stop)? == Replayed::Round {
            let metrics = self.evaluate_if_due()?;
            self.checkpoint_if_due()?;
            self.over = self.is_over();
            return Ok(self.stands(metrics));
        }
        let mut done = match self.rounds.round(fleet, stop, self.time())? {
            Round::OutOfBudget(why) => return self.out_of_budget(&why),
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
        Ok(Step { done: Some(done), ..self.stands(metrics) })
    }

    /// The next release would cost more than the budget.
    fn out_of_budget(&mut self, why: &LedgerError) -> Result<Step, RunError> {
        self.over = Some(Over::Budget(why.to_string()));
        let metrics = self.evaluate_now()?;
        Ok(self.stands(metrics))
    }

    /// Where it stands, nothing having been attempted.
    fn stands(&self, metrics: Option<Metrics>) -> Step {
        Step { done: None, failed: None, failed_evaluation: None, metrics, over: self.over.clone() }
    }

    fn note(&mut self, done: &Done) -> Result<(), RunError> {
        if let Some(timing) = &mut self.timing {
            timing.append(&json(&done.timing)?)?;
        }
        if let (Some(file), Some(seen)) = (&mut self.diagnostics, &done.diagnostics) {
            file.append(&json(seen)?)?;
            self.totals.iter_mut().for_each(|totals| totals.add(seen));
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
            let is_measured = !matches!(self.rounds.evaluation_due(), Due::Step(_));
            return is_measured.then_some(Over::Done);
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

    /// Measures where that is due and was not done. What devices are to say of the model is waited for: a line has both.
    fn evaluate_if_due(&mut self) -> Result<Option<Metrics>, RunError> {
        let round = self.rounds.state().round;
        let by_devices = self.rounds.evaluation_due();
        if matches!(by_devices, Due::Step(_)) {
            return Ok(None);
        }
        let due =
            round.is_multiple_of(self.plan.evaluation.every) || round == self.plan.rounds || by_devices != Due::No;
        if due { self.evaluate_now() } else { Ok(None) }
    }

    fn evaluate_now(&mut self) -> Result<Option<Metrics>, RunError> {
        if self.history.last().is_some_and(|line| line.round >= self.rounds.state().round) {
            return Ok(None);
        }
        let line = self.measure()?;
        let is_due = samples::is_due(line.round, self.plan.evaluation.every, self.plan.rounds);
        if let Some(samples) = self.samples.as_mut().filter(|_| is_due) {
            samples.note(self.opened, self.rounds.state())?;
        }
        self.metrics.append(&json(&line)?)?;
        self.metrics.sync()?;
        self.history.push(line.clone());
        Ok(Some(line))
    }

    /// What a model predicts of held-out users.
    fn count(&self, model: &[f32]) -> Result<Counts, RunError> {
        let mut kept = self.measurer.borrow_mut();
        let measurer = match &mut *kept {
            Some(measurer) => measurer,
            none => none.insert(measure::measurer(self.opened.learner(), self.means)?),
        };
        Ok(self.held_out.evaluate(&mut **measurer, model)?)
    }

    fn measure(&self) -> Result<Metrics, RunError> {
        let (plan, state) = (self.plan, self.rounds.state());
        let learner = self.opened.learner();
        let measures = Measures::named(learner.measures()).ok_or(RunError::NotMeasured { learner: learner.name() })?;
        // What it costs is computed meanwhile: it follows from the plan.
        let prices = Prices { plan, opened: self.opened };
        let (counts, prices) = std::thread::scope(|scope| {
            let prices = scope.spawn(move || prices.at(state.round));
            (self.count(&state.model), prices.join())
        });
        let (price, projected_epsilon) = prices.unwrap_or_else(|died| std::panic::resume_unwind(died))?;
        let counts = counts?;
        Ok(Metrics {
            round: state.round,
            measured: Measured::of(measures, &counts),
            targets: counts.targets(Targets::ALL),
            by_devices: self.by_devices(state.round)?,
            clip_norm: Some(self.rounds.clip().get()),
            tracked_clip_norm: state.clip.map(|clip| clip.tracked().get()),
            fraction_below_clip: state.fraction_below_clip,
            server_learning_rate: f64::from(plan.stage(state.round).server_learning_rate),
            planned_participations: plan.planned_participations(state.round),
            sent: if plan.upload.is_said() { Some(plan.sent(state.round)?) } else { None },
            failed_attempts: self.failed().iter().filter(|failed| failed.round < state.round).count() as u64,
            price,
            projected_epsilon,
        })
    }

    /// Keeps the state; what the ledger stored for rounds before the older checkpoint goes.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn checkpoint(&mut self) -> Result<(), RunError> {
        let head = self.rounds.ledger().head();
        let coarse = (self.plan.randomness() == Randomness::Secret).then(|| self.time());
        let kept = self.checkpoints.write(&self.home, self.plan, self.rounds.state(), head, coarse)?;
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

    /// Ends the run permanently: what its noise was drawn from is destroyed and the ledger closed (rule P20), unless that was done
    /// before. A run that is closed is decided.
    fn close(&mut self) -> Result<(), RunError> {
        if !self.ledger().is_closed() {
            let because = Ended::from(&*self.over.get_or_insert(Over::ByHand));
            let time = self.time();
            self.rounds.end();
            self.home.secrets().close_ledger(self.rounds.ledger_mut(), because, time)?;
        }
        Ok(self.home.remove_paper(Paper::PartOfASweep)?)
    }

    /// The current state.
    #[must_use]
    pub const fn state(&self) -> &State {
        self.rounds.state()
    }

    /// The ledger.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger<H::Store> {
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
                return Err(RunError::ChosenBefore { run: self.home.name(), other: other.what });
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

/// Heads of the ledger that were shown: in what the run left, and wherever else its home knows of (rule P17).
fn known_heads(home: &(impl Home + Records)) -> Result<Vec<Head>, RunError> {
    let mut heads = home.shown_heads()?;
    for round in home.states()? {
        heads.extend(checkpoint::head(home, round));
    }
    if let Some(text) = home.paper(Paper::StatementJson)? {
        let statement: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let said = statement.as_ref().and_then(|statement| statement["ledger"]["head"].as_str());
        heads.extend(said.and_then(|head| head.parse::<Head>().ok()));
    }
    Ok(heads)
}

/// Where there is no ledger, nothing was released, and what comes of releases cannot be there (rule P17). Vectors the store refuses.
fn refuse_left_over(home: &dyn Home) -> Result<(), RunError> {
    let stated = home.paper(Paper::Statement)?.is_some() || home.paper(Paper::StatementJson)?.is_some();
    let left = stated || !home.states()?.is_empty() || home.has_model()?;
    if left { Err(RunError::LedgerGone { run: home.name() }) } else { Ok(()) }
}

/// Refuses to continue from a round where what was released next is not stored any more, before anything is changed.
fn refuse_gap<S: LedgerStore>(plan: &Plan, ledger: &Ledger<S>, from: u64, wrong: &[String]) -> Result<(), RunError> {
    for round in from..settled_rounds(ledger).min(plan.rounds) {
        let phase = plan.phase(round);
        let (stream, step) = (phase.stream.as_str(), round - phase.first);
        if ledger.released_in(stream, step).is_none() {
            continue;
        }
        if ledger.released(stream, step)?.is_some() {
            return Ok(());
        }
        let none = "none that this version can read (older versions wrote other files)";
        let problems = if wrong.is_empty() { none.to_owned() } else { wrong.join("; ") };
        return Err(RunError::NoCheckpoint { problems });
    }
    Ok(())
}

/// What the run draws from, as far as its ledger goes.
fn randomness<R: Records>(home: &R, plan: &Plan, ledger: &Ledger<R::Store>) -> Result<RunRandomness, RunError> {
    if ledger.is_closed() {
        return Ok(RunRandomness::over());
    }
    Ok(match plan.randomness() {
        Randomness::Simulated { seed } => RunRandomness::simulated(SimulationKey::new(seed)),
        Randomness::SimulatedFloatingPoint { seed } => {
            RunRandomness::simulated(SimulationKey::with_floating_point_noise(seed))
        }
        Randomness::Secret => {
            let secrets = home.secrets();
            secrets.settle_cohort_seed(settled_rounds(ledger))?;
            let randomness = RunRandomness::secret(&secrets, last_step(plan, ledger))?;
            by_devices::randomness(randomness, &secrets, plan, ledger)?
        }
    })
}

/// The last release of a ledger whose noise the run drew.
fn last_step<S: LedgerStore>(plan: &Plan, ledger: &Ledger<S>) -> Option<LastStep> {
    let last = |phase: &Phase| phase.mechanism.as_ref()?.last_step(ledger.last_step(&phase.stream)?);
    plan.phases().iter().rev().find_map(last)
}

/// Records what the run starts from, and what was released of its users before (rules P11 and P15), unless it is there.
fn finish_beginning<S: LedgerStore>(ledger: &mut Ledger<S>, plan: &Plan, opened: &Opened) -> Result<(), RunError> {
    for import in opened.imports() {
        if !ledger.imports().iter().any(|known| known.key == import.key && known.head == import.head) {
            let _receipt = ledger.record_import(import.clone(), ledger_time(plan.randomness()))?;
        }
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

/// The log of exact numbers, with its warning first, and with the rounds that the ledger has.
fn diagnostics(home: &dyn Home, recorded: u64) -> Result<Box<dyn LogWriter>, RunError> {
    read_log::<DiagnosticsLine<OfRound>>(home, Log::Diagnostics)?;
    let keep = |line: &str| match serde_json::from_str(line) {
        Ok(DiagnosticsLine::Round(OfRound { round })) => round <= recorded,
        Ok(DiagnosticsLine::Head { private }) => !private,
        Err(_) => false,
    };
    let mut log = home.open_log(Log::Diagnostics, &keep)?;
    if home.lines(Log::Diagnostics)?.is_empty() {
        log.append(&json(&DiagnosticsHead::default())?)?;
    }
    Ok(log)
}

/// A line of a log that has one for each round, of which no more is asked.
#[derive(Deserialize)]
struct OfRound {
    round: u64,
}

/// A line of the exact numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum DiagnosticsLine<R> {
    Round(R),
    /// [`DiagnosticsHead`].
    Head {
        private: bool,
    },
}

/// The lines of a log.
fn read_log<T: DeserializeOwned>(home: &dyn Home, log: Log) -> Result<Vec<T>, RunError> {
    let parse = |(at, line): (usize, &String)| {
        serde_json::from_str(line).map_err(|error| {
            let what = format!("line {} of the {} of {} cannot be parsed", at + 1, log.word(), home.name());
            HomeError::Other { what, source: error.into() }.into()
        })
    };
    home.lines(log)?.iter().enumerate().map(parse).collect()
}

/// A line of a log.
fn json(line: &impl serde::Serialize) -> Result<String, RunError> {
    serde_json::to_string(line)
        .map_err(|e| HomeError::Other { what: "a line cannot be written".into(), source: e.into() }.into())
}

/// The time of entries, in seconds since 1970. With secret noise it is the day: how long a round took follows the number of
/// users who took part in it, which is not released (rules P11 and P23).
fn ledger_time(randomness: Randomness) -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if randomness == Randomness::Secret { now / DAY * DAY } else { now }
}
