//! `keyhush pretrain` as a process: killed, interrupted, resumed; what it writes and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Every file of a model.
const FILES: [&str; 4] = ["model.safetensors", "config.json", "vocab.txt", "README.md"];
/// A model with dropout in two layers, so that masks and the states of all layers must be as they were.
const MODEL: [&str; 8] = ["--model", "zaremba650", "--hidden", "24", "--embedding", "20", "--dropout", "0.3"];
/// A model with one embedding of unit norm for input and output.
const TIED: [&str; 6] = ["--model", "mcmahan2018", "--hidden", "24", "--embedding", "20"];

/// Text in a folder of its own.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// So many lines in which one word makes the next likely.
    fn new(lines: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut number = 1_u64;
        let mut draw = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        let mut text = String::new();
        for _ in 0..lines {
            let mut word = draw(300);
            for _ in 0..4 + draw(12) {
                text.push_str(&format!("w{word}x "));
                word = if draw(4) == 0 { draw(300) } else { (word * 7 + 3) % 300 };
            }
            text.push('\n');
        }
        let (valid, train) = text.split_at(text.len() / 10);
        fs::write(folder.path().join("train.txt"), train).unwrap();
        fs::write(folder.path().join("valid.txt"), valid).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
        command.current_dir(self.folder.path());
        command.args(["pretrain", "--data", "train.txt", "--valid", "valid.txt", "--out", out]).args(more);
        command
    }

    fn run(&self, out: &str, more: &[&str]) -> Output {
        self.command(out, more).output().unwrap()
    }

    /// Runs what must succeed; its epochs.
    fn epochs(&self, out: &str, more: &[&str]) -> Vec<Value> {
        let output = self.run(out, &[more, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn model(&self, out: &str) -> Vec<Vec<u8>> {
        FILES.iter().map(|name| fs::read(self.path(out).join(name)).unwrap()).collect()
    }

    /// How many epochs and batches the last checkpoint has behind it.
    fn progress(&self, out: &str) -> (u64, u64) {
        let Ok(bytes) = fs::read(self.path(out).join("checkpoint.safetensors")) else { return (0, 0) };
        let training: Value =
            serde_json::from_str(header(&bytes).0["__metadata__"]["progress"].as_str().unwrap()).unwrap();
        (training["epochs"].as_array().unwrap().len() as u64, training["part"]["batches"].as_u64().unwrap())
    }
}

/// Waits until something holds, for a minute at most.
fn wait_until(holds: impl Fn() -> bool) {
    let clock = Instant::now();
    while !holds() {
        assert!(clock.elapsed() < Duration::from_secs(60), "nothing happened");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Perplexities, without how long it took.
fn perplexities(epochs: &[Value]) -> Vec<(f64, f64)> {
    let number = |epoch: &Value, field: &str| epoch[field].as_f64().unwrap();
    epochs.iter().map(|e| (number(e, "train_perplexity"), number(e, "valid_perplexity"))).collect()
}

fn silent(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[cfg(unix)]
#[test]
fn a_killed_run_goes_on_to_the_same_model() {
    kill_and_resume(&MODEL);
}

#[cfg(unix)]
#[test]
fn a_killed_run_of_a_tied_model_goes_on_to_the_same_model() {
    kill_and_resume(&TIED);
}

#[cfg(unix)]
fn kill_and_resume(model: &[&str]) {
    use std::os::unix::process::ExitStatusExt;
    let bench = Bench::new(400);
    let schedule = ["--decay-after", "2", "--unroll", "10"];
    let flags = [model, &schedule[..], &["--epochs", "4"]].concat();
    let straight = bench.epochs("straight", &flags);
    assert_eq!(straight.len(), 4);

    // A checkpoint after every batch, and `kill -9` in three epochs, wherever the process then is.
    let mut often = [&flags[..], &["--checkpoint-minutes", "0"]].concat();
    for epoch in 0..3 {
        let mut child = silent(bench.command("killed", &often));
        wait_until(|| bench.progress("killed") >= (epoch, 5 + epoch));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it was still training");
        if epoch == 0 {
            often.push("--resume");
        }
    }
    let (epochs, batches) = bench.progress("killed");
    assert!(epochs < 4 && (epochs, batches) > (2, 0));
    let rest = bench.epochs("killed", &[&flags[..], &["--resume"]].concat());
    assert_eq!(bench.model("killed"), bench.model("straight"));
    let left = straight.len() - rest.len();
    assert_eq!(perplexities(&rest), perplexities(&straight[left..]), "sums inside an epoch go on too");
    let mut left: Vec<String> = fs::read_dir(bench.path("killed"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !FILES.contains(&name.as_str()))
        .collect();
    left.sort();
    assert_eq!(left, ["checkpoint.safetensors"], "nothing else is left over");

    // Epochs can be added to a run that is done.
    let more = bench.epochs("straight", &[model, &schedule[..], &["--epochs", "6", "--resume"]].concat());
    assert_eq!(more.iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 6]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_after_the_batch_and_says_how_to_go_on() {
    let bench = Bench::new(4000);
    let flags = [&MODEL[..], &["--epochs", "5"]].concat();
    bench.epochs("straight", &flags);
    let mut child = bench.command("stopped", &flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("epoch   1"));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--resume"), "{output:?}");
    let (epochs, batches) = bench.progress("stopped");
    assert!(epochs < 5 && batches > 0, "stopped inside an epoch: {epochs} epochs and {batches} batches");
    bench.epochs("stopped", &[&flags[..], &["--resume"]].concat());
    assert_eq!(bench.model("stopped"), bench.model("straight"));
}

#[test]
fn a_model_that_was_only_begun_can_be_trained() {
    let bench = Bench::new(300);
    let flags = |epochs| [&MODEL[..], &["--epochs", epochs]].concat();
    assert!(bench.epochs("begun", &flags("0")).is_empty());
    let begun = bench.model("begun");
    bench.epochs("begun", &[&flags("2")[..], &["--resume"]].concat());
    bench.epochs("straight", &flags("2"));
    assert_ne!(begun[0], bench.model("straight")[0]);
    assert_eq!(bench.model("begun"), bench.model("straight"));
}

/// What every preset's parts need: it learns, and the same command gives the same bits.
#[test]
fn models_of_every_kind_learn() {
    let bench = Bench::new(1500);
    let kinds: [&[&str]; 7] = [
        &["--model", "tiny"],
        &["--model", "mcmahan2018", "--hidden", "32", "--embedding", "16"],
        &["--model", "mcmahan2018-gru", "--hidden", "32", "--embedding", "16"],
        &["--model", "gboard-tied", "--hidden", "32", "--embedding", "16"],
        &["--model", "so-nwp", "--hidden", "32", "--embedding", "16", "--dropout", "0.1"],
        &["--model", "ptb1500", "--hidden", "32", "--embedding", "32", "--dropout", "0.2"],
        &["--model", "mcmahan2018-char", "--hidden", "32", "--embedding", "16"],
    ];
    for (n, kind) in kinds.into_iter().enumerate() {
        let flags = [kind, &["--epochs", "3", "--unroll", "10", "--decay-after", "2"]].concat();
        let epochs = bench.epochs(&format!("model-{n}"), &flags);
        let valid: Vec<f64> = perplexities(&epochs).iter().map(|p| p.1).collect();
        assert!(valid[2] < 0.99 * valid[0], "{kind:?}: {valid:?}");
        assert_eq!(epochs[2]["learning_rate"], 0.5);
        bench.epochs(&format!("again-{n}"), &flags);
        assert_eq!(bench.model(&format!("model-{n}")), bench.model(&format!("again-{n}")), "{kind:?}");
    }
    let norms: Vec<f32> =
        embedding(&bench.path("model-1")).iter().map(|row| row.iter().map(|v| v * v).sum::<f32>()).collect();
    assert!(norms.len() > 100 && norms.iter().all(|norm| (norm - 1.0).abs() < 1e-4), "unit norm is kept");
    let card = fs::read_to_string(bench.path("model-0/README.md")).unwrap();
    assert!(card.contains("public text"), "{card}");
}

/// Safetensors: a length, a header in JSON, the values.
fn header(bytes: &[u8]) -> (Value, &[u8]) {
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, values) = rest.split_at(u64::from_le_bytes(*length) as usize);
    (serde_json::from_slice(header).unwrap(), values)
}

/// The rows of the embedding in a model folder.
fn embedding(folder: &Path) -> Vec<Vec<f32>> {
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let (header, values) = header(&bytes);
    let number = |field: &str, n: usize| header["embedding"][field][n].as_u64().unwrap() as usize;
    let values = &values[number("data_offsets", 0)..number("data_offsets", 1)];
    let floats: Vec<f32> = values.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect();
    floats.chunks(number("shape", 1)).map(<[f32]>::to_vec).collect()
}

#[test]
fn the_kernels_are_those_that_are_named() {
    let bench = Bench::new(200);
    let run = |out: &str, kernels: &str| {
        let output = bench.command(out, &["--epochs", "1"]).env("KEYHUSH_KERNELS", kernels).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run("scalar", "scalar");
    assert_eq!(code, Some(0));
    assert!(said.contains("scalar kernels"), "{said}");
    let (code, said) = run("sse9", "sse9");
    assert_eq!(code, Some(2));
    assert!(said.contains("KEYHUSH_KERNELS=sse9") && said.contains("scalar"), "{said}");
    assert!(!bench.path("sse9").exists());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let bench = Bench::new(100);
    fs::write(bench.path("empty.txt"), "").unwrap();
    fs::write(bench.path("latin1.txt"), b"caf\xe9\n").unwrap();
    fs::write(bench.path("words.txt"), "the\nof\n").unwrap();
    bench.epochs("done", &["--epochs", "1"]);
    let refusals: [(&[&str], &str); 15] = [
        (&["--out", "done"], "done holds a run already; resume it with --resume, or choose another folder"),
        (&["--out", "done", "--resume", "--seed", "2"], "the run was begun with --seed 1, not 2"),
        (&["--out", "done", "--resume", "--hidden", "9"], "trains a different model"),
        (&["--out", "done", "--resume", "--vocabulary-size", "50"], "trains a different model"),
        (&["--out", "done", "--resume", "--epochs", "0"], "the run already has 1 epochs"),
        (&["--out", "new", "--resume"], "no run to resume"),
        (&["--out", "new", "--batch", "0"], "--batch: must be from 1 to"),
        (&["--out", "new", "--learning-rate", "0"], "--learning-rate: must be finite and above 0, got 0"),
        (&["--out", "new", "--dropout", "1"], "dropout must be at least 0 and below 1"),
        (
            &["--out", "new", "--model", "ptb1500", "--hidden", "8"],
            "tied embeddings need an output of the same size as the embedding",
        ),
        (&["--out", "new", "--vocab", "words.txt"], "--vocab: words.txt: line 1"),
        (&["--out", "new", "--batch", "60000"], "a batch has 60000 sequences"),
        (&["--out", "new", "--engine", "abacus"], "--engine: no engine is called \"abacus\"; choose one of: threads"),
        (&["--out", "new", "--engine", "cuda", "--precision", "f8"], "--precision: no precision is called \"f8\""),
        (
            &["--out", "new", "--engine", "threads", "--precision", "f16"],
            "--precision: can only be f16 with --engine cuda",
        ),
    ];
    for (flags, problem) in refusals {
        let out = flags[1];
        let output = bench.run(out, &flags[2..]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(problem), "{flags:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    for (file, problem) in [("empty.txt", "the file is empty"), ("latin1.txt", "not UTF-8"), ("none.txt", "none.txt: ")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
        let output = command
            .current_dir(bench.folder.path())
            .args(["pretrain", "--data", file, "--out", "new"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{file}: {said}");
        assert!(said.contains("--data: ") && said.contains(problem), "{file}: {said}");
    }
    assert!(!bench.path("new").exists());
}

/// Where there is no card, that is said before anything is written; where there is one, it trains.
#[test]
fn a_card_trains_or_nothing_begins() {
    let bench = Bench::new(100);
    let output = bench.run("on-a-card", &["--epochs", "1", "--engine", "cuda"]);
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        assert!(said.contains("cuda f32"), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the engine cuda cannot be used here") && said.contains("--engine threads"), "{said}");
    assert!(!bench.path("on-a-card").exists());
}

#[test]
fn another_text_or_a_damaged_checkpoint_is_noticed() {
    let bench = Bench::new(100);
    let vocabulary = ["--vocab", "done/vocab.txt"];
    bench.epochs("done", &["--epochs", "1"]);
    bench.epochs("run", &[&vocabulary[..], &["--epochs", "1"]].concat());
    let resume = [&vocabulary[..], &["--epochs", "2", "--resume"]].concat();
    let text = fs::read_to_string(bench.path("train.txt")).unwrap();
    fs::write(bench.path("train.txt"), text.lines().rev().collect::<Vec<_>>().join("\n")).unwrap();
    let said = String::from_utf8(bench.run("run", &resume).stderr).unwrap();
    assert!(said.contains("trains on a different text"), "{said}");
    fs::write(bench.path("train.txt"), text).unwrap();

    let file = bench.path("run/checkpoint.safetensors");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 100]).unwrap();
    let output = bench.run("run", &resume);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("checkpoint.safetensors is damaged"), "{said}");

    fs::remove_file(&file).unwrap();
    fs::write(bench.path("run/training.json"), "{}").unwrap();
    let output = bench.run("run", &resume);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("a run of an older keyhush"), "{said}");
}

#[test]
fn a_loss_that_explodes_is_not_written() {
    let bench = Bench::new(300);
    let output = bench.run("high", &["--learning-rate", "50", "--epochs", "1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("worse than guessing") && said.contains("--learning-rate"), "{said}");
    // Gradients that are clipped keep even that within what can be written; without it there is nothing to write.
    assert_eq!(bench.run("tamed", &["--learning-rate", "1e6", "--epochs", "3"]).status.code(), Some(0));
    let output = bench.run("wild", &["--learning-rate", "1e6", "--epochs", "3", "--clip-gradients", "0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("smaller --learning-rate"), "{said}");
    assert!(!bench.path("wild/model.safetensors").exists());
}
