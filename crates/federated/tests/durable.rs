//! That a checkpoint is on the disk before anything relies on it, as the operating system sees it: the victim is this test
//! run again under strace.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{collections::HashMap, path::Path, process::Command};

use crate::workshop::{Idle, whole};

const FOLDER: &str = "KEYHUSH_TEST_VICTIM_RUN";

/// Not a test by itself: what is watched by the other.
#[test]
fn victim() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    whole(Path::new(&folder), &["checkpoint.every=1"], &mut Idle::default());
}

/// What a process did to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Did {
    Wrote(String),
    Synced(String),
    Renamed(String, String),
    Removed(String),
}

/// What the victim did to a run and to the folders above it, in order.
fn watched(root: &Path, folder: &Path) -> Vec<Did> {
    let trace = root.with_extension("trace");
    let calls = "--trace=write,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat";
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "4096", calls, "-o"]).arg(&trace).arg(std::env::current_exe().unwrap());
    strace.args(["--exact", "durable::victim"]).env(FOLDER, folder);
    let output = strace.output().expect("strace is installed: `cargo xtask test` sees to it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(trace).unwrap();
    let below = |path: &str| path.starts_with(root.to_str().unwrap());
    whole_calls(&text)
        .iter()
        .filter_map(|call| did(call))
        .filter(|did| match did {
            Did::Wrote(path) | Did::Synced(path) | Did::Renamed(path, _) | Did::Removed(path) => below(path),
        })
        .collect()
}

/// The calls in the order in which they ended. While one thread waits, strace writes down what another does: the call that
/// waits then stands in two lines, `7 fsync(4</tmp/a> <unfinished ...>` and `7 <... fsync resumed>) = 0`.
fn whole_calls(trace: &str) -> Vec<String> {
    let mut begun = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let (thread, said) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(first) = line.strip_suffix("<unfinished ...>") {
            begun.insert(thread, first);
        } else if let Some((_, rest)) = said.split_once(" resumed>") {
            calls.push(format!("{}{rest}", begun.remove(thread).unwrap_or_default()));
        } else {
            calls.push(line.to_owned());
        }
    }
    calls
}

#[test]
fn a_call_that_another_thread_interrupts_is_read_whole() {
    let trace = "7 fsync(4</a> <unfinished ...>\n8 write(5</b>, \"x\", 1) = 1\n7 <... fsync resumed>) = 0\n";
    let read: Vec<Did> = whole_calls(trace).iter().filter_map(|call| did(call)).collect();
    assert_eq!(read, [Did::Wrote("/b".to_owned()), Did::Synced("/a".to_owned())]);
}

/// One line of strace, such as `7 fsync(4</tmp/a>) = 0` or `7 rename("/tmp/a", "/tmp/b") = 0`.
fn did(line: &str) -> Option<Did> {
    let (_, call) = line.split_once(' ')?;
    let (name, rest) = call.trim_start().split_once('(')?;
    if !line.trim_end().rsplit_once("= ")?.1.starts_with(|c: char| c.is_ascii_digit()) {
        return None; // it failed
    }
    let descriptor = || Some(rest.split_once('<')?.1.split_once('>')?.0.to_owned());
    let mut quoted = rest.split('"').skip(1).step_by(2).map(str::to_owned);
    match name {
        "write" => descriptor().map(Did::Wrote),
        "fsync" | "fdatasync" => descriptor().map(Did::Synced),
        "rename" | "renameat" | "renameat2" => Some(Did::Renamed(quoted.next()?, quoted.next()?)),
        "unlink" | "unlinkat" => quoted.next().map(Did::Removed),
        _ => None,
    }
}

/// The entry whose vector was removed.
fn vector(did: &Did) -> Option<u64> {
    let Did::Removed(path) = did else { return None };
    path.split_once(".released/")?.1.strip_suffix(".bin")?.parse().ok()
}

#[test]
fn a_checkpoint_is_synced_before_it_has_its_name_and_before_vectors_go() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/run");
    let all = watched(folder.path(), &run);
    // Each folder is on the disk before there is anything in the next: the run does not go with the folder above it.
    let checkpoint = all.iter().position(|did| matches!(did, Did::Renamed(_, to) if to.ends_with(".safetensors")));
    let ledger = all.iter().position(|did| matches!(did, Did::Wrote(path) if path.ends_with("ledger.jsonl")));
    for (made, before) in
        [(folder.path().to_owned(), ledger), (folder.path().join("runs"), ledger), (run.clone(), checkpoint)]
    {
        let synced = Did::Synced(made.to_str().unwrap().to_owned());
        assert!(all[..before.unwrap()].contains(&synced), "{synced:?} does not come first");
    }
    let renames: Vec<(usize, &String, &String)> = all
        .iter()
        .enumerate()
        .filter_map(|(at, did)| match did {
            Did::Renamed(from, to) if to.ends_with(".safetensors") && to.contains("checkpoints") => {
                Some((at, from, to))
            }
            _ => None,
        })
        .collect();
    assert!(renames.len() > 6, "one before the first round and one after each of six");
    for (at, from, to) in renames {
        let written = all[..at].iter().rposition(|did| *did == Did::Wrote(from.clone())).unwrap();
        assert!(all[written..at].contains(&Did::Synced(from.clone())), "{to} has its name before it is on the disk");
        let parent = Path::new(to).parent().unwrap().to_str().unwrap().to_owned();
        // What it stands for goes only once its name is on the disk too.
        let synced = all[at..].iter().position(|did| *did == Did::Synced(parent.clone())).map(|after| at + after);
        let synced = synced.unwrap_or_else(|| panic!("the name of {to} is never on the disk"));
        let removed = |did: &Did| matches!(did, Did::Removed(path) if !path.contains(".released/"));
        assert!(!all[at..synced].iter().any(removed), "{to}");
        // The last state is written once more when the run ends; what the first writing made superfluous may be gone by then.
        if all[..at].iter().any(|did| matches!(did, Did::Renamed(_, before) if before == to)) {
            continue;
        }
        // Vectors go beside everything else: until then those alone that checkpoints before it have made superfluous, the newest two of
        // which and what came after the older one are kept.
        let round: u64 = to.rsplit_once("round-").unwrap().1.trim_end_matches(".safetensors").parse().unwrap();
        let early = all[..synced].iter().filter_map(vector).find(|entry| entry + 2 > round);
        assert_eq!(early, None, "{to} is not on the disk, and a vector that it stands for is gone");
    }
    // The thread that removes them may be as late as the end of the run.
    let gone = all.iter().filter_map(vector).count();
    assert!(gone > 0, "vectors go at some time, or nothing was tested");
}
