//! `keyhush train` as a process: killed, interrupted, resumed; what it prints and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::small_runs::{RUN, with};
use crate::toy::{self, Toy};
use serde_json::Value;

const CHANGES: [&str; 18] = [
    "rounds=40",
    "model.vocabulary=200",
    "model.hidden=",
    "model.embedding=",
    "participation.kind=arrival",
    "participation.cohort=24",
    "participation.min_separation=4",
    "participation.max_participations=3",
    "clip.kind=adaptive",
    "clip.norm=0.1",
    "clip.quantile=0.5",
    "clip.count_stddev=2.0",
    "privacy.mechanism=banded",
    "privacy.bands=4",
    "privacy.restarts=[16]",
    "privacy.noise_multiplier=2.0",
    "evaluation.every=4",
    "checkpoint.every=3",
];

fn settings() -> String {
    with(RUN, &CHANGES)
}

/// A folder with settings in it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("run.toml"), settings()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
        command.current_dir(self.folder.path()).arg("train").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The message of a command that is refused.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        errors
    }
}

/// What must be the same, however often a run was killed.
fn left(folder: &Path) -> (Vec<u8>, String, Vec<Value>) {
    let ledger = fs::read_to_string(folder.join("ledger.jsonl")).unwrap();
    let releases = ledger.lines().filter_map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let release = entry["entry"]["body"]["release"].clone();
        (!release.is_null()).then_some(release)
    });
    let model = fs::read(folder.join("model/model.safetensors")).unwrap();
    (model, fs::read_to_string(folder.join("metrics.jsonl")).unwrap(), releases.collect())
}

#[test]
fn killed_at_any_moment_it_ends_as_if_it_had_not_been() {
    let bench = Bench::new();
    let long = ["run.toml", "--set", "rounds=60", "--quiet", "--out"];
    bench.ok(&[&long[..], &["whole", "--threads", "1"]].concat());
    let mut killed = 0u64;
    for life in 0u64.. {
        let mut command = if life == 0 {
            bench.command(&[&long[..], &["killed"]].concat())
        } else {
            bench.command(&["--resume", "killed", "--quiet"])
        };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // From the first moments of a process to many rounds later, and longer each time, so that it comes to an end.
        thread::sleep(Duration::from_millis(3 + (life * life * 37) % 90 + 8 * life));
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            if life == 0 || output.status.success() {
                assert!(output.status.success(), "{errors}");
                break;
            }
            // Killed before there was anything to go on with.
            assert!(errors.contains("no run to resume"), "{errors}");
            let mut again = bench.command(&[&long[..], &["killed"]].concat()).stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_millis(100));
            killed += u64::from(again.try_wait().unwrap().is_none());
            again.kill().unwrap();
            again.wait().unwrap();
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
    }
    assert!(killed >= 3, "{killed}");
    assert_eq!(left(&bench.path("whole")), left(&bench.path("killed")));
}

/// With secret noise what was recorded stays and goes on; nothing is released twice, nothing is left lying about, and at the
/// end there is nothing to draw from (rules P20 and P21).
#[test]
fn p21_killed_with_secret_noise_it_goes_on_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let long = ["run.toml", "--set", "rounds=40", "--set", "noise_seed=", "--quiet", "--out", "killed"];
    let (mut killed, mut seen) = (0, Vec::new());
    for life in 0u64.. {
        let begun = bench.path("killed/config.toml").exists();
        let mut command = if begun { bench.command(&["--resume", "killed", "--quiet"]) } else { bench.command(&long) };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_millis(5 + (life * life * 37) % 90 + 8 * life));
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        if let Ok(ledger) = fs::read_to_string(bench.path("killed/ledger.jsonl")) {
            // What was recorded once is there for good.
            let lines: Vec<String> =
                ledger.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(str::to_owned).collect();
            assert!(lines.len() >= seen.len().saturating_sub(1), "an entry is gone");
            let both = seen.len().saturating_sub(1).min(lines.len());
            assert_eq!(seen[..both], lines[..both]);
            seen = lines;
        }
        if ended {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            break;
        }
        killed += 1;
    }
    assert!(killed >= 3, "{killed}");
    assert_eq!(left(&bench.path("killed")).2.len(), 40);
    let secrets: Vec<_> = fs::read_dir(bench.path("killed/secret")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(secrets, ["ledger.jsonl.signing-key"]);
}

