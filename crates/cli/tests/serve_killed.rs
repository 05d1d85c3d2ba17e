//! `keyhush serve` with its devices, killed at a sync and started again: at ten of them with every test, at each of them with `--long`. And
//! with a disk that hangs, and one that is full.
//!
//! All devices take part in every round, and the noise follows from a seed: so whatever happens, the model at the end is the one that threads
//! come to over the same people. A report that is lost, or counted twice, or a step that is released twice would make it another.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::small_runs::{TASK, with};
use agent::parts::{Did, Line};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use federated::{
    config::Document,
    engine::Means,
    home::Records,
    model_folder,
    plan::Plan,
    population::SyntheticPopulation,
    replay::{Cohorts, replay},
    run::Opened,
};
use ledger::{Body, Ledger, LedgerStore};
use lm::{folder::Weights, kernels::KernelPath, tokenizer::Tokenizer};
use server::{
    sqlite::{DATABASE, Database, TaskHome},
    state::TaskState,
};

/// So many that their sum is merged into the store before it is whole (64 reports), as those of large rounds are.
const DEVICES: u64 = 68;
const ROUNDS: u64 = 2;
/// What made-up people follow from: that of `keyhush device`.
const SEED: u64 = 1;
/// How long a server may take until it listens again. It takes a twentieth of that; what else the machine does is in it.
const LISTENS: Duration = Duration::from_secs(5);
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn task() -> String {
    let changes = [
        "rounds=2",
        "participation.population=68",
        "participation.min_separation=0",
        "participation.max_participations=2",
        "participation.cohort=68",
        "evaluation.every=2",
        "evaluation.users=4",
        "evaluation.most_tokens=100",
        "devices.select_seconds=0.2",
        "devices.report_seconds=100",
        "devices.answer_seconds=30",
        "devices.tick_seconds=0.05",
        "devices.begin_with=68",
    ];
    with(TASK, &changes)
}

/// Where a server ends.
#[derive(Debug, Clone, Copy)]
struct At {
    /// At which sync, counted from 1.
    sync: u64,
    /// After it, or before.
    is_done: bool,
}

struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn ends(&mut self, folder: &Path) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not come to an end; the server says:\n{}", log(folder));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What counts syncs and ends a program at one, built once.
fn shim() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, built) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (source, built) = ("tests/serve_killed/sync.c", folder.path().join("sync.so"));
        let mut cc = Command::new("cc");
        cc.current_dir(env!("CARGO_MANIFEST_DIR")).args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        assert!(cc.arg(&built).arg(source).status().unwrap().success());
        (folder, built)
    });
    built
}

/// What servers of a folder said.
fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Starts a server whose syncs are counted, and that ends at one.
fn serve(folder: &Path, address: &str, at: Option<At>) -> Process {
    serve_with(folder, address, |command| {
        if let Some(At { sync, is_done }) = at {
            command.env("SYNC_KILLS", sync.to_string()).env("SYNC_IS_DONE", u8::from(is_done).to_string());
        }
    })
}

/// Starts a server whose syncs are counted, and to which something is done.
fn serve_with(folder: &Path, address: &str, does: impl FnOnce(&mut Command)) -> Process {
    let log = fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
    command.current_dir(folder).args(["serve", "words.toml", "--listen", address, "--data", "data"]);
    command.args(["--secrets", "secrets", "--plain-http", "--anybody", "--until-done"]);
    command.args(["--least-pause", "0", "--threads", "1"]).stderr(log);
    command.env("LD_PRELOAD", shim()).env("SYNC_COUNT", folder.join("syncs"));
    does(&mut command);
    Process::start(&mut command)
}

/// Starts the devices, all of whom take part in every round.
fn devices(folder: &Path, address: &str) -> Process {
    let mut devices = Command::new(env!("CARGO_BIN_EXE_keyhush"));
    devices.current_dir(folder).args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count"]);
    devices.args([&DEVICES.to_string(), "--seed", &SEED.to_string(), "--parts", "parts.jsonl"]).stderr(Stdio::null());
    Process::start(&mut devices)
}

/// An address that nobody else gets in the moments in which nobody listens there: below those that the system gives away.
fn address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let from = (std::process::id() % 20_000) as u16;
    let any = || 10_000 + (from + 7 * NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    format!("127.0.0.1:{}", std::iter::repeat_with(any).find(is_free).unwrap())
}

/// How the first life of a server ended.
struct Lived {
    /// How many syncs it began.
    syncs: u64,
    was_killed: bool,
}

