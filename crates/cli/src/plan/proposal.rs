//! `keyhush plan --epsilon E --population N --rounds T`: which settings meet a target.

use std::{collections::BTreeSet, io::Write};

use clap::Args;
use federated::{
    config::{Config, Document, MechanismKind, explained},
    numbers::counted,
    plan::Plan,
    propose::{Ask, Candidate, Proposal, ROUNDS_PER_DAY, SERVED, mechanisms, propose, settings},
    run::Opened,
};
use privacy::{Delta, Epsilon};
use report::planned;
use serde::Serialize;

use super::{Written, write_chart, write_settings};
use crate::{
    columns::{self, Align},
    failure::{BadInput, of_config, refused},
    init::{self, noises},
};

/// A target, and what is known besides.
#[derive(Args)]
#[command(next_help_heading = "Settings for a target")]
pub(super) struct TargetArgs {
    /// Propose settings whose epsilon is at most this
    #[arg(long, value_name = "E")]
    epsilon: Option<f64>,
    /// Number of users, N
    #[arg(long, value_name = "N")]
    population: Option<u64>,
    /// Number of rounds the model needs, T
    #[arg(long, value_name = "T")]
    rounds: Option<u64>,
    /// Delta of the guarantee [default: N^-1.1]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Largest report goal (users per round) the system can serve [default: 6500, as in Xu et al. 2023]
    #[arg(long, value_name = "M", conflicts_with = "cohort")]
    cohort_cap: Option<u64>,
    /// Use this report goal instead of the smallest that works
    #[arg(long, value_name = "M")]
    cohort: Option<u64>,
    /// Use this mechanism [default: the one with the least noise for devices that are not sampled]
    #[arg(long, value_parser = noises())]
    mechanism: Option<MechanismKind>,
    /// Minimum rounds between two participations of a user, MinS [default: the largest the population allows]
    #[arg(long, value_name = "ROUNDS")]
    min_separation: Option<u64>,
    /// Most participations of a user, MaxP [default: as many as MinS allows]
    #[arg(long, value_name = "TIMES")]
    max_participations: Option<u64>,
    /// Noise over cohort, z/m, that your model tolerates in small experiments on public text; needs --mechanism [default: from the papers]
    #[arg(long, value_name = "Z/M")]
    noise_ratio: Option<f64>,
    /// Rounds completed per day, to set the timer [default: 86, the median of Xu et al. 2023]
    #[arg(long, value_name = "R")]
    rounds_per_day: Option<f64>,
}

