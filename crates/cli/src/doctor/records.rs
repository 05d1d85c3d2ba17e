//! What a server remembers: its database, the ledgers in it, and what stands of both beside the secrets.

use std::path::Path;

use federated::numbers::counted;
use server::{
    disk,
    sqlite::{DATABASE, DatabaseError, Examined, TaskExamined, examine},
    state::State as _,
};

use super::{Finding, bytes};
use crate::reach;

/// Findings, and the realm of the server, which it says to devices.
pub(super) fn look(data: &Path, secrets: &Path) -> (Vec<Finding>, Option<[u8; 32]>) {
    let is_there = match reach::is_there(&data.join(DATABASE)) {
        Ok(is_there) => is_there,
        Err(why) => return (vec![Finding::failure("database", why, super::AS_WHOM)], None),
    };
    if !is_there {
        let what = format!("{} has no database yet", data.display());
        let next = "nothing to do if no server was started with this folder; otherwise restore it";
        return (vec![Finding::hint("database", what, next)], None);
    }
    let realm = server::sqlite::SqliteState::read(data).ok().and_then(|state| state.coordinator().realm().ok());
    match examine(data, secrets) {
        Ok(examined) => (found(&examined, data), realm),
        Err(error) => (vec![Finding::failure("database", error.to_string(), next(&error))], realm),
    }
}

/// What to do where the words of the error do not say it.
fn next(error: &DatabaseError) -> &'static str {
    match error {
        DatabaseError::Version { .. } => "use the version of keyhush that wrote it, or a newer one",
        DatabaseError::Foreign { .. } => "give the --data folder of keyhush serve",
        DatabaseError::Loose { .. } => "make it readable by its owner only",
        _ => "stop the server, keep a copy of the folder as it is, and restore the newest backup of the data",
    }
}

fn found(examined: &Examined, data: &Path) -> Vec<Finding> {
    let Examined { is_served, damaged, enrolled, assignments, bytes: size, tasks } = examined;
    let mut findings = Vec::new();
    let served = if *is_served { "a server runs on it" } else { "no server runs on it" };
    findings.push(match &damaged[..] {
        [] => Finding::ok(
            "database",
            format!("whole, {}, {}; {served}", bytes(*size), counted(*enrolled, "enrolled device")),
        ),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            let next = "stop the server, keep a copy of the folder as it is, and restore the newest backup of the data";
            Finding::failure("database", format!("damaged: {first}{more}"), next)
        }
    });
    findings.push(match assignments {
        Ok(count) => Finding::ok(
            "assignments",
            format!("the database and the secrets agree: devices were assigned tasks {}", counted(*count, "time")),
        ),
        Err(error) => Finding::failure(
            "assignments",
            error.to_string(),
            "put the data and the secrets together that belong together, each in its newest copy",
        ),
    });
    for (name, task) in tasks {
        findings.push(match task {
            Ok(TaskExamined { entries: 0, .. }) => Finding::ok("ledger", format!("{name}: not started")),
            Ok(TaskExamined { entries, heads, released, planned }) => Finding::ok(
                "ledger",
                format!(
                    "{name}: {} chained and signed, {} released of {planned} planned; {} shown, on the chain",
                    counted(*entries, "entry").replace("entrys", "entries"),
                    counted(*released, "step"),
                    counted(*heads as u64, "head"),
                ),
            ),
            Err(error) => Finding::failure(
                "ledger",
                format!("{name}: {error}"),
                "restore the newest backup of the data; a task whose ledger is damaged or set back does not continue",
            ),
        });
    }
    findings.extend(growth(examined, data));
    findings
}

/// What the disk needs until all tasks are over, as far as the past says: the mean of the database for each release.
fn growth(examined: &Examined, data: &Path) -> Option<Finding> {
    let tasks = examined.tasks.iter().filter_map(|(_, task)| task.as_ref().ok());
    let (released, planned) = tasks.fold((0, 0), |(r, p), task| (r + task.released, p + task.planned));
    let (a_round, left) = (examined.bytes.checked_div(released)?, planned.saturating_sub(released));
    let (needs, free) = (a_round.saturating_mul(left), disk::room(data).ok()?.free);
    let found =
        format!("{} per release so far; at most about {} for the {left} that are left", bytes(a_round), bytes(needs));
    Some(if needs > free {
        Finding::hint(
            "growth",
            format!("{found}, and {} are free", bytes(free)),
            "plan for more room, or watch keyhush_data_disk_free_bytes",
        )
    } else {
        Finding::ok("growth", found)
    })
}
