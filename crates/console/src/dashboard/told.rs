//! What pages are told of a task: typed, and nothing that is not listed here.
//!
//! Everything in [`Line`] and [`Detail`] is the plan, a release, or computed from these (rules P12 and P23), with two exceptions: which
//! order an operator gave, and the statement's section on what was observed, which says of itself that it is exact (rule P18). What else is
//! exact is in [`Operations`](super::operations::Operations), under one key that says so, and for operators alone (rule P26).

use std::collections::BTreeMap;

use federated::{
    forecast,
    home::Home,
    numbers::grouped,
    plan::{BEFORE, EVALUATION},
    price::Meaning,
    protocol::order::Order,
    round::attempts::Failed,
    run::{Kept, Samples},
};
use ledger::{Basis, Budget, Ended, Ledger, LedgerStore, Observed, Phase, statement::ObservedParticipation};
use privacy::Participation;
use report::{
    board::{Cost, Curve, Group, Number, Run, Summary, charts},
    run::Tile,
};
use serde::Serialize;
use server::listing::{Listed, Spent, Stands};

/// The most points of a curve.
const MOST_POINTS: usize = 600;
/// The most evaluations whose suggestions are told.
const MOST_SAMPLES: usize = 8;
/// The most failed attempts that are told, the last ones.
const MOST_FAILED: usize = 50;
/// At so many rounds the forecast is computed.
const FORECAST_POINTS: u64 = 60;

/// How a task stands, as pages say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// A server runs it.
    Running,
    /// It is to rest, and devices complete a round.
    Pausing,
    /// Paused: no device is asked.
    Paused,
    /// It is to end.
    Stopping,
    /// Its ledger is closed.
    Over,
    /// The server runs, and this task cannot continue.
    Broken,
    /// No server runs it.
    NotServed,
    /// A server refused it.
    Refused,
    /// Its state cannot be read.
    Unreadable,
}

impl Shows {
    const fn of(stands: Stands) -> Self {
        match stands {
            Stands::Running => Self::Running,
            Stands::Pausing => Self::Pausing,
            Stands::Paused => Self::Paused,
            Stands::Stopping => Self::Stopping,
            Stands::Over => Self::Over,
            Stands::Broken => Self::Broken,
            Stands::NotServed => Self::NotServed,
            Stands::Refused => Self::Refused,
        }
    }

    /// The same for viewers, who are not told when devices complete a round.
    const fn for_viewers(self) -> Self {
        match self {
            Self::Pausing => Self::Paused,
            other => other,
        }
    }
}

/// A task in the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Grows when something that is told of the task changes.
    pub version: u64,
    /// Grows when something exact changes; operators only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// How it stands.
    pub state: Shows,
    /// What its operator wants of it.
    pub wanted: Order,
    /// Why it is over; operators are also told why it cannot continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether there is more to tell of it ([`Detail`]).
    pub readable: bool,
    /// Rounds that are released.
    pub rounds: u64,
    /// Rounds of its plan; none before it is begun.
    pub planned: u64,
    /// The number by which models are chosen, and what is shown beside it.
    pub numbers: Vec<Number>,
    /// The first of the numbers over time.
    pub small: Vec<Option<f64>>,
    /// What is guaranteed; none before it is begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Cost>,
}

impl Line {
    /// A task that has not begun, or whose state cannot be read.
    fn bare(name: &str, state: Shows, wanted: Order, why: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            version: 0,
            operations: None,
            state,
            wanted,
            why,
            readable: false,
            rounds: 0,
            planned: 0,
            numbers: Vec::new(),
            small: Vec::new(),
            price: None,
        }
    }

    /// A task whose state cannot be read. Why is for operators: the words may name what is on the disk.
    #[must_use]
    pub fn unreadable(name: &str, wanted: Order, why: String) -> Self {
        Self::bare(name, Shows::Unreadable, wanted, Some(why))
    }

    /// A task that no server has begun yet, or that it refused.
    #[must_use]
    pub fn not_begun(name: &str, wanted: Order, refused: Option<String>) -> Self {
        let state = if refused.is_some() { Shows::Refused } else { Shows::NotServed };
        Self::bare(name, state, wanted, refused)
    }

    /// As its state says.
    #[must_use]
    pub fn of(listed: &Listed, kept: Option<&Kept>) -> Self {
        let bare = Self::bare(&listed.task, Shows::of(listed.state), listed.wanted, listed.why.clone());
        let Some(kept) = kept else { return bare };
        let Summary { rounds, planned, numbers, small, price, .. } = Summary::of(kept);
        Self { readable: true, rounds, planned, numbers, small, price: Some(price), ..bare }
    }

    /// The same for viewers.
    #[must_use]
    pub fn for_viewers(&self) -> Self {
        let why = match self.state {
            Shows::Over => self.why.clone(),
            Shows::Broken | Shows::Unreadable | Shows::Refused => {
                Some("the operator of this server is told why".to_owned())
            }
            _ => None,
        };
        Self { state: self.state.for_viewers(), why, operations: None, ..self.clone() }
    }
}

