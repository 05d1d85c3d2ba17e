//! The real MLflow, from PyPI: a run is sent to it, and its own client reads the run back.
//!
//! The requests and answers are kept in `testdata`, for the tests that run every time. To record them again, after a change of what is
//! sent: `testdata/mlflow-3.17.2/record.sh`.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use keyhush_tracking::Outcome;
use report::scalars::Lines;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    a_run::Files,
    requests::{account, start, until},
    server::{Exchange, Server, forwarded},
};

const VERSION: &str = "3.17.2";

/// Reads a run back as a person would; prints it as JSON.
const READ_BACK: &str = r#"
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("keyhush")
[run] = client.search_runs([experiment.experiment_id])
history = {key: [[m.step, m.value, m.timestamp] for m in client.get_metric_history(run.info.run_id, key)] for key in run.data.metrics}
print(json.dumps({"status": run.info.status, "name": run.info.run_name, "params": run.data.params, "tags": run.data.tags, "history": history}))
"#;

/// What is kept of a conversation with the real server.
#[derive(Serialize, Deserialize)]
pub(crate) struct Recording {
    source: String,
    /// The run that was sent.
    #[serde(flatten)]
    pub(crate) files: Files,
    pub(crate) exchanges: Vec<Exchange>,
}

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/mlflow-{VERSION}/exchanges.json"))
}

pub(crate) fn recorded() -> Recording {
    serde_json::from_slice(&fs::read(recording()).unwrap()).unwrap()
}

/// A request without what differs every time: times; id and head of the ledger; the port; the length of the body, which follows from these.
pub(crate) fn timeless(request: &str, server: SocketAddr) -> String {
    let mut text = request.replace(&server.to_string(), "SERVER");
    for key in ["\"start_time\":", "\"end_time\":", "\"timestamp\":", "content-length: "] {
        let mut pieces = text.split(key);
        let mut without = pieces.next().unwrap().to_owned();
        for piece in pieces {
            without += key;
            without += "TIME";
            without += piece.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        text = without;
    }
    for (before, end) in [
        ("\"keyhush.ledger_head\",\"value\":\"", '"'),
        ("\"keyhush.ledger\",\"value\":\"", '"'),
        ("tags.`keyhush.ledger` = '", '\''),
    ] {
        let Some((left, rest)) = text.split_once(before) else { continue };
        let (_, right) = rest.split_once(end).unwrap();
        text = format!("{left}{before}LEDGER{end}{right}");
    }
    text
}

/// MLflow in a folder of its own; ends with this.
struct RealServer {
    child: Child,
    address: SocketAddr,
}

impl RealServer {
    fn start(python: &Path, folder: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let store = format!("sqlite:///{}/mlflow.db", folder.display());
        let artifacts = folder.join("artifacts");
        let mut command = Command::new(python.with_file_name("mlflow"));
        command.args(["server", "--host", "127.0.0.1", "--port", &port.to_string(), "--workers", "1"]);
        command.args(["--backend-store-uri", &store, "--default-artifact-root"]).arg(artifacts).current_dir(folder);
        command.stdout(fs::File::create(folder.join("out.txt")).unwrap());
        command.stderr(fs::File::create(folder.join("err.txt")).unwrap());
        // A group of its own: it starts others, and all of them are to end.
        let child = command.process_group(0).spawn().unwrap();
        let mut server = Self { child, address };
        for _ in 0..1200 {
            assert!(
                server.child.try_wait().unwrap().is_none(),
                "{}",
                fs::read_to_string(folder.join("err.txt")).unwrap()
            );
            if std::net::TcpStream::connect(address).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("mlflow does not start: {}", fs::read_to_string(folder.join("err.txt")).unwrap());
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// Python with MLflow, in the target folder; made when it is not there.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mlflow-{VERSION}"));
    let python = folder.join("bin/python");
    let run = |command: &mut Command| assert!(command.status().expect("python3 is needed").success(), "{command:?}");
    if !folder.join("bin/mlflow").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        let package = format!("mlflow=={VERSION}");
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &package]));
    }
    python
}

