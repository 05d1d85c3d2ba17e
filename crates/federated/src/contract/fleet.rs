//! The tests that every fleet must pass, and those for simulations, which must be reproducible.

use std::collections::{BTreeMap, BTreeSet};

use device::{round::Task, upload::Upload};
use ledger::{Failure, FailureReason, ParticipationRecord};
use privacy::{
    Participation,
    rng::Randomness,
    stages::{ClipBit, Clipping},
};

use crate::{
    fleet::{At, Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    plan::{Coding, Phase, Plan},
    round::State,
};

/// The lives of a program that makes attempts: each call gives the fleet of the next one, after a restart. What is durable stays: what the
/// fleet keeps, and what devices remember. The fleet of the life before is gone by then.
pub type Lives<'a> = Box<dyn FnMut() -> Box<dyn Fleet + 'a> + 'a>;

/// Makes a world in which nothing has happened yet.
type Make<'a> = &'a dyn Fn() -> Lives<'a>;

/// Tests that every fleet must pass. The plan has a seed, and nobody drops out.
pub fn fleet<'a>(plan: &'a Plan, model: &[f32], make: Make<'a>) {
    _ = Asking::new(plan, model, make).of_every_fleet();
}

/// Tests that a simulation must pass: all tests of fleets, and a restart changes nothing, not even who is asked.
pub fn simulated_fleet<'a>(plan: &'a Plan, model: &[f32], make: Make<'a>) {
    let asking = Asking::new(plan, model, make);
    let Told { again, next, rounds } = asking.of_every_fleet();
    let interrupted = again.came == Came::Failed(FailureReason::Interrupted);
    assert_eq!(interrupted, again.asks_devices, "what left its users is not done again, and the rest is");
    assert!(!interrupted || again.users.is_none(), "somebody was asked twice");
    asking.a_restart_does_not_change_who_is_asked_after_a_failure(&next);
    asking.a_round_does_not_depend_on_those_before(&rounds);
}

/// What a fleet answered.
struct Told {
    /// To the first attempt, asked for again after a restart.
    again: Seen,
    /// To the one after a failure.
    next: Seen,
    /// To one round after the other.
    rounds: Vec<Seen>,
}

/// One question after the other to fleets of one plan.
struct Asking<'a> {
    plan: &'a Plan,
    phase: &'a Phase,
    coding: Coding,
    clipping: Clipping,
    model: Vec<f32>,
    make: Make<'a>,
}

/// The attempts before that failed, as the ledger has them.
type Failures = BTreeMap<u64, Vec<Failure>>;

impl<'a> Asking<'a> {
    fn new(plan: &'a Plan, model: &[f32], make: Make<'a>) -> Self {
        assert!(plan.randomness() != Randomness::Secret, "what is secret cannot be compared");
        let state = State::new(plan, model.to_vec()).unwrap();
        let phase = plan.phase(0);
        let clip = plan.stage(0).clip;
        let rule = plan.rule(clip).unwrap();
        let coding = phase.coding(rule.bound()).unwrap();
        let bit = if state.clip.is_some() { ClipBit::NormAtMost(clip) } else { ClipBit::None };
        let clipping = Clipping::new(rule, bit).unwrap();
        Self { plan, phase, coding, clipping, model: model.to_vec(), make }
    }

