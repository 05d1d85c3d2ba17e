//! `keyhush train --track`: a run is sent to a server, and continues without one. What is sent is tested in the crate `tracking`.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use crate::toy::Toy;

/// A server that says yes; what it was asked.
fn server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let of_thread = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            loop {
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    let mut line = String::new();
                    if stream.read_line(&mut line).unwrap_or(0) == 0 {
                        break;
                    }
                    length = line.strip_prefix("content-length: ").map_or(length, |n| n.trim().parse().unwrap());
                    head += &line;
                }
                if head.is_empty() {
                    break;
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                of_thread
                    .lock()
                    .unwrap()
                    .push(head.lines().next().unwrap().to_owned() + " " + str::from_utf8(&body).unwrap());
                let answer = r#"{"experiment": {"experiment_id": "1"}, "run": {"info": {"run_id": "abc"}}}"#;
                write!(stream.get_mut(), "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())
                    .unwrap();
            }
        }
    });
    (format!("mlflow:http://{address}"), asked)
}

#[test]
fn a_run_is_sent_and_says_how_it_ended() {
    let toy = Toy::new();
    let (address, asked) = server();
    toy.ok(&["train", "run.toml", "--out", "runs/a", "--track", &address, "-q"]);
    let asked = asked.lock().unwrap();
    let (create, end) = (asked.iter().find(|a| a.contains("runs/create")).unwrap(), asked.last().unwrap());
    assert!(create.contains(r#""run_name":"a""#), "{create}");
    assert!(end.contains("runs/update") && end.contains("FINISHED"), "{end}");
    let all = asked.join("\n");
    for wants in [
        r#""key":"accuracy/top1""#,
        r#""key":"train_not_private/loss""#,
        r#""key":"privacy.noise_multiplier","value":"2.0""#,
        "keyhush.ledger_head",
    ] {
        assert!(all.contains(wants), "{wants}");
    }
    assert!(!all.contains(&toy.path("").display().to_string()), "no path of this machine leaves it");
    assert!(toy.read("runs/a/tracking.json").contains("\"abc\""));
}

/// The model, the ledger's events and the metrics are what they are without a server; and so they are with one that is not there.
#[test]
fn a_server_that_is_away_stops_nothing() {
    let toy = Toy::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = format!("mlflow:http://{free}");
    let output = toy.command(&["train", "run.toml", "--out", "runs/a", "--track", &away, "-q"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(&format!("the tracking server http://{free} did not get all of the run: cannot connect")),
        "{said}"
    );
    toy.ok(&["train", "run.toml", "--out", "runs/b", "-q"]);
    assert_eq!(toy.read("runs/a/metrics.jsonl"), toy.read("runs/b/metrics.jsonl"));
}

#[test]
fn addresses_that_cannot_be_meant_are_refused_before_any_work() {
    let toy = Toy::new();
    for (address, wants) in [
        ("http://127.0.0.1:5000", "give mlflow:URL"),
        ("mlflow:mlruns", "mlflow server"),
        ("mlflow:http://me:geheim@127.0.0.1:5000", "MLFLOW_TRACKING_PASSWORD"),
    ] {
        let said = toy.refused(&["train", "run.toml", "--out", "runs/a", "--track", address]);
        assert!(said.contains(wants) && !said.contains("geheim"), "{said}");
    }
    assert!(!toy.path("runs").exists());
}
