//! A process that is killed while it writes: the test binary run again, what it said, and when it dies. Shared by the tests
//! of what must survive that.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    str::FromStr,
};

/// How to run one test of this binary alone, which is the victim: as it is, or under strace with something injected.
pub(crate) fn victim_alone(name: &str, inject: Option<&str>) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match inject {
        None => Command::new(this),
        Some(inject) => {
            let mut strace = Command::new("strace");
            let trace = format!("trace={}", inject.split(':').next().unwrap());
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &format!("inject={inject}")]).arg(this);
            strace
        }
    };
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

pub(crate) fn strace_works() -> bool {
    let probe = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=none", "true"]).output();
    probe.is_ok_and(|out| out.status.success())
}

/// A victim that was started, and all that it said: each on a line, after the same words.
pub(crate) struct Victim<T> {
    child: Child,
    out: BufReader<ChildStdout>,
    words: &'static str,
    said: Vec<T>,
}

impl<T: FromStr> Victim<T> {
    pub(crate) fn start(command: &mut Command, words: &'static str) -> Self {
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out, words, said: Vec::new() }
    }

    /// Reads what was printed, until it says something; whether it did.
    pub(crate) fn says_something(&mut self) -> bool {
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap_or_default() > 0 {
            // A line that was cut by the kill was not said.
            let whole = line.strip_suffix('\n').and_then(|line| line.rsplit_once(self.words));
            if let Some(said) = whole.and_then(|(_, said)| said.parse().ok()) {
                self.said.push(said);
                return true;
            }
            line.clear();
        }
        false
    }

    /// Waits for its end: what it said, and whether it ended by itself.
    pub(crate) fn end(mut self) -> (Vec<T>, bool) {
        while self.says_something() {}
        (self.said, self.child.wait().unwrap().success())
    }

    /// The same, and kills it first.
    pub(crate) fn kill(mut self) -> (Vec<T>, bool) {
        self.child.kill().unwrap();
        self.end()
    }
}

/// Numbers that repeat: a small generator is enough to spread kills over a few milliseconds.
pub(crate) struct Spread(pub(crate) u64);

impl Spread {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
