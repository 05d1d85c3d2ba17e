//! `keyhush serve` and `keyhush device` as processes: a run whose server is killed again and again ends, with everything on record.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::small_runs::{TASK, with};

pub(crate) fn settings() -> String {
    with(TASK, &["noise_seed="])
}

/// Devices measure models too, after every second round.
const BY_DEVICES: &str = r#"
[evaluation.devices]
every = 2
cohort = 24
min_separation = 0
max_participations = 2
noise_multiplier = 4.0
most_tokens = 40
"#;

pub(crate) const PLAIN: [&str; 2] = ["--plain-http", "--anybody"];

/// How long a server may take until it listens, also after a kill. It takes a twentieth of that; what else the machine does is in it.
const LISTENS: Duration = Duration::from_secs(5);

/// A process that does not outlive its test, and whose log has no panic in it.
pub(crate) struct Killed(pub(crate) Child, Option<JoinHandle<Vec<String>>>);

impl Killed {
    pub(crate) fn of(child: Child) -> Self {
        Self(child, None)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let said = self.1.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let panicked = said.iter().find(|line| line.contains("panicked"));
        assert!(std::thread::panicking() || panicked.is_none(), "{panicked:?}: {said:#?}");
    }
}

pub(crate) fn keyhush() -> Command {
    Command::new(env!("CARGO_BIN_EXE_keyhush"))
}

/// Starts the server of one task, and waits until it listens. Gives its address.
pub(crate) fn serve(folder: &Path, listen: &str, how: &[&str]) -> (Killed, String) {
    serve_tasks(folder, &["words.toml"], listen, how)
}

/// The same of several tasks.
pub(crate) fn serve_tasks(folder: &Path, tasks: &[&str], listen: &str, how: &[&str]) -> (Killed, String) {
    let mut command = keyhush();
    command.current_dir(folder).arg("serve").args(tasks);
    command.args(["--listen", listen, "--data", "data", "--secrets", "secrets"]).args(how);
    command.args(["--until-done", "--least-pause", "0", "--threads", "1"]);
    let began = Instant::now();
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    let address = loop {
        let line = lines.next().unwrap_or_else(|| panic!("the server ended: {said}")).unwrap();
        if let Some((_, address)) = line.split_once("listening on ") {
            break address.to_owned();
        }
        said.push_str(&line);
    };
    assert!(began.elapsed() < LISTENS, "it listens after {:?} only", began.elapsed());
    // What it says later must not fill the pipe.
    let said = std::thread::spawn(move || lines.map_while(Result::ok).collect());
    (Killed(child, Some(said)), address)
}

/// Runs to the end: the exit code, what is on standard output, and what is said.
fn ends(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = keyhush().current_dir(folder).env("XDG_STATE_HOME", folder.join("home")).args(args).output().unwrap();
    let words = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), words(output.stdout), words(output.stderr))
}

/// The same of several at a time.
fn end_together<const N: usize>(folder: &Path, all: [&[&str]; N]) -> [(Option<i32>, String, String); N] {
    std::thread::scope(|scope| all.map(|args| scope.spawn(move || ends(folder, args))).map(|one| one.join().unwrap()))
}

