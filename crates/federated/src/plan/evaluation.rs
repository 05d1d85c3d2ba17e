//! The plan of evaluations by devices: who measures, how often, with what noise. They are a separate stream of releases in the ledger.
//!
//! Rounds and evaluations are two streams about the same people. Each has limits on participation that are kept by themselves, so
//! in the worst case one person takes part as often as both allow, and the plan's epsilon composes both. What devices give is a short
//! vector of counts ([`device::evaluation`]), with a bound on its norm that does not depend on anybody's text; its noise is independent
//! from one evaluation to the next. Steps are counted by what was released: a failed evaluation is not a step (rule P6).

use std::collections::BTreeMap;

use device::evaluation::{EvaluationPlan, MOST_EXAMPLES, NORM};
use ledger;
use privacy::{
    ClipNorm, MinSeparation, Participation, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{Correlation, MechanismPlan},
    participation::ParticipationError,
    stages::{ClipBit, ClipRule, Clipping},
};

use super::{
    Draft, noise_multiplier,
    phases::{GRID_BITS, Phase},
    secure::{Secure, is_distributed},
};
use crate::config::{Config, ConfigError, DeviceEvaluation};

/// The stream in the ledger of evaluations by devices.
pub const EVALUATION: &str = "evaluation";
/// Their mechanism among those of a run: no phase of rounds has this number.
const MECHANISM: u64 = 1 << 32;

/// Evaluations by devices.
#[derive(Debug, Clone)]
pub struct DeviceEvaluations {
    /// Who takes part, and how their sums are made, bounded and noised. Its rounds are evaluations.
    pub phase: Phase,
    /// How much of its text a device predicts.
    pub plan: EvaluationPlan,
    /// How vectors are bounded.
    pub clipping: Clipping,
    every: u64,
    rounds: u64,
}

impl DeviceEvaluations {
    /// Those of a run whose models are measured by so many numbers, if there are to be some.
    pub(super) fn new(draft: &Draft<'_>, coordinates: Option<usize>) -> Result<Option<Self>, ConfigError> {
        let config = draft.config;
        let Some(from) = &config.evaluation.devices else { return Ok(None) };
        check(config, from)?;
        let coordinates =
            coordinates.ok_or_else(|| wrong("most_tokens", "devices cannot evaluate models of this kind"))?;
        let norm = ClipNorm::new(NORM).map_err(|e| wrong("most_tokens", e.problem()))?;
        let rule = ClipRule::Flat(norm);
        let clipping = Clipping::new(rule, ClipBit::None).map_err(|e| wrong("most_tokens", e))?;
        let (every, rounds) = (from.every, config.rounds);
        let times = until(every, rounds, rounds);
        let phase = phase(draft, from, coordinates, norm, times)?;
        let plan = EvaluationPlan { most_examples: from.most_tokens };
        Ok(Some(Self { phase, plan, clipping, every, rounds }))
    }

    /// Whether one is due after so many rounds.
    #[must_use]
    pub const fn is_due(&self, rounds: u64) -> bool {
        rounds > 0 && (rounds.is_multiple_of(self.every) || rounds == self.rounds)
    }

    /// How many are due until so many rounds are done, the one after the last of these included.
    #[must_use]
    pub fn until(&self, rounds: u64) -> u64 {
        until(self.every, self.rounds, rounds)
    }

    /// As the ledger's first entry has it.
    pub(super) fn of_ledger(&self) -> Result<ledger::Phase, ConfigError> {
        let mut parameters = BTreeMap::new();
        let mut say = |key: &str, value: String| _ = parameters.insert(key.to_owned(), value);
        if let Some(z) = self.phase.noise {
            say("noise_multiplier", z.to_string());
        }
        say("cohort", self.phase.cohort.to_string());
        say("grid_bits", GRID_BITS.to_string());
        say("clip_norm", self.phase.encoding.clip().to_string());
        say("most_tokens", self.plan.most_examples.to_string());
        // Also for one: this is in the ledgers of tasks that have begun, which go on with the same words or not at all.
        say("every", format!("{} rounds", self.every));
        let noise = if self.phase.noise.is_some() { "independent Gaussian noise on" } else { "no noise on" };
        Ok(ledger::Phase {
            stream: EVALUATION.to_owned(),
            mechanism: format!("{noise} counts of how well a model predicts devices' own text"),
            parameters,
            participation: self.phase.participation,
            rounds: self.phase.rounds,
            event: self.phase.event(self.phase.rounds)?,
        })
    }
}

