//! The fast path against the slow, obvious model: losses and parameters after several steps, on every path.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use keyhush_lm::{
    kernels::KernelPath,
    language_model::LanguageModel,
    model::{
        batch::Batch,
        config::{Cell, Dropout, DropoutKind, ModelConfig, Token},
        dropout::{MaskDrawer, Masks},
        fast::{Network, Trainer},
        parameters::{ParameterLayout, Role},
        reference::{Reference, Soft, State},
    },
};

fn config(cell: Cell) -> ModelConfig {
    ModelConfig {
        token: Token::Word,
        vocabulary: 211,
        embedding: 20,
        cell,
        layers: 1,
        hidden: 37,
        recurrent_projection: None,
        dense: None,
        tied: false,
        output_bias: false,
        unit_norm: false,
        dropout: None,
        user_context: None,
    }
}

fn dropout(kind: DropoutKind) -> Option<Dropout> {
    Some(Dropout { rate: 0.4, kind })
}

fn configs() -> Vec<ModelConfig> {
    [Cell::Lstm, Cell::Cifg, Cell::Gru]
        .into_iter()
        .flat_map(|cell| {
            [
                config(cell),
                ModelConfig { layers: 2, output_bias: true, ..config(cell) },
                ModelConfig { dense: Some(20), tied: true, ..config(cell) },
                ModelConfig { recurrent_projection: Some(20), tied: true, output_bias: true, ..config(cell) },
                ModelConfig { recurrent_projection: Some(18), layers: 2, ..config(cell) },
                ModelConfig { dense: Some(20), tied: true, unit_norm: true, output_bias: true, ..config(cell) },
                ModelConfig { unit_norm: true, ..config(cell) },
                ModelConfig { user_context: Some(5), dense: Some(16), output_bias: true, ..config(cell) },
                ModelConfig { layers: 2, dropout: dropout(DropoutKind::PerStep), output_bias: true, ..config(cell) },
                ModelConfig { dense: Some(20), tied: true, dropout: dropout(DropoutKind::Variational), ..config(cell) },
            ]
        })
        .filter(|config| config.check().is_ok())
        .collect()
}

/// Values that look random, in [-scale, scale].
fn values(len: usize, scale: f32, seed: u64) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((x >> 33) as f64 / (1u64 << 31) as f64 * 2.0 - 1.0) as f32 * scale
    };
    (0..len).map(|_| next()).collect()
}

/// Ragged batches: the last has fewer rows of targets that count, and fewer steps.
fn batches(rows: usize, vocabulary: u32) -> Vec<(Vec<u32>, Vec<u32>)> {
    [6usize, 6, 3]
        .into_iter()
        .enumerate()
        .map(|(n, steps)| {
            let id = |i: usize, salt: usize| ((i * 7919 + n * 104_729 + salt) % vocabulary as usize) as u32;
            let inputs = (0..rows * steps).map(|i| id(i, 1)).collect();
            let targets = (0..rows * steps).map(|i| if (i + n) % 5 == 4 { Batch::NONE } else { id(i, 2) }).collect();
            (inputs, targets)
        })
        .collect()
}

/// Embeddings have norm 1 after every step, where the model says so.
fn normalise(config: &ModelConfig, layout: &ParameterLayout, values: &mut [f64]) {
    let tables = [(Role::Embedding, config.embedding), (Role::OutputEmbedding, config.output())];
    for (role, columns) in tables.into_iter().filter(|_| config.unit_norm) {
        for row in values[layout.range(role)].chunks_exact_mut(columns) {
            let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            row.iter_mut().for_each(|v| *v /= norm);
        }
    }
}

/// Trains both and compares.
fn compare(config: &ModelConfig, path: KernelPath) {
    let layout = ParameterLayout::new(config).unwrap();
    let start = values(layout.len(), 0.3, 3);
    let (rows, rate) = (5, 0.5);
    let mut trainer = Trainer::new(config, rows, 6, path).unwrap();
    trainer.load(&start);
    let mut reference = Reference::new(config.clone(), layout.clone(), start.iter().map(|v| f64::from(*v)).collect());
    let mut state = State::zero(config, rows);
    let context = values(config.user_context.unwrap_or(0), 1.0, 5);
    let (mut drawer, mut masks) = (MaskDrawer::new(config, 9), Masks::new());
    for (inputs, targets) in batches(rows, config.vocabulary as u32) {
        let batch = Batch { rows, inputs: &inputs, targets: &targets, context: &context };
        if let Some(drawer) = &mut drawer {
            drawer.draw(rows, inputs.len() / rows, &mut masks);
        }
        let masks = drawer.is_some().then_some(&masks);
        let loss = f64::from(trainer.step_without(&batch, rate, masks));
        let mut gradient = vec![0.0; layout.len()];
        let want = reference.loss_and_gradient(&batch, &mut state, masks, &mut gradient);
        reference.values.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= f64::from(rate) * g);
        normalise(config, &layout, &mut reference.values);
        assert!((loss / want - 1.0).abs() < 2e-5, "{path:?} {config:?}: loss {loss}, expected {want}");
    }
    let mut end = vec![0.0; layout.len()];
    trainer.store(&mut end);
    let (mut off, mut moved) = (0.0, 0.0);
    for ((got, want), start) in end.iter().zip(&reference.values).zip(&start) {
        off += (f64::from(*got) - want).powi(2);
        moved += (want - f64::from(*start)).powi(2);
    }
    assert!(moved > 0.0 && (off / moved).sqrt() < 3e-4, "{path:?} {config:?}: {}", (off / moved).sqrt());
}

