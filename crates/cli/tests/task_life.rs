//! A task's life with real processes: approved, created on a server that runs, trained by devices, taken home, counted in the next one; and a server
//! that is killed in between.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    serve::{Killed, PLAIN, keyhush},
    small_runs::{TASK, with},
};

const DEVICES: &str = "40";
const PATIENCE: Duration = Duration::from_secs(120);

/// Two rounds of forty devices with secret noise.
fn settings(more: &[&str]) -> String {
    let changes = [
        "noise_seed=",
        "rounds=2",
        "participation.population=40",
        "participation.max_participations=2",
        "participation.cohort=4",
        "evaluation.every=1000",
        "evaluation.users=2",
        "evaluation.most_tokens=50",
        "devices.report_seconds=30",
        "devices.tick_seconds=0.05",
        "devices.begin_with=40",
        "privacy.delta=1e-3",
    ];
    with(TASK, &[&changes[..], more].concat())
}

/// A server without tasks on its command line, and its address.
fn serve(folder: &Path, more: &[&str]) -> (Killed, String) {
    let mut command = keyhush();
    command.current_dir(folder).args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--secrets", "secrets"]);
    command.args(PLAIN).args(["--least-pause", "0", "--threads", "1"]).args(more);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut said = String::new();
    let address = loop {
        let line = lines.next().unwrap_or_else(|| panic!("the server ended: {said}"));
        if let Some((_, address)) = line.split_once("listening on ") {
            break format!("http://{address}");
        }
        said.push_str(&line);
    };
    // What it says later must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (Killed::of(child), address)
}

