//! `keyhush rotate`: replaces what devices know a server by.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use server::{
    http::{fingerprint, prepare_next, switch_to_next},
    token::replace_token,
};

use crate::{
    failure::BadInput,
    serve::{unopened, unusable},
};

/// What `keyhush rotate` replaces.
#[derive(Subcommand)]
pub(crate) enum What {
    /// The certificate that the server made (--self-signed), in two steps, so that devices can pin the next one before it is used.
    ///
    /// First without --switch: it makes the next certificate, and pins.pem with both. Give that file to the devices (--pin), as you gave them the
    /// first one. When all have it, run it with --switch: the server uses the next certificate within seconds, without a restart.
    Certificate(Certificate),
    /// The enrolment token that the server drew. Devices that are enrolled need none; others enrol with the new one once the server was restarted.
    Token(Secrets),
}

#[derive(Args)]
pub(crate) struct Secrets {
    /// Secrets folder of the server (--secrets of keyhush serve)
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct Certificate {
    #[command(flatten)]
    of: Secrets,
    /// Host name of the next certificate, as for --self-signed; may be repeated. All names of the one in use must be among them
    #[arg(long = "name", value_name = "NAME", required_unless_present = "switch", conflicts_with = "switch")]
    names: Vec<String>,
    /// Put the next certificate in the place of the one in use
    #[arg(long)]
    switch: bool,
}

/// What is there now, for programs.
#[derive(Serialize)]
struct Certificates<'a> {
    pins: &'a Path,
    sha256: String,
    next_sha256: Option<String>,
}

/// Runs `keyhush rotate`.
pub(crate) fn run(what: &What) -> anyhow::Result<()> {
    match what {
        What::Certificate(args) => certificate(args),
        What::Token(Secrets { secrets, json }) => {
            refuse_without(
                &secrets.join("token"),
                "a token that the server drew; one of your own (--token) is replaced by you",
            )?;
            let token = replace_token(secrets).map_err(unopened)?;
            if *json {
                println!("{}", serde_json::json!({ "token": token }));
            } else {
                println!("new enrolment token: {}", token.display());
                println!(
                    "restart the server, and give the file to devices that are to enrol; those that are enrolled need none"
                );
            }
            Ok(())
        }
    }
}

fn refuse_without(file: &Path, what: &str) -> anyhow::Result<()> {
    if file.is_file() {
        return Ok(());
    }
    Err(BadInput::wrong("secrets", format!("there is no {}: the folder does not have {what}", file.display())).into())
}

fn certificate(args: &Certificate) -> anyhow::Result<()> {
    let folder = args.of.secrets.join("tls");
    refuse_without(&folder.join("cert.pem"), "a certificate that the server made (keyhush serve --self-signed)")?;
    if args.switch {
        refuse_without(
            &folder.join("next/cert.pem"),
            "a next certificate; make one first, with --name instead of --switch",
        )?;
    }
    let pins = if args.switch { switch_to_next(&folder) } else { prepare_next(&folder, &args.names) };
    let pins = pins.map_err(unusable)?;
    let sha256 = fingerprint(&folder.join("cert.pem")).map_err(unusable)?;
    let next = folder.join("next/cert.pem");
    let next_sha256 = next.is_file().then(|| fingerprint(&next)).transpose().map_err(unusable)?;
    if args.of.json {
        println!("{}", serde_json::to_string_pretty(&Certificates { pins: &pins, sha256, next_sha256 })?);
        return Ok(());
    }
    println!("SHA-256 of the certificate in use: {sha256}");
    match next_sha256 {
        Some(next) => {
            println!("SHA-256 of the next one: {next}");
            println!(
                "give devices {} to pin; when all have it: keyhush rotate certificate --secrets {} --switch",
                pins.display(),
                args.of.secrets.display()
            );
        }
        None => println!("for devices to pin: {}", pins.display()),
    }
    Ok(())
}
