//! Real runs on the board: what is told of them while they go on, when they are over, when their files are damaged; and what is not
//! told of runs with secret noise.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
    response::Response,
};
use federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Stop},
    home::{Records, RunFolder},
    plan::Plan,
    run::{Opened, PROMPTS, Run},
};
use http_body_util::BodyExt;
use hyper::service::Service;
use keyhush_board::{
    export,
    http::router,
    listing::{Board, State},
    watch::Watcher,
};
use lm::kernels::KernelPath;
use serde_json::Value;

use crate::small_runs::{RUN, with};

/// Short, with a clip that many reach.
const SETTINGS: [&str; 8] = [
    "rounds=4",
    "clip.norm=0.05",
    "server.optimizer=sgd",
    "server.momentum=",
    "evaluation.every=2",
    "evaluation.users=20",
    "evaluation.most_tokens=500",
    "checkpoint.every=",
];

/// Runs some rounds, or all of them and ends; `between` sees every round.
fn train(folder: &Path, set: &[&str], rounds: usize, mut between: impl FnMut(usize)) {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let config = Document::new(&with(RUN, &SETTINGS), &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    let means = Means::threads(KernelPath::best(), 1);
    let population = opened.population(plan.ledger.unit).unwrap();
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
    for round in 0..rounds {
        if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
            run.finish().unwrap();
        }
        between(round);
    }
}

/// A board, and whoever looks at the runs in a folder for it, on a clock of its own: seconds between two looks, which is more than a
/// run that was read is left alone.
struct Looking {
    board: Board,
    watcher: Watcher,
    now: SystemTime,
}

impl Looking {
    fn at(root: &Path) -> Self {
        let board = Board::default();
        let watcher = Watcher::new(vec![root.to_owned()], board.clone());
        let mut looking = Self { board, watcher, now: SystemTime::now() };
        looking.look();
        looking
    }

    /// So often that new runs are found, and that one which cannot be read is shown as such.
    fn look(&mut self) {
        for _ in 0..3 {
            self.now += Duration::from_secs(5);
            self.watcher.look(self.now);
        }
    }
}

fn detail(board: &Board, id: &str) -> Value {
    serde_json::from_slice(&board.detail(id).unwrap()).unwrap()
}

#[test]
fn a_run_is_followed_while_it_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("growing");
    let mut looking = Looking::at(root.path());
    let board = looking.board.clone();
    assert!(board.now().is_empty());
    let mut seen = Vec::new();
    train(&folder, &[], 4, |_| {
        looking.look();
        let listing = board.now();
        let run = listing.runs().next().unwrap();
        let detail = detail(&board, "growing");
        let points = detail["curves"]["training_loss"]["values"].as_array().unwrap().len();
        let summary = run.summary.as_ref().unwrap();
        // Until it has ended, its statement counts all that it may still release: more than the curve so far.
        let is_foreseen = summary.price.words.ends_with("if the noise were secret, for the whole plan");
        assert_eq!(is_foreseen, run.state == State::Running, "{}", summary.price.words);
        seen.push((run.state, summary.rounds, points, detail["samples"].as_array().unwrap().len()));
    });
    let expected =
        [(State::Running, 1, 1, 1), (State::Running, 2, 2, 2), (State::Running, 3, 3, 2), (State::Finished, 4, 4, 3)];
    assert_eq!(seen, expected);
    let version = board.now().version();
    looking.look();
    assert_eq!(board.now().version(), version, "a run that is over changes no more");
    fs::remove_dir_all(&folder).unwrap();
    looking.look();
    assert!(board.now().is_empty() && board.now().version() > version);
}

