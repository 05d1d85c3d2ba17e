//! Sentences: fixed phrases and clauses. What follows a word depends on it: verbs have their objects and prepositions,
//! subjects their verbs, adjectives their nouns.

use super::{
    draw::Draws,
    lexicon::{self, Lexicon, Noun, Piece, Verb},
    person::Person,
};

/// How a sentence ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Statement,
    Question,
}

/// Who agrees with which form of the verb.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Agreement {
    I,
    Third,
    Other,
}

/// The grammatical person of a clause.
#[derive(Clone, Copy)]
struct Subject {
    agreement: Agreement,
    is_person: bool,
}

/// Which times go with a clause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tense {
    Past,
    Coming,
}

/// Somebody about to say something on a topic.
pub(super) struct Speaker<'a> {
    pub(super) person: &'a Person,
    pub(super) topic: usize,
    pub(super) draws: &'a mut Draws,
}

type Words = Vec<&'static str>;

const MODALS: [&str; 7] = ["will", "can", "should", "would", "could", "might", "must"];
const DETERMINERS: [&str; 10] = ["the", "the", "the", "a", "a", "my", "your", "this", "that", "some"];
const LINKS: [&str; 8] = ["and", "but", "because", "so", "when", "if", "and", "while"];
const QUESTIONS: [&str; 4] = ["where", "when", "why", "how"];
const NUMBERS: [&str; 8] = ["2", "5", "10", "15", "20", "30", "100", "3"];

