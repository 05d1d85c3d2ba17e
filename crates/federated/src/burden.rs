//! Compares the noise that a run adds to its model with what models have tolerated.
//!
//! The papers say at which noise z and cohort m their models still learned. What a model bears is a matter of how long the noise is beside
//! an update: for d parameters z sqrt(d) / m clip norms. So z / m is compared with theirs for a model of their size, and one with a quarter
//! of the parameters bears twice as much. It is a rule of thumb: it says whether a setting has a chance, and nothing exact.

use privacy::{
    NoiseMatrix,
    encoding::VectorSegment,
    factorization::{Errors, Setting, evaluate},
    mechanism::Correlation,
};
use serde::Serialize;

use crate::{
    numbers::grouped,
    plan::{Phase, Plan},
};

/// Noise and cohort that a model of a paper bore.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Borne {
    /// z.
    noise: f64,
    /// m.
    cohort: f64,
    /// d.
    parameters: f64,
}

/// The pair of noise and cohort that a next-word model bore in Andrew et al. 2021, Figure 7 (SO-NWP): z* at 100 users.
pub(crate) const BORNE_BY_GAUSSIAN: Borne = Borne { noise: 0.01, cohort: 100.0, parameters: 4_050_748.0 };
/// The pair that Xu et al. 2023, section 2.2, trained with before they scaled it up to 7 at 6500.
pub(crate) const BORNE_BY_TREE: Borne = Borne { noise: 0.54, cohort: 500.0, parameters: 2.4e6 };

impl Borne {
    /// z / m of a model of that size.
    pub(crate) const fn ratio(self) -> f64 {
        self.noise / self.cohort
    }

    /// z / m of a model of another size.
    fn ratio_of(self, parameters: usize) -> f64 {
        self.ratio() * libm::sqrt(self.parameters / parameters.max(1) as f64)
    }
}

/// The noise of a run against what its model bears.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Burden {
    /// How many times the noise is that a model of this size bears; 1 or less is good.
    pub times_bearable: f64,
    /// z / m: the standard deviation of the noise in the average of a round, in clip norms.
    pub noise_ratio: f64,
    /// z / m that a model of this size bears, by the experiments of the papers.
    pub bearable_noise_ratio: f64,
    /// d.
    pub parameters: usize,
}

impl Burden {
    /// The burden of a plan, in its phase with most noise. None without noise, or if it is not known.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        let parameters = plan.parameters.len();
        let of_phase = |phase: &Phase| {
            let noise_ratio = noise_in_average(plan, phase)?;
            let bearable_noise_ratio = bearable(phase, parameters)?;
            let times_bearable = noise_ratio / bearable_noise_ratio;
            Some(Self { times_bearable, noise_ratio, bearable_noise_ratio, parameters })
        };
        let all = plan.phases().iter().filter_map(of_phase);
        all.max_by(|a, b| a.times_bearable.total_cmp(&b.times_bearable))
    }

    /// Describes it in a sentence, with what would help.
    #[must_use]
    pub fn words(&self) -> String {
        let times = match self.times_bearable {
            t if t < 9.95 => format!("{t:.1}"),
            t => grouped(libm::round(t) as u64),
        };
        let noise = format!(
            "the noise is {times} times what a model of {} parameters tolerates according to the papers' experiments (noise over cohort {:.1e}, tolerable {:.1e})",
            grouped(self.parameters as u64),
            self.noise_ratio,
            self.bearable_noise_ratio
        );
        let expect = match self.times_bearable {
            t if t <= 1.0 => return format!("{noise}; expect nearly the accuracy of training without noise"),
            t if t <= 3.0 => "expect somewhat lower accuracy",
            t if t <= 10.0 => "expect much lower accuracy",
            _ => "expect it to learn almost nothing",
        };
        format!(
            "{noise}; {expect}. What helps: more users per round (and a larger population), fewer rounds with less noise each, a smaller or pretrained model (--from), or, to try out settings on few users, the noise of a larger cohort (stands_for)"
        )
    }
}

/// The standard deviation of the noise in what the server adds to its model, for a learning rate of 1, in clip norms.
fn noise_in_average(plan: &Plan, phase: &Phase) -> Option<f64> {
    let divided_by = plan.stage(phase.first).denominator.unwrap_or(phase.cohort as f64);
    let coding = phase.first_coding().ok()?;
    let released = coding.released();
    let kinds = [VectorSegment::Update, VectorSegment::Quotient];
    let segment = kinds.into_iter().find_map(|kind| released.layout().find(kind));
    let sigma = segment.map_or(0, |(segment, _)| segment.sigma);
    if sigma > 0 {
        return Some(sigma as f64 * released.grid_step() / released.clip().get() / divided_by);
    }
    // Devices that add the noise themselves: all of them together add as much.
    Some(phase.noise?.get() / divided_by)
}