#[test]
fn what_cannot_be_meant_is_refused_in_a_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("words.toml"), settings()).unwrap();
    fs::write(here.join("token"), "0123456789abcdef").unwrap();
    fs::write(here.join("short"), "0123").unwrap();
    fs::write(here.join("strange.toml"), "least_gaol = 3").unwrap();
    fs::create_dir(here.join("typed")).unwrap();
    let serve = ["serve", "words.toml", "--data", "d", "--secrets", "s", "--listen"];
    let of_server: [(&[&str], &str); 8] = [
        (&["127.0.0.1:0", "--attest"], "--attest"),
        (&["0.0.0.0:0", "--anybody", "--plain-http"], "listen on 127.0.0.1"),
        (&["127.0.0.1:0", "--plain-http", "--token", "none"], "--token: none: No such file"),
        (&["127.0.0.1:0", "--plain-http", "--token", "short"], "at least 16 characters"),
        (&["127.0.0.1:0", "--anybody", "--certificate", "none", "--key", "none"], "cannot read certificates from none"),
        (&["127.0.0.1:0", "--anybody", "--plain-http", "--least-pause", "-1"], "--least-pause: must be from 0"),
        (&["127.0.0.1:0", "--anybody", "--plain-http", "--set", "unit=user"], "must be \"device\""),
        (
            &["203.0.113.1:0", "--token", "token", "--self-signed", "localhost"],
            "--listen: cannot listen on 203.0.113.1",
        ),
    ];
    let device = ["device", "--server"];
    let of_device: [(&[&str], &str); 13] = [
        (&["http://localhost:1", "--synthetic", "--attestation", "none"], "--attestation: none: No such file"),
        (&["https://localhost:1", "--synthetic"], "--roots is missing: "),
        (&["https://localhost:1", "--synthetic", "--pin", "none"], "--pin: the certificate none"),
        (&["http://example.org", "--synthetic"], "--server: http://example.org is another machine"),
        (&["localhost:1", "--synthetic", "--pin", "token"], "--server: "),
        (&["http://localhost:1", "--synthetic", "--for-seconds", "-1"], "--for-seconds: must be a number of seconds"),
        (&["http://localhost:1", "--synthetic", "--for-seconds", "nan"], "--for-seconds: must be a number of seconds"),
        (&["http://localhost:1", "--synthetic", "--count", "0"], "--count"),
        (&["http://localhost:1", "--synthetic", "--token", "none"], "--token: none: No such file"),
        (&["http://localhost:1", "--synthetic", "--policy", "strange.toml"], "least_gaol"),
        (&["http://localhost:1", "--text", "none", "--state", "state"], "--text: none is not a folder"),
        (&["http://localhost:1", "--text", "typed", "--timer-hours", "-1"], "--timer-hours: must be from 0"),
        (&["http://localhost:1", "--page", "--state", "state"], "--state: state does not hold the state of a device"),
    ];
    let open: &[&str] = &["127.0.0.1:0", "--anybody", "--plain-http"];
    let (together, spaces) = (["serve", "words.toml", "--data", "d", "--secrets", "d/s", "--listen"], "a name.toml");
    fs::write(here.join(spaces), settings()).unwrap();
    let named = ["serve", spaces, "--data", "d", "--secrets", "s", "--listen"];
    let (together, named) = ([&together[..], open].concat(), [&named[..], open].concat());
    let elsewhere: [(&[&str], &str); 6] = [
        (&together, "--data and --secrets must be two folders"),
        (&named, "is not a valid task name"),
        (&["task", "list", "--data", "nowhere"], "--data: database nowhere"),
        (&["device", "--page"], "does not hold the state of a device"),
        (&["device", "--forget-text", "--state", "state"], "--state: state does not hold the state of a device"),
        (&["train", "words.toml", "--out", "run"], "keyhush serve"),
    ];
    let all = of_server.map(|(flags, words)| ([&serve[..], flags].concat(), words));
    let all = all.into_iter().chain(of_device.map(|(flags, words)| ([&device[..], flags].concat(), words)));
    for (args, words) in all.chain(elsewhere.map(|(args, words)| (args.to_vec(), words))) {
        let (code, _, said) = ends(here, &args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(words) && said.starts_with("error: "), "{args:?}: {said}");
        assert!(!here.join("state").exists() && !here.join("run").exists(), "{args:?} left something behind");
    }
    // Where it cannot listen nothing is created for it.
    for flags in [&["0.0.0.0:0", "--plain-http"][..], &["203.0.113.1:0"]] {
        let new = ["serve", "words.toml", "--anybody", "--data", "new", "--secrets", "newer", "--listen"];
        let (code, _, said) = ends(here, &[&new[..], flags].concat());
        assert_eq!(code, Some(2), "{flags:?}: {said}");
        assert!(!here.join("new").exists() && !here.join("newer").exists(), "{flags:?} left folders behind");
    }
}