/// A whole run, in which the server is killed once, if it gets so far. What is there is looked at after the kill and at the end.
fn run(at: Option<At>) -> Lived {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    fs::write(folder.join("words.toml"), task()).unwrap();
    let address = address();
    let mut server = serve(folder, &address, at);
    let devices = devices(folder, &address);
    let mut status = server.ends(folder);
    let syncs = fs::metadata(folder.join("syncs")).unwrap().len();
    let was_killed = at.is_some() && !status.success();
    if was_killed {
        what_is_there_is_whole(folder, at);
        let said = log(folder).len();
        let began = Instant::now();
        let mut again = serve(folder, &address, None);
        while !log(folder)[said..].contains("listening on ") {
            assert!(began.elapsed() < LISTENS, "{at:?}: it does not listen again:\n{}", log(folder));
            thread::sleep(Duration::from_millis(10));
        }
        status = again.ends(folder);
    }
    let log = log(folder);
    assert!(status.success(), "{at:?}: {status}\n{log}");
    assert!(!log.contains("panicked"), "{at:?}: {log}");
    what_is_there_is_whole(folder, at);
    all_is_as_if_nothing_had_happened(folder, at);
    stopped(devices);
    nobody_gave_twice(folder, at);
    Lived { syncs, was_killed }
}

/// Devices write down what they gave until they are told to stop.
fn stopped(mut devices: Process) {
    let status = Command::new("kill").args(["-INT", &devices.0.id().to_string()]).status().unwrap();
    assert!(status.success());
    devices.ends(Path::new("."));
}

/// No model without its event, no event twice: at any moment, as whoever comes next finds it.
fn what_is_there_is_whole(folder: &Path, at: Option<At>) {
    let path = folder.join("data").join(DATABASE);
    // A server that was killed before it had a database leaves none, or an empty one.
    let Ok(database) = Database::read(&path) else {
        assert!(at.is_some_and(|at| at.sync < 20), "{at:?}: there is no database");
        return;
    };
    let database = Arc::new(database);
    let Ok(home) = TaskHome::read(Arc::clone(&database), "words") else { return };
    if !home.is_begun().unwrap() {
        assert_eq!(home.published_model().unwrap(), None, "{at:?}: a model before there is a plan");
        return;
    }
    let store = home.read_store().unwrap();
    let mut released = BTreeMap::new();
    for entry in store.read(0).unwrap() {
        let entry = entry.unwrap();
        if let Body::Release(release) = entry.body() {
            assert_eq!(released.insert(entry.index(), release.step), None);
        }
    }
    let steps: Vec<u64> = released.values().copied().collect();
    assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>(), "{at:?}: each step once, in order");
    let ledger = Ledger::open(home.read_store().unwrap(), None, &home.shown_heads().unwrap()).unwrap();
    assert_eq!(ledger.failed_attempts(), 0, "{at:?}");
    let Some(published) = home.published_model().unwrap() else { return };
    let behind = published.entry.map_or(0, |entry| released.get(&entry).expect("a release of the ledger") + 1);
    assert_eq!(published.rounds, behind, "{at:?}: the model is of as many rounds as it has events");
}

/// The parameters that threads come to over the same people, all of whom take part in every round.
fn replayed() -> &'static [f32] {
    static REPLAYED: OnceLock<Vec<f32>> = OnceLock::new();
    REPLAYED.get_or_init(|| {
        let config = Document::new(&task(), &[]).unwrap().config().unwrap();
        let opened = Opened::new(&config).unwrap();
        let plan = Plan::new(config, &opened.setting()).unwrap();
        let crowd = Crowd::new(SynthPlan::new(SEED, DEVICES, Dialect::Informal)).unwrap();
        let tokenizer = Tokenizer::new(opened.rules());
        let people = SyntheticPopulation::new(crowd, tokenizer, opened.vocabulary(), opened.learner());
        let rounds = vec![(0..DEVICES).collect(); ROUNDS as usize];
        let everybody = Cohorts { rounds, ..Cohorts::default() };
        replay(&plan, &opened, &people, &everybody, Means::threads(KernelPath::best(), 1)).unwrap().model
    })
}

/// The ledger verifies, everybody is in each release once, and the model is that of a run without a kill.
fn all_is_as_if_nothing_had_happened(folder: &Path, at: Option<At>) {
    let done = folder.join("data/models/words");
    let verify = Command::new(env!("CARGO_BIN_EXE_keyhush")).args(["privacy", "verify", "--json"]).arg(&done).output();
    let verify = verify.unwrap();
    assert!(verify.status.success(), "{at:?}: {}", String::from_utf8_lossy(&verify.stderr));
    let verified: serde_json::Value = serde_json::from_slice(&verify.stdout).unwrap();
    assert_eq!(verified["verified"], true, "{at:?}: {verified}");
    let entries = fs::read_to_string(done.join("ledger.jsonl")).unwrap();
    assert_eq!(entries.lines().filter(|line| line.contains("\"release\"")).count() as u64, ROUNDS, "{at:?}");
    let records = fs::read_to_string(done.join("ledger.jsonl.participations")).unwrap();
    assert_eq!(records.lines().count() as u64, ROUNDS, "{at:?}: {records}");
    for line in records.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let pseudonyms = record["pseudonyms"].as_str().unwrap().as_bytes();
        let mut different: Vec<&[u8]> = pseudonyms.chunks(32).collect();
        different.dedup();
        assert_eq!(different.len() as u64, DEVICES, "{at:?}: everybody once");
    }
    let Weights::Recurrent { values, .. } = model_folder::read(&done).unwrap().weights else { panic!("no network") };
    assert!(values == replayed(), "{at:?}: another model than that of threads over the same people");
}

