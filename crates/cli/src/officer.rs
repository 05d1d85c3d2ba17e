//! `keyhush officer`: the key with which a privacy officer approves the plans of tasks.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use durable::{
    disk::{Disk, How, OsDisk},
    files::{self, beside, failed, folder},
};
use ledger::{SigningKey, VerifyingKey};

use crate::{failure::BadInput, model_folder::read_text};

/// A file of an officer's secret key begins with this, so that it cannot be taken for a public key.
const SECRET: &str = "keyhush-officer-secret:";

/// What `keyhush officer` does.
#[derive(Subcommand)]
#[command(after_help = "\
Example:
  keyhush officer init --key officer.key

Then keyhush task approve signs tasks with officer.key, and keyhush serve --officer officer.key.pub refuses others.")]
pub(crate) enum Command {
    /// Create a privacy officer's key: FILE is the secret key, FILE.pub the public key. Keep FILE away from the server.
    Init(KeyArgs),
    /// Print the public key of a secret key.
    Show(KeyArgs),
}

#[derive(Args)]
pub(crate) struct KeyArgs {
    /// File of the secret key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `keyhush officer`.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Init(args) => init(args),
        Command::Show(args) => shown(args, &secret_key(&args.key)?.verifying_key(), None),
    }
}

fn init(args: &KeyArgs) -> anyhow::Result<()> {
    let path = &args.key;
    if path.exists() {
        let why = format!("{} exists; a key is never replaced: choose another name", path.display());
        return Err(BadInput::wrong("key", why).into());
    }
    let key = SigningKey::generate()?;
    let text = key.to_secret_text();
    let mut file = OsDisk.writer(path, How::New { private: true }).map_err(failed("create", path))?;
    file.write_all(SECRET.as_bytes()).and_then(|()| file.write_all(text.as_bytes())).map_err(failed("write", path))?;
    file.sync().map_err(failed("sync", path))?;
    files::sync_folder(folder(path))?;
    let public = beside(path, ".pub");
    files::write(&public, format!("{}\n", key.verifying_key()).as_bytes())?;
    shown(args, &key.verifying_key(), Some(&public))
}

fn shown(args: &KeyArgs, key: &VerifyingKey, public: Option<&Path>) -> anyhow::Result<()> {
    if args.json {
        let public = public.map(|path| path.display().to_string());
        let shown = serde_json::json!({ "public_key": key, "public_key_file": public });
        println!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    println!("{key}");
    if let Some(public) = public {
        let (secret, public) = (args.key.display(), public.display());
        eprintln!("the secret key is in {secret}: keep it away from the server");
        eprintln!("the public key is also in {public}: keyhush serve --officer {public}");
    }
    Ok(())
}

/// An officer's secret key, which only its owner may be able to read.
pub(crate) fn secret_key(path: &Path) -> anyhow::Result<SigningKey> {
    if is_public(path) {
        let path = path.display();
        let why = format!("{path} is a public key; give the secret key, the file of keyhush officer init without .pub");
        return Err(BadInput::wrong("key", why).into());
    }
    if let Some(mode) = OsDisk.mode(path).map_err(failed("look at", path))?
        && mode & 0o077 != 0
    {
        let why =
            format!("{} can be read by others (mode {:o}); make it 600 (chmod 600)", path.display(), mode & 0o7777);
        return Err(BadInput::wrong("key", why).into());
    }
    let text = read_text("key", path)?;
    let key = text.strip_prefix(SECRET).and_then(|text| SigningKey::from_secret_text(text).ok());
    let why = || format!("{} is not an officer's secret key; keyhush officer init creates one", path.display());
    Ok(key.ok_or_else(|| BadInput::wrong("key", why()))?)
}

fn is_public(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim().parse::<VerifyingKey>().is_ok())
}

/// An officer's public key: 64 hexadecimal digits, or a file that has them.
pub(crate) fn public_key(given: &str) -> Result<VerifyingKey, BadInput> {
    if let Ok(key) = given.parse() {
        return Ok(key);
    }
    if given != "-" && !Path::new(given).exists() {
        let why = format!("{given} is neither 64 hexadecimal digits nor a file; keyhush officer init creates FILE.pub");
        return Err(BadInput::wrong("officer", why));
    }
    let text = read_text("officer", Path::new(given))?;
    text.trim().parse().map_err(|_| {
        let why = "is not a public key; give 64 hexadecimal digits, or the file FILE.pub of keyhush officer init";
        BadInput::wrong("officer", format!("{given} {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(key: &Path) -> KeyArgs {
        KeyArgs { key: key.to_owned(), json: true }
    }

    #[test]
    fn a_key_is_created_once_is_private_and_is_no_public_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("officer.key");
        init(&args(&path)).unwrap();
        let key = secret_key(&path).unwrap().verifying_key();
        let public = beside(&path, ".pub");
        assert_eq!(public_key(public.to_str().unwrap()).unwrap(), key);
        assert_eq!(public_key(&key.to_string()).unwrap(), key);
        assert!(public_key(path.to_str().unwrap()).is_err(), "the secret key is not taken for a public one");
        assert!(secret_key(&public).unwrap_err().to_string().contains("is a public key"));
        assert!(public_key("zz").unwrap_err().to_string().contains("neither 64 hexadecimal digits nor a file"));
        assert!(init(&args(&path)).is_err(), "a key is never replaced");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            assert!(secret_key(&path).unwrap_err().to_string().contains("chmod 600"));
        }
    }
}
