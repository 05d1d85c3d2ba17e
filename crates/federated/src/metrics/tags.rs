//! How well a model predicts the tags of held-out users' posts ([`device::learner::tags`], SO-LR of Andrew et al. 2021): the share of the
//! true tags among its first predictions.

use lm::metrics::{Counts, TOPS};

use super::{
    prediction::accuracy,
    registry::{Measures, Metric},
};
use crate::numbers;

/// What an evaluation of a model of tags measures.
pub static TAGS_FOUND: Measures = Measures {
    name: "tags",
    metrics: &[&RECALL_TOP5, &RECALL_TOP3, &RECALL_TOP1],
    of_last_model: &[],
    headline: &RECALL_TOP5,
    beside: &[&RECALL_TOP1],
    does: |recall| {
        let found = numbers::accuracy(recall);
        format!("finds {found} of the tags of held-out users' posts among its first five guesses")
    },
    targets: "tags of held-out users' posts",
    example: "post",
};

/// The share of the true tags that are among the first five predictions.
pub static RECALL_TOP5: Metric = Metric {
    name: "recall_top5",
    label: "top-5 recall",
    column: "recall, top 5",
    tag: Some("recall/top5"),
    ..accuracy(|counts| recall(counts, 5))
};

/// Among the first three.
pub static RECALL_TOP3: Metric = Metric {
    name: "recall_top3",
    label: "top-3 recall",
    column: "recall, top 3",
    tag: Some("recall/top3"),
    ..accuracy(|counts| recall(counts, 3))
};

/// The first alone.
pub static RECALL_TOP1: Metric = Metric {
    name: "recall_top1",
    label: "top-1 recall",
    column: "recall, top 1",
    tag: Some("recall/top1"),
    ..accuracy(|counts| recall(counts, 1))
};

/// None without tags. A tag is counted as a word is.
fn recall(counts: &Counts, top: usize) -> Option<f64> {
    let list = TOPS.iter().position(|known| *known == top)?;
    (counts.words.targets > 0).then(|| counts.words.hits[list] as f64 / counts.words.targets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Measured;

    #[test]
    fn the_share_of_tags_among_the_first_predictions() {
        let mut counts = Counts::default();
        [Some(0), Some(2), Some(4), Some(9), None].iter().for_each(|rank| counts.words.add(*rank, -1.0));
        let found = Measured::of(&TAGS_FOUND, &counts);
        let recalls = [&RECALL_TOP5, &RECALL_TOP3, &RECALL_TOP1].map(|metric| found.get(metric));
        assert_eq!((recalls, found.headline()), ([Some(0.6), Some(0.4), Some(0.2)], 0.6));
        let line = serde_json::to_string(&found).unwrap();
        assert_eq!(line, r#"{"recall_top5":0.6,"recall_top3":0.4,"recall_top1":0.2}"#);
        assert_eq!(serde_json::from_str::<Measured>(&line).unwrap(), found);
        assert_eq!(Measured::of(&TAGS_FOUND, &Counts::default()).headline(), 0.0);
        let said = (TAGS_FOUND.does)(0.612);
        assert_eq!(said, "finds 61.20 % of the tags of held-out users' posts among its first five guesses");
    }

    #[test]
    fn a_line_that_is_not_whole_says_what_of_its_own_is_missing() {
        let of = |text: &str| serde_json::from_str::<Measured>(text).unwrap_err().to_string();
        assert!(of(r#"{"recall_top5":0.6,"recall_top1":0.2}"#).starts_with("missing field `recall_top3`"));
        assert!(of(r#"{"accuracy_top1":0.6}"#).starts_with("missing field `accuracy_top3`"));
        assert!(of("{}").starts_with("missing field `accuracy_top1`"));
        let both = of(r#"{"recall_top5":0.6,"recall_top3":0.4,"recall_top1":0.2,"perplexity":2.0}"#);
        assert!(both.starts_with("unknown field `perplexity`"), "{both}");
    }
}