impl TargetArgs {
    /// What is asked; nothing without an epsilon.
    pub(super) fn ask(&self) -> Result<Option<Ask>, BadInput> {
        let Some(epsilon) = self.epsilon else {
            let beside = [
                ("population", self.population.is_some()),
                ("rounds", self.rounds.is_some()),
                ("delta", self.delta.is_some()),
                ("cohort_cap", self.cohort_cap.is_some()),
                ("cohort", self.cohort.is_some()),
                ("mechanism", self.mechanism.is_some()),
                ("min_separation", self.min_separation.is_some()),
                ("max_participations", self.max_participations.is_some()),
                ("noise_ratio", self.noise_ratio.is_some()),
                ("rounds_per_day", self.rounds_per_day.is_some()),
            ];
            return match beside.into_iter().find(|(_, given)| *given) {
                Some((field, _)) => Err(BadInput::wrong(field, "needs --epsilon; to change a setting, use --set")),
                None => Ok(None),
            };
        };
        let epsilon = Epsilon::new(epsilon).map_err(|e| BadInput::illegal("epsilon", &e))?;
        let population = self.population.ok_or_else(|| BadInput::missing("population", "give the number of users"))?;
        let rounds =
            self.rounds.ok_or_else(|| BadInput::missing("rounds", "give the number of rounds the model needs"))?;
        let mut ask = Ask::new(epsilon, population, rounds).map_err(init::refused)?;
        if let Some(delta) = self.delta {
            ask.delta = Delta::new(delta).map_err(|e| BadInput::illegal("delta", &e))?;
        }
        ask.largest_cohort = self.cohort_cap.unwrap_or(SERVED).min(population);
        ask.rounds_per_day = self.rounds_per_day.unwrap_or(ROUNDS_PER_DAY);
        Ok(Some(Ask {
            cohort: self.cohort,
            min_separation: self.min_separation,
            max_participations: self.max_participations,
            noise_ratio: self.noise_ratio,
            mechanism: self.mechanism,
            ..ask
        }))
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Answer<'a> {
    /// What the plan of the settings costs.
    epsilon: Epsilon,
    #[serde(flatten)]
    proposal: &'a Proposal,
    settings: &'a Config,
}

pub(super) fn show(ask: &Ask, written: &Written, json: bool) -> anyhow::Result<()> {
    let proposal = propose(ask).map_err(init::refused)?;
    let config = settings(ask, &proposal.chosen).map_err(|e| of_config(&e))?;
    let epsilon = planned(&config)?;
    let text = explained(&config, &head(&proposal, epsilon)).map_err(|e| of_config(&e))?;
    if let Some(path) = &written.chart {
        write_chart(path, &planned::trade_off(&proposal))?;
    }
    if let Some(path) = &written.settings {
        write_settings(path, &text)?;
    }
    let mut out = std::io::stdout().lock();
    if json {
        let answer = Answer { epsilon, proposal: &proposal, settings: &config };
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    print(&mut out, &proposal, epsilon)?;
    match &written.settings {
        Some(path) => writeln!(out, "\nNext: keyhush plan {0}, then keyhush train {0}", path.display())?,
        None => write!(out, "\nThe settings (--out FILE.toml writes them):\n\n{text}")?,
    }
    Ok(())
}

/// What the settings cost, by the same plan that `keyhush train` makes of them.
fn planned(config: &Config) -> anyhow::Result<Epsilon> {
    // What is written is what is judged.
    let config = config
        .to_toml()
        .and_then(|text| Document::new(&text, &[]))
        .and_then(|d| d.config())
        .map_err(|e| of_config(&e))?;
    let opened = Opened::new(&config).map_err(refused)?;
    let plan = Plan::new(config, &opened.setting()).map_err(|e| of_config(&e))?;
    Ok(plan.epsilon(plan.config.rounds).map_err(|e| of_config(&e))?)
}

/// What stands above the settings.
fn head(proposal: &Proposal, epsilon: Epsilon) -> Vec<String> {
    let Ask { population, rounds, delta, .. } = &proposal.asked;
    let mut lines = vec![format!(
        "Proposed for epsilon {} at delta {:e} with {} and {}; the actual epsilon is {:.4}.",
        proposal.asked.epsilon,
        delta.get(),
        counted(*population, "user"),
        counted(*rounds, "round"),
        epsilon.get()
    )];
    if let Some(hours) = proposal.timer_hours {
        lines.push(format!("Device timer: {hours} h. With real devices, set devices.timer_hours = {hours}."));
    }
    lines.push("Data, model and learning rates are those of a small example; replace them with your own.".to_owned());
    lines
}

fn print(out: &mut impl Write, proposal: &Proposal, epsilon: Epsilon) -> anyhow::Result<()> {
    let Proposal { asked, chosen, .. } = proposal;
    let mut rows = vec![
        ("mechanism", words_of(chosen)),
        ("report goal", format!("{} of {} per round", chosen.cohort, counted(asked.population, "user"))),
        ("noise multiplier", format!("{} (z/m = {:.3e})", chosen.noise_multiplier, chosen.noise_ratio)),
    ];
    if let (Some(min_s), Some(max_p)) = (chosen.min_separation, chosen.max_participations) {
        rows.push(("MinS", format!("{min_s} (rounds between two participations of a user)")));
        rows.push(("MaxP", format!("{max_p} (participations of a user in {})", counted(asked.rounds, "round"))));
    }
    match (proposal.timer_hours, chosen.max_participations) {
        (Some(hours), _) => {
            let rate = asked.rounds_per_day;
            rows.push(("timer", format!("{hours} h, at {rate} rounds per day; MinS is still counted in rounds")));
        }
        (None, Some(_)) => rows.push(("timer", "none: no user takes part twice within the run".to_owned())),
        (None, None) => {}
    }
    rows.push(("epsilon", format!("{:.4} at delta {:e}", epsilon.get(), asked.delta.get())));
    writeln!(out, "Proposed")?;
    for (name, value) in rows {
        writeln!(out, "  {name:<16}  {value}")?;
    }
    writeln!(out, "\n{}", columns::folded("", &proposal.reason))?;
    writeln!(
        out,
        "\n{}",
        columns::folded(
            "",
            &format!(
                "Trade-off: the noise multiplier z needed for epsilon {}, and in brackets how many times the tolerable noise that is (1 or less is good)",
                asked.epsilon
            )
        )
    )?;
    columns::write(out, &table(&proposal.trade_off), Align::Right)?;
    writeln!(
        out,
        "{}",
        columns::folded(
            "",
            "Tolerable noise, from the papers: z/m = 0.01/100 with independent noise (Andrew et al. 2021, Figure 7), 0.54/500 with the tree (Xu et al. 2023, section 2.2); for other matrices, the z/m that puts as much noise into the model as the tree. Those models had 4.1 and 2.4 million parameters. A model with a quarter of the parameters tolerates twice as much; keyhush plan FILE takes the size of your model into account."
        )
    )?;
    for warning in &proposal.warnings {
        writeln!(out, "\n{}", columns::folded("warning: ", warning))?;
    }
    Ok(())
}

fn words_of(chosen: &Candidate) -> String {
    let name = chosen.mechanism.name();
    match (chosen.mechanism.design(), chosen.size()) {
        (None, _) => format!("{name}: {}, users sampled at random", chosen.mechanism.short()),
        (Some(_), Some((of, size))) => {
            format!("{name}, {size} {}: DP-FTRL, users take part as they become available", of.name())
        }
        (Some(_), None) => format!("{name}: DP-FTRL, users take part as they become available"),
    }
}

/// A row for every report goal, a column for every mechanism.
fn table(all: &[Candidate]) -> Vec<Vec<String>> {
    let mechanisms = mechanisms(all);
    let limited = all.iter().any(|one| one.min_separation.is_some());
    let mut head = vec!["report goal".to_owned()];
    if limited {
        head.extend(["MinS", "MaxP"].map(str::to_owned));
    }
    head.extend(mechanisms.iter().map(|m| m.name().to_owned()));
    let goals: BTreeSet<u64> = all.iter().map(|one| one.cohort).collect();
    let row = |goal: u64| {
        let at: Vec<&Candidate> = all.iter().filter(|one| one.cohort == goal).collect();
        let limit = |of: fn(&Candidate) -> Option<u64>| {
            at.iter().find_map(|one| of(one)).map_or_else(String::new, |n| n.to_string())
        };
        let mut row = vec![goal.to_string()];
        if limited {
            row.extend([limit(|one| one.min_separation), limit(|one| one.max_participations)]);
        }
        row.extend(mechanisms.iter().map(|m| {
            let one = at.iter().find(|one| one.mechanism == *m);
            one.map_or_else(String::new, |one| format!("{} [{}]", one.noise_multiplier, times(one.times_bearable())))
        }));
        row
    };
    std::iter::once(head).chain(goals.into_iter().map(row)).collect()
}

fn times(times: f64) -> String {
    if times < 9.95 { format!("{times:.2}") } else { format!("{times:.0}") }
}
