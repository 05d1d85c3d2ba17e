//! `keyhush backup` and `keyhush restore` with a real server and its devices: the drill of [docs/DEPLOY.md](../../../docs/DEPLOY.md).
//!
//! The server is backed up while rounds run, and its disk is lost. What is restored is either its newest state, and then it goes on; or an older
//! one, and then its tasks are over, nothing is released twice, and a new task counts what the old one can have cost.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use federated::home::Records;
use ledger::{Ledger, LedgerStore};
use serde_json::Value;
use server::sqlite::{DATABASE, Database, TaskHome};

use crate::{
    serve::{Killed, keyhush, serve, settings},
    small_runs::with,
};

const DEVICES: &str = "160";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn task(rounds: u32) -> String {
    let changes = [
        &*format!("rounds={rounds}"),
        "participation.max_participations=9",
        "devices.begin_with=150",
        "devices.tick_seconds=0.05",
    ];
    with(&settings(), &changes)
}

fn run(folder: &Path, args: &[&str]) -> Output {
    keyhush().current_dir(folder).args(args).output().unwrap()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let out = run(folder, &[args, &["--json"]].concat());
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// A command that is refused, with the reason.
fn refused(folder: &Path, args: &[&str]) -> String {
    let out = run(folder, args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
    said
}

/// Waits until the one task is as it should be, and says how it is then.
fn wait_for(folder: &Path, is: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let now = json(folder, &["task", "list", "--data", "data"])[0].clone();
        if is(&now) {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come to that: {now}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn rounds(task: &Value) -> u64 {
    task["ledger"]["rounds"].as_u64().unwrap_or(0)
}

/// Devices over TLS, which trust the certificate of the server and enrol with its token, both from a folder.
fn devices(folder: &Path, address: &str, keys: &str) -> Killed {
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    let mut devices = keyhush();
    devices.current_dir(folder).args(["device", "--server", &url, "--synthetic", "--count", DEVICES, "--pin"]);
    devices.arg(folder.join(keys).join("tls/cert.pem")).arg("--token").arg(folder.join(keys).join("token"));
    Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

fn backup(folder: &Path) -> (String, Value) {
    let made = json(folder, &["backup", "--data", "data", "--to", "backups"]);
    (made["backup"].as_str().unwrap().to_owned(), made)
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// What the ledger in a database says, entry by entry.
fn entries(database: &Path) -> Vec<String> {
    let home = TaskHome::read(Arc::new(Database::read(database).unwrap()), "words").unwrap();
    let ledger = Ledger::open(home.read_store().unwrap(), None, &home.shown_heads().unwrap()).unwrap();
    let store = home.read_store().unwrap();
    assert_eq!(ledger.head(), store.head().unwrap());
    store.read(0).unwrap().map(|entry| entry.unwrap().line()).collect()
}

#[test]
fn p17_p21_a_server_whose_disk_is_lost_does_not_go_on_from_an_older_copy_and_a_new_task_counts_the_old_one() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::write(here.join("words.toml"), task(40)).unwrap();
    let (server, address) = serve(here, "127.0.0.1:0", &[]);
    let of_old = devices(here, &address, "secrets");

    // While rounds run: three times, of which two are kept, and once with the keys that devices know the server by.
    let before = wait_for(here, |task| rounds(task) >= 1);
    backup(here);
    backup(here);
    let made = json(
        here,
        &["backup", "--data", "data", "--to", "backups", "--keep", "2", "--secrets", "secrets", "--keys-to", "keys"],
    );
    let copy = made["backup"].as_str().unwrap().to_owned();
    assert_eq!(fs::read_dir(here.join("backups")).unwrap().count(), 2, "{made}");
    assert_eq!(made["keys"], serde_json::json!(["tls/cert.pem", "tls/key.pem", "token"]));
    let copied = made["tasks"][0]["head"].as_str().unwrap().to_owned();
    p20_nothing_secret_is_in(&here.join(&copy), &here.join("secrets"));

    // Rounds go on, and then the disk is lost.
    wait_for(here, |task| rounds(task) >= rounds(&before) + 3);
    let said = refused(here, &["restore", &copy, "--salvage", "early", "--secrets", "secrets", "--destroy-keys"]);
    assert!(said.contains("a server runs on the secrets"), "{said}");
    drop(server);
    fs::rename(here.join("data"), here.join("gone")).unwrap();
    let checked = json(here, &["restore", &copy, "--check", "--secrets", "secrets"]);
    assert_eq!(checked["newest"], false, "{checked}");
    let said = refused(here, &["restore", &copy, "--data", "data", "--secrets", "secrets"]);
    assert!(said.contains("older than the last state") && said.contains("--salvage"), "{said}");
    assert!(!here.join("data").exists(), "what is refused leaves nothing");

    // Nor by hand: the files beside the secrets know.
    fs::create_dir(here.join("data")).unwrap();
    fs::set_permissions(here.join("data"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(here.join(&copy).join(DATABASE), here.join("data").join(DATABASE)).unwrap();
    let started =
        run(here, &["serve", "words.toml", "--listen", "127.0.0.1:0", "--data", "data", "--secrets", "secrets"]);
    let said = String::from_utf8_lossy(&started.stderr).into_owned();
    assert!(started.status.code() == Some(1) && said.contains("rolled back"), "{said}");
    fs::remove_dir_all(here.join("data")).unwrap();

    // What is left is written out, and what is missing is known.
    let salvaged = json(here, &["restore", &copy, "--salvage", "salvaged", "--secrets", "secrets", "--destroy-keys"]);
    let gone = entries(&here.join("gone").join(DATABASE));
    let left = fs::read_to_string(here.join("salvaged/words/ledger.jsonl")).unwrap();
    let left: Vec<&str> = left.lines().collect();
    let lost = gone.len() - left.len();
    assert!(lost >= 2 && left.iter().zip(&gone).all(|(left, gone)| left == gone), "what is left is what was there");
    let written = &salvaged["tasks"][0];
    assert_eq!(written["lost_entries"].as_u64().unwrap() as usize, lost, "{salvaged}");
    assert!(written["model_after"].as_u64() >= Some(1), "{salvaged}");
    let old = verified(&here.join("salvaged/words"));
    assert_eq!(old["head"].as_str(), Some(copied.as_str()), "{old}");
    let statement = read_json(&here.join("salvaged/words/statement.json"));
    assert_eq!(statement["guarantee"]["basis"], "plan", "{statement}");
    assert_eq!(statement["guarantee"]["epsilon"], before["ledger"]["holds"]["epsilon"], "{statement} {before}");
    let keys: Vec<PathBuf> = files(&here.join("secrets/words"));
    assert!(keys.iter().all(|path| path.ends_with("ledger.head")), "of the old keys none is left: {keys:?}");

    // The old data turn up again: without its keys the task is over for good. The new one does not depend on that.
    fs::rename(here.join("gone"), here.join("data")).unwrap();
    let (mut again, _) = serve(here, "127.0.0.1:0", &[]);
    assert!(!ended(&mut again).success(), "nothing can be drawn, and nothing signed");
    assert_eq!(entries(&here.join("data").join(DATABASE)), gone);

    // A new server that devices know already, with a new task that starts from what is left.
    drop(of_old);
    let new = here.join("new");
    fs::create_dir(&new).unwrap();
    fs::rename(here.join("keys"), new.join("secrets")).unwrap();
    let model = format!("model.from=\"{}\"", here.join("salvaged/words").display());
    let from_old = [&*model, "model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding="];
    fs::write(new.join("words.toml"), with(&task(2), &from_old)).unwrap();
    let (mut server, again) = serve(&new, &address, &[]);
    assert_eq!(again, address);
    let _devices = devices(&new, &again, "secrets");
    assert!(ended(&mut server).success());
    let done = new.join("data/models/words");
    let both = verified(&done);
    assert_eq!(both["imports"].as_array().map_or(0, Vec::len).max(1), 1, "{both}");
    let stated = read_json(&done.join("statement.json"));
    let epsilon = |statement: &Value| statement["guarantee"]["epsilon"].as_f64().unwrap();
    assert!(epsilon(&stated) > epsilon(&statement), "both are counted: {stated}");
    let said = fs::read_to_string(done.join("ledger.jsonl")).unwrap();
    assert!(said.contains("counted as if its whole plan had been released"), "{said}");
}

/// Waits until a server has come to its end.
fn ended(server: &mut Killed) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = server.0.try_wait().unwrap() {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come to its end");
        thread::sleep(Duration::from_millis(50));
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn verified(folder: &Path) -> Value {
    let verified = json(folder, &["privacy", "verify", "."]);
    assert_eq!(verified["verified"], true, "{verified}");
    verified
}

/// No byte of a key is in a backup, and nobody but its owner can read it.
fn p20_nothing_secret_is_in(backup: &Path, secrets: &Path) {
    let copied: Vec<Vec<u8>> = files(backup).iter().map(|path| fs::read(path).unwrap()).collect();
    for path in files(backup) {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
    }
    let mut keys = BTreeSet::new();
    // Witnesses say what the database says, and certificates are public.
    for path in files(secrets)
        .into_iter()
        .filter(|path| !["ledger.head", "assignments", "cert.pem"].iter().any(|name| path.ends_with(name)))
    {
        let text = fs::read(&path).unwrap();
        let name = path.strip_prefix(secrets).unwrap().display().to_string();
        for line in text.split(|byte| !byte.is_ascii_hexdigit()).filter(|part| part.len() >= 32) {
            let raw: Vec<u8> =
                line.chunks(2).filter_map(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok()).collect();
            assert!(
                !copied.iter().any(|bytes| contains(bytes, line) || contains(bytes, &raw)),
                "{name} is in the backup"
            );
            keys.insert(name.clone());
        }
    }
    assert!(keys.len() >= 4, "keys of noise, of pseudonyms, of the ledger and a token were looked for: {keys:?}");
}

#[test]
fn p17_a_backup_that_is_the_newest_state_is_gone_on_from_and_releases_nothing_twice() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::write(here.join("words.toml"), task(4)).unwrap();
    let (server, address) = serve(here, "127.0.0.1:0", &[]);
    let _devices = devices(here, &address, "secrets");
    wait_for(here, |task| rounds(task) >= 1);
    json(here, &["task", "pause", "words", "--data", "data"]);
    let paused = rounds(&wait_for(here, |task| task["state"] == "paused"));
    let (copy, made) = backup(here);
    assert_eq!(made["tasks"][0]["wanted"], "pause", "{made}");

    // What cannot be meant is refused, and says what to do.
    for (args, words) in [
        (vec!["restore", "nowhere", "--check"], "is not a backup"),
        (vec!["restore", &copy, "--check", "--sha256", &"0".repeat(64)], "not the one that was noted"),
        (vec!["restore", &copy, "--check", "--sha256", "0"], "64 hexadecimal digits"),
        (vec!["restore", &copy, "--data", "data", "--secrets", "secrets"], "is there already"),
        (vec!["restore", &copy, "--salvage", "salvaged", "--secrets", "secrets"], "nothing happened after this backup"),
        (vec!["restore", &copy, "--check", "--secrets", "nowhere"], "is not a folder"),
        (vec!["restore", &copy, "--data", "data"], "--secrets"),
        (vec!["backup", "--data", "nowhere", "--to", "backups"], "does not exist"),
        (vec!["backup", "--data", "data", "--to", "data/backups"], "neither inside the other"),
        (
            vec!["backup", "--data", "data", "--to", "b", "--secrets", "secrets", "--keys-to", "b/keys"],
            "neither inside the other",
        ),
    ] {
        let said = refused(here, &args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let damaged = here.join("damaged");
    fs::create_dir(&damaged).unwrap();
    for file in files(&here.join(&copy)) {
        fs::copy(&file, damaged.join(file.file_name().unwrap())).unwrap();
    }
    let mut bytes = fs::read(damaged.join(DATABASE)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(damaged.join(DATABASE), bytes).unwrap();
    assert!(refused(here, &["restore", "damaged", "--check"]).contains("is damaged"));

    drop(server);
    fs::remove_dir_all(here.join("data")).unwrap();
    let noted = made["manifest_sha256"].as_str().unwrap();
    let restored = json(here, &["restore", &copy, "--data", "data", "--secrets", "secrets", "--sha256", noted]);
    assert_eq!(restored["left_out"], serde_json::json!([]));
    assert_eq!((restored["newest"].as_bool(), restored["forgotten"].as_u64()), (Some(true), Some(0)), "{restored}");
    let (mut server, _) = serve(here, &address, &[]);
    let still = wait_for(here, |task| task["state"] == "paused");
    assert_eq!(rounds(&still), paused, "it rests, as its operator wanted");
    json(here, &["task", "resume", "words", "--data", "data"]);
    assert!(ended(&mut server).success());
    verified(&here.join("data/models/words"));
    let all = entries(&here.join("data").join(DATABASE));
    let released = all.iter().filter(|line| line.contains("\"release\"")).count();
    assert_eq!(released, 4, "each round once");
    let said = refused(here, &["restore", &copy, "--salvage", "salvaged", "--destroy-keys"]);
    assert!(said.contains("--secrets"), "{said}");
}
