//! What real devices keep between rounds (Deep Gradient Compression, masks that keep the rest): over the network, whole runs come to what the
//! simulation comes to, bit for bit.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{collections::BTreeMap, path::Path};

use device::{
    learner::{Post, examples::Examples},
    protocol::task::fresh,
    round::Worker,
    upload::{Rests, Upload},
};
use keyhush_federated::{
    engine::Means,
    fleet::{Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    home::{MODEL_FOLDER, RunFolder},
    model_folder,
    plan::{Plan, UploadPlan},
    run::{Opened, Run},
};
use lm::{folder::Weights, kernels::KernelPath, tokenizer::Tokenizer};
use privacy::stages::Sum;

use crate::real_devices::{self, Gave, Given};

const SPARSE: [&str; 4] = ["upload.kind=sparse", "upload.share=0.05", "upload.local_clip=0.8", "upload.warm_up=2"];
const MASK: [&str; 3] = ["upload.kind=mask", "upload.share=0.2", "upload.keep_rest=true"];
const USUAL: [&str; 4] = ["rounds=9", "evaluation.every=9", "server.optimizer=sgd", "server.momentum="];

/// The model that a fleet comes to.
fn model(plan: &Plan, opened: &Opened, fleet: &mut dyn Fleet) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let means = Means::threads(KernelPath::Scalar, 1);
    let mut run = Run::begin(RunFolder::at(folder.path()), plan, opened, means).unwrap();
    while run.step(fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap();
    trained(folder.path())
}

fn trained(folder: &Path) -> Vec<f32> {
    let read = model_folder::read(&folder.join(MODEL_FOLDER)).unwrap();
    let Weights::Recurrent { values, .. } = read.weights else { panic!("another model") };
    values
}

/// The same users, as a simulation has them: what each keeps is in one map, by user.
struct Simulated<'a> {
    upload: UploadPlan,
    opened: &'a Opened,
    worker: Worker,
    given: Vec<Gave>,
    rests: Rests,
    /// In how many inputs something was sent that was kept before.
    kept_before: usize,
}

impl Fleet for Simulated<'_> {
    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let mask = self.upload.mask(task.at.round);
        let mut sum = Sum::zero(task.task.encoding);
        for gave in self.given.iter().filter(|gave| gave.step == task.at.step) {
            let user = gave.device as u64;
            let upload = self.upload.task(task.at.round, mask.as_deref(), &self.rests);
            let before = upload.kept_by(user);
            self.kept_before += usize::from(before.is_some());
            let drawn = fresh(&mut gave.chance.clone()).unwrap();
            let examples = examples(self.opened, gave);
            let task = device::round::Task { upload, ..task.task };
            let part = self.worker.part_after(task, &examples, drawn, before).unwrap();
            assert_eq!(part.encoded.values(), gave.values, "device {} in step {}", gave.device, gave.step);
            assert_eq!(part.rest, gave.rest, "device {} in step {}", gave.device, gave.step);
            if gave.counts {
                sum.add(&part.encoded)?;
            }
            self.rests.extend(part.rest.map(|rest| (user, rest)));
        }
        Ok(Attempted { outcome: Outcome::Sum(sum), observed: Observed::default() })
    }
}

fn examples(opened: &Opened, gave: &Gave) -> Examples {
    let (learner, tokenizer) = (opened.learner(), Tokenizer::new(opened.rules()));
    let mut examples = Examples::new(learner.schema());
    for post in &gave.text.posts {
        let mut ids = Vec::new();
        opened.vocabulary().encode(tokenizer, &post.text, &mut ids);
        learner.read(Post { ids: &ids, labels: &[] }, &mut examples);
    }
    examples
}

#[test]
fn whole_runs_of_real_devices_come_to_what_the_simulation_comes_to() {
    let mut models = BTreeMap::new();
    for set in [&SPARSE[..], &MASK] {
        let (plan, opened) = real_devices::plan(&[&USUAL, set].concat());
        let given = Given::default();
        let mut lives = real_devices::lives_that_give(&plan, &opened, &given);
        let over_the_network = model(&plan, &opened, &mut *lives());
        let given = given.take();
        assert_eq!(given.iter().filter(|gave| gave.counts).count(), 9 * 20, "the goal of each round");
        let upload = plan.upload.of_simulated_users();
        if let Some(most) = upload.largest(8) {
            let late = given.iter().filter(|gave| gave.step == 8);
            assert!(late.map(|gave| gave.values.iter().filter(|v| **v != 0).count()).all(|sent| sent <= most));
        }
        let worker = Worker::new(opened.learner(), plan.local.clone(), KernelPath::Scalar).unwrap();
        let mut fleet = Simulated { upload, opened: &opened, worker, given, rests: Rests::new(), kept_before: 0 };
        assert_eq!(model(&plan, &opened, &mut fleet), over_the_network, "{set:?}");
        assert!(fleet.kept_before > 40, "{} inputs of those who kept something", fleet.kept_before);
        models.insert(set.len(), over_the_network);
    }
    let whole = real_devices::plan(&USUAL);
    let mut lives = real_devices::lives(&whole.0, &whole.1);
    models.insert(0, model(&whole.0, &whole.1, &mut *lives()));
    let different: Vec<_> = models.values().collect();
    assert!(different[0] != different[1] && different[1] != different[2], "the settings do something");
}

/// A mask that forgets is sent by real devices in secure sums too.
#[test]
fn p19_a_mask_of_real_devices_is_summed_securely() {
    let mask = ["rounds=2", "evaluation.every=2", "upload.kind=mask", "upload.share=0.2", "aggregation=secagg"];
    let (plan, opened) = real_devices::plan(&mask);
    assert!(!plan.upload.told().unwrap().keeps_rest());
    let given = Given::default();
    let mut lives = real_devices::lives_that_give(&plan, &opened, &given);
    let after = model(&plan, &opened, &mut *lives());
    let masks: Vec<u32> = (0..2).flat_map(|round| plan.upload.mask(round).unwrap()).collect();
    let moved = (0..).zip(opened.first_parameters().iter().zip(&after)).filter(|(_, (before, after))| before != after);
    let moved: Vec<u32> = moved.map(|(at, _)| at).collect();
    assert!(moved.len() > masks.len() / 4 && moved.iter().all(|at| masks.contains(at)), "{} moved", moved.len());
    assert!(given.borrow().iter().all(|gave| gave.rest.is_none() && gave.values.len() == plan.upload.coordinates()));
}

/// Nothing is kept in the run of a server: devices have it.
#[test]
fn a_run_with_devices_keeps_nothing_of_them() {
    let (plan, _) = real_devices::plan(&[&USUAL[..], &SPARSE].concat());
    assert!(!plan.upload.keeps_rest() && plan.upload.told().unwrap().keeps_rest());
    let rests = Rests::new();
    let Upload::Part(partial) = plan.upload.task(0, None, &rests) else { panic!("all of it is sent") };
    assert!(partial.keeps.is_none());
}
