//! What every fleet must do.

use std::collections::{BTreeMap, BTreeSet};

use device::round::Task;
use ledger::{Failure, FailureReason};
use privacy::{
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

/// The suite, for fleets of a plan with a seed, in whose rounds nobody vanishes. `make` makes the fleet anew, as a restart does.
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

    fn ask(&self, fleet: &mut dyn Fleet, at: At<'_>, failures: &BTreeMap<u64, Vec<Failure>>) -> Attempted {
        let task = Task {
            model: &self.model,
            clipping: &self.clipping,
            encoding: &self.coding.encoding,
            full_weight_tokens: self.plan.full_weight_tokens,
            learning_rate: self.plan.stage(at.round).local_learning_rate,
        };
        let stop = Stop::new();
        let task = RoundTask { at, task, phase: self.phase, coding: &self.coding, failures, stop: &stop };
        // Prepared twice is prepared once: nobody was asked yet.
        fleet.prepare(&task).expect("an attempt can be prepared");
        fleet.prepare(&task).expect("and once more");
        fleet.attempt(&task).expect("an attempt can be made")
    }

    fn first(&self, fleet: &mut dyn Fleet) -> Attempted {
        self.ask(fleet, self.at(0, 0, false), &BTreeMap::new())
    }

    /// What the sum is, where it can be seen.
    fn values(&self, attempted: &Attempted) -> String {
        match &attempted.outcome {
            Outcome::Failed(reason) => format!("failed: {}", reason.words()),
            Outcome::Noised(_) => "a sum with noise".into(),
            Outcome::Sum(sum) => format!("{sum:?}"),
        }
    }

    fn an_attempt_gives_what_the_phase_asks_for(&self) {
        let attempted = self.first((self.make)().as_mut());
        let noised = self.phase.secure.as_ref().is_some_and(|secure| secure.noise.is_some());
        match attempted.outcome {
            Outcome::Sum(_) => assert!(!noised, "devices were to add the noise"),
            Outcome::Noised(_) => assert!(noised, "nobody asked for noise of devices"),
            Outcome::Failed(reason) => panic!("a round in which nobody vanishes failed: {}", reason.words()),
        }
    }

    /// Rule P24: nobody gives two inputs for a step. A simulation in the clear does the round again, with the same users.
    fn the_same_attempt_again_is_the_same_or_was_interrupted(&self) {
        let before = self.first((self.make)().as_mut());
        let again = self.ask((self.make)().as_mut(), self.at(0, 0, true), &BTreeMap::new());
        if matches!(again.outcome, Outcome::Failed(FailureReason::Interrupted)) {
            assert!(self.phase.secure.is_some(), "nothing left the program: the round can be done again");
            assert!(again.observed.exact.is_none(), "somebody was asked twice");
        } else {
            assert_eq!(self.values(&before), self.values(&again), "another sum for the same attempt");
            assert_eq!(users(&before), users(&again), "others were asked for the same attempt");
        }
    }

    /// Rules P18 and P24.
    fn after_a_failure_others_are_asked(&self) {
        let mut fleet = (self.make)();
        let (Some(first), reason) = (users(&self.first(fleet.as_mut())), FailureReason::Interrupted) else { return };
        fleet.settled(self.at(0, 0, false), Some(reason)).expect("a failure can be settled");
        let failures = BTreeMap::from([(0, vec![Failure { attempt: 0, reason }])]);
        let sampled = self.phase.participation.is_sampled();
        let at = if sampled { self.at(1, 0, false) } else { self.at(0, 1, false) };
        let next = users(&self.ask(fleet.as_mut(), at, &failures)).expect("it is a simulation");
        assert_eq!(first.intersection(&next).next(), None, "somebody is asked twice for one model");
        let restarted = users(&self.ask((self.make)().as_mut(), at, &failures)).expect("it is a simulation");
        assert_eq!(next, restarted, "a restart changes who is asked");
    }

    fn rounds_follow_each_other(&self) {
        let mut fleet = (self.make)();
        for round in 0..self.plan.rounds.min(3) {
            let attempted = self.ask(fleet.as_mut(), self.at(round, 0, false), &BTreeMap::new());
            assert!(!matches!(attempted.outcome, Outcome::Failed(_)), "round {round}");
            fleet.settled(self.at(round, 0, false), None).expect("a round can be settled");
            let alone = self.ask((self.make)().as_mut(), self.at(round, 0, false), &BTreeMap::new());
            assert_eq!(
                users(&attempted),
                users(&alone),
                "who is asked depends on rounds before, which a restart forgets"
            );
        }
    }
}

/// Who is in the sum, where a fleet knows.
fn users(attempted: &Attempted) -> Option<BTreeSet<u64>> {
    let exact = attempted.observed.exact.as_ref()?;
    Some(exact.users.iter().map(|(user, _)| *user).collect())
}
