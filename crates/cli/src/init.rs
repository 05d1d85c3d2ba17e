//! `keyhush init`: writes a settings file to start from, with every key explained.

use std::{io::Write, path::PathBuf};

use clap::{Args, builder::TypedValueParser};
use federated::{
    config::{MechanismKind, explained},
    propose::{ProposeError, beginning},
};

use crate::{
    choices::named,
    failure::{BadInput, of_config},
};

/// The kinds of noise, as flags name them.
pub(crate) fn noises() -> impl TypedValueParser<Value = MechanismKind> {
    named(MechanismKind::noises().map(|kind| (kind, kind.name(), kind.about())))
}

/// Arguments of `keyhush init`.
#[derive(Args)]
pub(crate) struct InitArgs {
    /// Kind of noise; it also decides how users take part
    #[arg(long, value_parser = noises(), default_value = "gaussian")]
    kind: MechanismKind,
    /// File to write; must not exist yet [default: standard output]
    #[arg(long, short, value_name = "FILE.toml")]
    out: Option<PathBuf>,
    /// Print the settings as JSON, without explanations
    #[arg(long)]
    json: bool,
}

pub(crate) fn init(args: &InitArgs) -> anyhow::Result<()> {
    let config = beginning(args.kind).map_err(refused)?;
    let head = [
        "Settings of a run. `keyhush plan FILE` shows what it would cost; `keyhush train FILE` trains.",
        "Commented keys are optional. Keys that privacy depends on have no defaults.",
    ];
    let text = explained(&config, &head.map(str::to_owned)).map_err(|e| of_config(&e))?;
    match &args.out {
        None if args.json => {}
        None => std::io::stdout().write_all(text.as_bytes())?,
        Some(path) => write_new(path, &text)?,
    }
    if args.json {
        let settings: serde_json::Value = toml::from_str(&text)?;
        println!("{}", serde_json::to_string_pretty(&settings)?);
    }
    Ok(())
}

/// Writes a file that is not there yet.
pub(crate) fn write_new(path: &std::path::Path, text: &str) -> Result<(), BadInput> {
    let wrong = |error: std::io::Error| BadInput::wrong("out", format!("{}: {error}", path.display()));
    let mut file = std::fs::File::create_new(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            BadInput::wrong("out", format!("{} already exists; choose another name, or remove it", path.display()))
        }
        _ => wrong(error),
    })?;
    file.write_all(text.as_bytes()).map_err(wrong)?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// A proposal that was refused, in terms of flags.
pub(crate) fn refused(error: ProposeError) -> BadInput {
    match error {
        ProposeError::Refused { field, problem } => BadInput::wrong(field, problem),
        other => BadInput::Refused(other.to_string()),
    }
}
