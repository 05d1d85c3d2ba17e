//! Short ways to read vectors and to write events, for all tests here.

use keyhush_privacy::{
    AccountantKind, Adjacency, Delta, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, PrivacyEvent,
    SamplingRate, Segment,
};
use serde::{Deserialize, de::DeserializeOwned};

/// Every accountant.
pub(crate) const ACCOUNTANTS: [AccountantKind; 5] =
    [AccountantKind::Moments, AccountantKind::Rdp, AccountantKind::Pld, AccountantKind::Zcdp, AccountantKind::Best];

/// A file under `testdata/`.
pub(crate) fn vectors<T: DeserializeOwned>(file: &str) -> T {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The rows of a file under `testdata/`.
pub(crate) fn rows<T: DeserializeOwned>(file: &str) -> Vec<T> {
    #[derive(Deserialize)]
    struct Document<T> {
        rows: Vec<T>,
    }
    vectors::<Document<T>>(file).rows
}

pub(crate) fn delta(value: f64) -> Delta {
    Delta::new(value).expect("a legal delta")
}

pub(crate) fn noise(z: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(z).expect("a legal noise multiplier")
}

/// One Gaussian release under add-or-remove adjacency.
pub(crate) fn gaussian(z: f64) -> PrivacyEvent {
    PrivacyEvent::gaussian(Adjacency::AddOrRemove, noise(z))
}

/// Rounds of a Poisson-sampled Gaussian under add-or-remove adjacency.
pub(crate) fn poisson(q: f64, z: f64, rounds: u64) -> PrivacyEvent {
    PrivacyEvent::poisson(SamplingRate::new(q).expect("a legal sampling rate"), noise(z)).times(rounds)
}

/// Rounds of a Gaussian on a fixed-size cohort under replace-one adjacency.
pub(crate) fn fixed_size(population: u64, cohort: u64, z: f64, rounds: u64) -> PrivacyEvent {
    PrivacyEvent::SampledGaussian {
        adjacency: Adjacency::ReplaceOne,
        participation: Participation::FixedSize { population, cohort },
        noise: noise(z).into(),
    }
    .times(rounds)
}

/// At most so many participations, at least `distance` rounds from one to the next.
pub(crate) fn separated(distance: u64, max_participations: u64) -> Participation {
    let separation = MinSeparation::distance(distance).expect("a legal distance");
    Participation::MinSeparation { separation, max_participations }
}

/// A run of correlated noise under add-or-remove adjacency.
pub(crate) fn correlated(
    matrix: NoiseMatrix,
    segments: &[Segment],
    participation: Participation,
    z: f64,
) -> PrivacyEvent {
    PrivacyEvent::CorrelatedGaussian {
        adjacency: Adjacency::AddOrRemove,
        matrix,
        segments: segments.to_vec(),
        participation,
        noise: noise(z).into(),
    }
}

/// The epsilon of an event that the accountant must know.
pub(crate) fn epsilon(accountant: AccountantKind, event: &PrivacyEvent, at: f64) -> f64 {
    match accountant.judge(event, delta(at)) {
        Ok(judgement) => judgement.epsilon.get(),
        Err(error) => panic!("{error}"),
    }
}

/// Fails unless `got` is within a relative tolerance of `want`.
#[track_caller]
pub(crate) fn assert_close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got - want).abs() <= tolerance * want.abs(), "{what}: got {got}, want {want} within {tolerance:e}");
}