/// Nobody's input left twice for a step, and whoever was thanked is on record, as everybody is.
fn nobody_gave_twice(folder: &Path, at: Option<At>) {
    let lines = fs::read_to_string(folder.join("parts.jsonl")).unwrap();
    let mut gave = BTreeMap::new();
    for line in lines.lines() {
        let Line { device, step, did, .. } = serde_json::from_str(line).unwrap();
        // Of a server that was killed, or is over, there is no answer.
        if did != Did::Unanswered {
            *gave.entry((device, step)).or_insert(0) += u64::from(did == Did::Gave);
        }
    }
    assert_eq!(gave.len() as u64, DEVICES * ROUNDS, "{at:?}");
    assert!(gave.values().all(|times| *times == 1), "{at:?}: {gave:?}");
}

/// Kills at these syncs of a run, four runs at a time: each waits for its disk and its devices most of the time. Gives how many were
/// killed: how many syncs there are differs from run to run, by how many batches the requests of devices come in.
fn killed_at(points: Vec<At>) -> usize {
    let points = Mutex::new(points.into_iter());
    let one_after_the_other = || {
        let next = || points.lock().unwrap().next();
        std::iter::from_fn(next).filter(|at| run(Some(*at)).was_killed).count()
    };
    thread::scope(|scope| {
        let all = [(); 4].map(|()| scope.spawn(one_after_the_other));
        all.into_iter().map(|part| part.join().unwrap()).sum()
    })
}

#[test]
fn p13_a_server_killed_at_ten_of_its_syncs_loses_nothing_and_counts_nobody_twice() {
    let syncs = run(None).syncs;
    println!("{syncs} syncs in a run");
    assert!(syncs > 30, "{syncs} syncs: what should be durable is not");
    // Before and after in turn; the last is near the end, where keys are destroyed and the task is forgotten.
    let point = |n: u64| At { sync: 1 + n * (syncs - 4) / 9, is_done: n % 2 == 1 };
    let killed = killed_at((0..10).map(point).collect());
    assert!(killed >= 8, "only {killed} of ten were killed");
}

/// A disk that does not answer keeps a server that is to stop for as long as any step may, and no longer; the run goes on where it was.
#[test]
fn a_server_whose_disk_hangs_ends_in_five_seconds_and_goes_on_afterwards() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    fs::write(folder.join("words.toml"), task()).unwrap();
    let address = address();
    let mut server = serve_with(folder, &address, |command| {
        command.env("SYNC_HANGS", "30");
    });
    let devices = devices(folder, &address);
    let began = Instant::now();
    while fs::metadata(folder.join("syncs")).map_or(0, |syncs| syncs.len()) < 30 {
        assert!(began.elapsed() < PATIENCE, "it does not come to its thirtieth sync:\n{}", log(folder));
        thread::sleep(Duration::from_millis(10));
    }
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap().success());
    let status = server.ends(folder);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(status.code(), Some(130), "{}", log(folder));
    assert!(log(folder).contains("stopped during a step"), "{}", log(folder));
    assert!(serve(folder, &address, None).ends(folder).success(), "{}", log(folder));
    all_is_as_if_nothing_had_happened(folder, None);
    stopped(devices);
    nobody_gave_twice(folder, None);
}

/// A disk without room: while the server begins, while devices enrol, and in the midst of a round. It says so and ends; with room it goes on where it
/// was, and nobody's report is lost or counted twice.
#[test]
fn a_server_whose_disk_is_full_says_so_and_goes_on_when_there_is_room() {
    let at = |sync: u64| {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        fs::write(folder.join("words.toml"), task()).unwrap();
        let address = address();
        let mut server = serve_with(folder, &address, |command| {
            command.env("SYNC_FILLS", sync.to_string());
        });
        let devices = devices(folder, &address);
        let status = server.ends(folder);
        let said = log(folder);
        assert_eq!(status.code(), Some(1), "full at {sync}: {said}");
        let is_told = |line: &str| line.contains("the disk is full") || line.contains("No space left on device");
        assert!(said.lines().any(is_told) && !said.contains("panicked"), "full at {sync}: {said}");
        what_is_there_is_whole(folder, Some(At { sync, is_done: false }));
        assert!(serve(folder, &address, None).ends(folder).success(), "full at {sync}: {}", log(folder));
        what_is_there_is_whole(folder, None);
        all_is_as_if_nothing_had_happened(folder, None);
        stopped(devices);
        nobody_gave_twice(folder, None);
    };
    thread::scope(|scope| {
        let all = [6, 25, 45].map(|sync| scope.spawn(move || at(sync)));
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// All of them take a quarter of an hour.
#[test]
#[ignore = "takes long"]
fn p13_a_server_killed_at_any_of_its_syncs_loses_nothing_and_counts_nobody_twice() {
    let syncs = run(None).syncs;
    let both = |sync| [false, true].map(|is_done| At { sync, is_done });
    let killed = killed_at((1..=syncs).flat_map(both).collect());
    println!("{killed} of {} runs were killed", 2 * syncs);
    assert!(killed as u64 > 2 * syncs * 9 / 10, "{killed} of {}", 2 * syncs);
}
