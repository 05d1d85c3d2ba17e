//! `keyhush doctor`: looks for what is commonly wrong with a server's folders, its machine and its certificate, and says what to do.
//!
//! | module        | what is looked at                                                                  |
//! |---------------|------------------------------------------------------------------------------------|
//! | `folders`     | permissions of data and secrets, where they are, room on the disk                   |
//! | `records`     | the database, the ledgers in it, and what stands of them beside the secrets         |
//! | `machine`     | how long a write takes to be durable, limits on files, memory, the clock            |
//! | `certificate` | its dates, names, chain and key; and what a device sees that connects               |
//!
//! It changes nothing but for one small file in the data folder, which it writes and removes to time the disk, and can be run beside a running server.

mod certificate;
mod folders;
mod machine;
mod records;
mod x509;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::{
    failure::{BadInput, Told},
    reach,
};

/// What to do where permission is denied.
const AS_WHOM: &str = "give the folders of keyhush serve, and run this as the server's user";

#[derive(Args)]
#[command(after_help = "\
Example:
  keyhush doctor --data /var/lib/keyhush/data --secrets /var/lib/keyhush/secrets")]
pub(crate) struct DoctorArgs {
    /// Data folder of the server (--data of keyhush serve)
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Secrets folder of the server (--secrets of keyhush serve)
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,
    /// Certificate chain of the server, in PEM; without it, the generated one in the secrets folder is checked, if there is one
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Address of the running server, such as `https://example.org:8443`: connects as a device does
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Trust only this certificate, as devices with --pin do
    #[arg(long, value_name = "FILE", requires = "server", conflicts_with = "roots")]
    pin: Option<PathBuf>,
    /// Trust servers certified by these certificates, as devices with --roots do
    #[arg(long, value_name = "FILE", requires = "server")]
    roots: Option<PathBuf>,
    /// Connections that you expect at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2_000)]
    connections: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// Nothing is wrong.
    Ok,
    /// It may be meant that way.
    Hint,
    /// Something does not work, or is not safe.
    Failure,
}

/// What was looked at, what was found, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    what_to_do: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), what_to_do: None }
    }

    fn hint(check: &'static str, found: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Hint, found: found.into(), what_to_do: Some(what_to_do.into()) }
    }

    fn failure(check: &'static str, found: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failure, found: found.into(), what_to_do: Some(what_to_do.into()) }
    }
}

/// Runs `keyhush doctor`.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    if !reach::is_folder(&args.data).map_err(|why| BadInput::wrong("data", why))? {
        let problem = format!("{} is no folder; give the --data folder of keyhush serve", args.data.display());
        return Err(BadInput::wrong("data", problem).into());
    }
    let (records, realm) = records::look(&args.data, &args.secrets);
    let findings: Vec<Finding> = folders::look(&args.data, &args.secrets)
        .into_iter()
        .chain(records)
        .chain(machine::look(args))
        .chain(certificate::look(args, realm))
        .collect();
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Failure);
    if args.json {
        let all = serde_json::json!({ "ok": !failed, "findings": findings });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        findings.iter().for_each(show);
    }
    if failed { Err(Told(1).into()) } else { Ok(()) }
}

fn show(finding: &Finding) {
    let word = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Hint => "hint",
        Verdict::Failure => "FAILED",
    };
    println!("{word:<7} {:<12} {}", finding.check, finding.found);
    if let Some(what_to_do) = &finding.what_to_do {
        println!("{:<20} -> {what_to_do}", "");
    }
}

/// Bytes in words.
fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}