#[test]
fn what_a_run_shows_is_what_its_files_hold() {
    let root = tempfile::tempdir().unwrap();
    train(&root.path().join("sweep/run"), &[], 4, |_| {});
    let board = Looking::at(root.path()).board;
    let detail = detail(&board, "sweep/run");
    let curves = detail["curves"].as_object().unwrap();
    for key in ["accuracy_top1", "perplexity", "epsilon_if_secret", "clip_norm", "training_loss", "update_norm"] {
        assert!(curves.contains_key(key), "{key}");
    }
    assert!(!curves.contains_key("epsilon") && !curves.contains_key("epsilon_so_far"), "the noise can be repeated");
    assert_eq!(curves["accuracy_top1"]["rounds"], serde_json::json!([0, 2, 4]));
    assert_eq!(
        curves["clipped_share"]["rounds"],
        serde_json::json!([1, 2, 3, 4]),
        "a round is counted when it is done"
    );
    let share = |value: &Value| (0.0..=1.0).contains(&value.as_f64().unwrap());
    assert!(curves["clipped_share"]["values"].as_array().unwrap().iter().all(share));
    for line in detail["samples"].as_array().unwrap() {
        let prompts: Vec<&str> =
            line["samples"].as_array().unwrap().iter().map(|s| s["prompt"].as_str().unwrap()).collect();
        assert_eq!(prompts, PROMPTS);
        assert!(line["samples"].as_array().unwrap().iter().all(|s| s["words"].as_array().unwrap().len() == 3));
    }
    assert!(detail["sentence"].as_str().unwrap().contains("In simulation, the model predicts"));
    assert_eq!(detail["tiles"][2]["value"], "none: simulated");
    let listing = board.now();
    let summary = listing.runs().next().unwrap().summary.clone().unwrap();
    assert_eq!((summary.rounds, summary.planned, summary.ended), (4, 4, Some("all rounds done")));
    assert_eq!(summary.settings["clip.norm"], "0.05");
    assert!(summary.price.words.ends_with("if the noise were secret"), "{}", summary.price.words);
}

/// What is exact stays in simulations: of a run with secret noise nothing of it is told, also not where somebody put such files there.
#[test]
fn p12_p23_nothing_exact_is_told_of_a_run_with_secret_noise() {
    let root = tempfile::tempdir().unwrap();
    let (secret, simulated) = (root.path().join("secret"), root.path().join("simulated"));
    train(&secret, &["noise_seed="], 3, |_| {});
    train(&simulated, &[], 3, |_| {});
    for file in ["diagnostics.jsonl", "timing.jsonl"] {
        fs::copy(simulated.join(file), secret.join(file)).unwrap();
    }
    let board = Looking::at(root.path()).board;
    let exact =
        ["training_loss", "update_norm", "update_norm_10", "update_norm_90", "clipped_share", "users", "round_seconds"];
    let has = |id: &str| exact.map(|key| detail(&board, id)["curves"].get(key).is_some());
    assert_eq!(has("simulated"), [true; 7]);
    assert_eq!(has("secret"), [false; 7]);
    let all = detail(&board, "secret");
    assert!(all["curves"].get("epsilon_so_far").is_some() && all["curves"].get("epsilon_if_secret").is_none());
    assert_eq!(all["samples"].as_array().unwrap().len(), 2, "models are released: what they suggest may be told");
    let listing = board.now();
    let summary = listing.runs().find(|run| run.id == "secret").unwrap().summary.clone().unwrap();
    assert_eq!(summary.started % (24 * 60 * 60), 0, "not more of the time than the day");
    let folder = root.path().join("copy");
    fs::remove_dir_all(&simulated).unwrap();
    assert_eq!(export::write(&[secret], &folder).unwrap(), 1);
    let data = fs::read_to_string(folder.join("data.js")).unwrap();
    let values = data.split("details").nth(1).unwrap();
    assert!(values.contains("accuracy_top1\\\":{"), "{values}");
    assert!(exact.iter().all(|key| !values.contains(&format!("{key}\\\":"))), "and so is a copy");
    assert!(!data.contains(&root.path().display().to_string()), "nor where it lies");
}

