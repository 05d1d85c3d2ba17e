//! Metrics for Prometheus, at `/metrics`: what a server counts, in its text format.
//!
//! All metrics are listed once, in [`METRICS`], with their help; what is written, the table in `docs/WATCHING.md`, the dashboard for Grafana and the alert rules
//! are held against that list by tests. Viewers are given what is released; the others are exact counts and times of check-ins and reports, for operators only and
//! not covered by the guarantee (rule P26), and their help says so. No metric has a label that could be a device.
//!
//! The text format is a line for each number, and is written here: a library for metrics would keep counters of its own beside those of the server.

mod process;
mod text;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use axum::{http::StatusCode, response::Response};
use server::{
    disk,
    listing::{Listed, Stands},
    observed::{Count, Ended, Snapshot, StreamSeen},
    sqlite::DATABASE,
    state::State,
};

use self::text::Text;
use crate::{
    access::Role,
    endpoint::{self, Asked, Described, Endpoint, Shared},
    problems::Problem,
};

/// The media type of the text format.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What kind of number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the server is restarted.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A sum and a count.
    Summary,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// Who may see it.
    pub role: Role,
    /// Its meaning, as Prometheus and its users are told.
    pub help: &'static str,
}

const fn of(role: Role, kind: Kind, name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind, role, help }
}

use Kind::{Counter as C, Gauge as G, Summary as S};
use Role::{Operator as O, Viewer as V};

/// All metrics.
pub const METRICS: [Metric; 41] = [
    of(V, G, "keyhush_build_info", "Always 1; the label says which version runs."),
    of(V, G, "keyhush_task_state", "1 for the state that a task is in, 0 for the others."),
    of(V, C, "keyhush_rounds_released_total", "Rounds released since the task began, from its ledger."),
    of(V, G, "keyhush_rounds_planned", "Rounds that the task plans."),
    of(
        V,
        C,
        "keyhush_evaluations_released_total",
        "Evaluations by devices released since the task began, from its ledger.",
    ),
    of(V, G, "keyhush_evaluations_planned", "Evaluations by devices that the task plans."),
    of(
        V,
        G,
        "keyhush_epsilon",
        "Epsilon of the task at the delta of keyhush_delta. The label meaning says what it is worth; basis says for what it holds: the whole plan, the whole budget, or what was spent.",
    ),
    of(V, G, "keyhush_delta", "Delta of the task."),
    of(V, G, "keyhush_population_declared", "Declared population: no more different devices are ever asked."),
    of(O, G, "keyhush_task_asked_devices", "Different devices that were ever given the task. Exact."),
    of(O, G, "keyhush_start_time_seconds", "When the server was started."),
    of(O, C, "keyhush_check_ins_total", "Check-ins that came. Exact."),
    of(O, C, "keyhush_check_in_answers_total", "Answers to check-ins. Exact."),
    of(O, C, "keyhush_enrolments_total", "Answers to enrolments; a device that enrols again counts again. Exact."),
    of(O, C, "keyhush_reports_total", "What became of reports. Exact."),
    of(O, C, "keyhush_report_waits_total", "Chunks of reports that were told to wait, mostly for memory. Exact."),
    of(O, C, "keyhush_secure_messages_total", "Messages of secure aggregation that were answered. Exact."),
    of(O, C, "keyhush_unreadable_requests_total", "Requests with a wrong signature, clock, version or form."),
    of(O, C, "keyhush_failed_requests_total", "Requests that the server could not answer."),
    of(O, C, "keyhush_report_bytes_total", "Bytes of reports that came."),
    of(O, C, "keyhush_download_bytes_total", "Bytes of tasks and models that were sent."),
    of(O, C, "keyhush_downloads_total", "Downloads of tasks and models, resumed ones included."),
    of(O, G, "keyhush_enrolled_devices", "Devices that are enrolled. Exact."),
    of(O, G, "keyhush_waiting_devices", "Devices that wait for an answer to their check-in. Exact."),
    of(O, G, "keyhush_task_waiting_devices", "Devices that wait and could be given the task. Exact."),
    of(O, G, "keyhush_report_memory_bytes", "Memory that incoming reports take."),
    of(O, G, "keyhush_report_memory_limit_bytes", "Memory that incoming reports may take."),
    of(O, C, "keyhush_attempts_total", "Attempts at rounds and evaluations that are over. Exact."),
    of(O, C, "keyhush_dropouts_total", "Devices that dropped out of attempts that are over. Exact."),
    of(O, C, "keyhush_sessions_total", "Parts of devices in attempts, by session shape. Exact."),
    of(O, S, "keyhush_attempt_seconds", "How long attempts took, from when devices were given them."),
    of(
        O,
        G,
        "keyhush_last_release_timestamp_seconds",
        "When the last attempt was released, since the server was started.",
    ),
    of(
        O,
        G,
        "keyhush_open_attempt_seconds",
        "For how long devices have the attempt that is open; 0 where none has it.",
    ),
    of(
        O,
        G,
        "keyhush_open_attempt_devices",
        "Devices of the attempt that is open: the goal, asked, reported, dropped. Exact.",
    ),
    of(O, G, "keyhush_data_disk_free_bytes", "Room on the disk of the data folder."),
    of(O, G, "keyhush_data_disk_bytes", "Size of the disk of the data folder."),
    of(O, G, "keyhush_database_bytes", "Size of the database with its log."),
    of(O, G, "process_resident_memory_bytes", "Memory of the server."),
    of(O, C, "process_cpu_seconds_total", "Processor time of the server."),
    of(O, G, "process_open_fds", "Open files and connections."),
    of(O, G, "process_max_fds", "How many there may be."),
];

