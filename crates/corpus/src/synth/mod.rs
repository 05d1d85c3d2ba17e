//! Synthetic users with their own topics, friends, slang, typos and habits, over one shared language.
//!
//! Everything is a pure function of a [`SynthPlan`] and the number of a user: nobody is stored, any user of a population of
//! 10^8 is made on demand without the others, and the same plan gives the same text on every platform (ChaCha20 streams,
//! integer draws, `libm` where a power is needed).
//!
//! | module      | what it is                                                                     |
//! |-------------|--------------------------------------------------------------------------------|
//! | `words`     | the lists of words, written by hand                                            |
//! | `lexicon`   | the lists as one language: forms, rarer words for the long tail, Zipf tables   |
//! | `grammar`   | sentences: phrases, clauses, what a word is likely to be followed by           |
//! | `person`    | who somebody is: topics, friends, habits, and what of it models may know       |
//! | `typing`    | how a sentence leaves somebody's fingers: slang, typos, capitals, emoji        |
//! | `canary`    | secrets planted in chosen users, to see whether a model learns them            |
//! | `lines`     | the crowd as JSON lines                                                        |
//! | `public`    | the words of the language that everybody may know, by how frequent they are    |
//! | `draw`      | random draws that repeat                                                       |

mod canary;
mod draw;
mod grammar;
mod lexicon;
mod lines;
mod person;
mod public;
mod typing;
mod words;

use std::collections::BTreeMap;

pub use canary::{Canaries, Canary};
pub use lines::LineFields;
pub use person::FEATURES;
pub use public::vocabulary;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{
    draw::{Draws, Purpose},
    person::{Person, Said},
};
use crate::labels::Labels;

/// The dialect of a synthetic crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Whole sentences with capitals and full stops; a stand-in for public text.
    #[default]
    General,
    /// Messages: short, with slang, emoji and typos; a stand-in for what is typed on phones.
    Informal,
}

/// The parameters of a synthetic crowd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SynthPlan {
    /// The seed of users and text.
    pub seed: u64,
    /// How many people there are.
    pub users: u64,
    /// The dialect.
    pub dialect: Dialect,
    /// Posts of a user, on average; the number differs widely between users.
    pub posts_per_user: u32,
    /// Words of a post, on average.
    pub words_per_post: u32,
    /// Planted canaries, if any.
    pub canaries: Option<Canaries>,
}

impl SynthPlan {
    /// A crowd with the usual amounts of text: 40 posts of 12 words.
    #[must_use]
    pub const fn new(seed: u64, users: u64, dialect: Dialect) -> Self {
        Self { seed, users, dialect, posts_per_user: 40, words_per_post: 12, canaries: None }
    }
}

/// Why a plan cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SynthError {
    /// A number outside its range.
    #[error("{what} must be from {least} to {most}, got {got}")]
    OutOfRange {
        /// The name of the number.
        what: &'static str,
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
        /// The value received.
        got: u64,
    },
}

/// A post of a crowd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The post's text.
    pub text: String,
    /// Its topic, and the label of a question. They lie here, so that who reads only texts pays nothing for them.
    labels: [u32; 2],
    /// Number of its labels.
    labelled: usize,
}

impl Post {
    /// The post's labels: ids of [`labels`]. A canary has none.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels[..self.labelled]
    }
}

impl From<Said> for Post {
    fn from(said: Said) -> Self {
        let question = lexicon::get().topics.len() as u32;
        Self { text: said.text, labels: [said.topic as u32, question], labelled: 1 + usize::from(said.asks) }
    }
}

/// What the labels of posts are called: the topics, and `question` for a post that asks something.
///
/// # Panics
/// Never: the topics have names of their own.
#[must_use]
pub fn labels() -> Labels {
    let topics = lexicon::get().topics.iter().map(|topic| topic.name);
    Labels::new(topics.chain(["question"]).map(str::to_owned).collect()).expect("topics have names of their own")
}

/// The most users of a crowd.
pub const MOST_USERS: u64 = 1_000_000_000_000;
/// The most pairs of a canary and its holder, which are kept in memory.
const MOST_HOLDERS: u64 = 10_000_000;

/// People on demand.
#[derive(Debug, Clone)]
pub struct Crowd {
    plan: SynthPlan,
    /// Which canaries a user holds; everybody else holds none.
    holders: BTreeMap<u64, Vec<u32>>,
}

