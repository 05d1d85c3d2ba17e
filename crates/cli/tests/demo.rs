//! `keyhush demo` as a process: it ends with a summary, its page answers, and it leaves nothing behind, however it ends.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    browser::Browser,
    serve::{Killed, keyhush},
};

/// A demo ends at once, and what else the machine does is in it.
const ENDS: Duration = Duration::from_secs(20);

/// A demo whose temporary files are in this folder.
fn demo(temp: &Path, more: &[&str]) -> Command {
    let mut command = keyhush();
    command.env("TMPDIR", temp).args(["demo", "--devices", "20", "--threads", "1"]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn left(temp: &Path) -> Vec<String> {
    let names = fs::read_dir(temp).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

/// A demo that runs, after so many rounds: it, and the address of its page.
fn running(temp: &Path, rounds: u64, more: &[&str]) -> (Killed, String) {
    let mut child = demo(temp, &["--rounds", "500", "--port", "0"]).args(more).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut address, mut said) = (None, String::new());
    loop {
        let line = lines.next().unwrap_or_else(|| panic!("the demo ended: {said}")).unwrap();
        if let Some(found) = line.trim().strip_prefix("http://") {
            address = Some(found.to_owned());
        }
        if line.trim_start().starts_with(&format!("{rounds} ")) {
            break;
        }
        said.push_str(&line);
        said.push('\n');
    }
    // Nobody reads on: that is no reason for a demo to end.
    drop(lines);
    (Killed::of(child), address.unwrap_or_else(|| panic!("no address: {said}")))
}

fn ends(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(began.elapsed() < ENDS, "the demo does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The status and the body of an answer.
fn get(address: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ENDS)).unwrap();
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{shown}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn p23_a_demo_ends_by_itself_with_a_summary_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let output = demo(temp.path(), &["--rounds", "3", "--port", "0", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(left(temp.path()), [""; 0]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| summary[name].as_f64().unwrap_or_else(|| panic!("{name}: {summary:#}"));
    assert_eq!((of("rounds"), of("planned_rounds"), of("devices")), (3.0, 3.0, 20.0));
    assert_eq!((&summary["ended"], &summary["kept"]), (&"plan_done".into(), &Value::Null));
    assert!(of("seconds") > 0.0 && of("accuracy_start") >= 0.0 && of("accuracy_end") <= 1.0, "{summary:#}");
    assert!(of("accuracy_best") >= of("accuracy_end") && of("accuracy_best") >= of("accuracy_start"), "{summary:#}");
    // It is the ledger's, guaranteed, and the one that was announced; and it is not flattered.
    assert!((of("epsilon") / summary["plan"]["demo"]["epsilon"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{summary:#}");
    assert!(summary["epsilon_means"].as_str().unwrap().contains("from the signed ledger"), "{summary:#}");
    let million = &summary["plan"]["million"];
    assert!(million["devices"] == 1_000_000 && million["epsilon"].as_f64().unwrap() < 1.0, "{summary:#}");
    // Everything else is on standard error: the address with its token, the parts, and a line for each round.
    let address = summary["address"].as_str().unwrap();
    assert!(said.contains(&format!("{address}#token=keyhush_")), "{said}");
    for words in ["secure aggregation", "ledger", "Why epsilon is large here", "\n    3 "] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn p26_the_page_of_a_demo_answers_whoever_has_its_token() {
    let temp = tempfile::tempdir().unwrap();
    let (mut demo, address) = running(temp.path(), 1, &[]);
    let (host, fragment) = address.split_once("/#").unwrap();
    let token = fragment.strip_prefix("token=").unwrap().split('&').next().unwrap();
    assert_eq!(get(host, "/healthz", None).0, 200);
    assert_eq!(get(host, "/api/tasks", None).0, 401);
    assert_eq!(get(host, "/api/tasks", Some("keyhush_0000")).0, 401);
    let (status, tasks) = get(host, "/api/tasks", Some(token));
    assert!(status == 200 && tasks.contains("\"demo\""), "{status} {tasks}");
    // In a browser: the address signs in, what is happening stands above the task, and the curve grows by itself.
    let mut browser = Browser::start();
    browser.open(&format!("http://{address}"));
    browser.until("document.querySelector('#about dl')");
    let shown = browser.text("document.getElementById('about').innerText");
    for words in [
        "What is happening here",
        "secure aggregation",
        "noise",
        "ledger",
        "Why epsilon is large here",
        "1,000,000 devices",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let rounds = r"Number(/Rounds\s+(\d+)/.exec(document.querySelector('#task kh-tiles')?.innerText)?.[1])";
    browser.until(&format!("{rounds} > 0 && document.querySelector('#task kh-chart')"));
    let before = browser.eval(rounds).as_u64().unwrap();
    browser.until(&format!("{rounds} > {before}"));
    assert_eq!(browser.problems(), [""; 0]);
    signal(&demo.0, "INT");
    assert!(ends(&mut demo.0).success());
    assert_eq!(left(temp.path()), [""; 0]);
}

#[test]
fn a_demo_leaves_nothing_when_it_is_stopped_and_the_next_one_cleans_up_after_a_killed_one() {
    let temp = tempfile::tempdir().unwrap();
    let (mut stopped, _) = running(temp.path(), 1, &[]);
    let folder = left(temp.path());
    assert!(folder.len() == 1 && folder[0].starts_with("keyhush-demo-"), "{folder:?}");
    signal(&stopped.0, "TERM");
    assert!(ends(&mut stopped.0).success());
    assert_eq!(left(temp.path()), [""; 0], "a SIGTERM");

    let (mut killed, _) = running(temp.path(), 1, &[]);
    signal(&killed.0, "KILL");
    assert!(!ends(&mut killed.0).success());
    assert_eq!(left(temp.path()).len(), 1, "a kill leaves its files");
    // What others keep there stays, whatever it is called.
    fs::create_dir(temp.path().join("keyhush-demo-mine")).unwrap();
    let (mut other, _) = running(temp.path(), 1, &[]);
    let output = demo(temp.path(), &["--rounds", "1", "--port", "0"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("All files of the demo are deleted."));
    assert_eq!(left(temp.path()).len(), 2, "the other one still runs: {:?}", left(temp.path()));
    signal(&other.0, "INT");
    assert!(ends(&mut other.0).success());
    assert_eq!(left(temp.path()), ["keyhush-demo-mine"]);
}

#[test]
fn what_is_kept_has_a_closed_ledger_that_is_verified() {
    let temp = tempfile::tempdir().unwrap();
    let kept = temp.path().join("kept");
    let (mut demo, _) = running(temp.path(), 2, &["--keep", kept.to_str().unwrap()]);
    signal(&demo.0, "INT");
    assert!(ends(&mut demo.0).success());
    assert_eq!(left(temp.path()), ["kept"]);
    let model = kept.join("data/models/demo");
    let verified = keyhush().args(["privacy", "verify", model.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success() && said.contains("Verified: every entry is valid"), "{said}");
    assert!(said.contains("the run was ended by hand") && said.contains("covers            the whole plan"), "{said}");
    assert!(model.join("model.safetensors").is_file() && model.join("statement.md").is_file());
    // A second demo does not write over it.
    let again = self::demo(temp.path(), &["--rounds", "1", "--keep", kept.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        again.status.code() == Some(2) && said.contains("--keep") && said.contains("choose another name"),
        "{said}"
    );
}

/// It ended in a panic, with 101.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_behind_the_output_of_a_demo_is_an_error_and_no_panic() {
    let temp = tempfile::tempdir().unwrap();
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let flags = ["--rounds", "1", "--port", "0", "--json"];
    let output = demo(temp.path(), &flags).stdout(full()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("error: ") && !said.contains("panicked"), "{said}");
    // What is said on the way is less than the summary at its end.
    let output = demo(temp.path(), &flags).stderr(full()).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["rounds"] == 1);
    assert_eq!(left(temp.path()), [""; 0]);
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (flags, words) in [
        (["--port", &port], "--port 0 for any that is free"),
        (["--rounds", "0"], "--rounds must be from 1 to 2000, got 0"),
        (["--rounds", "2001"], "--rounds must be from 1 to 2000, got 2001"),
        (["--rounds", "-1"], "unexpected argument"),
        (["--port", "65536"], "65536 is not in 0..=65535"),
        (["--keep", "/dev/null"], "is not an empty folder; choose another name"),
    ] {
        let output = demo(temp.path(), &flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{flags:?}: {said}");
    }
    for (flags, words) in [
        (["--devices", "0"], "--devices must be from 20 to 1000, got"),
        (["--devices", "19"], "--devices must be from 20 to 1000, got"),
        (["--devices", "1001"], "--devices must be from 20 to 1000, got"),
        (["--devices", "18446744073709551615"], "--devices must be from 20 to 1000, got"),
        (["--threads", "0"], "must be from 1 to 1024"),
    ] {
        let output = keyhush().env("TMPDIR", temp.path()).arg("demo").args(flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{flags:?}: {said}");
    }
    // No folder for temporary files, and one that nobody can write to.
    let nowhere = temp.path().join("no/where");
    let output = demo(&nowhere, &["--rounds", "1", "--port", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("cannot create") && said.contains("TMPDIR"), "{said}");
    // A folder to keep that cannot be made has nothing to do with temporary files.
    let kept = temp.path().join("no/where");
    let output =
        demo(temp.path(), &["--rounds", "1", "--port", "0", "--keep", kept.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("--keep") && said.contains("choose a folder"), "{said}");
    assert!(!said.contains("TMPDIR"), "{said}");
    assert_eq!(left(temp.path()), [""; 0]);
}