/// All that is told of a task to everybody who has access.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detail {
    /// Its name.
    pub name: String,
    /// What a person can quote.
    pub sentence: String,
    /// What should be known beside it.
    pub notes: Vec<String>,
    /// The numbers that people look for first.
    pub tiles: Vec<Tile>,
    /// Curves by chart name: what was measured of released models, and releases.
    pub curves: BTreeMap<String, Curve>,
    /// What it costs.
    pub spending: Spending,
    /// Who may take part how often.
    pub participation: Vec<Limits>,
    /// What belongs to what was observed.
    pub participation_note: String,
    /// What its models suggested after public prompts.
    pub samples: Vec<Samples>,
    /// Attempts at rounds that failed, as the ledger has them: the last ones.
    pub failed: Vec<FailedAttempt>,
    /// Its privacy statement, as Markdown.
    pub statement: String,
    /// Its ledger.
    pub ledger: Book,
}

/// What a task costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spending {
    /// What is guaranteed, with what it means.
    pub words: String,
    /// What the guarantee is for, in words that follow "for".
    pub holds_for: String,
    /// The delta of all epsilons.
    pub delta: f64,
    /// The limit of the plan.
    pub budget: Option<f64>,
    /// Rounds of the plan.
    pub planned: u64,
    /// The curve of what was spent, if there is one.
    pub curve: Option<&'static str>,
    /// What that curve is.
    pub curve_label: &'static str,
    /// What belongs below it.
    pub curve_note: &'static str,
    /// The same over all rounds of the plan, by its accountant; none where that cannot be told, or a filter's budget is what holds.
    pub forecast: Option<Curve>,
}

/// Who may take part how often in one stream of releases, and what was observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The stream in the ledger.
    pub stream: String,
    /// What the stream is for, in words.
    pub title: &'static str,
    /// The most times of one device; none where there is no limit.
    pub max_participations: Option<u64>,
    /// The fewest rounds between two times of one device.
    pub min_separation: Option<u64>,
    /// What the statement says was observed; none while the task runs.
    pub observed: Option<Seen>,
}

/// How often and how close together devices took part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The most times of one device.
    pub max_participations: u64,
    /// The fewest rounds between two times of one device; none where no device came twice.
    pub min_separation: Option<u64>,
}

impl From<&Observed> for Seen {
    fn from(observed: &Observed) -> Self {
        let found = observed.released;
        let min_separation = found.min_separation.map(|closest| closest.as_rounds_between());
        Self { max_participations: found.max_participations, min_separation }
    }
}

/// An attempt at a round that failed, as the ledger has it: without any count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedAttempt {
    /// The round, from 1.
    pub round: u64,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// The reason, and what follows.
    pub why: String,
}

impl From<&Failed> for FailedAttempt {
    fn from(failed: &Failed) -> Self {
        Self { round: failed.round + 1, attempt: failed.attempt + 1, why: failed.to_string() }
    }
}

/// Where a ledger ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Book {
    /// How many entries it has.
    pub entries: u64,
    /// Its head, as `keyhush privacy verify --head` takes it.
    pub head: String,
    /// The key that signs it.
    pub key: String,
    /// The day on which it was begun.
    pub opened: String,
    /// Why it was closed; none while it is open.
    pub closed: Option<&'static str>,
}

