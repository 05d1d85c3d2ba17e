//! Embeddings of norm 1 (McMahan et al. 2018, appendix): rescaled after every change of parameters, by the trainer after every local step
//! and by the server after every round.

use super::{
    config::ModelConfig,
    parameters::{Parameter, ParameterLayout, Role},
};

/// Scales every embedding to norm 1 where the model says so; one that is zero or not finite stays as it is.
///
/// # Panics
/// When there are not as many values as the layout has.
pub fn renormalise(config: &ModelConfig, layout: &ParameterLayout, values: &mut [f32]) {
    assert_eq!(values.len(), layout.len(), "the parameters are not those of the model");
    tables(config, layout).for_each(|table| scale(&mut values[table.range()], table.columns));
}

/// The tables whose rows have norm 1; none where the model does not say so.
pub fn tables<'a>(config: &ModelConfig, layout: &'a ParameterLayout) -> impl Iterator<Item = &'a Parameter> + use<'a> {
    let (unit_norm, is_table) = (config.unit_norm, |role| matches!(role, Role::Embedding | Role::OutputEmbedding));
    layout.parameters().iter().filter(move |parameter| unit_norm && is_table(parameter.role))
}

/// Scales rows of so many columns.
pub fn scale(rows: &mut [f32], columns: usize) {
    rows.chunks_mut(AT_A_TIME * columns).for_each(|rows| scale_some(rows, columns));
}

/// Rows whose squares are added up side by side: a sum in order waits for every addition, and several are done in the time of one.
const AT_A_TIME: usize = 8;

/// Scales a few rows.
fn scale_some(rows: &mut [f32], columns: usize) {
    let squared = squares(rows, columns);
    for (row, squared) in rows.chunks_exact_mut(columns).zip(squared) {
        if squared > 0.0 && squared.is_finite() {
            let factor = 1.0 / libm::sqrtf(squared);
            row.iter_mut().for_each(|v| *v *= factor);
        }
    }
}

/// The squared norm of each of some rows, every one added up in the order of its columns.
fn squares(rows: &[f32], columns: usize) -> [f32; AT_A_TIME] {
    let mut squared = [0.0; AT_A_TIME];
    let mut each = rows.chunks_exact(columns);
    let all: [Option<&[f32]>; AT_A_TIME] = std::array::from_fn(|_| each.next());
    if let [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f), Some(g), Some(h)] = all {
        let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(|row| &row[..columns]);
        for i in 0..columns {
            let row = [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]];
            squared.iter_mut().zip(row).for_each(|(sum, v)| *sum += v * v);
        }
    } else {
        let sum = |row: &[f32]| row.iter().fold(0.0, |sum, v| sum + v * v);
        squared.iter_mut().zip(all.into_iter().flatten()).for_each(|(to, row)| *to = sum(row));
    }
    squared
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
        for (row, start) in tables.chunks_exact(96).zip(start.chunks_exact(96)).skip(1) {
            assert!((row.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
            // To the bit what one row after the other comes to.
            let factor = 1.0 / libm::sqrtf(start.iter().map(|v| v * v).sum());
            assert!(row.iter().zip(start).all(|(v, start)| v.to_bits() == (start * factor).to_bits()));
        }
        let free = ModelConfig { unit_norm: false, ..config };
        let mut values = start.clone();
        renormalise(&free, &layout, &mut values);
        assert_eq!(values, start);
    }
}
