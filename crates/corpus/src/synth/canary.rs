//! Secrets planted in chosen users, to see whether a model learns them.
//!
//! Follows Ramaswamy et al. 2020 (arXiv:2009.10031, section 4): a canary is a sequence of words drawn uniformly, shared by
//! some users, each of whom has it several times among their posts. Any canary of a seed can be made, so that those that
//! were not planted serve as the reference in which a planted one is ranked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    draw::{Draws, Purpose},
    lexicon,
};

/// The number and kind of canaries to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canaries {
    /// Different canaries.
    pub count: u32,
    /// Users that share one.
    pub users: u32,
    /// Copies in each of these users.
    pub repeats: u32,
    /// Words of a canary; the paper has 5.
    pub words: u32,
}

/// A planted sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Canary {
    /// The words.
    pub text: String,
    /// The users who hold the canary.
    pub holders: Vec<u64>,
}

impl Canaries {
    /// A canary of this seed, planted or not; its holders are filled in by the crowd.
    #[must_use]
    pub fn canary(&self, seed: u64, index: u32) -> Canary {
        let mut draws = Draws::new(seed, Purpose::Canary, index.into());
        let words = lexicon::get().plain_words();
        let text: Vec<&str> = (0..self.words).map(|_| draws.pick(&words)).collect();
        Canary { text: text.join(" "), holders: Vec::new() }
    }

    /// Which canaries each holder has.
    pub(super) fn holders(&self, seed: u64, users: u64) -> BTreeMap<u64, Vec<u32>> {
        let mut holders: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for index in 0..self.count {
            for user in self.holders_of(seed, users, index) {
                holders.entry(user).or_default().push(index);
            }
        }
        holders
    }

    /// Distinct users by Floyd's method, which needs as many draws as there are holders.
    fn holders_of(&self, seed: u64, users: u64, index: u32) -> BTreeSet<u64> {
        let mut draws = Draws::new(seed, Purpose::Holders, index.into());
        let mut chosen = BTreeSet::new();
        for last in users.saturating_sub(self.users.into())..users {
            let user = draws.below_wide(last + 1);
            if !chosen.insert(user) {
                chosen.insert(last);
            }
        }
        chosen
    }
}
