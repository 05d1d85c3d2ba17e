//! Fine-tuning without forgetting: how a device trains on its owner's language and keeps the general one (Popov et al. 2018, sections 2.1
//! and 2.2).
//!
//! | the paper                       | here                                                                                  |
//! |---------------------------------|---------------------------------------------------------------------------------------|
//! | on-device re-training, lambda 1 | nothing of this: plain local training                                                 |
//! | random rehearsal                | [`FineTune::Rehearsal`]: of all that is read, a share `1 - lambda` is general text    |
//! | learning without forgetting     | [`FineTune::SoftLabels`]: the incoming model `theta_g` gives soft labels, equations 1 and 2 ([`crate::learner::Learner::soft_trainer`]) |
//!
//! The general text is public and the same for all devices. It is a part of the plan of local training, so it travels with the task and is
//! covered by the task's digest. Each device reads a part of it, from a place that is drawn. A device whose owner typed nothing trains
//! on nothing: general text alone would be an update all the same, and it is to be zero.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::learner::{
    Learner, Post,
    examples::Examples,
    language::{LanguageLearner, posts},
};

/// The least share of somebody's own text: a device reads at most a hundred times of what was typed.
pub const LEAST_LAMBDA: f32 = 0.01;

/// How a device fine-tunes without forgetting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FineTune {
    /// General text is mixed in.
    Rehearsal {
        /// The share of the owner's text in all that is read.
        lambda: f32,
        /// The general text that is mixed in.
        general: GeneralText,
    },
    /// What the model predicts as it came counts as well as what was typed.
    SoftLabels {
        /// The share of what was typed in each label.
        lambda: f32,
    },
}

impl FineTune {
    /// The share of what was typed.
    #[must_use]
    pub const fn lambda(&self) -> f32 {
        match self {
            Self::Rehearsal { lambda, .. } | Self::SoftLabels { lambda } => *lambda,
        }
    }

    /// How many times the memory of a trainer it takes: soft labels need a second model, and room for what it predicts.
    #[must_use]
    pub const fn trainers(&self) -> u64 {
        match self {
            Self::Rehearsal { .. } => 1,
            Self::SoftLabels { .. } => 3,
        }
    }
}

/// Public text, as the ids of posts without BOS and EOS. Shared, never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneralText(Arc<Vec<Vec<u32>>>);

impl GeneralText {
    /// General text of these posts; empty ones are left out.
    #[must_use]
    pub fn new(posts: impl IntoIterator<Item = Vec<u32>>) -> Self {
        Self(Arc::new(posts.into_iter().filter(|post| !post.is_empty()).collect()))
    }

    /// The posts.
    #[must_use]
    pub fn posts(&self) -> &[Vec<u32>] {
        &self.0
    }

    /// How many tokens are predicted in it: those of the posts and their ends.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.0.iter().map(|post| post.len() + 1).sum()
    }

    /// The largest id; none where there is no text.
    #[must_use]
    pub fn largest_id(&self) -> Option<u32> {
        self.0.iter().flatten().copied().max()
    }
}

impl Serialize for GeneralText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for GeneralText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<Vec<u32>>::deserialize(from).map(Self::new)
    }
}

/// General text, read for a learner, and how much of it goes with somebody's own.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    lambda: f64,
    general: Vec<Examples>,
}

impl Rehearsal {
    /// General text as a learner's examples.
    #[must_use]
    pub fn new(learner: &dyn Learner, lambda: f32, text: &GeneralText) -> Self {
        let read = |ids: &Vec<u32>| {
            let mut examples = Examples::new(learner.schema());
            learner.read(Post { ids, labels: &[] }, &mut examples);
            examples
        };
        Self { lambda: f64::from(lambda), general: text.posts().iter().map(read).collect() }
    }

