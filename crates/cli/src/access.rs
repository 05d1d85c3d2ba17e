//! `keyhush access`: creates, lists and revokes the tokens of those who may see and operate a server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use console::{
    ConsoleError,
    access::{Access, Granted, Role},
};

use crate::{failure::BadInput, reach};

/// What `keyhush access` does.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a token and print it; it cannot be shown again.
    Create(Create),
    /// List the tokens, with their roles and when they were created.
    List(Of),
    /// Revoke a token; a running server refuses it from then on.
    Revoke(Revoke),
}

#[derive(Args)]
#[command(after_help = "\
Example:
  keyhush access create alice --role operator --secrets /var/lib/keyhush/secrets")]
pub(crate) struct Create {
    /// Name of the token: whose it is, or what for
    #[arg(value_name = "NAME")]
    name: String,
    /// viewer (sees what is released), operator (also sees exact counts; pauses, resumes and stops tasks) or officer (also creates tasks)
    #[arg(long)]
    role: Role,
    #[command(flatten)]
    of: Of,
}

#[derive(Args)]
pub(crate) struct Revoke {
    /// Name of the token
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    of: Of,
}

#[derive(Args)]
pub(crate) struct Of {
    /// Folder for secrets of the server (--secrets of keyhush serve)
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Of {
    fn access(&self) -> Access {
        Access::in_secrets(&self.secrets)
    }

    /// The folder is a server's, or is about to be: a token for another folder would be of no use.
    fn refuse_missing(&self) -> anyhow::Result<()> {
        if reach::is_folder(&self.secrets).map_err(|why| BadInput::wrong("secrets", why))? {
            return Ok(());
        }
        let path = self.secrets.display();
        let why = format!("there is no folder {path}; give the --secrets folder of keyhush serve, which creates it");
        Err(BadInput::wrong("secrets", why).into())
    }
}

/// Runs `keyhush access`.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Create(asked) => create(asked),
        Command::List(of) => list(of),
        Command::Revoke(asked) => revoke(asked),
    }
}

fn create(asked: &Create) -> anyhow::Result<()> {
    asked.of.refuse_missing()?;
    let token = asked.of.access().create(&asked.name, asked.role).map_err(refused)?;
    if asked.of.json {
        let shown = serde_json::json!({ "name": asked.name, "role": asked.role, "token": token.text() });
        println!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    println!("{}", token.text());
    eprintln!("the token of {} (role {}); only its digest is stored, so keep it now", asked.name, asked.role);
    Ok(())
}

fn list(of: &Of) -> anyhow::Result<()> {
    of.refuse_missing()?;
    let tokens = of.access().list().map_err(refused)?;
    if of.json {
        println!("{}", serde_json::to_string_pretty(&tokens)?);
        return Ok(());
    }
    if tokens.is_empty() {
        println!(
            "no tokens; create one with keyhush access create NAME --role viewer --secrets {}",
            of.secrets.display()
        );
    }
    for Granted { name, role, created, .. } in &tokens {
        println!("{name}: {role}, created {created}");
    }
    Ok(())
}

fn revoke(asked: &Revoke) -> anyhow::Result<()> {
    asked.of.refuse_missing()?;
    let Granted { name, role, .. } = asked.of.access().revoke(&asked.name).map_err(refused)?;
    if asked.of.json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "revoked": name, "role": role }))?);
        return Ok(());
    }
    println!("{name} (role {role}) is revoked");
    Ok(())
}

/// Names and files that a person can mend are bad input; a disk that fails is not.
pub(crate) fn refused(error: ConsoleError) -> anyhow::Error {
    match error {
        ConsoleError::Name { .. }
        | ConsoleError::Taken { .. }
        | ConsoleError::Unknown { .. }
        | ConsoleError::Damaged { .. }
        | ConsoleError::Loose { .. }
        | ConsoleError::Secrets(_) => BadInput::Refused(error.to_string()).into(),
        other => other.into(),
    }
}
