//! The fleet of real devices: takes devices as they check in, within the limits on participation (Xu et al. 2023, Algorithm 1, section
//! 2.2).
//!
//! An attempt is opened at the coordinator ([`crate::protocol`]), and this fleet waits until it is closed. How a coordinator is reached,
//! and who serves devices meanwhile, is the [`Driver`]'s: on a server another thread, in tests a simulated network.
//!
//! After a restart the same attempt is asked for again. One that nobody was given begins, a plain one continues from the sum that was
//! kept. A secure one was interrupted, for the keys of its session are gone with the program; and so was a plain one whose sum
//! opens no more, because its key is lost. Their devices took part, and are not asked again (rule P24).

use std::{collections::BTreeSet, io::Write as _};

use device::{
    guard::{ModelDigest, TaskDigest},
    learner::Learner,
    local::LocalPlan,
    protocol::{
        message::{Blob, DeviceKey},
        terms::{PrivacyTerms, StepTerms, TaskTerms},
    },
    upload::{Partial, Sends, Upload},
};
use flate2::{Compression, write::GzEncoder};
use ledger::{FailureReason, ParticipationRecord, PseudonymKey, hex};
use lm::{tokenizer::Rules, vocabulary::Vocabulary};
use privacy::{
    encoding::{Encoding, EncodingError},
    rng::Randomness,
};
use secagg::entropy::Entropy;
use sha2::{Digest, Sha256};

use super::{At, Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop};
use crate::{
    config::ConfigError,
    engine::secure::Threads,
    plan::{Phase, Plan},
    protocol::{
        coordinator::{Asking, Coordinator, CoordinatorError},
        desk::{self, Aggregation, Closed, Opening},
        limits::ParticipationLimits,
        secure::{SecureDesk, Unmasking, failure_reason},
        store::{AttemptAt, OpenAttempt},
        windows::Windows,
    },
    secrets::Secrets,
};

/// Bytes of a piece that is packed to see whether all of them pack, and of how many pieces it is one.
const SAMPLED: usize = 1 << 12;
const SAMPLED_OF: usize = 16;

/// Connects a fleet with its coordinator.
pub trait Driver {
    /// Does something with the coordinator; what follows from it is durable when this returns.
    ///
    /// # Errors
    /// When the coordinator or its store fails: the server must begin again.
    fn with<R: Send>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, u64) -> Result<R, CoordinatorError> + Send,
    ) -> Result<R, FleetError>;

    /// Waits until something may have become of the attempt of a task, while devices are served.
    ///
    /// # Errors
    /// When somebody wants to stop, or devices cannot be served any more.
    fn wait(&mut self, task: &TaskDigest, stop: &Stop) -> Result<(), FleetError>;

    /// What the coins of secure aggregation are drawn from.
    fn coins(&mut self) -> Box<dyn Entropy + Send>;
}

/// A task as devices receive it, and its digest.
#[derive(Debug, Clone)]
pub struct NetworkTask {
    /// The digest of the terms.
    pub digest: TaskDigest,
    /// The blob of the terms.
    pub blob: Blob,
    /// The compressed bytes, as they are sent.
    pub packed: Vec<u8>,
    /// Whom it asks, and how many.
    pub asking: Asking,
    /// Whether sums are made securely: then somebody can spoil an attempt.
    pub secure: bool,
    /// Whether devices measure models instead of training them.
    pub evaluation: bool,
}

/// The learner, and how devices read their text for it.
#[derive(Clone, Copy)]
pub struct Reads<'a> {
    /// The learner.
    pub learner: &'a dyn Learner,
    /// The words.
    pub vocabulary: &'a Vocabulary,
    /// How text becomes words.
    pub rules: Rules,
}

