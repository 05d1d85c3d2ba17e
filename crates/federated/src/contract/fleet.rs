//! What every fleet must do.

use std::collections::{BTreeMap, BTreeSet};

use device::round::Task;
use ledger::{Failure, FailureReason};
use privacy::{
    Participation,
    rng::Randomness,
    stages::{ClipBit, Clipping},
};

use crate::{
    fleet::{At, Attempted, Fleet, Outcome, RoundTask, Stop},
    plan::{Coding, Phase, Plan},
    round::State,
};

/// One question after the other to fleets of one plan.
struct Asking<'a> {
    plan: &'a Plan,
    phase: &'a Phase,
    coding: Coding,
    clipping: Clipping,
    model: Vec<f32>,
    make: &'a dyn Fn() -> Box<dyn Fleet + 'a>,
}

/// The suite, for fleets of a plan with a seed, in whose rounds nobody vanishes. `make` makes the fleet anew, as a restart does; where
/// its devices are real ones, with guards of their own, they are new too. Sums and users are compared where a fleet is a simulation,
/// which alone knows them.
pub fn fleet<'a>(plan: &'a Plan, model: &[f32], make: &'a dyn Fn() -> Box<dyn Fleet + 'a>) {
    assert!(plan.randomness() != Randomness::Secret, "what is secret cannot be compared");
    let state = State::new(plan, model.to_vec()).unwrap();
    let phase = plan.phase(0);
    let clip = plan.stage(0).clip;
    let rule = plan.rule(clip).unwrap();
    let coding = phase.coding(rule.bound()).unwrap();
    let clipping = Clipping::new(rule, if state.clip.is_some() { ClipBit::NormAtMost(clip) } else { ClipBit::None });
    let asking = Asking { plan, phase, coding, clipping: clipping.unwrap(), model: model.to_vec(), make };
    asking.an_attempt_gives_what_the_phase_asks_for();
    asking.the_same_attempt_again_is_the_same_or_was_interrupted();
    asking.after_a_failure_others_are_asked();
    asking.rounds_follow_each_other();
}

