//! What is happening in a demo, in a few sentences: for the terminal and for the page.

use console::about::{About, Part};
use federated::numbers::{counted, grouped};
use ledger::statement::rounded_up;

use crate::{Costs, Settings, costs::Cost};

/// What a demo with these settings says of itself.
#[must_use]
pub fn about(settings: &Settings, costs: &Costs) -> About {
    About {
        title: "What is happening here".to_owned(),
        lead: format!(
            "A server and {} train one small model that predicts the next word, for {}. All of it runs in one process on this machine. The users \
             are synthetic; everything else is what a real server and real devices do.",
            counted(settings.devices, "device"),
            counted(settings.rounds, "round")
        ),
        parts: parts(settings),
        notes: vec![why_epsilon_is_large(costs), what_to_expect(), what_is_real()],
    }
}

fn parts(settings: &Settings) -> Vec<Part> {
    let Settings { goal, asked, min_separation, max_participations, noise_multiplier, .. } = settings;
    let part = |name: &str, does: String| Part { name: name.to_owned(), does };
    vec![
        part(
            "server",
            format!(
                "asks up to {} per round, waits for {}, and publishes the next model.",
                counted(*asked, "device"),
                counted(*goal, "report")
            ),
        ),
        part(
            "devices",
            format!(
                "each has one person's messages, trains the model on them for a moment, and sends only what changed. After a report it rests for {}, and it takes part at most {} ({}).",
                counted(*min_separation, "round"),
                counted(*max_participations, "time"),
                "server and device both count"
            ),
        ),
        part(
            "secure aggregation",
            "devices add random masks that cancel in the sum: the server learns the sum of a round, and nobody's own update.".to_owned(),
        ),
        part("clip", "each device shortens its update to a fixed length, so that nobody can change the sum by more than that.".to_owned()),
        part(
            "noise",
            format!(
                "the server adds random noise to the sum, {} times as large as what one device may contribute, and only then uses it.",
                short(*noise_multiplier)
            ),
        ),
        part("ledger", "every release is entered in a signed chain before anybody sees it; epsilon is computed from that chain alone.".to_owned()),
        part("dashboard", "shows what is released and, to operators, counts and times that are outside the guarantee.".to_owned()),
    ]
}

fn why_epsilon_is_large(costs: &Costs) -> String {
    let Costs { demo, million } = costs;
    let Cost { devices, goal, max_participations, .. } = *demo;
    let adds_up = match max_participations {
        1 => String::new(),
        times => format!("; and each device takes part up to {}, which adds up", counted(times, "time")),
    };
    let twice = if max_participations > 1 { ", and nobody takes part twice" } else { "" };
    format!(
        "Why epsilon is large here: the whole plan has epsilon {} (at delta {:e}), which {}. With {} it cannot be small and \
         the model good. Noise must hide each device among those of its round, but with more of it in a sum of {} the model would learn nothing{adds_up}. \
         The same plan with {}, so the same rounds and the same noise in the average, has epsilon {} (at delta {:e}): each round has {}, so the \
         noise can be {} times as large as here{twice}.",
        rounded_up(demo.epsilon),
        demo.delta,
        strength(demo.epsilon),
        counted(devices, "device"),
        counted(goal, "report"),
        counted(million.devices, "device"),
        rounded_up(million.epsilon),
        million.delta,
        counted(million.goal, "report"),
        grouped((million.noise_multiplier / demo.noise_multiplier).round() as u64),
    )
}

/// What an epsilon is worth. Above 10 hardly anything is ruled out (Ponomareva et al. 2023, section 5.2).
#[must_use]
pub fn strength(epsilon: f64) -> &'static str {
    match epsilon {
        e if e > 10.0 => "protects nobody in practice",
        e if e > 1.0 => "is a weak guarantee",
        _ => "is a strong guarantee",
    }
}

/// Two decimals at most.
fn short(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn what_to_expect() -> String {
    "What to expect: in the first ten to twenty rounds the accuracy jumps up and down. The model learns first which words are frequent, and often predicts \
     one of them everywhere. Then it rises. With few devices or rounds it can end below its best."
        .to_owned()
}

fn what_is_real() -> String {
    "What is real: the noise is drawn from the operating system and is secret, the ledger is signed and can be verified, the devices refuse what their owners \
     would not want, and the keys of the noise are destroyed when the plan is done. The accuracy is measured on other synthetic users, who have no device."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p23_the_text_has_the_computed_numbers_and_says_what_they_are() {
        let settings = Settings::new(200, 300).unwrap();
        let costs = Costs::of(&settings).unwrap();
        let said = about(&settings, &costs);
        let why = &said.notes[0];
        let (demo, million) = (rounded_up(costs.demo.epsilon), rounded_up(costs.million.epsilon));
        assert!(why.contains(&format!("has epsilon {demo} (at delta 1e-3), which protects nobody")), "{why}");
        assert!(why.contains(&format!("has epsilon {million} (at delta 1e-7)")), "{why}");
        assert!(why.contains("With 200 devices it cannot be small") && why.contains("1,000,000 devices"), "{why}");
        let noise = said.parts.iter().find(|part| part.name == "noise").unwrap();
        assert!(noise.does.contains(" 0.5 times as large"), "{}", noise.does);
        assert_eq!(said.parts.len(), 7);
        assert!(why.contains("each round has 2,564 reports, so"), "{why}");
    }

    #[test]
    fn p23_participations_add_up_only_where_there_are_several() {
        let why = |devices, rounds| {
            let settings = Settings::new(devices, rounds).unwrap();
            (settings.max_participations, about(&settings, &Costs::of(&settings).unwrap()).notes.swap_remove(0))
        };
        let (once, said) = why(40, 1);
        assert!(once == 1 && !said.contains("adds up") && !said.contains("twice"), "{once}: {said}");
        let (often, said) = why(40, 30);
        assert!(said.contains(&format!("takes part up to {often} times, which adds up")), "{said}");
        assert!(said.contains("nobody takes part twice"), "{said}");
    }
}