impl NetworkTask {
    /// The task of a plan, on the server of a realm.
    ///
    /// # Errors
    /// When nobody can enforce the plan on devices, or it cannot be said what it is.
    pub fn new(name: &str, realm: &[u8; 32], plan: &Plan, reads: Reads<'_>) -> Result<Self, ConfigError> {
        let [phase] = plan.phases() else {
            return Err(ConfigError::new("schedule", "cohort and noise cannot change during a task with devices"));
        };
        let limits = ParticipationLimits::try_from(&phase.participation)
            .map_err(|e| ConfigError::new("participation.kind", e))?;
        if phase.secure.as_ref().is_some_and(|secure| secure.groups > 1) {
            return Err(ConfigError::new("secagg.groups", "devices are always summed in one group"));
        }
        if phase.secure.as_ref().is_some_and(|secure| secure.noise.is_some()) {
            return Err(ConfigError::new(
                "secagg.noise",
                "distributed noise is not supported with devices yet; use \"central\"",
            ));
        }
        let terms = terms(name, realm, plan, reads, phase)?;
        // Two of three that are asked may fail before the round lacks any.
        let begin_with = plan.begin_with.unwrap_or_else(|| limits.all_waiting(3 * phase.cohort));
        Self::of(&terms, plan, phase, limits, begin_with)
    }

    /// The task of a plan's evaluations by devices, if it has some. To devices it is a task of its own: with steps, limits and noise that
    /// are not those of training.
    ///
    /// # Errors
    /// When it cannot be said what it is.
    pub fn of_evaluations(
        name: &str,
        realm: &[u8; 32],
        plan: &Plan,
        reads: Reads<'_>,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(evaluations) = &plan.device_evaluations else { return Ok(None) };
        let phase = &evaluations.phase;
        let limits = ParticipationLimits::try_from(&phase.participation)
            .map_err(|e| ConfigError::new("evaluation.devices", e))?;
        let terms = terms(name, realm, plan, reads, phase)?;
        // What is measured is learned from by nobody, and has limits of its own: nobody rests after it.
        let evaluation = Some(evaluations.plan);
        let local = LocalPlan { finetune: None, ..terms.local };
        let terms = TaskTerms { evaluation, full_weight_tokens: None, timer_s: None, upload: None, local, ..terms };
        // The task has begun long before: all enrolled devices can be asked at once.
        let least = phase.secure.as_ref().map_or(0, |secure| secure.least_clients.into());
        Self::of(&terms, plan, phase, limits, phase.cohort.max(least)).map(Some)
    }

    fn of(
        terms: &TaskTerms,
        plan: &Plan,
        phase: &Phase,
        limits: ParticipationLimits,
        begin_with: u64,
    ) -> Result<Self, ConfigError> {
        let bytes = serde_json::to_vec(terms).map_err(|e| ConfigError::new("model", e))?;
        let digest = TaskDigest(Sha256::digest(&bytes).into());
        let (blob, packed) = packed(&bytes, &digest.0).map_err(|e| ConfigError::new("model", e))?;
        let population = plan.ledger.population;
        let asking = Asking { limits, goal: phase.cohort, begin_with: begin_with.min(population), population };
        let (secure, evaluation) = (phase.secure.is_some(), terms.evaluation.is_some());
        Ok(Self { digest, blob, packed, asking, secure, evaluation })
    }
}

/// What devices are told of a phase of a plan. What the plan costs is the cost of all of it: of rounds and evaluations together.
fn terms(name: &str, realm: &[u8; 32], plan: &Plan, reads: Reads<'_>, phase: &Phase) -> Result<TaskTerms, ConfigError> {
    let name_of = reads.learner.name();
    let untold =
        || ConfigError::new("model.learner", format!("{name_of:?} cannot be trained on devices, only simulated"));
    let learner = reads.learner.told().ok_or_else(untold)?;
    let epsilon = phase.noise.is_some().then(|| plan.epsilon(plan.rounds)).transpose()?;
    let of_ledger = plan.ledger.phase(&phase.stream);
    Ok(TaskTerms {
        name: name.to_owned(),
        realm: hex(realm),
        learner,
        vocabulary: reads.vocabulary.to_text(),
        rules: reads.rules,
        local: plan.local.clone(),
        full_weight_tokens: plan.full_weight_tokens,
        rounds: phase.rounds,
        goal: phase.cohort,
        participation: phase.participation,
        privacy: PrivacyTerms {
            mechanism: of_ledger.map(|phase| phase.mechanism.clone()).unwrap_or_default(),
            noise_multiplier: phase.noise.map(|z| z.get()),
            epsilon: epsilon.map(|epsilon| epsilon.get()).filter(|epsilon| epsilon.is_finite()),
            delta: phase.noise.is_some().then(|| plan.ledger.delta.get()),
            simulated: plan.randomness() != Randomness::Secret,
        },
        secure: phase.secure.is_some(),
        timer_s: plan.timer_s,
        evaluation: None,
        upload: plan.upload.told(),
    })
}