impl Detail {
    /// From what a task has stored.
    #[must_use]
    pub fn of<S: LedgerStore>(kept: &Kept, spent: &Spent, ledger: &Ledger<S>, forecast: Option<Curve>) -> Self {
        let Run { sentence, tiles, mut curves, epsilon_means, samples, statement, .. } = Run::of(kept);
        let told: Vec<String> =
            charts().into_iter().filter(|chart| chart.group != Group::Training).map(|chart| chart.key).collect();
        curves.retain(|key, _| told.contains(key));
        let spending = Spending::of(spent, ledger, &curves, epsilon_means, forecast);
        let observed = kept.statement.observed.as_ref();
        let failed = kept.failed.iter().rev().take(MOST_FAILED).rev().map(FailedAttempt::from).collect();
        Self {
            name: kept.name.clone(),
            sentence,
            notes: notes(kept),
            tiles: tiles.into_iter().map(|tile| of_task(tile, kept, spent)).collect(),
            curves: curves.into_iter().map(|(key, curve)| (key, thinned(curve))).collect(),
            spending,
            participation: Limits::all(&ledger.plan().phases, observed),
            participation_note: participation_note(ledger.is_closed(), observed),
            samples: some(samples, MOST_SAMPLES),
            failed,
            statement,
            ledger: Book {
                entries: ledger.head().length,
                head: ledger.head().to_string(),
                key: ledger.key().to_string(),
                opened: day(kept.started),
                closed: ledger.closing().map(|closing| closed(closing.because)),
            },
        }
    }
}

/// What should be known beside the sentence. How much noise the model bears against others is advice for those who plan, in the words of
/// their settings, and is not among it.
fn notes(kept: &Kept) -> Vec<String> {
    let sent = kept.metrics.last().and_then(|line| line.sent);
    sent.map(|sent| sent.words()).into_iter().collect()
}

/// A tile of a task, which has a plan: how much of it is done, and, also when it is over, for what its epsilon holds.
fn of_task(tile: Tile, kept: &Kept, spent: &Spent) -> Tile {
    let Tile { name, value, note } = tile;
    match name.as_str() {
        "Rounds" => Tile { value: format!("{value} of {}", grouped(spent.planned_rounds)), name, note },
        "Epsilon" if kept.ended.is_some() => {
            Tile { note: format!("{note}, for {}", held_for(spent.basis)), name, value }
        }
        _ => Tile { name, value, note },
    }
}

/// For what the epsilon of a task that is over holds, in a few words.
const fn held_for(basis: Basis) -> &'static str {
    match basis {
        Basis::Spent => "everything released",
        Basis::Plan => "the whole plan",
        Basis::Budget => "the whole budget",
    }
}

/// The day of a time in seconds since 1970.
fn day(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(String::new, |time| time.strftime("%Y-%m-%d").to_string())
}

const fn closed(because: Ended) -> &'static str {
    match because {
        Ended::PlanDone => "all rounds were released",
        Ended::BudgetSpent => "the next round would have exceeded the budget",
        Ended::TargetReached => "the target accuracy was reached",
        Ended::ByHand => "it was stopped by hand",
    }
}

/// What a task will have spent over all rounds of its plan, by the accountant of its ledger. None where that cannot be told, or where a
/// filter's budget is the price at any moment: what was spent of it is nobody's number (rule P14).
#[must_use]
pub fn forecast<S: LedgerStore>(home: &dyn Home, kept: &Kept, ledger: &Ledger<S>) -> Option<Curve> {
    if ledger.budget().is_some_and(Budget::is_filter) {
        return None;
    }
    let points = forecast::epsilons_of_begun(&kept.plan(home)?, ledger, FORECAST_POINTS).ok()??;
    // A plan that would exceed its budget ends before it does.
    let limit = ledger.budget().map_or(f64::INFINITY, |budget| budget.max_epsilon().get());
    let points = points.iter().map(|point| (point.round, point.epsilon.get())).filter(|(_, epsilon)| *epsilon <= limit);
    let (rounds, values): (Vec<u64>, Vec<Option<f64>>) =
        points.map(|(round, epsilon)| (round, finite(epsilon))).unzip();
    values.iter().any(Option::is_some).then_some(Curve { rounds, values })
}

impl Spending {
    fn of<S: LedgerStore>(
        spent: &Spent,
        ledger: &Ledger<S>,
        curves: &BTreeMap<String, Curve>,
        curve_label: &'static str,
        forecast: Option<Curve>,
    ) -> Self {
        let filter = spent.basis == Basis::Budget;
        let keys = ["epsilon", "epsilon_so_far", "epsilon_if_secret"];
        let curve_note = match (spent.holds.meaning, filter) {
            (Meaning::IfSecret, _) => "The noise is simulated: anybody can remove it, and nothing is guaranteed.",
            (_, true) => "The budget of the filter is what holds at any moment, however little is spent.",
            _ if ledger.is_closed() && spent.basis == Basis::Spent => "Where the curve ends is what is guaranteed.",
            _ => {
                "What is guaranteed is the end of the plan: whoever decides to stop earlier may have looked at what was released."
            }
        };
        Self {
            words: spent.holds.words(),
            holds_for: spent.holds_for().to_owned(),
            delta: spent.delta.get(),
            budget: ledger.budget().and_then(|budget| finite(budget.max_epsilon().get())),
            planned: spent.planned_rounds,
            curve: keys.into_iter().find(|key| curves.contains_key(*key)),
            curve_label,
            curve_note,
            forecast,
        }
    }
}