    /// Somebody's examples with general posts between theirs, evenly: at any place, about a share `lambda` of what came before is their
    /// own. The general posts follow one another from one that is drawn, and start again after the last.
    #[must_use]
    pub fn mix(&self, own: &Examples, drawn: u64) -> Examples {
        let own_posts = posts(own);
        let wanted = libm::round(own.len() as f64 * (1.0 - self.lambda) / self.lambda) as usize;
        let start = (drawn % self.general.len().max(1) as u64) as usize;
        let mut general = self.general.iter().cycle().skip(start);
        let mut mixed = Examples::new(&LanguageLearner::schema_with(own.features().len()));
        mixed.set_features(own.features());
        let (mut read, mut rehearsed, mut next) = (0, 0, 0);
        while next < own_posts.len() || rehearsed < wanted {
            let behind = (read as u128) * (wanted as u128) <= (rehearsed as u128) * (own.len() as u128);
            if next < own_posts.len() && (behind || rehearsed >= wanted) {
                mixed.extend_from(own, own_posts[next].clone());
                read += own_posts[next].len();
                next += 1;
            } else {
                let Some(post) = general.next() else { break };
                let part = post.len().min(wanted - rehearsed);
                mixed.extend_from(post, 0..part);
                rehearsed += part;
            }
        }
        mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lm::{
        model::config::{Cell, ModelConfig, Token},
        vocabulary::BOS,
    };

    fn learner() -> LanguageLearner {
        let config = ModelConfig {
            token: Token::Word,
            vocabulary: 300,
            embedding: 4,
            cell: Cell::Lstm,
            layers: 1,
            hidden: 4,
            recurrent_projection: None,
            dense: None,
            tied: false,
            output_bias: false,
            unit_norm: false,
            dropout: None,
            user_context: Some(1),
        };
        LanguageLearner::new(&config, 4, 5).unwrap()
    }

    /// Own words are below 200, general ones from there on.
    fn own(posts: usize) -> Examples {
        let mut own = Examples::new(learner().schema());
        own.set_features(&[0.5]);
        (0..posts as u32).for_each(|n| LanguageLearner::push(&[10 + n, 11 + n, 12 + n], &mut own));
        own
    }

    fn rehearsal(lambda: f32) -> Rehearsal {
        let text = GeneralText::new((0..30).map(|n| (0..1 + n % 5).map(|i| 200 + n + i).collect()));
        Rehearsal::new(&learner(), lambda, &text)
    }

    /// Positions of own examples among those that are mixed.
    fn own_of(mixed: &Examples) -> Vec<(u32, u32)> {
        let mut ours = false;
        let pairs = mixed.ids(0).iter().zip(mixed.ids(1));
        pairs
            .filter(|(input, target)| {
                if **input == BOS {
                    ours = **target < 200;
                }
                ours
            })
            .map(|(input, target)| (*input, *target))
            .collect()
    }

    #[test]
    fn the_share_of_general_text_is_one_less_lambda_and_own_text_is_all_there_in_order() {
        for lambda in [0.05, 0.25, 0.5, 0.75, 0.99] {
            for drawn in [0, 7, 29, u64::MAX] {
                let own = own(50);
                let mixed = rehearsal(lambda).mix(&own, drawn);
                let ours = own_of(&mixed);
                assert_eq!(ours, own.ids(0).iter().copied().zip(own.ids(1).iter().copied()).collect::<Vec<_>>());
                let share = ours.len() as f32 / mixed.len() as f32;
                assert!((share - lambda).abs() < 0.5 / own.len() as f32, "{share} instead of {lambda}");
                assert_eq!(mixed.features(), [0.5]);
            }
        }
    }

    /// It is mixed, not appended: in each quarter there is some of both.
    #[test]
    fn general_posts_stand_between_own_posts() {
        let mut mixed = rehearsal(0.5).mix(&own(50), 3);
        let whole = mixed.len();
        for part in (1..=4).rev().map(|quarter| quarter * whole / 4) {
            mixed.truncate(part);
            let share = own_of(&mixed).len() as f64 / mixed.len() as f64;
            assert!((0.4..0.6).contains(&share), "{share} of the first {part}");
        }
    }

    #[test]
    fn where_general_text_begins_is_drawn() {
        let of = |drawn| rehearsal(0.5).mix(&own(5), drawn);
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(31), "there are thirty posts");
    }

    #[test]
    fn general_text_travels_as_ids_and_empty_posts_stay_at_home() {
        let text = GeneralText::new([vec![5, 6], vec![], vec![7]]);
        assert_eq!((text.posts().len(), text.tokens(), text.largest_id()), (2, 5, Some(7)));
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(json, "[[5,6],[7]]");
        assert_eq!(serde_json::from_str::<GeneralText>(&json).unwrap(), text);
    }
}