/// A run was shown with an error while its last line was being written.
#[test]
fn a_line_that_is_being_written_is_no_problem_and_damage_is_shown() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    train(&folder, &[], 2, |_| {});
    for file in ["metrics.jsonl", "diagnostics.jsonl", "samples.jsonl", "timing.jsonl"] {
        let mut bytes = fs::read(folder.join(file)).unwrap();
        bytes.extend(b"{\"round\":7,\"acc\xc3");
        fs::write(folder.join(file), bytes).unwrap();
    }
    let mut looking = Looking::at(root.path());
    let board = looking.board.clone();
    assert_eq!(board.now().runs().next().map(|run| run.state), Some(State::Running));
    looking.now += Duration::from_secs(1000);
    looking.look();
    assert_eq!(board.now().runs().next().map(|run| run.state), Some(State::Stopped));

    let ledger = fs::read_to_string(folder.join("ledger.jsonl")).unwrap();
    fs::write(folder.join("ledger.jsonl"), ledger.replacen("\"index\":1", "\"index\":9", 1)).unwrap();
    fs::write(folder.join("metrics.jsonl"), fs::read_to_string(folder.join("diagnostics.jsonl")).unwrap_or_default())
        .unwrap();
    looking.look();
    let listing = board.now();
    let run = listing.runs().next().unwrap();
    assert_eq!(run.state, State::Unreadable);
    let problem = run.problem.clone().unwrap();
    assert!(!problem.is_empty() && !problem.contains(&root.path().display().to_string()), "{problem}");
}

#[test]
fn a_copy_is_a_folder_that_needs_no_server() {
    let root = tempfile::tempdir().unwrap();
    let runs = root.path().join("runs");
    let folder = root.path().join("copy");
    fs::create_dir(&runs).unwrap();
    let roots: Vec<PathBuf> = vec![runs.clone()];
    let error = export::write(&roots, &folder).unwrap_err().to_string();
    assert!(error.contains("train one first"), "{error}");
    train(&runs.join("a"), &[], 2, |_| {});
    assert_eq!(export::write(&roots, &folder).unwrap(), 1);
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(page.contains("<script defer src=\"data.js\">"));
    let data = fs::read_to_string(folder.join("data.js")).unwrap();
    let text = data.strip_prefix("window.keyhushCopy = JSON.parse(").unwrap().trim_end().trim_end_matches(");");
    let data: Value = serde_json::from_str(&serde_json::from_str::<String>(text).unwrap()).unwrap();
    assert_eq!(data["list"]["runs"][0]["id"], "a");
    assert!(data["details"]["a"]["curves"]["accuracy_top1"]["values"].is_array());
    assert_eq!(export::write(&roots, &folder).unwrap(), 1, "a copy is replaced by a new one");
    fs::write(folder.join("index.html"), "<h1>my own page</h1>").unwrap();
    let error = export::write(&roots, &folder).unwrap_err().to_string();
    assert!(error.contains("is not a copy of the board"), "{error}");
    assert_eq!(fs::read_to_string(folder.join("index.html")).unwrap(), "<h1>my own page</h1>");
}

/// A round that took longer than two minutes, or a run with secret noise between two evaluations, was shown as stopped.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_a_process_holds_runs_however_long_its_rounds_take() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    train(&folder, &[], 2, |_| {});
    let mut looking = Looking::at(root.path());
    looking.now += Duration::from_secs(1000);
    looking.look();
    let state = |looking: &Looking| looking.board.now().runs().next().map(|run| run.state);
    assert_eq!(state(&looking), Some(State::Stopped));
    let lock = fs::OpenOptions::new().write(true).open(folder.join("ledger.jsonl.lock")).unwrap();
    lock.lock().unwrap();
    looking.look();
    assert_eq!(state(&looking), Some(State::Running));
    drop(lock);
    looking.look();
    assert_eq!(state(&looking), Some(State::Stopped));
}