    fn at(&self, round: u64, attempt: u32, again: bool) -> At<'_> {
        At { stream: &self.phase.stream, step: round - self.phase.first, round, attempt, again }
    }

    /// The model after so many releases: another one after each, or devices would refuse it (rule P24).
    fn model_after(&self, releases: u64) -> Vec<f32> {
        let mut model = self.model.clone();
        model[0] += releases as f32 / 1024.0;
        model
    }

    fn attempted(
        &self,
        fleet: &mut dyn Fleet,
        at: At<'_>,
        releases: u64,
        failures: &Failures,
        stop: &Stop,
    ) -> Result<Seen, FleetError> {
        let model = self.model_after(releases);
        let task = Task {
            model: &model,
            clipping: &self.clipping,
            encoding: &self.coding.encoding,
            full_weight_tokens: self.plan.full_weight_tokens,
            learning_rate: self.plan.stage(at.round).local_learning_rate,
            epochs: None,
            upload: Upload::Whole,
            evaluation: None,
        };
        let task = RoundTask { at, task, phase: self.phase, coding: &self.coding, failures, stop };
        // Prepared twice is prepared once: nobody was asked yet.
        fleet.prepare(&task).expect("an attempt can be prepared");
        fleet.prepare(&task).expect("and once more");
        let asks_devices = fleet.asks_devices(&task);
        Ok(Seen::of(fleet.attempt(&task)?, at, asks_devices))
    }

    fn ask(&self, fleet: &mut dyn Fleet, at: At<'_>, releases: u64, failures: &Failures) -> Seen {
        self.attempted(fleet, at, releases, failures, &Stop::new()).expect("an attempt can be made")
    }

    fn first(&self, fleet: &mut dyn Fleet) -> Seen {
        self.ask(fleet, self.at(0, 0, false), 0, &Failures::new())
    }

    /// The first attempt, by a program that ended during it.
    fn first_again(&self, fleet: &mut dyn Fleet) -> Seen {
        self.ask(fleet, self.at(0, 0, true), 0, &Failures::new())
    }

    fn of_every_fleet(&self) -> Told {
        let again = self.the_same_attempt_again_is_the_same_or_was_interrupted();
        self.whoever_wants_to_stop_loses_nothing();
        let next = self.after_a_failure_others_are_asked();
        let rounds = self.rounds_follow_each_other();
        Told { again, next, rounds }
    }

    fn gives_what_the_phase_asks_for(&self, seen: &Seen) {
        let noised = self.phase.secure.as_ref().is_some_and(|secure| secure.noise.is_some());
        match &seen.came {
            Came::Sum(values) => {
                assert!(!noised, "devices were to add the noise");
                assert!(values.iter().any(|v| *v != 0), "nothing was learned");
            }
            Came::Noised => assert!(noised, "nobody asked for noise of devices"),
            Came::Failed(reason) => panic!("a round in which nobody vanishes failed: {}", reason.words()),
        }
        assert!(seen.users.as_ref().is_some_and(|users| !users.is_empty()), "a sum of nobody");
    }

    /// Rule P24: nobody gives two inputs for a step. Users who were asked are not asked again, and nobody else is asked instead.
    fn the_same_attempt_again_is_the_same_or_was_interrupted(&self) -> Seen {
        let mut lives = (self.make)();
        let before = self.first(lives().as_mut());
        self.gives_what_the_phase_asks_for(&before);
        let again = self.first_again(lives().as_mut());
        is_the_same_or_was_interrupted(&before, &again);
        again
    }

    /// A fleet that waits for devices stops waiting; what was begun can be asked for again.
    fn whoever_wants_to_stop_loses_nothing(&self) {
        let mut lives = (self.make)();
        let stop = Stop::new();
        stop.ask();
        let stopped = self.attempted(lives().as_mut(), self.at(0, 0, false), 0, &Failures::new(), &stop);
        let again = self.first_again(lives().as_mut());
        match stopped {
            Ok(before) => is_the_same_or_was_interrupted(&before, &again),
            Err(FleetError::Stopped) => {
                let failed = matches!(again.came, Came::Failed(reason) if reason != FailureReason::Interrupted);
                assert!(!failed, "a round in which nobody vanishes failed");
            }
            Err(error) => panic!("somebody wanted to stop: {error}"),
        }
    }

    /// What follows the first attempt where that failed. A sampled step is attempted once.
    fn after_the_first_failed(&self) -> (At<'_>, Failures) {
        let reason = FailureReason::Interrupted;
        let at = if self.phase.participation.is_sampled() { self.at(1, 0, false) } else { self.at(0, 1, false) };
        (at, BTreeMap::from([(0, vec![Failure { entry: 1, attempt: 0, reason }])]))
    }

    /// Rules P18 and P24.
    fn after_a_failure_others_are_asked(&self) -> Seen {
        let (at, failures) = self.after_the_first_failed();
        let answer = |restart: bool| {
            let mut lives = (self.make)();
            let mut fleet = lives();
            let first = self.first(fleet.as_mut());
            fleet.settled(self.at(0, 0, false), Some(FailureReason::Interrupted)).expect("a failure can be settled");
            if restart {
                drop(fleet);
                fleet = lives();
            }
            let next = self.ask(fleet.as_mut(), at, 0, &failures);
            assert!(first.users().is_disjoint(next.users()), "somebody is asked twice for one model");
            next
        };
        answer(true);
        answer(false)
    }

    /// Rules P6 and P18: a user who took part stays away for the minimum separation, whatever restarts there are.
    fn rounds_follow_each_other(&self) -> Vec<Seen> {
        let mut lives = (self.make)();
        let mut fleet = lives();
        let distance = match self.phase.participation {
            Participation::MinSeparation { separation, .. } => separation.as_distance() as usize,
            _ => 1,
        };
        let mut came: Vec<Seen> = Vec::new();
        for round in 0..self.plan.rounds.min(4) {
            if round % 2 == 0 {
                drop(fleet);
                fleet = lives();
            }
            let seen = self.ask(fleet.as_mut(), self.at(round, 0, false), round, &Failures::new());
            assert!(!matches!(seen.came, Came::Failed(_)), "round {round}");
            fleet.settled(self.at(round, 0, false), None).expect("a round can be settled");
            let mut recent = came.iter().rev().take(distance - 1);
            assert!(
                recent.all(|other| other.users().is_disjoint(seen.users())),
                "round {round}: somebody came too soon"
            );
            came.push(seen);
        }
        assert!(came.windows(2).all(|two| two[0].users != two[1].users), "the same users in every round");
        came
    }

    fn a_restart_does_not_change_who_is_asked_after_a_failure(&self, next: &Seen) {
        let (at, failures) = self.after_the_first_failed();
        let alone = self.ask((self.make)()().as_mut(), at, 0, &failures);
        assert_eq!(next.users, alone.users, "a restart changes who is asked");
    }

    fn a_round_does_not_depend_on_those_before(&self, rounds: &[Seen]) {
        for (round, seen) in (0..).zip(rounds) {
            assert!(seen.is_exact, "a simulation knows what its users did");
            let alone = self.ask((self.make)()().as_mut(), self.at(round, 0, false), round, &Failures::new());
            assert!(seen.came == alone.came, "round {round}: a sum depends on rounds before, which a restart forgets");
            assert_eq!(seen.users, alone.users, "round {round}: who is asked depends on rounds before");
        }
    }
}

