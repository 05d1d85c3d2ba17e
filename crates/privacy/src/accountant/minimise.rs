//! The minimum of a function of one variable that falls, then rises.
//!
//! Ours, because optimizers of other crates are frameworks around a loop like this, and epsilon must have the same bits on every platform,
//! WebAssembly included: here every step is written out.

/// The inverse golden ratio squared.
const GOLDEN: f64 = 0.381_966_011_250_105;

/// Finds `x` in `[lo, hi]` where `f` is smallest, starting at `start` with steps of `step`, to within `tolerance`.
///
/// Brackets the minimum by walking downhill, then Brent's method (golden section with parabolic steps; Brent 1973,
/// chapter 5). For a quasi-convex `f` that is the minimum; for any `f` it is a value that `f` takes.
pub(crate) fn minimise(
    mut f: impl FnMut(f64) -> f64,
    start: f64,
    step: f64,
    (lo, hi): (f64, f64),
    tolerance: f64,
) -> (f64, f64) {
    let (mut a, mut b, mut x, mut fx) = bracket(&mut f, start.clamp(lo, hi), step, lo, hi);
    let (mut w, mut v, mut fw, mut fv) = (x, x, fx, fx);
    let (mut last, mut before_last): (f64, f64) = (b - a, b - a);
    for _ in 0..100 {
        let mid = 0.5 * (a + b);
        if (x - mid).abs() <= 2.0 * tolerance - 0.5 * (b - a) {
            break;
        }
        let move_by =
            parabola(x, w, v, fx, fw, fv).filter(|p| p.abs() < 0.5 * before_last.abs() && x + p > a && x + p < b);
        before_last = last;
        last = move_by.unwrap_or_else(|| {
            before_last = if x < mid { b - x } else { a - x };
            GOLDEN * before_last
        });
        let u = if last.abs() >= tolerance { x + last } else { x + tolerance.copysign(last) };
        let fu = f(u);
        if fu <= fx {
            if u < x {
                b = x
            } else {
                a = x
            }
            (v, fv, w, fw, x, fx) = (w, fw, x, fx, u, fu);
        } else {
            if u < x {
                a = u
            } else {
                b = u
            }
            if fu <= fw || w == x {
                (v, fv, w, fw) = (w, fw, u, fu);
            } else if fu <= fv || v == x || v == w {
                (v, fv) = (u, fu);
            }
        }
    }
    (x, fx)
}

/// The step to the vertex of the parabola through three points.
fn parabola(x: f64, w: f64, v: f64, fx: f64, fw: f64, fv: f64) -> Option<f64> {
    let r = (x - w) * (fx - fv);
    let q = (x - v) * (fx - fw);
    let denominator = 2.0 * (q - r);
    let p = (x - v) * q - (x - w) * r;
    let step = -p / denominator;
    (denominator != 0.0 && step.is_finite()).then_some(step)
}

/// An interval around a point that is lower than both ends, or that touches a limit.
fn bracket(f: &mut impl FnMut(f64) -> f64, start: f64, step: f64, lo: f64, hi: f64) -> (f64, f64, f64, f64) {
    let (mut x, mut fx) = (start, f(start));
    let right = (x + step).min(hi);
    let f_right = f(right);
    let direction = if f_right < fx { step } else { -step };
    let mut behind = if f_right < fx { x } else { right };
    if f_right < fx {
        (x, fx) = (right, f_right);
    }
    loop {
        let next = (x + direction).clamp(lo, hi);
        if next == x {
            return (behind.min(x), behind.max(x), x, fx);
        }
        let f_next = f(next);
        if f_next >= fx || f_next.is_nan() {
            return (behind.min(next), behind.max(next), x, fx);
        }
        (behind, x, fx) = (x, next, f_next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_minima_inside_and_at_the_limits() {
        let (x, _) = minimise(|x| (x - 3.3) * (x - 3.3), -5.0, 1.0, (-10.0, 10.0), 1e-6);
        assert!((x - 3.3).abs() < 1e-5);
        let (x, _) = minimise(|x| (x - 3.3).abs(), 9.0, 1.0, (-10.0, 10.0), 1e-6);
        assert!((x - 3.3).abs() < 1e-5);
        let (x, _) = minimise(|x| x, 5.0, 1.0, (-10.0, 10.0), 1e-6);
        assert!((x + 10.0).abs() < 1e-4);
    }
}
