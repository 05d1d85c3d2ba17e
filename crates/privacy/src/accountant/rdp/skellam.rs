//! The Renyi divergence of Skellam noise (Agarwal, Kairouz and Liu 2021, arXiv 2110.04995, Theorem 3.5), at integer
//! orders only and without amplification by sampling (rule P3).

/// An upper bound on RDP(order) for noise of this variance in each coordinate of an integer vector.
pub(super) fn rdp(variance: f64, l1: f64, l2: f64, order: f64) -> f64 {
    let l2_squared = l2 * l2;
    let gaussian = order * l2_squared / (2.0 * variance);
    let second_order = ((2.0 * order - 1.0) * l2_squared + 6.0 * l1) / (4.0 * variance * variance);
    let first_order = 3.0 * l1 / (2.0 * variance);
    gaussian + second_order.min(first_order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skellam probabilities as the convolution of two Poisson laws, on -width..=width.
    fn skellam_pmf(variance: f64, width: i64) -> Vec<f64> {
        let mean = variance / 2.0;
        let poisson = |k: i64| libm::exp(k as f64 * libm::log(mean) - mean - libm::lgamma(k as f64 + 1.0));
        (-width..=width).map(|n| (0.max(n)..4 * width).map(|k| poisson(k) * poisson(k - n)).sum()).collect()
    }

    #[test]
    fn p3_the_bound_is_never_below_the_divergence() {
        for variance in [4.0, 10.0, 60.0] {
            let width = 120;
            let pmf = skellam_pmf(variance, width);
            for shift in [1usize, 2, 5] {
                for order in [2.0, 3.0, 6.0] {
                    // Terms of relevance lie well inside the window.
                    let moment: f64 = (shift + 20..pmf.len() - 20)
                        .filter(|i| pmf[*i] > 1e-250 && pmf[i - shift] > 1e-250)
                        .map(|i| pmf[i] * libm::pow(pmf[i - shift] / pmf[i], order))
                        .sum();
                    let divergence = libm::log(moment) / (order - 1.0);
                    let s = shift as f64;
                    let bound = rdp(variance, s, s, order);
                    assert!(
                        bound >= divergence,
                        "variance {variance} shift {shift} order {order}: {bound} {divergence}"
                    );
                    assert!(bound <= 3.0 * divergence, "not a useful bound: {bound} {divergence}");
                }
            }
        }
    }
}