/// Bytes as devices ask for them: what they are known by, which is their SHA-256, and what is sent. Parameters of models hardly pack, and the quickest way of
/// packing makes them an eighth longer: they are sent as they are then. That shows in a part of them; to try all of them, each round,
/// was a sixth of all that a server did for a large model.
fn packed(bytes: &[u8], digest: &[u8; 32]) -> std::io::Result<(Blob, Vec<u8>)> {
    let blob = Blob { digest: digest.to_vec(), bytes: bytes.len() as u64 };
    let sample: Vec<u8> = bytes.chunks(SAMPLED).step_by(SAMPLED_OF).flatten().copied().collect();
    if gzip(&sample, Compression::fast())?.len() < sample.len() {
        let packed = gzip(bytes, Compression::fast())?;
        if packed.len() < bytes.len() {
            return Ok((blob, packed));
        }
    }
    Ok((blob, gzip(bytes, Compression::none())?))
}

/// The encoding of an attempt's reports: of few coordinates, where devices choose them.
fn in_report(task: &RoundTask<'_>) -> Result<Encoding, EncodingError> {
    let encoding = task.task.encoding.clone();
    match task.task.upload {
        Upload::Part(Partial { sends: Sends::Largest(count), .. }) => encoding.with_few(count),
        Upload::Whole | Upload::Part(_) => Ok(encoding),
    }
}

fn gzip(bytes: &[u8], level: Compression) -> std::io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), level);
    gzip.write_all(bytes)?;
    gzip.finish()
}

/// Destroys the key of an attempt that is settled, where a crash came in between. To be called when a run goes on, with all its tasks: while
/// none of them has an attempt that is open, there is no key.
///
/// # Errors
/// When the coordinator fails, or the key must be taken to be there still.
pub fn destroy_key_of_settled<D: Driver>(
    driver: &mut D,
    tasks: &[TaskDigest],
    secrets: &Secrets,
) -> Result<(), FleetError> {
    for &task in tasks {
        if driver.with(move |coordinator, _| coordinator.kept(&task))?.is_some() {
            return Ok(());
        }
    }
    Ok(secrets.destroy_round_key()?)
}

/// The fleet of real devices.
pub struct Network<D> {
    driver: D,
    task: NetworkTask,
    windows: Windows,
    secrets: Secrets,
    pseudonyms: PseudonymKey,
    threads: usize,
    /// The attempt that is open, and who is in its sum.
    last: Option<(AttemptAt, BTreeSet<DeviceKey>)>,
    /// Whether it was looked for what an earlier life of the server left open.
    has_looked: bool,
}

impl<D: Driver> Network<D> {
    /// The fleet of a task.
    pub fn new(
        driver: D,
        task: NetworkTask,
        windows: Windows,
        secrets: Secrets,
        pseudonyms: PseudonymKey,
        threads: usize,
    ) -> Self {
        Self { driver, task, windows, secrets, pseudonyms, threads, last: None, has_looked: false }
    }

    fn at(&self, at: At<'_>) -> AttemptAt {
        AttemptAt { task: self.task.digest, round: at.round, attempt: at.attempt }
    }

