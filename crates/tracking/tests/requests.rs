//! What a tracking server is sent, when, and what becomes of a run whose server is away or refuses.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    net::TcpListener,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use keyhush_tracking::{Account, Address, Outcome, Pace, RECORD_FILE, TrackError, Tracker};
use report::scalars::Lines;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{
    a_run::Files,
    real::recorded,
    server::{NOT_THERE, Server, obliging},
};

/// Looks often and waits short.
pub(crate) const QUICK: Pace =
    Pace { every: Duration::from_millis(20), farewell: Duration::from_secs(2), patience: Duration::from_secs(4) };
/// A test that waits longer than this for something has failed.
const LONG: Duration = Duration::from_secs(20);

pub(crate) fn account(variables: &[(&'static str, &str)]) -> Account {
    let variables: Vec<(&str, String)> = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Account::new(|name| variables.iter().find(|known| known.0 == name).map(|known| known.1.clone())).unwrap()
}

type Said = Arc<Mutex<Vec<String>>>;

pub(crate) fn start(address: &str, account: Account, folder: &Path) -> (Tracker, Said) {
    let said = Said::default();
    let of_tracker = Arc::clone(&said);
    let say = Box::new(move |words: &str| of_tracker.lock().unwrap().push(words.to_owned()));
    let address: Address = format!("mlflow:{address}").parse().unwrap();
    (Tracker::start(&address, account, folder, QUICK, say).unwrap(), said)
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every number that the folder shows, with its step.
fn shown(folder: &Path) -> Vec<(String, u64)> {
    let steps = Lines::read(folder).unwrap().steps();
    let of = |step: report::scalars::Step| {
        step.scalars.into_iter().filter(|s| s.1.is_finite()).map(move |s| (s.0, step.round)).collect::<Vec<_>>()
    };
    let mut all: Vec<(String, u64)> = steps.into_iter().flat_map(of).collect();
    all.sort();
    all
}

fn names(server: &Server) -> Vec<(String, u64)> {
    let mut names: Vec<(String, u64)> = server.numbers().into_iter().map(|number| (number.0, number.1)).collect();
    names.sort();
    names
}

/// Byte by byte what the real MLflow was sent and took, but for moments and the head of the ledger; answered as it answered.
#[test]
fn requests_are_those_that_the_real_server_took() {
    let recorded = recorded();
    assert!(recorded.exchanges.len() > 6, "there is a recording");
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("recorded-run");
    let _own = Files::as_left(&run);
    recorded.files.show(&run, 3);
    let mut answers = recorded.exchanges.clone().into_iter();
    let server =
        Server::answering(Box::new(move |_| answers.next().map_or((500, String::new()), |e| (e.status, e.answer))));
    let (tracker, said) = start(&format!("http://{}", server.address), account(&[]), &run);
    until("the first run", || server.asked().iter().any(|what| what == "runs/log-batch"));
    assert_eq!(tracker.finish(Outcome::Finished), None);
    assert!(said.lock().unwrap().is_empty());
    let asked: Vec<String> =
        server.seen().iter().map(|exchange| crate::real::timeless(&exchange.request, server.address)).collect();
    let expected: Vec<String> = recorded.exchanges.iter().map(|exchange| exchange.request.clone()).collect();
    assert_eq!(asked, expected);
}

#[test]
fn a_simulation_is_sent_while_it_goes_on_and_each_number_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::of_a_run(folder.path(), false);
    files.show(folder.path(), 1);
    let server = Server::answering(obliging());
    let (tracker, _) = start(&format!("http://{}", server.address), account(&[]), folder.path());
    until("round 1", || names(&server) == shown(folder.path()));
    files.show(folder.path(), 2);
    until("round 2", || names(&server) == shown(folder.path()));
    files.show(folder.path(), 3);
    assert_eq!(tracker.finish(Outcome::Finished), None);
    assert_eq!(names(&server), shown(folder.path()));
    let losses: Vec<_> = server.numbers().into_iter().filter(|number| number.0 == "train_not_private/loss").collect();
    assert_eq!(losses.iter().map(|loss| (loss.1, loss.2)).collect::<Vec<_>>(), [(1, 4.0), (2, 2.0), (3, 4.0 / 3.0)]);
    assert_eq!(losses[1].3 - losses[0].3, 2000, "a round took two seconds");
    let asked = server.asked();
    assert_eq!(asked.iter().filter(|what| *what == "runs/create").count(), 1);
    assert_eq!(asked.last().unwrap(), "runs/update");
    let seen = server.seen();
    assert_eq!(seen.last().unwrap().body()["status"], "FINISHED");
    let tags = seen[seen.len() - 2].body()["tags"].to_string();
    assert!(tags.contains("keyhush.ledger_head") && tags.contains("No guarantee: the noise was simulated"), "{tags}");
}

/// When the numbers of a round arrive says how long the round took.
#[test]
fn p23_nothing_of_a_run_with_secret_noise_is_sent_before_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::of_a_run(folder.path(), true);
    let server = Server::answering(obliging());
    let address = format!("http://{}", server.address);
    let (tracker, _) = start(&address, account(&[]), folder.path());
    for rounds in 1..=3 {
        files.show(folder.path(), rounds);
        std::thread::sleep(5 * QUICK.every);
    }
    assert_eq!(tracker.finish(Outcome::Interrupted), None);
    assert!(server.seen().is_empty(), "an interruption is no end: {:?}", server.asked());
    let (tracker, _) = start(&address, account(&[]), folder.path());
    assert_eq!(tracker.finish(Outcome::Finished), None);
    let numbers = server.numbers();
    assert_eq!(numbers.iter().filter(|number| number.0 == "accuracy/top1").count(), 4);
    let exact = numbers.iter().find(|number| number.0.starts_with("seconds") || number.0.contains("not_private"));
    assert_eq!(exact, None, "rule P12");
    let day = 24 * 60 * 60 * 1000;
    assert!(numbers.iter().all(|number| number.3 % day == 0), "the day, and no moment: {numbers:?}");
    let seen = server.seen();
    let times = |what: &str, key: &str| {
        let one = seen.iter().find(|exchange| exchange.what().ends_with(what)).unwrap();
        one.body()[key].as_u64().unwrap() % day
    };
    assert_eq!((times("runs/create", "start_time"), times("runs/update", "end_time")), (0, 0));
}

#[test]
fn a_run_that_is_resumed_goes_on_in_the_same_run_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::of_a_run(folder.path(), false);
    files.show(folder.path(), 1);
    let server = Server::answering(obliging());
    let address = format!("http://{}", server.address);
    assert_eq!(start(&address, account(&[]), folder.path()).0.finish(Outcome::Interrupted), None);
    assert_eq!(server.seen().last().unwrap().body()["status"], "KILLED");
    files.show(folder.path(), 3);
    assert_eq!(start(&address, account(&[]), folder.path()).0.finish(Outcome::Finished), None);
    assert_eq!(names(&server), shown(folder.path()), "nothing twice, and nothing is missing");
    assert_eq!(server.asked().iter().filter(|what| *what == "runs/create").count(), 1);
    let running = server
        .seen()
        .iter()
        .filter(|e| e.what().ends_with("runs/update"))
        .map(|e| e.body()["status"].to_string())
        .collect::<Vec<_>>();
    assert_eq!(running, ["\"KILLED\"", "\"RUNNING\"", "\"FINISHED\""]);
    // Another server, or another experiment, has nothing of it.
    assert_eq!(
        start(&address, account(&[("MLFLOW_EXPERIMENT_NAME", "b")]), folder.path()).0.finish(Outcome::Finished),
        None
    );
    assert_eq!(server.asked().iter().filter(|what| *what == "runs/create").count(), 2);
}