#[test]
fn fast_training_is_the_references_on_every_path() {
    for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
        for config in configs() {
            compare(&config, path);
        }
    }
}

/// Trains towards soft labels of another model, which reads the same batches, in both, and compares.
fn compare_towards(config: &ModelConfig, path: KernelPath, truth: f32, scale: f32) {
    let layout = ParameterLayout::new(config).unwrap();
    let (start, other) = (values(layout.len(), scale, 3), values(layout.len(), scale, 8));
    let (rows, rate) = (5, 0.5);
    let exactly =
        |values: &[f32]| Reference::new(config.clone(), layout.clone(), values.iter().map(|v| f64::from(*v)).collect());
    let (mut trainer, mut teacher) =
        (Trainer::new(config, rows, 6, path).unwrap(), Trainer::new(config, rows, 6, path).unwrap());
    trainer.load(&start);
    teacher.load(&other);
    let (mut reference, other) = (exactly(&start), exactly(&other));
    let (mut state, mut state_of_other) = (State::zero(config, rows), State::zero(config, rows));
    let context = values(config.user_context.unwrap_or(0), 1.0, 5);
    let mut labels = trainer.soft_labels();
    for (inputs, targets) in batches(rows, config.vocabulary as u32) {
        let batch = Batch { rows, inputs: &inputs, targets: &targets, context: &context };
        labels.clear();
        teacher.add_probabilities(&batch, 1.0 - truth, &mut labels);
        let loss = f64::from(trainer.step_towards(&batch, rate, truth, &labels));
        let said: Vec<f64> = other.probabilities(&batch, &mut state_of_other);
        let said: Vec<f64> = said.into_iter().map(|p| p * f64::from(1.0 - truth)).collect();
        let mut gradient = vec![0.0; layout.len()];
        let soft = Soft { truth: f64::from(truth), labels: &said };
        let want = reference.loss_and_gradient_towards(&batch, &mut state, soft, &mut gradient);
        reference.values.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= f64::from(rate) * g);
        normalise(config, &layout, &mut reference.values);
        assert!((loss / want - 1.0).abs() < 2e-5, "{path:?} {config:?}: loss {loss}, expected {want}");
    }
    let mut end = vec![0.0; layout.len()];
    trainer.store(&mut end);
    let (mut off, mut moved) = (0.0, 0.0);
    for ((got, want), start) in end.iter().zip(&reference.values).zip(&start) {
        off += (f64::from(*got) - want).powi(2);
        moved += (want - f64::from(*start)).powi(2);
    }
    assert!(moved > 0.0 && (off / moved).sqrt() < 3e-4, "{path:?} {config:?}: {}", (off / moved).sqrt());
}

#[test]
fn fast_training_towards_soft_labels_is_the_references_on_every_path() {
    for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
        for config in configs().into_iter().filter(|c| c.dropout.is_none()) {
            compare_towards(&config, path, 0.25, 0.3);
        }
        // Of an ensemble alone, and where the largest logit is taken off.
        compare_towards(&config(Cell::Lstm), path, 0.0, 0.3);
        compare_towards(&ModelConfig { output_bias: true, ..config(Cell::Lstm) }, path, 0.5, 3.0);
    }
}

/// Soft labels of which the target has all are none, to the last bit.
#[test]
fn soft_labels_of_the_target_alone_change_no_bit() {
    let config = ModelConfig { dense: Some(20), tied: true, output_bias: true, ..config(Cell::Cifg) };
    let layout = ParameterLayout::new(&config).unwrap();
    let train = |soft: bool| {
        let mut trainer = Trainer::new(&config, 5, 6, KernelPath::best()).unwrap();
        trainer.load(&values(layout.len(), 0.3, 3));
        let none = trainer.soft_labels();
        for (inputs, targets) in batches(5, 211) {
            let batch = Batch { rows: 5, inputs: &inputs, targets: &targets, context: &[] };
            if soft {
                trainer.step_towards(&batch, 0.5, 1.0, &none)
            } else {
                trainer.step(&batch, 0.5)
            };
        }
        let mut end = vec![0.0; layout.len()];
        trainer.store(&mut end);
        end
    };
    assert_eq!(train(true), train(false));
}

