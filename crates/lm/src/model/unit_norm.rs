//! Embeddings of norm 1 (McMahan et al. 2018, appendix): whoever moves parameters scales them back, the trainer after every
//! local step and the server after every round.

use super::{
    config::ModelConfig,
    parameters::{ParameterLayout, Role},
};

/// Scales every embedding to norm 1 where the model says so; one that is zero or not finite stays as it is.
///
/// # Panics
/// When there are not as many values as the layout has.
pub fn renormalise(config: &ModelConfig, layout: &ParameterLayout, values: &mut [f32]) {
    assert_eq!(values.len(), layout.len(), "the parameters are not those of the model");
    let is_table = |role: Role| matches!(role, Role::Embedding | Role::OutputEmbedding);
    for table in layout.parameters().iter().filter(|p| config.unit_norm && is_table(p.role)) {
        for row in values[table.range()].chunks_exact_mut(table.columns) {
            let squared: f32 = row.iter().map(|v| v * v).sum();
            if squared > 0.0 && squared.is_finite() {
                let factor = 1.0 / libm::sqrtf(squared);
                row.iter_mut().for_each(|v| *v *= factor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::initial::initial_parameters;

    #[test]
    fn only_embeddings_are_scaled_and_only_where_the_model_says_so() {
        let config = ModelConfig::preset("mcmahan2018").unwrap().with_vocabulary(50);
        let layout = ParameterLayout::new(&config).unwrap();
        let start: Vec<f32> = initial_parameters(&config, 1).unwrap().iter().map(|v| v * 3.0).collect();
        let mut values = start.clone();
        values[..96].fill(0.0);
        renormalise(&config, &layout, &mut values);
        let (tables, rest) = values.split_at(50 * 96);
        assert_eq!(layout.range(Role::Embedding), 0..50 * 96);
        assert_eq!(rest, &start[50 * 96..]);
        assert!(tables[..96].iter().all(|v| *v == 0.0));
        for row in tables[96..].chunks_exact(96) {
            assert!((row.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
        }
        let free = ModelConfig { unit_norm: false, ..config };
        let mut values = start.clone();
        renormalise(&free, &layout, &mut values);
        assert_eq!(values, start);
    }
}
