//! Splits text into words or characters: the only place where the rules are defined.
//!
//! Rules have a name and a version ([`Rules`]); both are stored with every vocabulary and every corpus, and a changed rule
//! gets a new version. They are the "minimal normalisation" that McMahan et al. 2018 (arXiv:1710.06963, appendix B) speak
//! of and do not spell out.
//!
//! # `words-1`
//!
//! | what                       | becomes                                                                             |
//! |----------------------------|-------------------------------------------------------------------------------------|
//! | white space, control       | nothing; it separates                                                               |
//! | letters, digits and marks  | one lower-case word: `Hello` -> `hello`, `2ND` -> `2nd`                              |
//! | an apostrophe inside       | part of the word, always as `'`: `don’t` -> `don't`                                 |
//! | digits only                | `<num>`; with `.`, `,` or `:` between digits too: `1,000.50`, `12:30`               |
//! | web and mail addresses     | `<url>`: what begins with `http://`, `https://` or `www.`, and `name@host.tld`       |
//! | an emoji                   | one token; joined emoji stay together, skin tones and variation selectors go         |
//! | an emoticon between spaces | one token without nose, in lower case: `:-D` -> `:d`                                 |
//! | any other sign             | a token; a run of one sign counts once: `!!!` -> `!`                                 |
//! | two or more full stops, `…`| `...`                                                                               |
//! | curly quotes, long dashes  | `"`, `'` and `-`                                                                    |
//! | `<num>`, `<url>`, `<unk>`  | themselves, so that text printed by [`Tokenizer::join`] reads back as the same tokens |
//!
//! Hyphens separate: `well-known` is three tokens. Scripts that are written without spaces come out as one word per run;
//! they need rules of their own.
//!
//! # `characters-1`
//!
//! Every character is a token, as it is: case matters. `\r\n` and a lone `\r` become `\n`; other control characters except
//! tab are dropped.
//!
//! Neither set of rules can produce `<bos>` or `<eos>`: nobody types the beginning of a sequence.

mod signs;
mod words;

use serde::{Deserialize, Serialize};

/// A number of any length.
pub const NUMBER: &str = "<num>";
/// A web or mail address.
pub const ADDRESS: &str = "<url>";

/// Which rules, in which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rules {
    /// Lower-case words and signs.
    #[serde(rename = "words-1")]
    Words1,
    /// Characters as they are.
    #[serde(rename = "characters-1")]
    Characters1,
}

impl Rules {
    /// The name that files carry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Words1 => "words-1",
            Self::Characters1 => "characters-1",
        }
    }
}

impl std::fmt::Display for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Cuts text into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokenizer {
    rules: Rules,
}

impl Tokenizer {
    /// A tokenizer by these rules.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// Words and signs, by the newest rules.
    #[must_use]
    pub const fn words() -> Self {
        Self::new(Rules::Words1)
    }

    /// Characters, by the newest rules.
    #[must_use]
    pub const fn characters() -> Self {
        Self::new(Rules::Characters1)
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.rules
    }

    /// The tokens that stand for what is no word: punctuation, numbers and addresses, the most frequent first. Where characters are
    /// tokens, there is nothing else, and none is named.
    #[must_use]
    pub const fn signs(&self) -> &'static [&'static str] {
        match self.rules {
            Rules::Words1 => &signs::SIGNS,
            Rules::Characters1 => &[],
        }
    }

    /// Hands every token of the text to `sink`, in order. Takes time linear in the text, whatever is in it.
    pub fn for_each(&self, text: &str, mut sink: impl FnMut(&str)) {
        match self.rules {
            Rules::Words1 => words::for_each(text, |token, _| sink(token)),
            Rules::Characters1 => characters(text, |token, _| sink(token)),
        }
    }

    /// The same, and with every token how many characters of the text it took, white space not counted: those that
    /// somebody typed for it. `1,000` took five, whatever `<num>` has.
    pub fn for_each_typed(&self, text: &str, mut sink: impl FnMut(&str, usize)) {
        let mut start = 0;
        let count = |token: &str, end: usize| {
            sink(token, text[start..end].chars().filter(|c| !c.is_whitespace()).count());
            start = end;
        };
        match self.rules {
            Rules::Words1 => words::for_each(text, count),
            Rules::Characters1 => characters(text, count),
        }
    }

    /// The tokens of the text.
    #[must_use]
    pub fn tokens(&self, text: &str) -> Vec<String> {
        let mut tokens = Vec::new();
        self.for_each(text, |token| tokens.push(token.to_owned()));
        tokens
    }

    /// Text that reads well and has these tokens.
    #[must_use]
    pub fn join<'a>(&self, tokens: impl IntoIterator<Item = &'a str>) -> String {
        match self.rules {
            Rules::Words1 => words::join(tokens),
            Rules::Characters1 => tokens.into_iter().collect(),
        }
    }
}

