//! What each chart of the page means, in one plain sentence.

use report::board::{Chart, Group, charts};

/// The charts that pages show, each with its sentence. What users did exactly has none here: it is not told of real devices (rule P12).
pub(super) fn explained() -> Vec<Chart> {
    let shown = charts().into_iter().filter(|chart| chart.group != Group::Training);
    shown.map(|chart| Chart { note: meaning(&chart.key).unwrap_or_default().to_owned(), ..chart }).collect()
}

fn meaning(key: &str) -> Option<&'static str> {
    MEANINGS.iter().find(|(known, _)| *known == key).map(|(_, words)| *words)
}

const MEANINGS: [(&str, &str); 18] = [
    ("accuracy_top1", "How often the word that the model suggests first is the one that is typed next."),
    ("accuracy_top3", "How often one of the three suggested words is the one that is typed next."),
    ("accuracy_in_vocabulary", "The same as top-1 accuracy, counted over words that the model knows."),
    (
        "perplexity",
        "How surprised the model is by the next word: as if it guessed among so many words. Less is better.",
    ),
    ("head10", "How much the model repeats itself: predictions that are among the 10 most frequent words."),
    ("head50", "How much the model repeats itself: predictions that are among the 50 most frequent words."),
    ("head100", "How much the model repeats itself: predictions that are among the 100 most frequent words."),
    ("recall_top1", "How many of a post's tags are found with one suggestion."),
    ("recall_top3", "How many of a post's tags are found with three suggestions."),
    ("recall_top5", "How many of a post's tags are found with five suggestions."),
    (
        "headline_by_devices",
        "The same measured by devices on their own text, released with noise, so that it may jump and even pass 100 %.",
    ),
    ("epsilon", "What is guaranteed: the bound on what anybody can learn about one device."),
    ("epsilon_so_far", "What the releases so far cost. It is not the guarantee, which is the whole plan's."),
    (
        "epsilon_if_secret",
        "What the same would cost with secret noise. The noise is simulated, so nothing is guaranteed.",
    ),
    (
        "projected_epsilon",
        "What a large cohort would cost with the same noise in its average. It is a projection, not a guarantee.",
    ),
    ("clip_norm", "The longest update that one device can send; longer ones are scaled down to it."),
    ("tracked_clip_norm", "The clip norm that follows the devices' updates, estimated with noise."),
    ("fraction_below_clip", "The share of devices whose update was shorter than the clip norm, released with noise."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chart_says_what_it_means() {
        let charts = explained();
        assert!(charts.len() >= 10);
        for chart in charts {
            assert!(
                chart.note.ends_with('.'),
                "crates/console/src/dashboard/meanings.rs has no sentence for {}",
                chart.key
            );
        }
    }
}
