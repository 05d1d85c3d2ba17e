//! The server's log: a line for each thing that happens, for people or for programs.
//!
//! Nothing that a device or a person sent is in it: no key, no text, no address, no token. Requests that were refused are in the log for programs only, with
//! the id that the answer has in `x-request-id`, the route and the status; at most [`MOST_REQUESTS`] a second, and it is said how many were left out.

use std::{
    io::IsTerminal as _,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use clap::ValueEnum;
use federated::{metrics::Metrics, numbers::counted, protocol::order::Order};
use serde_json::{Map, Value, json};
use server::{
    http::{Refused, Tells},
    tasks::Happened,
};

/// Lines about refused requests, in a second.
const MOST_REQUESTS: u32 = 20;

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One JSON object per line, for programs
    Json,
}

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A line of the log.
pub(crate) struct Line {
    level: Level,
    what: &'static str,
    task: Option<String>,
    message: String,
    more: Map<String, Value>,
}

impl Line {
    /// About the server.
    pub(crate) fn new(level: Level, what: &'static str, message: impl Into<String>) -> Self {
        Self { level, what, task: None, message: message.into(), more: Map::new() }
    }

    fn of(level: Level, what: &'static str, task: &str, message: impl Into<String>) -> Self {
        Self { task: Some(task.to_owned()), ..Self::new(level, what, message) }
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    fn json(self, time: &str) -> String {
        let mut all = Map::new();
        all.insert("time".to_owned(), time.into());
        all.insert("level".to_owned(), self.level.word().into());
        all.insert("what".to_owned(), self.what.into());
        if let Some(task) = self.task {
            all.insert("task".to_owned(), task.into());
        }
        all.extend(self.more);
        all.insert("message".to_owned(), self.message.into());
        Value::Object(all).to_string()
    }

    fn text(self, time: &str) -> String {
        let task = self.task.map(|task| format!("{task}: ")).unwrap_or_default();
        format!("{time}{task}{}", self.message)
    }
}

/// How many requests were told in this second.
struct Told {
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// The log of a server, on standard error.
#[derive(Clone)]
pub(crate) struct Log {
    format: Format,
    quiet: bool,
    told: Arc<Mutex<Told>>,
}

impl Log {
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        let told = Told { since: Instant::now(), lines: 0, left_out: 0 };
        Self { format, quiet, told: Arc::new(Mutex::new(told)) }
    }

    pub(crate) const fn is_text(&self) -> bool {
        matches!(self.format, Format::Text)
    }

    /// Writes a line, with the time where nobody watches.
    pub(crate) fn write(&self, line: Line) {
        match self.format {
            Format::Json => eprintln!("{}", line.json(&jiff::Timestamp::now().to_string())),
            Format::Text => {
                let shown = std::io::stderr().is_terminal();
                let time = if shown { String::new() } else { format!("{} ", jiff::Timestamp::now()) };
                eprintln!("{}", line.text(&time));
            }
        }
    }

    /// Says something to who started the server. It is no event, and has no time in the log for people.
    pub(crate) fn says(&self, line: Line) {
        match self.format {
            Format::Json => self.write(line),
            Format::Text => eprintln!("{}", line.message),
        }
    }

    /// Something happened.
    pub(crate) fn happened(&self, happened: &Happened<'_>) {
        let matters = matches!(
            happened,
            Happened::Listening(_) | Happened::Refused { .. } | Happened::NotServed { .. } | Happened::Broken { .. }
        );
        if matters || !self.quiet {
            self.write(line(happened));
        }
        if matches!(happened, Happened::Listening(_)) && !self.quiet {
            let words = "the times of rounds depend on which devices took part: this log is for operators only, and not covered by the guarantee";
            self.write(Line::new(Level::Info, "note", words));
        }
    }

    /// Who is told of requests that were refused: the log for programs.
    pub(crate) fn requests(&self) -> Tells {
        if self.is_text() {
            return Tells::default();
        }
        let log = self.clone();
        Tells::new(move |refused| {
            if let Some(line) = log.request(refused, Instant::now()) {
                log.write(line);
            }
        })
    }

