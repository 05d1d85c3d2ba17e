//! The lists of [`super::words`] as one language: forms of verbs, made-up words for the long tail, Zipf tables.
//!
//! The language never changes: made-up words come from a fixed stream, so a vocabulary fits every crowd.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use super::{
    draw::{Draws, Purpose, Zipf},
    words,
};

/// Made-up nouns of each topic, beyond the real ones.
const MADE_UP_NOUNS: usize = 160;
/// Made-up words of other kinds.
const MADE_UP_NAMES: usize = 600;
const MADE_UP_PLACES: usize = 400;
const MADE_UP_ADJECTIVES: usize = 500;

pub(super) struct Verb {
    pub(super) base: &'static str,
    pub(super) third: &'static str,
    pub(super) past: &'static str,
    pub(super) ing: &'static str,
    pub(super) preposition: Option<&'static str>,
}

#[derive(Clone, Copy)]
pub(super) struct Noun {
    pub(super) one: &'static str,
    pub(super) many: &'static str,
}

/// A piece of a fixed phrase.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    Word(&'static str),
    Noun,
    Plural,
    Adjective,
    Name,
    Place,
    Time,
    Number,
}

/// Words of one kind with the law of their ranks.
pub(super) struct Ranked<T> {
    pub(super) items: Vec<T>,
    pub(super) law: Zipf,
}

impl<T> Ranked<T> {
    fn new(items: Vec<T>, exponent: f64) -> Self {
        let law = Zipf::new(items.len(), exponent);
        Self { items, law }
    }

    /// One by its frequency.
    pub(super) fn draw(&self, draws: &mut Draws) -> &T {
        &self.items[self.law.draw(draws)]
    }

    /// One by its frequency after `context`: every context has a ranking of its own, so a word says much about the next.
    pub(super) fn after(&self, context: &str, draws: &mut Draws) -> &T {
        let turn = context.bytes().fold(7_u32, |h, b| h.wrapping_mul(31).wrapping_add(b.into())) as usize;
        let front = self.items.len().min(16);
        let rank = self.law.draw(draws);
        let index = if rank < front { (rank + turn) % front } else { rank };
        &self.items[index]
    }
}

/// The whole language.
pub(super) struct Lexicon {
    pub(super) topics: Vec<Ranked<Noun>>,
    pub(super) verbs: Ranked<Verb>,
    pub(super) adjectives: Ranked<&'static str>,
    pub(super) adverbs: Ranked<&'static str>,
    pub(super) names: Vec<&'static str>,
    pub(super) places: Vec<&'static str>,
    pub(super) times: Ranked<Vec<&'static str>>,
    pub(super) phrases: Ranked<Vec<Piece>>,
    pub(super) openers: Ranked<Vec<&'static str>>,
    pub(super) fillers: Vec<&'static str>,
    pub(super) emoji: Vec<&'static str>,
    pub(super) slang: BTreeMap<&'static str, &'static str>,
}

/// The language; made when it is first asked for, in some milliseconds.
pub(super) fn get() -> &'static Lexicon {
    static LEXICON: LazyLock<Lexicon> = LazyLock::new(Lexicon::make);
    &LEXICON
}

impl Lexicon {
    fn make() -> Self {
        let mut maker = Maker::new();
        let topics = words::TOPICS.iter().map(|(_, nouns)| {
            let real: Vec<&str> = nouns.split_whitespace().collect();
            let made_up = (0..MADE_UP_NOUNS).map(|_| maker.word());
            let all: Vec<Noun> = real.into_iter().chain(made_up).map(noun).collect();
            Ranked::new(all, 1.3)
        });
        let topics = topics.collect();
        let names = words::NAMES.split_whitespace().chain((0..MADE_UP_NAMES).map(|_| maker.word())).collect();
        let places = (0..MADE_UP_PLACES).map(|_| maker.word()).collect();
        let adjectives = words::ADJECTIVES.split_whitespace().chain((0..MADE_UP_ADJECTIVES).map(|_| maker.word()));
        Self {
            topics,
            verbs: Ranked::new(words::VERBS.split(" | ").filter_map(verb).collect(), 0.9),
            adjectives: Ranked::new(adjectives.collect(), 1.1),
            adverbs: Ranked::new(words::ADVERBS.split_whitespace().collect(), 1.0),
            names,
            places,
            times: Ranked::new(words::TIMES.split(" | ").map(several).collect(), 1.0),
            phrases: Ranked::new(words::PHRASES.split(" | ").map(phrase).collect(), 0.8),
            openers: Ranked::new(words::OPENERS.split(" | ").map(several).collect(), 1.0),
            fillers: words::FILLERS.split(" | ").map(str::trim).collect(),
            emoji: words::EMOJI.split_whitespace().collect(),
            slang: words::SLANG.split(" | ").filter_map(|pair| pair.trim().split_once(' ')).collect(),
        }
    }

