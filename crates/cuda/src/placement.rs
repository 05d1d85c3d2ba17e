//! The layout of parameters on the card: gates side by side, padded rows, aligned matrices.
//!
//! The flat vector has a kernel for each gate; products want one for all gates, split into what meets the input and what meets the
//! state. [`Placement::place`] says for each number of the flat vector where it lies, so models are put on the card and differences
//! are read off it in the order that clipping, rounding and the sum have.

use lm::model::{
    config::ModelConfig,
    parameters::{Parameter, ParameterLayout, Role},
};

use crate::shape::{Shape, padded};

/// Where matrices begin: a multiple of so many numbers.
const ALIGNED: usize = 64;

/// Where a layer's matrices begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerPlace {
    /// From the input to all gates: `[enter][wide]`.
    pub(crate) input: usize,
    /// From the state to all gates: `[shown][wide]`.
    pub(crate) state: usize,
    /// The bias of all gates.
    pub(crate) bias: usize,
    /// From units to what is shown, `[hidden][shown]`; empty where units are shown.
    pub(crate) projection: usize,
}

/// Where everything begins in a user's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// `[entries][table]`.
    pub(crate) embedding: usize,
    pub(crate) layers: Vec<LayerPlace>,
    /// `[shown][output]`.
    pub(crate) dense: usize,
    pub(crate) dense_bias: usize,
    /// `[entries][output]`; the embedding where it is tied.
    pub(crate) output: usize,
    pub(crate) output_bias: usize,
    /// All numbers of a user.
    pub(crate) length: usize,
    /// For each number of the flat vector where it lies.
    pub(crate) place: Vec<u32>,
}

/// Hands out places, one after the other.
struct Places(usize);

impl Places {
    fn take(&mut self, len: usize) -> usize {
        let start = self.0;
        self.0 += padded(len, ALIGNED);
        start
    }
}

impl Placement {
    /// The placement of a model.
    pub(crate) fn new(config: &ModelConfig, layout: &ParameterLayout, shape: &Shape) -> Self {
        let mut places = Places(0);
        let embedding = places.take(shape.entries * shape.table);
        let layer = |places: &mut Places, layer: usize| LayerPlace {
            input: places.take(shape.enter(layer) * shape.wide()),
            state: places.take(shape.shown * shape.wide()),
            bias: places.take(shape.wide()),
            projection: places.take(if shape.projects { shape.hidden * shape.shown } else { 0 }),
        };
        let layers = (0..shape.layers).map(|l| layer(&mut places, l)).collect();
        let dense = places.take(if shape.dense { shape.shown * shape.output } else { 0 });
        let dense_bias = places.take(if shape.dense { shape.output } else { 0 });
        let output = if shape.tied { embedding } else { places.take(shape.entries * shape.output) };
        let output_bias = places.take(if shape.output_bias { shape.entries } else { 0 });
        let length = places.0;
        let mut placement =
            Self { embedding, layers, dense, dense_bias, output, output_bias, length, place: Vec::new() };
        placement.place = layout.parameters().iter().flat_map(|p| placement.of(config, shape, p)).collect();
        placement
    }

    /// Writes a flat vector as it lies on the card.
    pub(crate) fn put(&self, flat: &[f32], to: &mut [f32]) {
        self.place.iter().zip(flat).for_each(|(at, value)| to[*at as usize] = *value);
    }

    /// Writes what lies on the card as a flat vector.
    pub(crate) fn take(&self, from: &[f32], flat: &mut [f32]) {
        self.place.iter().zip(flat).for_each(|(at, value)| *value = from[*at as usize]);
    }

    /// Where the numbers of one parameter lie, row by row.
    fn of(&self, config: &ModelConfig, shape: &Shape, parameter: &Parameter) -> Vec<u32> {
        let gate_column = |gate| {
            let number = shape.cell.gates().iter().position(|g| *g == gate).unwrap_or(0);
            number * shape.hidden
        };
        let row_start: Box<dyn Fn(usize) -> usize> = match parameter.role {
            Role::Embedding => Box::new(|row| self.embedding + row * shape.table),
            Role::GateKernel { layer, gate } => {
                let (place, enter) = (self.layers[layer], config.layer_input(layer));
                let column = gate_column(gate);
                Box::new(move |row| match row.checked_sub(enter) {
                    None => place.input + row * shape.wide() + column,
                    Some(row) => place.state + row * shape.wide() + column,
                })
            }
            Role::GateBias { layer, gate } => {
                let start = self.layers[layer].bias + gate_column(gate);
                Box::new(move |_| start)
            }
            Role::Projection { layer } => {
                let start = self.layers[layer].projection;
                Box::new(move |row| start + row * shape.shown)
            }
            Role::DenseKernel => Box::new(|row| self.dense + row * shape.output),
            Role::DenseBias => Box::new(|_| self.dense_bias),
            Role::OutputEmbedding => Box::new(|row| self.output + row * shape.output),
            Role::OutputBias => Box::new(|_| self.output_bias),
        };
        let row = |row: usize| row_start(row)..row_start(row) + parameter.columns;
        (0..parameter.rows).flat_map(row).map(|at| at as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use device::local::{Algorithm, LocalPlan};
    use lm::model::config::PRESETS;

    use super::*;

    fn local() -> LocalPlan {
        LocalPlan {
            algorithm: Algorithm::FedAvg { epochs: 1 },
            batch: 8,
            unroll: 10,
            most_tokens: None,
            greedy: false,
            update_penalty: 0.0,
            finetune: None,
        }
    }

    #[test]
    fn every_parameter_of_every_preset_has_a_place_of_its_own() {
        for (name, make) in PRESETS {
            let config = ModelConfig { user_context: Some(3), ..make().with_vocabulary(1009) };
            let layout = ParameterLayout::new(&config).unwrap();
            let shape = Shape::new(&config, &local(), 4).unwrap();
            let placement = Placement::new(&config, &layout, &shape);
            assert_eq!(placement.place.len(), layout.len(), "{name}");
            let mut taken = vec![false; placement.length];
            for at in &placement.place {
                assert!(!std::mem::replace(&mut taken[*at as usize], true), "{name}: {at} is taken twice");
            }
        }
    }

    /// A kernel of the second gate of the first layer, number by number.
    #[test]
    fn gates_stand_side_by_side_and_inputs_apart_from_states() {
        let config = ModelConfig::preset("gboard").unwrap().with_vocabulary(50);
        let layout = ParameterLayout::new(&config).unwrap();
        let shape = Shape::new(&config, &local(), 1).unwrap();
        let placement = Placement::new(&config, &layout, &shape);
        assert_eq!((shape.hidden, shape.wide(), shape.enter(0)), (672, 2016, 96));
        let kernel = layout.parameters().iter().find(|p| p.name == "layers.0.candidate.kernel").unwrap();
        let place = |row: usize, column: usize| placement.place[kernel.offset + row * kernel.columns + column] as usize;
        let layer = placement.layers[0];
        assert_eq!(place(0, 0), layer.input + 672);
        assert_eq!(place(95, 669), layer.input + 95 * 2016 + 672 + 669);
        assert_eq!(place(96, 0), layer.state + 672);
        assert_eq!(place(191, 5), layer.state + 95 * 2016 + 672 + 5);
    }
}
