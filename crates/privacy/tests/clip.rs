//! The clip that follows a quantile: the figures of Andrew et al. 2021, and rule P9 in every mechanism.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use crate::quantile::{
    FIGURE_1_QUANTILES, FIGURE_1_VALUES, LogNormal, QUANTILES, Tracking, average_loss, mechanisms, published,
};
use keyhush_privacy::{
    ClipNorm,
    clip::{AdaptiveClip, AdaptiveClipPlan, ClipStep},
    mechanism::Correlation,
};

/// The mean of log C over the last rounds.
fn settled(clips: &[f64]) -> f64 {
    clips[clips.len() - 30..].iter().map(|c| c.ln()).sum::<f64>() / 30.0
}

/// Figure 1: the loss is convex, and least where a fraction gamma of the values lies below.
#[test]
fn figure_1_the_loss_is_least_at_the_quantile() {
    let grid: Vec<f64> = (100..=550).map(|c| f64::from(c) / 10.0).collect();
    let lowest = [(15.0, 15.0), (28.0, 40.0), (45.0, 45.0), (48.0, 48.0)];
    for (gamma, (from, to)) in FIGURE_1_QUANTILES.into_iter().zip(lowest) {
        let losses: Vec<f64> = grid.iter().map(|c| average_loss(gamma, *c, &FIGURE_1_VALUES)).collect();
        let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
        for (c, loss) in grid.iter().zip(&losses) {
            assert_eq!((from..=to).contains(c), *loss <= least + 1e-9, "gamma {gamma}, C {c}: {loss} against {least}");
        }
        assert!(losses.windows(3).all(|w| w[0] + w[2] >= 2.0 * w[1] - 1e-9), "gamma {gamma} is not convex");
    }
}

/// Figure 2: from 0.1, three distributions and five quantiles, within 200 rounds of 100 users.
#[test]
fn figure_2_the_clip_finds_every_quantile() {
    for data in LogNormal::of_figure_2() {
        for gamma in QUANTILES {
            let run = Tracking::figure_2(data, gamma).run();
            let want = data.quantile(gamma).ln();
            assert_eq!(run.active, run.tracked, "independent noise follows at every step");
            // The noise of a step is eta * 0.07 in log C; what it gathers is larger where norms are spread.
            let allowed = 0.05 + 0.25 * data.stddev;
            assert!(
                (settled(&run.tracked) - want).abs() < allowed,
                "{data:?}, {gamma}: {} {want}",
                settled(&run.tracked)
            );
            // It grows from below: exponentially, by at most eta * gamma and the noise a step.
            assert!(run.tracked[0] == 0.1 && run.tracked[10] < 0.1 * (0.2f64 * 10.0 * (gamma + 0.3)).exp());
        }
    }
}

#[test]
fn p9_the_clip_follows_in_every_mechanism_and_moves_at_restarts_only() {
    for (correlation, segments) in mechanisms() {
        let data = LogNormal { mean: 0.0, stddev: 1.0 };
        let tracking = Tracking { correlation: correlation.clone(), segments, ..Tracking::figure_2(data, 0.5) };
        let run = tracking.run();
        assert!(
            (settled(&run.tracked) - data.quantile(0.5).ln()).abs() < 0.4,
            "{correlation:?}: {}",
            settled(&run.tracked)
        );
        if correlation != Correlation::Independent {
            assert!(run.active[..60].iter().all(|c| *c == 0.1));
            assert!(run.active[60..120].iter().all(|c| *c == run.tracked[60]));
            assert!(run.active[120..].iter().all(|c| *c == run.tracked[120]));
            assert_ne!(run.tracked[60], run.tracked[61]);
        }
    }
}

/// The closed form of Xu et al. 2023: `C0 exp(-eta (sum of fractions - (t + 1) gamma))`.
#[test]
fn p9_steps_multiply_to_the_closed_form_of_xu_et_al() {
    let mut clip = AdaptiveClip::new(published(6500.0)).unwrap();
    let fractions = [0.0, 0.1, -0.05, 0.9, 1.02, 0.5, 0.43];
    let mut sum = 0.0;
    for (t, b) in fractions.into_iter().enumerate() {
        sum += b;
        clip.follow(b).unwrap();
        let want = 0.1 * (-0.2 * (sum - (t as f64 + 1.0) * 0.5)).exp();
        assert!((clip.tracked().get() / want - 1.0).abs() < 1e-14);
        assert_eq!(clip.active().get(), 0.1, "the active clip waits for a restart");
    }
}

#[test]
fn the_linear_step_is_slower_from_far_and_never_negative() {
    let far = LogNormal { mean: 100.0f64.ln(), stddev: 1.0 };
    let with = |step| {
        let mut tracking = Tracking::figure_2(far, 0.5);
        tracking.clip.step = step;
        settled(&tracking.run().tracked).exp()
    };
    let (geometric, linear) = (with(ClipStep::Geometric), with(ClipStep::Linear));
    assert!((75.0..130.0).contains(&geometric), "{geometric}");
    assert!((5.0..25.0).contains(&linear), "at most 0.1 and the noise a step: {linear}");
    let plan = AdaptiveClipPlan { step: ClipStep::Linear, ..published(10.0) };
    let mut clip = AdaptiveClip::new(plan).unwrap();
    (0..100).for_each(|_| clip.follow(1.0).unwrap());
    assert!(clip.tracked().get() > 0.0);
    assert!(clip.follow(f64::NAN).is_err());
}

#[test]
fn plans_without_meaning_are_refused() {
    let plan = published(100.0);
    for bad in [
        AdaptiveClipPlan { quantile: 0.0, ..plan },
        AdaptiveClipPlan { quantile: f64::NAN, ..plan },
        AdaptiveClipPlan { learning_rate: -1.0, ..plan },
        AdaptiveClipPlan { planned_users: 0.0, ..plan },
        AdaptiveClipPlan { initial: ClipNorm::new(1e-40).unwrap(), ..plan },
    ] {
        assert!(AdaptiveClip::new(bad).is_err(), "{bad:?}");
    }
}
