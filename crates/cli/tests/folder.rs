//! Model folders on disk: written over, damaged, and read by Python.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::{fs, process::Command};

use crate::model_story::Story;

const FILES: [&str; 4] = ["README.md", "config.json", "model.safetensors", "vocab.txt"];

fn names(story: &Story, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(story.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_is_written_over_and_what_else_is_in_it_stays() {
    let story = Story::new();
    story.out("ngram --text text.txt --out deep/model --order 2");
    assert_eq!(names(&story, "deep/model"), FILES, "nothing else is left behind");
    let before = story.out("eval --model deep/model --text text.txt");
    fs::create_dir(story.path("deep/model/checkpoints")).unwrap();
    story.write("deep/model/notes.txt", "mine");
    // what a write that was cut short leaves behind
    story.write("deep/model/.model.safetensors.new", "half");
    assert_eq!(story.out("eval --model deep/model --text text.txt"), before);
    story.out("ngram --text text.txt --out deep/model --order 3");
    assert_ne!(story.out("eval --model deep/model --text text.txt"), before);
    let mut want = [&FILES[..], &["checkpoints", "notes.txt"]].concat();
    want.sort_unstable();
    assert_eq!(names(&story, "deep/model"), want);
}

#[test]
fn every_file_is_needed_and_damage_is_named() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model --order 2");
    story.write("more.txt", "other words of another text\n");
    story.out("ngram --text more.txt --out other --order 2");
    let refused = || story.error("eval --model model --text text.txt");
    for (name, want) in [
        ("README.md", "README.md does not belong to this model"),
        ("config.json", "vocab.txt has 19 entries, but the model expects 8"),
        ("model.safetensors", "config.json does not belong to this model"),
        ("vocab.txt", "vocab.txt has 8 entries, but the model expects 19"),
    ] {
        let path = story.path("model").join(name);
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (code, message) = refused();
        assert!(code == 1 && message.contains(&format!("cannot read model/{name}")), "{name} missing: {message}");
        // Of the card, less than what it guarantees.
        fs::write(&path, &whole[..whole.len() / 3]).unwrap();
        let (code, message) = refused();
        assert!(code == 1 && message.contains(name), "{name} cut: {message}");
        fs::copy(story.path("other").join(name), &path).unwrap();
        let (code, message) = refused();
        assert!(code == 1 && message.contains(want), "{name} of another: {message}");
        fs::write(&path, &whole).unwrap();
        story.out("eval --model model --text text.txt");
    }
}

#[test]
fn an_error_is_said_once() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    story.write("model/vocab.txt", "the\n");
    let want = "error: cannot read the model model: vocab.txt: line 1 must be \"<bos>\", got \"the\"; \
                a vocabulary begins with <bos>, <eos> and <unk>\n";
    assert_eq!(story.error("predict --model model"), (1, want.to_owned()));
}

/// Python reads the parameters and writes them again, in its own order; the model is the same.
#[test]
#[ignore = "makes a Python environment and fetches packages"]
fn python_reads_and_writes_our_models() {
    const SCRIPT: &str = r#"
import hashlib, json, shutil, sys
from safetensors import safe_open
from safetensors.numpy import save_file
model, copy = sys.argv[1:]
config = json.load(open(f"{model}/config.json"))["model"]["recurrent"]
with safe_open(f"{model}/model.safetensors", framework="numpy") as file:
    metadata = file.metadata()
    tensors = {name: file.get_tensor(name) for name in file.keys()}
assert tensors["embedding"].shape == (config["vocabulary"], config["embedding"]), tensors["embedding"].shape
assert tensors["layers.0.forget_gate.kernel"].shape == (config["embedding"] + config["hidden"], config["hidden"])
assert all(str(tensor.dtype) == "float32" for tensor in tensors.values())
assert metadata["format"] == "keyhush-model-1" and metadata["guarantee"] == "none", metadata
assert metadata["vocabulary_sha256"] == hashlib.sha256(open(f"{model}/vocab.txt", "rb").read()).hexdigest()
assert metadata["guarantee_text"] in open(f"{model}/README.md").read()
shutil.copytree(model, copy)
save_file(tensors, f"{copy}/model.safetensors", metadata)
assert open(f"{copy}/model.safetensors", "rb").read() != open(f"{model}/model.safetensors", "rb").read()
"#;
    let story = Story::new();
    story.out("pretrain --data text.txt --model tiny --out model --epochs 1 --batch 2 --unroll 4");
    let environment = story.path("python");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "numpy==2.4.6", "safetensors==0.8.0"]));
    run(Command::new(&python).args(["-c", SCRIPT]).args([story.path("model"), story.path("copy")]));
    let measured = |model: &str| story.json(&format!("eval --model {model} --text text.txt"));
    assert_eq!(measured("copy"), measured("model"));
}
