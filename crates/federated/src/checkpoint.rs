//! Checkpoints: the state of a run as safetensors, and finding the newest readable one.
//!
//! | part      | what it holds                                                                                              |
//! |-----------|------------------------------------------------------------------------------------------------------------|
//! | tensors   | the parameters by their names (`model.NAME`); the optimizer's memory, flat (`optimizer.0`, `optimizer.1`), where it has one; what simulated users keep between rounds (`rest.USER.0`, `rest.USER.1`), where they do |
//! | metadata  | `format`; `state`: run, kernels, round, clip, how far the noise is, as JSON; `ledger_head`; `sha256` of the three and of all numbers |
//!
//! The two newest that are whole are kept: if one is damaged, it is named and the one before it is used; the ledger has every
//! release since.
//! All of it follows from what was released: of the mechanism there is a counter and no noise (rule P20). What users keep does not; only
//! runs with `noise_seed` have it, which protect nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    num::NonZeroUsize,
};

use device::{
    learner::Layout,
    upload::{Rest, Rests},
};
use ledger::{self, Head};
use lm::tensors::{self, Dtype, Tensor, TensorsError, Values};
use privacy::{
    clip::AdaptiveClip,
    mechanism::{Mechanism, MechanismError, Position},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    engine::Means,
    home::{Home, HomeError},
    optimizer::Optimizer,
    plan::Plan,
    round::State,
};

const FORMAT: &str = "keyhush-state-3";
/// Checkpoints that are kept.
const KEPT: usize = 2;
/// The tensors of the optimizer's memory.
const MEMORY: [&str; 2] = ["optimizer.0", "optimizer.1"];

/// What is not a vector of numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    /// The id of the run's ledger: a checkpoint of another run is none of this one.
    run: ledger::Digest,
    /// The kernels: a run repeats to the bit on the same ones only.
    kernels: String,
    /// How many users the engine holds at a time, where its results depend on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk: Option<NonZeroUsize>,
    round: u64,
    clip: Option<AdaptiveClip>,
    fraction_below_clip: Option<f64>,
    mechanism: Option<Position>,
    /// The users who keep something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rests: Vec<u64>,
}

/// A checkpoint that cannot be used.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// It is not whole.
    #[error("it {0}")]
    Tensors(TensorsError),
    /// The checkpoint is damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It belongs to another run.
    #[error("it belongs to another run: {0}")]
    Other(String),
    /// Its mechanism cannot be taken up.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
}

// Not `#[from]`: what is wrong is in the words, and would be said twice as the source.
impl From<TensorsError> for CheckpointError {
    fn from(error: TensorsError) -> Self {
        Self::Tensors(error)
    }
}

/// A state that was found.
#[derive(Debug)]
pub struct Found {
    /// The state.
    pub state: State,
    /// The head of the ledger when it was written: the ledger must not be shorter.
    pub head: Head,
}

/// The checkpoints of a run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    run: ledger::Digest,
    kernels: String,
    chunk: Option<NonZeroUsize>,
    /// The rounds of those that were written or read and found whole.
    whole: BTreeSet<u64>,
}

impl Checkpoints {
    /// The checkpoints of a run, by the id of its ledger.
    #[must_use]
    pub fn new(run: ledger::Digest, kernels: &str) -> Self {
        Self { run, kernels: kernels.to_owned(), chunk: None, whole: BTreeSet::new() }
    }

    /// The same by the means of a run.
    pub(crate) fn of(run: ledger::Digest, means: Means) -> Self {
        Self { chunk: means.options.chunk, ..Self::new(run, &means.arithmetic()) }
    }

    /// With what this run was computed so far, if that is something else than now.
    ///
    /// # Errors
    /// When the states cannot be listed.
    pub(crate) fn other_arithmetic(&self, home: &dyn Home) -> Result<Option<String>, HomeError> {
        let of_run = |round: u64| said_state(home, round).filter(|rest| rest.run == self.run);
        let kernels = home.states()?.into_iter().filter_map(of_run).map(|rest| rest.kernels);
        Ok(kernels.into_iter().find(|kernels| *kernels != self.kernels))
    }

    /// Writes the state, durably, and removes all but it and the newest of the others that are whole. Gives the rounds of those
    /// that are kept, the newest first. Where it is said, what is kept has that time, in seconds since 1970, and not the time at
    /// which the round was done.
    ///
    /// # Errors
    /// When it is not known to be durable.
    pub fn write(
        &mut self,
        home: &dyn Home,
        plan: &Plan,
        state: &State,
        head: Head,
        time: Option<u64>,
    ) -> Result<Vec<u64>, HomeError> {
        home.write_state(state.round, time, &mut |out| self.write_to(&plan.parameters, state, head, out))?;
        self.whole.insert(state.round);
        let mut kept = vec![state.round];
        for round in home.states()?.into_iter().filter(|round| *round != state.round) {
            if kept.len() < KEPT && (self.whole.contains(&round) || self.read(home, round, plan).is_ok()) {
                self.whole.insert(round);
                kept.push(round);
            } else {
                home.remove_state(round)?;
                self.whole.remove(&round);
            }
        }
        Ok(kept)
    }

