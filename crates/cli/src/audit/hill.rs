//! `keyhush audit hill`: estimates epsilon from the tail of likelihood ratios.

use std::io::Write;

use clap::Args;
use federated::audit::tails::{Compared, TailPlan, compare};
use privacy::audit::hill::CRITICAL_VALUE;
use report::audit::tails;

use super::{Answer, LabArgs, failed, shown, took_part};
use crate::columns::{self, Align};

const EXAMPLES: &str = "\
Examples:
  keyhush audit hill --pairs 3 --texts 3000         a small one, in about a minute
  keyhush audit hill --config run.toml              as large as in the paper: 20 pairs, 30,000 texts

For each pair, a model is trained without one user, and compared with the model of all users: how much more likely are its texts under one \
than under the other (Popov et al. 2018)? The result is an estimate and not a guarantee: it extrapolates the tail of the likelihood ratios, \
and tries only a few users.";

/// Arguments of `keyhush audit hill`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HillArgs {
    /// Number of pairs of neighbouring sets of users; each trains one model
    #[arg(long, value_name = "N", default_value_t = 20)]
    pairs: u32,
    /// Number of texts drawn from each model
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    texts: u32,
    /// Number of words of a text
    #[arg(long, value_name = "N", default_value_t = 10)]
    words: usize,
    /// Delta of the estimate
    #[arg(long, value_name = "D", default_value_t = 1e-4)]
    delta: f64,
    /// Seed of users and texts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    lab: LabArgs,
}

pub(crate) fn run(args: &HillArgs) -> anyhow::Result<()> {
    let HillArgs { pairs, texts, words, delta, seed, lab: said } = args;
    let plan = TailPlan { pairs: *pairs, texts: *texts, words: *words, delta: *delta, seed: *seed };
    let (config, folder, says) = (said.settings(&[])?, said.output.folder("hill")?, said.says());
    let lab = said.lab(config, &folder, &says)?;
    let found = compare(&lab, &plan).map_err(failed)?;
    let answer = Answer::estimate("hill", found.epsilon_formal, Some(found.epsilon_estimate), &found);
    let mut table = Vec::new();
    columns::write(&mut table, &rows(&found.compared), Align::Numbers)?;
    table.flush()?;
    let mut lines = vec![
        String::from_utf8_lossy(&table).trim_end().to_owned(),
        format!(
            "Largest epsilon of {} directions: {:.2} at delta {:e}. The formal epsilon of the run is {}.",
            found.compared.len(),
            found.epsilon_estimate,
            found.delta,
            shown(found.epsilon_formal)
        ),
        format!(
            "In {} of {} directions a Pareto tail is plausible (Lilliefors statistic at most {CRITICAL_VALUE}).",
            found.accepted, found.with_tail
        ),
    ];
    if found.with_tail < found.compared.len() {
        lines.push(format!(
            "In {} of {} directions both models are identical, because the user had no text to learn from; these say nothing.",
            found.compared.len() - found.with_tail,
            found.compared.len()
        ));
    }
    lines.extend(took_part(found.took_part, found.population));
    answer.give(&tails(&found, *texts), &folder, said.output.json, &lines)
}

fn rows(compared: &[Compared]) -> Vec<Vec<String>> {
    let head = ["without user", "texts of", "alpha", "C", "KS", "p", "epsilon"].map(str::to_owned).to_vec();
    let row = |c: &Compared| {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        vec![
            c.user.to_string(),
            if c.from_larger { "everybody" } else { "the others" }.to_owned(),
            number(c.tail.map(|t| t.shape)),
            number(c.tail.map(|t| t.scale)),
            number(c.tail.map(|t| t.ks)),
            number(c.tail.map(|t| t.p_value)),
            format!("{:.2}", c.epsilon),
        ]
    };
    std::iter::once(head).chain(compared.iter().map(row)).collect()
}