/// Whoever follows the page has a task that is served, and is told what it waits for.
#[test]
fn the_task_of_the_docs_is_served_and_says_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TRAINING.md")).unwrap();
    let section = &page[page.find("## With devices").unwrap()..];
    let task = section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    fs::write(folder.path().join("TASK.toml"), task).unwrap();
    let mut command = keyhush();
    command.current_dir(folder.path()).args(["serve", "TASK.toml", "--listen", "127.0.0.1:0", "--data", "data"]);
    command.args(["--secrets", "secrets"]).args(PLAIN).stderr(Stdio::piped());
    let mut server = Killed::of(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let waits = lines.find(|line| line.contains("waiting for 150 enrolled devices before the first round"));
    assert!(waits.is_some_and(|line| line.ends_with("; 0 so far")));
}

#[test]
fn a_device_enrols_over_tls_with_the_certificate_that_the_server_made() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let begin = |here: &Path| {
        fs::write(here.join("words.toml"), settings()).unwrap();
        fs::write(here.join("token"), "0123456789abcdef").unwrap();
        serve(here, "127.0.0.1:0", &["--self-signed", "localhost", "--token", "token"])
    };
    let here = folder.path();
    let (_server, address) = begin(here);
    drop(begin(elsewhere.path()));
    fs::create_dir(here.join("typed")).unwrap();
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    let device = ["device", "--server", &url, "--token", "token", "--text", "typed", "--for-seconds", "4", "--state"];
    let another = elsewhere.path().join("secrets/tls/cert.pem");
    let known = [&device[..], &["known", "--pin", "secrets/tls/cert.pem"]].concat();
    let deceived = [&device[..], &["deceived", "--pin", another.to_str().unwrap()]].concat();
    let [(code, _, said), deceived] = end_together(here, [&known, &deceived]);
    assert!(code == Some(0) && said.lines().any(|line| line == "enrolled"), "{said}");
    let (code, _, said) = deceived;
    assert!(code == Some(0) && !said.contains("enrolled") && said.contains("ertificate"), "it says why: {said}");
}

