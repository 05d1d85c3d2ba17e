//! What an engine is told in each round: who takes part, how updates are clipped and weighed, how fast users learn.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::collections::BTreeMap;

use crate::workshop::{ADAPTIVE, ARRIVAL, Idle, Told, means, plan, step, whole, with};
use device::{round::Task, upload::Rests};
use keyhush_federated::{
    engine::{
        Engine, EngineError, Summed, Users, drawn,
        secure::{SecureTask, Secured},
    },
    home::RunFolder,
    run::Run,
};
use privacy::stages::{ClipBit, ClipRule, Clipping, Contribution, Sum, Update};
use secagg::session::Terms;

fn told(set: &[&str]) -> Vec<Told> {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Idle::default();
    whole(&folder.path().join("run"), set, &mut fleet);
    assert_eq!(
        fleet.told.iter().map(|t| t.round).collect::<Vec<_>>(),
        (0..fleet.told.len() as u64).collect::<Vec<_>>()
    );
    fleet.told
}

/// Rules P6 and P7: devices wait MinS rounds whatever the noise is meanwhile, and come MaxP times in the whole run.
#[test]
fn p6_devices_keep_their_distance_across_the_phases_of_a_run() {
    let schedule = "schedule=[{ from = 2, noise_multiplier = 3.0 }, { from = 5, noise_multiplier = 4.0 }]";
    let few = ["rounds=14", "participation.population=100", "participation.cohort=20"];
    let told = told(&with(&[&ARRIVAL, &few, &[schedule]]));
    let mut came: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for round in &told {
        assert_eq!(round.cohort.len(), 20);
        round.cohort.iter().for_each(|user| came.entry(*user).or_default().push(round.round));
    }
    for (user, rounds) in came {
        assert!(rounds.len() <= 4, "user {user} came in {rounds:?}");
        assert!(rounds.windows(2).all(|w| w[1] - w[0] > 3), "user {user} came in {rounds:?}");
    }
}

/// Rule P9: under DP-FTRL updates are clipped to one norm and the bit compares with another, which moves.
#[test]
fn p9_the_clip_bit_compares_with_the_tracked_clip_not_with_the_active_one() {
    let tree = ["privacy.mechanism=tree", "privacy.restarts=[3]"];
    let told = told(&with(&[&ARRIVAL, &ADAPTIVE, &tree]));
    let (active, tracked): (Vec<f64>, Vec<f64>) = told.iter().map(|t| (t.active().get(), t.tracked())).unzip();
    assert_eq!((active[0], tracked[0]), (0.1, 0.1));
    for round in [1, 2, 4, 5] {
        assert_ne!(tracked[round], tracked[round - 1], "round {round}: it follows in every round");
        assert_ne!(tracked[round], active[round], "round {round}");
    }
    assert_eq!(active[..3], [0.1; 3], "updates are clipped to the same until the restart");
    assert_eq!(active[3], tracked[3], "and then to what was tracked");
    assert_eq!(active[3..], [active[3]; 3]);
    assert!(told.iter().all(|t| t.encoding.clip() == t.active()), "integers are of the norm that is clipped to");
}

#[test]
fn users_learn_as_fast_as_the_schedule_says() {
    let schedule = "schedule=[{ from = 2, local_learning_rate = 0.25 }, { from = 4, clip_norm = 0.2 }, \
                    { from = 5, local_learning_rate = 0.125 }]";
    let told = told(&[schedule]);
    assert_eq!(told.iter().map(|t| t.learning_rate).collect::<Vec<_>>(), [0.5, 0.5, 0.25, 0.25, 0.25, 0.125]);
    assert_eq!(told.iter().map(|t| t.active().get()).collect::<Vec<_>>(), [0.5, 0.5, 0.5, 0.5, 0.2, 0.2]);
}

/// Rule P10: what a full weight is reaches the users.
#[test]
fn p10_users_are_told_how_they_are_weighed() {
    let weights = ["estimator.full_weight_tokens=40", "estimator.total_weight=900"];
    assert!(told(&weights).iter().all(|t| t.full_weight_tokens == Some(40.0)));
    assert!(told(&[]).iter().all(|t| t.full_weight_tokens.is_none()));
}

/// Rule P9: with greedy clipping the bit says that no local step was projected; the norm at the end says nothing.
#[test]
fn p9_under_greedy_clipping_the_bit_is_about_projections() {
    let bit = |set: &[&str]| told(&with(&[&ADAPTIVE, set]))[0].clipping.clone();
    let of = |bit, norm| Clipping::new(ClipRule::Flat(norm), bit).unwrap();
    let greedy = bit(&["clip.greedy=true"]);
    let ClipRule::Flat(norm) = *greedy.rule() else { panic!("by layer") };
    assert_eq!(greedy, of(ClipBit::NeverProjected, norm));
    assert_eq!(bit(&[]), of(ClipBit::NormAtMost(norm), norm));
}

/// Everybody who is asked is under the clip and has learned nothing.
struct Content;

impl Engine for Content {
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        let mut sum = Sum::zero(task.encoding);
        for user in users.numbers {
            let update = Update::new(vec![0.0; task.encoding.dimension()]);
            let clipped = update.clip(task.clipping, Contribution::default()).unwrap();
            sum.add(&clipped.encode(task.encoding, &mut drawn(users.key, *user).rounding).unwrap())?;
        }
        Ok(Summed { sum, exact: Vec::new(), rests: Rests::new(), busy_s: 0.0 })
    }
}

/// Rule P9: the fraction is of as many users as are planned for the round, which a schedule changes.
#[test]
fn p9_the_fraction_under_the_clip_is_of_the_rounds_planned_users() {
    let exact = ["privacy.mechanism=none", "privacy.noise_multiplier=", "clip.count_stddev="];
    let (plan, opened) = plan(&with(&[&ADAPTIVE, &exact, &["schedule=[{ from = 3, cohort = 50 }]"]]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    for _ in 0..6 {
        step(&mut run, &plan, &opened, &path, &mut Content).unwrap();
        assert_eq!(run.state().fraction_below_clip, Some(1.0), "after round {}", run.state().round);
    }
}

/// Devices that refuse, and write down what they were offered.
#[derive(Default)]
struct Refusing {
    offered: Vec<Terms>,
}

impl Engine for Refusing {
    fn sum(&mut self, _: &Task<'_>, _: &Users<'_>) -> Result<Summed, EngineError> {
        Err(EngineError::NotSecure)
    }

    fn sum_securely(&mut self, _: &Task<'_>, _: &Users<'_>, secure: &SecureTask<'_>) -> Result<Secured, EngineError> {
        self.offered.push(secure.terms);
        Err(EngineError::Died)
    }
}

/// Rule P24: devices know for which task, which model and which round they let go of an input.
#[test]
fn p24_the_terms_of_a_secure_round_name_its_task_and_model() {
    let offered = |set: &[&str]| {
        let secagg = ["aggregation=secagg", "participation.cohort=40"];
        let (plan, opened) = plan(&with(&[&secagg, set]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        let mut engine = Refusing::default();
        assert!(step(&mut run, &plan, &opened, &path, &mut engine).is_err());
        let terms = engine.offered.remove(0);
        assert_eq!(terms.round, 0);
        (terms.task, terms.model)
    };
    let (task, model) = offered(&[]);
    assert_eq!((task, model), offered(&[]), "the same run");
    let (faster, same_model) = offered(&["local.learning_rate=0.25"]);
    assert!(faster != task && same_model == model, "another task with the same model");
    assert!(offered(&["seed=8"]).1 != model, "another model");
}