/// Ended for good by hand: model and statement are there, the ledger is closed, and nobody can go on.
#[test]
fn p20_a_run_can_be_ended_by_hand() {
    let bench = Bench::new();
    let mut child = bench
        .command(&["run.toml", "--set", "noise_seed=", "--out", "a", "--quiet"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !bench.path("a/checkpoints/round-00000006.safetensors").exists() {
        thread::sleep(Duration::from_millis(2));
        assert!(child.try_wait().unwrap().is_none());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = bench.ok(&["--end", "a", "--quiet"]);
    assert!(said.contains("it was ended by hand"), "{said}");
    assert!(bench.path("a/model/model.safetensors").is_file());
    let ledger = fs::read_to_string(bench.path("a/ledger.jsonl")).unwrap();
    assert!(ledger.lines().last().unwrap().contains("\"because\":\"by_hand\""), "{ledger}");
    let again = bench.ok(&["--resume", "a", "--quiet"]);
    assert_eq!(said, again, "it is over, and says so again");
    assert_eq!(ledger, fs::read_to_string(bench.path("a/ledger.jsonl")).unwrap());
}

/// Another store is refused, unless somebody says why it had to change, and then the ledger says it too (rule P21).
#[test]
fn p21_a_run_goes_on_with_its_store_or_says_why_not() {
    let toy = Toy::new();
    toy.make_store();
    let begin = |settings: &str, out: &str| {
        let mut child = toy
            .command(&["train", settings, "--set", "rounds=60", "--set", "checkpoint.every=2", "--out", out, "--quiet"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !toy.path(out).join("checkpoints/round-00000004.safetensors").exists() {
            thread::sleep(Duration::from_millis(2));
            assert!(child.try_wait().unwrap().is_none());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    };
    begin("store.toml", "a");
    let counted = toy
        .read("store.toml")
        .replace("kind = \"poisson\"", "kind = \"arrival\"\nmin_separation = 2\nmax_participations = 100");
    toy.write("counted.toml", &counted);
    begin("counted.toml", "b");
    let posts = toy.read("crowd.jsonl");
    let last: Value = serde_json::from_str(posts.lines().last().unwrap()).unwrap();
    // The same people, one of whom typed one word more.
    let mut more = last.clone();
    more["text"] = format!("{} the", last["text"].as_str().unwrap()).into();
    let all_but_last: Vec<&str> = posts.lines().take(posts.lines().count() - 1).collect();
    toy.write("more.jsonl", &format!("{}\n{more}\n", all_but_last.join("\n")));
    fs::remove_file(toy.path("crowd.khs")).unwrap();
    toy.ok(&["data", "import", "more.jsonl", "--vocab-size", "120", "--out", "crowd.khs", "-q"]);
    for run in ["a", "b"] {
        let refused = toy.refused(&["train", "--resume", run, "--quiet"]);
        assert!(refused.contains("the store has changed since the run began"), "{refused}");
    }
    // One person less.
    let fewer: Vec<&str> =
        posts.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()["user"] != last["user"]).collect();
    assert!(fewer.len() < posts.lines().count());
    toy.write("fewer.jsonl", &(fewer.join("\n") + "\n"));
    fs::remove_file(toy.path("crowd.khs")).unwrap();
    toy.ok(&["data", "import", "fewer.jsonl", "--vocab-size", "120", "--out", "crowd.khs", "-q"]);
    let refused = toy.refused(&["train", "--resume", "a", "--quiet"]);
    assert!(
        refused.contains("the store has changed since the run began") && refused.contains("--data-changed"),
        "{refused}"
    );
    let counted = toy.refused(&["train", "--resume", "b", "--data-changed", "somebody asked to be erased", "--quiet"]);
    assert!(counted.contains("limits of this plan cannot be enforced"), "{counted}");
    let empty = toy.failed(&["train", "--resume", "a", "--data-changed", " ", "--quiet"]);
    assert!(empty.contains("must be described in words"), "{empty}");
    toy.ok(&["train", "--resume", "a", "--data-changed", "somebody asked to be erased", "--quiet"]);
    let ledger = toy.read("a/ledger.jsonl");
    assert_eq!(ledger.matches("somebody asked to be erased").count(), 1, "recorded once");
}

/// A path that is not text once left an empty `config.toml` and a run that could not be resumed.
#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_text_is_refused_before_any_work() {
    use std::os::unix::ffi::OsStrExt;
    let toy = Toy::new();
    toy.make_store();
    let odd = toy.path("x").with_file_name(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).unwrap();
    for name in ["store.toml", "crowd.khs"] {
        fs::copy(toy.path(name), odd.join(name)).unwrap();
    }
    let mut command = toy.command(&["train", "store.toml", "--out", "run", "--quiet"]);
    let output = command.current_dir(&odd).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("data.path") && errors.contains("not text"), "{errors}");
    assert!(!odd.join("run").exists());
}

/// So many ranks of the program.
#[cfg(feature = "mpi")]
fn mpirun(bench: &Bench, ranks: &str) -> Command {
    let mut command = Command::new("mpirun");
    command.current_dir(bench.folder.path()).args(["--oversubscribe", "--bind-to", "none", "-n", ranks]);
    // Containers run tests as root, which Open MPI refuses unless told.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.arg(env!("CARGO_BIN_EXE_keyhush"));
    command
}

/// Ranks with a card each, or with one for all of them, come to what one process with a card comes to, to the bit. A rank has a chunk of its
/// part of the cohort, smaller than that of one process alone; that a user's update is the same in both rests on cuBLAS, which computes the
/// products of one user alike in batches of any number of users, for this model at least. Where there is no card, it says so.
#[cfg(feature = "mpi")]
#[test]
#[allow(clippy::print_stdout, reason = "what is skipped is said")]
fn ranks_with_cards_come_to_the_same_as_one_process_with_one() {
    let bench = Bench::new();
    for precision in ["f32", "f16"] {
        let card = ["--quiet", "--engine", "cuda", "--precision", precision];
        let alone = bench.run(&[&["run.toml", "--out", precision], &card[..]].concat());
        let errors = String::from_utf8_lossy(&alone.stderr).into_owned();
        let required = std::env::var_os("KEYHUSH_CARD").is_some_and(|card| card == "required");
        if errors.contains("cannot be used here") && !required {
            println!("skipped: {}", errors.trim());
            return;
        }
        assert!(alone.status.success(), "{errors}");
        for ranks in ["2", "3"] {
            let out = format!("{precision}-{ranks}");
            let output = mpirun(&bench, ranks).args(["train", "run.toml", "--out", &out]).args(card).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(left(&bench.path(precision)), left(&bench.path(&out)), "{out}");
        }
    }
}

/// `mpirun -n R keyhush train` with the real `mpirun`: the same for any number of ranks and threads.
#[cfg(feature = "mpi")]
#[test]
fn ranks_of_mpirun_come_to_the_same_as_one_process() {
    let bench = Bench::new();
    let tags = [
        "model.learner=tags",
        "model.preset=",
        "local.unroll=",
        "local.learning_rate=5.0",
        "rounds=6",
        "privacy.restarts=",
    ];
    let tags: Vec<&str> = tags.iter().flat_map(|set| ["--set", set]).collect();
    let fewer = ["--set", "rounds=20"];
    for (name, set) in [("words", &fewer[..]), ("tags", &tags)] {
        bench.ok(&[&["run.toml", "--out", name, "--quiet", "--threads", "2"], set].concat());
    }
    let words = [("2", "2"), ("3", "1")].map(|of| ("words", &fewer[..], of));
    for (name, set, (ranks, threads)) in words.into_iter().chain([("tags", &tags[..], ("2", "1"))]) {
        let out = format!("{name}-{ranks}-{threads}");
        let mut command = mpirun(&bench, ranks);
        command.args(["train", "run.toml", "--quiet", "--out", &out, "--threads", threads]);
        let output = command.args(set).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.matches("Report:").count(), 1, "only the first rank speaks: {said}");
        assert_eq!(left(&bench.path(name)), left(&bench.path(&out)), "{out}");
    }
    // Settings that one rank refuses are refused by all, once, and nothing hangs.
    for (set, says) in [
        ("clip.norm=", "clip.norm: is missing"),
        ("aggregation=secagg", "aggregation: several processes"),
        ("upload={ kind = \"sparse\", share = 0.1 }", "upload.kind: several processes"),
    ] {
        let output =
            mpirun(&bench, "2").args(["train", "run.toml", "--out", "refused", "--set", set]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(says), "{errors}");
        assert!(!bench.path("refused").exists(), "a run was begun with {set}");
    }
}

/// Nobody's update is seen, some devices vanish, and the model, the metrics and the ledger's events are the same.
#[test]
fn secure_aggregation_comes_to_the_same_as_the_plain_sum() {
    let bench = Bench::new();
    let rest = [
        "run.toml",
        "--quiet",
        "--set",
        "participation.vanish=0.01",
        "--set",
        "rounds=6",
        "--set",
        "privacy.restarts=",
    ];
    bench.ok(&[&rest[..], &["--out", "plain"]].concat());
    let secure =
        [&rest[..], &["--secagg", "--set", "secagg.dropout=0.2", "--set", "secagg.adversary=semi-malicious"]].concat();
    let said = bench.ok(&[&secure[..], &["--out", "secure"]].concat());
    assert!(said.contains("differential privacy"), "{said}");
    assert_eq!(left(&bench.path("plain")), left(&bench.path("secure")));
    let ledger = fs::read_to_string(bench.path("secure/ledger.jsonl")).unwrap();
    assert!(ledger.lines().next().unwrap().contains("semi-malicious server"), "{ledger}");
    let refused = bench.refused(&["run.toml", "--secagg", "--set", "participation.vanish=0.2"]);
    assert!(refused.contains("participation.vanish") && refused.contains("secagg.dropout"), "{refused}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_sigterm_end_after_the_round_and_say_how_to_go_on() {
    let bench = Bench::new();
    let fewer = ["run.toml", "--set", "rounds=24", "--out"];
    bench.ok(&[&fewer[..], &["whole", "--quiet"]].concat());
    for (signal, folder) in [("-INT", "stopped"), ("-TERM", "ended")] {
        let mut command = bench.command(&[&fewer[..], &[folder]].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while !bench.path(folder).join("timing.jsonl").exists() {
            thread::sleep(Duration::from_millis(2));
            assert!(child.try_wait().unwrap().is_none());
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{signal}: {errors}");
        assert!(errors.contains(&format!("resume with: keyhush train --resume {folder}")), "{errors}");
        assert!(bench.path(folder).join("report.html").is_file());
        let round = errors.split("interrupted after round ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
        let again = bench.run(&["--resume", folder]);
        let errors = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.success() && errors.contains(&format!("resumed after round {round} of 24\n")), "{errors}");
        assert_eq!(left(&bench.path("whole")), left(&bench.path(folder)));
    }
}

/// The path that everybody takes first: settings of `keyhush init`, and then a store. Rounds of 500 had nobody in them.
#[test]
fn p11_settings_for_a_million_beside_a_small_store_are_refused_and_explained() {
    let toy = Toy::new();
    toy.make_store();
    let flags = ["--set", "data.kind=store", "--set", "data.path=crowd.khs"];
    toy.ok(&["init", "--out", "first.toml"]);
    for command in ["plan", "train"] {
        let said = toy.refused(&[&[command, "first.toml"], &flags[..]].concat());
        assert!(said.contains("participation.population: 1,000,000 users are declared, but only 2"), "{said}");
        assert!(said.contains("a round of 500 would have 0.1 of them on average"), "{said}");
    }
    assert!(!toy.path("runs").exists(), "nothing of it is there");
    // With secret noise the counts are on the terminal, and in no file.
    let more = ["--set", "participation.allow_absent=true", "--set", "rounds=1", "--out", "meant"];
    let output = toy.command(&[&["train", "first.toml"], &flags[..], &more].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let line = said.split("warning: ").find(|line| line.contains(" of the 1,000,000 declared users")).unwrap();
    let count = line.split(' ').next().unwrap();
    assert!(said.contains("a round of 500 has 0.1") && count.parse::<u64>().is_ok(), "{said}");
    for file in ["report.html", "statement.md", "statement.json", "metrics.jsonl", "model/README.md"] {
        assert!(!toy.read(&format!("meant/{file}")).contains(&format!(">{count}<")), "{file}");
        assert!(!toy.read(&format!("meant/{file}")).contains("on average,"), "{file}");
        let here = toy.path("").canonicalize().unwrap().display().to_string();
        assert!(!toy.read(&format!("meant/{file}")).contains(&here), "{file} says where the store is on this machine");
    }
}

/// The noise that settings put on a model was known to proposals alone.
#[test]
fn noise_that_no_model_bears_is_said_before_the_first_round_and_in_the_report() {
    let toy = Toy::new();
    let output = toy.command(&["train", "run.toml", "--set", "rounds=1", "--out", "a"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("warning: the noise is "), "{said}");
    assert!(said.contains("times what a model of") && said.contains("stands_for"), "{said}");
    assert!(toy.read("a/report.html").contains("times what a model of"));
    let plan = toy.ok(&["plan", "run.toml", "-q"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains("warning: the noise is ") && plan.contains("times what a model of"), "{plan}");
    let json: Value = serde_json::from_str(&toy.ok(&["plan", "run.toml", "-q", "--json"])).unwrap();
    assert!(json["noise"]["times_bearable"].as_f64().unwrap() > 3.0, "{json}");
}

/// Of two runs that were started in one second the second was refused.
#[test]
fn runs_that_start_together_get_folders_of_their_own() {
    let bench = Bench::new();
    let start =
        || bench.command(&["run.toml", "--set", "rounds=20", "--quiet"]).stderr(Stdio::piped()).spawn().unwrap();
    for child in [start(), start(), start()] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read_dir(bench.path("runs")).unwrap().count(), 3);
}

#[test]
fn without_arguments_it_trains_on_the_crowd_that_comes_with_it() {
    let bench = Bench::new();
    let said = bench.ok(&["--set", "rounds=2", "--set", "evaluation.every=1", "--quiet"]);
    assert!(said.starts_with("In simulation, the model predicts"), "{said}");
    assert!(said.contains("of 1,000,000 synthetic users") && said.contains("Report: runs/"), "{said}");
    let folder = fs::read_dir(bench.path("runs")).unwrap().next().unwrap().unwrap().path();
    let report = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("simulation"));
    let lines = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let rounds: Vec<u64> =
        lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["round"].as_u64().unwrap()).collect();
    assert_eq!(rounds, [0, 1, 2]);
    for name in ["config.toml", "statement.md", "timing.jsonl", "diagnostics.jsonl", "model/README.md"] {
        assert!(folder.join(name).is_file(), "{name}");
    }
}

#[test]
fn json_has_every_number() {
    let bench = Bench::new();
    let said =
        bench.ok(&["run.toml", "--out", "a", "--set", "rounds=4", "--set", "privacy.restarts=", "--json", "--quiet"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["rounds"], 4);
    assert_eq!(answer["metrics"]["round"], 4);
    assert!(answer["metrics"]["epsilon_if_secret"].as_f64().unwrap() > 0.0 && answer["simulated"] == true);
}

#[test]
fn bad_settings_are_refused_before_any_work_with_line_and_reason() {
    let bench = Bench::new();
    let with = |from: &str, to: &str| {
        assert!(settings().contains(from), "{from}");
        fs::write(bench.path("bad.toml"), settings().replace(from, to)).unwrap();
        let said = bench.refused(&["bad.toml", "--out", "bad"]);
        assert!(!bench.path("bad").exists(), "{said}");
        said
    };
    let line = |key: &str| settings().lines().position(|l| l.starts_with(key)).unwrap() + 1;
    let unknown = with("quantile = 0.5", "quantil = 0.5");
    let want = "clip.quantil: there is no such key (did you mean quantile?)";
    assert!(unknown.contains(&format!("line {}: {want}", line("quantile"))), "{unknown}");
    let clip = with("norm = 0.1\n", "");
    assert!(clip.contains(&format!("line {}: clip.norm: is missing", line("[clip]"))), "{clip}");
    let between = "min_separation = 4\nmax_participations = 3\n";
    let tree = with(
        &format!("kind = \"arrival\"\npopulation = 2000\ncohort = 24\n{between}"),
        "kind = \"poisson\"\npopulation = 2000\ncohort = 24\n",
    );
    assert!(tree.contains(&format!("line {}: privacy.mechanism", line("mechanism") - 2)), "{tree}");
    let rounds = with("rounds = 40", "rounds = 300");
    let want = format!("line {}: participation.max_participations", line("max_participations"));
    assert!(rounds.contains(&want) && rounds.contains("300 rounds"), "{rounds}");
    let syntax = with("[clip]", "[clip");
    assert!(syntax.contains(&format!("line {}", line("[clip]"))), "{syntax}");
    let set = bench.refused(&["run.toml", "--set", "clip.nrom=3"]);
    assert!(set.contains("error: clip.nrom: there is no such key (did you mean norm?)"), "{set}");
    let missing = bench.refused(&["nowhere.toml"]);
    assert!(missing.contains("nowhere.toml"), "{missing}");
    let resumed = bench.refused(&["--resume", "nowhere"]);
    assert!(resumed.contains("no run to resume in nowhere"), "{resumed}");
    bench.ok(&["run.toml", "--out", "taken", "--set", "rounds=4", "--set", "privacy.restarts=", "--quiet"]);
    let taken = bench.refused(&["run.toml", "--out", "taken"]);
    assert!(taken.contains("--resume taken"), "{taken}");
}

/// `--quiet` hid the warnings with the progress.
#[test]
fn quiet_is_about_progress_and_not_about_warnings() {
    let toy = Toy::new();
    let said = |more: &[&str]| {
        let output = toy.command(&[&["train", "run.toml", "--set", "rounds=1"], more].concat()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let (loud, quiet) = (said(&["--out", "loud"]), said(&["--out", "quiet", "--quiet"]));
    let warnings = |text: &str| text.lines().filter(|line| line.starts_with("warning: ")).map(str::to_owned).collect();
    let told: Vec<String> = warnings(&loud);
    assert!(!told.is_empty() && quiet.lines().eq(told.iter().map(String::as_str)), "{loud}\n---\n{quiet}");
    assert!(loud.contains("output in loud"), "{loud}");
}

/// A file of general text that was named from the folder of its run could not be found from another one.
#[test]
fn a_run_with_general_text_of_a_file_can_be_resumed_from_anywhere() {
    let toy = Toy::new();
    let finetune = "\n[finetune]\nkind = \"rehearsal\"\nlambda = 0.5\npublic_text = \"general.txt\"\n";
    toy.write("tuned.toml", &(toy::settings(&["rounds=1"]) + finetune));
    toy.write("general.txt", &"see you at home\nthe train is late\n".repeat(40));
    toy.ok(&["train", "tuned.toml", "--out", "run", "--quiet"]);
    let whole = toy.path("general.txt").canonicalize().unwrap().display().to_string();
    assert!(toy.read("run/config.toml").contains(&whole), "{}", toy.read("run/config.toml"));
    toy.write("elsewhere/x", "");
    let run = toy.path("run").display().to_string();
    let mut command = toy.command(&["train", "--resume", &run]);
    let output = command.current_dir(toy.path("elsewhere")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("public_text"), "it is over, and its text was found: {said}");
    for file in ["statement.md", "report.html", "model/README.md", "model/config.json"] {
        assert!(!toy.read(&format!("run/{file}")).contains(&whole), "{file} says where the text is on this machine");
    }
}

/// Where a model lies that a run starts from is nobody else's business; its name says which one it was.
#[test]
fn the_place_of_the_first_model_stays_out_of_what_is_published() {
    let toy = Toy::new();
    toy.ok(&["train", "run.toml", "--set", "rounds=1", "--out", "first", "--quiet"]);
    fs::create_dir_all(toy.path("ann-private")).unwrap();
    fs::rename(toy.path("first/model"), toy.path("ann-private/start")).unwrap();
    let from = toy.path("ann-private/start").display().to_string();
    let start = ["train", "run.toml", "--set", "rounds=1", "--out", "next", "--quiet", "--from", &from];
    let of_that_model = ["--set", "model.hidden=", "--set", "model.embedding="];
    toy.ok(&[&start[..], &of_that_model, &["--public", "its text is public"]].concat());
    assert!(toy.read("next/statement.md").contains("start"), "{}", toy.read("next/statement.md"));
    for file in
        ["statement.md", "statement.json", "ledger.jsonl", "report.html", "model/README.md", "model/config.json"]
    {
        if toy.path(&format!("next/{file}")).is_file() {
            assert!(!toy.read(&format!("next/{file}")).contains("ann-private"), "{file} says where the model lay");
        }
    }
}
