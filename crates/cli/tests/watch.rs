//! What an operator is told of a server: metrics that the real promtool takes, probes, a log for programs in which nothing of a device is, and a doctor that finds
//! each thing that is wrong.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stderr, reason = "says what was left out")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::serve::{Killed, PLAIN, keyhush, serve, settings};
use crate::small_runs::{TASK, with};

const DEVICES: u64 = 30;
/// What made-up people and their keys follow from: that of `keyhush device`.
const SEED: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(120);
/// Somebody's address, as a proxy says it.
const CANARY_ADDRESS: &str = "203.0.113.77";
const CANARY_TEXT: &str = "canarytextofaperson";
const CANARY_TICKET: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// An answer: its status, its headers in lower case, its body.
struct Answer(u16, String, String);

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.1.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }
}

fn ask(address: &str, request: &str, token: Option<&str>, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let kind = if request.starts_with("POST") {
        "Content-Type: application/x-protobuf\r\n"
    } else {
        "Content-Type: application/octet-stream\r\n"
    };
    let from = format!("X-Forwarded-For: {CANARY_ADDRESS}\r\n");
    let length = body.len();
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}{kind}{from}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut text = String::new();
    // Bodies of the protocol are no text; what is needed of them is their head.
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    text.push_str(&String::from_utf8_lossy(&bytes));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer(status, head.to_lowercase().replace("\r\n", "\n"), body.to_owned())
}

fn get(address: &str, path: &str, token: Option<&str>) -> Answer {
    ask(address, &format!("GET {path}"), token, "")
}

fn token(folder: &Path, role: &str) -> String {
    let out = keyhush()
        .current_dir(folder)
        .args(["access", "create", role, "--role", role, "--secrets", "secrets"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// What promtool says, where it is: what `cargo xtask test` has brought, or that of the machine.
fn promtool(args: &[&str], input: &str) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let brought = root.join("target/promtool/usr/bin/promtool");
    let mut command = Command::new(if brought.exists() { brought } else { "promtool".into() });
    command.current_dir(root).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut checks) = command.spawn() else {
        return eprintln!("not checked: promtool is not there; cargo xtask test brings it");
    };
    checks.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = checks.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "promtool {args:?}: {said}\n{input}");
}

#[test]
fn the_alert_rules_pass_their_tests() {
    promtool(&["check", "rules", "deploy/prometheus/keyhush.rules.yml"], "");
    promtool(&["test", "rules", "deploy/prometheus/keyhush.rules.test.yml"], "");
}

/// The numbers of metrics, by name and labels.
fn numbers(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').map(|(name, number)| (name, number.parse().unwrap())).unwrap()).collect()
}

