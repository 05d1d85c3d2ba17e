//! Classifies characters: emoji, marks, and variants of plain signs.
//!
//! Ranges and not a crate: a device carries this table too, and the few symbols on which a full Unicode table would decide
//! otherwise come out as tokens of their own in either case.

use super::{ADDRESS, NUMBER};

/// Emoticons as they come out; a nose and capital letters are taken away before the comparison.
pub(super) const EMOTICONS: [&str; 16] =
    [":)", ":(", ";)", ":d", ";d", ":p", ";p", ":/", ":o", ":|", ":'(", ":*", "=)", "=(", "<3", ":3"];

/// Signs of the keyboard, as they come out, with numbers and addresses; the most frequent in English first.
pub(super) const SIGNS: [&str; 35] = [
    ".", ",", "!", "?", "'", "-", "\"", "...", ":", NUMBER, ")", "(", ";", "/", "&", ADDRESS, "*", "$", "%", "@", "#",
    "+", "=", "_", "~", "[", "]", "<", ">", "^", "|", "{", "}", "\\", "`",
];

pub(super) const JOINER: char = '\u{200D}';

/// A character that begins an emoji.
pub(super) fn is_emoji(c: char) -> bool {
    !is_skin_tone(c)
        && matches!(c,
            '\u{1F300}'..='\u{1FAFF}' | '\u{1F170}'..='\u{1F251}' | '\u{1F004}' | '\u{1F0CF}'
            | '\u{2600}'..='\u{27BF}' | '\u{231A}'..='\u{231B}' | '\u{23E9}'..='\u{23FA}' | '\u{2B05}'..='\u{2B07}'
            | '\u{2B1B}'..='\u{2B1C}' | '\u{2B50}' | '\u{2B55}' | '\u{203C}' | '\u{2049}')
        && !is_dingbat_digit(c)
}

/// Dingbats that Unicode counts as numbers.
const fn is_dingbat_digit(c: char) -> bool {
    matches!(c, '\u{2776}'..='\u{2793}')
}

/// Half of a flag.
pub(super) const fn is_flag_letter(c: char) -> bool {
    matches!(c, '\u{1F1E6}'..='\u{1F1FF}')
}

pub(super) const fn is_skin_tone(c: char) -> bool {
    matches!(c, '\u{1F3FB}'..='\u{1F3FF}')
}

/// What changes how a character looks and means nothing by itself: dropped wherever it stands alone.
pub(super) const fn is_invisible(c: char) -> bool {
    is_skin_tone(c)
        || is_mark(c)
        || matches!(c,
            '\u{FE00}'..='\u{FE0F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            | '\u{FEFF}' | '\u{AD}' | '\u{20D0}'..='\u{20FF}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Accents that follow their letter.
pub(super) const fn is_mark(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036F}')
}

/// A character of a word.
pub(super) fn is_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    is_mark(c) || (c.is_alphanumeric() && !is_apostrophe(c) && !is_emoji(c) && !is_invisible(c))
}

pub(super) const fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '\u{02BC}')
}

/// The plain sign that stands for a typographic one.
pub(super) const fn plain(c: char) -> Option<&'static str> {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201B}' | '\u{02BC}' => Some("'"),
        '\u{201C}'..='\u{201F}' => Some("\""),
        '\u{2010}'..='\u{2015}' => Some("-"),
        '\u{2026}' => Some("..."),
        _ => None,
    }
}
