//! Every input that is kept for the fuzzer goes through its target here, so that what was once found stays mended.
//!
//! The seeds among them follow from the code. Where they no longer do, this writes them again:
//! `SEEDS=overwrite cargo test -p keyhush-device --profile ci --test fuzz the_kept_seeds`
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fuzzing;

use std::{collections::BTreeSet, fs, path::PathBuf};

use fuzzing::{
    TARGETS,
    seeds::{TAKEN, seeds},
};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn every_target_has_a_folder_and_every_folder_a_target() {
    let names = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let folders: BTreeSet<String> = names.filter(|name| name.starts_with("device_")).collect();
    assert_eq!(folders, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn every_kept_input_goes_through_its_target() {
    for (name, target) in TARGETS {
        for entry in fs::read_dir(corpus().join(name)).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display()); // shown where the target panics
            target(&fs::read(path).unwrap());
        }
    }
}

#[test]
fn seeds_are_taken_and_refused_as_their_names_say() {
    for (target, run) in TARGETS {
        for (name, bytes) in seeds(target) {
            assert_eq!(run(&bytes), name.starts_with(TAKEN), "{target}/{name}");
        }
    }
}

#[test]
fn the_kept_seeds_are_of_this_version() {
    let overwrite = std::env::var("SEEDS").is_ok_and(|v| v == "overwrite");
    for (target, _) in TARGETS {
        let folder = corpus().join(target);
        for (name, bytes) in seeds(target) {
            if overwrite {
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join(&name), &bytes).unwrap();
            }
            let kept = fs::read(folder.join(&name)).unwrap_or_default();
            assert!(kept == bytes, "{target}/{name} is out of date: run this test with SEEDS=overwrite");
        }
    }
}
