//! How a round's updates are added up: in the clear, or securely.

use serde::{Deserialize, Serialize};

/// How a round's updates are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregationKind {
    /// In the clear.
    #[default]
    Plain,
    /// By secure aggregation: single updates are seen by nobody.
    Secagg,
}

impl AggregationKind {
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// What secure aggregation is to withstand, and who adds the noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecAgg {
    /// What the server may do.
    pub adversary: AdversaryKind,
    /// delta: the share of a round's devices that may vanish.
    pub dropout: f64,
    /// gamma: the share that may be on the server's side.
    pub corrupted: f64,
    /// sigma: an update is seen with a chance of at most 2^-sigma.
    pub security_bits: u32,
    /// eta: a round fails for want of shares with a chance of at most 2^-eta.
    pub failure_bits: u32,
    /// Devices below which no sum is opened; what is left when as many vanish as may, if not said. Of devices that come by themselves it is the
    /// goal, and never less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_survivors: Option<u64>,
    /// Who adds the noise.
    pub noise: NoisePlace,
    /// Groups of a cohort, each with a secure sum of its own; the server sees the sum of each.
    pub groups: u32,
    /// F: who was asked for so many attempts that failed is not asked any more, where devices come by themselves.
    pub leave_out_after: u64,
    /// Users, those with the lowest numbers, who spoil every sum that they take part in; of the simulation.
    #[serde(skip_serializing_if = "is_zero")]
    pub spoilers: u64,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Default for SecAgg {
    fn default() -> Self {
        Self {
            adversary: AdversaryKind::Curious,
            dropout: 0.1,
            corrupted: 1.0 / 3.0,
            security_bits: 40,
            failure_bits: 20,
            least_survivors: None,
            noise: NoisePlace::Central,
            groups: 1,
            leave_out_after: 3,
            spoilers: 0,
        }
    }
}

/// What the server of a secure aggregation may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdversaryKind {
    /// It keeps to the protocol and looks at everything.
    #[default]
    Curious,
    /// It may also lie about who vanished.
    SemiMalicious,
}

/// Who adds the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoisePlace {
    /// The server, to the sum.
    #[default]
    Central,
    /// The devices, each a share of it: nobody ever holds a sum without noise.
    Distributed,
}