impl Asking<'_> {
    fn at(&self, round: u64, attempt: u32, again: bool) -> At<'_> {
        At { stream: &self.phase.stream, step: round - self.phase.first, round, attempt, again }
    }

    fn ask(&self, fleet: &mut dyn Fleet, at: At<'_>, failures: &BTreeMap<u64, Vec<Failure>>) -> Seen {
        let task = Task {
            model: &self.model,
            clipping: &self.clipping,
            encoding: &self.coding.encoding,
            full_weight_tokens: self.plan.full_weight_tokens,
            learning_rate: self.plan.stage(at.round).local_learning_rate,
            evaluation: None,
        };
        let stop = Stop::new();
        let task = RoundTask { at, task, phase: self.phase, coding: &self.coding, failures, stop: &stop };
        // Prepared twice is prepared once: nobody was asked yet.
        fleet.prepare(&task).expect("an attempt can be prepared");
        fleet.prepare(&task).expect("and once more");
        let asks_devices = fleet.asks_devices(&task);
        Seen::of(fleet.attempt(&task).expect("an attempt can be made"), asks_devices)
    }

    fn first(&self, fleet: &mut dyn Fleet) -> Seen {
        self.ask(fleet, self.at(0, 0, false), &BTreeMap::new())
    }

    fn an_attempt_gives_what_the_phase_asks_for(&self) {
        let seen = self.first((self.make)().as_mut());
        let noised = self.phase.secure.as_ref().is_some_and(|secure| secure.noise.is_some());
        match seen.came {
            Came::Sum(values) => {
                assert!(!noised, "devices were to add the noise");
                assert!(values.iter().any(|v| *v != 0), "nothing was learned");
            }
            Came::Noised => assert!(noised, "nobody asked for noise of devices"),
            Came::Failed(reason) => panic!("a round in which nobody vanishes failed: {}", reason.words()),
        }
    }

    /// Rule P24: nobody gives two inputs for a step. A simulation in the clear does the round again, with the same users.
    fn the_same_attempt_again_is_the_same_or_was_interrupted(&self) {
        let before = self.first((self.make)().as_mut());
        let again = self.ask((self.make)().as_mut(), self.at(0, 0, true), &BTreeMap::new());
        assert_eq!(before.asks_devices, again.asks_devices, "whether inputs leave their users does not change");
        if again.came == Came::Failed(FailureReason::Interrupted) {
            assert!(again.asks_devices, "nothing left the program: the round can be done again");
            assert!(again.users.is_none(), "somebody was asked twice");
        } else if before.users.is_some() {
            assert!(before.came == again.came, "another sum for the same attempt");
            assert_eq!(before.users, again.users, "others were asked for the same attempt");
        }
    }

    /// Rules P18 and P24.
    fn after_a_failure_others_are_asked(&self) {
        let mut fleet = (self.make)();
        // Whom a fleet of real devices asked is not known here: their guards keep the rule.
        let (Some(first), reason) = (self.first(fleet.as_mut()).users, FailureReason::Interrupted) else { return };
        fleet.settled(self.at(0, 0, false), Some(reason)).expect("a failure can be settled");
        let failures = BTreeMap::from([(0, vec![Failure { entry: 1, attempt: 0, reason }])]);
        let sampled = self.phase.participation.is_sampled();
        let at = if sampled { self.at(1, 0, false) } else { self.at(0, 1, false) };
        let next = self.ask(fleet.as_mut(), at, &failures).users.expect("it is a simulation");
        assert_eq!(first.intersection(&next).next(), None, "somebody is asked twice for one model");
        let restarted = self.ask((self.make)().as_mut(), at, &failures).users.expect("it is a simulation");
        assert_eq!(next, restarted, "a restart changes who is asked");
    }

    /// Rules P6 and P18: whoever came stays away for the minimum separation; and a restart changes nothing.
    fn rounds_follow_each_other(&self) {
        let mut fleet = (self.make)();
        let distance = match self.phase.participation {
            Participation::MinSeparation { separation, .. } => separation.as_distance() as usize,
            _ => 1,
        };
        let mut came: Vec<BTreeSet<u64>> = Vec::new();
        for round in 0..self.plan.rounds.min(4) {
            let seen = self.ask(fleet.as_mut(), self.at(round, 0, false), &BTreeMap::new());
            assert!(!matches!(seen.came, Came::Failed(_)), "round {round}");
            fleet.settled(self.at(round, 0, false), None).expect("a round can be settled");
            let Some(users) = seen.users else { continue };
            let alone = self.ask((self.make)().as_mut(), self.at(round, 0, false), &BTreeMap::new());
            assert!(seen.came == alone.came, "round {round}: a sum depends on rounds before, which a restart forgets");
            assert_eq!(Some(&users), alone.users.as_ref(), "round {round}: who is asked depends on rounds before");
            let recent = came.iter().rev().take(distance - 1);
            assert!(recent.clone().all(|other| other.is_disjoint(&users)), "round {round}: somebody came too soon");
            came.push(users);
        }
        assert!(came.windows(2).all(|two| two[0] != two[1]), "the same users in every round");
    }
}

/// What an attempt came to, so that it can be compared.
struct Seen {
    came: Came,
    /// Who is in the sum, where a fleet knows.
    users: Option<BTreeSet<u64>>,
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
    fn of(Attempted { outcome, observed }: Attempted, asks_devices: bool) -> Self {
        let seed = Randomness::Simulated { seed: 0 };
        let came = match outcome {
            Outcome::Sum(sum) => Came::Sum(sum.release_without_privacy(0, "a contract", seed).values().to_vec()),
            Outcome::Noised(_) => Came::Noised,
            Outcome::Failed(reason) => Came::Failed(reason),
        };
        let users = observed.exact.map(|exact| exact.users.iter().map(|(user, _)| *user).collect());
        Self { came, users, asks_devices }
    }
}
