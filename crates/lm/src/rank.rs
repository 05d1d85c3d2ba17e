//! Ranks a word among all predictions, and finds the best ones: the inner loops of metrics and suggestions.
//!
//! Both run over the whole vocabulary for every token, so they are vector code: left to the compiler, their speed changed by a
//! quarter with the address of the loop.

use crate::kernels::{
    KernelPath,
    compare::{CountLarger, Largest},
};

/// How many entries are predicted before one of this value: those with lower ids that are as likely or likelier, and
/// those with higher ids that are likelier. NaN is before nothing.
pub(crate) fn likelier(earlier: &[f32], later: &[f32], value: f32) -> usize {
    let path = KernelPath::best();
    let count = |values, or_equal| path.run(CountLarger { values, than: value, or_equal }).unwrap_or_default();
    count(earlier, true) + count(later, false)
}

/// The rank of an entry among all, 0 for the first; `None` when its value is NaN.
pub(crate) fn rank(values: &[f32], id: usize) -> Option<usize> {
    let value = *values.get(id)?;
    (!value.is_nan()).then(|| likelier(&values[..id], &values[id + 1..], value))
}

/// The places of the `N` largest values, the largest first; fewer when there are fewer that are not NaN.
pub(crate) fn largest<const N: usize>(values: &[f32]) -> impl Iterator<Item = usize> {
    let (best, found) = KernelPath::best().run(Largest { values }).unwrap_or(([(0.0, 0); N], 0));
    best.into_iter().take(found).map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few different values, so that there are ties.
    fn values(len: usize, seed: u32) -> Vec<f32> {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x >> 16
        };
        (0..len).map(|_| if next() % 29 == 0 { f32::NAN } else { -((next() % 97) as f32) }).collect()
    }

    fn sorted(values: &[f32]) -> Vec<usize> {
        let mut ids: Vec<usize> = (0..values.len()).filter(|i| !values[*i].is_nan()).collect();
        ids.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
        ids
    }

    #[test]
    fn both_equal_sorting() {
        for (len, seed) in [(0, 1), (1, 2), (7, 3), (10, 4), (200, 5), (1000, 6)] {
            let values = values(len, seed);
            let order = sorted(&values);
            let first: Vec<usize> = largest::<10>(&values).collect();
            assert_eq!(first, order[..order.len().min(10)], "{len}");
            for id in 0..len {
                assert_eq!(rank(&values, id), order.iter().position(|o| *o == id), "{len} {id}");
            }
        }
        assert_eq!(rank(&[0.0], 1), None);
    }

    #[test]
    fn minus_infinity_is_a_value() {
        let values = [f32::NEG_INFINITY; 3];
        assert_eq!(largest::<2>(&values).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(rank(&values, 2), Some(2));
    }
}