    /// An attempt whose end is in the ledger, and that was not settled when the program ended, is settled. One that somebody spoiled
    /// counts for everybody in it, as it would have.
    fn settle_what_was_left(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        if std::mem::replace(&mut self.has_looked, true) {
            return Ok(());
        }
        let (digest, at) = (self.task.digest, self.at(task.at));
        let kept = self.driver.with(move |coordinator, _| coordinator.kept(&digest))?;
        let Some(AttemptAt { round, attempt, .. }) = kept.map(|kept| kept.at).filter(|left| *left != at) else {
            return Ok(());
        };
        let failures = task.failures.get(&round).map_or(&[][..], Vec::as_slice);
        let failed = failures.iter().find(|failure| failure.attempt == attempt).map(|failure| failure.reason);
        self.settle(AttemptAt { task: digest, round, attempt }, BTreeSet::new(), failed)
    }

    /// What became of an attempt is durable.
    fn settle(
        &mut self,
        at: AttemptAt,
        took_part: BTreeSet<DeviceKey>,
        failed: Option<FailureReason>,
    ) -> Result<(), FleetError> {
        // Where sums are plain, devices that vanish are all that makes an attempt fail, and nobody can spoil one.
        let spoiled = self.task.secure && failed.is_some_and(|reason| !reason.is_of_the_server());
        self.driver.with(move |coordinator, now| {
            if spoiled {
                coordinator.spoiled(&at);
            }
            coordinator.settle(&at, &took_part, now)
        })
    }

    /// Opens the attempt, with the model that devices will ask for.
    fn open(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        let at = self.at(task.at);
        let digest = *ModelDigest::of(task.task.model).as_bytes();
        let mut bytes = Vec::with_capacity(size_of_val(task.task.model));
        task.task.model.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        let (model, packed) = packed(&bytes, &digest).map_err(FleetError::Packing)?;
        let encoding = in_report(task)?;
        let terms = StepTerms {
            clipping: task.task.clipping.clone(),
            encoding: encoding.clone(),
            learning_rate: task.task.learning_rate,
        };
        let opening = Opening {
            at,
            step: task.at.step,
            goal: self.task.asking.goal,
            limits: self.task.asking.limits,
            windows: self.windows,
            task: self.task.blob.clone(),
            model,
            terms: serde_json::to_vec(&terms).map_err(FleetError::Terms)?,
            key: self.secrets.round_key(task.at.stream, at.round, at.attempt)?,
            aggregation: self.aggregation(task, digest, encoding)?,
        };
        let (task_digest, task_packed) = (self.task.digest, self.task.packed.clone());
        self.driver.with(move |coordinator, now| {
            coordinator.keep_blob(task_digest.0, task_packed);
            coordinator.keep_model(task_digest, digest, packed);
            coordinator.open(opening, now)
        })
    }

    fn aggregation(
        &mut self,
        task: &RoundTask<'_>,
        model: [u8; 32],
        encoding: Encoding,
    ) -> Result<Aggregation, FleetError> {
        Ok(match (&task.phase.secure, &task.coding.residues) {
            (Some(secure), Some(residues)) => {
                let terms = secure.terms(residues, task.at.step, self.task.digest.0, model);
                let desk = SecureDesk::new(terms, secure.least_clients.into(), self.driver.coins());
                Aggregation::Secure(Box::new(desk))
            }
            _ => Aggregation::Plain(encoding),
        })
    }

    /// Who they are, for the ledger.
    fn participants(&self, at: At<'_>, devices: &[DeviceKey]) -> Result<ParticipationRecord, FleetError> {
        let keys = devices.iter().map(|device| &device.0[..]);
        Ok(self.pseudonyms.record(at.stream, at.step, at.attempt, keys)?)
    }

    /// A failed attempt.
    fn failed(&mut self, at: At<'_>, reason: FailureReason, devices: &[DeviceKey]) -> Result<Attempted, FleetError> {
        self.last = Some((self.at(at), BTreeSet::new()));
        let participants = Some(self.participants(at, devices)?);
        let observed = Observed { participants, ..Observed::default() };
        Ok(Attempted { outcome: Outcome::Failed(reason), observed })
    }

    /// A sum of these devices.
    fn summed(&mut self, at: At<'_>, outcome: Outcome, devices: &[DeviceKey]) -> Result<Attempted, FleetError> {
        self.last = Some((self.at(at), devices.iter().copied().collect()));
        let participants = Some(self.participants(at, devices)?);
        Ok(Attempted { outcome, observed: Observed { participants, ..Observed::default() } })
    }

