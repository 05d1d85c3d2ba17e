//! What goes wrong in a schedule.

use super::{Chance, evaluations::MOST};

/// What a server does wrong on purpose, so that it is seen that the simulation notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// What it acknowledged may be gone after a crash: nothing was synced.
    ForgetsWrites,
    /// It answers, and then writes.
    AnswersBeforeWriting,
    /// A report that arrives again is taken for another one.
    CountsAgain,
    /// What was released is used before its entry in the ledger is durable.
    ReleasesBeforeLedger,
    /// A server that another one has taken over from goes on writing: nothing keeps two of them apart.
    StaleLease,
}

impl Flaw {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::ForgetsWrites,
        Self::AnswersBeforeWriting,
        Self::CountsAgain,
        Self::ReleasesBeforeLedger,
        Self::StaleLease,
    ];
    /// Those that secure aggregation does not rule out by itself: a masked input fits one place, and what a server that was taken over
    /// from knows of a session is of no use to its successor.
    pub(crate) const OF_SECURE_SUMS: [Self; 3] =
        [Self::ForgetsWrites, Self::AnswersBeforeWriting, Self::ReleasesBeforeLedger];
}

/// How reports are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    Plain,
    Secure,
}

/// In one of 25 schedules all devices are real ones, in two of 25 some: they take longer than stand-ins.
const fn real(seed: u64) -> f64 {
    match seed % 25 {
        0 => 1.0,
        6 | 16 => 0.1,
        _ => 0.0,
    }
}

/// What goes wrong, and how often.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    pub(crate) sums: Sums,
    /// Of secure aggregation: whether the server is not taken at its word on who dropped out.
    pub(crate) semi_malicious: bool,
    pub(crate) rounds: u64,
    pub(crate) devices: u64,
    pub(crate) goal: u64,
    pub(crate) min_separation: u64,
    pub(crate) max_participations: u64,
    /// Shares of messages.
    pub(crate) lose: f64,
    pub(crate) double: f64,
    pub(crate) delay: f64,
    /// The share of devices that are given a task and never report.
    pub(crate) vanish: f64,
    pub(crate) device_crashes: f64,
    /// How often the server is killed, after how many durable steps at most, and for how long it is gone.
    pub(crate) crashes: u64,
    pub(crate) life: u64,
    pub(crate) down_ms: u64,
    /// How often a server that is taken over from was only asleep, and goes on.
    pub(crate) sleeps: f64,
    /// The share of devices that are real ones: their machine, keys, guard and diary.
    pub(crate) real: f64,
    /// Whether devices measure each model, as many as report in a round.
    pub(crate) evaluations: bool,
    /// Whether somebody writes into the store, after each crash, that nobody's report is in the sum.
    pub(crate) list_emptied: bool,
    /// How long devices have for their reports, in seconds.
    pub(crate) report_s: u64,
}

impl Faults {
    /// Nothing goes wrong.
    pub(crate) fn calm() -> Self {
        Self {
            sums: Sums::Plain,
            semi_malicious: false,
            rounds: 4,
            devices: 60,
            goal: 20,
            min_separation: 0,
            max_participations: 1_000,
            lose: 0.0,
            double: 0.0,
            delay: 0.0,
            vanish: 0.0,
            device_crashes: 0.0,
            crashes: 0,
            life: 1,
            down_ms: 0,
            sleeps: 0.0,
            real: 0.0,
            evaluations: false,
            list_emptied: false,
            report_s: 30,
        }
    }

    /// What goes wrong in a schedule, by its number.
    pub(crate) fn of(seed: u64, sums: Sums) -> Self {
        match sums {
            Sums::Plain => Self::of_plain_sums(seed),
            Sums::Secure => Self::of_secure_sums(seed),
        }
    }

    fn of_plain_sums(seed: u64) -> Self {
        let mut chance = Chance(seed ^ 0x5eed);
        let mut share = |most: f64| most * (chance.below(1_000) as f64) / 1_000.0;
        let (lose, double, delay) = (share(0.15), share(0.2), share(0.2));
        let (vanish, device_crashes) = (share(0.2), share(0.02));
        let goal = 5 + chance.below(50);
        Self {
            rounds: 2 + chance.below(2),
            devices: 8 * goal + 150,
            goal,
            min_separation: chance.below(2),
            max_participations: 2 + chance.below(2),
            lose,
            double,
            delay,
            vanish,
            device_crashes,
            crashes: chance.below(6),
            life: [30, 300, 1_000][chance.below(3) as usize],
            down_ms: chance.below(20_000),
            sleeps: 0.5,
            real: real(seed),
            evaluations: chance.is(0.3),
            ..Self::calm()
        }
    }

    /// Sums of few, for each device agrees on keys with each other one; and less goes wrong, for an attempt that failed has used up
    /// everybody whom it asked.
    fn of_secure_sums(seed: u64) -> Self {
        let mut chance = Chance(seed ^ 0x5ec5eed);
        let mut share = |most: f64| most * (chance.below(1_000) as f64) / 1_000.0;
        let (lose, double, delay) = (share(0.05), share(0.2), share(0.05));
        let (vanish, device_crashes) = (share(0.1), share(0.003));
        let goal = 4 + chance.below(3);
        Self {
            sums: Sums::Secure,
            semi_malicious: chance.is(0.5),
            rounds: 2,
            // All attempts at both steps find somebody, also where whoever was asked at the first rests at the second.
            devices: 20 * goal + 20,
            goal,
            min_separation: chance.below(2),
            max_participations: 3,
            lose,
            double,
            delay,
            vanish,
            device_crashes,
            crashes: chance.below(4),
            life: [8, 30, 100][chance.below(3) as usize],
            down_ms: chance.below(20_000),
            sleeps: 0.5,
            real: real(seed),
            evaluations: chance.is(0.3),
            list_emptied: false,
            report_s: 90,
        }
    }

    /// The settings of the task.
    pub(crate) fn settings(&self) -> String {
        let Self { rounds, devices, goal, min_separation, max_participations, report_s, .. } = self;
        let adversary = if self.semi_malicious { "semi-malicious" } else { "curious" };
        let (aggregation, answer_s, secagg) = match self.sums {
            Sums::Plain => ("plain", 10, String::new()),
            // An answer that is late once can be asked for again.
            Sums::Secure => {
                ("secagg", 30, format!("[secagg]\nadversary = \"{adversary}\"\ndropout = 0.3\ncorrupted = 0.0\n"))
            }
        };
        let evaluations = match self.evaluations {
            false => String::new(),
            true => format!(
                "[evaluation.devices]\nevery = 1\ncohort = {goal}\nmin_separation = 0\nmax_participations = {MOST}\nmost_tokens = 10\n"
            ),
        };
        format!(
            r#"
rounds = {rounds}
unit = "device"
noise_seed = 0
data = {{ kind = "devices" }}
aggregation = "{aggregation}"
model = {{ learner = "tags", vocabulary = 100 }}
local = {{ batch = 4, learning_rate = 0.5 }}
clip = {{ kind = "flat", norm = 0.5 }}
privacy = {{ mechanism = "none" }}
server = {{ optimizer = "sgd", learning_rate = 0.5 }}
devices = {{ select_seconds = 5, report_seconds = {report_s}, answer_seconds = {answer_s}, tick_seconds = 1, begin_with = {devices} }}

[evaluation]
every = 1000
users = 1
most_tokens = 10

[participation]
kind = "arrival"
population = {devices}
cohort = {goal}
min_separation = {min_separation}
max_participations = {max_participations}

{secagg}
{evaluations}"#
        )
    }
}
