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
const QUESTIONS: [&str; 5] = ["where", "when", "why", "how", "what"];
const NUMBERS: [&str; 8] = ["2", "5", "10", "15", "20", "30", "100", "3"];

impl Speaker<'_> {
    /// Says one sentence.
    pub(super) fn sentence(&mut self, out: &mut Words) -> Kind {
        let lexicon = lexicon::get();
        if self.draws.chance(self.person.phrase_rate) {
            self.phrase(lexicon, out);
            let asks = matches!(out.first(), Some(&("how" | "what" | "are" | "can" | "do" | "did" | "where")));
            return if asks { Kind::Question } else { Kind::Statement };
        }
        if self.draws.chance(100) {
            self.question(lexicon, out);
            return Kind::Question;
        }
        if self.draws.chance(self.person.opener_rate) {
            out.extend(lexicon.openers.draw(self.draws));
        }
        self.clause(lexicon, out);
        if self.draws.chance(300) {
            out.push(self.draws.pick(&LINKS));
            self.clause(lexicon, out);
        }
        if self.draws.chance(250) {
            out.extend(lexicon.times.after(out.last().copied().unwrap_or_default(), self.draws));
        }
        Kind::Statement
    }

    fn phrase(&mut self, lexicon: &'static Lexicon, out: &mut Words) {
        for piece in lexicon.phrases.draw(self.draws) {
            match *piece {
                Piece::Word(word) => out.push(word),
                Piece::Noun => out.push(self.noun(lexicon, "the").one),
                Piece::Plural => out.push(self.noun(lexicon, "the").many),
                Piece::Adjective => out.push(*lexicon.adjectives.draw(self.draws)),
                Piece::Name => out.push(self.friend()),
                Piece::Place => out.push(self.place()),
                Piece::Time => out.extend(lexicon.times.draw(self.draws)),
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
        let verb = lexicon.verbs.after(subject, self.draws);
        out.push(if auxiliary == "are" { verb.ing } else { verb.base });
        self.object(lexicon, verb, out);
    }

    fn clause(&mut self, lexicon: &'static Lexicon, out: &mut Words) {
        let agreement = self.subject(lexicon, out);
        let subject = out.last().copied().unwrap_or_default();
        let be = match agreement {
            Agreement::I => "am",
            Agreement::Third => "is",
            Agreement::Other => "are",
        };
        match self.draws.below(20) {
            0..5 => return self.description(lexicon, be, agreement, out),
            5..9 => {
                out.push(self.draws.pick(&MODALS));
                if self.draws.chance(150) {
                    out.push("not");
                }
                self.verb(lexicon, subject, |verb| verb.base, out);
            }
            9..14 => self.verb(lexicon, subject, |verb| verb.past, out),
            14..17 if agreement == Agreement::Third => self.verb(lexicon, subject, |verb| verb.third, out),
            14..17 => self.verb(lexicon, subject, |verb| verb.base, out),
            17 => {
                out.extend([be, "going", "to"]);
                self.verb(lexicon, "going", |verb| verb.base, out);
            }
            18 => {
                out.extend(if agreement == Agreement::Third { ["has", "to"] } else { ["have", "to"] });
                self.verb(lexicon, "have", |verb| verb.base, out);
            }
            _ => {
                out.push(be);
                self.verb(lexicon, "is", |verb| verb.ing, out);
            }
        }
        self.company(out);
    }

    fn subject(&mut self, lexicon: &'static Lexicon, out: &mut Words) -> Agreement {
        match self.draws.below(100) {
            0..38 => out.push("i"),
            38..50 => out.push("we"),
            50..60 => out.push("you"),
            60..66 => out.push("they"),
            66..72 => out.push("he"),
            72..78 => out.push("she"),
            78..86 => out.push("it"),
            86..92 => out.push(self.friend()),
            _ => {
                out.push(self.draws.pick(&["the", "my", "this"]));
                out.push(self.noun(lexicon, "my").one);
            }
        }
        match out.last() {
            Some(&"i") => Agreement::I,
            Some(&("we" | "you" | "they")) => Agreement::Other,
            _ => Agreement::Third,
        }
    }

    /// "is so tired", "was the best dinner in ...".
    fn description(&mut self, lexicon: &'static Lexicon, be: &'static str, agreement: Agreement, out: &mut Words) {
        let was = if agreement == Agreement::Other { "were" } else { "was" };
        out.push(if self.draws.chance(350) { was } else { be });
        if self.draws.chance(100) {
            out.push("not");
        }
        if self.draws.chance(450) {
            out.push(lexicon.adverbs.after(be, self.draws));
        }
        let before = out.last().copied().unwrap_or_default();
        out.push(lexicon.adjectives.after(before, self.draws));
        if self.draws.chance(150) {
            out.push("about");
            self.thing(lexicon, "about", out);
        }
    }

    fn verb(&mut self, lexicon: &'static Lexicon, after: &str, form: fn(&Verb) -> &'static str, out: &mut Words) {
        let verb = if self.draws.chance(700) {
            lexicon.verbs.after(after, self.draws)
        } else {
            lexicon.verbs.draw(self.draws)
        };
        out.push(form(verb));
        self.object(lexicon, verb, out);
    }

    fn object(&mut self, lexicon: &'static Lexicon, verb: &Verb, out: &mut Words) {
        out.extend(verb.preposition);
        match self.draws.below(10) {
            0 => out.push(self.draws.pick(&["it", "them", "you", "me", "him", "her"])),
            1 => out.push(self.friend()),
            _ => self.thing(lexicon, verb.base, out),
        }
    }

    /// A noun with what stands before it.
    fn thing(&mut self, lexicon: &'static Lexicon, after: &str, out: &mut Words) {
        out.push(self.draws.pick(&DETERMINERS));
        let mut context = after;
        if self.draws.chance(280) {
            let adjective = *lexicon.adjectives.draw(self.draws);
            out.push(adjective);
            context = adjective;
        }
        let noun = self.noun(lexicon, context);
        let several = matches!(out.last(), Some(&"some")) || (matches!(out.last(), Some(&"the")) && self.draws.chance(200));
        out.push(if several { noun.many } else { noun.one });
    }

    fn noun(&mut self, lexicon: &'static Lexicon, context: &str) -> Noun {
        *lexicon.topics[self.topic].after(context, self.draws)
    }

    /// "with Anna", "at the bar", "in Brendal".
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
