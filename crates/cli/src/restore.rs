//! `keyhush restore`: checks a backup, restores it where nothing happened since, or writes out what is left of its tasks.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use federated::numbers::counted;
use serde::Serialize;
use server::{
    backup::{Backup, Restored, SalvagedTask},
    sqlite::Compared,
};

use crate::{backup::refused, failure::BadInput};

#[derive(Args)]
#[command(
    group(ArgGroup::new("what").required(true).args(["data", "salvage", "check"])),
    after_help = "\
A task only goes on from the newest state of its server: an older one has forgotten who was given a task, and which noise was drawn. The \
files next to the secrets know which state that is.

The data folder is lost, the secrets are not:

  keyhush restore BACKUP --data DATA --secrets SECRETS

If nothing happened since the backup was made, start the server again with the same command. Otherwise, or if the secrets are lost too:

  keyhush restore BACKUP --salvage DIR [--secrets SECRETS]

writes ledger, statement and model of every task into DIR/TASK. Those tasks are over. Start a new server with new --data and --secrets \
folders, and a new task whose settings have [model] from = \"DIR/TASK\": it counts the whole plan of the old ledger, which covers whatever was \
released after the backup. Then --destroy-keys destroys what is left of the old keys.

Anyone who can write a backup can write another one that is whole. Give the SHA-256 that keyhush backup printed, if you noted it: --sha256 HEX."
)]
pub(crate) struct RestoreArgs {
    /// Folder of one backup, as keyhush backup printed it
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Restore to this data folder, if nothing happened since the backup was made
    #[arg(long, value_name = "DIR", requires = "secrets")]
    data: Option<PathBuf>,
    /// Secrets folder of the server that the backup is of
    #[arg(long, value_name = "DIR")]
    secrets: Option<PathBuf>,
    /// Write ledger, statement and model of every task into a folder of its name in this one; no secret is needed
    #[arg(long, value_name = "DIR")]
    salvage: Option<PathBuf>,
    /// SHA-256 of backup.json as keyhush backup printed it: checked before anything else, and with it every byte of the backup
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
    /// Only check the backup, and with --secrets whether it is the newest state
    #[arg(long)]
    check: bool,
    /// After --salvage, destroy the keys of all tasks in --secrets, on which no server may run. They can never go on then, whatever turns up
    #[arg(long, requires = "salvage", requires = "secrets")]
    destroy_keys: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Done {
    backup: PathBuf,
    made: String,
    /// Whether nothing happened since; none where that is not known.
    newest: Option<bool>,
    /// How many times devices were given tasks since, in batches; none where that is not known.
    forgotten: Option<u64>,
    restored: Option<PathBuf>,
    /// Files of tasks that had not begun, which were not restored.
    left_out: Vec<String>,
    tasks: Vec<Written>,
    keys_destroyed: Vec<String>,
}

/// A task that was written out, for programs.
#[derive(Serialize)]
struct Written {
    task: String,
    folder: PathBuf,
    entries: u64,
    /// How many entries are known to be missing; none where the last head is not known, or the ledger is whole.
    lost_entries: Option<u64>,
    over: bool,
    /// How many rounds are behind the model; none where there is none.
    model_after: Option<u64>,
    warnings: Vec<String>,
}

/// Runs `keyhush restore`.
pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    let backup = Backup::open(&args.backup, args.sha256.as_deref()).map_err(refused)?;
    let compared = match &args.secrets {
        Some(secrets) => Some(backup.compare(secrets).map_err(refused)?),
        None => None,
    };
    if let (Some(data), Some(secrets)) = (&args.data, &args.secrets) {
        return restore(args, &backup, data, secrets);
    }
    let Some(into) = &args.salvage else { return checked(args, &backup, compared.as_ref()) };
    let tasks = backup.salvage(args.secrets.as_deref(), into).map_err(refused)?;
    let unknown = compared.iter().flat_map(|compared| &compared.tasks);
    let unknown: Vec<&str> = unknown.map(|task| &*task.task).filter(|name| !knows(&backup, name)).collect();
    let keys_destroyed: Vec<String> = match (&args.secrets, args.destroy_keys) {
        (Some(secrets), true) => backup.destroy_keys(secrets).map_err(refused)?.into_iter().collect(),
        _ => Vec::new(),
    };
    if args.json {
        let done = Done {
            tasks: tasks.iter().map(written).collect(),
            keys_destroyed,
            ..done(args, &backup, compared.as_ref())
        };
        println!("{}", serde_json::to_string_pretty(&done)?);
        return Ok(());
    }
    tasks.iter().for_each(tell);
    for name in unknown {
        println!(
            "{name}: it was begun after this backup, and its ledger is lost. Whatever it released costs at most its whole plan (keyhush plan with its settings file); nothing shows what that was, so do not use its models"
        );
    }
    if !keys_destroyed.is_empty() {
        println!("the keys of {} are destroyed", keys_destroyed.join(", "));
    } else if let Some(secrets) = &args.secrets {
        println!(
            "the old keys are still in {}; destroy them with: keyhush restore {} --salvage DIR --secrets {} --destroy-keys",
            secrets.display(),
            args.backup.display(),
            secrets.display()
        );
    }
    if let Some(first) = tasks.iter().find(|task| task.left.model_after.is_some()) {
        println!(
            "next: start a server with new --data and --secrets folders, and a task whose settings have [model] from = \"{}\"",
            first.folder.display()
        );
    }
    Ok(())
}

