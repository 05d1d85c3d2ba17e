//! The settings of a demo's task, for so many devices and rounds.
//!
//! A fifth of the devices report in a round. The noise grows with that number, so that a demo of any size has the same noise in the average
//! of a round, and learns about as well: what changes with the number of devices is epsilon.

use std::ops::RangeInclusive;

use federated::{
    config::{Config, Document},
    plan::Plan,
    run::Opened,
};

use crate::DemoError;

const TASK: &str = include_str!("task.toml");

/// Devices of a demo.
pub const DEVICES: RangeInclusive<u64> = 20..=1000;
/// Its rounds.
pub const ROUNDS: RangeInclusive<u64> = 1..=2000;
/// The usual number of rounds: five to ten minutes, and the model learns most in the first two.
pub const USUAL_ROUNDS: u64 = 300;
/// Of so many devices, one reports in a round.
const OF_DEVICES: u64 = 5;
/// Reports for each unit of the noise multiplier.
const REPORTS_FOR_NOISE: f64 = 80.0;
/// Participations beyond those of a plan in which nothing fails: a round may ask more devices than it needs.
const SPARE: f64 = 1.15;

/// The settings, as text and as they are understood.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Devices.
    pub devices: u64,
    /// Rounds.
    pub rounds: u64,
    /// Reports of a round.
    pub goal: u64,
    /// Devices that a round asks at most: some of them may vanish.
    pub asked: u64,
    /// The noise: how many times as large as what one device may contribute.
    pub noise_multiplier: f64,
    /// MinS: rounds in which a device rests after a report.
    pub min_separation: u64,
    /// MaxP: in how many rounds a device takes part at most.
    pub max_participations: u64,
    /// Delta.
    pub delta: f64,
}

impl Settings {
    /// For so many devices and rounds.
    ///
    /// # Errors
    /// A number that is out of range.
    pub fn new(devices: u64, rounds: u64) -> Result<Self, DemoError> {
        in_range("devices", devices, DEVICES)?;
        in_range("rounds", rounds, ROUNDS)?;
        let goal = devices / OF_DEVICES;
        let mut settings = Self {
            devices,
            rounds,
            goal,
            asked: goal,
            noise_multiplier: goal as f64 / REPORTS_FOR_NOISE,
            min_separation: 0,
            max_participations: rounds,
            delta: 1e-3,
        };
        // A plan says how many a secure round may ask; how often each takes part follows.
        let (_, plan) = settings.plan(&[])?;
        let secure = plan.phase(0).secure.as_ref();
        let least = secure.map_or(goal, |secure| secure.least_clients.into());
        settings.asked = secure.map_or(goal, |secure| secure.most_clients.into());
        settings.min_separation = (devices / settings.asked).saturating_sub(1).min(2);
        let needed = (rounds * least) as f64 / devices as f64;
        settings.max_participations = ((needed * SPARE).ceil() as u64).clamp(1, rounds);
        Ok(settings)
    }

    /// What is set of the task's settings.
    fn set(&self) -> Vec<String> {
        let Self { devices, rounds, goal, noise_multiplier, min_separation, max_participations, delta, .. } = self;
        vec![
            format!("rounds={rounds}"),
            format!("participation.population={devices}"),
            format!("participation.cohort={goal}"),
            format!("participation.min_separation={min_separation}"),
            format!("participation.max_participations={max_participations}"),
            format!("privacy.noise_multiplier={noise_multiplier:?}"),
            format!("privacy.delta={delta:?}"),
            format!("devices.begin_with={devices}"),
        ]
    }

    /// The configuration of the task.
    ///
    /// # Errors
    /// Never for settings that were made.
    pub fn config(&self) -> Result<Config, DemoError> {
        Ok(Document::built_in(TASK, &self.set())?.config()?)
    }

    /// The settings as a file that `keyhush serve` and `keyhush plan` read.
    ///
    /// # Errors
    /// Never for settings that were made.
    pub fn text(&self) -> Result<String, DemoError> {
        Ok(self.config()?.to_toml()?)
    }

    /// What is made of the task, with other values for some settings.
    ///
    /// # Errors
    /// Values that do not fit together.
    pub fn plan(&self, other: &[String]) -> Result<(Opened, Plan), DemoError> {
        let set: Vec<String> = self.set().into_iter().chain(other.iter().cloned()).collect();
        let config = Document::built_in(TASK, &set)?.config()?;
        let opened = Opened::new(&config)?;
        let plan = Plan::new(config, &opened.setting())?;
        Ok((opened, plan))
    }
}

fn in_range(field: &'static str, got: u64, range: RangeInclusive<u64>) -> Result<(), DemoError> {
    if range.contains(&got) {
        return Ok(());
    }
    Err(DemoError::OutOfRange { field, least: *range.start(), most: *range.end(), got })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_of_a_demo_has_a_plan_that_can_be_carried_out() {
        for devices in (20..=60).chain([99, 100, 200, 333, 500, 1000]) {
            for rounds in [1, 3, 300] {
                let settings = Settings::new(devices, rounds).unwrap();
                let Settings { asked, goal, min_separation, max_participations, .. } = settings;
                // Whoever rests leaves enough of the others for a round that asks as many as it may.
                assert!(asked * (min_separation + 1) <= devices, "{settings:?}");
                assert!(asked >= goal && goal >= 4, "{settings:?}");
                assert!(max_participations * devices >= goal * rounds, "{settings:?}");
                settings.config().unwrap();
            }
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for (devices, rounds) in [(0, 3), (19, 3), (1001, 3), (20, 0), (20, 2001), (u64::MAX, 1), (20, u64::MAX)] {
            assert!(matches!(Settings::new(devices, rounds), Err(DemoError::OutOfRange { .. })), "{devices} {rounds}");
        }
    }
}
