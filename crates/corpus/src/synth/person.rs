//! The profile of a synthetic user: topics, friends, habits, how much they write.

use super::{
    Dialect, SynthPlan,
    draw::{Draws, Purpose},
    grammar::{Kind, Speaker},
    lexicon::{self, Piece},
    typing,
};

/// The names of the features of synthetic users; see [`super::Crowd::features`].
pub const FEATURES: [&str; 8] =
    ["slang", "emoji", "typos", "fillers", "exclamations", "capitals", "full_stops", "apostrophes"];

// The highest rates, which those of messages have.
const MOST_SLANG: u32 = 500;
const MOST_EMOJI: u32 = 350;
const MOST_TYPOS: u32 = 40;
const MOST_FILLERS: u32 = 220;
const MOST_EXCLAMATIONS: u32 = 350;

/// A post, and what it is about.
pub(super) struct Said {
    pub(super) text: String,
    pub(super) topic: usize,
    /// Whether one of its sentences is a question.
    pub(super) asks: bool,
}

/// Somebody. Numbers that end in `_rate` are per thousand.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) topics: [usize; 3],
    pub(super) friends: [&'static str; 4],
    pub(super) places: [&'static str; 3],
    /// What they say more often than others do.
    pub(super) phrases: [&'static [Piece]; 4],
    pub(super) adjectives: [&'static str; 5],
    pub(super) openers: [&'static [&'static str]; 2],
    pub(super) fillers: [&'static str; 2],
    pub(super) emoji: [&'static str; 3],
    pub(super) phrase_rate: u32,
    pub(super) opener_rate: u32,
    pub(super) filler_rate: u32,
    pub(super) emoji_rate: u32,
    pub(super) slang_rate: u32,
    pub(super) typo_rate: u32,
    pub(super) contraction_rate: u32,
    pub(super) capitals: bool,
    pub(super) full_stops: bool,
    pub(super) apostrophes: bool,
    pub(super) exclamation_rate: u32,
    pub(super) posts: u32,
}

impl Person {
    /// The user with a number.
    pub(super) fn meet(plan: &SynthPlan, user: u64) -> Self {
        let draws = &mut Draws::of_user(plan, Purpose::Person, user, 0);
        let lexicon = lexicon::get();
        let informal = plan.dialect == Dialect::Informal;
        let topics = lexicon.topics.len() as u32;
        // A rate between two bounds, one pair for each dialect.
        let rate = |draws: &mut Draws, general: [u32; 2], message: [u32; 2]| {
            let [low, high] = if informal { message } else { general };
            low + draws.below(high - low + 1)
        };
        Self {
            topics: std::array::from_fn(|_| draws.below(topics) as usize),
            friends: std::array::from_fn(|_| {
                let names = if draws.chance(600) { lexicon.real_names() } else { &lexicon.names };
                draws.pick(names)
            }),
            places: std::array::from_fn(|_| draws.pick(&lexicon.places)),
            phrases: std::array::from_fn(|_| draws.one_of(&lexicon.phrases.items).as_slice()),
            adjectives: std::array::from_fn(|_| *lexicon.adjectives.draw(draws)),
            openers: std::array::from_fn(|_| draws.one_of(&lexicon.openers.items).as_slice()),
            fillers: std::array::from_fn(|_| draws.pick(&lexicon.fillers)),
            emoji: std::array::from_fn(|_| draws.pick(&lexicon.emoji)),
            phrase_rate: rate(draws, [80, 200], [200, 450]),
            opener_rate: rate(draws, [60, 220], [50, 250]),
            filler_rate: rate(draws, [0, 5], [20, MOST_FILLERS]),
            emoji_rate: rate(draws, [0, 8], [20, MOST_EMOJI]),
            slang_rate: rate(draws, [0, 4], [0, MOST_SLANG]),
            typo_rate: rate(draws, [0, 6], [2, MOST_TYPOS]),
            contraction_rate: rate(draws, [200, 500], [600, 950]),
            capitals: draws.chance(if informal { 350 } else { 990 }),
            full_stops: draws.chance(if informal { 300 } else { 995 }),
            apostrophes: draws.chance(if informal { 550 } else { 990 }),
            exclamation_rate: rate(draws, [10, 80], [50, MOST_EXCLAMATIONS]),
            posts: posts(plan.posts_per_user, draws),
        }
    }

    /// What they wrote in one post.
    pub(super) fn post(&self, plan: &SynthPlan, user: u64, post: u32) -> Said {
        let mut draws = Draws::of_user(plan, Purpose::Post, user, post);
        // Between half and one and a half times the mean, about evenly.
        let mean = plan.words_per_post;
        let wanted = (mean / 2 + draws.below(mean + 1)).max(2) as usize;
        let topic = match draws.below(10) {
            0..5 => self.topics[0],
            5..8 => self.topics[1],
            8 => self.topics[2],
            _ => draws.below(lexicon::get().topics.len() as u32) as usize,
        };
        let mut said = Said { text: String::with_capacity(wanted * 6), topic, asks: false };
        let mut written = 0;
        let mut sentence = Vec::with_capacity(32);
        // A sentence more than needed overshoots by half of its length on average; so stop as much earlier.
        while written == 0 || written + 5 < wanted {
            sentence.clear();
            let kind = Speaker { person: self, topic, draws: &mut draws }.sentence(&mut sentence);
            written += sentence.len();
            said.asks |= kind == Kind::Question;
            typing::write(self, kind, &sentence, &mut draws, &mut said.text);
        }
        said
    }

    /// Their habits, in the order of [`FEATURES`]: from -1 for who never does it to 1 for who does it as much as anybody may.
    pub(super) fn features(&self) -> [f32; FEATURES.len()] {
        let rate = |rate: u32, most: u32| 2.0 * rate as f32 / most as f32 - 1.0;
        let habit = |has: bool| if has { 1.0 } else { -1.0 };
        [
            rate(self.slang_rate, MOST_SLANG),
            rate(self.emoji_rate, MOST_EMOJI),
            rate(self.typo_rate, MOST_TYPOS),
            rate(self.filler_rate, MOST_FILLERS),
            rate(self.exclamation_rate, MOST_EXCLAMATIONS),
            habit(self.capitals),
            habit(self.full_stops),
            habit(self.apostrophes),
        ]
    }
}

/// How many posts: most people write little and some much. The mean of these factors is 1.
fn posts(mean: u32, draws: &mut Draws) -> u32 {
    const FACTORS_PER_MILLE: [u32; 10] = [250, 350, 450, 550, 700, 850, 1000, 1250, 1700, 2900];
    let factor = draws.pick(&FACTORS_PER_MILLE);
    let spread = 800 + draws.below(401);
    let posts = u64::from(mean) * u64::from(factor) * u64::from(spread) / 1_000_000;
    posts.max(1) as u32
}
