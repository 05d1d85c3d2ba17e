//! The GPU engine: takes users in chunks and returns integer sums.
//!
//! A cohort is read on all threads, sorted by how much there is to learn from, and cut into chunks of one size, the last of them filled
//! up with nobody; the users of a chunk are trained in lanes, side by side. While the card trains a chunk, the host prepares the next
//! one; while it trains the last, the host reads the next cohort, where it is told whom that will be. When a round is over, nothing of
//! its users is left on the card.

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Instant,
};

use device::{
    evaluation::EvaluationPlan,
    finetune::{FineTune, Rehearsal},
    learner::{Learner, examples::Examples},
    local::{Algorithm, LocalError, LocalPlan, check_learning_rate},
    round::{Exact, PartError, Task},
    upload::Rests,
};
use federated::{
    engine::{Engine, EngineError, EngineKind, Hardware, Means, Precision, Summed, Users, drawn},
    plan::Plan,
    population::Population,
    workers::Pool,
};
use lm::model::{config::ModelConfig, parameters::ParameterLayout};
use zeroize::Zeroizing;

use privacy::{
    encoding::{EncodingError, GridRule},
    rng::StreamKey,
    stages::{Clipped, Contribution, Encoded, Sum, Update},
    workers,
};

use crate::{
    card::{Card, Pinned},
    central::CardTrainer,
    cohort::{Ahead, MOST_STEPS, Reading, User},
    encoding::{Drawing, Found, NO_ROTATION, grid_rule},
    error::{CudaError, NAME, failed, unavailable},
    evaluation,
    lane::{Came, Lane},
    measuring::CardMeasurer,
    network::Network,
    placement::Placement,
    schedule::{Reader, Schedule},
    shape::Shape,
};

/// The share of the free memory that a chunk may take.
const SHARE: f64 = 0.8;
/// Users of a chunk at most, where the card has room for more.
const MOST_USERS: usize = 400;
/// Users of a chunk where nobody said how many there will be.
const USUAL_USERS: usize = 128;
/// Parts of a chunk that are trained side by side.
const LANES: usize = 2;

/// The GPU engine, as programs list it.
pub const CUDA: EngineKind = EngineKind {
    name: NAME,
    about: "an NVIDIA GPU, hundreds of users at a time",
    precisions: &Precision::ALL,
    make: |local, learner, means| Ok(Box::new(CardEngine::new(local, learner, means)?)),
    measurer: |learner, _| Ok(Box::new(CardMeasurer::new(learner)?)),
    central: |central, means| Ok(Box::new(CardTrainer::new(central, means)?)),
    refuses,
    arithmetic,
};

/// What decides the bits of a sum, as checkpoints keep it and ranks compare it.
fn arithmetic(means: Means) -> String {
    let chunk = means.options.chunk.map_or(String::new(), |chunk| format!(" chunk {chunk}"));
    let card = means.hardware.map_or(String::new(), |hardware| {
        let Hardware { architecture: (major, minor), processors, library, compiler: (newer, older), driver } = hardware;
        format!(
            " capability {major}.{minor} processors {processors} cublas {library} nvrtc {newer}.{older} driver {driver}"
        )
    });
    format!("{NAME} {}{chunk} lanes {LANES}{card}", means.options.precision.name())
}

/// What a card cannot do for a plan.
fn refuses(plan: &Plan) -> Option<String> {
    if plan.phases().iter().any(|phase| phase.secure.is_some()) {
        let why = "secure aggregation needs each user's own vector, but the GPU engine only gives the sum of many; remove aggregation = \"secagg\" (--secagg), or use --engine threads";
        return Some(why.to_owned());
    }
    if plan.upload.is_partial() {
        let why =
            "the GPU engine only sums whole updates; use upload.kind = \"grid\" or \"dense\", or use --engine threads";
        return Some(why.to_owned());
    }
    if let Some(problem) = unlearned(&plan.local) {
        return Some(problem);
    }
    let rotates = plan.phases().iter().any(|phase| phase.vectors().rotation_seed.is_some());
    rotates.then(|| NO_ROTATION.to_owned())
}

