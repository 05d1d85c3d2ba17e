//! A folder with settings of a run that takes a second, for the tests of commands that do many runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use crate::small_runs::{RUN, with};

/// On a made-up crowd, with noise that can be repeated.
const CHANGES: [&str; 8] = [
    "rounds=8",
    "model.hidden=16",
    "model.embedding=16",
    "participation.cohort=24",
    "privacy.noise_multiplier=2.0",
    "privacy.delta=1e-4",
    "evaluation.every=2",
    "checkpoint.every=3",
];

/// The same with other values for some.
pub(crate) fn settings(changes: &[&str]) -> String {
    with(RUN, &[&CHANGES[..], changes].concat())
}

/// A folder of its own, gone with it.
pub(crate) struct Toy(tempfile::TempDir);

impl Toy {
    /// With the settings in `run.toml`.
    pub(crate) fn new() -> Self {
        let toy = Self(tempfile::tempdir().unwrap());
        toy.write("run.toml", &settings(&[]));
        toy
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// A store of 300 people in `crowd.khs`, and settings that train on it, with secret noise, in `store.toml`.
    pub(crate) fn make_store(&self) {
        self.ok(&["data", "synth", "--users", "300", "--posts-per-user", "6", "--jsonl", "--out", "crowd.jsonl", "-q"]);
        self.ok(&["data", "import", "crowd.jsonl", "--vocab-size", "120", "--out", "crowd.khs", "-q"]);
        let on_people = [
            "noise_seed=",
            "data.kind=store",
            "data.posts_per_user=",
            "data.path=crowd.khs",
            "model.vocabulary=",
            "participation.population=300",
            "privacy.delta=1e-3",
        ];
        self.write("store.toml", &settings(&on_people));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyhush"));
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (Output, String) {
        let output = self.command(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, errors)
    }

    /// What a command that succeeds prints.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let (output, errors) = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The message of a command that is refused.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let (output, errors) = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        errors
    }

    /// The message of a command that fails.
    pub(crate) fn failed(&self, arguments: &[&str]) -> String {
        let (output, errors) = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        errors
    }
}