/// A server whose log is for programs, and what it says.
fn logged(folder: &Path) -> (Killed, String, Arc<Mutex<Vec<String>>>) {
    let mut command = keyhush();
    command.current_dir(folder).args([
        "serve",
        "words.toml",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "data",
        "--secrets",
        "secrets",
    ]);
    command.args(PLAIN).args(["--least-pause", "0", "--threads", "1", "--log", "json", "--trusted-proxy", "127.0.0.1"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let server = Killed::of(child);
    let log = Arc::new(Mutex::new(Vec::new()));
    let writes = Arc::clone(&log);
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| writes.lock().unwrap().push(line)));
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", log.lock().unwrap());
        let listens = |line: &String| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(line["message"].as_str()?.strip_prefix("listening on ")?.to_owned())
        };
        let said = log.lock().unwrap().iter().find_map(listens);
        if let Some(address) = said {
            return (server, address, log);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn p26_metrics_and_log_have_counts_and_times_and_nothing_of_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let changes = [
        "participation.population=30",
        "participation.max_participations=8",
        "participation.cohort=4",
        "rounds=8",
        "evaluation.every=1000",
        "devices.report_seconds=30",
        "devices.tick_seconds=0.05",
        "devices.begin_with=30",
    ];
    fs::write(folder.join("words.toml"), with(TASK, &changes)).unwrap();
    let (mut server, address, log) = logged(folder);
    let [viewer, operator] = ["viewer", "operator"].map(|role| token(folder, role));
    assert_eq!(get(&address, "/readyz", None).2, "ready\n");
    let mut devices = keyhush();
    devices.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count", &DEVICES.to_string()]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    let told = loop {
        let told = get(&address, "/metrics", Some(&operator));
        assert_eq!(
            (told.0, told.header("content-type")),
            (200, Some("text/plain; version=0.0.4; charset=utf-8")),
            "{}",
            told.2
        );
        let of = numbers(&told.2);
        if of
            .get("keyhush_attempts_total{task=\"words\",kind=\"round\",result=\"released\"}")
            .is_some_and(|released| *released >= 3.0)
        {
            break told.2;
        }
        assert!(began.elapsed() < PATIENCE, "{}", told.2);
        std::thread::sleep(Duration::from_millis(100));
    };
    promtool(&["check", "metrics"], &told);
    let of = numbers(&told);
    let sum =
        |begins: &str| of.iter().filter(|(name, _)| name.starts_with(begins)).map(|(_, number)| number).sum::<f64>();
    assert!(
        sum("keyhush_check_in_answers_total{") <= of["keyhush_check_ins_total"]
            && of["keyhush_check_ins_total"] >= 12.0
    );
    assert_eq!((of["keyhush_enrolled_devices"], sum("keyhush_enrolments_total{answer=\"accepted\"}")), (30.0, 30.0));
    assert!(of["keyhush_reports_total{result=\"accepted\"}"] >= 12.0, "four for each of three rounds");
    assert!(of["keyhush_report_bytes_total"] > 1_000.0 && of["keyhush_download_bytes_total"] > 1_000.0);
    assert!(of["keyhush_sessions_total{task=\"words\",kind=\"round\",shape=\"-v[]+^\"}"] >= 12.0);
    assert!(of["process_resident_memory_bytes"] > 1e6 && of["keyhush_data_disk_free_bytes"] > 0.0);
    // A viewer is given what is released, and nothing else.
    let released = get(&address, "/metrics", Some(&viewer)).2;
    promtool(&["check", "metrics"], &released);
    let names: Vec<&str> = numbers(&released).into_keys().map(|name| name.split('{').next().unwrap()).collect();
    assert!(names.contains(&"keyhush_rounds_released_total") && names.contains(&"keyhush_epsilon"));
    let exact =
        ["check_in", "report", "enrol", "sessions", "attempt", "waiting", "asked", "dropout", "process_", "start_time"];
    assert!(names.iter().all(|name| exact.iter().all(|exact| !name.contains(exact))), "{names:?}");
    // Refused requests are in the log with the id that the answer has, and without anything that was sent.
    let refused = [
        get(&address, "/metrics", None),
        get(&address, "/metrics", Some(CANARY_TEXT)),
        ask(&address, "POST /v1/say", None, CANARY_TEXT),
        ask(&address, &format!("PUT /v1/report/{CANARY_TICKET}/0"), None, CANARY_TEXT),
        get(&address, &format!("/{CANARY_TEXT}?{CANARY_TEXT}"), None),
        ask(&address, &format!("{} /v1/hello", CANARY_TEXT.to_uppercase()), None, ""),
    ];
    assert_eq!(refused.each_ref().map(|answer| answer.0), [401, 401, 400, 410, 404, 405]);
    let ids = refused.each_ref().map(|answer| answer.header("x-request-id").expect("a refusal has an id").to_owned());
    let has = |id: &String| log.lock().unwrap().iter().any(|line| line.contains(&format!("\"request\":\"{id}\"")));
    std::thread::sleep(Duration::from_millis(300));
    // Devices that are refused may have used up a second's lines; at least one of these was not among them.
    assert!(ids.iter().any(has), "{ids:?}: {:?}", log.lock().unwrap());
    let _ = Command::new("kill").args(["-INT", &server.0.id().to_string()]).status();
    assert_eq!(server.0.wait().unwrap().code(), Some(130));
    std::thread::sleep(Duration::from_millis(200));
    let log = log.lock().unwrap();
    let keys: Vec<String> =
        (0..DEVICES).map(|number| ledger::hex(&agent::many::key(SEED, number).verifying_key().to_bytes())).collect();
    let canaries: Vec<&str> = keys
        .iter()
        .map(String::as_str)
        .chain([CANARY_ADDRESS, CANARY_TEXT, CANARY_TICKET, &viewer, &operator])
        .collect();
    for line in log.iter() {
        let line_of: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["time", "level", "what", "message"] {
            assert!(line_of[field].is_string(), "{field} is missing: {line}");
        }
        let lower = line.to_lowercase();
        for canary in &canaries {
            assert!(!lower.contains(&canary.to_lowercase()), "{canary} is in the log: {line}");
        }
    }
    for (text, what) in [(&told, "an operator's metrics"), (&released, "a viewer's metrics")] {
        canaries.iter().for_each(|canary| assert!(!text.contains(canary), "{canary} is in {what}"));
    }
    let whats: Vec<Value> =
        log.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["what"].clone()).collect();
    for what in ["listening", "note", "running", "round", "stopped"] {
        assert!(whats.iter().any(|said| said == what), "{what} is missing: {whats:?}");
    }
}