/// What a card does not do of a plan of local training.
fn unlearned(local: &LocalPlan) -> Option<String> {
    let soft = matches!(local.finetune, Some(FineTune::SoftLabels { .. }));
    let why = "the GPU engine does not learn from soft labels ([finetune] kind = \"without-forgetting\"); use --engine threads";
    soft.then(|| why.to_owned())
}

/// A card that trains users.
pub struct CardEngine<'a> {
    lanes: Vec<Lane>,
    reading: Reading<'a>,
    pool: Pool,
    /// Who measures models for devices, once that was asked for.
    measurer: Option<CardMeasurer>,
    check_encodings: bool,
    hardware: Hardware,
    /// The model on its way up, and the sum on its way down.
    model: Pinned<f32>,
    sum: Pinned<i64>,
    /// Schedules and texts that are over, for their memory.
    spare: Vec<Schedule>,
    texts: Vec<Examples>,
    /// Who will be asked for next, as far as that is known, and what was read of them.
    next: Option<Vec<u64>>,
    ahead: Option<Ahead>,
    /// Seconds of the last round from the launch of a chunk to its results.
    card_s: f64,
    /// Users of the last round whom the card left to the host.
    left: u64,
}

/// Where a user is trained: the lane, and the place in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    lane: usize,
    place: usize,
}

/// What is known of a cohort so far.
struct Collected {
    /// Parts that the host encoded, or checked, if there are any.
    by_host: Option<Sum>,
    /// Clip bits, weights and counts of those whom the card encoded.
    beside: Vec<i64>,
    /// How many the card encoded.
    by_card: u64,
    /// How many it left to the host.
    left: u64,
    exact: Vec<(u64, Exact)>,
}

/// Somebody whose part the host encodes: what they changed, or nothing.
struct Left<'u> {
    user: &'u User,
    found: Found,
    difference: Option<Vec<f32>>,
}

impl Collected {
    fn by_host(&mut self, task: &Task<'_>) -> &mut Sum {
        self.by_host.get_or_insert_with(|| Sum::zero(task.encoding))
    }
}

impl<'a> CardEngine<'a> {
    /// The engine of a plan's local training.
    ///
    /// # Errors
    /// When there is no card, or it cannot train this.
    pub fn new(local: &LocalPlan, learner: &'a dyn Learner, means: Means) -> Result<Self, EngineError> {
        let config = learner.recurrent().ok_or_else(|| {
            let problem =
                format!("only recurrent language models are supported, not {:?}; use --engine threads", learner.name());
            EngineError::Unavailable { engine: CUDA.name, problem }
        })?;
        local.check().map_err(LocalError::from)?;
        if let Some(problem) = unlearned(local) {
            return Err(EngineError::Unavailable { engine: CUDA.name, problem });
        }
        let rehearsal = match &local.finetune {
            Some(FineTune::Rehearsal { lambda, general }) => Some(Rehearsal::new(learner, *lambda, general)),
            Some(FineTune::SoftLabels { .. }) | None => None,
        };
        let layout = ParameterLayout::new(config).map_err(|e| unavailable(CudaError::Refused(e.to_string())))?;
        let lanes = lanes(config, &layout, local, means).map_err(unavailable)?;
        let card = &lanes.first().ok_or_else(|| unavailable(nobody())).map(|lane| &lane.card)?;
        let (model, sum) =
            (card.pinned(layout.len()).map_err(unavailable)?, card.pinned(layout.len()).map_err(unavailable)?);
        let hardware = card.hardware().map_err(unavailable)?;
        let most_steps = lanes.iter().map(|lane| lane.network().most_steps()).min().map_or(0, |m| m.min(MOST_STEPS));
        Ok(Self {
            lanes,
            reading: Reading { learner, local: local.clone(), rehearsal, most_steps },
            pool: Pool::new(means.threads),
            measurer: None,
            check_encodings: means.options.check_encodings,
            hardware,
            model,
            sum,
            spare: Vec::new(),
            texts: Vec::new(),
            next: None,
            ahead: None,
            card_s: 0.0,
            left: 0,
        })
    }

