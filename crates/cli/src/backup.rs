//! `keyhush backup`: a copy of what a server keeps, made while it runs.

use std::path::PathBuf;

use clap::Args;
use federated::numbers::counted;
use serde::Serialize;
use server::{
    backup::{self, BackupError, Kept, Made, Manifest, keys},
    sqlite::DatabaseError,
};

use crate::failure::BadInput;

#[derive(Args)]
#[command(after_help = "\
A backup has the server's database: ledgers, who took part (as pseudonyms), models, device keys with the day of their enrolment. It has no \
secret: keys of noise and pseudonyms must be destroyable, so they are in no copy. It is checked from end to end before it gets its name.

Note the SHA-256 that is printed, apart from the backups: keyhush restore --sha256 then shows whether somebody changed the backup since.

Each backup is a new folder in --to, named by its time (UTC). Example, once an hour, keeping two days:

  keyhush backup --data /var/lib/keyhush/data --to /var/backups/keyhush --keep 48

What a backup is good for after a loss: keyhush restore --help.")]
pub(crate) struct BackupArgs {
    /// Data folder of the server (--data of keyhush serve)
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Folder for backups. Each gets a folder of its own in it
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Secrets folder of the server (--secrets of keyhush serve); only read for --keys-to
    #[arg(long, value_name = "DIR", requires = "keys_to")]
    secrets: Option<PathBuf>,
    /// Also copy the keys that devices and operators know the server by (TLS key, enrolment token, digests of access tokens) to this folder. Keep it
    /// apart from the backups: who has both knows your devices and can be their server
    #[arg(long, value_name = "DIR", requires = "secrets")]
    keys_to: Option<PathBuf>,
    /// Keep this backup and the newest ones before it, N in all, and remove other backups of this server in --to. Those that say they are later than
    /// this one are kept too, and named
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Done<'a> {
    backup: PathBuf,
    #[serde(flatten)]
    manifest: &'a Manifest,
    /// The SHA-256 of backup.json; the one beside it is of the database.
    manifest_sha256: &'a str,
    keys: Vec<&'static str>,
    removed: Vec<PathBuf>,
    /// Backups that say they are later than this one.
    later: Vec<PathBuf>,
}

/// Runs `keyhush backup`.
pub(crate) fn run(args: &BackupArgs) -> anyhow::Result<()> {
    let made = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S.%3fZ").to_string();
    let folder = args.to.join(&made);
    let Made { manifest, sha256 } = backup::back_up(&args.data, &folder, &made).map_err(|error| match error {
        BackupError::Database(missing @ DatabaseError::Missing { .. }) => {
            BadInput::wrong("data", format!("{missing}; give the --data folder of keyhush serve")).into()
        }
        other => refused(other),
    })?;
    let keys = match (&args.secrets, &args.keys_to) {
        (Some(secrets), Some(to)) => keys::copy(secrets, to, &args.to).map_err(refused)?,
        _ => Vec::new(),
    };
    let Kept { removed, later } = match args.keep {
        Some(keep) => backup::remove_older(&folder, &manifest, keep as usize).map_err(refused)?,
        None => Kept::default(),
    };
    for path in &later {
        eprintln!(
            "warning: {} says that it was made after this backup. It is kept and not counted: look whether a clock was wrong or somebody put it there, and remove it",
            path.display()
        );
    }
    if args.json {
        let done = Done { backup: folder, manifest: &manifest, manifest_sha256: &sha256, keys, removed, later };
        println!("{}", serde_json::to_string_pretty(&done)?);
        return Ok(());
    }
    let megabytes = manifest.bytes as f64 / 1e6;
    println!("{}: {megabytes:.1} MB, {}, checked", folder.display(), counted(manifest.tasks.len() as u64, "task"));
    for task in &manifest.tasks {
        let over = if task.over { ", closed" } else { "" };
        println!("  {}: {} in its ledger{over}", task.task, counted(task.head.length, "record"));
    }
    println!("SHA-256 of its backup.json, to be noted apart from the backups: {sha256}");
    if let Some(to) = args.keys_to.as_ref().filter(|_| !keys.is_empty()) {
        println!("keys that devices know the server by: {} in {}", keys.join(", "), to.display());
    }
    if !removed.is_empty() {
        println!("removed {}", counted(removed.len() as u64, "older backup"));
    }
    Ok(())
}

/// Folders and backups are a person's to mend; a disk that fails is not.
pub(crate) fn refused(error: BackupError) -> anyhow::Error {
    if error.is_refusal() { BadInput::Refused(error.to_string()).into() } else { error.into() }
}