    fn write_to(&self, parameters: &Layout, state: &State, head: Head, out: &mut dyn Write) -> io::Result<()> {
        let rest = serde_json::to_string(&Beside {
            run: self.run,
            kernels: self.kernels.clone(),
            chunk: self.chunk,
            round: state.round,
            clip: state.clip,
            fraction_below_clip: state.fraction_below_clip,
            mechanism: state.mechanism.as_ref().map(Mechanism::position),
            rests: state.rests.keys().copied().collect(),
        })?;
        let lens = state.optimizer.memory().map(<[f32]>::len);
        if state.model.len() != parameters.len() {
            return Err(io::Error::other("the parameters of the model differ from the plan"));
        }
        let mut wanted = wanted(parameters, lens);
        state.rests.iter().for_each(|(user, rest)| wanted.extend(of_rest(*user, rest.vectors().map(<[f32]>::len))));
        let mut numbers = [&state.model[..]].into_iter().chain(state.optimizer.memory());
        let mut kept = state.rests.values().flat_map(Rest::vectors);
        let (mut tensors, mut left) = (Vec::new(), numbers.next().unwrap_or_default());
        for (name, shape) in &wanted {
            while left.is_empty() {
                left = numbers
                    .next()
                    .or_else(|| kept.next())
                    .ok_or_else(|| io::Error::other("the model has too few parameters"))?;
            }
            let (values, others) = left.split_at(shape.iter().product::<usize>().min(left.len()));
            tensors.push(Tensor { name, shape: shape.clone(), values: Values::Floats(values) });
            left = others;
        }
        let head = head.to_string();
        let digest = digest(&head, &rest, tensors.iter().map(|tensor| tensor.values));
        let metadata = [("format", FORMAT), ("ledger_head", &head), ("sha256", &digest), ("state", &rest)];
        let metadata: BTreeMap<String, String> = metadata.map(|(key, value)| (key.into(), value.into())).into();
        tensors::write_to(out, &metadata, &tensors)
    }

    /// The newest that can be used, and what was wrong with newer ones, each named.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn newest(&self, home: &dyn Home, plan: &Plan) -> Result<(Option<Found>, Vec<String>), HomeError> {
        let mut wrong = Vec::new();
        for round in home.states()? {
            match self.read(home, round, plan) {
                Ok(found) => return Ok((Some(found), wrong)),
                Err(error) => wrong.push(format!("the checkpoint {}: {error}", home.state_name(round))),
            }
        }
        Ok((None, wrong))
    }

    fn read(&self, home: &dyn Home, round: u64, plan: &Plan) -> Result<Found, CheckpointError> {
        let damaged = |what: &str| CheckpointError::Damaged(what.to_owned());
        let mut from = home.read_state(round)?;
        let tensors = tensors::Reader::new(&mut *from)?;
        let said = |key: &str| tensors.metadata(key).ok_or_else(|| damaged(&format!("its metadata has no {key:?}")));
        if said("format")? != FORMAT {
            return Err(damaged(&format!("its format is {:?}, expected {FORMAT:?}", said("format")?)));
        }
        let (head, rest, digest_said) = (said("ledger_head")?, said("state")?, said("sha256")?.to_owned());
        let (head, rest) = (head.to_owned(), rest.to_owned());
        let fresh = Optimizer::new(plan.optimizer, plan.parameters.len()).map_err(|e| damaged(&e.to_string()))?;
        let lens = fresh.memory().map(<[f32]>::len);
        let said: Beside = serde_json::from_str(&rest).map_err(|e| damaged(&e.to_string()))?;
        let kept = [plan.parameters.len(), if plan.upload.keeps_velocity() { plan.parameters.len() } else { 0 }];
        let mut wanted = wanted(&plan.parameters, lens);
        said.rests.iter().for_each(|user| wanted.extend(of_rest(*user, kept)));
        let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        tensors.expect(&wanted.iter().map(|(name, s)| (name.as_str(), s.clone(), Dtype::F32)).collect::<Vec<_>>())?;
        let mut model = tensors.floats(&names)?;
        if digest(&head, &rest, [Values::Floats(&model)]) != digest_said {
            return Err(damaged("digest mismatch"));
        }
        self.check_own(&said, round, plan)?;
        let mut rests = Rests::new();
        for user in said.rests.iter().rev() {
            let velocity = model.split_off(model.len() - kept[1]);
            let rest = model.split_off(model.len() - kept[0]);
            rests.insert(*user, Rest::new(rest, velocity));
        }
        let second = model.split_off(plan.parameters.len() + lens[0]);
        let first = model.split_off(plan.parameters.len());
        model.shrink_to_fit();
        let optimizer =
            fresh.remember([first, second]).ok_or_else(|| damaged("it has the state of another optimizer"))?;
        let Beside { clip, fraction_below_clip, mechanism: position, .. } = said;
        let mechanism = mechanism(round, plan, position)?;
        let head = head.parse().map_err(|e| damaged(&format!("{e}")))?;
        Ok(Found { state: State { round, model, optimizer, clip, fraction_below_clip, mechanism, rests }, head })
    }

    /// Refuses what another run, or this one with other kernels, has left.
    fn check_own(&self, rest: &Beside, round: u64, plan: &Plan) -> Result<(), CheckpointError> {
        if rest.run != self.run {
            return Err(CheckpointError::Other("it belongs to another ledger".into()));
        }
        if rest.kernels != self.kernels {
            let (theirs, ours) = (&rest.kernels, &self.kernels);
            return Err(CheckpointError::Other(format!("it was made with {theirs} kernels, but these are {ours}")));
        }
        if rest.round != round || round > plan.rounds {
            return Err(CheckpointError::Damaged("its counters do not match this run".into()));
        }
        if !rest.rests.is_empty() && !plan.upload.keeps_rest() {
            return Err(CheckpointError::Damaged(
                "it stores what users keep between rounds, but in this plan they keep nothing".into(),
            ));
        }
        if rest.clip.is_some() != plan.adaptive.is_some() {
            return Err(CheckpointError::Damaged("its kind of clipping differs from the plan".into()));
        }
        Ok(())
    }
}

