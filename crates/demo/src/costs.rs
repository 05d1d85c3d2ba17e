//! What the plan of a demo costs, and what the same plan would cost with a million devices.
//!
//! Both are computed from a plan as the server does it, before anything runs. The second plan has the same rounds, the same
//! model and the same noise in the average of a round, which is what the model feels. It differs in what many devices allow: each takes part
//! once at most, and so many report in a round that noise can be as much larger as the sum is.

use serde::Serialize;

use crate::{DemoError, Settings};

/// Devices of the other plan.
const MANY: u64 = 1_000_000;
/// Devices that are asked for each report that is wanted.
const ASKED: f64 = 1.3;

/// What a plan costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Devices.
    pub devices: u64,
    /// Reports of a round.
    pub goal: u64,
    /// In how many rounds a device takes part at most.
    pub max_participations: u64,
    /// The noise: how many times as large as what one device may contribute.
    pub noise_multiplier: f64,
    /// Epsilon of the whole plan.
    pub epsilon: f64,
    /// Its delta.
    pub delta: f64,
}

/// What the plan of a demo costs, and what another one would.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Costs {
    /// That of the demo.
    pub demo: Cost,
    /// The same plan with a million devices.
    pub million: Cost,
}

impl Costs {
    /// Of these settings.
    ///
    /// # Errors
    /// Never for settings that were made.
    pub fn of(settings: &Settings) -> Result<Self, DemoError> {
        let &Settings { devices, rounds, goal, noise_multiplier, max_participations, delta, .. } = settings;
        let (_, plan) = settings.plan(&[])?;
        let epsilon = plan.epsilon(rounds)?.get();
        let demo = Cost { devices, goal, max_participations, noise_multiplier, epsilon, delta };
        Ok(Self { demo, million: million(settings)? })
    }
}

fn million(settings: &Settings) -> Result<Cost, DemoError> {
    let Settings { rounds, goal, noise_multiplier, .. } = *settings;
    let of_round = (MANY as f64 / (ASKED * rounds as f64)) as u64;
    // Large sums have other needs (more bits); what a release costs does not depend on how its sum was made.
    let noise_multiplier = noise_multiplier * of_round as f64 / goal as f64;
    let delta = 1e-7;
    let other = [
        format!("participation.population={MANY}"),
        format!("participation.cohort={of_round}"),
        "participation.kind=once".to_owned(),
        "participation.min_separation=".to_owned(),
        "participation.max_participations=".to_owned(),
        format!("privacy.noise_multiplier={noise_multiplier:?}"),
        format!("privacy.delta={delta:?}"),
        format!("devices.begin_with={of_round}"),
        "aggregation=plain".to_owned(),
        "secagg=".to_owned(),
        // Noise that is so much larger has a coarser grid.
        "privacy.grid_bits=12".to_owned(),
    ];
    let (_, plan) = settings.plan(&other)?;
    let epsilon = plan.epsilon(rounds)?.get();
    Ok(Cost { devices: MANY, goal: of_round, max_participations: 1, noise_multiplier, epsilon, delta })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p11_few_devices_cost_much_and_many_little_at_the_same_noise_in_the_average() {
        for (devices, rounds) in [(20, 3), (200, 300), (1000, 50)] {
            let Costs { demo, million } = Costs::of(&Settings::new(devices, rounds).unwrap()).unwrap();
            assert!(demo.epsilon.is_finite() && demo.epsilon > 8.0, "{demo:?}");
            assert!(million.epsilon < 1.0 && million.epsilon > 0.0, "{million:?}");
            let in_average = |cost: Cost| cost.noise_multiplier / cost.goal as f64;
            assert!((in_average(demo) / in_average(million) - 1.0).abs() < 1e-9, "{demo:?} {million:?}");
            assert!(million.goal * rounds <= million.devices && million.delta < 1.0 / million.devices as f64);
        }
    }

    #[test]
    fn more_devices_cost_less() {
        let epsilon = |devices| Costs::of(&Settings::new(devices, 100).unwrap()).unwrap().demo.epsilon;
        assert!(epsilon(200) < 0.5 * epsilon(50) && epsilon(1000) < 0.5 * epsilon(200));
    }
}
