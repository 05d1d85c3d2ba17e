//! `aggregation`: plain sums or secure aggregation.

use serde::{Deserialize, Serialize};

use super::keys::{Section, Visit, key};

/// How a round's updates are aggregated.
#[derive(Debug, Clone, PartialEq)]
pub enum Aggregation {
    /// Plain sums: the server sees single updates.
    Plain,
    /// By secure aggregation: nobody sees a single update. Holds the section `[secagg]`, if there is one.
    Secagg(Option<SecAgg>),
}

impl Aggregation {
    /// Whether updates are added by secure aggregation, so that nobody sees a single one.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        matches!(self, Self::Secagg(_))
    }

    /// The settings of secure aggregation, if it is used: the section `[secagg]`, or its defaults.
    #[must_use]
    pub fn secagg(&self) -> Option<SecAgg> {
        match self {
            Self::Plain => None,
            Self::Secagg(said) => Some(said.clone().unwrap_or_default()),
        }
    }
}

/// The threat model of secure aggregation, and who adds the noise.
#[derive(Debug, Clone, PartialEq)]
pub struct SecAgg {
    /// What the server may do.
    pub adversary: AdversaryKind,
    /// delta: the largest share of a round's devices that may drop out.
    pub dropout: f64,
    /// gamma: the largest share of devices that may collude with the server.
    pub corrupted: f64,
    /// sigma: an update is exposed with probability at most 2^-sigma.
    pub security_bits: u32,
    /// eta: a round fails for lack of shares with probability at most 2^-eta.
    pub failure_bits: u32,
    /// No sum of fewer devices is opened. By default, what is left when as many drop out as may. With real devices it is at least the report
    /// goal.
    pub least_survivors: Option<u64>,
    /// Who adds the noise: the server or the devices.
    pub noise: NoisePlace,
    /// Groups per round, each with its own secure sum; the server sees the sum of each group.
    pub groups: u32,
    /// F: a device that was in this many failed attempts is not asked again; only where devices come by themselves.
    pub leave_out_after: u64,
    /// Simulations only: the users with the lowest numbers, this many, spoil every sum that they take part in.
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
        let adversary = "\"curious\", or \"semi-malicious\": a server that may lie about who dropped out";
        visit.or(&key("adversary", "\"curious\"", adversary), &mut self.adversary, usual.adversary);
        let dropout = key("dropout", "0.1", "largest share of devices that may drop out of a round");
        visit.or(&dropout, &mut self.dropout, usual.dropout);
        let corrupted =
            key("corrupted", "0.33", "largest share of devices that may collude with the server; default: 1/3");
        visit.or(&corrupted, &mut self.corrupted, usual.corrupted);
        let security = key("security_bits", "40", "an update is exposed with probability at most 2^-this");
        visit.or(&security, &mut self.security_bits, usual.security_bits);
        let failure = key("failure_bits", "20", "a round fails for lack of shares with probability at most 2^-this");
        visit.or(&failure, &mut self.failure_bits, usual.failure_bits);
        let least = key(
            "least_survivors",
            "450",
            "smallest number of devices in a sum; with real devices at least the report goal",
        );
        visit.may(&least, &mut self.least_survivors);
        let noise = key(
            "noise",
            "\"central\"",
            "who adds the noise: \"central\" (the server) or \"distributed\" (the devices)",
        );
        visit.or(&noise, &mut self.noise, usual.noise);
        let groups = key("groups", "1", "groups per round, each with its own secure sum; the server sees each sum");
        visit.or(&groups, &mut self.groups, usual.groups);
        let leave_out = "devices in so many failed rounds are not asked again; with \"arrival\" and \"once\"";
        visit.or(&key("leave_out_after", "3", leave_out), &mut self.leave_out_after, usual.leave_out_after);
        let spoilers = key("spoilers", "1", "simulations only: users who spoil every sum that they take part in");
        visit.rare(&spoilers, &mut self.spoilers, 0);
    }
}

/// The adversary class of the server in secure aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdversaryKind {
    /// It keeps to the protocol and looks at everything.
    #[default]
    Curious,
    /// It may also lie about who dropped out.
    SemiMalicious,
}

/// Who adds the noise: the server or the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoisePlace {
    /// The server, to the sum.
    #[default]
    Central,
    /// The devices, each a share of it: nobody ever holds a sum without noise.
    Distributed,
}
