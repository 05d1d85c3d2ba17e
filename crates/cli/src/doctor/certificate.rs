//! The certificate of a server, as it lies in its files; and what a device sees that connects.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use agent::http::{Server, Trust};
use device::protocol::message::{CLOCKS_APART_S, Hello};
use jiff::Timestamp;
use prost::Message as _;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use server::http::{Identity, fingerprint};

use super::{DoctorArgs, Finding, x509};

/// Before this many days it is said that a certificate expires.
const SOON_DAYS: i64 = 14;

pub(super) fn look(args: &DoctorArgs, realm: Option<[u8; 32]>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match files(args) {
        Some((chain, key)) => findings.extend(of_files(&chain, &key)),
        None => findings
            .push(Finding::ok("certificate", "none in the secrets folder, and none was given with --certificate")),
    }
    if let Some(address) = &args.server {
        findings.extend(as_a_device(address, args, realm));
    }
    findings
}

/// What was given, or what the server generated; older servers put it with their data.
fn files(args: &DoctorArgs) -> Option<(PathBuf, PathBuf)> {
    if let (Some(chain), Some(key)) = (&args.certificate, &args.key) {
        return Some((chain.clone(), key.clone()));
    }
    let made = [args.secrets.join("tls"), args.data.join("tls")];
    let folder = made.into_iter().find(|folder| folder.join("cert.pem").exists())?;
    Some((folder.join("cert.pem"), folder.join("key.pem")))
}

fn of_files(chain: &Path, key: &Path) -> Vec<Finding> {
    let check = "certificate";
    let all: Vec<CertificateDer<'static>> =
        match CertificateDer::pem_file_iter(chain).and_then(Iterator::collect::<Result<_, _>>) {
            Ok(all) => all,
            Err(error) => {
                let found = format!("{} cannot be read: {error}", chain.display());
                return vec![Finding::failure(
                    check,
                    found,
                    "give the certificate and its chain in PEM, readable by the server's user",
                )];
            }
        };
    let fields: Option<Vec<x509::Fields<'_>>> = all.iter().map(|der| x509::read(der)).collect();
    let Some(fields) = fields.filter(|fields| !fields.is_empty()) else {
        let found = format!("{} holds no certificate that can be read", chain.display());
        return vec![Finding::failure(check, found, "give the certificate and its chain in PEM")];
    };
    let mut findings = vec![dates(&fields, chain), in_order(&fields, chain), of_key(chain, key)];
    findings.extend(private(key));
    findings
}

fn dates(fields: &[x509::Fields<'_>], chain: &Path) -> Finding {
    let (check, now) = ("certificate", Timestamp::now());
    let place = chain.display();
    // Any of them makes the chain invalid.
    let until = fields.iter().map(|fields| fields.until).min().unwrap_or(now);
    let from = fields.iter().map(|fields| fields.from).max().unwrap_or(now);
    let days = (until.as_second() - now.as_second()) / 86_400;
    let renew = "renew it and replace the files: the server reads them again by itself; one that it made itself is replaced by keyhush rotate certificate";
    if until <= now {
        Finding::failure(check, format!("{place} expired at {until}: no device connects"), renew)
    } else if from > now {
        Finding::failure(
            check,
            format!("{place} is valid from {from} on, which is not now: no device connects"),
            "check the clock of this machine, or wait",
        )
    } else if days < SOON_DAYS {
        Finding::hint(
            check,
            format!("{place} expires at {until}, in {}", federated::numbers::counted(days.unsigned_abs(), "day")),
            renew,
        )
    } else {
        Finding::ok(
            check,
            format!("{place} is valid until {until}; SHA-256 {}", fingerprint(chain).unwrap_or_default()),
        )
    }
}

/// Each certificate is issued by the next one.
fn in_order(fields: &[x509::Fields<'_>], chain: &Path) -> Finding {
    let broken = fields.windows(2).position(|pair| pair[0].issuer != pair[1].subject);
    match (broken, fields) {
        (Some(place), _) => Finding::failure(
            "chain",
            format!("certificate {} of {} is not issued by the one after it", place + 1, chain.display()),
            "put the server's certificate first, and after each certificate the one of its issuer",
        ),
        (None, [only]) if only.issuer == only.subject => {
            Finding::ok("chain", "self-signed: devices need it with --pin or --roots")
        }
        (None, [_]) => Finding::hint(
            "chain",
            format!("{} has one certificate and none of its issuers", chain.display()),
            "add the intermediate certificates, unless devices are given the issuer itself with --roots",
        ),
        (None, _) => Finding::ok("chain", format!("{} certificates, each issued by the next", fields.len())),
    }
}

fn of_key(chain: &Path, key: &Path) -> Finding {
    match Identity::from_files(chain, key) {
        Ok(_) => Finding::ok("key", format!("{} belongs to the certificate", key.display())),
        Err(error) => Finding::failure("key", error.to_string(), "give the key that the certificate was made with"),
    }
}

fn private(key: &Path) -> Option<Finding> {
    let mode = fs::metadata(key).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        Finding::failure(
            "key",
            format!("others can reach {} (mode {mode:03o})", key.display()),
            format!("chmod 600 {}; if others may have read it, replace key and certificate", key.display()),
        )
    })
}

/// Connects as a device does.
fn as_a_device(address: &str, args: &DoctorArgs, realm: Option<[u8; 32]>) -> Vec<Finding> {
    let check = "connection";
    let trust = match (&args.pin, &args.roots) {
        (Some(pin), _) => Trust::Pinned(pin.clone()),
        (None, Some(roots)) => Trust::Roots(roots.clone()),
        (None, None) => match files(args) {
            Some((chain, _)) if address.starts_with("https:") => Trust::Pinned(chain),
            _ => Trust::Loopback,
        },
    };
    let said = Server::new(address, &trust, 1).map_err(|error| error.to_string()).and_then(|server| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(server.hello()).map_err(|error| error.to_string())
    });
    let hello =
        said.and_then(|bytes| Hello::decode(bytes).map_err(|_| "the answer is not one of a Keyhush server".to_owned()));
    let hello = match hello {
        Ok(hello) => hello,
        Err(error) => {
            let next = "check the address, the certificate's names and dates, and whatever is in between: a firewall, a proxy, DNS";
            return vec![Finding::failure(check, format!("a device cannot connect to {address}: {error}"), next)];
        }
    };
    let mut findings = vec![Finding::ok(
        check,
        format!("a device connects to {address} and is told versions {} to {}", hello.oldest, hello.newest),
    )];
    if realm.is_some_and(|realm| realm[..] != hello.realm[..]) {
        let found = format!("the server at {address} is not the one of this data folder: it has another realm");
        findings.push(Finding::failure(
            check,
            found,
            "give the folders of this server, or the address of the server of these folders",
        ));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let apart = now.abs_diff(hello.time_s);
    findings.push(if apart > CLOCKS_APART_S {
        Finding::failure(
            "server clock",
            format!("the server's clock and this machine's are {apart} seconds apart"),
            "set the clocks, and restart the server: it takes the time when it starts",
        )
    } else {
        Finding::ok(
            "server clock",
            format!("it is within {} of this machine's", federated::numbers::counted(apart.max(1), "second")),
        )
    });
    findings
}
