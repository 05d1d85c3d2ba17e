//! Models that diverge or saturate make no subnormal numbers, which cost some cores a hundred times what others cost.

use super::Trainer;
use crate::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::{Cell, ModelConfig},
        initial::initial_parameters,
        parameters::ParameterLayout,
    },
};

const ROWS: usize = 4;
const STEPS: usize = 5;

/// What a model has come to: trained at a rate that no model bears, or with weights so large that every gate is shut or open.
#[derive(Debug, Clone, Copy)]
enum Ill {
    Diverging { rate: f32 },
    Saturated { scale: f32 },
}

fn models() -> Vec<ModelConfig> {
    let tiny = ModelConfig { vocabulary: 100, ..ModelConfig::preset("tiny").unwrap() };
    vec![
        tiny.clone(),
        ModelConfig { cell: Cell::Cifg, ..tiny.clone() },
        ModelConfig { cell: Cell::Gru, recurrent_projection: None, ..tiny.clone() },
        ModelConfig { output_bias: true, unit_norm: false, ..tiny },
    ]
}

/// Where subnormal numbers are after some steps, and how many.
fn subnormal_after(config: &ModelConfig, ill: Ill, path: KernelPath) -> Vec<(&'static str, usize)> {
    let mut start = initial_parameters(config, 5).unwrap();
    let (rate, scale) = match ill {
        Ill::Diverging { rate } => (rate, 1.0),
        Ill::Saturated { scale } => (0.5, scale),
    };
    start.iter_mut().for_each(|w| *w *= scale);
    let mut trainer = Trainer::new(config, ROWS, STEPS, path).unwrap();
    trainer.load(&start);
    let mut found = Vec::new();
    for step in 0..6u32 {
        let token = |place: u32| (place.wrapping_mul(2_654_435_761) >> 12) % 100;
        let ids: Vec<u32> = (0..=(ROWS * STEPS) as u32).map(|n| token(31 * step + n)).collect();
        let batch = Batch { rows: ROWS, inputs: &ids[..ROWS * STEPS], targets: &ids[1..], context: &[] };
        trainer.step(&batch, rate);
        found.extend(subnormal(&trainer));
    }
    let mut end = vec![0.0; ParameterLayout::new(config).unwrap().len()];
    trainer.store(&mut end);
    found.extend(counted("parameters", &end));
    found
}

fn subnormal(trainer: &Trainer) -> Vec<(&'static str, usize)> {
    let layers = trainer.layers.iter().flat_map(|layer| layer.memory());
    let all = layers.chain(trainer.output.memory()).chain([("embedding", &trainer.embedding.values[..])]);
    all.filter_map(|(name, values)| counted(name, values)).collect()
}

fn counted(name: &'static str, values: &[f32]) -> Option<(&'static str, usize)> {
    let subnormal = values.iter().filter(|v| v.is_subnormal()).count();
    (subnormal > 0).then_some((name, subnormal))
}

#[test]
fn models_that_diverge_or_saturate_make_no_subnormal_numbers_on_any_path() {
    let rates = [6.0, 1e3].map(|rate| Ill::Diverging { rate });
    let scales = [30.0, 3e3].map(|scale| Ill::Saturated { scale });
    for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
        for config in models() {
            for ill in rates.into_iter().chain(scales) {
                let found = subnormal_after(&config, ill, path);
                assert!(found.is_empty(), "{path:?}, {:?}, {ill:?}: {found:?}", config.cell);
            }
        }
    }
}
