//! The assumptions of an epsilon, in words.

use crate::{
    event::{Adjacency, Noise, NoiseMatrix, PrivacyEvent, Segment},
    participation::Participation,
};

/// Everything that the analysis of an event takes for granted.
#[must_use]
pub fn of(event: &PrivacyEvent) -> Vec<String> {
    let mut words = Vec::new();
    collect(event, &mut words);
    words
}

/// Of Gaussian rounds, unless something else says who takes part in them.
const EVERY_ROUND: &str = "every user may take part in every round";

fn collect(event: &PrivacyEvent, words: &mut Vec<String>) {
    let mut say = |sentence: String| {
        if !words.contains(&sentence) {
            words.push(sentence);
        }
    };
    match event {
        PrivacyEvent::NonPrivate { what } => say(format!("{what} has infinite epsilon")),
        PrivacyEvent::Gaussian { adjacency, noise } => {
            say(EVERY_ROUND.into());
            say(noise_words(noise, *adjacency));
        }
        PrivacyEvent::SampledGaussian { adjacency, participation, noise } => {
            say(participation_words(participation));
            say("the participants of a round, and their number, are not revealed".into());
            say(noise_words(noise, *adjacency));
        }
        PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation, noise } => {
            say(participation_words(participation));
            say(matrix_words(matrix, segments));
            say(noise_words(noise, *adjacency));
        }
        PrivacyEvent::Skellam { .. } => {
            say("sensitivities hold exactly on the integer grid; no amplification by sampling".into())
        }
        PrivacyEvent::DistributedSkellam { honest_survivors, .. } => {
            say(format!("every opened sum contains the noise of at least {honest_survivors} honest participants"));
            say("sensitivities hold exactly on the integer grid; no amplification by sampling".into());
        }
        PrivacyEvent::LimitedRounds { participation, event, .. } => {
            say(participation_words(participation));
            of(event).into_iter().filter(|sentence| sentence != EVERY_ROUND).for_each(say);
        }
        PrivacyEvent::Zcdp { rho, .. } => say(format!("the release is {rho}-zCDP (this is not checked here)")),
        PrivacyEvent::Repeat { event, .. } => collect(event, words),
        PrivacyEvent::Compose { events } => events.iter().for_each(|e| collect(e, words)),
    }
}

/// A number to nine digits, without noise at the end.
fn plain(x: f64) -> String {
    format!("{:.8e}", x).parse::<f64>().map_or_else(|_| x.to_string(), |rounded| rounded.to_string())
}

fn noise_words(noise: &Noise, adjacency: Adjacency) -> String {
    let sensitivity = if adjacency == Adjacency::ReplaceOne { "twice the clip norm" } else { "the clip norm" };
    match noise {
        Noise::Gaussian(z) => {
            format!("noise of standard deviation {} times {sensitivity}, drawn fresh and kept secret", plain(z.get()))
        }
        Noise::DiscreteGaussian(d) => format!(
            "discrete Gaussian noise of parameter {} on integers of L2 sensitivity {}, drawn fresh and kept secret",
            d.sigma(),
            d.sensitivity()
        ),
        Noise::JointDiscreteGaussian(joint) => {
            let segments: Vec<String> = (joint.segments().iter())
                .map(|d| format!("parameter {} on L2 sensitivity {}", d.sigma(), d.sensitivity()))
                .collect();
            format!(
                "discrete Gaussian noise on each segment of an integer vector ({}), drawn fresh and kept secret",
                segments.join("; ")
            )
        }
    }
}

/// Describes participation in words.
#[must_use]
pub fn participation_words(participation: &Participation) -> String {
    match participation {
        Participation::Poisson { rate } => {
            format!("each user is sampled for each round independently with probability {}", plain(rate.get()))
        }
        Participation::FixedSize { population, cohort } => {
            format!("each round samples exactly {cohort} of {population} users, uniformly and independently")
        }
        Participation::MinSeparation { separation, max_participations } => format!(
            "a user takes part at most {}, with at least {} other released round{} between two participations; participation is not restricted otherwise",
            times(*max_participations),
            separation.as_rounds_between(),
            if separation.as_rounds_between() == 1 { "" } else { "s" },
        ),
        Participation::Once => "no user takes part more than once; participation is not restricted otherwise".into(),
    }
}

fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

fn matrix_words(matrix: &NoiseMatrix, segments: &[Segment]) -> String {
    let restarts = match segments.len() {
        1 => String::new(),
        n => format!(", restarted {}", times(n as u64 - 1)),
    };
    let completed = if segments.iter().any(|s| s.completed_to.is_some()) { ", trees completed" } else { "" };
    match matrix {
        NoiseMatrix::Tree => {
            format!("all releases are functions of noisy sums over the nodes of a binary tree{restarts}{completed}")
        }
        NoiseMatrix::Banded { coefficients } => {
            format!("all releases are functions of C x + noise, C with {} bands{restarts}", coefficients.len())
        }
        NoiseMatrix::Blt { buffer_decay, .. } => {
            format!("all releases are functions of C x + noise, C a BLT with {} buffers{restarts}", buffer_decay.len())
        }
    }
}
