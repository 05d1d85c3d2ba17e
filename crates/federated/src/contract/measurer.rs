//! The tests that every measurer of models must pass.

use device::learner::examples::Examples;
use lm::{
    kernels::KernelPath,
    metrics::{Counts, Tally},
};

use super::engine::{COHORT, Trial};
use crate::{engine::measure::Measurer, population::Population};

/// The suite for a measurer of the learner of a [`Trial`]: it counts what the learner's own predictor counts of one person after the
/// other on these kernels. Where two entries are as likely but for a rounding, it may choose another than they do: at the share `tolerance` of the
/// targets at most, and sums of losses may be that share apart. 0 asks for the same counts.
///
/// ```ignore
/// contract::measurer(&trial, &mut measurer, KernelPath::best(), 0.0);
/// ```
pub fn measurer(trial: &Trial, measurer: &mut dyn Measurer, kernels: KernelPath, tolerance: f64) {
    let mut people = people(trial);
    let models = [trial.model(0), trial.model(1)];
    let own = one_after_the_other(measurer, &models[0], &people);
    let wanted = by_the_learner(trial, &models[0], &people, kernels);
    for (own, wanted) in own.iter().zip(&wanted) {
        near(own, wanted, tolerance);
    }
    let all = merged(&own);
    assert!(targets(&all) > 100, "too little is measured: {all:?}");
    let mut count = |model: &[f32], people: &[Examples]| measurer.count(model, people).expect("all of it fits");
    assert_eq!(count(&models[0], &people), all, "the counts of several are not those of each");
    let other = count(&models[1], &people);
    assert!(other != all && targets(&other) == targets(&all), "another model is predicted with, over the same targets");
    assert_eq!(count(&models[0], &people), all, "another count the second time");
    people.reverse();
    assert_eq!(count(&models[0], &people), all, "counts depend on the order of people");
    assert_eq!(count(&models[0], &[]), Counts::default(), "something is counted of nobody");
    let short = &models[0][1..];
    assert!(measurer.count(short, &people).is_err(), "a model of another size is measured");
    let again = measurer.count(&models[0], &people).expect("a refusal is over");
    assert_eq!(again, all, "a refusal is in the next counts");
}

/// Several with text, and one who has none.
fn people(trial: &Trial) -> Vec<Examples> {
    let population = trial.population();
    let read = |user: &u64| {
        let mut examples = Examples::new(trial.learner().schema());
        population.read(*user, &mut examples).unwrap();
        examples.truncate(60);
        examples
    };
    let mut people: Vec<Examples> = COHORT.iter().map(read).collect();
    people.insert(2, Examples::new(trial.learner().schema()));
    people
}

/// The slow obvious way.
fn by_the_learner(trial: &Trial, model: &[f32], people: &[Examples], kernels: KernelPath) -> Vec<Counts> {
    let count = |person: &Examples| {
        let predictor = trial.learner().predictor(model, std::slice::from_ref(person), kernels).unwrap();
        merged(&(0..predictor.pieces()).map(|piece| predictor.count(piece).unwrap()).collect::<Vec<_>>())
    };
    people.iter().map(count).collect()
}

fn one_after_the_other(measurer: &mut dyn Measurer, model: &[f32], people: &[Examples]) -> Vec<Counts> {
    let count = |person| measurer.count(model, std::slice::from_ref(person)).expect("these are the learner's examples");
    people.iter().map(count).collect()
}

fn merged(all: &[Counts]) -> Counts {
    let mut sum = Counts::default();
    all.iter().for_each(|counts| sum.merge(counts));
    sum
}

const fn tallies(counts: &Counts) -> [&Tally; 3] {
    [&counts.words, &counts.ends, &counts.unknown]
}

fn targets(counts: &Counts) -> u64 {
    tallies(counts).into_iter().map(|tally| tally.targets).sum()
}

/// What no rounding changes is the same, and the rest is nearly.
fn near(own: &Counts, wanted: &Counts, tolerance: f64) {
    if tolerance == 0.0 {
        assert_eq!(own, wanted, "not what the learner counts");
        return;
    }
    for (own, wanted) in tallies(own).into_iter().zip(tallies(wanted)) {
        let impossible = |tally: &Tally| (tally.targets, tally.loss.impossible());
        assert_eq!(impossible(own), impossible(wanted), "other targets than the learner counts");
        let elsewhere: u64 = own.hits.iter().zip(wanted.hits).map(|(own, wanted)| own.abs_diff(wanted)).sum();
        let most = (tolerance * wanted.targets as f64).ceil();
        assert!(elsewhere as f64 <= most, "{elsewhere} of {} targets are found elsewhere", wanted.targets);
        let (loss, exact) = (own.loss.get(), wanted.loss.get());
        assert!((loss - exact).abs() <= tolerance * exact.abs(), "a loss of {loss}, and not {exact}");
    }
}
