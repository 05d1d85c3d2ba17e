//! Reduces events to the few forms that accountants compute with.

use super::{AccountError, AccountantKind};
use crate::{
    event::{Adjacency, PrivacyEvent},
    participation::Participation,
    sensitivity,
    units::Rho,
};

/// A release in an accountant's terms, the group already counted in where it is a matter of scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Release {
    /// A Gaussian with (sensitivity / standard deviation)^2.
    Gaussian { mu_squared: f64 },
    /// A Poisson-sampled Gaussian.
    Poisson { q: f64, z: f64 },
    /// A Gaussian on a fixed-size cohort.
    FixedSize { q: f64, z: f64 },
    /// Skellam noise.
    Skellam { variance: f64, l1: f64, l2: f64 },
    /// A bare rho.
    Zcdp { rho: f64 },
}

/// All that happened, ready to be judged.
#[derive(Debug)]
pub(super) struct Reduced<'a> {
    pub(super) adjacency: Option<Adjacency>,
    /// What was released without privacy, if anything was.
    pub(super) non_private: Option<&'a str>,
    /// Every release and how often; all Gaussians are one.
    pub(super) releases: Vec<(Release, u64)>,
    /// The events' names, for refusals; beside `releases`.
    names: Vec<&'static str>,
    /// How many users are protected together.
    pub(super) group: u32,
    /// Whether these releases are as bad as what happened can be, and no worse: then a lower bound on their epsilon is
    /// one on that of the events.
    pub(super) attained: bool,
}

impl<'a> Reduced<'a> {
    pub(super) fn new(event: &'a PrivacyEvent, group: u32) -> Result<Self, AccountError> {
        let flat = event.flatten()?;
        let mut reduced = Self {
            adjacency: flat.adjacency,
            non_private: flat.non_private,
            releases: Vec::new(),
            names: Vec::new(),
            group,
            attained: true,
        };
        for (leaf, times) in flat.leaves {
            // Discrete noise is only known to be at least as private as the Gaussian that stands for it.
            reduced.attained &= !leaf.has_discrete_noise();
            let release = reduced.reduce(leaf)?;
            reduced.push(release, leaf.name(), times);
        }
        Ok(reduced)
    }

    fn push(&mut self, release: Release, name: &'static str, times: u64) {
        if let Release::Gaussian { mu_squared } = release {
            let all = mu_squared * times as f64;
            for (known, _) in &mut self.releases {
                if let Release::Gaussian { mu_squared } = known {
                    *mu_squared += all;
                    return;
                }
            }
            self.releases.push((Release::Gaussian { mu_squared: all }, 1));
        } else {
            self.releases.push((release, times));
        }
        self.names.push(name);
    }

    fn reduce(&mut self, leaf: &PrivacyEvent) -> Result<Release, AccountError> {
        let k = f64::from(self.group);
        Ok(match leaf {
            PrivacyEvent::Gaussian { noise, .. } => {
                let mu = k / noise.multiplier().get();
                Release::Gaussian { mu_squared: mu * mu }
            }
            PrivacyEvent::SampledGaussian { participation, noise, .. } => {
                self.sampled(participation, noise.multiplier().get())?
            }
            PrivacyEvent::CorrelatedGaussian { matrix, segments, participation, noise, .. } => {
                let sensitivity = sensitivity::of_matrix(matrix, segments, participation)?;
                self.attained &= sensitivity.attained;
                let z = noise.multiplier().get();
                Release::Gaussian { mu_squared: k * k * sensitivity.squared / (z * z) }
            }
            PrivacyEvent::Skellam { variance, l1_sensitivity, l2_sensitivity, .. } => {
                Release::Skellam { variance: *variance, l1: k * l1_sensitivity, l2: k * l2_sensitivity }
            }
            PrivacyEvent::DistributedSkellam {
                local_variance,
                honest_survivors,
                l1_sensitivity,
                l2_sensitivity,
                ..
            } => Release::Skellam {
                variance: local_variance * *honest_survivors as f64,
                l1: k * l1_sensitivity,
                l2: k * l2_sensitivity,
            },
            PrivacyEvent::Zcdp { rho, .. } => Release::Zcdp { rho: k * k * rho.get() },
            PrivacyEvent::NonPrivate { .. }
            | PrivacyEvent::LimitedRounds { .. }
            | PrivacyEvent::Repeat { .. }
            | PrivacyEvent::Compose { .. } => unreachable!("flatten takes these apart"),
        })
    }

    fn sampled(&self, participation: &Participation, z: f64) -> Result<Release, AccountError> {
        let k = f64::from(self.group);
        match *participation {
            Participation::Poisson { rate } if rate.get() == 1.0 => {
                Ok(Release::Gaussian { mu_squared: k * k / (z * z) })
            }
            Participation::Poisson { rate } => Ok(Release::Poisson { q: rate.get(), z }),
            Participation::FixedSize { population, cohort } => {
                if self.group > 1 {
                    return Err(AccountError::GroupUnsupported { event: "fixed-size sampling" });
                }
                Ok(Release::FixedSize { q: cohort as f64 / population as f64, z })
            }
            Participation::MinSeparation { .. } | Participation::Once => unreachable!("refused by flatten"),
        }
    }

    /// The same with every user in every cohort, which is never cheaper: given the cohort, a user is in it or not, and
    /// divergences are jointly convex.
    pub(super) fn unamplified(&self) -> Self {
        let k = f64::from(self.group);
        let mut all = Self { releases: Vec::new(), names: Vec::new(), ..*self };
        for ((release, times), name) in self.releases.iter().zip(&self.names) {
            let plain = match *release {
                Release::Poisson { z, .. } | Release::FixedSize { z, .. } => {
                    Release::Gaussian { mu_squared: k * k / (z * z) }
                }
                other => other,
            };
            all.push(plain, name, *times);
        }
        all
    }

    /// The one Gaussian that all of it is, when it is.
    pub(super) fn only_gaussian(&self) -> Option<f64> {
        match self.releases[..] {
            [] => Some(0.0),
            [(Release::Gaussian { mu_squared }, _)] => Some(libm::sqrt(mu_squared)),
            _ => None,
        }
    }

    /// The zCDP parameter of all of it, when it has one.
    pub(super) fn rho(&self) -> Option<Rho> {
        if self.non_private.is_some() {
            return None;
        }
        let rho = self.releases.iter().try_fold(0.0, |sum, (release, times)| match release {
            Release::Gaussian { mu_squared } => Some(sum + 0.5 * mu_squared),
            Release::Zcdp { rho } => Some(sum + rho * *times as f64),
            _ => None,
        })?;
        Rho::new(rho).ok()
    }

    /// Refuses by name the first release that the accountant does not know.
    pub(super) fn refuse_unless(
        &self,
        accountant: AccountantKind,
        advice: &'static str,
        known: impl Fn(&Release) -> bool,
    ) -> Result<(), AccountError> {
        match self.releases.iter().position(|(release, _)| !known(release)) {
            None => Ok(()),
            Some(i) => Err(AccountError::Unsupported { accountant, event: self.names[i], advice }),
        }
    }
}
