//! The Renyi accountant (Mironov 2017), with the order optimised continuously.
//!
//! Releases add up their RDP at each order, and `eps = RDP(a) + ln(1 - 1/a) - ln(delta a) / (a - 1)` holds for every
//! order a (Canonne, Kamath and Steinke 2020, Proposition 12). Written as `f(a) / (a - 1)`, the numerator
//! `sum of ln A(a) + (a - 1) ln(a - 1) - a ln a - ln delta` is convex in a, hence the quotient is quasi-convex: there
//! is one valley, and a line search finds its floor.

pub(super) mod poisson;
mod skellam;
mod without_replacement;

use super::{
    AccountError, AccountantKind, Judgement,
    minimise::minimise,
    release::{Reduced, Release},
    sampled::SampledGaussian,
};
use crate::units::{Delta, Epsilon};
use without_replacement::WithoutReplacement;

/// The orders that are searched: `ln(a - 1)`.
const LN_RANGE: (f64, f64) = (-14.0, 30.0);
/// The largest order for bounds that are a sum over integers.
const MAX_INTEGER_ORDER: f64 = 4096.0;

/// The RDP of one kind of release.
enum Curve {
    /// RDP(a) = slope * a.
    Line {
        slope: f64,
    },
    Poisson(SampledGaussian),
    FixedSize(WithoutReplacement),
    Skellam {
        variance: f64,
        l1: f64,
        l2: f64,
    },
}

impl Curve {
    /// `(a - 1) RDP(a)`.
    fn log_moment(&mut self, order: f64) -> f64 {
        match self {
            Self::Line { slope } => order * (order - 1.0) * *slope,
            Self::Poisson(law) => poisson::log_moment(law, order),
            Self::FixedSize(bound) => bound.log_moment(order),
            Self::Skellam { variance, l1, l2 } => (order - 1.0) * skellam::rdp(*variance, *l1, *l2, order),
        }
    }
}

/// Epsilon by RDP.
pub(super) fn judge(reduced: &Reduced<'_>, delta: Delta) -> Result<Judgement, AccountError> {
    if reduced.releases.is_empty() {
        return Ok(Judgement { order: None, ..Judgement::new(AccountantKind::Rdp, Epsilon::ZERO) });
    }
    let mut curves = reduced
        .releases
        .iter()
        .map(|(release, times)| Ok((curve(release, reduced)?, *times as f64)))
        .collect::<Result<Vec<_>, AccountError>>()?;
    let only = |kind: fn(&Curve) -> bool| curves.iter().any(|(c, _)| kind(c));
    let integers_only = only(|c| matches!(c, Curve::Skellam { .. }));
    let interpolated = only(|c| matches!(c, Curve::FixedSize(_)));
    let ln_delta = libm::log(delta.get());
    let mut at_order = |order: f64| {
        let log_moment: f64 = curves.iter_mut().map(|(c, times)| *times * c.log_moment(order)).sum();
        convert(log_moment, order, ln_delta)
    };
    let (order, epsilon) =
        if integers_only { best_integer(&mut at_order) } else { best_order(&mut at_order, ln_delta, interpolated) };
    Ok(Judgement {
        order: Some(order),
        ..Judgement::new(AccountantKind::Rdp, Epsilon::from_bound(epsilon * (1.0 + 1e-12)))
    })
}

/// The best order of a quasi-convex bound.
fn best_order(at_order: &mut impl FnMut(f64) -> f64, ln_delta: f64, interpolated: bool) -> (f64, f64) {
    let order_of = |t: f64| 1.0 + libm::exp(t);
    // At order 2 the bound is moment - ln(4 delta); a Gaussian of the same moment has its best order near
    // 1 + sqrt(ln(1/delta) / slope).
    let slope = 0.5 * (at_order(2.0) + ln_delta + libm::log(4.0));
    let start = (0.5 * libm::log(-ln_delta / slope.max(1e-12))).min(libm::log(64.0));
    let highest = if interpolated { libm::log(MAX_INTEGER_ORDER - 1.0) } else { LN_RANGE.1 };
    let (t, found) = minimise(|t| at_order(order_of(t)), start, 1.0, (LN_RANGE.0, highest), 1e-5);
    // Bounds that are known at integers and interpolated between them have their minimum at one.
    let near = libm::round(order_of(t)).max(2.0);
    match at_order(near) {
        at_integer if interpolated && at_integer <= found => (near, at_integer),
        _ => (order_of(t), found),
    }
}

/// The best integer order; Skellam's bound is the smaller of two and may have two valleys, so all small ones are tried.
fn best_integer(at_order: &mut impl FnMut(f64) -> f64) -> (f64, f64) {
    let small = (2..=256).map(f64::from);
    let large = (1..=56).map(|k| libm::round(256.0 * libm::pow(1.05, f64::from(k))));
    let mut best = (2.0, f64::INFINITY);
    for order in small.chain(large) {
        let bound = at_order(order);
        if bound < best.1 {
            best = (order, bound);
        }
    }
    // Between the large ones, walk downhill.
    for direction in [-1.0, 1.0] {
        loop {
            let next = best.0 + direction;
            let bound = if next >= 2.0 { at_order(next) } else { f64::INFINITY };
            if bound >= best.1 {
                break;
            }
            best = (next, bound);
        }
    }
    best
}

/// The tight conversion at one order, from `(a - 1) RDP(a)`.
pub(super) fn convert(log_moment: f64, order: f64, ln_delta: f64) -> f64 {
    let bound = libm::log1p(-1.0 / order) + (log_moment - ln_delta - libm::log(order)) / (order - 1.0);
    if bound.is_nan() { f64::INFINITY } else { bound }
}

fn curve(release: &Release, reduced: &Reduced<'_>) -> Result<Curve, AccountError> {
    Ok(match *release {
        Release::Gaussian { mu_squared } => Curve::Line { slope: 0.5 * mu_squared },
        Release::Zcdp { rho } => Curve::Line { slope: rho },
        Release::Poisson { q, z } if reduced.group == 1 => Curve::Poisson(SampledGaussian::new(q, z, 1)),
        Release::Poisson { .. } => {
            return Err(AccountError::Unsupported {
                accountant: AccountantKind::Rdp,
                event: "a group of users under poisson sampling",
                advice: "use the pld accountant",
            });
        }
        Release::FixedSize { q, z } => Curve::FixedSize(WithoutReplacement::new(q, z)),
        Release::Skellam { variance, l1, l2 } => Curve::Skellam { variance, l1, l2 },
    })
}
