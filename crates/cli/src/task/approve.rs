//! `keyhush task approve`: computes the plan that a server would open a task with, and signs it.

use std::path::PathBuf;

use clap::Args;
use durable::files;
use federated::{config::Document, numbers::counted};
use ledger::{Approval, statement::rounded_up};
use serde_json::json;
use server::tasks::{created::written, planned};

use super::{
    name_of,
    place::{Where, mendable, realm, shown},
};
use crate::{failure::BadInput, model_folder::read_settings, officer::secret_key};

/// Arguments of `keyhush task approve`.
#[derive(Args)]
pub(crate) struct ApproveArgs {
    /// Settings file of the task; the file's name is the task's name
    #[arg(value_name = "TASK.toml")]
    settings: PathBuf,
    /// Secret key of the privacy officer (keyhush officer init)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The server that the approval is for: its realm (64 hexadecimal digits), instead of --data or --server
    #[arg(long, value_name = "HEX", conflicts_with_all = ["data", "server"])]
    realm: Option<String>,
    #[command(flatten)]
    at: Where,
    /// File to write the approval to [default: TASK.approval next to the settings]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Override a setting that does not change the plan, such as where this machine has a file: model.from=/here/model
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ApproveArgs) -> anyhow::Result<()> {
    let officer = secret_key(&args.key)?;
    let realm = match &args.realm {
        Some(given) => realm(given)?,
        None => args.at.place()?.realm()?,
    };
    let (name, text) = (name_of(&args.settings), read_settings(&args.settings)?);
    let config = Document::new(&text, &args.set).and_then(|document| document.config());
    let config = config.map_err(|e| BadInput::Refused(format!("{}: {e}", args.settings.display())))?;
    let checked = planned(&name, config, &realm).map_err(mendable)?;
    let approval = Approval::sign(&checked.plan, checked.vouched, &name, &realm, &officer)?;
    let out = args.out.clone().unwrap_or_else(|| args.settings.with_extension("approval"));
    files::write(&out, &written(&approval))?;
    let (epsilon, delta) = (checked.epsilon, checked.delta);
    if args.json {
        let shown = json!({
            "approval": approval,
            "file": out.display().to_string(),
            "rounds": checked.rounds,
            "population": checked.plan.population,
            "holds": checked.holds,
            "epsilon": epsilon,
            "delta": delta,
            "software": checked.plan.software,
        });
        println!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    let cost = if checked.holds {
        format!("epsilon {} at delta {:e}, imports included", rounded_up(epsilon.get()), delta.get())
    } else {
        "no guarantee: the noise is simulated, or epsilon is infinite".to_owned()
    };
    let rounds = counted(checked.rounds, "round");
    println!("approved: {name}, {rounds}, population {}, {cost}", checked.plan.population);
    println!("  server   {}", shown(&realm));
    println!("  officer  {}", approval.officer);
    println!("  program  {} (the server must run the same)", checked.plan.software);
    for vouched in &approval.vouched {
        println!("  covers   {}, SHA-256 {}", vouched.what, vouched.digest);
    }
    println!("  approval {}", out.display());
    Ok(())
}
