//! The plan of secure aggregation in a phase: for how many devices, with at least how many survivors, and with whose noise.
//!
//! The graph's parameters are found when it is known how many devices came; here it is made sure that there are some for
//! every number that may come, that no sum can wrap, and that what vanishes in the simulation is within the plan. Where a cohort
//! is cut into groups, all of it holds for each group by itself.

use privacy::{
    Adjacency,
    encoding::{DistributedNoise, Encoding, NoisePlan, Survivors},
    stages::Residues,
};
use secagg::{
    masks::Shape,
    message::Traffic,
    parameters::{Adversary, Assumptions, Floor, Parameters, most_corrupted_in},
    session::{Inputs, Terms},
};

use crate::config::{AdversaryKind, Config, ConfigError, NoisePlace, ParticipationKind, SecAgg};

/// Standard deviations of the number of devices that are planned for: they are exceeded once in 10^8 rounds or less.
const DEVIATIONS: f64 = 6.0;

/// How many more devices a secure round takes than it needs, where they come.
const MORE_THAN_NEEDED: f64 = 1.3;

/// The fewest devices of a group: a sum over few says something about each.
const LEAST_GROUP: u32 = 10;

/// The most simulated spoilers: what more of them put into the padding could cancel.
const MOST_SPOILERS: u64 = 255;

/// The plan of secure aggregation in a phase.
#[derive(Debug, Clone)]
pub struct Secure {
    /// What the graph is to withstand: of a group, which can have more than its share of the corrupted devices.
    pub assumptions: Assumptions,
    /// The corrupted share of all devices.
    pub corrupted: f64,
    /// Groups of a round, each with a sum of its own.
    pub groups: u32,
    /// Devices of a group at least, when it begins.
    pub least_clients: u32,
    /// Devices of a group at most.
    pub most_clients: u32,
    /// Devices of a group below which no sum is opened.
    pub least_survivors: u32,
    /// The noise that devices add, where they do.
    pub noise: Option<DistributedNoise>,
}

impl Secure {
    /// For a phase with this many users per round, if the configuration asks for it.
    pub(super) fn new(config: &Config, cohort: u64) -> Result<Option<Self>, ConfigError> {
        let Some(said) = config.aggregation.secagg() else { return Ok(None) };
        let assumptions = assumptions(&said);
        assumptions.check().map_err(|e| ConfigError::new("secagg", e))?;
        if said.leave_out_after == 0 {
            return Err(ConfigError::new(
                "secagg.leave_out_after",
                "must be at least 1: no device is left out before a round has failed",
            ));
        }
        let (groups, whole) = (said.groups, range(config, cohort)?);
        let (fewest, most_clients) = of_group(groups, whole)?;
        let assumptions = in_groups(assumptions, groups, whole)?;
        let left = fewest - assumptions.most_dropped(fewest);
        let (floor, usual) = match config.data.is_on_devices() {
            // Of devices that come by themselves, the goal's reports are waited for: they are promised that a sum is of no fewer.
            true => (left.min(cohort as u32).max(2), left.min(cohort as u32).max(2)),
            false if groups > 1 => (LEAST_GROUP.min(left), left.max(2)),
            false => (2, left.max(2)),
        };
        let least_survivors = said.least_survivors.map_or(Ok(usual), |least| least_survivors(least, floor, left))?;
        if said.spoilers > MOST_SPOILERS {
            return Err(ConfigError::new("secagg.spoilers", format!("must be at most {MOST_SPOILERS}")));
        }
        check_vanishing(config, &assumptions, fewest)?;
        let corrupted = said.corrupted;
        let least_clients = fewest;
        let secure = Self { assumptions, corrupted, groups, least_clients, most_clients, least_survivors, noise: None };
        for clients in [fewest, most_clients] {
            secure.parameters(clients.into())?;
        }
        Ok(Some(secure))
    }

    /// With noise that the devices add: as much as `noise` says, of the honest survivors alone.
    pub(super) fn with_noise(
        self,
        encoding: &Encoding,
        noise: &NoisePlan,
        adjacency: Adjacency,
    ) -> Result<Self, ConfigError> {
        let corrupted = u64::from(self.assumptions.most_corrupted(self.most_clients));
        let survivors = Survivors { least: self.least_survivors.into(), corrupted };
        let noise = DistributedNoise::new(encoding, noise, adjacency, survivors)
            .map_err(|e| ConfigError::new("secagg.noise", e))?;
        Ok(Self { noise: Some(noise), ..self })
    }