fn until(every: u64, all: u64, rounds: u64) -> u64 {
    let rounds = rounds.min(all);
    rounds / every + u64::from(rounds == all && !rounds.is_multiple_of(every))
}

fn wrong(key: &str, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError::new(format!("evaluation.devices.{key}"), problem)
}

/// What cannot be stated is refused.
fn check(config: &Config, from: &DeviceEvaluation) -> Result<(), ConfigError> {
    if from.every == 0 {
        return Err(wrong("every", "must be at least 1"));
    }
    if !(1..=MOST_EXAMPLES).contains(&from.most_tokens) {
        let why = format!("must be from 1 to {MOST_EXAMPLES}: it bounds what one device counts");
        return Err(wrong("most_tokens", why));
    }
    if config.participation.kind.is_sampled() {
        let why = "devices evaluate as they become available, and adjacencies cannot be mixed (rule P2): use participation.kind = \"arrival\" or \"once\"";
        return Err(ConfigError::new("evaluation.devices", why));
    }
    match (config.privacy.is_none(), from.noise_multiplier) {
        (true, Some(_)) => {
            return Err(wrong("noise_multiplier", "only valid with noise: privacy.mechanism is \"none\""));
        }
        (true, None) | (false, Some(_)) => {}
        (false, None) => {
            let why = "is missing: the devices' counts are released, and without noise the run would have no guarantee";
            return Err(wrong("noise_multiplier", why));
        }
    }
    if is_distributed(config) {
        let why = "only valid with secagg.noise = \"central\": the server adds the noise of evaluations";
        return Err(ConfigError::new("evaluation.devices", why));
    }
    if config.aggregation.secagg().is_some_and(|secagg| secagg.groups > 1) {
        let why = "only valid with secagg.groups = 1: an evaluation is one sum";
        return Err(ConfigError::new("evaluation.devices", why));
    }
    Ok(())
}

fn phase(
    draft: &Draft<'_>,
    from: &DeviceEvaluation,
    coordinates: usize,
    norm: ClipNorm,
    times: u64,
) -> Result<Phase, ConfigError> {
    let Draft { config, adjacency, .. } = *draft;
    let separation =
        MinSeparation::rounds_between(from.min_separation).map_err(|e| wrong("min_separation", e.problem()))?;
    let participation = Participation::MinSeparation { separation, max_participations: from.max_participations };
    let feasible = participation.check_feasible(config.participation.population, from.cohort, times);
    feasible.map_err(|e| wrong(infeasible_key(&e), e))?;
    let noise =
        from.noise_multiplier.map(|z| noise_multiplier("evaluation.devices.noise_multiplier", z)).transpose()?;
    let noise_plan = noise.map(NoisePlan::of_update);
    let vector = VectorPlan::of_update(coordinates, GRID_BITS);
    let encoding = Encoding::new(vector, norm, noise_plan.as_ref(), adjacency)
        .map_err(|e| ConfigError::new("evaluation.devices", e))?;
    let secure = Secure::new(config, from.cohort).map_err(|e| wrong("cohort", e))?;
    let mut phase = Phase {
        stream: EVALUATION.to_owned(),
        first: 0,
        rounds: times,
        participation,
        cohort: from.cohort,
        noise,
        projected_noise: None,
        mechanism: None,
        secure,
        encoding,
        noise_plan,
        least_weight: None,
        adjacency,
    };
    let layout = phase.released_layout()?;
    if noise.is_some() {
        let plan = MechanismPlan {
            stream: MECHANISM,
            adjacency,
            participation,
            correlation: Correlation::Independent,
            segments: vec![Segment::of(times)],
            distributed: None,
        };
        plan.check(&layout).map_err(|e| ConfigError::new("evaluation.devices", e))?;
        phase.mechanism = Some(plan);
    }
    Ok(phase)
}

fn infeasible_key(error: &ParticipationError) -> &'static str {
    match error {
        ParticipationError::Cohort { .. } => "cohort",
        ParticipationError::NoParticipations | ParticipationError::ParticipationsInfeasible { .. } => {
            "max_participations"
        }
        ParticipationError::SeparationInfeasible { .. } => "min_separation",
    }
}