/// What scripts rely on: `keyhush serve TASK.toml --listen ADDR --data DIR --secrets DIR` and `keyhush device --server URL --text DIR`. The server makes
/// what is missing, and says what devices need; whom to trust nobody can guess.
#[test]
fn a_server_needs_no_more_than_a_task_an_address_and_two_folders() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("words.toml"), settings()).unwrap();
    fs::create_dir(here.join("typed")).unwrap();
    let start = || {
        let mut command = keyhush();
        let flags = ["serve", "words.toml", "--listen", "127.0.0.1:0", "--data", "data", "--secrets", "secrets"];
        command.current_dir(here).args(flags).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = Killed::of(command.spawn().unwrap());
        let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let print = lines.find(|line| line.starts_with("SHA-256 of the certificate: ")).unwrap();
        let come = lines.find(|line| line.starts_with("to connect a device: keyhush ")).unwrap();
        drop(std::thread::spawn(move || lines.for_each(drop)));
        (server, print, come)
    };
    let (server, print, come) = start();
    let words: Vec<&str> = come["to connect a device: keyhush ".len()..].split(' ').collect();
    let words: Vec<&str> = words.into_iter().map(|word| if word == "DIR" { "typed" } else { word }).collect();
    assert!(words.contains(&"secrets/tls/cert.pem") && words.contains(&"secrets/token"), "{come}");
    let (code, _, said) = ends(here, &[&words[..], &["--for-seconds", "3"]].concat());
    assert!(code == Some(0) && said.lines().any(|line| line == "enrolled"), "{come}: {said}");
    assert!(
        said.contains("the state of this device is in ") && here.join("home/keyhush/device/guard").is_file(),
        "{said}"
    );
    let (code, page, _) = ends(here, &["device", "--page", "--timer-hours", "36"]);
    assert!(code == Some(0) && page.contains("Nothing yet.") && page.contains("it waits for 36 h"), "{page}");
    // Trust is not guessed, and a token is needed.
    let without = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).unwrap();
        ends(here, &[&words[..at], &words[at + 2..], &["--for-seconds", "2"]].concat())
    };
    let (code, _, said) = without("--pin");
    assert!(
        code == Some(2) && said.contains("--roots is missing: ") && said.contains("over a channel you trust"),
        "{said}"
    );
    fs::rename(here.join("home"), here.join("known")).unwrap();
    let (code, _, said) = without("--token");
    assert!(code == Some(0) && said.contains("wrong enrolment token for this server"), "{said}");

    // Another start has the same certificate and the same token. Keys lie among the secrets, and nowhere else.
    let kept = |name: &str| fs::read(here.join("secrets").join(name)).unwrap();
    let before = ["token", "tls/cert.pem", "tls/key.pem"].map(kept);
    drop(server);
    let (_server, again, _) = start();
    assert_eq!((again, ["token", "tls/cert.pem", "tls/key.pem"].map(kept)), (print, before));
    for name in ["token", "tls/key.pem"] {
        let mode = fs::metadata(here.join("secrets").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    assert!(!here.join("data/tls").exists());
}

#[test]
fn a_device_that_nobody_vouches_for_is_not_enrolled() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (name, text) in
        [("words.toml", settings().as_str()), ("token", "0123456789abcdef"), ("forged", "me"), ("genuine", "maker")]
    {
        fs::write(here.join(name), text).unwrap();
    }
    fs::create_dir(here.join("typed")).unwrap();
    // It writes down which keys it was asked about.
    let attest = "read -r key && echo $key >> asked && [ ${#key} = 64 ] && [ \"$(cat)\" = maker ]";
    let (_server, address) = serve(here, "127.0.0.1:0", &["--plain-http", "--token", "token", "--attest", attest]);
    let url = format!("http://{address}");
    let device = |state: &'static str, flags: &[&'static str]| {
        let all = ["device", "--server", &url, "--text", "typed", "--for-seconds", "4", "--state", state];
        [&all[..], flags].concat()
    };
    let none = device("none", &["--token", "token"]);
    let forger = device("forger", &["--token", "token", "--attestation", "forged"]);
    let stranger = device("stranger", &["--attestation", "genuine"]);
    let known = device("known", &["--token", "token", "--attestation", "genuine"]);
    let [none, forger, stranger, known] =
        end_together(here, [&none, &forger, &stranger, &known]).map(|(code, _, said)| {
            assert_eq!(code, Some(0), "{said}");
            said
        });
    let no = "the server refused: the attestation of this device was not accepted";
    for said in [none, forger] {
        assert!(said.contains(no) && !said.contains("enrolled\n"), "{said}");
    }
    assert!(stranger.contains("wrong enrolment token for this server"), "{stranger}");
    assert!(known.lines().any(|line| line == "enrolled"), "{known}");
    let asked = fs::read_to_string(here.join("asked")).unwrap();
    let keys: BTreeSet<&str> = asked.lines().collect();
    assert_eq!(
        (asked.lines().count(), keys.len()),
        (3, 3),
        "once about each, and not about who does not know the token"
    );
}

#[test]
fn a_device_says_what_it_keeps_of_its_text_and_forgets_it_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir(here.join("typed")).unwrap();
    fs::write(here.join("typed/a.txt"), "hello there\nhow are you\n").unwrap();
    let runs =
        ["device", "--server", "http://127.0.0.1:1", "--text", "typed", "--state", "state", "--for-seconds", "1"];
    for _ in 0..2 {
        let (code, _, said) = ends(here, &runs);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("http://127.0.0.1:1: cannot connect: "), "it says why there is no answer: {said}");
        let (code, page, said) = ends(here, &["device", "--page", "--state", "state"]);
        assert_eq!(code, Some(0), "{said}");
        for words in ["2 posts, 22 bytes, the oldest from today", "at most 1048576 bytes", "Nothing yet."] {
            assert!(page.contains(words), "{words} is not in\n{page}");
        }
    }
    assert_eq!(ends(here, &["device", "--forget-text", "--state", "state"]).0, Some(0));
    assert!(!fs::read_to_string(here.join("state/text")).unwrap().contains("hello"));
    assert_eq!(ends(here, &runs).0, Some(0));
    let (_, page, _) = ends(here, &["device", "--page", "--state", "state"]);
    assert!(page.contains("Not trained on yet: nothing."), "{page}");
    assert_eq!(fs::read_to_string(here.join("typed/a.txt")).unwrap(), "hello there\nhow are you\n");
}

