//! Prints answers as text or JSON.

use std::io::Write;

use ledger::statement::rounded_down;
pub(crate) use ledger::statement::rounded_up;
use privacy::{
    AccountantKind, Adjacency, Delta, Epsilon, Judgement, PrivacyEvent, Rho, assumptions,
    query::{Query, QueryError},
    sensitivity,
};
use serde::Serialize;

/// What was found out about a run.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    /// What was sought, where something was.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<Found>,
    epsilon: Epsilon,
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_lower: Option<Epsilon>,
    delta: Delta,
    accountant: AccountantKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    adjacency: Option<Adjacency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rho: Option<Rho>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sensitivity: Option<f64>,
    #[serde(skip_serializing_if = "is_one")]
    group: u32,
    /// Without which the epsilon is not true.
    assumes: Vec<String>,
}

/// The value that a calibration found.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Found {
    NoiseMultiplier(f64),
    Rounds(u64),
    Cohort(u64),
    /// A cohort and the noise that goes with it.
    #[serde(untagged)]
    CohortAndNoise {
        cohort: u64,
        noise_multiplier: f64,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_one(group: &u32) -> bool {
    *group == 1
}

impl Answer {
    /// Judges a query.
    pub(crate) fn to(query: &Query) -> Result<Self, QueryError> {
        let judgement = query.judge()?;
        Ok(Self::new(&judgement, &query.event()?, query.delta()?, query.group()))
    }

    /// The epsilon that Xu et al. print for a run: that of a Gaussian whose rho is rounded to two decimals (rule P8).
    pub(crate) fn as_published(query: &Query) -> Result<Self, QueryError> {
        let (judgement, rho, published) = query.judge_as_published()?;
        let mut answer = Self::new(&judgement, &query.event()?, query.delta()?, query.group());
        answer.assumes.push(format!("rho {} is rounded to {published}", rounded_up(rho)));
        Ok(answer)
    }

    pub(crate) fn new(judgement: &Judgement, event: &PrivacyEvent, delta: Delta, group: u32) -> Self {
        Self {
            found: None,
            epsilon: judgement.epsilon,
            epsilon_lower: judgement.epsilon_lower,
            delta,
            accountant: judgement.accountant,
            adjacency: judgement.adjacency,
            order: judgement.order,
            rho: judgement.rho,
            sensitivity: matrix_sensitivity(event),
            group,
            assumes: assumptions::of(event),
        }
    }

    /// Prints the answer for people, or as one line of JSON.
    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
        } else {
            for (name, value) in self.lines() {
                writeln!(out, "{name:<17} {value}")?;
            }
        }
        Ok(())
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        match self.found {
            Some(Found::NoiseMultiplier(z)) => lines.push(("noise multiplier", rounded_up(z))),
            Some(Found::Rounds(rounds)) => lines.push(("rounds", rounds.to_string())),
            Some(Found::Cohort(cohort)) => lines.push(("cohort", cohort.to_string())),
            Some(Found::CohortAndNoise { cohort, noise_multiplier }) => {
                lines.push(("cohort", cohort.to_string()));
                lines.push(("noise multiplier", format!("{noise_multiplier:.6}")));
            }
            None => {}
        }
        let at_least =
            self.epsilon_lower.map_or(String::new(), |lower| format!("  (at least {})", rounded_down(lower.get())));
        lines.push(("epsilon", format!("{}{at_least}", rounded_up(self.epsilon.get()))));
        lines.push(("delta", format!("{:e}", self.delta.get())));
        lines.push((
            "accountant",
            match self.order {
                Some(order) => format!("{}, at order {}", self.accountant, (order * 1e4).round() / 1e4),
                None => self.accountant.to_string(),
            },
        ));
        lines.extend(self.adjacency.map(|a| ("adjacency", a.to_string())));
        lines.extend(self.rho.map(|rho| ("rho", rounded_up(rho.get()))));
        lines.extend(self.sensitivity.map(|s| ("sensitivity", format!("{s:.6} for a clip norm of 1"))));
        if self.group > 1 {
            lines.push(("protects", format!("{} users together", self.group)));
        }
        lines.extend(self.assumes.iter().enumerate().map(|(i, a)| (if i == 0 { "assumes" } else { "" }, a.clone())));
        lines
    }
}

/// The sensitivity of the strategy matrix, when the event is one run of correlated noise.
pub(crate) fn matrix_sensitivity(event: &PrivacyEvent) -> Option<f64> {
    match event {
        PrivacyEvent::CorrelatedGaussian { matrix, segments, participation, .. } => {
            sensitivity::of_matrix(matrix, segments, participation).ok().map(|s| s.get())
        }
        _ => None,
    }
}
