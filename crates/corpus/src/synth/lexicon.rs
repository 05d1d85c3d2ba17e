//! Builds one language from the lists of [`super::words`]: verb forms, rare words for the long tail, Zipf tables.
//!
//! The language never changes: rarer words come from a fixed stream, so a vocabulary fits every crowd.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use super::{
    draw::{Draws, Purpose, Zipf},
    words,
};

/// Rarer nouns of each topic, beyond those of the lists.
const RARER_NOUNS: usize = 180;
/// Rarer words of other kinds.
const RARER_NAMES: usize = 600;
const RARER_PLACES: usize = 400;
const RARER_ADJECTIVES: usize = 500;

#[derive(Clone, Copy)]
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
    /// The same as `one` where there is no plural.
    pub(super) many: &'static str,
}

/// What people speak of, and what they do with it.
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) verbs: Ranked<Verb>,
    pub(super) nouns: Ranked<Noun>,
}

/// A piece of a fixed phrase.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece {
    Word(&'static str),
    Noun,
    Plural,
    Adjective,
    Name,
    Place,
    Soon,
    Before,
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

    /// Draws an entry with probability proportional to its frequency.
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
    pub(super) topics: Vec<Topic>,
    pub(super) verbs: Ranked<Verb>,
    pub(super) adjectives: Ranked<&'static str>,
    pub(super) states: Ranked<&'static str>,
    pub(super) adverbs: Ranked<&'static str>,
    pub(super) names: Vec<&'static str>,
    pub(super) places: Vec<&'static str>,
    pub(super) past_times: Ranked<Vec<&'static str>>,
    pub(super) coming_times: Ranked<Vec<&'static str>>,
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
        let verbs: Vec<Verb> = words::VERBS.split(" | ").filter_map(verb).collect();
        let mut maker = Maker::new();
        let topics = words::TOPICS.iter().map(|topic| {
            let own = topic.verbs.split_whitespace();
            let own = own.filter_map(|base| verbs.iter().find(|verb| verb.base == base).copied()).collect();
            let things: Vec<Noun> = topic.nouns.split_whitespace().map(noun).collect();
            let ends = list(words::COMPOUNDS);
            let rarer: Vec<Noun> = (0..RARER_NOUNS).map(|_| noun(maker.compound(&things, &ends))).collect();
            let nouns = Ranked::new([things, rarer].concat(), 1.35);
            Topic { name: topic.name, verbs: Ranked::new(own, 0.7), nouns }
        });
        let topics: Vec<Topic> = topics.collect();
        let things: Vec<Noun> = topics.iter().flat_map(|topic| topic.nouns.items.iter().take(12).copied()).collect();
        let ends = list(words::QUALITIES);
        let rarer = (0..RARER_ADJECTIVES).map(|_| maker.compound(&things, &ends));
        let adjectives = list(words::ADJECTIVES).into_iter().chain(rarer).collect();
        let rarer = (0..RARER_NAMES).map(|_| maker.name(words::NAME_ENDS));
        let names = list(words::NAMES).into_iter().chain(rarer).collect();
        let places = (0..RARER_PLACES).map(|_| maker.name(words::PLACE_ENDS)).collect();
        Self {
            topics,
            verbs: Ranked::new(verbs, 0.9),
            adjectives: Ranked::new(adjectives, 1.3),
            states: Ranked::new(list(words::STATES), 1.0),
            adverbs: Ranked::new(list(words::ADVERBS), 1.0),
            names,
            places,
            past_times: Ranked::new(words::PAST_TIMES.split(" | ").map(list).collect(), 1.0),
            coming_times: Ranked::new(words::COMING_TIMES.split(" | ").map(list).collect(), 1.0),
            phrases: Ranked::new(words::PHRASES.split(" | ").map(phrase).collect(), 0.8),
            openers: Ranked::new(words::OPENERS.split(" | ").map(list).collect(), 1.0),
            fillers: words::FILLERS.split(" | ").map(str::trim).collect(),
            emoji: list(words::EMOJI),
            slang: words::SLANG.split(" | ").filter_map(|pair| pair.trim().split_once(' ')).collect(),
        }
    }

    /// The names that are not made up.
    pub(super) fn real_names(&self) -> &[&'static str] {
        &self.names[..self.names.len() - RARER_NAMES]
    }

    /// Every word that can be typed without a typo, apart from what the grammar writes itself; more frequent words before rarer
    /// ones. Some stand twice.
    #[cfg(test)]
    pub(super) fn by_rank(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = Vec::new();
        all.extend(self.verbs.items.iter().flat_map(|verb| [verb.base, verb.past, verb.third, verb.ing]));
        all.extend(self.states.items.iter().copied());
        all.extend(self.slang.values().copied().chain(self.fillers.iter().copied()).chain(self.emoji.iter().copied()));
        for rank in 0..RARER_NOUNS + 20 {
            let nouns = self.topics.iter().filter_map(|topic| topic.nouns.items.get(rank));
            all.extend(nouns.flat_map(|noun| [noun.one, noun.many]));
            all.extend(self.adjectives.items.iter().skip(rank * 4).take(4).copied());
            all.extend(self.names.iter().skip(rank * 4).take(4).copied());
            all.extend(self.places.iter().skip(rank * 3).take(3).copied());
        }
        all
    }

    /// Words of the lists, each a single token: what canaries are made of.
    pub(super) fn plain_words(&self) -> Vec<&'static str> {
        let nouns = self.topics.iter().flat_map(|topic| topic.nouns.items.iter().take(14).map(|noun| noun.one));
        let all: BTreeSet<&'static str> = nouns.chain(self.verbs.items.iter().map(|verb| verb.base)).collect();
        all.into_iter().collect()
    }
}

