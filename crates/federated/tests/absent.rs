//! Users who were declared and are not there, and users who vanish: they are nothing in the sum, and everything else is as
//! if they had been asked.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod workshop;

use std::fs;

use corpus::origin::Origin;
use keyhush_federated::{
    fleet::{
        Collected, Fleet, FleetError, RoundTask, drawn,
        secure::{SecureTask, Secured},
    },
    run::{MODEL_FOLDER, Run},
};
use privacy::stages::{Contribution, Update};
use workshop::{ADAPTIVE, ARRIVAL, Told, all, means, plan, reads, store, threads, whole, with};
use zeroize::Zeroizing;

/// Passes rounds on, and writes down who was asked.
struct Watched<F> {
    inner: F,
    /// Users who are there.
    users: u64,
    told: Vec<Told>,
}

impl<F: Fleet> Fleet for Watched<F> {
    fn round(&mut self, task: &RoundTask<'_>) -> Result<Collected, FleetError> {
        self.told.push(Told::of(task));
        self.inner.round(task)
    }

    fn secure_round(&mut self, task: &RoundTask<'_>, secure: &SecureTask<'_>) -> Result<Secured, FleetError> {
        self.told.push(Told::of(task));
        let secured = self.inner.secure_round(task, secure)?;
        let there = task.cohort.iter().filter(|user| **user < self.users).count();
        assert_eq!(secured.survivors, there as u64, "as many survive as are there");
        Ok(secured)
    }
}

/// Rule P9: an absent user has no clip bit. With 1000 declared and 60 there, a bit of each that is not there would make
/// nearly all of the cohort "under the clip".
#[test]
fn p9_users_who_are_not_there_send_no_clip_bit() {
    let folder = tempfile::tempdir().unwrap();
    let made = reads(&store(folder.path(), Origin::BuiltIn, 60, |_| (3..30).collect()));
    let exact =
        ["privacy.mechanism=none", "privacy.noise_multiplier=", "clip.count_stddev=", "participation.cohort=100"];
    let (plan, opened) = plan(&all(&made, &with(&[&ADAPTIVE, &exact])));
    let population = opened.population(plan.config.unit).unwrap();
    let mut fleet = Watched { inner: threads(&plan, population.as_ref()), users: population.users(), told: Vec::new() };
    let mut run = Run::begin(&folder.path().join("run"), &plan, &opened, means()).unwrap();
    let mut seen = 0;
    for _ in 0..plan.config.rounds {
        let done = run.step(&mut fleet).unwrap().done.unwrap();
        let there = fleet.told.last().unwrap().cohort.iter().filter(|user| **user < population.users()).count();
        assert_eq!(done.diagnostics.users, there as u64, "nobody else is trained");
        let fraction = run.state().fraction_below_clip.unwrap();
        // Half of a bit for each who is there, of 100 who were planned.
        assert!((fraction - 0.5).abs() <= there as f64 / 200.0 + 1e-12, "{fraction} with {there} of 100 there");
        seen += there;
    }
    assert!(seen > 0, "somebody came");
}

/// Rule P19: who is not there is not in a secure round either, so that it comes to the same as the plain one.
#[test]
fn p19_users_who_are_not_there_are_in_no_secure_sum() {
    let folder = tempfile::tempdir().unwrap();
    // One of ten is held out, so that about 360 of 400 are there.
    let made = reads(&store(folder.path(), Origin::BuiltIn, 400, |_| (3..30).collect()));
    let few = ["participation.population=400", "participation.cohort=60", "rounds=2", "privacy.delta=1e-4"];
    let secagg = ["aggregation=secagg", "secagg.dropout=0.35", "secagg.corrupted=0.2"];
    let model = |name: &str, more: &[&str]| {
        let set = all(&made, &with(&[&ADAPTIVE, &few, more]));
        let (plan, opened) = plan(&set);
        let population = opened.population(plan.config.unit).unwrap();
        assert!(population.users() < 390, "some are not there");
        let inner = threads(&plan, population.as_ref());
        let mut fleet = Watched { inner, users: population.users(), told: Vec::new() };
        whole(&folder.path().join(name), &set, &mut fleet);
        fs::read(folder.path().join(name).join(MODEL_FOLDER).join("model.safetensors")).unwrap()
    };
    assert!(model("plain", &[]) == model("secure", &secagg), "another model");
}

/// Devices whose updates are zero, and of whom some vanish: their sum is their noise and nothing else.
struct Silent {
    survivors: u64,
}

impl Fleet for Silent {
    fn round(&mut self, _: &RoundTask<'_>) -> Result<Collected, FleetError> {
        Err(FleetError::NotSecure)
    }

    fn secure_round(&mut self, task: &RoundTask<'_>, secure: &SecureTask<'_>) -> Result<Secured, FleetError> {
        let mut sum = Zeroizing::new(vec![0u32; secure.residues.len()]);
        for user in &task.cohort[..self.survivors as usize] {
            let said = Contribution { weight: 0.0, ..Contribution::default() };
            let nothing =
                Update::new(vec![0.0; task.task.encoding.dimension()]).clip(task.task.clipping, said).unwrap();
            let encoded = nothing.encode(task.task.encoding, &mut drawn(task.users, *user).rounding).unwrap();
            let noised = secure.residues.noised(encoded, &mut secure.noise.chunk(*user)).unwrap();
            let mask = u32::MAX >> (32 - secure.residues.bits());
            sum.iter_mut().zip(noised.iter()).for_each(|(s, v)| *s = s.wrapping_add(*v) & mask);
        }
        Ok(Secured { sum, survivors: self.survivors, exact: Vec::new(), busy_s: 0.0, wall_s: 0.0 })
    }
}

/// Rule P19: residues are shifted back by as many users as survived, never by as many as were planned. One too many would
/// move every coordinate by a whole clip norm, twice the standard deviation of the noise.
#[test]
fn p19_a_noised_sum_is_shifted_back_by_as_many_as_survived() {
    let distributed =
        ["aggregation=secagg", "secagg.noise=distributed", "secagg.dropout=0.2", "participation.cohort=40"];
    let sgd = ["privacy.noise_multiplier=0.5", "server.learning_rate=1.0", "rounds=2"];
    let (plan, opened) = plan(&with(&[&ARRIVAL, &distributed, &sgd]));
    let folder = tempfile::tempdir().unwrap();
    for survivors in [40, 35] {
        let mut run = Run::begin(&folder.path().join(survivors.to_string()), &plan, &opened, means()).unwrap();
        let before = run.state().model.clone();
        run.step(&mut Silent { survivors }).unwrap();
        let moved: Vec<f64> = run.state().model.iter().zip(&before).map(|(now, then)| f64::from(now - then)).collect();
        // The noise of each coordinate is about half a clip norm over the denominator, and on average nothing.
        let unit = plan.config.clip.norm.unwrap() / 40.0;
        let mean = moved.iter().sum::<f64>() / moved.len() as f64 / unit;
        let within = 6.0 / (moved.len() as f64).sqrt();
        assert!(mean.abs() < within, "{survivors} survive: off by {mean} clip norms on average");
    }
}
