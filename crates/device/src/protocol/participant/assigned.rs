//! Checks an assignment as far as possible without the task and the model, with every reason to refuse.

use privacy::{Participation, encoding::EncodingError, stages::Residues, units::MinSeparation};
use secagg::{
    client::ClientError,
    session::{Inputs, Offer, TermsError},
    wire::WireError,
};
use serde::Deserialize;
use thiserror::Error;

use super::{
    super::{
        blob::{BlobError, Wanted},
        message::{Assignment, Ticket},
        policy::{Policy, Weak},
        task::{Task, TaskError},
        terms::{Purpose, StepTerms, TaskTerms},
    },
    Now,
};
use crate::{
    guard::{Limits, Refused, StoreError, Timer},
    local::{LocalPlanError, check_learning_rate},
    upload::UploadTerms,
};

/// Why a device does not take part, or no longer. None of it is told to the server.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NotTaken {
    /// The assignment has no meaning.
    #[error("the assignment is not valid: {0}")]
    Meaningless(&'static str),
    /// Task or model cannot be had.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The task cannot be carried out.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The terms of the step cannot be read.
    #[error("the terms of the step cannot be read: {0}")]
    Step(String),
    /// The model, or the terms of the step, do not fit the task.
    #[error("the assignment is for {got} numbers, but the task has {expected}")]
    Dimension {
        /// What the model or the step is for.
        got: u64,
        /// What the task's model has, or what is counted of it.
        expected: u64,
    },
    /// The step of learning has no meaning.
    #[error(transparent)]
    Rate(#[from] LocalPlanError),
    /// It promises too little.
    #[error(transparent)]
    Weak(#[from] Weak),
    /// The task is another server's.
    #[error("the task belongs to another server, and only that server may assign it")]
    OtherServer,
    /// The step lies beyond the plan.
    #[error("step {step} is beyond the {rounds} planned steps, which the guarantee covers")]
    BeyondPlan {
        /// The requested step.
        step: u64,
        /// The planned number of rounds.
        rounds: u64,
    },
    /// The server said that it does not need the device before a later step.
    #[error("step {step}: this server said before that it does not need this device until step {from}")]
    NotEligible {
        /// The requested step.
        step: u64,
        /// The first eligible step.
        from: u64,
    },
    /// Enough inputs left for this task.
    #[error("{have} inputs were sent for this task, but its plan allows {most}")]
    TaskIsOver {
        /// The number of inputs that were sent.
        have: u64,
        /// MaxP of the plan.
        most: u64,
    },
    /// The guard says no.
    #[error(transparent)]
    Guard(#[from] Refused),
    /// The offer of secure aggregation cannot be read.
    #[error("offer of secure aggregation: {0}")]
    Offer(#[from] WireError),
    /// The offer has no meaning.
    #[error("offer of secure aggregation: {0}")]
    OfferTerms(#[from] TermsError),
    /// The offer is for something else.
    #[error("the offer of secure aggregation differs from the assignment in its {0}")]
    OtherOffer(&'static str),
    /// Secure aggregation does not continue.
    #[error("secure aggregation: {0}")]
    Secure(#[from] ClientError),
    /// Vectors do not become residues.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// Training failed.
    #[error("training failed: {0}")]
    Training(String),
    /// What was trained is not what was asked for.
    #[error("the input has {got} numbers, expected {expected}")]
    Input {
        /// The actual value.
        got: usize,
        /// The number requested.
        expected: usize,
    },
    /// The host keeps the input back.
    #[error("the report was not sent: {0}")]
    Withheld(String),
    /// The diary could not be written.
    #[error("the diary could not be written, so nothing is sent: {0}")]
    Diary(#[from] StoreError),
}

impl NotTaken {
    /// Whether another step of the same task may be taken: then it is worth asking again soon.
    pub(super) const fn is_of_this_step(&self) -> bool {
        matches!(self, Self::Guard(_) | Self::NotEligible { .. } | Self::Secure(_) | Self::Blob(_))
    }
}

/// What a device was asked to do.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) ticket: Ticket,
    pub(super) task: Wanted,
    pub(super) model: Wanted,
    pub(super) step: u64,
    pub(super) offer: Option<Offer>,
    /// When a report may leave at the latest.
    pub(super) until_ms: u64,
    began_ms: u64,
    tick_ms: u64,
    terms: Vec<u8>,
}

impl Assigned {
    pub(super) fn read(said: Assignment, policy: &Policy, now: Now) -> Result<Self, NotTaken> {
        let missing = |what| move || NotTaken::Meaningless(what);
        let ticket = said.ticket.try_into().map(Ticket).map_err(|_| NotTaken::Meaningless("a ticket has 32 bytes"))?;
        let (task, model) = (said.task.ok_or_else(missing("no task"))?, said.model.ok_or_else(missing("no model"))?);
        let task = Wanted::of(&task, "the task", policy.bounds.task_bytes)?;
        let model = Wanted::of(&model, "the model", policy.bounds.model_bytes)?;
        if model.bytes == 0 || model.bytes % 4 != 0 {
            return Err(NotTaken::Meaningless("a model has four bytes for each parameter"));
        }
        let offer = match said.offer.as_slice() {
            [] => None,
            bytes => Some(Offer::decode(bytes)?),
        };
        let within_ms = said.within_ms.min(policy.most_seconds.saturating_mul(1000));
        let assigned = Self {
            ticket,
            task,
            model,
            step: said.step,
            offer,
            until_ms: now.up_ms.saturating_add(within_ms),
            began_ms: now.up_ms,
            tick_ms: said.tick_ms.max(policy.least_tick_ms).max(1).into(),
            terms: said.terms,
        };
        assigned.check_offer()?;
        Ok(assigned)
    }

    /// An offer is for the very task, model and step that were assigned: masks are bound to what it says.
    fn check_offer(&self) -> Result<(), NotTaken> {
        let Some(Offer { terms, .. }) = &self.offer else { return Ok(()) };
        terms.check()?;
        let same = [
            ("task", terms.task == self.task.digest),
            ("model", terms.model == self.model.digest),
            ("step", terms.round == self.step),
        ];
        match same.into_iter().find(|(_, same)| !same) {
            Some((what, _)) => Err(NotTaken::OtherOffer(what)),
            None => Ok(()),
        }
    }

    /// What holds in a step of the task. It is read when it is needed and not kept: an encoding can be large, and devices are many.
    pub(super) fn step_terms(&self, task: &Task) -> Result<StepTerms, NotTaken> {
        let unread = |e: serde_json::Error| NotTaken::Step(e.to_string());
        // An encoding makes room for its dimension, so that is looked at first.
        let Glance { encoding: GlanceEncoding { plan: GlancePlan { dimension, counts } } } =
            serde_json::from_slice(&self.terms).map_err(unread)?;
        let (got, expected) = (dimension, task.dimension());
        if got != expected {
            return Err(NotTaken::Dimension { got, expected });
        }
        if counts.is_some() {
            return Err(NotTaken::Step("it asks for counts, which devices do not send".to_owned()));
        }
        let step: StepTerms = serde_json::from_slice(&self.terms).map_err(unread)?;
        let few = matches!(task.terms().upload, Some(UploadTerms::Largest { .. }));
        if few != step.encoding.few().is_some() {
            let why = if few {
                "the number of coordinates to send is missing"
            } else {
                "it asks for few coordinates, but the task for all"
            };
            return Err(NotTaken::Step(why.to_owned()));
        }
        if task.terms().purpose() == Purpose::Training {
            check_learning_rate(step.learning_rate)?;
        }
        let (got, expected) = (step.clipping.rule().bound().get(), step.encoding.clip().get());
        if got != expected {
            return Err(EncodingError::Clip { expected, got }.into());
        }
        Ok(step)
    }

    /// How vectors of the step become residues, as the offer has it.
    pub(super) fn residues(&self, step: &StepTerms, offer: &Offer) -> Result<Residues, NotTaken> {
        let terms = &offer.terms;
        if terms.inputs == Inputs::Noised {
            return Err(NotTaken::Meaningless("it asks for noised inputs without saying how much noise"));
        }
        let residues = Residues::new(&step.encoding, terms.most_clients.into())?;
        let same = [
            ("number of coordinates", terms.dimension as usize == residues.len()),
            ("modulus", terms.bits == residues.bits()),
            ("range of inputs", terms.inputs == Inputs::Bounded { largest: residues.largest() }),
        ];
        match same.into_iter().find(|(_, same)| !same) {
            Some((what, _)) => Err(NotTaken::OtherOffer(what)),
            None => Ok(residues),
        }
    }

    /// The next time at which a report may leave: neither how long training took nor how much was typed shows in it.
    pub(super) const fn next_tick(&self, now: Now) -> u64 {
        let passed = now.up_ms.saturating_sub(self.began_ms).div_ceil(self.tick_ms);
        self.began_ms.saturating_add(passed.saturating_mul(self.tick_ms))
    }
}

#[derive(Deserialize)]
struct Glance {
    encoding: GlanceEncoding,
}

#[derive(Deserialize)]
struct GlanceEncoding {
    plan: GlancePlan,
}

#[derive(Deserialize)]
struct GlancePlan {
    dimension: u64,
    #[serde(default)]
    counts: Option<serde::de::IgnoredAny>,
}

/// Whether the plan of a task has no input of a device after this one, of which it gave so many before.
pub(super) fn is_last(terms: &TaskTerms, have: u64, step: u64) -> bool {
    let distance = match terms.participation {
        Participation::MinSeparation { separation, .. } => separation.as_distance(),
        _ => 1,
    };
    have + 1 >= terms.participation.most_participations(terms.rounds) || step.saturating_add(distance) >= terms.rounds
}

/// The device's own limits, or the plan's where those are stricter.
pub(super) fn limits_for(own: &Limits, terms: &TaskTerms) -> Limits {
    let of_plan = match terms.participation {
        Participation::MinSeparation { separation, .. } => Some(separation),
        _ => None,
    };
    let stricter = |a: MinSeparation, b: MinSeparation| a.max(b);
    let separation = match (own.separation, of_plan) {
        (Some(a), Some(b)) => Some(stricter(a, b)),
        (one, other) => one.or(other),
    };
    let timer = Timer { task_s: own.timer.task_s.max(terms.timer_s.unwrap_or(0)), ..own.timer };
    Limits { separation, timer, ..*own }
}