    /// The names that are not made up.
    pub(super) fn real_names(&self) -> &[&'static str] {
        &self.names[..self.names.len() - MADE_UP_NAMES]
    }

    /// Every word that can be typed without a typo, apart from what the grammar writes itself.
    pub(super) fn known(&self) -> BTreeSet<&'static str> {
        self.by_rank().into_iter().collect()
    }

    /// The same, more frequent words before rarer ones; some stand twice.
    pub(super) fn by_rank(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = Vec::new();
        all.extend(self.verbs.items.iter().flat_map(|verb| [verb.base, verb.past, verb.third, verb.ing]));
        all.extend(self.slang.values().copied().chain(self.fillers.iter().copied()).chain(self.emoji.iter().copied()));
        for rank in 0..MADE_UP_NOUNS + 20 {
            let nouns = self.topics.iter().filter_map(|topic| topic.items.get(rank));
            all.extend(nouns.flat_map(|noun| [noun.one, noun.many]));
            all.extend(self.adjectives.items.iter().skip(rank * 4).take(4).copied());
            all.extend(self.names.iter().skip(rank * 4).take(4).copied());
            all.extend(self.places.iter().skip(rank * 3).take(3).copied());
        }
        all
    }

    /// Frequent words of the language, each a single token: what canaries are made of.
    pub(super) fn plain_words(&self) -> Vec<&'static str> {
        let nouns = self.topics.iter().flat_map(|topic| topic.items.iter().take(40).map(|noun| noun.one));
        let all: BTreeSet<&'static str> = nouns.chain(self.verbs.items.iter().map(|verb| verb.base)).collect();
        all.into_iter().collect()
    }
}

fn several(text: &'static str) -> Vec<&'static str> {
    text.split_whitespace().collect()
}

fn verb(text: &'static str) -> Option<Verb> {
    let mut forms = text.split_whitespace();
    let mut next = || forms.next();
    let (base, third, past, ing) = (next()?, next()?, next()?, next()?);
    Some(Verb { base, third, past, ing, preposition: next().filter(|p| *p != "-") })
}

fn noun(one: &'static str) -> Noun {
    let many = match one.as_bytes() {
        [.., b's' | b'x'] | [.., b'c' | b's', b'h'] => format!("{one}es"),
        [.., before, b'y'] if !b"aeiou".contains(before) => format!("{}ies", &one[..one.len() - 1]),
        _ => format!("{one}s"),
    };
    Noun { one, many: many.leak() }
}

fn phrase(text: &'static str) -> Vec<Piece> {
    let piece = |word| match word {
        "{noun}" => Piece::Noun,
        "{plural}" => Piece::Plural,
        "{adjective}" => Piece::Adjective,
        "{name}" => Piece::Name,
        "{place}" => Piece::Place,
        "{time}" => Piece::Time,
        "{number}" => Piece::Number,
        word => Piece::Word(word),
    };
    text.split_whitespace().map(piece).collect()
}

/// Makes up words, each once.
struct Maker {
    draws: Draws,
    made: BTreeSet<String>,
}

impl Maker {
    fn new() -> Self {
        let lists = [words::VERBS, words::ADJECTIVES, words::NAMES, words::PHRASES, words::SLANG, words::TIMES];
        let real = lists.into_iter().chain(words::TOPICS.iter().map(|(_, nouns)| *nouns));
        let made = real.flat_map(str::split_whitespace).map(str::to_owned).collect();
        Self { draws: Draws::new(0, Purpose::Lexicon, 0), made }
    }

    /// A new word of two or three syllables. Made once for the whole program and kept for its life.
    fn word(&mut self) -> &'static str {
        let parts = |list: &'static str| list.split_whitespace().collect::<Vec<_>>();
        let (onsets, nuclei, codas) = (parts(words::ONSETS), parts(words::NUCLEI), parts(words::CODAS));
        loop {
            let mut word = String::new();
            for _ in 0..2 + self.draws.below(2) {
                word.push_str(self.draws.pick(&onsets));
                word.push_str(self.draws.pick(&nuclei));
            }
            let coda = self.draws.pick(&codas);
            word.push_str(if coda == "-" { "" } else { coda });
            if self.made.insert(word.clone()) {
                return word.leak();
            }
        }
    }
}