impl Speaker<'_> {
    /// Says one sentence.
    pub(super) fn sentence(&mut self, out: &mut Words) -> Kind {
        let lexicon = lexicon::get();
        let kind = if self.draws.chance(self.person.phrase_rate) {
            self.phrase(lexicon, out);
            let asks = matches!(out.first(), Some(&("how" | "what" | "are" | "can" | "do" | "did" | "where")));
            if asks { Kind::Question } else { Kind::Statement }
        } else if self.draws.chance(100) {
            self.question(lexicon, out);
            Kind::Question
        } else {
            self.statement(lexicon, out);
            Kind::Statement
        };
        articles(out);
        kind
    }

    fn phrase(&mut self, lexicon: &'static Lexicon, out: &mut Words) {
        let phrase = if self.draws.chance(400) {
            self.draws.pick(&self.person.phrases)
        } else {
            lexicon.phrases.draw(self.draws).as_slice()
        };
        for piece in phrase {
            match *piece {
                Piece::Word(word) => out.push(word),
                Piece::Noun => out.push(self.noun(lexicon, "the").one),
                Piece::Plural => out.push(self.noun(lexicon, "the").many),
                Piece::Adjective => out.push(self.adjective(lexicon)),
                Piece::Name => out.push(self.friend()),
                Piece::Place => out.push(self.place()),
                Piece::Soon => out.extend(lexicon.coming_times.draw(self.draws)),
                Piece::Before => out.extend(lexicon.past_times.draw(self.draws)),
                Piece::Number => out.push(self.draws.pick(&NUMBERS)),
            }
        }
    }

    fn question(&mut self, lexicon: &'static Lexicon, out: &mut Words) {
        if self.draws.chance(500) {
            out.push(self.draws.pick(&QUESTIONS));
        }
        let (auxiliary, subject) = self.draws.pick(&[("do", "you"), ("did", "you"), ("can", "we"), ("are", "you")]);
        out.extend([auxiliary, subject]);
        let verb = self.verb_after(lexicon, subject);
        out.push(if auxiliary == "are" { verb.ing } else { verb.base });
        self.object(lexicon, verb, out);
    }

    fn statement(&mut self, lexicon: &'static Lexicon, out: &mut Words) {
        if self.draws.chance(self.person.opener_rate) {
            if self.draws.chance(600) {
                out.extend(self.draws.pick(&self.person.openers));
            } else {
                out.extend(lexicon.openers.draw(self.draws));
            }
        }
        let mut tense = self.clause(lexicon, out);
        if self.draws.chance(300) {
            out.push(self.draws.pick(&LINKS));
            tense = self.clause(lexicon, out);
        }
        if self.draws.chance(250) {
            let times = if tense == Tense::Past { &lexicon.past_times } else { &lexicon.coming_times };
            out.extend(times.after(out.last().copied().unwrap_or_default(), self.draws));
        }
    }

    fn clause(&mut self, lexicon: &'static Lexicon, out: &mut Words) -> Tense {
        let Subject { agreement, is_person } = self.subject(lexicon, out);
        let subject = out.last().copied().unwrap_or_default();
        let be = match agreement {
            Agreement::I => "am",
            Agreement::Third => "is",
            Agreement::Other => "are",
        };
        // Things are mostly described; people do something.
        let described = if is_person { 220 } else { 800 };
        if self.draws.chance(described) {
            return self.description(lexicon, be, Subject { agreement, is_person }, out);
        }
        let mut tense = Tense::Coming;
        match self.draws.below(15) {
            0..4 => {
                out.push(self.draws.pick(&MODALS));
                if self.draws.chance(150) {
                    out.push("not");
                }
                self.verb(lexicon, subject, |verb| verb.base, out);
            }
            4..9 => {
                self.verb(lexicon, subject, |verb| verb.past, out);
                tense = Tense::Past;
            }
            9..12 if agreement == Agreement::Third => self.verb(lexicon, subject, |verb| verb.third, out),
            9..12 => self.verb(lexicon, subject, |verb| verb.base, out),
            12 => {
                out.extend([be, "going", "to"]);
                self.verb(lexicon, "going", |verb| verb.base, out);
            }
            13 => {
                out.extend(if agreement == Agreement::Third { ["has", "to"] } else { ["have", "to"] });
                self.verb(lexicon, "have", |verb| verb.base, out);
            }
            _ => {
                out.push(be);
                self.verb(lexicon, "is", |verb| verb.ing, out);
            }
        }
        self.company(out);
        tense
    }

    fn subject(&mut self, lexicon: &'static Lexicon, out: &mut Words) -> Subject {
        let (agreement, is_person, word) = match self.draws.below(100) {
            0..38 => (Agreement::I, true, "i"),
            38..50 => (Agreement::Other, true, "we"),
            50..60 => (Agreement::Other, true, "you"),
            60..66 => (Agreement::Other, true, "they"),
            66..72 => (Agreement::Third, true, "he"),
            72..78 => (Agreement::Third, true, "she"),
            78..84 => (Agreement::Third, false, "it"),
            84..90 => (Agreement::Third, true, self.friend()),
            _ => {
                out.push(self.draws.pick(&["the", "my", "this"]));
                (Agreement::Third, false, self.noun(lexicon, "my").one)
            }
        };
        out.push(word);
        Subject { agreement, is_person }
    }

    /// "is so tired", "was not really cheap".
    fn description(&mut self, lexicon: &'static Lexicon, be: &'static str, of: Subject, out: &mut Words) -> Tense {
        let past = self.draws.chance(350);
        let was = if of.agreement == Agreement::Other { "were" } else { "was" };
        out.push(if past { was } else { be });
        if self.draws.chance(100) {
            out.push("not");
        }
        if self.draws.chance(450) {
            out.push(lexicon.adverbs.after(be, self.draws));
        }
        let before = out.last().copied().unwrap_or_default();
        out.push(if of.is_person { *lexicon.states.after(before, self.draws) } else { self.adjective(lexicon) });
        if of.is_person && self.draws.chance(150) {
            out.push("about");
            self.thing(lexicon, "about", out);
        }
        if past { Tense::Past } else { Tense::Coming }
    }

    fn verb(&mut self, lexicon: &'static Lexicon, after: &str, form: fn(&Verb) -> &'static str, out: &mut Words) {
        let verb = self.verb_after(lexicon, after);
        out.push(form(verb));
        self.object(lexicon, verb, out);
    }

    /// What one does with the things of the topic, or what follows this word, or anything.
    fn verb_after(&mut self, lexicon: &'static Lexicon, after: &str) -> &'static Verb {
        match self.draws.below(10) {
            0..5 => lexicon.topics[self.topic].verbs.draw(self.draws),
            5..8 => lexicon.verbs.after(after, self.draws),
            _ => lexicon.verbs.draw(self.draws),
        }
    }

    fn object(&mut self, lexicon: &'static Lexicon, verb: &Verb, out: &mut Words) {
        out.extend(verb.preposition);
        match self.draws.below(12) {
            0 => out.push(self.draws.pick(&["it", "them", "you", "me", "him", "her"])),
            _ => self.thing(lexicon, verb.base, out),
        }
    }

    /// A noun with what stands before it.
    fn thing(&mut self, lexicon: &'static Lexicon, after: &str, out: &mut Words) {
        let mut determiner = self.draws.pick(&DETERMINERS);
        let adjective = self.draws.chance(280).then(|| self.adjective(lexicon));
        let noun = self.noun(lexicon, adjective.unwrap_or(after));
        if determiner == "a" && noun.one == noun.many {
            determiner = "some";
        }
        out.push(determiner);
        out.extend(adjective);
        let several = determiner == "some" || (determiner == "the" && self.draws.chance(200));
        out.push(if several { noun.many } else { noun.one });
    }

    /// One that they like, or any.
    fn adjective(&mut self, lexicon: &'static Lexicon) -> &'static str {
        if self.draws.chance(350) {
            self.draws.pick(&self.person.adjectives)
        } else {
            lexicon.adjectives.draw(self.draws)
        }
    }

    fn noun(&mut self, lexicon: &'static Lexicon, context: &str) -> Noun {
        *lexicon.topics[self.topic].nouns.after(context, self.draws)
    }

    /// "with Anna", "in Brendale", "at home".
    fn company(&mut self, out: &mut Words) {
        match self.draws.below(20) {
            0 | 1 => out.extend(["with", self.friend()]),
            2 => out.extend(["in", self.place()]),
            3 => out.extend(["at", "home"]),
            _ => {}
        }
    }

    fn friend(&mut self) -> &'static str {
        self.draws.pick(&self.person.friends)
    }

    fn place(&mut self) -> &'static str {
        self.draws.pick(&self.person.places)
    }
}

/// Writes `an` for `a` before a vowel.
fn articles(words: &mut Words) {
    for i in 1..words.len() {
        if words[i - 1] == "a" && words[i].starts_with(['a', 'e', 'i', 'o', 'u']) {
            words[i - 1] = "an";
        }
    }
}