fn is_the_same_or_was_interrupted(before: &Seen, again: &Seen) {
    assert_eq!(before.asks_devices, again.asks_devices, "whether inputs leave their users does not change");
    if again.came == Came::Failed(FailureReason::Interrupted) {
        assert!(again.asks_devices, "nothing left the program: the round can be done again");
        // A simulation has nobody to name; who took part for real is on record.
        let named = again.users.as_ref();
        assert!(named.is_none_or(|named| named.is_superset(before.users())), "somebody whose input left is not named");
        assert!(named.is_some() || before.is_exact, "nobody is named");
    } else if before.came == again.came {
        assert_eq!(before.users, again.users, "others were asked for the same attempt");
    } else {
        // Reports that no merge held are lost with the program. Who gave them took part, and gives no second one: others come instead.
        assert!(!before.is_exact, "another sum for the same attempt");
    }
}

/// What an attempt came to, so that it can be compared.
struct Seen {
    came: Came,
    /// Who is in the sum, or was given the task: by their numbers in a simulation, by their pseudonyms otherwise.
    users: Option<BTreeSet<String>>,
    /// Whether it is a simulation, which alone knows more.
    is_exact: bool,
    asks_devices: bool,
}

#[derive(PartialEq)]
enum Came {
    Sum(Vec<i64>),
    /// What noise was added to cannot be seen.
    Noised,
    Failed(FailureReason),
}

impl Seen {
    /// Who is in the sum.
    fn users(&self) -> &BTreeSet<String> {
        self.users.as_ref().expect("a sum of somebody")
    }

    fn of(Attempted { outcome, observed }: Attempted, at: At<'_>, asks_devices: bool) -> Self {
        let seed = Randomness::Simulated { seed: 0 };
        let came = match outcome {
            Outcome::Sum(sum) => Came::Sum(sum.release_without_privacy(0, "a contract", seed).values().to_vec()),
            Outcome::Noised(_) => Came::Noised,
            Outcome::Failed(reason) => Came::Failed(reason),
        };
        let Observed { participants, exact, .. } = observed;
        assert!(participants.is_none() || exact.is_none(), "what people did for real is nobody's to see (rule P23)");
        let is_exact = exact.is_some();
        let users = match (participants, exact) {
            (Some(record), _) => Some(pseudonyms(&record, at)),
            (None, exact) => exact.map(|exact| exact.users.iter().map(|(user, _)| user.to_string()).collect()),
        };
        Self { came, users, is_exact, asks_devices }
    }
}

/// Who stands in a record, which is of this attempt.
fn pseudonyms(record: &ParticipationRecord, at: At<'_>) -> BTreeSet<String> {
    let line: serde_json::Value = serde_json::from_str(record.line()).unwrap();
    let of = (line["stream"].as_str(), line["step"].as_u64(), line["attempt"].as_u64());
    assert_eq!(of, (Some(at.stream), Some(at.step), Some(at.attempt.into())), "who took part in another attempt");
    let all = line["pseudonyms"].as_str().unwrap().as_bytes();
    let pseudonym = |digits: &[u8]| String::from_utf8(digits.to_vec()).unwrap();
    all.chunks(32).map(pseudonym).collect()
}
