//! Proposes settings for a target epsilon: report goal, noise, participation limits, timer and mechanism, by the recipes of the papers.
//!
//! Andrew et al. 2021, section 4: find by small experiments on public data which noise z a model bears at a small cohort m;
//! then scale both by the same factor until the privacy target is met. Xu et al. 2023, section 2.5, do the same for DP-FTRL:
//! raise report goal and noise together, as far as the system can serve it; where that is not enough, stay at the largest
//! report goal and take more noise than the model bears well. MinS is then as large as the population allows, and devices
//! wait for it by a timer.
//!
//! So the question at a report goal is how much noise the target needs ([`Candidate`]), and the proposal is the smallest
//! report goal at which a model bears that noise.

mod candidate;
mod settings;
#[cfg(test)]
mod tests;

use privacy::{
    Delta, Epsilon, UnitError, calibrate::CalibrateError, design::DESIGNS, factorization::FactorizationError,
};
use serde::Serialize;
use thiserror::Error;

use self::candidate::Family;
pub use self::{
    candidate::{Candidate, mechanisms},
    settings::{beginning, settings},
};
use crate::{
    config::{ConfigError, MechanismKind},
    numbers::counted,
};

/// The report goal that Xu et al. 2023 had their system serve.
pub const SERVED: u64 = 6500;
/// Rounds of a day: the median over Xu et al. 2023, Table 1, of MinS by the days of the timer.
pub const ROUNDS_PER_DAY: f64 = 86.0;
/// A proposal that needs more than so many times the noise that a model bears is none.
const HOPELESS: f64 = 10.0;
/// An epsilon that is no alternative.
const VACUOUS: f64 = 100.0;
/// Report goals of the trade-off, in steps of one, two and five; the largest is what the system can serve.
const GOALS: usize = 8;

/// The target of a proposal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ask {
    /// The most that the run may cost.
    pub epsilon: Epsilon,
    /// The delta of the target.
    pub delta: Delta,
    /// N: how many users there are, as declared.
    pub population: u64,
    /// T.
    pub rounds: u64,
    /// The largest report goal that the system can serve.
    pub largest_cohort: u64,
    /// This report goal, instead of the smallest that will do.
    pub cohort: Option<u64>,
    /// This MinS, instead of the largest that the population allows.
    pub min_separation: Option<u64>,
    /// The largest MaxP allowed.
    pub max_participations: Option<u64>,
    /// z / m that a model bears, instead of the papers'; it is that of one mechanism.
    pub noise_ratio: Option<f64>,
    /// This mechanism, instead of the best for users who come when they can.
    pub mechanism: Option<MechanismKind>,
    /// Rounds of a day, for the timer.
    pub rounds_per_day: f64,
}

impl Ask {
    /// A target with nothing else said; delta is N^-1.1 as in Andrew et al. 2021, rounded down to three digits.
    ///
    /// # Errors
    /// When there are fewer than two users.
    pub fn new(epsilon: Epsilon, population: u64, rounds: u64) -> Result<Self, ProposeError> {
        if population < 2 {
            return Err(ProposeError::new("population", "at least 2 users are needed"));
        }
        Ok(Self {
            epsilon,
            delta: Delta::new(three_digits((population as f64).powf(-1.1))).map_err(ProposeError::unit("delta"))?,
            population,
            rounds,
            largest_cohort: SERVED.min(population),
            cohort: None,
            min_separation: None,
            max_participations: None,
            noise_ratio: None,
            mechanism: None,
            rounds_per_day: ROUNDS_PER_DAY,
        })
    }

    fn check(&self) -> Result<(), ProposeError> {
        let refuse = |field: &'static str, problem: &str| Err(ProposeError::new(field, problem));
        if !(self.epsilon.is_finite() && self.epsilon.get() > 0.0) {
            return refuse("epsilon", "must be finite and above 0");
        }
        if self.rounds == 0 || self.rounds > privacy::factorization::MAX_ROUNDS {
            return refuse("rounds", "must be from 1 to 1048576");
        }
        if self.delta.get() * self.population as f64 >= 1.0 {
            return refuse("delta", "must be below 1/population; otherwise a run may publish one user's data");
        }
        if self.largest_cohort == 0 || self.cohort == Some(0) {
            return refuse("cohort", "must be at least 1");
        }
        if self.max_participations == Some(0) {
            return refuse("max_participations", "must be at least 1");
        }
        if self.mechanism == Some(MechanismKind::None) {
            return refuse("mechanism", "has no noise, and so no epsilon");
        }
        if self.mechanism == Some(MechanismKind::Gaussian)
            && (self.min_separation.is_some() || self.max_participations.is_some())
        {
            return refuse("mechanism", "gaussian samples users at random, so MinS and MaxP cannot be used with it");
        }
        if let Some(ratio) = self.noise_ratio {
            if !(ratio.is_finite() && ratio > 0.0) {
                return refuse("noise_ratio", "must be finite and above 0");
            }
            if self.mechanism.is_none() {
                return refuse("noise_ratio", "depends on the mechanism; add --mechanism");
            }
        }
        if !(self.rounds_per_day.is_finite() && self.rounds_per_day > 0.0) {
            return refuse("rounds_per_day", "must be finite and above 0");
        }
        Ok(())
    }
}