/// A folder from somebody else with a named pipe in it stopped the whole board: opening it waits for a writer for ever.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_opened_and_other_runs_are_shown() {
    let root = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        train(&root.path().join(name), &[], 2, |_| {});
    }
    let pipe = root.path().join("a/samples.jsonl");
    fs::remove_file(&pipe).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let huge = fs::OpenOptions::new().write(true).open(root.path().join("b/timing.jsonl")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let (sender, done) = std::sync::mpsc::channel();
    let path = root.path().to_owned();
    std::thread::spawn(move || sender.send(Looking::at(&path).board.now()));
    let listing = done.recv_timeout(Duration::from_secs(60)).expect("the board does not hang");
    let problems: Vec<String> = listing.runs().map(|run| run.problem.clone().unwrap()).collect();
    assert_eq!(problems[0], "samples.jsonl is not a regular file");
    assert!(problems[1].starts_with("timing.jsonl has 1099511627776 bytes"), "{problems:?}");
}

async fn ask(board: &Board, method: Method, host: &str, path: &str) -> Response {
    let request = Request::builder().method(method).uri(path).header("host", host).body(Body::empty()).unwrap();
    let service = hyper_util::service::TowerToHyperService::new(router(board.clone()));
    service.call(request).await.unwrap()
}

#[tokio::test]
async fn the_server_reads_only_and_answers_to_its_own_name_only() {
    let root = tempfile::tempdir().unwrap();
    train(&root.path().join("a b/run"), &[], 1, |_| {});
    let board = Looking::at(root.path()).board;
    let own = "127.0.0.1:7475";
    for (method, host, path, status) in [
        (Method::GET, own, "/", StatusCode::OK),
        (Method::HEAD, own, "/", StatusCode::OK),
        (Method::GET, own, "/api/runs", StatusCode::OK),
        (Method::GET, own, "/api/runs/a%20b%2Frun", StatusCode::OK),
        (Method::GET, "localhost", "/uplot/uPlot.iife.min.js", StatusCode::OK),
        (Method::GET, own, "/api/runs/other", StatusCode::NOT_FOUND),
        (Method::GET, own, "/../Cargo.toml", StatusCode::NOT_FOUND),
        (Method::GET, own, "/api/runs/..%2F..%2Fetc%2Fpasswd", StatusCode::NOT_FOUND),
        (Method::POST, own, "/api/runs", StatusCode::METHOD_NOT_ALLOWED),
        (Method::DELETE, own, "/api/runs/a%20b%2Frun", StatusCode::METHOD_NOT_ALLOWED),
        (Method::GET, "evil.example", "/", StatusCode::MISDIRECTED_REQUEST),
        (Method::GET, "evil.example:7475", "/api/runs", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let answer = ask(&board, method.clone(), host, path).await;
        assert_eq!(answer.status(), status, "{method} {host} {path}");
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"), "{policy}");
        assert!(answer.headers().get("access-control-allow-origin").is_none());
    }
    let told = ask(&board, Method::GET, own, "/api/runs").await.into_body().collect().await.unwrap().to_bytes();
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told["runs"][0]["id"], "a b/run");
}

#[tokio::test]
async fn events_tell_all_runs_then_changes_and_end() {
    let root = tempfile::tempdir().unwrap();
    train(&root.path().join("one"), &[], 1, |_| {});
    let mut looking = Looking::at(root.path());
    let board = looking.board.clone();
    let mut body = ask(&board, Method::GET, "localhost:1", "/api/events").await.into_body();
    let mut next = async || -> Option<Value> {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        assert!(text.starts_with("event: runs\nid: "), "{text}");
        Some(serde_json::from_str(text.split_once("data: ").unwrap().1.trim_end()).unwrap())
    };
    let first = next().await.unwrap();
    assert_eq!((first["reset"].as_bool(), first["runs"].as_array().unwrap().len()), (Some(true), 1));
    train(&root.path().join("two"), &[], 1, |_| {});
    looking.look();
    let second = next().await.unwrap();
    assert_eq!((second["reset"].as_bool(), &second["runs"][0]["id"]), (Some(false), &Value::from("two")));
    assert_eq!((second["runs"].as_array().unwrap().len(), second["ids"].as_array().unwrap().len()), (1, 2));
    board.end();
    assert!(next().await.is_none(), "a board that ends sends its pages away");
}