/// Logits of hundreds: the sums would overflow, and the largest is taken off.
#[test]
fn large_logits_do_not_overflow() {
    for config in configs() {
        let layout = ParameterLayout::new(&config).unwrap();
        let start = values(layout.len(), 30.0, 3);
        let mut trainer = Trainer::new(&config, 5, 6, KernelPath::best()).unwrap();
        trainer.load(&start);
        let reference = Reference::new(config.clone(), layout, start.iter().map(|v| f64::from(*v)).collect());
        let context = values(config.user_context.unwrap_or(0), 1.0, 5);
        let (inputs, targets) = batches(5, 211).remove(0);
        let batch = Batch { rows: 5, inputs: &inputs, targets: &targets, context: &context };
        let loss = f64::from(trainer.clone().step(&batch, 0.0));
        assert_eq!(loss, f64::from(trainer.loss(&batch)), "measuring is learning without learning");
        let want = reference.loss(&batch, &mut State::zero(&config, 5), None);
        assert!(want > 1_000.0 && (loss / want - 1.0).abs() < 1e-4, "{config:?}: loss {loss}, expected {want}");
    }
}

#[test]
fn the_same_path_gives_the_same_bits() {
    let config = ModelConfig { dense: Some(20), tied: true, unit_norm: true, ..config(Cell::Lstm) };
    let layout = ParameterLayout::new(&config).unwrap();
    let run = || {
        let mut trainer = Trainer::new(&config, 5, 6, KernelPath::best()).unwrap();
        trainer.load(&values(layout.len(), 0.3, 3));
        for (inputs, targets) in batches(5, 211) {
            trainer.step(&Batch { rows: 5, inputs: &inputs, targets: &targets, context: &[] }, 0.5);
        }
        let mut end = vec![0.0; layout.len()];
        trainer.store(&mut end);
        end
    };
    let end = run();
    assert_eq!(end, run());
    let norms = end[..211 * 20].chunks_exact(20).map(|row| row.iter().map(|v| v * v).sum::<f32>());
    assert!(norms.into_iter().all(|n| (n - 1.0).abs() < 1e-5), "unit norm after every step");
}

/// Part of a step waits for the next one. Whoever looks in between sees it done, and what follows has the same bits.
#[test]
fn looking_in_between_changes_nothing() {
    for config in configs().into_iter().filter(|c| c.dropout.is_none()) {
        let layout = ParameterLayout::new(&config).unwrap();
        let context = values(config.user_context.unwrap_or(0), 1.0, 5);
        let train = |look: bool| {
            let mut trainer = Trainer::new(&config, 5, 6, KernelPath::best()).unwrap();
            trainer.load(&values(layout.len(), 0.3, 3));
            let mut now = vec![0.0; layout.len()];
            for (inputs, targets) in batches(5, 211) {
                trainer.step(&Batch { rows: 5, inputs: &inputs, targets: &targets, context: &context }, 0.5);
                if look {
                    trainer.store(&mut now);
                }
            }
            trainer.store(&mut now);
            now
        };
        assert_eq!(train(false), train(true), "{config:?}");
    }
}

/// What the network predicts is what the reference predicts, for sequences of any length side by side.
#[test]
fn predictions_are_the_references() {
    let sequences: Vec<Vec<u32>> =
        (0..19u32).map(|n| (0..1 + (n * 7) % 23).map(|i| (i * 31 + n * 17) % 211).collect()).collect();
    let borrowed: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    for config in configs().into_iter().filter(|c| c.user_context.is_none()) {
        let layout = ParameterLayout::new(&config).unwrap();
        let parameters = values(layout.len(), 0.3, 3);
        let reference = Reference::new(config.clone(), layout, parameters.iter().map(|v| f64::from(*v)).collect());
        let want: Vec<Vec<f64>> = sequences
            .iter()
            .map(|s| {
                let batch = Batch { rows: 1, inputs: s, targets: &[], context: &[] };
                reference.probabilities(&batch, &mut State::zero(&config, 1))
            })
            .collect();
        let network = Network::new(&config, parameters, KernelPath::best()).unwrap();
        let mut visited = 0;
        network.read(&borrowed, &mut |sequence, position, line| {
            visited += 1;
            let want = &want[sequence][position * 211..(position + 1) * 211];
            for (got, want) in line.iter().zip(want) {
                assert!((f64::from(*got) - want.ln()).abs() < 1e-4, "{got} {}", want.ln());
            }
        });
        assert_eq!(visited, sequences.iter().map(Vec::len).sum::<usize>());
    }
}