fn doctor(folder: &Path, more: &[&str]) -> Output {
    let mut command = keyhush();
    command.current_dir(folder).args([
        "doctor",
        "--data",
        "data",
        "--secrets",
        "secrets",
        "--json",
        "--connections",
        "50",
    ]);
    command.args(more).output().unwrap()
}

/// The findings, each by its check; of several the worst.
fn findings(out: &Output) -> BTreeMap<String, Value> {
    let all: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for finding in all["findings"].as_array().unwrap() {
        let check = finding["check"].as_str().unwrap().to_owned();
        if found.get(&check).is_none_or(|before| before["verdict"] != "failure") {
            found.insert(check, finding.clone());
        }
    }
    let failed = found.values().any(|finding| finding["verdict"] == "failure");
    assert_eq!((out.status.code(), all["ok"].as_bool()), (Some(i32::from(failed)), Some(!failed)), "{all:#}");
    for finding in found.values().filter(|finding| finding["verdict"] != "ok") {
        assert!(finding["do"].as_str().is_some_and(|next| next.len() > 10), "it says what to do: {finding}");
    }
    found
}

/// That exactly these checks fail, and one of them says this.
fn fails(out: &Output, checks: &[&str], words: &str) {
    let found = findings(out);
    let failed: Vec<&str> =
        found.iter().filter(|(_, of)| of["verdict"] == "failure").map(|(check, _)| check.as_str()).collect();
    assert_eq!(failed, checks, "{found:#?}");
    assert!(
        checks.iter().any(|check| found[*check]["found"].as_str().unwrap().contains(words)),
        "{words:?}: {found:#?}"
    );
}

/// The files of a folder with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            all.extend(files(&entry));
        } else {
            all.insert(entry.clone(), fs::read(&entry).unwrap());
        }
    }
    all
}

