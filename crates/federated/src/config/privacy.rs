//! `[privacy]`: the noise and the guarantee.

use privacy::{
    AccountantKind,
    design::{Design, SizeOf},
};
use serde::{Deserialize, Serialize};

use super::{
    keys::{ByKind, Section, Usual, Visit, key},
    mechanism::MechanismKind,
};

/// The noise and the guarantee, with accounting and encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct Privacy {
    /// The noise, and the guarantee it should give.
    pub mechanism: Mechanism,
    /// The accountant that computes the cost of the run.
    pub accountant: AccountantKind,
    /// How many units are protected together, such as the devices of one person.
    pub group: u32,
    /// k: the grid step is clip / 2^k; 20 by default.
    pub grid_bits: Option<u32>,
    /// Whether updates are rotated before they are rounded (Xu et al. 2023, Algorithm 2).
    pub rotation: bool,
    /// How updates are rounded to the grid.
    pub rounding: RoundingKind,
}

/// The noise of a run. Each kind holds what it can use, and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub enum Mechanism {
    /// None: the baseline, at an infinite epsilon.
    None {
        /// The delta that the ledger states; half of 1/population by default.
        delta: Option<f64>,
    },
    /// Independent in every round.
    Gaussian(Noise),
    /// Correlated over rounds (DP-FTRL).
    Correlated(CorrelatedNoise),
}

/// The amount of noise, and a limit on epsilon.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Noise {
    /// z: the standard deviation over the sensitivity.
    pub multiplier: f64,
    /// delta of the guarantee.
    pub delta: f64,
    /// The largest epsilon that the run may cost (rule P14).
    pub max_epsilon: Option<f64>,
}

/// Noise that is correlated by a design. Only designs that have a size or a completion can set them.
#[derive(Debug, Clone, PartialEq)]
pub struct CorrelatedNoise {
    design: &'static Design,
    size: Option<usize>,
    tree_completion: bool,
    /// How much noise, and the guarantee it should give.
    pub noise: Noise,
    /// Rounds at which it starts afresh.
    pub restarts: Vec<u64>,
}

impl CorrelatedNoise {
    /// Noise of a design. The size is ignored if the design has none.
    #[must_use]
    pub fn new(design: &'static Design, noise: Noise, size: Option<usize>) -> Self {
        let size = size.filter(|_| design.size.is_some());
        Self { design, size, tree_completion: false, noise, restarts: Vec::new() }
    }

    /// The design of the correlated noise.
    #[must_use]
    pub const fn design(&self) -> &'static Design {
        self.design
    }

    /// The size of its matrix: as set, or the design's default; none if the design has no size.
    #[must_use]
    pub fn size(&self) -> Option<usize> {
        self.size.or_else(|| self.design.size.and_then(|size| size.default))
    }

    /// Whether trees are completed with empty rounds.
    #[must_use]
    pub const fn completes_trees(&self) -> bool {
        self.tree_completion
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.rare(
            &key("restarts", "[128]", "rounds at which the noise starts afresh"),
            &mut self.restarts,
            Vec::new(),
        );
        if self.design.completes {
            let completion = key("tree_completion", "true", "fill up trees with empty rounds before a restart");
            visit.rare(&completion, &mut self.tree_completion, false);
        }
        let Some(size) = self.design.size else { return };
        let example = size.usual.to_string();
        let says = match size.of {
            SizeOf::Bands => "bands of the matrix; at most the distance between two participations",
            SizeOf::Buffers => "number of buffers, each with its own decay rate",
        };
        let said = key(size.of.name(), &example, says).because(size.advice);
        match (&mut self.size, size.default) {
            (said_size, Some(_)) => visit.may(&said, said_size),
            (said_size, None) => {
                let mut bands = said_size.unwrap_or(0);
                visit.need(&said, &mut bands);
                *said_size = Some(bands);
            }
        }
    }
}

/// How updates are rounded to the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundingKind {
    /// To the nearest integer: for a fine grid.
    #[default]
    Nearest,
    /// Up or down at random, without bias, until the norm is within its bound: for a coarse grid (Xu et al. 2023,
    /// Algorithm 2).
    Conditional,
}

impl Privacy {
    /// The noise by name.
    #[must_use]
    pub const fn kind(&self) -> MechanismKind {
        match &self.mechanism {
            Mechanism::None { .. } => MechanismKind::None,
            Mechanism::Gaussian(_) => MechanismKind::Gaussian,
            Mechanism::Correlated(noise) => MechanismKind::Correlated(noise.design),
        }
    }

