//! The moments accountant as the first papers used it (Abadi et al. 2016; McMahan et al. 2017 and 2018).
//!
//! `eps = min over integer lambda of (T alpha(lambda) + ln(1 / delta)) / lambda`, with lambda from 1 to 32. It is kept
//! so that the papers' tables come out as printed; [`super::AccountantKind::Rdp`] is never above it.

use super::{
    AccountError, AccountantKind, Judgement,
    rdp::poisson::log_moment_integer,
    release::{Reduced, Release},
};
use crate::units::{Delta, Epsilon};

/// The largest moment that the published code looked at; the z = 3 row of Table 1 shows it.
const MAX_LAMBDA: u32 = 32;

/// Epsilon by moments; the answer's `order` is lambda + 1.
pub(super) fn judge(reduced: &Reduced<'_>, delta: Delta) -> Result<Judgement, AccountError> {
    reduced.refuse_unless(AccountantKind::Moments, "use best", |r| {
        matches!(r, Release::Gaussian { .. } | Release::Poisson { .. }) && reduced.group == 1
    })?;
    if reduced.releases.is_empty() {
        return Ok(Judgement::new(AccountantKind::Moments, Epsilon::ZERO));
    }
    let ln_inverse_delta = -libm::log(delta.get());
    let (lambda, epsilon) = (1..=MAX_LAMBDA)
        .map(|lambda| (lambda, (total_moment(reduced, lambda) + ln_inverse_delta) / f64::from(lambda)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there is at least one lambda");
    Ok(Judgement {
        order: Some(f64::from(lambda) + 1.0),
        ..Judgement::new(AccountantKind::Moments, Epsilon::from_bound(epsilon))
    })
}

/// The sum of alpha(lambda) over all releases.
fn total_moment(reduced: &Reduced<'_>, lambda: u32) -> f64 {
    let moment = |release: &Release| match *release {
        Release::Gaussian { mu_squared } => 0.5 * mu_squared * f64::from(lambda) * f64::from(lambda + 1),
        Release::Poisson { q, z } => log_moment_integer(q, z, lambda + 1),
        _ => f64::INFINITY,
    };
    reduced.releases.iter().map(|(release, times)| *times as f64 * moment(release)).sum()
}