/// z / m that a model bears: with correlated noise as much noise in the sum of its updates as with the tree.
fn bearable(phase: &Phase, parameters: usize) -> Option<f64> {
    let mechanism = phase.mechanism.as_ref()?;
    match &mechanism.correlation {
        Correlation::Independent => Some(BORNE_BY_GAUSSIAN.ratio_of(parameters)),
        Correlation::Matrix(NoiseMatrix::Tree) => Some(BORNE_BY_TREE.ratio_of(parameters)),
        Correlation::Matrix(matrix) => {
            let longest = mechanism.segments.iter().map(|segment| segment.rounds).max()?;
            let setting = Setting::new(longest, phase.participation).ok()?;
            let (tree, own) = (evaluate(&NoiseMatrix::Tree, &setting).ok()?, evaluate(matrix, &setting).ok()?);
            Some(BORNE_BY_TREE.ratio_of(parameters) * noise_in_sums(&tree) / noise_in_sums(&own))
        }
    }
}

/// How much noise of standard deviation 1 becomes in the prefix sums, root mean square.
pub(crate) fn noise_in_sums(errors: &Errors) -> f64 {
    errors.mean() / errors.sensitivity()
}

#[cfg(test)]
mod tests {
    use device::learner::{Layout, Part};
    use ledger::{DataSource, Start};

    use super::*;
    use crate::{
        config::{Document, FIRST_RUN},
        plan::Setting as Planned,
    };

    /// The first run with other settings, and a model of so many parameters.
    fn burden(parameters: usize, set: &[&str]) -> Option<Burden> {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let config = Document::new(FIRST_RUN, &set).unwrap().config().unwrap();
        let setting = Planned {
            parameters: Layout::new(vec![Part { name: "all".into(), rows: 1, columns: parameters }]),
            data: DataSource::MadeUp { what: "nobody".into() },
            start: Start::Random,
            non_private: None,
            after: Vec::new(),
            public_data: Vec::new(),
            counted: None,
            general: None,
        };
        Burden::of(&Plan::new(config, &setting).unwrap())
    }

    fn times(parameters: usize, set: &[&str]) -> f64 {
        burden(parameters, set).unwrap().times_bearable
    }

    fn near(got: f64, wanted: f64) -> bool {
        (got / wanted - 1.0).abs() < 0.01
    }

    #[test]
    fn what_the_papers_trained_with_is_what_a_model_bears() {
        let andrew = ["participation.cohort=100", "privacy.noise_multiplier=0.01"];
        assert!(near(times(4_050_748, &andrew), 1.0));
        let tree = ["privacy.mechanism=tree", "privacy.noise_multiplier=0.54", "participation.kind=arrival"];
        let limits = ["participation.min_separation=99", "participation.max_participations=2"];
        let tree = [&tree[..], &limits].concat();
        assert!(near(times(2_400_000, &tree), 1.0));
        // Another matrix with the same z leaves other noise in the sum of all rounds; what it saves is a smaller z for the same epsilon.
        let blt = [&tree[..], &["privacy.mechanism=blt"]].concat();
        assert!((0.8..1.25).contains(&times(2_400_000, &blt)), "{}", times(2_400_000, &blt));
        assert_eq!(burden(1000, &["privacy.mechanism=none", "privacy.noise_multiplier="]), None);
    }

    #[test]
    fn more_noise_fewer_users_and_more_parameters_are_worse() {
        let usual = times(30_000, &[]);
        assert!((0.5..3.0).contains(&usual), "the first run learns: {usual}");
        assert!(near(times(30_000, &["privacy.noise_multiplier=1.4"]), 2.0 * usual));
        assert!(near(times(30_000, &["participation.cohort=50"]), 10.0 * usual));
        assert!(near(times(120_000, &[]), 2.0 * usual));
        // A user who is replaced moves the sum by two clip norms, so the same z is twice the noise.
        assert!(near(times(30_000, &["participation.kind=fixed-size"]), 2.0 * usual));
        let large = ["stands_for.population=100_000_000", "stands_for.cohort=5000"];
        assert!(near(times(30_000, &large), 0.1 * usual));
    }

    #[test]
    fn it_is_said_in_a_sentence_with_what_would_help() {
        let words = |times_bearable: f64| {
            Burden { times_bearable, noise_ratio: 2.5e-3, bearable_noise_ratio: 1e-4, parameters: 4_050_748 }.words()
        };
        assert_eq!(
            words(25.0),
            "the noise is 25 times what a model of 4,050,748 parameters tolerates according to the papers' experiments (noise over cohort 2.5e-3, tolerable 1.0e-4); expect it to learn almost nothing. What helps: more users per round (and a larger population), fewer rounds with less noise each, a smaller or pretrained model (--from), or, to try out settings on few users, the noise of a larger cohort (stands_for)"
        );
        assert!(words(0.8).ends_with("expect nearly the accuracy of training without noise"), "{}", words(0.8));
    }
}