    /// What each user's training changed, before it is clipped: for tests and benches, which compare it with other engines.
    ///
    /// # Errors
    /// When training fails.
    pub fn differences(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Vec<(u64, Vec<f32>)>, EngineError> {
        self.then_forget(|engine| engine.each_difference(task, users))
    }

    fn each_difference(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Vec<(u64, Vec<f32>)>, EngineError> {
        let mut differences = Vec::with_capacity(users.numbers.len());
        let (everybody, _) = self.begin(task, users)?;
        let rule = grid_rule(task.encoding).map_err(failed)?;
        for chunk in everybody.chunks(CardEngine::chunk(self)) {
            let schedules = self.launch(task, chunk, Vec::new(), users.key, &rule)?;
            for (lane, part) in self.lanes.iter().zip(parts(chunk)) {
                for (place, user) in part.iter().enumerate() {
                    differences.push((user.number, lane.difference(place).map_err(failed)?));
                }
            }
            self.spare.extend(schedules);
        }
        differences.sort_unstable_by_key(|(user, _)| *user);
        Ok(differences)
    }

    /// Does something with users, and leaves nothing of them on the card, whatever came of it: no noise is in it. Lanes that cannot be
    /// cleared keep none of the others from it.
    fn then_forget<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        let forgotten: Vec<_> = self.lanes.iter_mut().map(Lane::forget).collect();
        let done = done.unwrap_or_else(|panic| resume_unwind(panic));
        forgotten.into_iter().collect::<Result<(), _>>().map_err(failed)?;
        done
    }

    /// Users of a chunk.
    #[must_use]
    pub fn chunk(&self) -> usize {
        self.lanes.iter().map(|lane| lane.network().shape().users).sum()
    }

    /// Seconds of the last round in which the card was at work: from the launch of each chunk to its results.
    #[must_use]
    pub const fn card_seconds(&self) -> f64 {
        self.card_s
    }

    /// Users of the last round whose rounding the card left to the host, which takes as long for one as the card for many.
    #[must_use]
    pub const fn left_to_host(&self) -> u64 {
        self.left
    }

    /// From now on the host encodes everybody: for tests, since the card leaves it hardly anybody.
    #[doc(hidden)]
    pub fn leave_all_to_host(&mut self) {
        self.lanes.iter_mut().for_each(Lane::leave_all_to_host);
    }

    /// The card, in words.
    ///
    /// # Errors
    /// When it does not say.
    pub fn card_name(&self) -> Result<String, EngineError> {
        self.lanes.first().ok_or_else(nobody).and_then(|lane| lane.card.name()).map_err(failed)
    }

    /// The sum of what users count of a model.
    fn measure(&mut self, task: &Task<'_>, plan: EvaluationPlan, users: &Users<'_>) -> Result<Summed, EngineError> {
        let mut measurer = match self.measurer.take() {
            Some(measurer) => measurer,
            None => CardMeasurer::new(self.reading.learner)?,
        };
        let summed = evaluation::sum(&mut measurer, self.reading.learner, task, plan, users, self.pool.threads());
        self.measurer = Some(measurer);
        summed
    }

    /// Whether nothing of any user is left on the card: for tests.
    ///
    /// # Errors
    /// When the card does not say.
    pub fn has_forgotten(&mut self) -> Result<bool, EngineError> {
        let forgotten = |all: bool, lane: &mut Lane| Ok(all && lane.is_forgotten()?);
        let measurer = self.measurer.as_mut().map_or(Ok(true), CardMeasurer::has_forgotten);
        Ok(self.lanes.iter_mut().try_fold(true, forgotten).map_err(failed)? && measurer.map_err(failed)?)
    }

    /// A round begins: everybody's text is read, and the card has the model. With them the schedules of the first chunk, where they were
    /// made before.
    fn begin(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<(Vec<User>, Vec<Schedule>), EngineError> {
        check_learning_rate(task.learning_rate).map_err(LocalError::from)?;
        self.read_times(task.epochs)?;
        let (rule, key) = (task.clipping.rule(), users.key.secret_bytes());
        let (expected, got) = (task.encoding.clip().get(), rule.bound().get());
        if got > expected {
            return Err(EncodingError::Clip { expected, got }.into());
        }
        // A round that failed may have left something on its way.
        self.lanes.iter().try_for_each(|lane| lane.card.wait()).map_err(failed)?;
        self.model.fill(task.model, &self.pool).map_err(failed)?;
        self.lanes.iter_mut().try_for_each(|lane| lane.begin(&self.model, rule, &key)).map_err(failed)?;
        let local = self.reading.local.algorithm;
        match self.ahead.take().filter(|ahead| ahead.is_of(users)) {
            Some(Ahead { users, schedules, algorithm, .. })
                if self.reading.rehearsal.is_none() && algorithm == local =>
            {
                let now = |schedule| Schedule { rate: task.learning_rate, ..schedule };
                Ok((users, schedules.into_iter().map(now).collect()))
            }
            Some(Ahead { users: mut read, schedules, .. }) => {
                self.spare.extend(schedules);
                self.reading.settle(&mut read, users.key, &self.pool)?;
                Ok((read, Vec::new()))
            }
            None => {
                let Self { reading, texts, pool, .. } = self;
                Ok((reading.read(users.population, users.numbers, Some(users.key), texts, pool)?, Vec::new()))
            }
        }
    }

    /// Text is read so often from now on, where users take a step for every batch.
    fn read_times(&mut self, times: Option<u32>) -> Result<(), EngineError> {
        if let (Algorithm::FedAvg { epochs }, Some(times)) = (&mut self.reading.local.algorithm, times) {
            *epochs = times;
        }
        Ok(self.reading.local.check().map_err(LocalError::from)?)
    }

    /// The schedule of a lane.
    fn schedule(&mut self, rate: f32, users: &[User], key: Option<&StreamKey>) -> Result<Schedule, EngineError> {
        let local = &self.reading.local;
        let readers: Vec<Reader<'_>> = users.iter().map(|user| user.reader(local, key)).collect();
        let old = self.spare.pop().unwrap_or_default();
        let network = self.lanes.first().map(Lane::network).ok_or_else(|| failed(nobody()))?;
        Ok(old.instead(network.shape(), local, rate, &readers, network.lists(), &self.pool)?)
    }

    /// The schedules of a chunk.
    fn schedules(&mut self, rate: f32, chunk: &[User], key: Option<&StreamKey>) -> Result<Vec<Schedule>, EngineError> {
        parts(chunk).map(|part| self.schedule(rate, part, key)).collect()
    }

    /// Reads those who will be asked for next, while the card is at work. This is a hint: a user who cannot be read, or at whose
    /// reading the program panics, fails the round that they come to, and not this one.
    fn read_ahead(&mut self, population: &dyn Population, rate: f32) {
        let Some(numbers) = self.next.take() else {
            self.ahead = None;
            return;
        };
        let read = catch_unwind(AssertUnwindSafe(|| self.ahead_of(population, numbers, rate)));
        self.ahead = read.ok().and_then(Result::ok);
    }

    fn ahead_of(&mut self, population: &dyn Population, numbers: Vec<u64>, rate: f32) -> Result<Ahead, EngineError> {
        let users = self.reading.read(population, &numbers, None, &mut self.texts, &self.pool)?;
        let first = &users[..users.len().min(CardEngine::chunk(self))];
        let schedules = if self.reading.is_known_early() { self.schedules(rate, first, None)? } else { Vec::new() };
        Ok(Ahead::new(population, numbers, self.reading.local.algorithm, users, schedules))
    }

    /// Sets the card to work on a chunk; it continues by itself. Schedules that are not ready are made, each while the lanes before it
    /// are at work.
    fn launch(
        &mut self,
        task: &Task<'_>,
        chunk: &[User],
        ready: Vec<Schedule>,
        key: &StreamKey,
        rule: &GridRule,
    ) -> Result<Vec<Schedule>, EngineError> {
        let drawing = |user: &User| Drawing {
            user: user.number,
            scale: task.encoding.grid_scale(weight(task, &user.examples)),
            present: !user.examples.is_empty(),
        };
        let (mut ready, mut schedules) = (ready.into_iter(), Vec::with_capacity(LANES));
        for (number, part) in parts(chunk).enumerate() {
            let schedule = match ready.next() {
                Some(schedule) => schedule,
                None => self.schedule(task.learning_rate, part, Some(key))?,
            };
            let drawings: Vec<Drawing> = part.iter().map(drawing).collect();
            self.lanes[number].launch(&schedule, &drawings, rule).map_err(failed)?;
            schedules.push(schedule);
        }
        Ok(schedules)
    }

    /// What a chunk came to; waits for the card. Whom it leaves to the host all threads encode, a few at a time: their differences are in
    /// memory together.
    fn collect(
        &mut self,
        task: &Task<'_>,
        chunk: &[User],
        key: &StreamKey,
        into: &mut Collected,
    ) -> Result<(), EngineError> {
        let mut left = Vec::new();
        for (lane, part) in parts(chunk).enumerate() {
            let Came { found, losses } = self.lanes[lane].came(part.len()).map_err(failed)?;
            for (place, ((user, found), loss)) in part.iter().zip(found).zip(losses).enumerate() {
                let norm = if user.examples.is_empty() { 0.0 } else { found.norm_squared.sqrt() };
                let norm = if norm.is_finite() { norm } else { f64::NAN };
                let loss = loss * user.own_share();
                into.exact.push((user.number, Exact { tokens: user.examples.len(), loss, norm }));
                left.extend(self.take(task, Place { lane, place }, user, found, into)?);
                if left.len() >= self.pool.threads() {
                    self.encode_here(task, std::mem::take(&mut left), key, into)?;
                }
            }
        }
        self.encode_here(task, left, key, into)
    }

    /// One user's part joins the rest, or is left to the host.
    fn take<'u>(
        &self,
        task: &Task<'_>,
        at: Place,
        user: &'u User,
        found: Found,
        into: &mut Collected,
    ) -> Result<Option<Left<'u>>, EngineError> {
        // A user without text, or whose training ran away, is zero in every coordinate.
        let nothing = user.examples.is_empty() || !found.norm_squared.is_finite();
        let Some(norm_squared) = found.accepted else {
            if nothing && !self.check_encodings {
                into.by_card += 1;
                return Ok(None);
            }
            into.left += u64::from(!nothing);
            let learned = (!nothing).then(|| self.lanes[at.lane].difference(at.place)).transpose();
            return Ok(Some(Left { user, found, difference: learned.map_err(failed)? }));
        };
        let side = task.clipping.side(found.norm_squared, found.projected);
        let weight = weight(task, &user.examples);
        let beside = task.encoding.beside(side, weight, &[], u128::from(norm_squared));
        if self.check_encodings {
            let mut integers = self.lanes[at.lane].integers(at.place, beside.len()).map_err(failed)?;
            integers.extend(&beside);
            into.by_host(task).add(&checked(&Encoded::of(integers, task.encoding)?, task)?)?;
        } else {
            into.beside.iter_mut().zip(&beside).for_each(|(sum, v)| *sum += i64::from(*v));
            into.by_card += 1;
        }
        Ok(None)
    }