/// Why there is no proposal.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProposeError {
    /// Something that was asked cannot be had; what can is said.
    #[error("{field}: {problem}")]
    Refused {
        /// The field that was refused.
        field: &'static str,
        /// Why not, and what instead.
        problem: String,
    },
    /// The accountants.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    /// The matrices.
    #[error(transparent)]
    Factorization(#[from] FactorizationError),
    /// The settings that it would be written into.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ProposeError {
    fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Refused { field, problem: problem.into() }
    }

    fn unit(field: &'static str) -> impl Fn(UnitError) -> Self {
        move |error| Self::new(field, error.problem())
    }
}

/// A proposal, and the candidates it was chosen from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proposal {
    /// The target.
    pub asked: Ask,
    /// The chosen candidate.
    pub chosen: Candidate,
    /// Why it was chosen.
    pub reason: String,
    /// How long a device waits after it took part, in hours, so that it is back for its next round; none with sampling, and
    /// where nobody comes back.
    pub timer_hours: Option<f64>,
    /// What every mechanism would be proposed with.
    pub best: Vec<Candidate>,
    /// What the target needs, by mechanism and report goal.
    pub trade_off: Vec<Candidate>,
    /// Warnings about the proposal.
    pub warnings: Vec<String>,
}

/// Proposes how to meet a target.
///
/// # Errors
/// When it cannot be met with noise that a model bears, or at all; what could be is said.
pub fn propose(ask: &Ask) -> Result<Proposal, ProposeError> {
    ask.check()?;
    let shown = match (ask.mechanism, ask.min_separation.or(ask.max_participations)) {
        (Some(one), _) => vec![one],
        (None, Some(_)) => correlated().collect(),
        (None, None) => [MechanismKind::Gaussian].into_iter().chain(correlated()).collect(),
    };
    let mut families = shown.into_iter().map(|one| Family::new(ask, one)).collect::<Result<Vec<_>, _>>()?;
    check_feasible(ask, &families)?;
    families.sort_by_key(|family| u8::from(!family.is_sampled()));
    let trade_off = trade_off(ask, &families)?;
    let best = families.iter().map(|family| smallest(ask, family, &trade_off)).collect::<Result<Vec<_>, _>>()?;
    let (number, chosen) = choose(ask, &best)?;
    let family = &families[number];
    if chosen.times_bearable() > HOPELESS {
        let problem = format!(
            "at a report goal of {} this needs {:.0} times the noise that a model tolerates (z/m = {:.2e} instead of {:.2e}); {}",
            chosen.cohort,
            chosen.times_bearable(),
            chosen.noise_ratio,
            chosen.bearable_noise_ratio,
            instead(ask, family, &chosen)?
        );
        return Err(ProposeError::new("epsilon", problem));
    }
    let warnings = warnings(ask, family, &chosen)?;
    let reason = reason(ask, &chosen, &best);
    let comes_back = chosen.max_participations.is_some_and(|often| often > 1);
    let timer_hours = chosen.min_separation.filter(|_| comes_back).map(|rounds| timer(rounds, ask.rounds_per_day));
    Ok(Proposal { asked: ask.clone(), chosen, reason, timer_hours, best, trade_off, warnings })
}

/// The largest report goal that system and population allow.
fn largest(ask: &Ask, family: &Family<'_>) -> u64 {
    ask.largest_cohort.min(family.most())
}