#[test]
fn a_server_that_is_killed_again_and_again_loses_no_round_and_no_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("words.toml"), settings() + BY_DEVICES).unwrap();
    let (mut server, address) = serve(folder.path(), "127.0.0.1:0", &PLAIN);
    let mut devices = keyhush();
    devices.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count", "360"]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    let mut kills = 0;
    let status = loop {
        // Moments that have nothing to do with what the server does.
        let until = Instant::now() + Duration::from_millis(250 + 400 * kills);
        while Instant::now() < until && server.0.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(status) = server.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(240), "it does not come to an end after {kills} kills");
        if kills < 4 {
            kills += 1;
            drop(server);
            server = serve(folder.path(), &address, &PLAIN).0;
        }
    };
    assert!(status.success(), "{status}");
    assert!(kills >= 2, "it was over before it could be killed");

    let done = folder.path().join("data/models/words");
    let statement: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(done.join("statement.json")).unwrap()).unwrap();
    let privacy = |what: &str| {
        let said = keyhush().args(["privacy", what, "--json"]).arg(&done).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        serde_json::from_slice::<serde_json::Value>(&said.stdout).unwrap()
    };
    let verified = privacy("verify");
    assert_eq!(verified["verified"], true, "{verified}");
    assert_eq!(statement["ledger"]["head"], verified["head"], "{statement} {verified}");
    let entries = fs::read_to_string(done.join("ledger.jsonl")).unwrap();
    let of = |stream: &str| {
        let stream = format!("\"stream\":\"{stream}\"");
        entries.lines().filter(|line| line.contains("\"release\"") && line.contains(&stream)).count()
    };
    assert_eq!((of("model"), of("evaluation")), (6, 3), "each round and each evaluation is released once");
    let metrics = fs::read_to_string(done.join("metrics.jsonl")).unwrap();
    let by_devices = metrics.lines().filter(|line| line.contains("\"by_devices\":{\"evaluation\":")).count();
    assert_eq!(by_devices, 3, "{metrics}");
    what_was_observed_can_be_computed_again(&done, &statement, &verified, &privacy("statement"));
}

