//! `keyhush audit canary`: secrets planted in users' text.

use std::collections::BTreeMap;

use clap::Args;
use federated::{
    audit::secrets::{Remembered, Secret, SecretPlan, Secrets, plant},
    numbers::{counted, grouped},
};
use report::audit::secrets;

use super::{Answer, LabArgs, failed, shown};
use crate::{
    columns::{self, Align},
    failure::BadInput,
};

const EXAMPLES: &str = "\
Examples:
  keyhush audit canary
  keyhush audit canary --config run.toml --plant 1x1,1x50,20x10

A secret is a sequence of random words. Its exposure (Carlini et al. 2019) says how much more likely a model finds it than sequences that \
nobody typed: 1.4 bits on average if nothing is remembered, and n bits if it is more likely than all but one in 2^n. The largest of many is \
high by chance: of 40 secrets of which nothing is remembered, 6.2 bits on average. Two models are trained, with and without privacy.";

/// Arguments of `keyhush audit canary`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CanaryArgs {
    /// How many users share a secret, and how often each of them has it
    #[arg(long, value_name = "USERSxREPEATS", value_delimiter = ',', default_value = "1x1,1x20,10x10,40x20")]
    plant: Vec<String>,
    /// Number of secrets of each kind
    #[arg(long, value_name = "N", default_value_t = 10)]
    each: u32,
    /// Number of words of a secret
    #[arg(long, value_name = "N", default_value_t = 5)]
    words: usize,
    /// Number of random sequences that nobody typed, to rank the secrets among
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    references: u32,
    /// Number of random draws that try to complete a secret after its first two words
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    draws: u32,
    /// Seed of secrets, users and draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    lab: LabArgs,
}

pub(crate) fn run(args: &CanaryArgs) -> anyhow::Result<()> {
    let said = &args.lab;
    let plan = SecretPlan {
        groups: args.plant.iter().map(|text| group(text)).collect::<Result<_, _>>()?,
        each: args.each,
        words: args.words,
        references: args.references,
        draws: args.draws,
        seed: args.seed,
    };
    let (config, folder, says) = (said.settings(&[])?, said.output.folder("canary")?, said.says());
    let lab = said.lab(config, &folder, &says)?;
    let found = plant(&lab, &plan).map_err(failed)?;
    let answer = Answer::estimate("canary", found.epsilon_formal, found.epsilon_estimate, &found);
    let mut table = Vec::new();
    columns::write(&mut table, &rows(&found), Align::Numbers)?;
    let estimate = found.epsilon_estimate.map_or_else(
        || "Fewer than ten secrets belong to a single user who took part, so epsilon is not estimated.".to_owned(),
        |epsilon| format!("From secrets that only one user has, the estimated epsilon is {epsilon:.2}."),
    );
    let mut lines = vec![
        String::from_utf8_lossy(&table).trim_end().to_owned(),
        format!(
            "Largest exposure: {:.1} bits with privacy, {:.1} without. If nothing is remembered, the largest of {} is {:.1} bits on average{}; at most {:.1} are possible.",
            found.exposure_private,
            found.exposure_non_private,
            counted(found.trained_private as u64, "secret"),
            found.chance_private,
            if found.trained_private == found.trained_non_private {
                String::new()
            } else {
                format!(", and of {} it is {:.1}", found.trained_non_private, found.chance_non_private)
            },
            found.most_bits
        ),
        format!(
            "Extracted with {} random draws per secret, given its first two words: {} of {} with privacy, {} of {} without.",
            grouped(args.draws.into()),
            found.extracted_private,
            found.trained_private,
            found.extracted_non_private,
            found.trained_non_private
        ),
        format!(
            "The formal epsilon of the run is {} at delta {:e}. {estimate}",
            shown(found.epsilon_formal),
            found.delta
        ),
    ];
    if found.trained_private.min(found.trained_non_private) < found.canaries.len() {
        lines.push(format!(
            "Only secrets of users who took part in training are counted: of {} secrets, {} with privacy and {} without. The formal epsilon also covers the chance of not taking part.",
            found.canaries.len(),
            found.trained_private,
            found.trained_non_private
        ));
    }
    answer.give(&secrets(&found), &folder, said.output.json, &lines)
}

/// `10x5`: 10 users, 5 copies in each.
fn group(text: &str) -> Result<(u64, u32), BadInput> {
    let numbers = text.split_once('x').and_then(|(users, repeats)| Some((users.parse().ok()?, repeats.parse().ok()?)));
    numbers.ok_or_else(|| BadInput::wrong("plant", format!("{text:?} is not USERSxREPEATS, such as 10x5")))
}

/// A row for each kind: means over those of its secrets that were in a user who took part.
fn rows(found: &Secrets) -> Vec<Vec<String>> {
    let mut kinds: BTreeMap<(u64, u32), Vec<&Secret>> = BTreeMap::new();
    found.canaries.iter().for_each(|secret| kinds.entry((secret.users, secret.repeats)).or_default().push(secret));
    let head = ["users x copies", "with privacy", "by rank", "found", "without privacy", "by rank", "found"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for ((users, repeats), secrets) in kinds {
        let mut row = vec![format!("{users} x {repeats}")];
        for of in [(|s| &s.private) as fn(&Secret) -> &Remembered, |s| &s.non_private] {
            let trained: Vec<&Remembered> = secrets.iter().map(|s| of(s)).filter(|r| r.took_part > 0).collect();
            let mean = |of: fn(&Remembered) -> f64| match trained.len() {
                0 => "-".to_owned(),
                n => format!("{:.1}", trained.iter().map(|r| of(r)).sum::<f64>() / n as f64),
            };
            row.extend([mean(|r| r.exposure.by_estimate), mean(|r| r.exposure.by_rank)]);
            row.push(format!("{} of {}", trained.iter().filter(|r| r.found > 0).count(), trained.len()));
        }
        rows.push(row);
    }
    rows
}