    /// What the code of devices makes of users' differences, each on a thread of its own; their integers join the sum of the host.
    fn encode_here(
        &self,
        task: &Task<'_>,
        left: Vec<Left<'_>>,
        key: &StreamKey,
        into: &mut Collected,
    ) -> Result<(), EngineError> {
        let mut encoded: Vec<Option<Encoded>> = left.iter().map(|_| None).collect();
        let checks = self.check_encodings;
        workers::each(&self.pool, left.into_iter().zip(&mut encoded), |_, (left, encoded)| {
            let own = left.encode(task, key)?;
            *encoded = Some(if checks { checked(&own, task)? } else { own });
            Ok::<(), EngineError>(())
        })?;
        encoded.iter().flatten().try_for_each(|own| Ok(into.by_host(task).add(own)?))
    }

    /// The sum of the card joined with that of the host.
    fn finish(&mut self, task: &Task<'_>, collected: Collected, busy_s: f64) -> Result<Summed, EngineError> {
        let Collected { by_host, beside, by_card, left, mut exact } = collected;
        self.left = left;
        let sum = match (by_host, self.check_encodings) {
            (by_host, true) => by_host.unwrap_or_else(|| Sum::zero(task.encoding)),
            (by_host, false) => {
                let mut values = self.download(beside.len()).map_err(failed)?;
                let update = values.len() - beside.len();
                values[update..].copy_from_slice(&beside);
                let mut sum = Sum::assertion_by(values, by_card, task.encoding, &self.pool)?;
                by_host.map_or(Ok(()), |by_host| sum.merge(by_host))?;
                sum
            }
        };
        exact.sort_unstable_by_key(|(user, _)| *user);
        Ok(Summed { sum, exact, rests: Rests::new(), busy_s })
    }