    /// How much noise there is, if any.
    #[must_use]
    pub const fn noise(&self) -> Option<&Noise> {
        match &self.mechanism {
            Mechanism::None { .. } => None,
            Mechanism::Gaussian(noise) => Some(noise),
            Mechanism::Correlated(correlated) => Some(&correlated.noise),
        }
    }

    /// The same, to be changed.
    pub const fn noise_mut(&mut self) -> Option<&mut Noise> {
        match &mut self.mechanism {
            Mechanism::None { .. } => None,
            Mechanism::Gaussian(noise) => Some(noise),
            Mechanism::Correlated(correlated) => Some(&mut correlated.noise),
        }
    }

    /// How the noise is correlated, if it is.
    #[must_use]
    pub const fn correlated(&self) -> Option<&CorrelatedNoise> {
        match &self.mechanism {
            Mechanism::None { .. } | Mechanism::Gaussian(_) => None,
            Mechanism::Correlated(correlated) => Some(correlated),
        }
    }

    /// Whether there is no noise.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self.mechanism, Mechanism::None { .. })
    }

    /// delta, if it was set.
    #[must_use]
    pub const fn delta(&self) -> Option<f64> {
        match (&self.mechanism, self.noise()) {
            (Mechanism::None { delta }, _) => *delta,
            (_, Some(noise)) => Some(noise.delta),
            (_, None) => None,
        }
    }

    /// The largest epsilon that the run may cost, if it was set.
    #[must_use]
    pub fn max_epsilon(&self) -> Option<f64> {
        self.noise().and_then(|noise| noise.max_epsilon)
    }

    /// Rounds at which correlated noise starts afresh.
    #[must_use]
    pub fn restarts(&self) -> &[u64] {
        self.correlated().map_or(&[], |correlated| &correlated.restarts)
    }
}

impl Section for Privacy {
    fn unsaid() -> Self {
        Self {
            mechanism: Mechanism::Gaussian(Noise::default()),
            accountant: AccountantKind::Best,
            group: 1,
            grid_bits: None,
            rotation: false,
            rounding: RoundingKind::Nearest,
        }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.choose(&key("mechanism", "\"gaussian\"", "kind of noise"), self, Usual::None);
        let z = key("noise_multiplier", "1.0", "z: standard deviation of the noise over the sensitivity");
        let delta = key("delta", "1e-7", "delta of the guarantee; well below 1/population");
        let delta = delta.because("a guarantee needs a delta, well below 1/population");
        match &mut self.mechanism {
            Mechanism::None { delta: said } => visit.may(&delta, said),
            Mechanism::Gaussian(noise) | Mechanism::Correlated(CorrelatedNoise { noise, .. }) => {
                visit.need(&z, &mut noise.multiplier);
                visit.need(&delta, &mut noise.delta);
            }
        }
        let accountant = key("accountant", "\"best\"", "\"best\", or the name of one, as in `keyhush privacy epsilon`");
        visit.or(&accountant, &mut self.accountant, AccountantKind::Best);
        let group = key("group", "1", "units protected together, such as the devices of one person");
        visit.or(&group, &mut self.group, 1);
        if let Some(noise) = self.noise_mut() {
            let most = key("max_epsilon", "8.0", "stop before the round that would exceed it");
            visit.may(&most, &mut noise.max_epsilon);
        }
        if let Mechanism::Correlated(correlated) = &mut self.mechanism {
            correlated.keys(visit);
        }
        visit.may(&key("grid_bits", "20", "k: updates are rounded to a grid of step clip / 2^k"), &mut self.grid_bits);
        let rotation = key("rotation", "true", "rotate updates before rounding (Xu et al. 2023, Algorithm 2)");
        visit.rare(&rotation, &mut self.rotation, false);
        let rounding = key("rounding", "\"conditional\"", "\"conditional\": random and unbiased, for a coarse grid");
        visit.rare(&rounding, &mut self.rounding, RoundingKind::Nearest);
    }
}

impl ByKind for Privacy {
    fn kinds() -> Vec<&'static str> {
        MechanismKind::all().map(MechanismKind::name).collect()
    }

    fn kind_name(&self) -> &'static str {
        self.kind().name()
    }

    fn turn(&mut self, kind: &str) -> bool {
        let Some(kind) = MechanismKind::named(kind) else { return false };
        self.mechanism = match kind {
            MechanismKind::None => Mechanism::None { delta: None },
            MechanismKind::Gaussian => Mechanism::Gaussian(Noise::default()),
            MechanismKind::Correlated(design) => {
                Mechanism::Correlated(CorrelatedNoise::new(design, Noise::default(), None))
            }
        };
        true
    }
}
