//! The device's policy: what it refuses, whatever a server asks for.
//!
//! A server says in the terms of a task what it promises: how many reports a sum is of, how much noise is added, what the whole plan
//! costs. A device cannot see whether the promise is kept, but one that is too weak it need not even hear out. What it can
//! see to, it sees to itself: the clip, how often it takes part ([`crate::guard`]), and the parameters of secure aggregation.
//!
//! Every refusal is for the device's own diary. To the server a device that refuses is one that does not come.

use privacy::Participation;
use secagg::{
    parameters::{Adversary, Floor},
    session::Terms as SecureTerms,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    task::Bounds,
    terms::{PrivacyTerms, StepTerms, TaskTerms},
};

/// The minimum that a device requires of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The largest clip norm; any by default.
    pub largest_clip: Option<f64>,
    /// The fewest reports that a sum is of, made securely or not.
    pub least_goal: u64,
    /// Whether a plan without noise is taken.
    pub without_noise: bool,
    /// Whether noise is taken that somebody can draw again.
    pub simulated_noise: bool,
    /// The smallest noise multiplier; any by default.
    pub least_noise_multiplier: Option<f64>,
    /// The largest epsilon of a whole plan; any, or none at all by default.
    pub most_epsilon: Option<f64>,
    /// The largest delta; any by default.
    pub most_delta: Option<f64>,
    /// The most participations in one task; any number by default.
    pub most_participations: Option<u64>,
    /// The fewest steps between two participations in one task (MinS).
    pub least_steps_between: u64,
    /// Whether models are measured on this device's text, under all the same conditions.
    pub evaluations: bool,
    /// Whether sums must be made securely.
    pub only_secure: bool,
    /// What secure aggregation must withstand.
    pub secure: SecureFloor,
    /// Reports leave at whole multiples of so many milliseconds after the assignment, or of more where the server asks for that.
    pub least_tick_ms: u32,
    /// How long a part may take, in seconds.
    pub most_seconds: u64,
    /// How much a task may ask of the device.
    pub bounds: Bounds,
}

impl Default for Policy {
    /// What a person would want who trusts the operator to add the noise, and nobody to be careful: sums of a hundred at least,
    /// noise that is secret and an epsilon that is stated, bounded at 20 for the whole plan.
    fn default() -> Self {
        Self {
            largest_clip: Some(100.0),
            least_goal: 100,
            without_noise: false,
            simulated_noise: false,
            least_noise_multiplier: Some(0.1),
            most_epsilon: Some(20.0),
            most_delta: Some(1e-5),
            most_participations: None,
            least_steps_between: 0,
            evaluations: true,
            only_secure: false,
            secure: SecureFloor::default(),
            least_tick_ms: 1000,
            most_seconds: 6 * 60 * 60,
            bounds: Bounds::default(),
        }
    }
}

impl Policy {
    /// Takes every plan, without noise too. For trying things out with synthetic users: it protects nobody.
    #[must_use]
    pub fn for_made_up_people() -> Self {
        Self {
            largest_clip: None,
            least_goal: 1,
            without_noise: true,
            simulated_noise: true,
            least_noise_multiplier: None,
            most_epsilon: None,
            most_delta: None,
            secure: SecureFloor { clients: 3, survivors: 2, corrupted: 0.0, dropout: 0.0, ..SecureFloor::default() },
            least_tick_ms: 1,
            ..Self::default()
        }
    }
}

/// The minimum that a device requires of secure aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecureFloor {
    /// The fewest clients.
    pub clients: u32,
    /// The fewest of whom a sum may be opened.
    pub survivors: u32,
    /// The share of clients that may be on the server's side.
    pub corrupted: f64,
    /// The share of clients that may drop out.
    pub dropout: f64,
    /// Secrecy fails with a chance of at most 2 to the minus this.
    pub security_bits: u32,
    /// Whether the server is not taken at its word on who dropped out.
    pub semi_malicious: bool,
}