/// What a state says beside its numbers, whole or not; none where it cannot be read.
fn said_state(home: &dyn Home, round: u64) -> Option<Beside> {
    let mut from = home.read_state(round).ok()?;
    serde_json::from_str(tensors::Reader::new(&mut *from).ok()?.metadata("state")?).ok()
}

/// The engine's chunk size (users at a time) in the newest checkpoint; none if results do not depend on it.
///
/// # Errors
/// When the states cannot be listed.
pub fn chunk(home: &dyn Home) -> Result<Option<NonZeroUsize>, HomeError> {
    Ok(home.states()?.into_iter().find_map(|round| said_state(home, round)).and_then(|rest| rest.chunk))
}

/// How many parameters the model of a run has, as its newest state says; none where there is none that can be read.
pub(crate) fn parameters(home: &dyn Home) -> Option<usize> {
    let of_state = |round: u64| {
        let mut from = home.read_state(round).ok()?;
        let sizes = tensors::Reader::new(&mut *from).ok()?.sizes();
        Some(sizes.iter().filter(|(name, _)| name.starts_with("model.")).map(|(_, size)| size).sum())
    };
    home.states().ok()?.into_iter().find_map(of_state)
}

/// The head of the ledger that a state names, whole or not; none where it names none.
pub(crate) fn head(home: &dyn Home, round: u64) -> Option<Head> {
    let mut from = home.read_state(round).ok()?;
    tensors::Reader::new(&mut *from).ok()?.metadata("ledger_head")?.parse().ok()
}

/// The tensors of a state, in order.
fn wanted(parameters: &Layout, memory: [usize; 2]) -> Vec<(String, Vec<usize>)> {
    let of_model =
        parameters.parts().iter().map(|part| (format!("model.{}", part.name), vec![part.rows, part.columns]));
    let of_memory = MEMORY.into_iter().zip(memory).map(|(name, len)| (name.to_owned(), vec![len]));
    of_model.chain(of_memory).filter(|(_, shape)| shape.iter().product::<usize>() > 0).collect()
}

/// The tensors of what one user keeps.
fn of_rest(user: u64, lens: [usize; 2]) -> impl Iterator<Item = (String, Vec<usize>)> {
    let named = lens.into_iter().enumerate().map(move |(at, len)| (format!("rest.{user}.{at}"), vec![len]));
    named.filter(|(_, shape)| shape[0] > 0)
}

/// The mechanism of the round before; at the first round of a phase another begins, and none need be there.
fn mechanism(round: u64, plan: &Plan, position: Option<Position>) -> Result<Option<Mechanism>, CheckpointError> {
    let phase = plan.phase(round.saturating_sub(1));
    let damaged = |what: String| CheckpointError::Damaged(what);
    let Some(position) = position else {
        let begins = plan.phases().iter().any(|phase| phase.first == round);
        let noisy = !begins && phase.mechanism.is_some();
        return if noisy { Err(damaged("it has no noise, but the plan has".into())) } else { Ok(None) };
    };
    let of_plan = phase.mechanism.clone().ok_or_else(|| damaged("it has noise, but the plan has none".into()))?;
    let layout = phase.released_layout().map_err(|e| damaged(e.to_string()))?;
    let mechanism = Mechanism::at(of_plan, &layout, plan.randomness(), position)?;
    if mechanism.step() != round - phase.first {
        return Err(damaged("its noise belongs to another round".into()));
    }
    Ok(Some(mechanism))
}

/// The digest of a state: of its texts, each with its length, and of all numbers one after the other.
fn digest<'a>(head: &str, rest: &str, numbers: impl IntoIterator<Item = Values<'a>>) -> String {
    let mut hash = Sha256::new();
    for text in [FORMAT, head, rest] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    for values in numbers {
        let Ok(()) = values.each_block(|block| {
            hash.update(block);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    ledger::hex(&hash.finalize())
}