#[test]
fn a_server_that_forgot_a_run_gets_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(folder.path(), false);
    let mut obliging = obliging();
    let server = Server::answering(Box::new(move |request| {
        match request.contains("runs/update") && request.contains("RUNNING") {
            true => (404, NOT_THERE.into()),
            false => obliging(request),
        }
    }));
    for runs in 1..=2 {
        assert_eq!(
            start(&format!("http://{}", server.address), account(&[]), folder.path()).0.finish(Outcome::Finished),
            None
        );
        assert_eq!(server.asked().iter().filter(|what| *what == "runs/create").count(), runs);
    }
    assert_eq!(names(&server).len(), 2 * shown(folder.path()).len());
}

/// The server created the run, but its answer was lost: every attempt left another run there, which "ran" for ever.
#[test]
fn a_run_whose_creation_was_not_answered_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(folder.path(), false);
    let (mut obliging, mut created) = (obliging(), false);
    let server = Server::answering(Box::new(move |request| match request {
        _ if request.contains("runs/create") => {
            created = true;
            (500, "lost".into())
        }
        _ if request.contains("runs/search") && created => (200, r#"{"runs": [{"info": {"run_id": "lost"}}]}"#.into()),
        _ => obliging(request),
    }));
    let address = format!("http://{}", server.address);
    assert_eq!(start(&address, account(&[]), folder.path()).0.finish(Outcome::Finished), None);
    assert_eq!(server.asked().iter().filter(|what| *what == "runs/create").count(), 1);
    assert_eq!(names(&server), shown(folder.path()));
    let seen = server.seen();
    assert!(seen.iter().filter(|e| e.what().ends_with("log-batch")).all(|e| e.body()["run_id"] == "lost"));
    let tag = seen.iter().find(|e| e.what().ends_with("runs/create")).unwrap().body()["tags"][4].clone();
    let search = seen.iter().find(|e| e.what().ends_with("runs/search")).unwrap().body();
    assert_eq!(tag["key"], "keyhush.ledger");
    assert_eq!(search["filter"], format!("tags.`keyhush.ledger` = '{}'", tag["value"].as_str().unwrap()));
}