#[test]
fn the_doctor_finds_nothing_at_a_server_that_is_well_and_leaves_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("words.toml"), settings()).unwrap();
    fs::write(here.join("token"), "0123456789abcdef").unwrap();
    let (server, address) = serve(here, "127.0.0.1:0", &["--self-signed", "localhost", "--token", "token"]);
    let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
    let out = doctor(here, &["--server", &url]);
    let found = findings(&out);
    assert!(out.status.success(), "{found:#?}");
    for check in [
        "folders",
        "secrets",
        "data",
        "disk",
        "database",
        "assignments",
        "durability",
        "files",
        "memory",
        "clock",
        "certificate",
        "chain",
        "key",
        "connection",
        "server clock",
    ] {
        assert!(found.contains_key(check), "{check} is missing");
    }
    assert!(found["database"]["found"].as_str().unwrap().contains("a server runs on it"));
    // For people, and with nobody there.
    let told = keyhush()
        .current_dir(here)
        .args(["doctor", "--data", "data", "--secrets", "secrets", "--connections", "50"])
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.lines().any(|line| line.starts_with("ok      database     whole")), "{told}");
    drop(server);
    let before = files(&here.join("secrets"));
    let database = fs::read(here.join("data/keyhush.sqlite")).unwrap();
    fails(&doctor(here, &["--server", &url]), &["connection"], "cannot connect");
    // What is missing here is no firewall's fault.
    let out = doctor(here, &["--server", "https://localhost:1", "--pin", "none"]);
    fails(&out, &["connection"], "the certificate none");
    assert!(findings(&out)["connection"]["do"].as_str().unwrap().contains("--pin"), "{:#?}", findings(&out));
    assert!(files(&here.join("secrets")) == before, "secrets were changed");
    assert!(fs::read(here.join("data/keyhush.sqlite")).unwrap() == database, "the database was changed");
    assert!(files(&here.join("data")).keys().all(|path| !path.to_string_lossy().contains(".doctor")));
    // Another server's folders.
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("words.toml"), settings()).unwrap();
    let (_other, elsewhere) = serve(other.path(), "127.0.0.1:0", &PLAIN);
    fails(&doctor(here, &["--server", &format!("http://{elsewhere}")]), &["connection"], "another realm");
    // A folder of a command that cannot be meant.
    let out =
        keyhush().current_dir(here).args(["doctor", "--data", "nowhere", "--secrets", "secrets"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Folders of a server that has run some rounds and was stopped.
fn world() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let changes = [
        "participation.population=12",
        "participation.cohort=3",
        "participation.max_participations=3",
        "rounds=3",
        "evaluation.every=1000",
        "devices.tick_seconds=0.05",
        "devices.begin_with=12",
    ];
    fs::write(here.join("words.toml"), with(TASK, &changes)).unwrap();
    let (server, address) = serve(here, "127.0.0.1:0", &PLAIN);
    let mut devices = keyhush();
    devices.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count", "12"]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while !here.join("secrets/words/ledger.head").exists()
        || fs::read_to_string(here.join("secrets/assignments")).is_ok_and(|count| count.starts_with("0 "))
    {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    drop(server);
    folder
}

fn copied(from: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(folder.path()).status().unwrap();
    assert!(status.success());
    folder
}

#[test]
fn the_doctor_finds_what_is_wrong_with_folders_and_records() {
    let well = world();
    let out = doctor(well.path(), &[]);
    assert!(out.status.success(), "{:#?}", findings(&out));
    assert_eq!(findings(&out)["ledger"]["verdict"], "ok");
    // Secrets that others can read.
    let broken = copied(well.path());
    let head = broken.path().join("secrets/words/ledger.head");
    fs::set_permissions(&head, fs::Permissions::from_mode(0o644)).unwrap();
    fails(&doctor(broken.path(), &[]), &["secrets"], "ledger.head (mode 644)");
    // An older database than the secrets have seen.
    let broken = copied(well.path());
    let assignments = broken.path().join("secrets/assignments");
    let (count, realm) = fs::read_to_string(&assignments)
        .unwrap()
        .split_once(' ')
        .map(|(c, r)| (c.parse::<u64>().unwrap(), r.to_owned()))
        .unwrap();
    fs::write(&assignments, format!("{} {realm}", count + 1)).unwrap();
    fails(&doctor(broken.path(), &[]), &["assignments"], "rolled back");
    fs::remove_file(&assignments).unwrap();
    if count > 1 {
        fails(&doctor(broken.path(), &[]), &["assignments"], "is missing");
    }
    // A head that is not on the ledger.
    let broken = copied(well.path());
    let head = broken.path().join("secrets/words/ledger.head");
    let text = fs::read_to_string(&head).unwrap();
    let digit = text.trim_end().chars().last().unwrap();
    let other = format!("{}{}\n", &text.trim_end()[..text.trim_end().len() - 1], if digit == '0' { '1' } else { '0' });
    fs::write(&head, other).unwrap();
    fails(&doctor(broken.path(), &[]), &["ledger"], "words: ");
    // A damaged file.
    let broken = copied(well.path());
    let database = broken.path().join("data/keyhush.sqlite");
    let _ = fs::remove_file(broken.path().join("data/keyhush.sqlite-wal"));
    let mut bytes = fs::read(&database).unwrap();
    let pages = bytes.len() / 4096;
    assert!(pages > 4, "{pages}");
    bytes[4096 * 2..4096 * (pages - 1)].fill(0xff);
    fs::write(&database, bytes).unwrap();
    let out = doctor(broken.path(), &[]);
    let found = findings(&out);
    assert_eq!((out.status.code(), found["database"]["verdict"].as_str()), (Some(1), Some("failure")), "{found:#?}");
    // Another program's database.
    fs::write(&database, b"").unwrap();
    let found = findings(&doctor(broken.path(), &[]));
    assert_eq!(found["database"]["verdict"], "failure", "{found:#?}");
    // Secrets within the data, which are backed up.
    let out = keyhush()
        .current_dir(well.path())
        .args(["doctor", "--data", ".", "--secrets", "secrets", "--json"])
        .output()
        .unwrap();
    assert_eq!(findings(&out)["folders"]["verdict"], "failure");
    let hidden = well.path().join("Dropbox");
    fs::create_dir(&hidden).unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
    let out = keyhush()
        .current_dir(well.path())
        .args(["doctor", "--data", "data", "--secrets", "Dropbox", "--json"])
        .output()
        .unwrap();
    assert_eq!(findings(&out)["copies"]["verdict"], "hint");
    // Fewer files than connections.
    let limited = "ulimit -n 64; exec \"$0\" doctor --data data --secrets secrets --json --connections 50";
    let out = Command::new("sh")
        .current_dir(well.path())
        .args(["-c", limited, env!("CARGO_BIN_EXE_keyhush")])
        .output()
        .unwrap();
    fails(&out, &["files"], "64 files");
    // A disk without room, where this machine lets us have one.
    let full = "mount -t tmpfs -o size=8m tmpfs data2 && cp -a data/. data2/ && chmod 700 data2 && exec \"$0\" doctor --data data2 --secrets secrets --json --connections 50";
    fs::create_dir(well.path().join("data2")).unwrap();
    let out = Command::new("unshare")
        .current_dir(well.path())
        .args(["-rm", "sh", "-c", full, env!("CARGO_BIN_EXE_keyhush")])
        .output();
    match out {
        Ok(out) if !out.stdout.is_empty() => {
            fails(&out, &["disk"], "free for data2");
            assert_eq!(findings(&out)["durability"]["verdict"], "hint", "it is in memory");
        }
        other => eprintln!("not tried: this machine gives us no file system of our own: {other:?}"),
    }
}

/// A certificate in PEM, and its key.
fn certificate(from: (i32, u8), until: (i32, u8)) -> (String, String) {
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(from.0, from.1, 1);
    parameters.not_after = rcgen::date_time_ymd(until.0, until.1, 1);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, format!("of {from:?} to {until:?}"));
    let key = rcgen::KeyPair::generate().unwrap();
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// To another user all files look as if they were not there: nothing of them is said to be well, missing, or restored from a backup.
#[test]
fn who_is_not_the_servers_user_is_told_so() {
    let well = world();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.current_dir(well.path()).args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(keyhush().get_program()).args(args).output()
    };
    fs::set_permissions(well.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if !as_nobody(&["--version"]).is_ok_and(|out| out.status.success()) {
        return eprintln!("not tried: this machine does not let us run the program as another user");
    }
    let out = as_nobody(&["doctor", "--data", "data", "--secrets", "secrets", "--json"]).unwrap();
    let found = findings(&out);
    for check in ["secrets", "data", "database"] {
        assert_eq!(found[check]["verdict"], "failure", "{check}: {found:#?}");
        assert!(found[check]["found"].as_str().unwrap().contains("permission denied"), "{check}: {found:#?}");
    }
    let out = as_nobody(&["task", "list", "--data", "data"]).unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("runuser -u keyhush"), "{said}");
}

#[test]
fn the_doctor_finds_what_is_wrong_with_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for name in ["data", "secrets"] {
        fs::create_dir(here.join(name)).unwrap();
        fs::set_permissions(here.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let looks = |chain: &str, key: &str, mode: u32| {
        fs::write(here.join("chain.pem"), chain).unwrap();
        fs::write(here.join("key.pem"), key).unwrap();
        fs::set_permissions(here.join("key.pem"), fs::Permissions::from_mode(mode)).unwrap();
        doctor(here, &["--certificate", "chain.pem", "--key", "key.pem"])
    };
    let (good, its_key) = certificate((2020, 1), (2090, 1));
    let out = looks(&good, &its_key, 0o600);
    assert!(out.status.success(), "{:#?}", findings(&out));
    let (expired, key) = certificate((2020, 1), (2024, 2));
    fails(&looks(&expired, &key, 0o600), &["certificate"], "expired at 2024-02-01");
    let (early, key) = certificate((2080, 3), (2090, 1));
    fails(&looks(&early, &key, 0o600), &["certificate"], "is valid from 2080-03-01");
    fails(&looks(&good, &key, 0o600), &["key"], "chain.pem");
    fails(&looks(&good, &its_key, 0o644), &["key"], "mode 644");
    fails(&looks("nothing", &its_key, 0o600), &["certificate"], "no certificate");
    fails(
        &looks(&(good.clone() + &expired), &its_key, 0o600),
        &["certificate", "chain"],
        "not issued by the one after it",
    );
}
