//! Charts of what a run would cost, before there is one: of a plan, of proposed settings, of a question.

use federated::{
    config::MechanismKind,
    forecast::Point,
    numbers::counted,
    plan::Plan,
    propose::{Ask, Proposal, mechanisms},
};
use privacy::{AccountantKind, Epsilon, query::Query};

use crate::chart::{Chart, Series};

/// Epsilon over the rounds of a plan, and that of the cohort that it stands for; the budget, where there is one.
#[must_use]
pub fn over_rounds(title: &str, plan: &Plan, points: &[Point]) -> Chart {
    let series = |name: &str, of: fn(&Point) -> f64| {
        Series::new(name, points.iter().map(|point| (point.round as f64, of(point))).collect())
    };
    let projects = plan.config.stands_for.is_some();
    let mut all = vec![series("this run", |point| point.epsilon.get())];
    if projects {
        all.push(series("projected", |point| point.projected_epsilon.map_or(f64::NAN, Epsilon::get)));
    }
    Chart {
        title: title.into(),
        x_label: "rounds".into(),
        y_label: format!("epsilon at delta {:e}", plan.ledger.delta.get()),
        log_y: projects,
        series: all,
        reference: plan.ledger.budget.map(|b| ("budget".to_owned(), b.max_epsilon().get())).into_iter().collect(),
        ..Chart::default()
    }
}

/// Figure 4 of Xu et al. 2023: what a report goal costs when the noise is as much as a model bears.
#[must_use]
pub fn trade_off(proposal: &Proposal) -> Chart {
    let of = |mechanism: MechanismKind| {
        let points = proposal.trade_off.iter().filter(|one| one.mechanism == mechanism);
        let points = points.map(|one| (one.cohort as f64, one.epsilon_if_bearable.get()));
        Series::new(mechanism.name(), points.collect())
    };
    let Ask { population, rounds, delta, epsilon, .. } = &proposal.asked;
    Chart {
        title: format!(
            "Epsilon with the most noise a model tolerates: {}, {}",
            counted(*population, "user"),
            counted(*rounds, "round")
        ),
        x_label: "report goal".into(),
        y_label: format!("epsilon at delta {:e}", delta.get()),
        log_x: true,
        log_y: true,
        series: mechanisms(&proposal.trade_off).into_iter().map(of).collect(),
        reference: vec![("target".to_owned(), epsilon.get())],
        ..Chart::default()
    }
}

/// An accountant, and its epsilon after some rounds.
pub type Curve = (AccountantKind, Vec<(u64, f64)>);

/// Epsilon over the rounds of a question, by each accountant that was asked.
#[must_use]
pub fn of_query(query: &Query, curves: Vec<Curve>, log: bool) -> Chart {
    let curve = |(accountant, points): Curve| {
        Series::new(accountant.name(), points.into_iter().map(|(round, epsilon)| (round as f64, epsilon)).collect())
    };
    Chart {
        title: title(query),
        x_label: "rounds".into(),
        y_label: "epsilon".into(),
        log_x: log,
        log_y: log,
        series: curves.into_iter().map(curve).collect(),
        ..Chart::default()
    }
}

/// The rounds at which such a chart has points: closer together at the start, where epsilon rises fastest, or evenly in logarithms.
#[must_use]
pub fn positions(longest: u64, points: u64, log: bool) -> Vec<u64> {
    let last = longest as f64;
    let mut rounds: Vec<u64> = (0..points)
        .map(|i| {
            let part = i as f64 / (points - 1) as f64;
            let x = if log { libm::pow(last, part) } else { 1.0 + (last - 1.0) * part * part };
            libm::round(x) as u64
        })
        .collect();
    rounds.dedup();
    rounds
}

fn title(query: &Query) -> String {
    let mut parts = vec![query.mechanism.map_or(String::new(), |m| m.name().to_owned())];
    parts.extend(query.population.map(|n| counted(n, "user")));
    parts.extend(query.cohort.map(|m| format!("{m} per round")));
    parts.extend(query.sampling_rate.map(|q| format!("sampling rate {q}")));
    parts.extend(query.noise_multiplier.map(|z| format!("noise {z}")));
    parts.extend(query.min_separation.map(|s| format!("MinS {s}")));
    parts.extend(query.max_participations.map(|p| format!("MaxP {p}")));
    parts.extend(query.delta.map(|d| format!("delta {d:e}")));
    parts.retain(|p| !p.is_empty());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_begin_with_the_first_round_end_with_the_last_and_rise() {
        for (longest, points, log) in [(2, 2, false), (2, 48, true), (100, 48, false), (100_000, 48, true)] {
            let rounds = positions(longest, points, log);
            assert_eq!((rounds[0], rounds.last()), (1, Some(&longest)));
            assert!(rounds.windows(2).all(|two| two[0] < two[1]) && rounds.len() as u64 <= points, "{rounds:?}");
        }
    }
}