fn characters(text: &str, mut sink: impl FnMut(&str, usize)) {
    let mut letters = text.char_indices().peekable();
    while let Some((at, c)) = letters.next() {
        match c {
            '\r' => {
                let newline = letters.next_if(|(_, next)| *next == '\n').is_some();
                sink("\n", at + 1 + usize::from(newline));
            }
            '\n' | '\t' => sink(&text[at..=at], at + 1),
            c if c.is_control() => {}
            c => sink(&text[at..at + c.len_utf8()], at + c.len_utf8()),
        }
    }
}

/// What somebody is typing at the end of a text, by the rules `words-1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Current {
    /// A word, as the rules write it; empty before its first letter.
    Word(String),
    /// A number with signs in it, or an address: its letters begin no word.
    NoWord,
}

/// Splits off what is still being typed.
pub(crate) fn current(text: &str) -> (&str, Current) {
    let (finished, word) = current_word(text);
    let (mut start, mut end, mut class) = (0, 0, false);
    words::for_each(text, |token, at| {
        (start, end, class) = (end, at, [NUMBER, ADDRESS].contains(&token));
    });
    start += text[start..].len() - text[start..].trim_start().len();
    // A number without signs in it can become a word still: `2` becomes `2nd`.
    if class && end == text.len() && start < finished.len() {
        return (&text[..start], Current::NoWord);
    }
    (finished, Current::Word(word))
}

/// Whether a token that is suggested is a sign that stands without a space before it.
pub(crate) fn is_closing(token: &str) -> bool {
    [".", ",", "!", "?", ";", ":", ")", "]", "}", "...", "%"].contains(&token)
}

/// Whether what is typed after this text begins a word of its own, and so wants a space before it: after a word, an emoji, or a sign that
/// closes something, and not after a space, an opening bracket or quote, or a sign that joins, as `-` and `@` do.
pub(crate) fn wants_space(text: &str) -> bool {
    let closes = |c: char| is_closing(c.encode_utf8(&mut [0; 4])) || c == '…';
    text.chars()
        .next_back()
        .is_some_and(|c| closes(c) || signs::is_word(c) || signs::is_emoji(c) || signs::is_invisible(c))
}