    /// How vectors of an encoding become residues.
    ///
    /// # Errors
    /// When sums need more bits than there are.
    pub fn residues(&self, encoding: &Encoding) -> Result<Residues, ConfigError> {
        let most = self.most_clients.into();
        match &self.noise {
            None => Residues::new(encoding, most),
            Some(noise) => Residues::with_noise(encoding, most, noise),
        }
        .map_err(|e| ConfigError::new("aggregation", e))
    }

    /// Devices of a group, of so many of a round.
    #[must_use]
    pub fn of_group(&self, clients: u64) -> u64 {
        clients.div_ceil(self.groups.into())
    }

    /// The terms offered to the devices of a round.
    #[must_use]
    pub fn terms(&self, residues: &Residues, round: u64, task: [u8; 32], model: [u8; 32]) -> Terms {
        let inputs = match self.noise {
            None => Inputs::Bounded { largest: residues.largest() },
            Some(_) => Inputs::Noised,
        };
        Terms {
            task,
            model,
            round,
            assumptions: self.assumptions,
            most_clients: self.most_clients,
            least_survivors: self.least_survivors,
            dimension: residues.len() as u32,
            bits: residues.bits(),
            inputs,
            most_evidence: 0,
        }
    }

    /// The traffic of a device besides the model, in a group of this size.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn traffic(&self, residues: &Residues, clients: u64) -> Result<Traffic, ConfigError> {
        let wrong = |e: &dyn std::fmt::Display| ConfigError::new("aggregation", e);
        let parameters = self.parameters(clients)?;
        let shape = Shape::new(residues.len(), residues.bits()).map_err(|e| wrong(&e))?;
        Ok(Traffic::of(&parameters, &shape))
    }

    /// How so many devices are connected.
    ///
    /// # Errors
    /// When no graph of them withstands what it is to.
    pub fn parameters(&self, clients: u64) -> Result<Parameters, ConfigError> {
        let clients = u32::try_from(clients).unwrap_or(u32::MAX);
        let wrong = |e| {
            ConfigError::new(
                "secagg",
                format!("no communication graph of {clients} devices is secure under these assumptions: {e}"),
            )
        };
        Parameters::find(clients, &self.assumptions).map_err(wrong)
    }

    /// The floor of simulated devices: what the plan promises them.
    #[must_use]
    pub const fn floor(&self) -> Floor {
        let Assumptions { dropout, corrupted, security_bits, adversary, .. } = self.assumptions;
        Floor {
            clients: self.least_survivors,
            survivors: self.least_survivors,
            corrupted,
            dropout,
            security_bits,
            adversary,
        }
    }

    /// The protocol in words, and whom it trusts for what.
    #[must_use]
    pub fn words(&self, devices: bool) -> String {
        let between = if devices { "devices" } else { "simulated devices" };
        let Assumptions { dropout, security_bits, adversary, .. } = self.assumptions;
        format!(
            "SecAgg+ between {between}; {adversary} server{}, {:.1} % of \
             devices corrupted, {:.1} % dropping out, {security_bits} bits, no sum of fewer than {}{}",
            words_of(adversary),
            100.0 * self.corrupted,
            100.0 * dropout,
            self.least_survivors,
            self.words_of_groups()
        )
    }

    /// What groups mean, in words; nothing where there is one.
    fn words_of_groups(&self) -> String {
        let with_noise = if self.noise.is_some() { ", each with the full noise in it" } else { "" };
        match self.groups {
            1 => String::new(),
            groups => format!(
                "; in {groups} groups of at most {}, drawn with the cohort and planned for up to {} corrupted each: the server \
                 sees the sum of each group, not only of all{with_noise}",
                self.most_clients,
                self.assumptions.most_corrupted(self.most_clients)
            ),
        }
    }
}

/// What is believed of a server whose directory nobody else certifies.
const fn words_of(adversary: Adversary) -> &'static str {
    match adversary {
        Adversary::Curious => "",
        Adversary::SemiMalicious => ", honest until the directory is closed",
    }
}

fn assumptions(said: &SecAgg) -> Assumptions {
    Assumptions {
        dropout: said.dropout,
        corrupted: said.corrupted,
        security_bits: said.security_bits,
        failure_bits: said.failure_bits,
        adversary: match said.adversary {
            AdversaryKind::Curious => Adversary::Curious,
            AdversaryKind::SemiMalicious => Adversary::SemiMalicious,
        },
    }
}

