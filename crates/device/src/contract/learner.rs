//! The promises of every learner to the code that trains and evaluates with it: [`crate::local`], engines, servers and devices.

use lm::kernels::KernelPath;

use crate::learner::{Learner, Post, Trainer, examples::Examples};

/// The suite, for a learner and posts of one person, which must give it more than one batch.
pub fn learner(learner: &dyn Learner, posts: &[Post<'_>], kernels: KernelPath) {
    let model = learner.initial(7).expect("it can be built");
    assert_eq!(model.len(), learner.layout().len(), "the parameters are those of the layout");
    assert!(model == learner.initial(7).expect("it can be built"), "one seed, two models");
    let mut examples = Examples::new(learner.schema());
    posts.iter().for_each(|post| learner.read(*post, &mut examples));
    assert!(!examples.is_empty(), "the posts give examples");
    a_trainer_keeps_its_promises(learner, &model, &examples, kernels);
    a_predictor_keeps_its_promises(learner, &model, &examples, kernels);
    assert!(learner.memory().trainer >= 4 * model.len() as u64, "a trainer holds the model at least");
    assert!(learner.settings().is_object(), "files say by name what the model is");
}

fn a_trainer_keeps_its_promises(learner: &dyn Learner, model: &[f32], examples: &Examples, kernels: KernelPath) {
    let mut trainer = learner.trainer(kernels).expect("it can be trained");
    assert_eq!(trainer.cut(&Examples::new(learner.schema())), 0, "nothing is cut into no batches");
    let batches = trainer.cut(examples);
    assert!(batches > 1, "give the suite posts for two batches; they were cut into {batches}");
    let counted: usize = (0..batches).map(|batch| trainer.counted(batch)).sum();
    assert_eq!(counted, examples.len(), "every example is learned from once");

    let start = |trainer: &mut dyn Trainer| {
        trainer.load(model);
        trainer.cut(examples);
        trainer.begin();
    };
    let trainer = &mut *trainer;
    start(trainer);
    assert!(stored(trainer, model.len()) == model, "what is loaded is stored");
    trainer.step(0, 0.0);
    assert!(stored(trainer, model.len()) == model, "a step of rate 0 moves nothing");

    let steps = |trainer: &mut dyn Trainer, batches: &[usize]| {
        for batch in batches {
            trainer.step(*batch, 0.1);
        }
        stored(trainer, model.len())
    };
    start(trainer);
    let first = steps(trainer, &[0]);
    assert!(first != model, "a step moves the model");
    steps(trainer, &[1]);
    start(trainer);
    assert!(steps(trainer, &[0]) == first, "something of an earlier reading is left after a model is loaded");

    start(trainer);
    trainer.step(0, 0.0);
    let carried = steps(trainer, &[1]);
    start(trainer);
    trainer.step(0, 0.0);
    trainer.replace(model);
    assert!(steps(trainer, &[1]) == carried, "what is carried from batch to batch is lost when the model is replaced");

    start(trainer);
    trainer.step(1, 0.0);
    trainer.begin();
    assert!(steps(trainer, &[0]) == first, "something is carried into a reading that begins anew");

    start(trainer);
    let before = trainer.step(0, 0.01).loss;
    trainer.begin();
    let after = trainer.step(0, 0.0).loss;
    assert!(after < before, "a small step does not lower the loss: {before} to {after}");
}

fn stored(trainer: &mut dyn Trainer, length: usize) -> Vec<f32> {
    let mut model = vec![f32::NAN; length];
    trainer.store(&mut model);
    model
}

fn a_predictor_keeps_its_promises(learner: &dyn Learner, model: &[f32], examples: &Examples, kernels: KernelPath) {
    let held_out = [examples.clone()];
    let counts = || {
        let predictor = learner.predictor(model, &held_out, kernels).expect("it can be measured");
        let pieces = 0..predictor.pieces();
        pieces.map(|piece| predictor.count(piece).expect("its own examples")).collect::<Vec<_>>()
    };
    let first = counts();
    assert!(!first.is_empty(), "examples give something to count");
    assert!(format!("{first:?}") == format!("{:?}", counts()), "a second measurement counts something else");
    assert!(learner.predictor(&model[1..], &held_out, kernels).is_err(), "a vector that is too short is no model");
    let nobody = learner.predictor(model, &[], kernels).expect("nobody can be measured");
    assert_eq!(nobody.pieces(), 0, "where there is nobody there is nothing to count");
}