fn list(text: &'static str) -> Vec<&'static str> {
    text.split_whitespace().collect()
}

fn verb(text: &'static str) -> Option<Verb> {
    let mut forms = text.split_whitespace();
    let mut next = || forms.next();
    let (base, third, past, ing) = (next()?, next()?, next()?, next()?);
    Some(Verb { base, third, past, ing, preposition: next().filter(|p| *p != "-") })
}

/// A noun as the lists have it; see [`words::Topic::nouns`].
fn noun(text: &'static str) -> Noun {
    if let Some(one) = text.strip_suffix('~') {
        return Noun { one, many: one };
    }
    if let Some((one, many)) = text.split_once('/') {
        return Noun { one, many };
    }
    let many = match text.as_bytes() {
        [.., b's' | b'x'] | [.., b'c' | b's', b'h'] => format!("{text}es"),
        [.., before, b'y'] if !b"aeiou".contains(before) => format!("{}ies", &text[..text.len() - 1]),
        _ => format!("{text}s"),
    };
    Noun { one: text, many: many.leak() }
}

fn phrase(text: &'static str) -> Vec<Piece> {
    let piece = |word| match word {
        "{noun}" => Piece::Noun,
        "{plural}" => Piece::Plural,
        "{adjective}" => Piece::Adjective,
        "{name}" => Piece::Name,
        "{place}" => Piece::Place,
        "{soon}" => Piece::Soon,
        "{before}" => Piece::Before,
        "{number}" => Piece::Number,
        word => Piece::Word(word),
    };
    text.split_whitespace().map(piece).collect()
}

/// Makes the rarer words, each once. They are made once for the whole program and kept for its life.
struct Maker {
    draws: Draws,
    made: BTreeSet<String>,
}

impl Maker {
    fn new() -> Self {
        let lists = [words::VERBS, words::ADJECTIVES, words::STATES, words::NAMES, words::PHRASES, words::SLANG];
        let real = lists.into_iter().chain(words::TOPICS.iter().map(|topic| topic.nouns));
        let made = real.flat_map(str::split_whitespace).map(str::to_owned).collect();
        Self { draws: Draws::new(0, Purpose::Lexicon, 0), made }
    }

    /// A thing with an end that makes another word of it.
    fn compound(&mut self, things: &[Noun], ends: &[&str]) -> &'static str {
        loop {
            let word = format!("{}{}", self.draws.pick(things).one, self.draws.pick(ends));
            if let Some(word) = self.keep(word) {
                return word;
            }
        }
    }

    /// A name of one or two syllables and one of these ends.
    fn name(&mut self, ends: &'static str) -> &'static str {
        let (onsets, nuclei, ends) = (list(words::ONSETS), list(words::NUCLEI), list(ends));
        loop {
            let mut word = String::new();
            for _ in 0..1 + self.draws.below(2) {
                word.push_str(self.draws.pick(&onsets));
                word.push_str(self.draws.pick(&nuclei));
            }
            word.push_str(self.draws.pick(&ends));
            if let Some(word) = self.keep(word) {
                return word;
            }
        }
    }

    fn keep(&mut self, word: String) -> Option<&'static str> {
        self.made.insert(word.clone()).then(|| &*word.leak())
    }
}
