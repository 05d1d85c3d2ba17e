//! The rules `words-1`, as a scanner. The table in the parent module specifies them.

use super::{ADDRESS, NUMBER, signs};

/// The longest local part and domain of a mail address (RFC 5321); they also bound how far the scanner looks ahead.
const MAIL_LOCAL: usize = 64;
const MAIL_DOMAIN: usize = 255;
/// Tokens that stand for themselves.
const CLASSES: [&str; 3] = [NUMBER, ADDRESS, "<unk>"];

/// Hands on every token and where it ends in the text.
pub(super) fn for_each(text: &str, sink: impl FnMut(&str, usize)) {
    let mut scanner = Scanner { text, at: 0, word: String::new(), may_have_mail: text.contains('@'), sink };
    while let Some(&byte) = text.as_bytes().get(scanner.at) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => scanner.word_or_address(),
            b' ' | b'\t' | b'\n' | b'\r' => scanner.at += 1,
            0x80.. => scanner.beyond_ascii(),
            _ => scanner.sign(),
        }
    }
}

struct Scanner<'a, F> {
    text: &'a str,
    /// Always at a character boundary.
    at: usize,
    word: String,
    may_have_mail: bool,
    /// Called when `at` is behind the token.
    sink: F,
}

impl<F: FnMut(&str, usize)> Scanner<'_, F> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn word_or_address(&mut self) {
        if let Some(length) = self.address() {
            self.at += length;
            (self.sink)(ADDRESS, self.at);
        } else {
            self.word();
        }
    }

    /// The length of the address that begins here.
    fn address(&self) -> Option<usize> {
        let rest = self.text.as_bytes().get(self.at..)?;
        if matches!(rest[0], b'h' | b'H' | b'w' | b'W') {
            let begins = |with: &[u8]| rest.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
            let scheme = [&b"http://"[..], b"https://", b"www."].into_iter().find(|scheme| begins(scheme));
            if let Some(scheme) = scheme
                && self.rest()[scheme.len()..].starts_with(char::is_alphanumeric)
            {
                return Some(web_address(self.rest()));
            }
        }
        if self.may_have_mail { mail_address(rest) } else { None }
    }

    /// Reads a word or a number from its first character on.
    fn word(&mut self) {
        self.word.clear();
        let bytes = self.text.as_bytes();
        let mut digits_only = true;
        let mut separated = false;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' if separated => break,
                b'a'..=b'z' | b'A'..=b'Z' => {
                    self.word.push(byte.to_ascii_lowercase() as char);
                    digits_only = false;
                    self.at += 1;
                }
                b'0'..=b'9' => {
                    self.word.push(byte as char);
                    self.at += 1;
                }
                b'.' | b',' | b':' if digits_only && bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit) => {
                    separated = true;
                    self.at += 1;
                }
                b'\'' | 0x80.. if !separated => match self.letter_beyond_ascii() {
                    Some(digit) => digits_only &= digit,
                    None => break,
                },
                _ => break,
            }
        }
        (self.sink)(if digits_only { NUMBER } else { &self.word }, self.at);
    }

    /// Takes an apostrophe inside a word, or a letter beyond ASCII; says whether it was a digit.
    fn letter_beyond_ascii(&mut self) -> Option<bool> {
        let mut letters = self.rest().chars();
        let c = letters.next()?;
        let inside = |next: Option<char>| next.is_some_and(|n| signs::is_word(n) && !signs::is_mark(n));
        if signs::is_apostrophe(c) {
            if !inside(letters.next()) {
                return None;
            }
            self.word.push('\'');
        } else if matches!(c, signs::JOINER | '\u{200C}') {
            if !inside(letters.next()) {
                return None;
            }
            self.word.push(c);
        } else if signs::is_word(c) {
            self.word.extend(c.to_lowercase());
        } else {
            return None;
        }
        self.at += c.len_utf8();
        Some(c.is_numeric())
    }

    fn beyond_ascii(&mut self) {
        let Some(c) = self.rest().chars().next() else { return };
        if signs::is_emoji(c) {
            self.emoji(c);
        } else if c.is_whitespace() || c.is_control() || signs::is_invisible(c) {
            self.at += c.len_utf8();
        } else if let Some(plain) = signs::plain(c) {
            self.skip_run(c);
            (self.sink)(plain, self.at);
        } else if signs::is_word(c) {
            self.word();
        } else {
            self.one_sign(c);
        }
    }

    fn emoji(&mut self, first: char) {
        self.word.clear();
        self.word.push(first);
        let mut end = self.at + first.len_utf8();
        let mut letters = self.text[end..].chars().peekable();
        if signs::is_flag_letter(first)
            && let Some(second) = letters.next_if(|c| signs::is_flag_letter(*c))
        {
            self.word.push(second);
            end += second.len_utf8();
        }
        while let Some(c) = letters.next() {
            if c == signs::JOINER {
                if let Some(joined) = letters.next_if(|c| signs::is_emoji(*c)) {
                    self.word.push(signs::JOINER);
                    self.word.push(joined);
                    end += joined.len_utf8();
                }
            } else if !signs::is_invisible(c) {
                break;
            }
            end += c.len_utf8();
        }
        self.at = end;
        (self.sink)(&self.word, self.at);
    }

    fn sign(&mut self) {
        let Some(c) = self.rest().chars().next() else { return };
        if c.is_control() {
            self.at += c.len_utf8();
        } else if let Some(class) = CLASSES.into_iter().find(|class| self.rest().starts_with(class)) {
            self.at += class.len();
            (self.sink)(class, self.at);
        } else if !self.emoticon(c) {
            self.one_sign(c);
        }
    }

    /// Takes an emoticon that stands between spaces.
    fn emoticon(&mut self, first: char) -> bool {
        if !matches!(first, ':' | ';' | '=' | '<') {
            return false;
        }
        let bytes = self.text.as_bytes();
        let after_space = self.at == 0 || bytes[self.at - 1].is_ascii_whitespace();
        let rest = &bytes[self.at..];
        let length = rest.iter().take(5).position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        if !after_space || !(2..=4).contains(&length) {
            return false;
        }
        self.word.clear();
        for (i, byte) in rest[..length].iter().enumerate() {
            if !(i == 1 && *byte == b'-') {
                self.word.push(byte.to_ascii_lowercase() as char);
            }
        }
        let known = signs::EMOTICONS.contains(&self.word.as_str());
        if known {
            self.at += length;
            (self.sink)(&self.word, self.at);
        }
        known
    }

    fn one_sign(&mut self, c: char) {
        let run = self.skip_run(c);
        if c == '.' && run > 1 {
            (self.sink)("...", self.at);
        } else {
            (self.sink)(c.encode_utf8(&mut [0; 4]), self.at);
        }
    }

    /// Steps over a run of one character; says how many there were.
    fn skip_run(&mut self, c: char) -> usize {
        let run = self.rest().chars().take_while(|other| *other == c).count();
        self.at += run * c.len_utf8();
        run
    }
}