    /// Takes the masks off.
    fn unmask(&mut self, task: &RoundTask<'_>, unmasking: Unmasking) -> Result<Attempted, FleetError> {
        let everybody = unmasking.devices().to_vec();
        let residues = task.coding.residues.as_ref().ok_or(FleetError::NotSecure)?;
        let unmasked = match unmasking.finish(&Threads(self.threads)) {
            Ok(unmasked) => unmasked,
            Err(failure) => match failure_reason(&failure) {
                Some(reason) => return self.failed(task.at, reason, &everybody),
                None => return Err(FleetError::Unmasking(failure)),
            },
        };
        let survivors = unmasked.survivors.len() as u64;
        let noised = task.phase.secure.as_ref().is_some_and(|secure| secure.noise.is_some());
        let outcome = if noised {
            residues.noised_sum(&unmasked.sum, survivors).map(Outcome::Noised)
        } else {
            residues.sum(&unmasked.sum, survivors).map(Outcome::Sum)
        };
        match outcome {
            Ok(outcome) => self.summed(task.at, outcome, &unmasked.survivors),
            // Honest devices cannot add up to this: somebody's masked vector was no encoding of anything.
            Err(EncodingError::Bound { .. }) => self.failed(task.at, FailureReason::NotWhole, &everybody),
            Err(other) => Err(other.into()),
        }
    }

    /// What is kept of an attempt during which the program ended.
    fn kept(&mut self, at: AttemptAt) -> Result<Option<OpenAttempt>, FleetError> {
        let kept = self.driver.with(move |coordinator, _| coordinator.kept(&at.task))?;
        Ok(kept.filter(|kept| kept.at == at))
    }

    /// Who was given an attempt during which the program ended, and that cannot continue: the keys of a secure session are gone with the
    /// program, and a sum whose key is gone, or that is of others than the list says, opens for nobody. None where nobody was given it, or it continues.
    fn lost(&mut self, task: &RoundTask<'_>) -> Result<Option<Vec<DeviceKey>>, FleetError> {
        let at = self.at(task.at);
        let Some(kept) = self.kept(at)?.filter(|kept| !kept.assigned.is_empty()) else { return Ok(None) };
        let has_sum = kept.sealed.is_some() || !kept.merged.is_empty();
        let lost = match task.phase.secure {
            Some(_) => true,
            None if !has_sum => false,
            None => {
                let key = self.secrets.kept_round_key(task.at.stream, at.round, at.attempt)?;
                !key.is_some_and(|key| desk::opens(&kept, &key, &task.coding.encoding))
            }
        };
        Ok(lost.then_some(kept.assigned))
    }
}

impl<D: Driver> Fleet for Network<D> {
    fn asks_devices(&self, _task: &RoundTask<'_>) -> bool {
        true
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        self.settle_what_was_left(task)?;
        if task.at.again
            && let Some(devices) = self.lost(task)?
        {
            return self.failed(task.at, FailureReason::Interrupted, &devices);
        }
        self.open(task)?;
        let digest = self.task.digest;
        let closed = loop {
            if let Some(closed) = self.driver.with(move |coordinator, _| Ok(coordinator.take_closed(&digest)))? {
                break closed;
            }
            if task.stop.is_asked() {
                return Err(FleetError::Stopped);
            }
            self.driver.wait(&digest, task.stop)?;
        };
        match closed {
            Closed::Sum(sum, devices) => self.summed(task.at, Outcome::Sum(sum), &devices),
            Closed::Masked(unmasking) => self.unmask(task, *unmasking),
            Closed::Failed(reason, devices) => self.failed(task.at, reason, &devices),
        }
    }