impl Default for SecureFloor {
    fn default() -> Self {
        let Floor { clients, survivors, corrupted, dropout, security_bits, adversary } = Floor::default();
        Self {
            clients,
            survivors,
            corrupted,
            dropout,
            security_bits,
            semi_malicious: adversary == Adversary::SemiMalicious,
        }
    }
}

impl From<SecureFloor> for Floor {
    fn from(floor: SecureFloor) -> Self {
        let SecureFloor { clients, survivors, corrupted, dropout, security_bits, semi_malicious } = floor;
        let adversary = if semi_malicious { Adversary::SemiMalicious } else { Adversary::Curious };
        Self { clients, survivors, corrupted, dropout, security_bits, adversary }
    }
}

/// Why a device's policy refuses a task.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Weak {
    /// The clip is too large.
    #[error("updates would be clipped to a norm of {got}; this device requires {most} or less")]
    Clip {
        /// The bound.
        got: f64,
        /// The limit of this device.
        most: f64,
    },
    /// Too few reports.
    #[error("the report goal would be {got}; this device requires {least} or more")]
    Goal {
        /// The goal.
        got: u64,
        /// The limit of this device.
        least: u64,
    },
    /// No noise.
    #[error("no noise would be added; this device requires noise")]
    NoNoise,
    /// Noise that is no secret.
    #[error("the noise would be simulated; someone can draw it again, so it hides nothing")]
    Simulated,
    /// Too little noise.
    #[error("the noise multiplier would be {got}; this device requires {least} or more")]
    Noise {
        /// The multiplier.
        got: f64,
        /// The limit of this device.
        least: f64,
    },
    /// Too large a cost, or none stated.
    #[error("the epsilon of the plan would be {}; this device requires {most} or less", stated(*.got))]
    Epsilon {
        /// The epsilon.
        got: Option<f64>,
        /// The limit of this device.
        most: f64,
    },
    /// Too large a delta, or none stated.
    #[error("the delta of the plan would be {}; this device requires {most} or less", stated(*.got))]
    Delta {
        /// The delta.
        got: Option<f64>,
        /// The limit of this device.
        most: f64,
    },
    /// Too many participations.
    #[error("the plan allows {got} participations per device; this device allows at most {most}")]
    Participations {
        /// The most of the plan.
        got: u64,
        /// The limit of this device.
        most: u64,
    },
    /// Participations too close together.
    #[error("the number of steps between two participations would be {got}; this device requires {least} or more")]
    Separation {
        /// MinS of the plan.
        got: u64,
        /// The limit of this device.
        least: u64,
    },
    /// Who comes cannot be drawn.
    #[error("the plan samples users, which is not possible with devices that check in by themselves")]
    Sampled,
    /// A plan that contradicts itself.
    #[error("the plan has a value of {0} that is not valid")]
    Meaningless(&'static str),
    /// Models are not measured here.
    #[error("a model would be evaluated on this device's text; this device takes part in training only")]
    Evaluation,
    /// Reports would be seen.
    #[error("the server would see this device's own report; this device requires secure aggregation")]
    Plain,
    /// Terms and assignment disagree on secure aggregation.
    #[error("the task and the assignment disagree on whether secure aggregation is used")]
    Disagree,
    /// Secure aggregation of fewer than the goal.
    #[error("a sum of {got} could be opened; this device requires {least} or more")]
    Survivors {
        /// The fewest survivors.
        got: u32,
        /// The limit of this device.
        least: u32,
    },
}

fn stated(number: Option<f64>) -> String {
    number.map_or_else(|| "without bound".to_owned(), |n| n.to_string())
}