/// The length of the web address at the start: up to white space or a bracket, without the punctuation that ends a sentence.
fn web_address(text: &str) -> usize {
    let stops = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '"' | '\u{201C}' | '\u{201D}');
    let address = &text[..text.find(stops).unwrap_or(text.len())];
    address
        .trim_end_matches(['.', ',', '!', '?', ';', ':', ')', ']', '}', '\'', '\u{2019}', '\u{2026}', '*', '_'])
        .len()
}

/// The length of the mail address at the start, if there is one.
fn mail_address(bytes: &[u8]) -> Option<usize> {
    let local = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'%' | b'+' | b'-');
    let domain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
    let at = bytes.iter().take(MAIL_LOCAL + 1).position(|b| !local(b))?;
    if bytes[at] != b'@' {
        return None;
    }
    let host = &bytes[at + 1..];
    let length = host.iter().take(MAIL_DOMAIN).take_while(|b| domain(b)).count();
    let host = host[..length].trim_ascii_end();
    let end = host.iter().rposition(u8::is_ascii_alphanumeric)? + 1;
    let dot = host[..end].iter().position(|b| *b == b'.')?;
    (dot > 0).then_some(at + 1 + end)
}

pub(super) fn join<'a>(tokens: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut before: Option<&str> = None;
    for token in tokens {
        if let Some(before) = before
            && !touches(before, token)
        {
            text.push(' ');
        }
        text.push_str(token);
        before = Some(token);
    }
    text
}

/// Whether two tokens stand together without a space.
fn touches(before: &str, token: &str) -> bool {
    let closes = matches!(token, "." | "," | "!" | "?" | ";" | ":" | ")" | "]" | "}" | "...");
    let opens = matches!(before, "(" | "[" | "{");
    (closes && is_solid(before)) || (opens && is_solid(token))
}

/// A word, a class or an emoji: something that no sign beside it can change.
fn is_solid(token: &str) -> bool {
    CLASSES.contains(&token) || token.starts_with(|c| signs::is_word(c) || signs::is_emoji(c))
}