/// Splits off the word that is still being typed: what stands at the end of the text without space or sign, written as the
/// rules `words-1` write words.
fn current_word(text: &str) -> (&str, String) {
    let inside = |c: char| signs::is_word(c) || signs::is_apostrophe(c);
    let word = text[text.trim_end_matches(inside).len()..].trim_start_matches(signs::is_apostrophe);
    let word = word.trim_start_matches(signs::is_mark);
    let letters = word.chars().map(|c| if signs::is_apostrophe(c) { '\'' } else { c });
    (&text[..text.len() - word.len()], letters.flat_map(char::to_lowercase).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        Tokenizer::words().tokens(text)
    }

    #[test]
    fn signs_come_out_as_themselves_and_all_of_the_keyboard_are_there() {
        for sign in Tokenizer::words().signs() {
            assert_eq!(words(sign), [*sign]);
        }
        let all: String = (' '..='~').filter(char::is_ascii_punctuation).flat_map(|c| [' ', c]).collect();
        assert!(words(&all).iter().all(|sign| Tokenizer::words().signs().contains(&sign.as_str())));
    }

    #[test]
    fn case_and_punctuation() {
        assert_eq!(words("Hello, World!!!"), ["hello", ",", "world", "!"]);
        assert_eq!(words("well-known... really…"), ["well", "-", "known", "...", "really", "..."]);
        assert_eq!(words("“Don’t” — she’s 'here'"), ["\"", "don't", "\"", "-", "she's", "'", "here", "'"]);
        assert_eq!(words("ÉCOLE Straße İstanbul"), ["école", "straße", "i\u{307}stanbul"]);
        assert_eq!(words("a\u{0}b\u{7}c"), ["a", "b", "c"]);
        assert_eq!(words(" \n\t "), Vec::<String>::new());
    }

    #[test]
    fn numbers_are_one_class_and_words_with_digits_are_not() {
        for number in ["7", "1,000.50", "12:30", "٣٤", "2018"] {
            assert_eq!(words(number), [NUMBER], "{number}");
        }
        assert_eq!(words("2nd b4 3.5kg $5."), ["2nd", "b4", NUMBER, "kg", "$", NUMBER, "."]);
    }

    #[test]
    fn addresses_are_one_class() {
        assert_eq!(words("see http://a.b/c?d=e#f."), ["see", ADDRESS, "."]);
        assert_eq!(words("(WWW.Example.org), ok"), ["(", ADDRESS, ")", ",", "ok"]);
        assert_eq!(words("mail john.doe+x@mail.example.com!"), ["mail", ADDRESS, "!"]);
        assert_eq!(words("www. http:// a@b @you"), ["www", ".", "http", ":", "/", "a", "@", "b", "@", "you"]);
    }

    #[test]
    fn emoji_and_emoticons_are_single_tokens() {
        assert_eq!(words("yes👍🏽👍 ok"), ["yes", "👍", "👍", "ok"]);
        assert_eq!(words("👩\u{200d}👩\u{200d}👧❤\u{fe0f}🇩🇪"), ["👩\u{200d}👩\u{200d}👧", "❤", "🇩🇪"]);
        assert_eq!(words("hi :-D ;) <3 1\u{fe0f}\u{20e3}"), ["hi", ":d", ";)", "<3", NUMBER]);
        assert_eq!(words("ratio 3:) x"), ["ratio", NUMBER, ":", ")", "x"]);
    }

    #[test]
    fn nobody_types_the_beginning_of_a_sequence() {
        assert_eq!(words("<bos> <eos><unk>"), ["<", "bos", ">", "<", "eos", ">", "<unk>"]);
    }

    #[test]
    fn joined_text_reads_like_text() {
        let text = "hello, it's (really) <num>! ok... fine";
        assert_eq!(Tokenizer::words().join(words(text).iter().map(String::as_str)), text);
    }

    #[test]
    fn every_character_that_was_typed_is_counted_once() {
        let typed = |tokenizer: Tokenizer, text: &str| {
            let mut counts = Vec::new();
            tokenizer.for_each_typed(text, |token, typed| counts.push((token.to_owned(), typed)));
            counts
        };
        let want = [("i", 1), ("paid", 4), (NUMBER, 5), ("!", 3), (ADDRESS, 9), ("👍", 2), ("...", 2), ("don't", 5)];
        let want: Vec<_> = want.map(|(token, typed)| (token.to_owned(), typed)).into();
        assert_eq!(typed(Tokenizer::words(), "I  paid 1,000!!! www.a.org 👍🏽 .. Don’t "), want);
        let want: Vec<_> = [("a", 1), (" ", 0), ("\n", 0), ("b", 1)].map(|(c, n)| (c.to_owned(), n)).into();
        assert_eq!(typed(Tokenizer::characters(), "a \r\nb"), want);
    }

    #[test]
    fn characters_stay_as_they_are() {
        let text = Tokenizer::characters();
        assert_eq!(text.tokens("Aé\r\n\u{7}b\r👍"), ["A", "é", "\n", "b", "\n", "👍"]);
        assert_eq!(text.join(["A", "é"]), "Aé");
    }

    #[test]
    fn hostile_text_takes_linear_time() {
        for piece in ["a.", "a@", ":", "<", "www.", "1,", "'", "👩\u{200d}", "\u{301}", "http://"] {
            let text = piece.repeat(200_000);
            let mut count = 0_usize;
            Tokenizer::words().for_each(&text, |_| count += 1);
            assert!(count <= text.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_text_reads_back_as_the_same_tokens(text in "\\PC*|[ -~]{0,60}|[a-cA-C0-2.,:'@<>/()w\\-3 ’👍🏽❤\u{200d}\u{fe0f}🇩!]{0,40}") {
            for tokenizer in [Tokenizer::words(), Tokenizer::characters()] {
                let tokens = tokenizer.tokens(&text);
                prop_assert!(tokens.iter().all(|t| !t.is_empty() && t != "<bos>" && t != "<eos>"));
                let joined = tokenizer.join(tokens.iter().map(String::as_str));
                prop_assert_eq!(&tokenizer.tokens(&joined), &tokens, "{:?}", joined);
            }
        }

        #[test]
        fn any_characters_at_all_are_read(text in proptest::collection::vec(any::<char>(), 0..50)) {
            let text: String = text.into_iter().collect();
            let tokens = Tokenizer::words().tokens(&text);
            let joined = Tokenizer::words().join(tokens.iter().map(String::as_str));
            prop_assert_eq!(Tokenizer::words().tokens(&joined), tokens, "{:?}", joined);
        }
    }
}
