//! How a round's updates are added up: in the clear, or securely.

use serde::{Deserialize, Serialize};

use super::keys::{Section, Visit, key};

/// How a round's updates are added up.
#[derive(Debug, Clone, PartialEq)]
pub enum Aggregation {
    /// In the clear.
    Plain,
    /// By secure aggregation: single updates are seen by nobody. With the section `[secagg]`, where there is one.
    Secagg(Option<SecAgg>),
}

impl Aggregation {
    /// Whether single updates are seen by nobody.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        matches!(self, Self::Secagg(_))
    }

    /// What secure aggregation is to withstand, where sums are secure: as was said, and the usual otherwise.
    #[must_use]
    pub fn secagg(&self) -> Option<SecAgg> {
        match self {
            Self::Plain => None,
            Self::Secagg(said) => Some(said.clone().unwrap_or_default()),
        }
    }
}

/// What secure aggregation is to withstand, and who adds the noise.
#[derive(Debug, Clone, PartialEq)]
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
    pub least_survivors: Option<u64>,
    /// Who adds the noise.
    pub noise: NoisePlace,
    /// Groups of a cohort, each with a secure sum of its own; the server sees the sum of each.
    pub groups: u32,
    /// F: who was asked for so many attempts that failed is not asked any more, where devices come by themselves.
    pub leave_out_after: u64,
    /// Users, those with the lowest numbers, who spoil every sum that they take part in; of the simulation.
    pub spoilers: u64,
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

impl Section for SecAgg {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let usual = Self::default();
        let adversary = "the server: \"curious\", or \"semi-malicious\", which lies about who vanished";
        visit.or(&key("adversary", "\"curious\"", adversary), &mut self.adversary, usual.adversary);
        let dropout = key("dropout", "0.1", "the share of devices that may vanish");
        visit.or(&dropout, &mut self.dropout, usual.dropout);
        let corrupted = key("corrupted", "0.33", "the share that may be on the server's side; a third if not said");
        visit.or(&corrupted, &mut self.corrupted, usual.corrupted);
        let security = key("security_bits", "40", "an update is seen once in 2^this rounds");
        visit.or(&security, &mut self.security_bits, usual.security_bits);
        let failure = key("failure_bits", "20", "a round fails once in 2^this");
        visit.or(&failure, &mut self.failure_bits, usual.failure_bits);
        let least =
            key("least_survivors", "450", "devices below which no sum is opened; of real devices at least the goal");
        visit.may(&least, &mut self.least_survivors);
        let noise = key("noise", "\"central\"", "\"central\", or \"distributed\": the devices add it");
        visit.or(&noise, &mut self.noise, usual.noise);
        let groups = key("groups", "1", "groups of a round; the server sees the sum of each");
        visit.or(&groups, &mut self.groups, usual.groups);
        let leave_out = "who was in so many failed rounds is not asked again; of \"arrival\" and \"once\"";
        visit.or(&key("leave_out_after", "3", leave_out), &mut self.leave_out_after, usual.leave_out_after);
        let spoilers = key("spoilers", "1", "users who spoil every sum that they take part in, in the simulation");
        visit.rare(&spoilers, &mut self.spoilers, 0);
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
