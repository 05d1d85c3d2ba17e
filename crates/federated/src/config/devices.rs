//! `[devices]`: deadlines and limits for real devices.

use std::path::PathBuf;

use super::keys::{Section, Visit, key};

/// Deadlines of devices (Xu et al. 2023, section 2.2).
#[derive(Debug, Clone, PartialEq)]
pub struct Devices {
    /// How long a round waits for its full number of devices before it starts with fewer, in seconds.
    pub select_seconds: f64,
    /// How long a device has for its report, in seconds.
    pub report_seconds: f64,
    /// How long a device has for each other message of secure aggregation, in seconds.
    pub answer_seconds: f64,
    /// Devices send reports at whole multiples of this after the assignment, in seconds, so that timing does not reveal how much was
    /// typed (rule P26).
    pub tick_seconds: f64,
    /// The first round waits until this many devices are enrolled; by default, three times the goal times the minimum distance.
    pub begin_with: Option<u64>,
    /// How long a device rests after a report before it sends another one to the task, in hours; by default, it does not rest.
    pub timer_hours: Option<f64>,
    /// The ledgers of earlier tasks over the same devices: files, or the folders that have them. Their cost is counted in that of this task.
    pub after: Vec<PathBuf>,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            select_seconds: 60.0,
            report_seconds: 600.0,
            answer_seconds: 60.0,
            tick_seconds: 5.0,
            begin_with: None,
            timer_hours: None,
            after: Vec::new(),
        }
    }
}

impl Section for Devices {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let usual = Self::default();
        let select = key("select_seconds", "60.0", "seconds that a round waits for its full number of devices");
        visit.or(&select, &mut self.select_seconds, usual.select_seconds);
        let report = key("report_seconds", "600.0", "seconds that a device has for its report");
        visit.or(&report, &mut self.report_seconds, usual.report_seconds);
        let answer = key("answer_seconds", "60.0", "seconds that it has for each other message of secure aggregation");
        visit.or(&answer, &mut self.answer_seconds, usual.answer_seconds);
        let tick = key(
            "tick_seconds",
            "5.0",
            "seconds; reports are sent at multiples of this, so that timing reveals nothing",
        );
        visit.or(&tick, &mut self.tick_seconds, usual.tick_seconds);
        let begin = key("begin_with", "1000", "enrolled devices needed before the first round starts");
        visit.may(&begin, &mut self.begin_with);
        let timer = "hours that a device waits after a report; `keyhush plan` proposes a value";
        visit.may(&key("timer_hours", "48.0", timer), &mut self.timer_hours);
        let after = "ledgers of earlier tasks over the same devices, whose cost is counted in this one's";
        visit.rare(&key("after", "[\"models/words\"]", after), &mut self.after, Vec::new());
    }
}