impl Policy {
    /// Refuses a task that promises too little.
    ///
    /// # Errors
    /// The first thing that is too weak.
    pub fn check_task(&self, terms: &TaskTerms) -> Result<(), Weak> {
        if terms.goal < self.least_goal {
            return Err(Weak::Goal { got: terms.goal, least: self.least_goal });
        }
        if terms.evaluation.is_some() && !self.evaluations {
            return Err(Weak::Evaluation);
        }
        if self.only_secure && !terms.secure {
            return Err(Weak::Plain);
        }
        self.check_privacy(&terms.privacy)?;
        self.check_participation(terms)
    }

    fn check_privacy(&self, privacy: &PrivacyTerms) -> Result<(), Weak> {
        match privacy.noise_multiplier {
            // Not a number is neither more nor less than anything: every comparison here asks for what is wanted.
            Some(got) if !(got.is_finite() && got > 0.0) => return Err(Weak::Meaningless("the noise multiplier")),
            Some(got) if self.least_noise_multiplier.is_some_and(|least| got < least) => {
                return Err(Weak::Noise { got, least: self.least_noise_multiplier.unwrap_or_default() });
            }
            None if !self.without_noise => return Err(Weak::NoNoise),
            _ => {}
        }
        if privacy.simulated && !self.simulated_noise {
            return Err(Weak::Simulated);
        }
        let within = |got: Option<f64>, most: f64| got.is_some_and(|got| (0.0..=most).contains(&got));
        // Where a plan without noise is taken, there is no bound to ask for.
        let bounded = privacy.noise_multiplier.is_some();
        match (self.most_epsilon, self.most_delta) {
            (Some(most), _) if bounded && !within(privacy.epsilon, most) => {
                Err(Weak::Epsilon { got: privacy.epsilon, most })
            }
            (_, Some(most)) if bounded && !within(privacy.delta, most) => Err(Weak::Delta { got: privacy.delta, most }),
            _ => Ok(()),
        }
    }

    fn check_participation(&self, terms: &TaskTerms) -> Result<(), Weak> {
        let participation = &terms.participation;
        participation.check().map_err(|_| Weak::Meaningless("participation"))?;
        if participation.is_sampled() {
            return Err(Weak::Sampled);
        }
        let got = participation.most_participations(terms.rounds);
        match (self.most_participations, *participation) {
            (Some(most), _) if got > most => Err(Weak::Participations { got, most }),
            (_, Participation::MinSeparation { separation, .. })
                if separation.as_rounds_between() < self.least_steps_between =>
            {
                let (got, least) = (separation.as_rounds_between(), self.least_steps_between);
                Err(Weak::Separation { got, least })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a step that is bounded too loosely.
    ///
    /// # Errors
    /// When the clip is too large.
    pub fn check_step(&self, step: &StepTerms) -> Result<(), Weak> {
        let got = step.clipping.rule().bound().get();
        match self.largest_clip {
            Some(most) if got > most => Err(Weak::Clip { got, most }),
            _ => Ok(()),
        }
    }

    /// Refuses an offer that opens sums of too few. The rest of the floor is seen to by secure aggregation itself, when it is known
    /// who came.
    ///
    /// # Errors
    /// When task and offer disagree, or a sum could be of too few.
    pub fn check_offer(&self, terms: &TaskTerms, offer: Option<&SecureTerms>) -> Result<(), Weak> {
        let Some(offer) = offer else {
            return if terms.secure { Err(Weak::Disagree) } else { Ok(()) };
        };
        if !terms.secure {
            return Err(Weak::Disagree);
        }
        let (got, least) = (offer.least_survivors, self.secure_floor(terms).survivors);
        if got < least { Err(Weak::Survivors { got, least }) } else { Ok(()) }
    }

    /// The floor for secure aggregation of a task. A sum is of as many as the task promises, and of no fewer than this device asks for
    /// of any sum: the server sees it without noise.
    #[must_use]
    pub fn secure_floor(&self, terms: &TaskTerms) -> Floor {
        let promised = u32::try_from(self.least_goal.max(terms.goal)).unwrap_or(u32::MAX);
        let survivors = self.secure.survivors.max(promised);
        SecureFloor { survivors, ..self.secure }.into()
    }
}