impl Limits {
    fn all(phases: &[Phase], observed: Option<&ObservedParticipation>) -> Vec<Self> {
        let limited = phases.iter().filter(|phase| phase.stream != BEFORE);
        limited.map(|phase| Self::of(phase, observed)).collect()
    }

    /// What a stream is.
    pub(super) fn title_of(stream: &str) -> &'static str {
        if stream == EVALUATION { "evaluations by devices" } else { "training rounds" }
    }

    fn of(phase: &Phase, observed: Option<&ObservedParticipation>) -> Self {
        let (max_participations, min_separation) = match phase.participation {
            Participation::MinSeparation { separation, max_participations } => {
                (Some(max_participations), Some(separation.as_rounds_between()))
            }
            Participation::Once => (Some(1), None),
            Participation::Poisson { .. } | Participation::FixedSize { .. } => (None, None),
        };
        Self {
            stream: phase.stream.clone(),
            title: Self::title_of(&phase.stream),
            max_participations,
            min_separation,
            observed: observed.and_then(|observed| observed.streams.get(&phase.stream)).map(Seen::from),
        }
    }
}

fn participation_note(closed: bool, observed: Option<&ObservedParticipation>) -> String {
    const ENFORCED: &str = "The limits are enforced: the guarantee is computed from them, whatever is observed.";
    match observed {
        Some(observed) => format!("{ENFORCED} {}", observed.caveats.join(" ")),
        None if closed => format!("{ENFORCED} What was observed is not part of this statement."),
        None => format!("{ENFORCED} What was observed is stated when the task is finished."),
    }
}

/// At most so many points, evenly, the first and the last among them. Each is one that there was.
fn thinned(curve: Curve) -> Curve {
    let points: Vec<(u64, Option<f64>)> = curve.rounds.into_iter().zip(curve.values).collect();
    let (rounds, values) = some(points, MOST_POINTS).into_iter().unzip();
    Curve { rounds, values }
}

/// At most so many, evenly, the first and the last among them.
fn some<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let count = all.len();
    if count <= most {
        return all;
    }
    let mut wanted = (0..most).map(|i| i * (count - 1) / (most - 1)).peekable();
    all.into_iter().enumerate().filter(|(i, _)| wanted.next_if_eq(i).is_some()).map(|(_, one)| one).collect()
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_curves_keep_their_ends_and_only_points_that_there_were() {
        for count in [0, 1, MOST_POINTS, MOST_POINTS + 1, 10_001] {
            let rounds: Vec<u64> = (0..count as u64).map(|i| 3 * i).collect();
            let values = rounds.iter().map(|round| Some(*round as f64 / 7.0)).collect();
            let thin = thinned(Curve { rounds: rounds.clone(), values });
            assert_eq!(thin.rounds.len(), count.min(MOST_POINTS));
            assert_eq!((thin.rounds.first(), thin.rounds.last()), (rounds.first(), rounds.last()));
            assert!(thin.rounds.iter().zip(&thin.values).all(|(round, value)| *value == Some(*round as f64 / 7.0)));
        }
    }

    /// "Rounds 48" did not say of how many, and the epsilon of a task that was over not for what.
    #[test]
    fn p23_an_epsilon_that_holds_for_a_plan_says_so_when_it_is_over() {
        assert_eq!(held_for(Basis::Plan), "the whole plan");
        assert_eq!(held_for(Basis::Spent), "everything released");
        assert_eq!(held_for(Basis::Budget), "the whole budget");
    }

    #[test]
    fn viewers_are_not_told_why_something_broke_nor_when_a_round_was_completed() {
        let line = |state, why: &str| Line::bare("words", state, Order::Pause, Some(why.to_owned()));
        let broken = line(Shows::Broken, "/data/keyhush.sqlite is damaged");
        assert_eq!(broken.for_viewers().why.as_deref(), Some("the operator of this server is told why"));
        assert_eq!(line(Shows::Pausing, "").for_viewers().state, Shows::Paused);
        assert_eq!(
            line(Shows::Over, "all rounds were released").for_viewers().why.unwrap(),
            "all rounds were released"
        );
        let operations = Line { operations: Some(3), ..broken };
        assert_eq!(operations.for_viewers().operations, None);
    }
}