/// What the server left has the pseudonyms of those who took part, for its owner alone; their key is gone (rules P17 and P18).
fn what_was_observed_can_be_computed_again(
    done: &Path,
    stated: &serde_json::Value,
    verified: &serde_json::Value,
    again: &serde_json::Value,
) {
    let mode = fs::metadata(done.join("ledger.jsonl.participations")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert_eq!(verified["closing"]["pseudonym_key_destroyed"], true);
    assert_eq!(again, stated, "the statement is computed again, to the last digit");
    let observed = &stated["observed"];
    let of = |stream: &str| observed["streams"][stream]["max_participations"].as_u64().unwrap();
    assert!((1..=2).contains(&of("evaluation")), "its own limits: {observed}");
    let found = &observed["streams"]["model"];
    let most = found["max_participations"].as_u64().unwrap();
    assert!((1..=3).contains(&most), "with one round between two, six rounds have room for three: {found}");
    assert_eq!(verified["observed"], observed["streams"]);
    assert_eq!(verified["observed_judgement"]["epsilon"], observed["epsilon"]);
    let (guaranteed, epsilon) =
        (stated["guarantee"]["epsilon"].as_f64().unwrap(), observed["epsilon"].as_f64().unwrap());
    assert!(epsilon > 0.0 && epsilon <= guaranteed, "{epsilon} {guaranteed}");
    assert!(stated["several_tasks"].as_array().is_some_and(|words| !words.is_empty()));
}

/// What `keyhush task` says of the one task, for programs.
fn task(folder: &Path, args: &[&str]) -> serde_json::Value {
    let out = keyhush().current_dir(folder).arg("task").args(args).args(["--data", "data", "--json"]).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    said.get(0).cloned().unwrap_or(said)
}

/// Waits until the one task is as it should be, and says how it is then.
fn wait_for(folder: &Path, is: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let began = Instant::now();
    loop {
        let now = task(folder, &["list"]);
        if is(&now) {
            return now;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "it does not come to that: {now}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn rounds(task: &serde_json::Value) -> u64 {
    task["ledger"]["rounds"].as_u64().unwrap_or(0)
}

#[test]
fn a_task_is_paused_resumed_and_stopped_while_its_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("words.toml"), with(&settings(), &["rounds=40"])).unwrap();
    let (server, address) = serve(folder, "127.0.0.1:0", &PLAIN);
    let mut devices = keyhush();
    devices.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count", "360"]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let running = wait_for(folder, |task| rounds(task) >= 1);
    assert_eq!(running["ledger"]["planned_evaluations"], serde_json::Value::Null, "{running}");
    assert_eq!((running["state"].as_str(), running["wanted"].as_str()), (Some("running"), Some("run")), "{running}");
    assert_eq!(running["digest"].as_str().map(str::len), Some(64), "{running}");
    let (so_far, plan) = (&running["ledger"]["so_far"], &running["ledger"]["holds"]);
    assert!(so_far["epsilon_so_far"].as_f64() < plan["epsilon"].as_f64(), "{running}");

    let said = task(folder, &["pause", "words"]);
    assert!(["pausing", "paused"].contains(&said["state"].as_str().unwrap()), "{said}");
    let paused = rounds(&wait_for(folder, |task| task["state"] == "paused"));
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(rounds(&task(folder, &["list"])), paused, "a task that rests does nothing");

    drop(server);
    let gone = task(folder, &["list"]);
    assert_eq!((gone["state"].as_str(), gone["wanted"].as_str()), (Some("not_served"), Some("pause")), "{gone}");
    // Without its settings file it is not continued, and that is said.
    let mut other = keyhush();
    other.current_dir(folder).args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--secrets", "secrets"]);
    let mut other = Killed::of(other.args(PLAIN).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let lines = BufReader::new(other.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take_while(|line| !line.contains("listening on ")).collect();
    assert!(said.iter().any(|line| line.contains("words: has begun and is not served")), "{said:?}");
    drop(other);
    let (mut server, _) = serve(folder, &address, &PLAIN);
    wait_for(folder, |task| task["state"] == "paused");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(rounds(&task(folder, &["list"])), paused, "it rests after a restart too");

    assert_eq!(task(folder, &["resume", "words"])["state"], "running");
    wait_for(folder, |task| rounds(task) > paused);
    let stopped = task(folder, &["stop", "words"]);
    assert_eq!(stopped["state"], "over", "{stopped}");
    assert_eq!(stopped["ledger"]["basis"], "plan", "who stops by hand may have looked: {stopped}");
    assert!(server.0.wait().unwrap().success(), "with its last task over the server ends");
    let statement = fs::read_to_string(folder.join("data/models/words/statement.json")).unwrap();
    assert!(statement.contains("by_hand"), "{statement}");
    let secrets: Vec<_> = fs::read_dir(folder.join("secrets/words")).unwrap().map(|f| f.unwrap().file_name()).collect();
    let kept = |part: &str| secrets.iter().any(|name| name.to_string_lossy().contains(part));
    assert!(!kept("noise") && !kept("pseudonym") && !kept("round"), "keys are destroyed: {secrets:?}");

    for order in ["pause", "resume", "stop"] {
        let refused = keyhush().current_dir(folder).args(["task", order, "words", "--data", "data"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{order}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("words has finished (it was stopped by hand)"));
    }
    let unknown = keyhush().current_dir(folder).args(["task", "stop", "wards", "--data", "data"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("its tasks: words"));
}