/// A file that could not be read once, such as on a full disk, ended tracking for good.
#[test]
fn a_run_that_cannot_be_read_for_a_while_is_tracked_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::of_a_run(folder.path(), false);
    fs::write(folder.path().join("metrics.jsonl"), "{ \n").unwrap();
    let server = Server::answering(obliging());
    let (tracker, said) = start(&format!("http://{}", server.address), account(&[]), folder.path());
    until("a warning", || !said.lock().unwrap().is_empty());
    files.show(folder.path(), 3);
    assert_eq!(tracker.finish(Outcome::Finished), None);
    assert_eq!(names(&server), shown(folder.path()));
    assert!(said.lock().unwrap()[0].contains("this is tried again"), "{said:?}");
}

/// `--resume` of a run that had finished is an error; the run has not failed.
#[test]
fn a_run_that_had_finished_stays_finished() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(folder.path(), false);
    let server = Server::answering(obliging());
    let address = format!("http://{}", server.address);
    assert_eq!(start(&address, account(&[]), folder.path()).0.finish(Outcome::Failed), None);
    assert_eq!(server.seen().last().unwrap().body()["status"], "FINISHED");
}

#[test]
fn an_experiment_that_is_not_there_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(folder.path(), false);
    let mut obliging = obliging();
    let server = Server::answering(Box::new(move |request| match request {
        _ if request.contains("get-by-name") => (404, NOT_THERE.into()),
        _ if request.contains("experiments/create") => (200, r#"{"experiment_id": "9"}"#.into()),
        _ => obliging(request),
    }));
    let mine = account(&[("MLFLOW_EXPERIMENT_NAME", "my runs"), ("MLFLOW_TRACKING_TOKEN", "abc")]);
    assert_eq!(
        start(&format!("http://{}/prefix/", server.address), mine, folder.path()).0.finish(Outcome::Finished),
        None
    );
    let seen = server.seen();
    assert_eq!(seen[0].what(), "GET /prefix/api/2.0/mlflow/experiments/get-by-name?experiment_name=my%20runs");
    assert_eq!(seen[1].body()["name"], "my runs");
    assert_eq!(seen[2].body()["experiment_ids"][0], "9");
    assert_eq!(seen[3].body()["experiment_id"], "9");
    assert!(seen.iter().all(|exchange| exchange.request.contains("authorization: Bearer abc\r\n")));
    let record = fs::read_to_string(folder.path().join(RECORD_FILE)).unwrap();
    assert!(!record.contains("abc"), "a token is kept nowhere: {record}");
}

