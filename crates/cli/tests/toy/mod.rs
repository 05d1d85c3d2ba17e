//! A folder with settings of a run that takes a second, for the tests of commands that do many runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

/// On a made-up crowd, with noise that can be repeated.
pub(crate) const SETTINGS: &str = r#"rounds = 8
noise_seed = 3

[data]
kind = "synthetic"
posts_per_user = 6

[model]
preset = "tiny"
vocabulary = 120
hidden = 16
embedding = 16

[local]
batch = 4
unroll = 5
learning_rate = 0.5
most_tokens = 60

[participation]
kind = "poisson"
population = 2000
cohort = 24

[clip]
kind = "flat"
norm = 0.5

[privacy]
mechanism = "gaussian"
noise_multiplier = 2.0
delta = 1e-4

[server]
optimizer = "momentum"
momentum = 0.9
learning_rate = 0.5

[evaluation]
every = 2
users = 6
most_tokens = 300

[checkpoint]
every = 3
"#;

/// A folder of its own, gone with it.
pub(crate) struct Toy(tempfile::TempDir);

impl Toy {
    /// With the settings in `run.toml`.
    pub(crate) fn new() -> Self {
        let toy = Self(tempfile::tempdir().unwrap());
        toy.write("run.toml", SETTINGS);
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
        let settings = SETTINGS
            .replace("noise_seed = 3\n", "")
            .replace("kind = \"synthetic\"\nposts_per_user = 6", "kind = \"store\"\npath = \"crowd.khs\"")
            .replace("vocabulary = 120\n", "")
            .replace("population = 2000", "population = 300")
            .replace("delta = 1e-4", "delta = 1e-3");
        self.write("store.toml", &settings);
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