    /// The sum of all lanes, which are done, with room for `rest` numbers behind it.
    fn download(&mut self, rest: usize) -> Result<Vec<i64>, CudaError> {
        let (first, others) = self.lanes.split_first().ok_or_else(nobody)?;
        for other in others {
            other.card.wait()?;
            first.join(other)?;
        }
        first.sum(&mut self.sum, rest, &self.pool)
    }
}

impl CardEngine<'_> {
    /// The sum over users, chunk by chunk.
    fn train(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        let began = Instant::now();
        let rule = grid_rule(task.encoding).map_err(failed)?;
        let (everybody, mut ready) = self.begin(task, users)?;
        let tail = task.encoding.layout().len() - task.encoding.dimension();
        let mut collected = Collected { by_host: None, beside: vec![0; tail], by_card: 0, left: 0, exact: Vec::new() };
        let mut chunks = everybody.chunks(CardEngine::chunk(self)).peekable();
        self.card_s = 0.0;
        while let Some(chunk) = chunks.next() {
            let launched = Instant::now();
            let these = self.launch(task, chunk, std::mem::take(&mut ready), users.key, &rule)?;
            match chunks.peek() {
                Some(next) => ready = self.schedules(task.learning_rate, next, Some(users.key))?,
                None => self.read_ahead(users.population, task.learning_rate),
            }
            self.lanes.iter().try_for_each(|lane| lane.card.wait()).map_err(failed)?;
            self.card_s += launched.elapsed().as_secs_f64();
            self.collect(task, chunk, users.key, &mut collected)?;
            self.spare.extend(these);
        }
        self.texts.extend(everybody.into_iter().map(|user| user.examples));
        self.finish(task, collected, began.elapsed().as_secs_f64())
    }
}