/// A SHA-256 in hexadecimal digits.
fn sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        Err("must be the 64 hexadecimal digits that keyhush backup printed".to_owned())
    }
}

fn knows(backup: &Backup, name: &str) -> bool {
    backup.manifest().tasks.iter().any(|task| task.task == name)
}

fn restore(args: &RestoreArgs, backup: &Backup, data: &Path, secrets: &Path) -> anyhow::Result<()> {
    if args.salvage.is_some() || args.check {
        return Err(BadInput::out_of_place("data", "--salvage or --check").into());
    }
    let Restored { compared, left_out } = backup.restore(data, secrets).map_err(refused)?;
    if args.json {
        let done = Done { restored: Some(data.to_owned()), left_out, ..done(args, backup, Some(&compared)) };
        println!("{}", serde_json::to_string_pretty(&done)?);
        return Ok(());
    }
    println!("{}: restored; nothing happened since the backup was made", data.display());
    if !left_out.is_empty() {
        println!(
            "not restored, since these tasks had not begun and nothing shows who wrote their files: {}. Create those that you want again with keyhush task create",
            left_out.join(", ")
        );
    }
    println!("start the server again with the same command as before");
    Ok(())
}

fn checked(args: &RestoreArgs, backup: &Backup, compared: Option<&Compared>) -> anyhow::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(&done(args, backup, compared))?);
        return Ok(());
    }
    let manifest = backup.manifest();
    println!("{}: whole, made {} by keyhush {}", args.backup.display(), manifest.made, manifest.program);
    for task in &manifest.tasks {
        println!("  {}: {} in its ledger, which verifies", task.task, counted(task.head.length, "record"));
    }
    match compared {
        None => println!("whether it is the newest state of its server, only the secrets know: give --secrets"),
        Some(compared) if compared.is_newest() => {
            println!("it is the newest state of its server: its tasks can go on from it");
        }
        Some(_) => println!("it is older than the last state of its server: its tasks cannot go on from it"),
    }
    Ok(())
}

fn done(args: &RestoreArgs, backup: &Backup, compared: Option<&Compared>) -> Done {
    Done {
        backup: args.backup.clone(),
        made: backup.manifest().made.clone(),
        newest: compared.map(Compared::is_newest),
        forgotten: compared.map(Compared::forgotten),
        restored: None,
        left_out: Vec::new(),
        tasks: Vec::new(),
        keys_destroyed: Vec::new(),
    }
}

fn written(SalvagedTask { task, folder, left, lost }: &SalvagedTask) -> Written {
    Written {
        task: task.clone(),
        folder: folder.clone(),
        entries: left.statement.ledger.head.length,
        lost_entries: lost.as_ref().and_then(federated::home::lost::Lost::entries),
        over: lost.is_none(),
        model_after: left.model_after,
        warnings: left.warnings.clone(),
    }
}

fn tell(task: &SalvagedTask) {
    let Written { task, folder, entries, lost_entries, over, model_after, warnings } = written(task);
    let ledger = match (over, lost_entries) {
        (true, _) => format!("{} in its ledger, which is closed", counted(entries, "record")),
        (false, Some(lost)) => format!("{} in its ledger; {lost} more are lost", counted(entries, "record")),
        (false, None) => format!("{} in its ledger; how many are lost is not known", counted(entries, "record")),
    };
    println!("{task}: {ledger}");
    match model_after {
        Some(rounds) => {
            println!("  model after {}, statement and ledger: {}", counted(rounds, "round"), folder.display())
        }
        None => println!("  statement and ledger: {}", folder.display()),
    }
    if !over {
        println!("  its statement counts the whole plan, which covers whatever was released after the backup");
    }
    warnings.iter().for_each(|warning| println!("  {warning}"));
}