/// A command to its end: its exit code, and all that it says.
fn ends(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = keyhush().current_dir(folder).env_remove("KEYHUSH_ACCESS").args(args).output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn done(folder: &Path, args: &[&str]) -> String {
    let (code, said) = ends(folder, args);
    assert_eq!(code, Some(0), "{args:?}: {said}");
    said
}

/// A command that is refused as bad input, in these words.
fn refused(folder: &Path, args: &[&str], words: &str) {
    let (code, said) = ends(folder, args);
    assert!(code == Some(2) && said.contains(words), "{args:?}: {code:?}: {said}, and not {words:?}");
}

fn task(folder: &Path, name: &str) -> Value {
    let shown = done(folder, &["task", "show", name, "--data", "data", "--json"]);
    serde_json::from_str(&shown).unwrap()
}

fn wait_until(folder: &Path, name: &str, state: &str) -> Value {
    let began = Instant::now();
    loop {
        let now = task(folder, name);
        if now["state"] == state {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "{name} is not {state}: {now}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Moments after the ledger of a task is closed its model, statement and ledger are where people find them; the ledger comes last.
fn written(folder: &Path, name: &str) {
    let began = Instant::now();
    while !folder.join("data/models").join(name).join("ledger.jsonl").exists() {
        assert!(began.elapsed() < PATIENCE, "{name} is not written where people find it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn devices(address: &str) -> Killed {
    let mut devices = keyhush();
    devices.args(["device", "--server", address, "--synthetic", "--count", DEVICES]);
    Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

fn token(folder: &Path, role: &str) {
    let token = done(folder, &["access", "create", role, "--role", role, "--secrets", "secrets"]);
    fs::write(folder.join(role), token.lines().next().unwrap()).unwrap();
}

#[test]
fn a_task_is_approved_created_trained_taken_home_and_counted_in_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    done(here, &["officer", "init", "--key", "officer.key"]);
    done(here, &["officer", "init", "--key", "other.key"]);
    let (mut server, address) = serve(here, &["--officer", "officer.key.pub"]);
    ["viewer", "operator", "officer"].iter().for_each(|role| token(here, role));
    let at = |role: &'static str| ["--server", &address, "--access", role].map(str::to_owned);
    let with = |args: &[&str], role: &'static str| {
        let at = at(role);
        let all: Vec<String> = args.iter().map(ToString::to_string).chain(at).collect();
        all
    };
    let args = |all: &[String]| all.iter().map(String::as_str).map(str::to_owned).collect::<Vec<_>>();
    let run = |given: &[&str], role: &'static str| {
        let all = args(&with(given, role));
        ends(here, &all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let ok = |given: &[&str], role: &'static str| {
        let (code, said) = run(given, role);
        assert_eq!(code, Some(0), "{given:?}: {said}");
        said
    };
    let no = |given: &[&str], role: &'static str, words: &str| {
        let (code, said) = run(given, role);
        assert!(code == Some(2) && said.contains(words), "{given:?}: {code:?}: {said}, and not {words:?}");
    };
    fs::write(here.join("words.toml"), settings(&[])).unwrap();
    no(&["task", "create", "words.toml"], "operator", "needs the role officer");
    no(&["task", "create", "words.toml"], "officer", "no privacy officer has approved it");
    ok(&["task", "approve", "words.toml", "--key", "other.key"], "viewer");
    no(&["task", "create", "words.toml"], "officer", "none of the officers");
    let approved = ok(&["task", "approve", "words.toml", "--key", "officer.key"], "viewer");
    assert!(approved.contains("epsilon"), "{approved}");
    // Of an approved plan not one round may be added.
    fs::write(here.join("words.toml"), settings(&["rounds=3"])).unwrap();
    no(&["task", "create", "words.toml"], "officer", "did not sign this plan");
    fs::write(here.join("words.toml"), settings(&[])).unwrap();
    let created = ok(&["task", "create", "words.toml"], "officer");
    assert!(created.contains("words: running"), "{created}");
    no(&["task", "create", "words.toml"], "officer", "more budget, or other settings, are a new task");
    refused(here, &["task", "create", "words.toml", "--data", "data"], "devices.after");

    // It is trained without a restart, and taken home.
    let crowd = devices(&address);
    let over = wait_until(here, "words", "over");
    assert_eq!(over["ledger"]["rounds"], 2, "{over}");
    no(&["task", "pause", "words"], "viewer", "needs the role operator");
    no(&["task", "pause", "words"], "operator", "has finished");
    let listed = ok(&["task", "list"], "viewer");
    assert!(listed.contains("words: finished") && !listed.contains("enrolled"), "{listed}");
    assert!(ok(&["task", "list"], "operator").contains("40 enrolled"));
    written(here, "words");
    ok(&["task", "export", "words", "--out", "home"], "operator");
    let key = fs::read_to_string(here.join("officer.key.pub")).unwrap();
    let verified = done(here, &["privacy", "verify", "home", "--officer", "officer.key.pub"]);
    assert!(verified.contains(key.trim()) && verified.contains("as pinned"), "{verified}");
    let (code, said) = ends(here, &["privacy", "verify", "home", "--officer", "other.key.pub"]);
    assert!(code == Some(1) && said.contains("not by"), "{said}");
    let statement = done(here, &["privacy", "statement", "home"]);
    assert!(statement.contains("## Approval") && statement.contains(key.trim()), "{statement}");
    done(here, &["task", "export", "words", "--out", "local", "--data", "data"]);
    for file in ["ledger.jsonl", "model.safetensors", "statement.md"] {
        let read = |folder: &str| fs::read(here.join(folder).join(file)).unwrap();
        assert_eq!(read("home"), read("local"), "{file}");
        assert_eq!(read("home"), read("data/models/words"), "{file}");
    }
    // To change the plan is to change what was signed.
    let ledger = fs::read_to_string(here.join("home/ledger.jsonl")).unwrap();
    fs::write(here.join("forged.jsonl"), ledger.replacen("\"population\":40", "\"population\":41", 1)).unwrap();
    let (code, said) = ends(here, &["privacy", "verify", "--ledger", "forged.jsonl"]);
    assert!(code == Some(1) && said.contains("not verified"), "{said}");

    // More rounds are a new task that counts the ledger of this one.
    let earlier = here.join("data/models/words");
    let after = format!("devices.after=[{:?}]", earlier.to_str().unwrap());
    fs::write(here.join("more.toml"), settings(&[&after])).unwrap();
    ok(&["task", "approve", "more.toml", "--key", "officer.key"], "viewer");
    ok(&["task", "create", "more.toml"], "officer");
    // Those who were told that there is nothing to do come back later.
    drop(crowd);
    let crowd = devices(&address);
    let next = wait_until(here, "more", "over");
    written(here, "more");
    let epsilon = |task: &Value| task["ledger"]["holds"]["epsilon"].as_f64().unwrap();
    assert!(epsilon(&next) > 1.2 * epsilon(&over), "{next} after {over}");
    let statement = fs::read_to_string(here.join("data/models/more/statement.md")).unwrap();
    assert!(statement.contains("Counted as an earlier task over the same devices: the task words"), "{statement}");
    assert!(statement.contains("accounts for this task and the task words, and for no other"), "{statement}");
    drop(crowd);
    // Within a budget that the earlier task has used up nothing can be begun.
    let spent = format!("privacy.max_epsilon={}", epsilon(&over) / 2.0);
    fs::write(here.join("poor.toml"), settings(&[&after, &spent])).unwrap();
    refused(here, &["task", "approve", "poor.toml", "--key", "officer.key", "--data", "data"], "budget");

    // What was created is known after a restart, without a word on the command line.
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let (_server, _) = serve(here, &["--officer", "officer.key.pub"]);
    assert_eq!(task(here, "words")["state"], "over");
}

/// Created while no server runs, or by a command whose server is killed: it runs once one is started again.
#[test]
fn a_task_that_is_created_survives_a_kill_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir(here.join("data")).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(here.join("data"), fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["first", "second", "third", "fourth"] {
        fs::write(here.join(format!("{name}.toml")), settings(&[])).unwrap();
    }
    let said = done(here, &["task", "create", "first.toml", "--data", "data"]);
    assert!(said.contains("first: not running"), "{said}");
    refused(here, &["task", "create", "first.toml", "--data", "data"], "already");
    let (mut server, _) = serve(here, &[]);
    wait_until(here, "first", "running");
    for (name, after_ms) in [("second", 0), ("third", 60), ("fourth", 250)] {
        let path = here.join(format!("data/tasks/{name}.toml"));
        let create = std::thread::scope(|scope| {
            let create = scope.spawn(|| ends(here, &["task", "create", &format!("{name}.toml"), "--data", "data"]));
            let began = Instant::now();
            while !path.exists() {
                assert!(began.elapsed() < PATIENCE, "{name} is not created");
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(after_ms));
            server.0.kill().unwrap();
            server.0.wait().unwrap();
            create.join().unwrap()
        });
        assert_eq!(create.0, Some(0), "{}", create.1);
        server = serve(here, &[]).0;
        wait_until(here, name, "running");
    }
    // A server that asks for approvals does not go on with what nobody approved.
    done(here, &["officer", "init", "--key", "officer.key"]);
    drop(server);
    let said = ends(
        here,
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            "data",
            "--secrets",
            "secrets",
            "--plain-http",
            "--anybody",
            "--officer",
            "officer.key.pub",
        ],
    );
    assert!(said.0 == Some(2) && said.1.contains("no privacy officer has approved it"), "{said:?}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("words.toml"), settings(&[])).unwrap();
    fs::write(here.join("empty"), "").unwrap();
    fs::write(here.join("typo.toml"), "rounds = 1\nparticipation.cohrt = 3\n").unwrap();
    done(here, &["officer", "init", "--key", "officer.key"]);
    fs::create_dir(here.join("tokens")).unwrap();
    fs::set_permissions(here.join("tokens"), fs::Permissions::from_mode(0o700)).unwrap();
    done(here, &["access", "create", "first", "--role", "viewer", "--secrets", "tokens"]);
    let realm = "0".repeat(64);
    for (args, words) in [
        (&["officer", "init", "--key", "officer.key"][..], "a key is never replaced"),
        (&["officer", "show", "--key", "empty"], "chmod 600"),
        (&["officer", "show", "--key", "officer.key.pub"], "is a public key"),
        (&["task", "create", "typo.toml", "--data", "."], "typo.toml: "),
        (&["task", "list", "--server", "localhost:1", "--access", "words.toml"], "write https:// before it"),
        (&["task", "list"], "--data is missing"),
        (&["task", "list", "--data", "nowhere"], "--data: database nowhere"),
        (&["task", "list", "--server", "http://localhost:1"], "KEYHUSH_ACCESS"),
        (&["task", "list", "--server", "https://localhost:1", "--access", "words.toml"], "--pin FILE"),
        (&["task", "list", "--server", "http://example.org", "--access", "words.toml"], "another machine"),
        (&["task", "approve", "words.toml", "--key", "words.toml", "--realm", &realm], "--key"),
        (&["task", "approve", "words.toml", "--key", "officer.key", "--realm", "00"], "--realm"),
        (&["task", "approve", "words.toml", "--key", "officer.key", "--data", "."], "no server was started on it"),
        (&["access", "list", "--secrets", "nowhere"], "--secrets: there is no folder nowhere"),
        (
            &["access", "create", "ann", "--role", "viewer", "--secrets", "nowhere"],
            "--secrets: there is no folder nowhere",
        ),
        (&["access", "create", "a b", "--role", "viewer", "--secrets", "."], "a token's name"),
        (&["access", "create", "ann", "--role", "owner", "--secrets", "s"], "viewer, operator or officer"),
        (&["access", "revoke", "ann", "--secrets", "tokens"], "no token is called"),
        (&["privacy", "verify", "home", "--officer", "officer.key"], "home"),
        (&["serve", "--listen", "localhost:0", "--data", "d", "--secrets", "s"], "ADDRESS:PORT with numbers"),
        (
            &["serve", "--listen", "127.0.0.1:0", "--data", "d", "--secrets", "s", "--officer", "zz"],
            "neither 64 hexadecimal digits nor a file",
        ),
        (
            &["serve", "--listen", "127.0.0.1:0", "--data", "d", "--secrets", "s", "--officer", "officer.key"],
            "--officer",
        ),
        (
            &[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--data",
                "d",
                "--secrets",
                "s",
                "--plain-http",
                "--anybody",
                "--until-done",
            ],
            "keyhush task create",
        ),
    ] {
        refused(here, args, words);
    }
    done(here, &["task", "approve", "words.toml", "--key", "officer.key", "--realm", &realm]);
}

/// From another machine: over TLS, to the one certificate that was given, with a token from the environment.
#[test]
fn tasks_are_operated_over_tls_with_the_certificate_that_the_server_made() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut command = keyhush();
    command.current_dir(here).args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--secrets", "secrets"]);
    command.args(["--self-signed", "localhost", "--threads", "1"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut server = Killed::of(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        lines.find_map(|line| line.split_once("listening on ").map(|(_, address)| address.to_owned())).unwrap();
    // Nobody reads a terminal here: no token is printed, nor created.
    let shown = lines.find(|line| line.contains("dashboard: https://localhost:")).unwrap();
    assert!(!shown.contains("token=") && shown.contains("keyhush access create"), "{shown}");
    assert!(!here.join("secrets/access.json").exists());
    std::thread::spawn(move || lines.for_each(drop));
    token(here, "viewer");
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    let list = |pin: &[&str]| {
        let mut list = keyhush();
        list.current_dir(here).args(["task", "list", "--json", "--server", &url]).args(pin);
        let output = list.env("KEYHUSH_ACCESS", fs::read_to_string(here.join("viewer")).unwrap()).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    assert_eq!(list(&["--pin", "secrets/tls/cert.pem"]), (true, "[]\n".to_owned()));
    let (code, said) = list(&["--pin", "viewer"]);
    assert!(!code && said.contains("certificate"), "{said}");
    done(here, &["access", "revoke", "viewer", "--secrets", "secrets"]);
    let (code, said) = list(&["--pin", "secrets/tls/cert.pem"]);
    assert!(!code && said.contains("unknown, or was revoked"), "{said}");
}
