//! The dashboard of `keyhush serve`: in a browser, with real devices, and every answer of its server read.
//!
//! With `KEYHUSH_PICTURES=DIR` a longer task is served, and pictures of the page are written there.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod asked;
mod page;
mod responses;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    serve::{Killed, PLAIN, keyhush, serve_tasks, settings},
    small_runs::with,
};

use self::asked::{Answered, ask};

/// Devices measure models too: what they measured is released with noise, after every second round.
const BY_DEVICES: &str = "\n[evaluation.devices]\nevery = 2\ncohort = 24\nmin_separation = 0\nmax_participations = 8\n\
    noise_multiplier = 4.0\nmost_tokens = 40\n";

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server of one task with its devices, in a folder of its own.
struct Served {
    folder: tempfile::TempDir,
    /// The files of its tasks.
    files: Vec<String>,
    address: String,
    server: Option<Killed>,
    _devices: Killed,
}

impl Served {
    /// With so many devices, and these settings beside those of small runs.
    fn start(set: &[&str], also: &str, devices: u64) -> Self {
        Self::of(&[("words", with(&settings(), set) + also)], devices)
    }

    /// The same with a second task, `later`, of these settings.
    fn start_with(set: &[&str], also: &str, devices: u64, later: &[&str]) -> Self {
        let words = with(&settings(), set) + also;
        Self::of(&[("words", words), ("later", with(&settings(), later))], devices)
    }

    fn of(tasks: &[(&'static str, String)], devices: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<String> = tasks.iter().map(|(name, _)| format!("{name}.toml")).collect();
        for (file, (_, text)) in files.iter().zip(tasks) {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        let (server, address) = serve_tasks(folder.path(), &names, "127.0.0.1:0", &PLAIN);
        let mut command = keyhush();
        command.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count"]);
        let devices = command.arg(devices.to_string()).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self { folder, files, address, server: Some(server), _devices: Killed::of(devices) }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// A token of a role, which is also its name.
    fn token(&self, role: &str) -> String {
        let said = self.access(&["create", role, "--role", role, "--json"]);
        serde_json::from_slice::<Value>(&said).unwrap()["token"].as_str().unwrap().to_owned()
    }

    fn access(&self, args: &[&str]) -> Vec<u8> {
        let mut command: Command = keyhush();
        command.current_dir(self.path()).arg("access").args(args).args(["--secrets", "secrets"]);
        let said = command.output().unwrap();
        assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
        said.stdout
    }

    fn get(&self, path: &str, token: Option<&str>) -> Answered {
        ask(&self.address, "GET", path, token)
    }

    fn json(&self, path: &str, token: &str) -> Value {
        let answer = self.get(path, Some(token));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Waits until an answer is as it should be.
    fn until(&self, path: &str, token: &str, is: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let answer = self.get(path, Some(token));
            if answer.status == 200 {
                let now = serde_json::from_slice(&answer.body).unwrap();
                if is(&now) {
                    return now;
                }
                assert!(began.elapsed() < PATIENCE, "{path} does not come to that: {now}");
            }
            assert!(began.elapsed() < PATIENCE, "{path}: {}", answer.text());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The server is killed and started again at the same address.
    fn killed(&mut self, while_gone: impl FnOnce()) {
        self.server = None;
        while_gone();
        let names: Vec<&str> = self.files.iter().map(String::as_str).collect();
        self.server = Some(serve_tasks(self.folder.path(), &names, &self.address, &PLAIN).0);
    }
}