fn read_back(python: &Path, server: &RealServer) -> Value {
    let address = format!("http://{}", server.address);
    let output = Command::new(python).args(["-c", READ_BACK, &address]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "installs MLflow from PyPI, and starts it"]
fn the_real_mlflow_has_what_it_was_sent() {
    let (python, folder) = (python(), tempfile::tempdir().unwrap());
    let run = folder.path().join("recorded-run");
    let files = Files::as_left(&run);
    let real = RealServer::start(&python, folder.path());
    let to = real.address;
    let server = Server::answering(Box::new(move |request| forwarded(request, to)));
    let address = format!("http://{}", server.address);

    let (tracker, said) = start(&address, account(&[]), &run);
    until("a batch", || server.asked().iter().any(|what| what == "runs/log-batch"));
    assert_eq!(tracker.finish(Outcome::Finished), None);
    assert!(said.lock().unwrap().is_empty(), "{said:?}");
    assert!(server.seen().iter().skip(1).all(|exchange| exchange.status == 200));
    if std::env::var_os("KEYHUSH_RECORD").is_some() {
        // Paths of this machine stay here.
        let here = folder.path().display().to_string();
        let timeless = |e: Exchange| Exchange {
            request: timeless(&e.request, server.address),
            answer: e.answer.replace(&here, "FOLDER"),
            ..e
        };
        let exchanges = server.seen().into_iter().map(timeless).collect();
        let source = format!("mlflow {VERSION} from PyPI, by record.sh beside this file");
        let text = serde_json::to_string_pretty(&Recording { source, files: files.clone(), exchanges }).unwrap();
        fs::create_dir_all(recording().parent().unwrap()).unwrap();
        fs::write(recording(), text + "\n").unwrap();
    }

    let compare = |status: &str| {
        let read = read_back(&python, &real);
        assert_eq!((read["status"].as_str(), read["name"].as_str()), (Some(status), Some("recorded-run")));
        assert_eq!(read["params"]["privacy.noise_multiplier"], "0.5");
        assert_eq!(read["params"]["participation.cohort"], "8");
        assert!(
            read["tags"]["keyhush.statement"].as_str().unwrap().contains("with secret noise it would be user-level")
        );
        assert!(read["tags"]["keyhush.ledger_head"].as_str().unwrap().len() > 32);
        assert_eq!(read["tags"]["mlflow.note.content"], read["tags"]["keyhush.statement"]);
        let mut numbers = 0;
        for step in Lines::read(&run).unwrap().steps() {
            for (key, value) in step.scalars.iter().filter(|scalar| scalar.1.is_finite()) {
                let history = read["history"][key].as_array().unwrap_or_else(|| panic!("{key} is missing"));
                let of_step: Vec<&Value> = history.iter().filter(|point| point[0] == step.round).collect();
                assert_eq!(of_step.len(), 1, "{key} at {}: {history:?}", step.round);
                assert_eq!(of_step[0][1].as_f64(), Some(*value), "{key}");
                numbers += 1;
            }
        }
        let all: usize =
            read["history"].as_object().unwrap().values().map(|points| points.as_array().unwrap().len()).sum();
        assert_eq!(all, numbers, "nothing else is there");
    };
    compare("FINISHED");

    // Sent once more, as after a crash before it was noted: the server has each number once.
    let record = run.join(keyhush_tracking::RECORD_FILE);
    let noted: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let mut forgetful = noted.clone();
    (forgetful["evaluation"], forgetful["round"], forgetful["settings"]) = (Value::Null, 0.into(), false.into());
    fs::write(&record, forgetful.to_string()).unwrap();
    files.show(&run, 2);
    assert_eq!(start(&address, account(&[]), &run).0.finish(Outcome::Interrupted), None);
    files.show(&run, 3);
    compare("KILLED");

    // The record is lost: the server finds the run by the id of its ledger.
    fs::remove_file(&record).unwrap();
    assert_eq!(start(&address, account(&[]), &run).0.finish(Outcome::Finished), None);
    compare("FINISHED");
}