    fn settled(&mut self, _at: At<'_>, failed: Option<FailureReason>) -> Result<(), FleetError> {
        let Some((at, mut took_part)) = self.last.take() else { return Ok(()) };
        if failed.is_some() {
            took_part.clear();
        }
        self.settle(at, took_part, failed)?;
        Ok(self.secrets.destroy_round_key()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Document, run::Opened};

    const TASK: &str = r#"
rounds = 8
unit = "device"
data = { kind = "devices" }
model = { learner = "tags", vocabulary = 100 }
local = { batch = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
privacy = { mechanism = "tree", noise_multiplier = 2.0, delta = 1e-5 }
participation = { kind = "arrival", population = 400, cohort = 20, min_separation = 1, max_participations = 3 }
server = { optimizer = "sgd", learning_rate = 0.5 }
"#;

    /// What devices are told of a task, or why there is none; beside it what the whole plan costs.
    fn told(set: &[&str]) -> Result<(TaskTerms, f64), String> {
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        let config = Document::new(TASK, &set).and_then(|document| document.config()).map_err(|e| e.to_string())?;
        let opened = Opened::new(&config).map_err(|e| e.to_string())?;
        let plan = Plan::new(config, &opened.setting()).map_err(|e| e.to_string())?;
        let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
        NetworkTask::new("words", &[7; 32], &plan, reads).map_err(|e| e.to_string())?;
        let costs = plan.epsilon(plan.rounds).map_err(|e| e.to_string())?.get();
        Ok((terms("words", &[7; 32], &plan, reads, plan.phase(0)).map_err(|e| e.to_string())?, costs))
    }

    #[test]
    fn devices_are_told_what_the_whole_plan_costs_and_whether_its_noise_is_secret() {
        let (terms, costs) = told(&[]).unwrap();
        assert_eq!((terms.rounds, terms.goal, terms.secure), (8, 20, false));
        let PrivacyTerms { noise_multiplier, epsilon, delta, simulated, .. } = terms.privacy;
        assert_eq!((noise_multiplier, epsilon, delta, simulated), (Some(2.0), Some(costs), Some(1e-5), false));
        assert_eq!(terms.participation.most_participations(8), 3);
        assert!(told(&["noise_seed=1"]).unwrap().0.privacy.simulated, "whoever knows the seed can draw it again");
        assert!(told(&["aggregation=secagg"]).unwrap().0.secure);
    }

    #[test]
    fn p18_what_nobody_can_enforce_on_devices_is_refused_and_named() {
        let refused: [(&[&str], &str); 6] = [
            (
                &[
                    "participation.kind=poisson",
                    "participation.min_separation=",
                    "participation.max_participations=",
                    "privacy.mechanism=gaussian",
                ],
                "participation.kind",
            ),
            (
                &[
                    "participation.kind=fixed-size",
                    "participation.min_separation=",
                    "participation.max_participations=",
                    "privacy.mechanism=gaussian",
                ],
                "participation.kind",
            ),
            (&["schedule=[{ from = 4, noise_multiplier = 3.0 }]"], "schedule"),
            (&["aggregation=secagg", "secagg.groups=2"], "secagg.groups"),
            (&["aggregation=secagg", "secagg.noise=distributed"], "secagg.noise"),
            // They are told that a sum is of 20 reports.
            (&["aggregation=secagg", "secagg.least_survivors=19"], "secagg.least_survivors"),
        ];
        for (set, named) in refused {
            let why = told(set).err().unwrap_or_else(|| panic!("{set:?} is taken"));
            assert!(why.contains(named), "{set:?}: {why}");
        }
    }

    #[test]
    fn what_does_not_pack_is_not_made_longer() {
        let mut word = 1u64;
        let noise: Vec<u8> = (0..1 << 18)
            .flat_map(|_| {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                ((word >> 40) as f32 / (1 << 24) as f32).to_le_bytes()
            })
            .collect();
        let (blob, sent) = packed(&noise, &[1; 32]).unwrap();
        assert_eq!(blob.bytes, noise.len() as u64);
        assert!(sent.len() < noise.len() + noise.len() / 64, "{} bytes of {}", sent.len(), noise.len());
        assert!(packed(&vec![7; 1 << 20], &[1; 32]).unwrap().1.len() < 1 << 14, "what packs is packed");
    }
}