pub(crate) fn endpoints<S: State + 'static>() -> Vec<Endpoint<S>> {
    let described = Described {
        method: "GET",
        path: "/metrics",
        role: Some(Role::Viewer),
        about: "Metrics in the text format of Prometheus. Viewers are given what is released; operators also exact counts and times, which are outside the guarantee.",
        takes: None,
        status: 200,
        kind: KIND,
        answers: None,
        problems: &[],
    };
    vec![Endpoint::new(described, show)]
}

async fn show<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let role = asked.who.map_or(Role::Viewer, |who| who.role);
    let reading = Arc::clone(&shared);
    let text = shared
        .look(move |console| {
            let mut tasks = reading.read.tasks(console)?;
            if role < Role::Operator {
                // When a round ended is an exact value: viewers see how tasks stood after the last evaluation (rule P23).
                tasks = Arc::new(tasks.iter().map(|task| reading.dashboard.for_viewers(task.clone())).collect());
            }
            let mut text = Text::new(role);
            released(&mut text, &tasks);
            if role >= Role::Operator {
                let seen = console.observed.snapshot();
                counted(&mut text, &tasks, &seen);
                machine(&mut text, &console.data);
            }
            Ok(text.finish())
        })
        .await?;
    Ok(endpoint::with(StatusCode::OK, KIND, text))
}

const STATES: [(Stands, &str); 8] = [
    (Stands::Running, "running"),
    (Stands::Pausing, "pausing"),
    (Stands::Paused, "paused"),
    (Stands::Stopping, "stopping"),
    (Stands::Over, "over"),
    (Stands::Broken, "broken"),
    (Stands::NotServed, "not_served"),
    (Stands::Refused, "refused"),
];

/// What everybody with a token may see (rules P12 and P23).
fn released(text: &mut Text, tasks: &[Listed]) {
    text.number("keyhush_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    for task in tasks {
        let name = ("task", task.task.as_str());
        for (state, word) in STATES {
            text.number("keyhush_task_state", &[name, ("state", word)], f64::from(u8::from(task.state == state)));
        }
        let Some(ledger) = &task.ledger else { continue };
        text.count("keyhush_rounds_released_total", &[name], ledger.rounds);
        text.count("keyhush_rounds_planned", &[name], ledger.planned_rounds);
        if let (Some(released), Some(planned)) = (ledger.evaluations, ledger.planned_evaluations) {
            text.count("keyhush_evaluations_released_total", &[name], released);
            text.count("keyhush_evaluations_planned", &[name], planned);
        }
        let (meaning, basis) = (word(&ledger.holds.meaning), word(&ledger.basis));
        let labels = [name, ("meaning", meaning.as_str()), ("basis", basis.as_str())];
        text.number("keyhush_epsilon", &labels, ledger.holds.epsilon.get());
        text.number("keyhush_delta", &[name], ledger.delta.get());
        text.count("keyhush_population_declared", &[name], ledger.population);
    }
}