impl Engine for CardEngine<'_> {
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        if let Some(plan) = task.evaluation {
            return self.measure(task, plan, users);
        }
        self.then_forget(|engine| engine.train(task, users))
    }

    fn foresees(&self) -> bool {
        true
    }

    fn foresee(&mut self, numbers: &[u64]) {
        self.next = Some(numbers.to_vec());
    }

    fn works_elsewhere(&self) -> bool {
        true
    }

    fn chunk(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(CardEngine::chunk(self))
    }

    fn hardware(&self) -> Option<Hardware> {
        Some(self.hardware)
    }
}

impl Left<'_> {
    /// The vector that a device would send.
    fn encode(self, task: &Task<'_>, key: &StreamKey) -> Result<Encoded, EngineError> {
        let number = self.user.number;
        let part = |problem: PartError| EngineError::Part { user: number, problem };
        let clipped = match self.difference {
            None => Clipped::nothing(task.clipping, task.model.len()),
            Some(difference) => {
                let weight = weight(task, &self.user.examples);
                let said = Contribution { weight, projected: self.found.projected, counts: Vec::new() };
                Update::new(difference).clip(task.clipping, said).map_err(|e| part(e.into()))?
            }
        };
        clipped.encode(task.encoding, &mut drawn(key, number).rounding).map_err(|e| part(e.into()))
    }
}

