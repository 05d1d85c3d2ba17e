//! Users who were declared and are not there, and users who vanish: they are nothing in the sum, and everything else is as
//! if they had been asked.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::fs;

use crate::workshop::{
    ADAPTIVE, ARRIVAL, Told, all, means, nothing_of, plan, reads, securely, step, store, threads, whole, with,
};
use corpus::origin::Origin;
use device::round::Task;
use keyhush_federated::{
    engine::{
        Around, Engine, EngineError, Summed, Users, drawn,
        secure::{SecureTask, Secured},
    },
    home::{MODEL_FOLDER, RunFolder},
    run::{Kept, Run},
};
use privacy::stages::{Contribution, Update};

/// Passes users on, and writes down who was trained.
struct Watched<'a> {
    inner: Box<dyn Engine + 'a>,
    /// Users who are there.
    users: u64,
    told: Vec<Told>,
}

impl<'a> Around for Watched<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.inner
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.told.push(Told::of(self.told.len(), task, users));
        self.inner.sum(task, users)
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        self.told.push(Told::of(self.told.len(), task, users));
        let secured = self.inner.sum_securely(task, users, secure)?;
        assert!(users.numbers.iter().all(|user| *user < self.users), "nobody else is asked");
        assert_eq!(secured.survivors, users.numbers.len() as u64, "as many survive as are there");
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
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut engine = Watched { inner: threads(&plan, &opened), users: population.users(), told: Vec::new() };
    let path = folder.path().join("run");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    let mut seen = 0;
    for _ in 0..plan.rounds {
        let done = step(&mut run, &plan, &opened, &path, &mut engine).unwrap().done.unwrap();
        let trained = &engine.told.last().unwrap().cohort;
        let there = trained.iter().filter(|user| **user < population.users()).count();
        assert!(there == trained.len() && there < 100, "whoever is not there is not trained");
        assert_eq!(done.diagnostics.unwrap().users, there as u64, "nobody else is trained");
        let fraction = run.state().fraction_below_clip.unwrap();
        // Half of a bit for each who is there, of 100 who were planned.
        assert!((fraction - 0.5).abs() <= there as f64 / 200.0 + 1e-12, "{fraction} with {there} of 100 there");
        seen += there;
    }
    assert!(seen > 0, "somebody came");
}

/// Settings for a million users beside a store of a thousand: rounds had nobody in them, the sentence spoke of hundreds, and nothing was
/// said.
#[test]
fn p11_a_run_does_not_begin_where_most_of_its_users_are_not_there_unless_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let made = reads(&store(folder.path(), Origin::BuiltIn, 60, |_| (3..30).collect()));
    let path = folder.path().join("run");
    let begin = |set: &[&str]| {
        let (plan, opened) = plan(&all(&made, set));
        Run::begin(RunFolder::at(&path), &plan, &opened, means()).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = begin(&["participation.allow_absent="]).unwrap_err();
    assert!(refused.starts_with("participation.population: 1,000 users are declared, but only "), "{refused}");
    assert!(refused.contains("set participation.allow_absent = true"), "{refused}");
    assert!(!path.exists(), "nothing of it is there");
    begin(&["participation.allow_absent=", "participation.population=100"]).unwrap();
}

/// Exact counts are in the sentence of a simulation, and in nothing that a private run leaves (rule P12).
#[test]
fn p12_a_simulation_says_how_many_were_there_and_a_private_run_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let made = reads(&store(folder.path(), Origin::BuiltIn, 60, |_| (3..30).collect()));
    for (run, seed, says) in [("simulated", "noise_seed=5", true), ("private", "noise_seed=", false)] {
        let set = all(&made, &[seed, "participation.cohort=100", "rounds=2"]);
        let (plan, opened) = plan(&set);
        let ending = whole(&folder.path().join(run), &set, threads(&plan, &opened).as_mut());
        assert_eq!(ending.sentence.contains(" of 1,000 users, of whom only "), says, "{}", ending.sentence);
        assert_eq!(ending.notes.len(), 1, "the noise, and nobody ran away: {:?}", ending.notes);
    }
}

/// 367 of 506 users whose updates were not finite showed nowhere.
#[test]
fn p12_users_whose_training_runs_away_are_in_the_notes_of_a_simulation_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (run, seed, notes) in [("simulated", "noise_seed=5", 2), ("private", "noise_seed=", 1)] {
        let set = ["local.learning_rate=1e30", "rounds=2", seed];
        let (plan, opened) = plan(&set);
        let ending = whole(&folder.path().join(run), &set, threads(&plan, &opened).as_mut());
        assert_eq!(ending.notes.len(), notes, "{:?}", ending.notes);
        assert_eq!(
            ending.notes.iter().any(|note| note.contains("user updates, which were not finite")),
            notes == 2,
            "{:?}",
            ending.notes
        );
        let kept = Kept::read(&RunFolder::at(folder.path().join(run))).unwrap();
        assert_eq!((kept.notes, kept.sentence), (ending.notes, ending.sentence), "a page says the same");
    }
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
        let population = opened.population(plan.ledger.unit).unwrap();
        assert!(population.users() < 390, "some are not there");
        let inner = threads(&plan, &opened);
        let mut engine = Watched { inner, users: population.users(), told: Vec::new() };
        whole(&folder.path().join(name), &set, &mut engine);
        fs::read(folder.path().join(name).join(MODEL_FOLDER).join("model.safetensors")).unwrap()
    };
    assert!(model("plain", &[]) == model("secure", &secagg), "another model");
}

/// Devices whose updates are zero, and of whom some vanish: their sum is their noise and nothing else.
fn silent(survivors: u64) -> impl Engine {
    securely(move |task, users, secure| {
        let mut noise = nothing_of(secure, survivors);
        for user in &users.numbers[..survivors as usize] {
            let said = Contribution { weight: 0.0, ..Contribution::default() };
            let nothing = Update::new(vec![0.0; task.encoding.dimension()]).clip(task.clipping, said).unwrap();
            let encoded = nothing.encode(task.encoding, &mut drawn(users.key, *user).rounding).unwrap();
            let noised = secure.residues.noised(encoded, &mut secure.noise.chunk(*user)).unwrap();
            let mask = u32::MAX >> (32 - secure.residues.bits());
            noise.sum.iter_mut().zip(noised.iter()).for_each(|(s, v)| *s = s.wrapping_add(*v) & mask);
        }
        Ok(noise)
    })
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
        let path = folder.path().join(survivors.to_string());
        let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        let before = run.state().model.clone();
        step(&mut run, &plan, &opened, &path, &mut silent(survivors)).unwrap();
        let moved: Vec<f64> = run.state().model.iter().zip(&before).map(|(now, then)| f64::from(now - then)).collect();
        // The noise of each coordinate is about half a clip norm over the denominator, and on average nothing.
        let unit = plan.config.clip.norm / 40.0;
        let mean = moved.iter().sum::<f64>() / moved.len() as f64 / unit;
        let within = 6.0 / (moved.len() as f64).sqrt();
        assert!(mean.abs() < within, "{survivors} survive: off by {mean} clip norms on average");
    }
}