/// The fewest and the most devices of a round. A Poisson cohort is of any size; so small or large ones do not happen.
fn range(config: &Config, cohort: u64) -> Result<(u32, u32), ConfigError> {
    let (mean, population) = (cohort as f64, config.participation.population as f64);
    if config.data.is_on_devices() {
        // So many that the goal is reached when as many drop out as may; more come where more are there.
        let dropout = config.aggregation.secagg().unwrap_or_default().dropout;
        let fewest = libm::ceil(mean / (1.0 - dropout)) + 1.0;
        let most = libm::ceil(fewest * MORE_THAN_NEEDED);
        if !(3.0..=f64::from(secagg::parameters::MOST_CLIENTS)).contains(&most) || fewest > population {
            let why = format!("a round of {cohort} reports needs {fewest} devices, but only {population} are declared");
            return Err(ConfigError::new("participation.population", why));
        }
        return Ok((fewest as u32, most.min(population) as u32));
    }
    let slack = match config.participation.kind {
        ParticipationKind::Poisson => libm::ceil(DEVIATIONS * libm::sqrt(mean)) + DEVIATIONS,
        _ => 0.0,
    };
    let most = (mean + slack).min(population);
    let fewest = mean - slack;
    if fewest < 3.0 {
        let why = format!(
            "a Poisson cohort of {cohort} can turn out too small to hide an update: use participation.kind = \"fixed-size\" or a larger cohort"
        );
        return Err(ConfigError::new("participation.cohort", why));
    }
    Ok((fewest as u32, most as u32))
}

/// The fewest and the most devices of a group.
fn of_group(groups: u32, (fewest, most): (u32, u32)) -> Result<(u32, u32), ConfigError> {
    if groups == 0 {
        return Err(ConfigError::new("secagg.groups", "must be at least 1"));
    }
    if groups > 1 && fewest / groups < LEAST_GROUP {
        let why = format!(
            "a round can have as few as {fewest} devices and a group as few as {}; the server sees the sum of each group, so a group must have at least {LEAST_GROUP}: use at most {} groups, or a larger cohort",
            fewest / groups,
            (fewest / LEAST_GROUP).max(1)
        );
        return Err(ConfigError::new("secagg.groups", why));
    }
    Ok((fewest / groups, most.div_ceil(groups)))
}

/// What a group is to withstand. Corrupted devices do not spread evenly over groups that are drawn at random: a group is planned
/// for as many as one of all groups has but once in 2^sigma rounds.
fn in_groups(said: Assumptions, groups: u32, (fewest, most): (u32, u32)) -> Result<Assumptions, ConfigError> {
    if groups == 1 {
        return Ok(said);
    }
    let bits = said.security_bits + groups.next_power_of_two().ilog2();
    let share = |clients: u32, group: u32| {
        f64::from(most_corrupted_in(clients, said.most_corrupted(clients), group, bits)) / f64::from(group)
    };
    let (small, large) = of_group(groups, (fewest, most))?;
    let shares = [share(fewest, small), share(most, large), share(most, small)];
    let corrupted = shares.into_iter().fold(said.corrupted, f64::max);
    let group = Assumptions { corrupted, ..said };
    group.check().map_err(|e| {
        let why = format!(
            "a randomly drawn group can have {:.0} % corrupted devices: {e}; use fewer groups or a larger cohort",
            100.0 * corrupted
        );
        ConfigError::new("secagg.groups", why)
    })?;
    Ok(group)
}

fn least_survivors(least: u64, floor: u32, left: u32) -> Result<u32, ConfigError> {
    u32::try_from(least).ok().filter(|least| (floor..=left).contains(least)).ok_or_else(|| {
        let why = format!(
            "must be from {floor} (a smaller sum would hide nobody, or fewer than promised) to {left} (what remains of the smallest group after the allowed drop-outs)"
        );
        ConfigError::new("secagg.least_survivors", why)
    })
}

/// A simulation in which more vanish than the graph is for would end in a failed round.
fn check_vanishing(config: &Config, assumptions: &Assumptions, clients: u32) -> Result<(), ConfigError> {
    let share = config.participation.vanish();
    let n = f64::from(clients);
    let many = share + DEVIATIONS * libm::sqrt(share * (1.0 - share) / n);
    if share > 0.0 && many * n > f64::from(assumptions.most_dropped(clients)) {
        let why = format!(
            "of {clients} devices, up to {:.0} can drop out in some round, but secagg.dropout = {} allows only {}: raise it to {:.2} or more, or lower this",
            libm::ceil(many * n),
            assumptions.dropout,
            assumptions.most_dropped(clients),
            libm::ceil((many + 1.0 / n) * 100.0) / 100.0
        );
        return Err(ConfigError::new("participation.vanish", why));
    }
    Ok(())
}

/// Whether devices are to add the noise.
pub(super) fn is_distributed(config: &Config) -> bool {
    config.aggregation.secagg().is_some_and(|secagg| secagg.noise == NoisePlace::Distributed)
}