    fn request(&self, refused: &Refused<'_>, now: Instant) -> Option<Line> {
        let Refused { id, method, route, status } = *refused;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(told.since) >= Duration::from_secs(1) {
            (told.since, told.lines) = (now, 0);
        }
        if told.lines >= MOST_REQUESTS || (self.quiet && status < 500) {
            told.left_out += u64::from(!self.quiet);
            return None;
        }
        told.lines += 1;
        let (level, what) = if status < 500 { (Level::Warning, "refused") } else { (Level::Error, "not answered") };
        let mut line = Line::new(level, "request", format!("a request was {what}"))
            .with("request", id)
            .with("method", method)
            .with("route", route)
            .with("status", status);
        let left_out = std::mem::take(&mut told.left_out);
        if left_out > 0 {
            line = line.with("left_out_before", left_out);
        }
        Some(line)
    }
}

/// What is said of an event.
fn line(happened: &Happened<'_>) -> Line {
    use Level::{Error, Info, Warning};
    match *happened {
        Happened::Listening(address) => Line::new(Info, "listening", format!("listening on {address}")),
        Happened::Running { task, round } => {
            let words = format!("running, {} done", counted(round, "round"));
            Line::of(Info, "running", task, words).with("round", round)
        }
        Happened::Waits { task, enrolled, begin_with } => {
            let words = format!(
                "waiting for {begin_with} enrolled devices before the first round (devices.begin_with); {enrolled} so far"
            );
            Line::of(Info, "waiting", task, words).with("enrolled", enrolled).with("begin_with", begin_with)
        }
        Happened::Ordered { task, order } => {
            let (word, words) = match order {
                Order::Run => ("run", "resumed"),
                Order::Pause => ("pause", "pausing after the current round"),
                Order::Stop => ("stop", "stopping permanently"),
            };
            Line::of(Info, "ordered", task, format!("{words} (by its operator)")).with("order", word)
        }
        Happened::Round { task, round, metrics } => {
            let measured = metrics.map(|metrics| format!(", {}", measured(metrics))).unwrap_or_default();
            Line::of(Info, "round", task, format!("round {round} released{measured}")).with("round", round)
        }
        Happened::Evaluated { task, round, metrics } => {
            let by_devices = metrics.by_devices.as_ref().map(|by_devices| format!(", {}", by_devices.words()));
            let words = format!("after round {round}, {}{}", measured(metrics), by_devices.unwrap_or_default());
            Line::of(Info, "evaluation", task, words).with("round", round)
        }
        Happened::Failed { task, failed } => Line::of(Warning, "attempt_failed", task, failed.to_string())
            .with("round", failed.round + 1)
            .with("attempt", failed.attempt + 1)
            .with("reason", json!(failed.reason)),
        Happened::FailedEvaluation { task, failed } => Line::of(Warning, "evaluation_failed", task, failed.to_string())
            .with("round", failed.rounds)
            .with("reason", json!(failed.reason)),
        Happened::Created { task } => Line::of(Info, "created", task, "created"),
        Happened::Refused { task, why } => Line::of(Error, "refused", task, format!("refused, and not begun: {why}")),
        Happened::NotServed { task } => {
            let words = "has begun and is not served: name its settings file (TASK.toml), to continue or to stop it";
            Line::of(Warning, "not_served", task, words)
        }
        Happened::Over { task, folder } => {
            let words = format!("finished; model, statement and ledger are in {}", folder.display());
            Line::of(Info, "finished", task, words).with("folder", folder.display().to_string())
        }
        Happened::Broken { task, error } => Line::of(Error, "broken", task, format!("cannot continue: {error}")),
    }
}

/// What the server measured itself.
fn measured(metrics: &Metrics) -> String {
    let headline = metrics.measured.measures().headline;
    format!("{} {}", headline.label, headline.shown(metrics.measured.headline()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Refused<'_> =
        Refused { id: "00ff", method: "PUT", route: "/v1/report/{ticket}/{offset}", status: 410 };

    #[test]
    fn a_line_for_programs_is_one_object_and_one_line() {
        let line =
            Line::of(Level::Warning, "attempt_failed", "a\nb", "too few \"devices\"\nwere left").with("round", 3);
        let text = line.json("2026-01-01T00:00:00Z");
        assert!(!text.contains('\n'));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read["level"].as_str(), read["task"].as_str(), read["round"].as_u64()),
            (Some("warning"), Some("a\nb"), Some(3))
        );
    }

    #[test]
    fn a_flood_of_refused_requests_is_counted_and_not_written() {
        let (log, began) = (Log::new(Format::Json, false), Instant::now());
        let written = (0..1_000).filter(|_| log.request(&REFUSED, began).is_some()).count();
        assert_eq!(written, MOST_REQUESTS as usize);
        let next = log.request(&REFUSED, began + Duration::from_millis(1_100)).unwrap();
        assert_eq!(next.more["left_out_before"], 980);
        assert!(
            !log.request(&REFUSED, began + Duration::from_millis(1_100)).unwrap().more.contains_key("left_out_before")
        );
        let quiet = Log::new(Format::Json, true);
        assert!(quiet.request(&REFUSED, began).is_none());
        assert!(quiet.request(&Refused { status: 503, ..REFUSED }, began).is_some());
    }
}
