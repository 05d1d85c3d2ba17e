//! An import that is killed leaves a whole store or none, and nothing in the way of the next one.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

fn keyhush(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("keyhush"));
    command.args(line.split_whitespace()).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

const IMPORT: &str = "data import posts.jsonl --out posts.store --quiet";

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_killed_import_leaves_no_half_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let crowd = "data synth --jsonl --users 3000 --posts-per-user 40 --words-per-post 20 --out posts.jsonl --quiet";
    assert!(keyhush(folder, crowd).status().unwrap().success());
    // How long it takes, so that the moments lie all over it; the store to compare with.
    let start = Instant::now();
    assert!(keyhush(folder, IMPORT).status().unwrap().success());
    let whole_time = start.elapsed();
    let whole = std::fs::read(folder.join("posts.store")).unwrap();
    std::fs::remove_file(folder.join("posts.store")).unwrap();
    let mut killed = 0;
    for part in 0..12 {
        let mut child = keyhush(folder, IMPORT).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1) + whole_time * part / 11);
        child.kill().unwrap(); // SIGKILL: nothing runs after it
        killed += u32::from(!child.wait().unwrap().success());
        if folder.join("posts.store").exists() {
            assert!(
                std::fs::read(folder.join("posts.store")).unwrap() == whole,
                "killed after {part}/11: another store"
            );
            std::fs::remove_file(folder.join("posts.store")).unwrap();
        }
    }
    assert!(killed >= 6, "only {killed} of 12 were killed before they ended");
    // What they left is hidden, and the next import removes it and works.
    let left = names(folder);
    assert!(left.iter().all(|name| name == "posts.jsonl" || name.starts_with(".keyhush-partial-")), "{left:?}");
    assert!(keyhush(folder, IMPORT).status().unwrap().success());
    assert!(std::fs::read(folder.join("posts.store")).unwrap() == whole);
    let left = names(folder);
    let empty = |name: &&String| std::fs::metadata(folder.join(name)).unwrap().len() == 0;
    let full: Vec<&String> = left.iter().filter(|name| !empty(name)).collect();
    assert_eq!(full, ["posts.jsonl", "posts.store"]);
}

/// A store of the same name stays as it was until the new one is whole.
#[test]
fn a_killed_replacement_leaves_the_old_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(keyhush(folder, "data synth --users 5 --out posts.store --quiet").status().unwrap().success());
    let old = std::fs::read(folder.join("posts.store")).unwrap();
    let crowd = "data synth --users 200000 --seed 3 --out posts.store --replace --quiet";
    let mut child = keyhush(folder, crowd).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(std::fs::read(folder.join("posts.store")).unwrap() == old);
}
