//! Tails of the hypergeometric distribution, in logarithms: chances far below 2^-41 come out right.
//!
//! Written here because `statrs` (0.18), which has the distribution, gives its tails as probabilities and not as logarithms,
//! summed by the standard library's `exp`, whose last bits are the platform's: a device must judge a server's parameters as the
//! server did. `GSL` binds a C library, which would have to be built for wasm.

/// How many of the `drawn` are marked, when they are drawn without replacement from a population with `marked` in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hypergeometric {
    population: u32,
    marked: u32,
    drawn: u32,
}

/// A term that is smaller than this part of the sum before it is the last that is added: those after it shrink too.
const NEGLIGIBLE: f64 = 1e-18;

impl Hypergeometric {
    /// More marked or drawn than there are counts as all of them.
    pub(super) fn new(population: u32, marked: u32, drawn: u32) -> Self {
        Self { population, marked: marked.min(population), drawn: drawn.min(population) }
    }

    /// ln P[X > x].
    pub(super) fn ln_above(self, x: u32) -> f64 {
        self.ln_at_least(x.saturating_add(1))
    }

    /// ln P[X < x].
    pub(super) fn ln_below(self, x: u32) -> f64 {
        match (self.drawn + 1).checked_sub(x) {
            Some(unmarked) => self.mirrored().ln_at_least(unmarked),
            None => 0.0,
        }
    }

    /// The distribution of the drawn that are not marked.
    fn mirrored(self) -> Self {
        Self { marked: self.population - self.marked, ..self }
    }

    /// ln P[X >= x]: summed from `x` away from the mean, or else the complement of such a sum.
    fn ln_at_least(self, x: u32) -> f64 {
        let least = (self.marked + self.drawn).saturating_sub(self.population);
        let most = self.marked.min(self.drawn);
        if x <= least {
            return 0.0;
        }
        if x > most {
            return f64::NEG_INFINITY;
        }
        let mean = f64::from(self.marked) * f64::from(self.drawn) / f64::from(self.population);
        if f64::from(x) > mean {
            self.ln_sum_from(x, most)
        } else {
            // At most x - 1 marked: at least drawn - x + 1 that are not, which is above their mean.
            let below = self.mirrored().ln_sum_from(self.drawn - x + 1, self.drawn - least);
            libm::log1p(-libm::exp(below).min(1.0))
        }
    }

    /// ln of the sum of P[X = y] for y from `x` to `most`.
    fn ln_sum_from(self, x: u32, most: u32) -> f64 {
        let [population, marked, drawn] = [self.population, self.marked, self.drawn].map(f64::from);
        let (mut term, mut sum) = (1.0, 1.0);
        for y in (x..most).map(f64::from) {
            term *= (marked - y) * (drawn - y) / ((y + 1.0) * (population - marked - drawn + y + 1.0));
            sum += term;
            if term < NEGLIGIBLE * sum {
                break;
            }
        }
        self.ln_exactly(x) + libm::log(sum)
    }

    /// ln P[X = x], for an x that can occur.
    fn ln_exactly(self, x: u32) -> f64 {
        ln_choose(self.marked, x) + ln_choose(self.population - self.marked, self.drawn - x)
            - ln_choose(self.population, self.drawn)
    }
}

/// ln of the number of ways to choose `k` of `n`; no way when there are not so many.
pub(super) fn ln_choose(n: u32, k: u32) -> f64 {
    if k > n {
        return f64::NEG_INFINITY;
    }
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

fn ln_factorial(n: u32) -> f64 {
    libm::lgamma(f64::from(n) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::exact::{choose, ways_above};

    fn close(ln: f64, numerator: u128, denominator: u128) {
        if numerator == 0 {
            assert_eq!(ln, f64::NEG_INFINITY);
        } else {
            let exact = libm::log(numerator as f64) - libm::log(denominator as f64);
            assert!((ln - exact).abs() < 1e-11, "{ln} is not {exact}");
        }
    }

    #[test]
    fn tails_are_those_of_whole_numbers() {
        for population in [1, 2, 5, 12, 31, 60] {
            for marked in 0..=population {
                for drawn in 0..=population {
                    let distribution = Hypergeometric::new(population, marked, drawn);
                    let all = choose(population, drawn);
                    for x in 0..=drawn + 1 {
                        let above = ways_above(population, marked, drawn, x);
                        close(distribution.ln_above(x), above, all);
                        let at_least = if x == 0 { all } else { ways_above(population, marked, drawn, x - 1) };
                        close(distribution.ln_below(x), all - at_least, all);
                    }
                }
            }
        }
    }

    #[test]
    fn tails_are_those_of_a_simple_sum_when_there_are_many() {
        // Every chance by the ratio to the one before, from the one at 0, whose logarithm is a sum of 600 plain ones.
        let (population, marked, drawn) = (100_000_u32, 33_333_u32, 600_u32);
        let [n, m, k] = [population, marked, drawn].map(f64::from);
        let mut ln = (0..drawn).map(f64::from).map(|j| libm::log((n - m - j) / (n - j))).sum::<f64>();
        let mut chances = vec![];
        for x in (0..=drawn).map(f64::from) {
            chances.push(ln);
            ln += libm::log((m - x) * (k - x) / ((x + 1.0) * (n - m - k + x + 1.0)));
        }
        let distribution = Hypergeometric::new(population, marked, drawn);
        for x in 0..drawn {
            let (below, above) = chances.split_at(x as usize + 1);
            let sum = |of: &[f64]| of.iter().map(|ln| libm::exp(*ln)).sum::<f64>();
            // Where everything underflows, the simple sum says nothing.
            if x < 599 && chances[x as usize + 1] > -600.0 && chances[x as usize] > -600.0 {
                assert!((distribution.ln_above(x) - libm::log(sum(above))).abs() < 1e-8, "above {x}");
                assert!((distribution.ln_below(x + 1) - libm::log(sum(below))).abs() < 1e-8, "below {x}");
            }
        }
    }

    #[test]
    fn nothing_is_out_of_range() {
        let distribution = Hypergeometric::new(10, 20, 30);
        assert_eq!(distribution.ln_above(9), 0.0);
        assert_eq!(distribution.ln_above(10), f64::NEG_INFINITY);
        assert_eq!(distribution.ln_above(u32::MAX), f64::NEG_INFINITY);
        assert_eq!(distribution.ln_below(u32::MAX), 0.0);
        assert_eq!(distribution.ln_below(0), f64::NEG_INFINITY);
        assert_eq!(ln_choose(3, 4), f64::NEG_INFINITY);
    }
}