/// A server that is away stops nothing, is spoken of once, and gets everything when it is back.
#[test]
fn a_server_that_is_away_gets_everything_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::of_a_run(folder.path(), false);
    files.show(folder.path(), 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (tracker, said) = start(&format!("http://{address}"), account(&[]), folder.path());
    until("a warning", || !said.lock().unwrap().is_empty());
    files.show(folder.path(), 3);
    let up = Arc::new(AtomicBool::new(false));
    let (of_server, mut obliging) = (Arc::clone(&up), obliging());
    let listener = TcpListener::bind(address).unwrap();
    let server = Server::on(
        listener,
        None,
        Box::new(move |request| match of_server.load(Ordering::Relaxed) {
            true => obliging(request),
            false => (503, "starting".into()),
        }),
    );
    until("an attempt that is refused", || !server.seen().is_empty());
    up.store(true, Ordering::Relaxed);
    assert_eq!(tracker.finish(Outcome::Finished), None);
    assert_eq!(names(&server), shown(folder.path()));
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("cannot connect") && said[0].contains("the run continues"), "{said:?}");
}

#[test]
fn a_server_that_stays_away_is_given_up_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(folder.path(), false);
    // Takes connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (tracker, said) = start(&format!("http://{}", listener.local_addr().unwrap()), account(&[]), folder.path());
    let began = Instant::now();
    let missing = tracker.finish(Outcome::Finished).unwrap();
    assert!(began.elapsed() < QUICK.patience + Duration::from_secs(2), "{:?}", began.elapsed());
    let notes = said.lock().unwrap().clone();
    assert!(
        notes.iter().any(|note| note.contains("Ctrl-C stops waiting")),
        "a silent wait looks like a hang: {notes:?}"
    );
    let said = missing;
    assert!(said.contains("did not get all of the run: it does not answer in time"), "{said}");
    assert!(said.contains(&folder.path().display().to_string()));
}

#[test]
fn a_server_that_refuses_is_not_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(folder.path(), false);
    let forbidden = r#"{"error_code": "PERMISSION_DENIED", "message": "not you"}"#;
    let server = Server::answering(Box::new(move |_| (403, forbidden.into())));
    let (tracker, said) = start(&format!("http://{}", server.address), account(&[]), folder.path());
    until("a warning", || !said.lock().unwrap().is_empty());
    std::thread::sleep(5 * QUICK.every);
    assert_eq!(server.seen().len(), 1);
    assert!(said.lock().unwrap()[0].contains("403: PERMISSION_DENIED: not you; the run continues, but is not tracked"));
    assert!(tracker.finish(Outcome::Finished).unwrap().contains("PERMISSION_DENIED"));
}

#[test]
fn whom_a_certificate_vouches_for_is_spoken_to_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let _files = Files::of_a_run(&folder.path().join("run"), false);
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let certificate = CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let server = Server::on(TcpListener::bind("127.0.0.1:0").unwrap(), Some(config), obliging());
    let roots = folder.path().join("roots.pem");
    fs::write(&roots, made.cert.pem()).unwrap();
    let address = format!("https://localhost:{}", server.address.port());
    let run = folder.path().join("run");
    let trusting = account(&[("MLFLOW_TRACKING_SERVER_CERT_PATH", roots.to_str().unwrap())]);
    assert_eq!(start(&address, trusting, &run).0.finish(Outcome::Finished), None);
    assert_eq!(names(&server), shown(&run));
    let asked = server.seen().len();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(&roots, other.cert.pem()).unwrap();
    let distrusting = account(&[("MLFLOW_TRACKING_SERVER_CERT_PATH", roots.to_str().unwrap())]);
    let said = start(&address, distrusting, &run).0.finish(Outcome::Finished).unwrap();
    assert!(said.contains("cannot connect") && server.seen().len() == asked, "{said}");
    fs::write(&roots, "no certificate").unwrap();
    let nothing = account(&[("MLFLOW_TRACKING_SERVER_CERT_PATH", roots.to_str().unwrap())]);
    let address: Address = format!("mlflow:{address}").parse().unwrap();
    let refused = Tracker::start(&address, nothing, &run, QUICK, Box::new(|_| {}));
    assert!(matches!(refused.err().unwrap(), TrackError::Certificates { .. }));
}