/// A variant's name, as labels are written.
fn word(variant: &impl std::fmt::Debug) -> String {
    let mut word = String::new();
    for (place, letter) in format!("{variant:?}").chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// Counters with a label, and its value.
const LABELLED: [(Count, &str, &str, &str); 13] = [
    (Count::CheckInsAssigned, "keyhush_check_in_answers_total", "answer", "assigned"),
    (Count::CheckInsLater, "keyhush_check_in_answers_total", "answer", "later"),
    (Count::CheckInsStranger, "keyhush_check_in_answers_total", "answer", "not_enrolled"),
    (Count::CheckInsRefused, "keyhush_check_in_answers_total", "answer", "refused"),
    (Count::EnrolmentsAccepted, "keyhush_enrolments_total", "answer", "accepted"),
    (Count::EnrolmentsNotAdmitted, "keyhush_enrolments_total", "answer", "not_admitted"),
    (Count::EnrolmentsTooMany, "keyhush_enrolments_total", "answer", "too_many"),
    (Count::EnrolmentsRefused, "keyhush_enrolments_total", "answer", "refused"),
    (Count::ReportsAccepted, "keyhush_reports_total", "result", "accepted"),
    (Count::ReportsLate, "keyhush_reports_total", "result", "late"),
    (Count::ReportsClosed, "keyhush_reports_total", "result", "closed"),
    (Count::ReportsWrong, "keyhush_reports_total", "result", "wrong"),
    (Count::ReportsRefused, "keyhush_reports_total", "result", "refused"),
];

/// Counters without one.
const PLAIN: [(Count, &str); 8] = [
    (Count::CheckIns, "keyhush_check_ins_total"),
    (Count::ReportsToldToWait, "keyhush_report_waits_total"),
    (Count::SecureMessages, "keyhush_secure_messages_total"),
    (Count::Unreadable, "keyhush_unreadable_requests_total"),
    (Count::Internal, "keyhush_failed_requests_total"),
    (Count::ReportBytes, "keyhush_report_bytes_total"),
    (Count::BlobBytes, "keyhush_download_bytes_total"),
    (Count::Blobs, "keyhush_downloads_total"),
];

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Counts and times of check-ins and reports (rule P26).
fn counted(text: &mut Text, tasks: &[Listed], seen: &Snapshot) {
    text.number("keyhush_start_time_seconds", &[], seconds(seen.started_ms));
    let of = |count: &Count| seen.counts.get(count).copied().unwrap_or_default();
    for (count, name, label, value) in &LABELLED {
        text.count(name, &[(label, value)], of(count));
    }
    for (count, name) in &PLAIN {
        text.count(name, &[], of(count));
    }
    text.count("keyhush_enrolled_devices", &[], seen.enrolled);
    text.count("keyhush_waiting_devices", &[], seen.waiting);
    text.count("keyhush_report_memory_bytes", &[], seen.report_memory.0);
    text.count("keyhush_report_memory_limit_bytes", &[], seen.report_memory.1);
    let asked: BTreeMap<&str, u64> = tasks.iter().filter_map(|task| Some((task.task.as_str(), task.asked?))).collect();
    for (name, asked) in asked {
        text.count("keyhush_task_asked_devices", &[("task", name)], asked);
    }
    for task in &seen.tasks {
        let streams = [("round", Some(&task.rounds)), ("evaluation", task.evaluations.as_ref())];
        for (kind, stream) in streams {
            if let Some(stream) = stream {
                counted_of(text, [("task", &task.task), ("kind", kind)], stream, seen.at_ms);
            }
        }
    }
}

fn counted_of(text: &mut Text, of: [(&str, &str); 2], stream: &StreamSeen, now_ms: u64) {
    let [task, kind] = of;
    text.count("keyhush_task_waiting_devices", &of, stream.waiting);
    text.count("keyhush_attempts_total", &[task, kind, ("result", "released")], stream.released);
    text.count("keyhush_attempts_total", &[task, kind, ("result", "failed")], stream.failed);
    text.count("keyhush_dropouts_total", &of, stream.dropped);
    for (shape, count) in &stream.shapes {
        text.count("keyhush_sessions_total", &[task, kind, ("shape", shape)], *count);
    }
    text.number("keyhush_attempt_seconds_sum", &of, seconds(stream.took_ms));
    text.count("keyhush_attempt_seconds_count", &of, stream.released + stream.failed);
    if let Some(released_ms) = stream.released_ms {
        text.number("keyhush_last_release_timestamp_seconds", &of, seconds(released_ms));
    }
    let open = stream.attempts.back().filter(|attempt| attempt.ended == Ended::Open);
    let since = open.and_then(|open| open.assigned_ms).map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
    text.number("keyhush_open_attempt_seconds", &of, seconds(since));
    if let Some(open) = open {
        let counts =
            [("goal", open.goal), ("asked", open.asked), ("reported", open.reported), ("dropped", open.dropped)];
        for (which, count) in counts {
            text.count("keyhush_open_attempt_devices", &[task, kind, ("which", which)], count);
        }
    }
}

/// The machine that the server runs on, as far as it can say.
fn machine(text: &mut Text, data: &Path) {
    if let Ok(room) = disk::room(data) {
        text.count("keyhush_data_disk_free_bytes", &[], room.free);
        text.count("keyhush_data_disk_bytes", &[], room.total);
    }
    let size = |suffix: &str| std::fs::metadata(data.join(format!("{DATABASE}{suffix}"))).map_or(0, |file| file.len());
    text.count("keyhush_database_bytes", &[], size("") + size("-wal"));
    for (name, number) in process::numbers() {
        text.number(name, &[], number);
    }
}

#[cfg(test)]
mod tests;
