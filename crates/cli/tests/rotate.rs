//! `keyhush rotate` while a server runs: its certificate, which devices pin beforehand, and its enrolment token. And certificates from files.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::serve::{keyhush, serve, settings};

/// A server looks at its certificate every two seconds, when somebody connects.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(folder: &Path, args: &[&str]) -> String {
    let out = keyhush().current_dir(folder).args(args).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Whether a device that trusts a file, and has a token, enrols.
fn enrols(folder: &Path, url: &str, trust: [&str; 2], token: &str, state: &str) -> bool {
    let args = [
        "device",
        "--server",
        url,
        trust[0],
        trust[1],
        "--token",
        token,
        "--text",
        "typed",
        "--state",
        state,
        "--for-seconds",
        "2",
    ];
    let out = keyhush().current_dir(folder).args(args).output().unwrap();
    String::from_utf8_lossy(&out.stderr).lines().any(|line| line == "enrolled")
}

fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn devices_that_pin_the_next_certificate_do_not_notice_when_it_is_used_and_a_new_token_takes_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::write(here.join("words.toml"), settings()).unwrap();
    fs::create_dir(here.join("typed")).unwrap();
    let named = ["--self-signed", "localhost"];
    let (server, address) = serve(here, "127.0.0.1:0", &named);
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    fs::copy(here.join("secrets/tls/cert.pem"), here.join("old.pem")).unwrap();
    fs::copy(here.join("secrets/token"), here.join("old-token")).unwrap();
    let wrong: [(&[&str], &str); 4] = [
        (&["rotate", "certificate", "--secrets", "nowhere", "--name", "localhost"], "that the server made"),
        (&["rotate", "certificate", "--secrets", "secrets", "--switch"], "make one first"),
        (&["rotate", "certificate", "--secrets", "secrets", "--name", "elsewhere.example"], "add --name localhost"),
        (&["rotate", "token", "--secrets", "nowhere"], "that the server drew"),
    ];
    for (args, words) in wrong {
        let out = keyhush().current_dir(here).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && said.contains(words), "{args:?}: {said}");
    }
    run(here, &["rotate", "certificate", "--secrets", "secrets", "--name", "localhost"]);
    fs::copy(here.join("secrets/tls/pins.pem"), here.join("both.pem")).unwrap();
    let (old, both) = (["--pin", "old.pem"], ["--pin", "both.pem"]);
    assert!(enrols(here, &url, old, "old-token", "a") && enrols(here, &url, both, "old-token", "b"));

    let said = run(here, &["rotate", "certificate", "--secrets", "secrets", "--switch"]);
    assert!(said.contains("SHA-256 of the certificate in use"), "{said}");
    fs::copy(here.join("secrets/tls/pins.pem"), here.join("new.pem")).unwrap();
    let states = std::cell::Cell::new(0);
    let fresh = || {
        states.set(states.get() + 1);
        format!("c{}", states.get())
    };
    until("the server uses the next one", || enrols(here, &url, ["--pin", "new.pem"], "old-token", &fresh()));
    assert!(enrols(here, &url, both, "old-token", "d"), "a device that pinned both goes on");
    assert!(!enrols(here, &url, old, "old-token", "e"), "the old one is used no more");

    run(here, &["rotate", "token", "--secrets", "secrets"]);
    fs::copy(here.join("secrets/token"), here.join("new-token")).unwrap();
    drop(server);
    let (_server, _) = serve(here, &address, &named);
    assert!(enrols(here, &url, both, "new-token", "f") && !enrols(here, &url, both, "old-token", "g"));
}

/// Makes a certificate of an authority of one's own, as an operator's tools would, for this machine, and for more names.
pub(crate) fn certified(here: &Path, name: &str, more: &str) {
    let openssl = |args: &str| {
        let out = Command::new("openssl").current_dir(here).args(args.split(' ')).output().unwrap();
        assert!(out.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&out.stderr));
    };
    if !here.join("ca.pem").exists() {
        openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=authority",
        );
    }
    openssl(&format!(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN=localhost"
    ));
    fs::write(here.join("names"), format!("subjectAltName=DNS:localhost,IP:127.0.0.1{more}\n")).unwrap();
    openssl(&format!(
        "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out {name}.pem"
    ));
}

#[test]
fn a_certificate_from_files_that_is_renewed_is_used_without_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::write(here.join("words.toml"), settings()).unwrap();
    fs::create_dir(here.join("typed")).unwrap();
    certified(here, "first", "");
    certified(here, "second", "");
    let renew = |name: &str| {
        for (from, to) in [("key", "live.key"), ("pem", "live.pem")] {
            fs::copy(here.join(format!("{name}.{from}")), here.join(to)).unwrap();
        }
    };
    renew("first");
    let (_server, address) = serve(here, "127.0.0.1:0", &["--certificate", "live.pem", "--key", "live.key"]);
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    let token = "secrets/token";
    assert!(enrols(here, &url, ["--roots", "ca.pem"], token, "a"));
    assert!(!enrols(here, &url, ["--pin", "second.pem"], token, "b"));
    renew("second");
    let states = std::cell::Cell::new(0);
    let fresh = || {
        states.set(states.get() + 1);
        format!("c{}", states.get())
    };
    until("the renewed one is used", || enrols(here, &url, ["--pin", "second.pem"], token, &fresh()));
    assert!(enrols(here, &url, ["--roots", "ca.pem"], token, "d"), "who trusts the authority does not notice");
}
