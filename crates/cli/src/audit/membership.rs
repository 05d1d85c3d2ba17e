//! `keyhush audit membership`: infers who took part from a model's loss.

use clap::Args;
use federated::audit::membership::{MembershipPlan, attack};
use report::audit::membership;

use super::{Answer, LabArgs, failed, shown, took_part};

const EXAMPLES: &str = "\
Examples:
  keyhush audit membership
  keyhush audit membership --config run.toml --users 1000

The attacker has the model and what people typed, and guesses that people are members if the model predicts their text well. The area \
under the curve is 0.5 for guessing and 1 for certainty.";

/// Arguments of `keyhush audit membership`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MembershipArgs {
    /// Number of members to look at, of those who took part, and of others: held-out users
    #[arg(long, value_name = "N", default_value_t = 400)]
    users: u64,
    #[command(flatten)]
    lab: LabArgs,
}

/// Few people who all take part in every round: a model without privacy learns them by heart.
const USUAL: [&str; 7] = [
    "rounds=30",
    "participation.population=100",
    "participation.cohort=100",
    "local.epochs=8",
    "local.learning_rate=1.0",
    "privacy.noise_multiplier=4.0",
    "privacy.delta=1e-3",
];

pub(crate) fn run(args: &MembershipArgs) -> anyhow::Result<()> {
    let said = &args.lab;
    let (config, folder, says) = (said.settings(&USUAL)?, said.output.folder("membership")?, said.says());
    let lab = said.lab(config, &folder, &says)?;
    let found = attack(&lab, MembershipPlan { users: args.users }).map_err(failed)?;
    let answer = Answer::estimate("membership", found.epsilon_formal, Some(found.private.epsilon_estimate), &found);
    let line = |name: &str, roc: &privacy::audit::membership::Roc| {
        format!(
            "{name}: area {:.3} (guessing: 0.5); finds {:.1} % of the members at 1 % false positives; epsilon about {:.2}",
            roc.area,
            100.0 * roc.at_one_percent,
            roc.epsilon_estimate
        )
    };
    let mut lines = vec![
        format!("{} members and {} others.", found.members, found.others),
        line("With privacy", &found.private),
        line("Without privacy", &found.non_private),
        format!("The formal epsilon of the private run is {} at delta {:e}.", shown(found.epsilon_formal), found.delta),
    ];
    lines.extend(took_part(found.took_part, found.population));
    answer.give(&membership(&found), &folder, said.output.json, &lines)
}
