//! How a synthetic user types a sentence: contractions, slang, typos, capitals, punctuation, emoji.

use super::{draw::Draws, grammar::Kind, lexicon, person::Person};

/// Two words that become one.
const CONTRACTIONS: [(&str, &str, &str); 20] = [
    ("i", "am", "i'm"),
    ("you", "are", "you're"),
    ("we", "are", "we're"),
    ("they", "are", "they're"),
    ("it", "is", "it's"),
    ("he", "is", "he's"),
    ("she", "is", "she's"),
    ("that", "is", "that's"),
    ("i", "will", "i'll"),
    ("we", "will", "we'll"),
    ("you", "will", "you'll"),
    ("could", "not", "couldn't"),
    ("should", "not", "shouldn't"),
    ("was", "not", "wasn't"),
    ("is", "not", "isn't"),
    ("are", "not", "aren't"),
    ("were", "not", "weren't"),
    ("will", "not", "won't"),
    ("would", "not", "wouldn't"),
    ("can", "not", "can't"),
];

/// Appends a sentence to a post.
pub(super) fn write(person: &Person, kind: Kind, words: &[&'static str], draws: &mut Draws, text: &mut String) {
    if !text.is_empty() {
        text.push(' ');
    }
    let start = text.len();
    if draws.chance(person.filler_rate) {
        text.push_str(draws.pick(&person.fillers));
        text.push(' ');
    }
    let mut at = 0;
    while let Some(first) = words.get(at) {
        if at > 0 {
            text.push(' ');
        }
        let contraction = words.get(at + 1).and_then(|second| contraction(first, second));
        if let Some(short) = contraction.filter(|_| draws.chance(person.contraction_rate)) {
            word(person, short, draws, text);
            at += 2;
        } else {
            word(person, first, draws, text);
            at += 1;
        }
        let links = matches!(words.get(at), Some(&("but" | "because" | "so" | "while")));
        if links && person.full_stops && at > 3 {
            text.push(',');
        }
    }
    if person.capitals {
        capitalise(text, start);
    }
    end(person, kind, draws, text);
}

fn contraction(first: &str, second: &str) -> Option<&'static str> {
    CONTRACTIONS.iter().find(|(a, b, _)| *a == first && *b == second).map(|(_, _, short)| *short)
}

fn word(person: &Person, word: &'static str, draws: &mut Draws, text: &mut String) {
    if person.slang_rate > 0
        && let Some(short) = lexicon::get().slang.get(word)
        && draws.chance(person.slang_rate)
    {
        return text.push_str(short);
    }
    let start = text.len();
    match word {
        "i" if person.capitals => text.push('I'),
        "kind-of" => text.push_str("kind of"),
        word if person.capitals && word.starts_with("i'") => {
            text.push('I');
            text.push_str(&word[1..]);
        }
        word => text.push_str(word),
    }
    if !person.apostrophes && word.contains('\'') {
        let plain = text.split_off(start).replace('\'', "");
        text.push_str(&plain);
    }
    if person.capitals && (person.friends.contains(&word) || person.places.contains(&word)) {
        capitalise(text, start);
    }
    if draws.chance(person.typo_rate) {
        typo(start, draws, text);
    }
}

/// Swaps, drops or doubles a letter; words of ASCII letters only.
fn typo(start: usize, draws: &mut Draws, text: &mut String) {
    let length = text.len() - start;
    if length < 3 || !text.is_char_boundary(start) || !text[start..].bytes().all(|b| b.is_ascii_lowercase()) {
        return;
    }
    let word = text.split_off(start);
    let at = 1 + draws.below(length as u32 - 2) as usize;
    let (before, after) = word.split_at(at);
    let (letter, rest) = after.split_at(1);
    text.push_str(before);
    match draws.below(3) {
        0 => text.push_str(rest),
        1 => text.extend([letter, letter, rest]),
        _ => {
            let (next, rest) = rest.split_at(1);
            text.extend([next, letter, rest]);
        }
    }
}

fn capitalise(text: &mut String, at: usize) {
    if let Some(first) = text.get(at..=at) {
        let upper = first.to_ascii_uppercase();
        text.replace_range(at..=at, &upper);
    }
}

fn end(person: &Person, kind: Kind, draws: &mut Draws, text: &mut String) {
    if kind == Kind::Question {
        text.push('?');
    } else if draws.chance(person.exclamation_rate) {
        text.push_str(if person.full_stops { "!" } else { "!!" });
    } else if person.full_stops {
        text.push('.');
    }
    if draws.chance(person.emoji_rate) {
        text.push(' ');
        text.push_str(draws.pick(&person.emoji));
    }
}