/// A user's vector, taken as a server takes one that a device sends: as bytes, every bound checked.
fn checked(own: &Encoded, task: &Task<'_>) -> Result<Encoded, EngineError> {
    Ok(Encoded::check(&Zeroizing::new(own.to_bytes()), task.encoding)?)
}

/// w_k: the share of full weight that a user has.
fn weight(task: &Task<'_>, examples: &Examples) -> f64 {
    task.full_weight_tokens.map_or(1.0, |full| (examples.len() as f64 / full).min(1.0))
}

/// The users of each lane of a chunk: as many in one as in the other, or one more.
fn parts(chunk: &[User]) -> std::slice::Chunks<'_, User> {
    chunk.chunks(chunk.len().div_ceil(LANES).max(1))
}

/// There is no lane: an engine always has some.
fn nobody() -> CudaError {
    CudaError::Refused("no users would be trained at a time".to_owned())
}

/// How many users a lane has, where so many are wanted at a time and the card has room for `room`, at least one for each lane: as few chunks
/// as fit, of one size.
fn users_of_a_lane(wanted: usize, room: usize) -> usize {
    let most = room.min(MOST_USERS) / LANES * LANES;
    wanted.div_ceil(wanted.div_ceil(most)).div_ceil(LANES)
}

/// The chunk that fits, in lanes of one size: as many users as were foreseen, in chunks of one size, as many of them as the card has
/// room for.
fn lanes(
    config: &ModelConfig,
    layout: &ParameterLayout,
    local: &LocalPlan,
    means: Means,
) -> Result<Vec<Lane>, CudaError> {
    let one = Shape::new(config, local, 1)?;
    let precision = means.options.precision;
    let each = Network::bytes(&one, &Placement::new(config, layout, &one), local, precision);
    let card = Card::of_this_process()?;
    // What an earlier engine gave back is free when the card has done that.
    card.wait()?;
    let free = card.free()?;
    let room = (SHARE * free as f64 / each as f64) as usize;
    if room < LANES {
        let needed = (LANES * each) as u64;
        let usable = (SHARE * free as f64) as u64;
        return Err(CudaError::Memory { usable_mib: usable >> 20, needed_mib: needed >> 20 });
    }
    let wanted = means.options.chunk.map_or(USUAL_USERS, NonZeroUsize::get);
    let users = users_of_a_lane(wanted, room);
    let architecture = card.architecture()?;
    let lane = |card: Card| {
        let shape = Shape { users, ..one };
        let placement = Placement::new(config, layout, &shape);
        let network = Network::new(&card, shape, placement, local, precision, &architecture)?;
        Lane::new(card, network, local)
    };
    let others = (1..LANES).map(|_| Card::of_this_process());
    std::iter::once(Ok(card)).chain(others).map(|card| lane(card?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{LANES, MOST_USERS, users_of_a_lane};

    /// Users at a time, in all lanes.
    fn chunk(wanted: usize, room: usize) -> usize {
        LANES * users_of_a_lane(wanted, room)
    }

    #[test]
    fn a_cohort_that_fits_is_one_chunk_and_a_larger_one_few_of_one_size() {
        assert_eq!((chunk(100, 1000), chunk(101, 1000), chunk(1, 1000)), (100, 102, 2));
        // 5,000 users are 13 chunks of 386, and not 12 of 400 and one of 200.
        assert_eq!(chunk(5000, 1000), 386);
        assert_eq!((chunk(100, 60), chunk(100, 61), chunk(100, LANES)), (50, 50, LANES));
    }

    #[test]
    fn a_chunk_is_never_more_than_there_is_room_for_and_never_more_chunks_than_needed() {
        for wanted in (1..60).chain([399, 400, 401, 799, 5000]) {
            for room in (LANES..60).chain([399, 400, 401, 1000]) {
                let (chunk, most) = (chunk(wanted, room), room.min(MOST_USERS) / LANES * LANES);
                assert!((LANES..=most).contains(&chunk), "{wanted} users, room for {room}: {chunk}");
                assert_eq!(wanted.div_ceil(chunk), wanted.div_ceil(most), "{wanted} users, room for {room}: {chunk}");
            }
        }
    }
}
