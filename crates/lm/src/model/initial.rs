//! Initial parameters: random, from a seed, the same on every machine.
//!
//! Kernels are uniform in `+-sqrt(6 / (rows + columns))` (Glorot and Bengio 2010), biases 0 but for the forget gate's, which
//! is 1 (Jozefowicz et al. 2015), embeddings uniform in `+-sqrt(3 / columns)`, so that their norm is about 1; where they
//! have unit norm they are scaled to it.

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};

use super::{
    config::{ConfigError, Gate, ModelConfig},
    parameters::{ParameterLayout, Role},
    unit_norm::renormalise,
};

/// The first parameters of a model.
///
/// # Errors
/// When the model cannot be built.
pub fn initial_parameters(config: &ModelConfig, seed: u64) -> Result<Vec<f32>, ConfigError> {
    let layout = ParameterLayout::new(config)?;
    let mut values = vec![0.0; layout.len()];
    for (number, parameter) in layout.parameters().iter().enumerate() {
        let part = &mut values[parameter.range()];
        match parameter.role {
            Role::GateBias { gate: Gate::Forget, .. } => part.fill(1.0),
            Role::GateBias { .. } | Role::DenseBias | Role::OutputBias => {}
            Role::Embedding | Role::OutputEmbedding => {
                fill(part, seed, number, libm::sqrtf(3.0 / parameter.columns as f32));
            }
            Role::GateKernel { .. } | Role::Projection { .. } | Role::DenseKernel => {
                fill(part, seed, number, libm::sqrtf(6.0 / (parameter.rows + parameter.columns) as f32));
            }
        }
    }
    renormalise(config, &layout, &mut values);
    Ok(values)
}

/// Uniform numbers in `+-limit`, 24 bits each.
fn fill(part: &mut [f32], seed: u64, number: usize, limit: f32) {
    let (mut key, mut nonce) = ([0; 32], [0; 12]);
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..29].copy_from_slice(b"keyhush parameters v1");
    nonce[..8].copy_from_slice(&(number as u64).to_le_bytes());
    let mut cipher = ChaCha20::new(&key.into(), &nonce.into());
    let mut bytes = [0; 4096];
    for block in part.chunks_mut(bytes.len() / 4) {
        cipher.write_keystream(&mut bytes);
        for (value, word) in block.iter_mut().zip(bytes.as_chunks::<4>().0) {
            let unit = (u32::from_le_bytes(*word) >> 8) as f32 / 8_388_608.0 - 1.0;
            *value = unit * limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_parameters_and_another_seed_others() {
        let config = ModelConfig::preset("tiny").unwrap();
        let (a, again) = (initial_parameters(&config, 1).unwrap(), initial_parameters(&config, 1).unwrap());
        assert_eq!(a, again);
        assert_ne!(a, initial_parameters(&config, 2).unwrap());
    }

    #[test]
    fn every_part_has_the_spread_that_is_said() {
        let config = ModelConfig::preset("mcmahan2018").unwrap();
        let layout = ParameterLayout::new(&config).unwrap();
        let values = initial_parameters(&config, 7).unwrap();
        for parameter in layout.parameters() {
            let part = &values[parameter.range()];
            match parameter.role {
                Role::GateBias { gate: Gate::Forget, .. } => assert!(part.iter().all(|v| *v == 1.0)),
                Role::GateBias { .. } | Role::DenseBias => assert!(part.iter().all(|v| *v == 0.0)),
                Role::Embedding => {
                    let norms = part.chunks_exact(96).map(|row| row.iter().map(|v| v * v).sum::<f32>());
                    assert!(norms.into_iter().all(|n| (n - 1.0).abs() < 1e-5));
                }
                _ => {
                    let limit = 6.0 / (parameter.rows + parameter.columns) as f32;
                    let mean_square = part.iter().map(|v| v * v).sum::<f32>() / part.len() as f32;
                    assert!((mean_square / (limit / 3.0) - 1.0).abs() < 0.05, "{}", parameter.name);
                }
            }
        }
    }
}
