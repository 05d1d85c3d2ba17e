//! Zero-concentrated differential privacy (Bun and Steinke 2016), and the exact curve of Gaussian releases.
//!
//! Rule P8: Gaussian, tree, banded and BLT releases are each one Gaussian with `mu = sensitivity / z`; together they
//! are one with `mu^2` the sum, and epsilon is that of its exact curve. A bare rho is converted by the general bound,
//! and so is anything composed with one. Skellam releases go by their own Renyi bound.

use super::{
    AccountError, AccountantKind, Judgement, gaussian, rdp,
    release::{Reduced, Release},
};
use crate::units::{Delta, Epsilon};

/// Epsilon by zCDP.
pub(super) fn judge(reduced: &Reduced<'_>, delta: Delta) -> Result<Judgement, AccountError> {
    reduced.refuse_unless(AccountantKind::Zcdp, "zCDP cannot express amplification by sampling; use best", |r| {
        !matches!(r, Release::Poisson { .. } | Release::FixedSize { .. })
    })?;
    match reduced.only_gaussian() {
        Some(mu) => {
            let epsilon = gaussian::epsilon(mu, delta);
            Ok(Judgement {
                epsilon_lower: reduced.attained.then(|| Epsilon::from_bound(epsilon * (1.0 - 2e-12))),
                ..Judgement::new(AccountantKind::Zcdp, Epsilon::from_bound(epsilon))
            })
        }
        None => Ok(Judgement { accountant: AccountantKind::Zcdp, ..rdp::judge(reduced, delta)? }),
    }
}