/// Refuses limits that the population cannot keep (rule P6).
fn check_feasible(ask: &Ask, families: &[Family<'_>]) -> Result<(), ProposeError> {
    let most = families.iter().map(Family::most).min().unwrap_or(0);
    let least = ask.cohort.unwrap_or(1);
    if least <= most {
        return Ok(());
    }
    let Ask { population, rounds, .. } = *ask;
    if least > population {
        let problem = format!("must be at most the population of {population}, got {least}");
        return Err(ProposeError::new("cohort", problem));
    }
    if let Some(separation) = ask.min_separation
        && u128::from(least) * u128::from(separation.saturating_add(1).min(rounds)) > u128::from(population)
    {
        let problem = format!(
            "{} cannot fill rounds of {least} with {} between two participations: the population allows at most {}",
            counted(population, "user"),
            counted(separation, "round"),
            population / least - 1
        );
        return Err(ProposeError::new("min_separation", problem));
    }
    let often = ask.max_participations.unwrap_or(rounds);
    let possible = u128::from(population) * u128::from(often) / u128::from(least);
    let problem = format!(
        "{} with at most {} each cannot fill {} of {least}: the population allows at most {} in total, or a report goal of {most}",
        counted(population, "user"),
        counted(often, "participation"),
        counted(rounds, "round"),
        counted(u64::try_from(possible).unwrap_or(u64::MAX), "round"),
    );
    Err(ProposeError::new("rounds", problem))
}

/// The smallest report goal, to two digits, at which a model bears the noise, or else the one that comes closest: for all but
/// the smallest populations the largest that can be served.
fn smallest(ask: &Ask, family: &Family<'_>, trade_off: &[Candidate]) -> Result<Candidate, ProposeError> {
    if let Some(cohort) = ask.cohort {
        return family.at(cohort);
    }
    let own: Vec<&Candidate> = trade_off.iter().filter(|one| one.mechanism == family.mechanism).collect();
    if let Some(first) = own.iter().position(|one| one.is_bearable()) {
        let too_few = first.checked_sub(1).map_or(0, |before| own[before].cohort);
        return smallest_bearable(family, too_few, own[first].clone());
    }
    let closest = own.into_iter().min_by(|a, b| a.times_bearable().total_cmp(&b.times_bearable()));
    closest.map_or_else(|| family.at(largest(ask, family)), |one| Ok(one.clone()))
}

/// Bisects between a report goal that will not do and one that will.
fn smallest_bearable(family: &Family<'_>, too_few: u64, mut enough: Candidate) -> Result<Candidate, ProposeError> {
    let (mut too_few, mut high) = (place(too_few), place(enough.cohort));
    while high > too_few + 1 {
        let middle = too_few.midpoint(high);
        let one = family.at(two_digits(middle).min(family.most()))?;
        if one.is_bearable() {
            high = middle;
            enough = one;
        } else {
            too_few = middle;
        }
    }
    Ok(enough)
}

/// Rounded down, and read as it would be written.
fn three_digits(number: f64) -> f64 {
    let exponent = number.log10().floor() as i32 - 2;
    let mantissa = (number / 10f64.powi(exponent)).floor();
    format!("{mantissa}e{exponent}").parse().unwrap_or(number)
}

/// The numbers of two digits, in their order: 1 to 99, then 100, 110, ...
fn two_digits(place: u64) -> u64 {
    if place < 100 {
        return place.max(1);
    }
    let (decade, rest) = ((place - 100) / 90, (place - 100) % 90);
    10u64.saturating_pow(u32::try_from(decade).unwrap_or(u32::MAX).saturating_add(1)).saturating_mul(10 + rest)
}

/// The place of the first that is at least so large; 0 comes before all.
fn place(number: u64) -> u64 {
    if number == 0 { 0 } else { (1..).find(|place| two_digits(*place) >= number).unwrap_or(0) }
}

/// What the target needs over a range of report goals (Xu et al. 2023, Figure 4).
fn trade_off(ask: &Ask, families: &[Family<'_>]) -> Result<Vec<Candidate>, ProposeError> {
    let mut all = Vec::new();
    for family in families {
        let most = largest(ask, family);
        let mut goals: Vec<u64> =
            (0..=18).flat_map(|e| [1, 2, 5].map(|d| d * 10u64.pow(e))).take_while(|goal| *goal < most).collect();
        goals.drain(..goals.len().saturating_sub(GOALS - 1));
        for goal in goals.into_iter().chain([most]) {
            all.push(family.at(goal)?);
        }
    }
    Ok(all)
}

/// Which of the best is proposed: what was asked for, or the least noise of those for users who come when they can.
fn choose(ask: &Ask, best: &[Candidate]) -> Result<(usize, Candidate), ProposeError> {
    let allowed = |one: &&(usize, &Candidate)| ask.mechanism.is_some() || one.1.mechanism != MechanismKind::Gaussian;
    let rank = |one: &Candidate| (!one.is_bearable(), one.cohort, one.model_noise);
    let all: Vec<_> = best.iter().enumerate().collect();
    let least = all.iter().filter(allowed).min_by(|a, b| {
        let ((a_bad, a_goal, a_noise), (b_bad, b_goal, b_noise)) = (rank(a.1), rank(b.1));
        (a_bad, a_goal).cmp(&(b_bad, b_goal)).then(a_noise.total_cmp(&b_noise))
    });
    let (number, chosen) = least.ok_or_else(|| ProposeError::new("mechanism", "none is possible"))?;
    Ok((*number, (*chosen).clone()))
}

/// What of the ask would have to change so that a model bears the noise.
fn instead(ask: &Ask, family: &Family<'_>, chosen: &Candidate) -> Result<String, ProposeError> {
    let mut ways = Vec::new();
    if chosen.epsilon_if_bearable.get() < VACUOUS {
        ways.push(format!("an epsilon of {:.3}", chosen.epsilon_if_bearable.get()));
    }
    if let Some(rounds) = fewer_rounds(ask, family.mechanism, chosen.cohort)? {
        ways.push(format!("at most {}", counted(rounds, "round")));
    }
    let most = family.at(family.most())?;
    if ask.cohort.is_none() && most.is_bearable() {
        ways.push(format!("a report goal of {}", smallest_bearable(family, chosen.cohort, most)?.cohort));
    }
    if chosen.max_participations != Some(1) {
        ways.push("a larger population".to_owned());
    }
    let last = ways.pop().unwrap_or_else(|| "a server that can handle more users per round".to_owned());
    Ok(format!("possible instead: {}{}{last}", ways.join(", "), if ways.is_empty() { "" } else { ", or " }))
}

/// The most rounds, to two digits, that are paid for by noise that a model bears.
fn fewer_rounds(ask: &Ask, mechanism: MechanismKind, cohort: u64) -> Result<Option<u64>, ProposeError> {
    let (mut enough, mut too_many) = (0, place(ask.rounds));
    while too_many > enough + 1 {
        let middle = enough.midpoint(too_many);
        let shorter = Ask { rounds: two_digits(middle), ..ask.clone() };
        let bears = Family::new(&shorter, mechanism)?.at(cohort)?.is_bearable();
        if bears { enough = middle } else { too_many = middle }
    }
    Ok((enough > 0).then(|| two_digits(enough)))
}

fn warnings(ask: &Ask, family: &Family<'_>, chosen: &Candidate) -> Result<Vec<String>, ProposeError> {
    let mut warnings = Vec::new();
    if !chosen.is_bearable() {
        warnings.push(format!(
            "this is {:.1} times the noise that a model tolerates, so expect lower accuracy (Xu et al. 2023, section 2.5, step 3); {}",
            chosen.times_bearable(),
            instead(ask, family, chosen)?
        ));
    }
    if let (Some(separation), None) = (chosen.min_separation, ask.min_separation)
        && separation > 0
        && chosen.max_participations != Some(1)
    {
        warnings.push(format!(
            "MinS {separation} is the most the population allows, if every device comes back on time; Xu et al.'s models reached 14 to 81 % of that. Use --min-separation to plan with less"
        ));
    }
    if chosen.mechanism == MechanismKind::Gaussian {
        warnings.push("the guarantee needs users sampled at random, which is possible in a simulation or with a server's own data, but not with devices that check in by themselves".to_owned());
    }
    Ok(warnings)
}

/// Why the chosen one, in a sentence.
fn reason(ask: &Ask, chosen: &Candidate, best: &[Candidate]) -> String {
    let (goal, noise) = (chosen.cohort, chosen.mechanism.short());
    let mut why = match (ask.cohort, chosen.is_bearable()) {
        (Some(_), _) => format!("With {noise} at the given report goal,"),
        (None, true) => {
            format!(
                "A report goal of {goal} is the smallest at which a model tolerates the {noise} that the target needs"
            )
        }
        (None, false) => {
            format!("Tolerable noise would need more than {} per round; with {noise}", counted(goal, "user"))
        }
    };
    let is_tree = |one: &&Candidate| one.mechanism == MechanismKind::TREE && one.mechanism != chosen.mechanism;
    let tree = best.iter().find(is_tree);
    if let (None, Some(tree)) = (ask.mechanism, tree) {
        why += &if ask.cohort.is_none() && chosen.is_bearable() {
            let more = if tree.is_bearable() { "" } else { "more than " };
            format!("; the tree would need {more}{}", tree.cohort)
        } else {
            format!(
                " the sum of the updates has {:.1} times less noise than with the tree",
                tree.model_noise / chosen.model_noise
            )
        };
    } else if ask.cohort.is_some() || !chosen.is_bearable() {
        why += &format!(" the target needs {:.1} times the noise that a model tolerates", chosen.times_bearable());
    }
    why.push('.');
    if ask.mechanism.is_none() {
        why += " It does not require sampling; independent noise would need users sampled at random, which is not possible with devices that check in by themselves.";
    }
    why
}

/// Mechanisms for users who come when they can.
fn correlated() -> impl Iterator<Item = MechanismKind> {
    DESIGNS.into_iter().filter(|design| design.proposed).map(MechanismKind::Correlated)
}

/// The hours of so many rounds; in whole days where it is at least one, as people have daily habits (Xu et al. 2023, section
/// 2.2), and rounded down, since who is late leaves a round unfilled. MinS is kept by counting rounds all the same.
fn timer(rounds: u64, rounds_per_day: f64) -> f64 {
    let days = rounds as f64 / rounds_per_day;
    if days >= 1.0 { 24.0 * days.floor() } else { (240.0 * days).floor() / 10.0 }
}