impl Crowd {
    /// Checks a plan.
    ///
    /// # Errors
    /// When a number in it is out of range.
    pub fn new(plan: SynthPlan) -> Result<Self, SynthError> {
        in_range("the number of users", plan.users, 1, MOST_USERS)?;
        in_range("posts per user", plan.posts_per_user.into(), 1, 1_000_000)?;
        in_range("words per post", plan.words_per_post.into(), 2, 100_000)?;
        let mut holders = BTreeMap::new();
        if let Some(canaries) = &plan.canaries {
            in_range("the holders of a canary", canaries.users.into(), 1, plan.users)?;
            in_range("canaries times holders", u64::from(canaries.count) * u64::from(canaries.users), 1, MOST_HOLDERS)?;
            in_range("repetitions of a canary", canaries.repeats.into(), 1, 1_000_000)?;
            in_range("words of a canary", canaries.words.into(), 2, 100)?;
            holders = canaries.holders(plan.seed, plan.users);
        }
        Ok(Self { plan, holders })
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &SynthPlan {
        &self.plan
    }

    /// The key of a user; it sorts as the number does.
    #[must_use]
    pub fn key(&self, user: u64) -> String {
        format!("synth-{user:012}")
    }

    /// Everything a user typed, oldest first. A number outside the population belongs to nobody.
    #[must_use]
    pub fn posts(&self, user: u64) -> Vec<String> {
        self.labelled_posts(user).into_iter().map(|post| post.text).collect()
    }

    /// The same, with what each post is about.
    #[must_use]
    pub fn labelled_posts(&self, user: u64) -> Vec<Post> {
        if user >= self.plan.users {
            return Vec::new();
        }
        let person = Person::meet(&self.plan, user);
        let mut posts: Vec<Post> = (0..person.posts).map(|post| person.post(&self.plan, user, post).into()).collect();
        self.plant(user, &mut posts);
        posts
    }

    /// What is known of a user besides what they type: how much they are given to each of [`FEATURES`], from -1 to 1. Of
    /// nobody it is 0.
    #[must_use]
    pub fn features(&self, user: u64) -> [f32; FEATURES.len()] {
        if user >= self.plan.users {
            return [0.0; FEATURES.len()];
        }
        Person::meet(&self.plan, user).features()
    }

    /// How many posts a user typed: much cheaper than typing them.
    #[must_use]
    pub fn number_of_posts(&self, user: u64) -> u64 {
        if user >= self.plan.users {
            return 0;
        }
        let repeats = self.plan.canaries.as_ref().map_or(0, |canaries| u64::from(canaries.repeats));
        let planted = self.holders.get(&user).map_or(0, |held| held.len() as u64 * repeats);
        u64::from(Person::meet(&self.plan, user).posts) + planted
    }

    /// One post of a user, counted from 0 as in [`Self::posts`]; nothing if there is no such post.
    #[must_use]
    pub fn post(&self, user: u64, post: u64) -> Option<String> {
        self.labelled_post(user, post).map(|post| post.text)
    }

    /// One post of a user, with what it is about; nothing if there is no such post.
    #[must_use]
    pub fn labelled_post(&self, user: u64, post: u64) -> Option<Post> {
        if user >= self.plan.users || self.holders.contains_key(&user) {
            // Who holds a canary has it anywhere among the other posts.
            return self.labelled_posts(user).into_iter().nth(usize::try_from(post).ok()?);
        }
        let person = Person::meet(&self.plan, user);
        let post = u32::try_from(post).ok().filter(|post| *post < person.posts)?;
        Some(person.post(&self.plan, user, post).into())
    }

    /// The canaries that are planted, with their holders.
    #[must_use]
    pub fn canaries(&self) -> Vec<Canary> {
        let Some(canaries) = &self.plan.canaries else { return Vec::new() };
        let mut all: Vec<Canary> = (0..canaries.count).map(|i| canaries.canary(self.plan.seed, i)).collect();
        for (user, held) in &self.holders {
            for i in held {
                all[*i as usize].holders.push(*user);
            }
        }
        all
    }

    fn plant(&self, user: u64, posts: &mut Vec<Post>) {
        let (Some(canaries), Some(held)) = (&self.plan.canaries, self.holders.get(&user)) else { return };
        let mut draws = Draws::of_user(&self.plan, Purpose::Planting, user, 0);
        for i in held {
            let text = canaries.canary(self.plan.seed, *i).text;
            for _ in 0..canaries.repeats {
                let at = draws.below(posts.len() as u32 + 1) as usize;
                posts.insert(at, Post { text: text.clone(), labels: [0; 2], labelled: 0 });
            }
        }
    }
}

const fn in_range(what: &'static str, got: u64, least: u64, most: u64) -> Result<(), SynthError> {
    if got >= least && got <= most { Ok(()) } else { Err(SynthError::OutOfRange { what, least, most, got }) }
}

#[cfg(test)]
mod tests;
