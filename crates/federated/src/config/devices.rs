//! How long real devices have.

use super::keys::{Section, Visit, key};

/// How long devices have (Xu et al. 2023, section 2.2).
#[derive(Debug, Clone, PartialEq)]
pub struct Devices {
    /// A round waits so long for devices before it begins with fewer than it would like, in seconds.
    pub select_seconds: f64,
    /// A device has so long for its report, in seconds.
    pub report_seconds: f64,
    /// A device has so long for each other message of secure aggregation, in seconds.
    pub answer_seconds: f64,
    /// Reports leave devices at whole multiples of this after the assignment, in seconds, so that time does not tell how much was
    /// typed (rule P26).
    pub tick_seconds: f64,
    /// The first round waits until so many devices are enrolled; three times the goal times the minimum distance if not said.
    pub begin_with: Option<u64>,
    /// A device rests for so long after its report has left, before it gives another one to the task, in hours; not at all if not said.
    pub timer_hours: Option<f64>,
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
        }
    }
}

impl Section for Devices {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let usual = Self::default();
        let select = key("select_seconds", "60.0", "how long a round waits for as many devices as it would like");
        visit.or(&select, &mut self.select_seconds, usual.select_seconds);
        let report = key("report_seconds", "600.0", "how long a device has for its report");
        visit.or(&report, &mut self.report_seconds, usual.report_seconds);
        let answer = key("answer_seconds", "60.0", "how long it has for each other message of secure aggregation");
        visit.or(&answer, &mut self.answer_seconds, usual.answer_seconds);
        let tick = key("tick_seconds", "5.0", "reports leave at whole multiples of it, so that time tells nothing");
        visit.or(&tick, &mut self.tick_seconds, usual.tick_seconds);
        let begin = key("begin_with", "1000", "devices that are enrolled before the first round begins");
        visit.may(&begin, &mut self.begin_with);
        let timer = "how long a device rests after its report: the timer that `keyhush plan` proposes";
        visit.may(&key("timer_hours", "48.0", timer), &mut self.timer_hours);
    }
}
