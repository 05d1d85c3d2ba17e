//! Vocabularies: words to ids and back.
//!
//! A vocabulary has a fixed order: the three special entries first, then words, the most frequent first. Ids are positions
//! in it. BOS, EOS and UNK count among the size, so the papers' 10,000 entries are 9,997 words.
//!
//! As text it has one entry per line, with `\n`, `\r` and `\\` escaped so that characters have a line too; this is the
//! `vocab.txt` of a model folder.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use thiserror::Error;

use crate::tokenizer::Tokenizer;

/// The id of the beginning of a sequence.
pub const BOS: u32 = 0;
/// The id of the end of a sequence.
pub const EOS: u32 = 1;
/// The id of every word that is not in the vocabulary.
pub const UNK: u32 = 2;
/// The entries of the first ids.
pub const SPECIAL: [&str; 3] = ["<bos>", "<eos>", "<unk>"];
/// The most entries a vocabulary may have.
pub const MOST_ENTRIES: usize = 1 << 24;

/// Why something is not a vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VocabularyError {
    /// An entry that stands twice.
    #[error("entry {entry:?} appears twice, as ids {first} and {second}")]
    Twice {
        /// The entry.
        entry: String,
        /// Where it occurs first.
        first: u32,
        /// Where it occurs again.
        second: u32,
    },
    /// An entry without characters.
    #[error("entry {id} is empty")]
    Empty {
        /// The id of the entry.
        id: u32,
    },
    /// A list that does not begin with the special entries.
    #[error("line {line} must be {expected:?}, got {got:?}; a vocabulary begins with <bos>, <eos> and <unk>")]
    Special {
        /// The line, from 1.
        line: usize,
        /// The special entry.
        expected: &'static str,
        /// The entry found there.
        got: String,
    },
    /// An escape that means nothing.
    #[error("line {line}: a backslash must be followed by n, r or another backslash")]
    Escape {
        /// The line, from 1.
        line: usize,
    },
    /// More entries than ids are meant for.
    #[error("more than {MOST_ENTRIES} entries")]
    TooMany,
    /// A size that leaves no room for words.
    #[error("a vocabulary of {size} entries has no room for words, since <bos>, <eos> and <unk> are entries too")]
    TooSmall {
        /// The size asked for.
        size: usize,
    },
    /// A list or a text with nothing in it.
    #[error("no words found")]
    NoWords,
}

/// Words with ids.
#[derive(Clone)]
pub struct Vocabulary {
    entries: Vec<Box<str>>,
    index: HashMap<Box<str>, u32, BuildHasherDefault<WordHasher>>,
}

impl Vocabulary {
    /// The special entries and then these words, in their order.
    ///
    /// # Errors
    /// When a word is empty or stands twice, or there are too many.
    pub fn new<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Result<Self, VocabularyError> {
        let mut vocabulary = Self { entries: Vec::new(), index: HashMap::default() };
        for special in SPECIAL {
            vocabulary.push(special)?;
        }
        for word in words {
            vocabulary.push(word.as_ref())?;
        }
        Ok(vocabulary)
    }

    fn push(&mut self, word: &str) -> Result<(), VocabularyError> {
        if self.entries.len() >= MOST_ENTRIES {
            return Err(VocabularyError::TooMany);
        }
        let id = self.entries.len() as u32;
        if word.is_empty() {
            return Err(VocabularyError::Empty { id });
        }
        if let Some(first) = self.index.insert(word.into(), id) {
            return Err(VocabularyError::Twice { entry: word.to_owned(), first, second: id });
        }
        self.entries.push(word.into());
        Ok(())
    }

    /// The first words of a public list, one per line with the most frequent first; what follows a tab is not read. Words are
    /// taken as the tokenizer writes them; lines that are not exactly one token are left out.
    ///
    /// # Errors
    /// When `size` leaves no room for words, or the list has none.
    pub fn from_list(list: &str, tokenizer: Tokenizer, size: usize) -> Result<Self, VocabularyError> {
        check_size(size)?;
        let mut vocabulary = Self::new([""; 0])?;
        for token in listed(list, tokenizer) {
            if vocabulary.len() >= size {
                break;
            }
            vocabulary.add(&token)?;
        }
        if vocabulary.len() == SPECIAL.len() { Err(VocabularyError::NoWords) } else { Ok(vocabulary) }
    }

    /// The same with the signs that the tokenizer knows ([`Tokenizer::signs`]) behind the words, as far as the list has not got them: a
    /// list of words has no punctuation, and every comma would be unknown. Says how many were added. Of a small vocabulary they are
    /// at most half. What begins as a vocabulary does, with `<bos>`, is one, and is taken as it is.
    ///
    /// # Errors
    /// As [`Self::from_list`].
    pub fn from_list_with_signs(
        list: &str,
        tokenizer: Tokenizer,
        size: usize,
    ) -> Result<(Self, usize), VocabularyError> {
        let of_list = Self::from_list(list, tokenizer, size)?;
        if list.lines().take(2).any(|line| line == SPECIAL[0]) {
            return Ok((of_list, 0));
        }
        let missing = |signs: &[&'static str], words: &Self| -> Vec<&'static str> {
            signs.iter().copied().filter(|sign| !words.index.contains_key(*sign)).collect()
        };
        let room = size - SPECIAL.len();
        let mut signs = missing(tokenizer.signs(), &of_list);
        signs.truncate(room / 2);
        let mut vocabulary = Self::from_list(list, tokenizer, size - signs.len())?;
        // Words that made way for signs may have been signs.
        let signs = missing(&signs, &vocabulary);
        signs.iter().try_for_each(|sign| vocabulary.push(sign))?;
        Ok((vocabulary, signs.len()))
    }

    /// Adds an entry that is not there.
    fn add(&mut self, word: &str) -> Result<(), VocabularyError> {
        if self.index.contains_key(word) { Ok(()) } else { self.push(word) }
    }

    /// Reads what [`Vocabulary::to_text`] wrote.
    ///
    /// # Errors
    /// When the text is not a vocabulary.
    pub fn parse(text: &str) -> Result<Self, VocabularyError> {
        let mut vocabulary = Self { entries: Vec::new(), index: HashMap::default() };
        for (i, line) in text.split_terminator('\n').enumerate() {
            let entry = unescaped(line).ok_or(VocabularyError::Escape { line: i + 1 })?;
            if let Some(expected) = SPECIAL.get(i)
                && entry != *expected
            {
                return Err(VocabularyError::Special { line: i + 1, expected, got: entry });
            }
            vocabulary.push(&entry)?;
        }
        match SPECIAL.get(vocabulary.len()) {
            Some(expected) => {
                Err(VocabularyError::Special { line: vocabulary.len() + 1, expected, got: String::new() })
            }
            None => Ok(vocabulary),
        }
    }

    /// The vocabulary as text, one entry per line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            text.push_str(&entry.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r"));
            text.push('\n');
        }
        text
    }

    /// Entries, special ones among them.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a vocabulary is never empty: it has its special entries")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The id of a token, [`UNK`] if it has none.
    #[must_use]
    pub fn id(&self, token: &str) -> u32 {
        self.index.get(token).copied().unwrap_or(UNK)
    }

    /// Whether a token is an entry.
    #[must_use]
    pub fn contains(&self, token: &str) -> bool {
        self.index.contains_key(token)
    }

    /// The entry with an id.
    #[must_use]
    pub fn word(&self, id: u32) -> Option<&str> {
        self.entries.get(id as usize).map(AsRef::as_ref)
    }

    /// All entries in the order of their ids.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(AsRef::as_ref)
    }

    /// Appends the ids of a text, without BOS and EOS.
    pub fn encode(&self, tokenizer: Tokenizer, text: &str, ids: &mut Vec<u32>) {
        tokenizer.for_each(text, |token| ids.push(self.id(token)));
    }

    /// Text for ids. BOS, EOS and ids that are not in the vocabulary are left out.
    #[must_use]
    pub fn decode(&self, tokenizer: Tokenizer, ids: impl IntoIterator<Item = u32>) -> String {
        let shown = ids.into_iter().filter(|id| !matches!(*id, BOS | EOS));
        tokenizer.join(shown.filter_map(|id| self.word(id)))
    }
}

impl PartialEq for Vocabulary {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Vocabulary {}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vocabulary({} entries)", self.len())
    }
}

/// Counts tokens of a public text and keeps the most frequent.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    counts: HashMap<Box<str>, u64, BuildHasherDefault<WordHasher>>,
}

impl Counts {
    /// Creates an empty count.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the tokens of a text.
    pub fn add(&mut self, tokenizer: Tokenizer, text: &str) {
        tokenizer.for_each(text, |token| match self.counts.get_mut(token) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(token.into(), 1)),
        });
    }

    /// Different tokens so far.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.counts.len()
    }

    /// Forgets tokens seen fewer than `least` times: bounds the memory of a long count, at the price of rare words.
    pub fn prune(&mut self, least: u64) {
        self.counts.retain(|_, count| *count >= least);
    }

    /// Adds what another count found.
    pub fn merge(&mut self, other: Self) {
        for (word, count) in other.counts {
            *self.counts.entry(word).or_insert(0) += count;
        }
    }

    /// Tokens with their counts, the most frequent first, equal ones in the order of their bytes.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&str, u64)> {
        let mut ranked: Vec<(&str, u64)> = self.counts.iter().map(|(word, count)| (&**word, *count)).collect();
        ranked.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        ranked
    }

    /// The vocabulary of the most frequent tokens; UNK, which text may contain, is not one of them.
    ///
    /// # Errors
    /// When `size` leaves no room for words, or nothing was counted.
    pub fn vocabulary(&self, size: usize) -> Result<Vocabulary, VocabularyError> {
        check_size(size)?;
        let words = self.ranked().into_iter().map(|(word, _)| word).filter(|word| !SPECIAL.contains(word));
        let vocabulary = Vocabulary::new(words.take(size - SPECIAL.len()))?;
        if vocabulary.len() == SPECIAL.len() { Err(VocabularyError::NoWords) } else { Ok(vocabulary) }
    }
}

/// The words of a list: lines that are exactly one token, without what follows a tab.
fn listed(list: &str, tokenizer: Tokenizer) -> impl Iterator<Item = String> {
    list.lines().filter_map(move |line| {
        let mut tokens = tokenizer.tokens(line.split('\t').next().unwrap_or_default()).into_iter();
        match (tokens.next(), tokens.next()) {
            (Some(token), None) => Some(token),
            _ => None,
        }
    })
}

const fn check_size(size: usize) -> Result<(), VocabularyError> {
    if size > SPECIAL.len() { Ok(()) } else { Err(VocabularyError::TooSmall { size }) }
}

fn unescaped(line: &str) -> Option<String> {
    if !line.contains('\\') {
        return Some(line.to_owned());
    }
    let mut entry = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        entry.push(match c {
            '\\' => match letters.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            c => c,
        });
    }
    Some(entry)
}

/// A hash for short words, several times faster than the standard one: an import looks up a hundred million of them. It
/// does not withstand an adversary who chooses the vocabulary, and nothing depends on its order.
#[derive(Debug, Clone, Copy, Default)]
struct WordHasher(u64);

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl WordHasher {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * u128::from(MULTIPLIER);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.mix(u64::from_le_bytes(*chunk));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, _: u8) {} // what `str` appends: the length is in already

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn small() -> Vocabulary {
        Vocabulary::new(["hello", ",", "world", "\n", "\\"]).unwrap()
    }

    #[test]
    fn special_entries_count_and_come_first() {
        let vocabulary = small();
        assert_eq!(vocabulary.len(), 8);
        assert_eq!((vocabulary.id("<bos>"), vocabulary.id("<eos>"), vocabulary.id("<unk>")), (BOS, EOS, UNK));
        assert_eq!(vocabulary.id("hello"), 3);
        assert_eq!(vocabulary.id("nobody"), UNK);
    }

    #[test]
    fn text_comes_back_with_unknown_words_marked() {
        let (vocabulary, tokenizer) = (small(), Tokenizer::words());
        let mut ids = vec![BOS];
        vocabulary.encode(tokenizer, "Hello, strange WORLD", &mut ids);
        ids.push(EOS);
        assert_eq!(ids, [0, 3, 4, 2, 5, 1]);
        assert_eq!(vocabulary.decode(tokenizer, ids), "hello, <unk> world");
        assert_eq!(vocabulary.decode(tokenizer, [3, 77]), "hello");
    }

    #[test]
    fn a_list_is_normalised_and_cut() {
        let list = "The\t0.5\nthe\t0.4\ntwo words\t0.3\n\nof\nto\n";
        let vocabulary = Vocabulary::from_list(list, Tokenizer::words(), 5).unwrap();
        assert_eq!(vocabulary.words().collect::<Vec<_>>(), ["<bos>", "<eos>", "<unk>", "the", "of"]);
        let size = |size| Vocabulary::from_list(list, Tokenizer::words(), size).unwrap_err();
        assert_eq!(size(3), VocabularyError::TooSmall { size: 3 });
        assert_eq!(Vocabulary::from_list("a b", Tokenizer::words(), 9).unwrap_err(), VocabularyError::NoWords);
    }

    /// A bare list of words made every comma of the text unknown.
    #[test]
    fn a_list_of_words_gets_the_signs_that_it_has_not() {
        let words: String = (0..100).map(|i| format!("w{i}\n")).collect();
        let list = format!("the\n,\t9\n{words}");
        let (vocabulary, added) = Vocabulary::from_list_with_signs(&list, Tokenizer::words(), 60).unwrap();
        assert_eq!((vocabulary.len(), added), (60, 28), "at most half of 57 places");
        let (vocabulary, added) = Vocabulary::from_list_with_signs(&list, Tokenizer::words(), 90).unwrap();
        assert_eq!((vocabulary.len(), added), (90, 34), "the comma was there");
        let entries: Vec<&str> = vocabulary.words().collect();
        assert_eq!((entries[3], entries[4], entries[56]), ("the", ",", "."), "behind the words");
        let mut ids = Vec::new();
        vocabulary.encode(Tokenizer::words(), "The, w1! 12 (w2)? don't; www.x.org", &mut ids);
        assert_eq!(ids.iter().filter(|id| **id == UNK).count(), 1, "don't is not in the list");
        // What is a vocabulary already stays what it is.
        let again = Vocabulary::from_list_with_signs(&vocabulary.to_text(), Tokenizer::words(), 90).unwrap();
        assert_eq!((again.0.to_text(), again.1), (vocabulary.to_text(), 0));
        let plain = Vocabulary::from_list_with_signs("a\nb\n", Tokenizer::characters(), 9).unwrap();
        assert_eq!((plain.0.len(), plain.1), (5, 0));
    }

    #[test]
    fn counting_is_in_order_of_frequency_then_of_bytes() {
        let mut counts = Counts::new();
        counts.add(Tokenizer::words(), "b a c a <unk> <unk> <unk>");
        let mut more = Counts::new();
        more.add(Tokenizer::words(), "c c");
        counts.merge(more);
        assert_eq!(counts.vocabulary(6).unwrap().words().skip(3).collect::<Vec<_>>(), ["c", "a", "b"]);
        assert!(Counts::new().vocabulary(10).is_err());
    }

    #[test]
    fn what_is_not_a_vocabulary_is_refused() {
        assert!(matches!(Vocabulary::parse("a\nb\n"), Err(VocabularyError::Special { line: 1, .. })));
        assert!(matches!(Vocabulary::parse("<bos>\n<eos>\n"), Err(VocabularyError::Special { line: 3, .. })));
        assert!(matches!(Vocabulary::parse("<bos>\n<eos>\n<unk>\na\na\n"), Err(VocabularyError::Twice { .. })));
        assert!(matches!(Vocabulary::parse("<bos>\n<eos>\n<unk>\n\na\n"), Err(VocabularyError::Empty { id: 3 })));
        assert!(matches!(Vocabulary::parse("<bos>\n<eos>\n<unk>\n\\x\n"), Err(VocabularyError::Escape { line: 4 })));
    }

    proptest! {
        #[test]
        fn as_text_and_back(words in proptest::collection::btree_set("[^<]{1,5}", 0..20)) {
            let vocabulary = Vocabulary::new(&words).unwrap();
            prop_assert_eq!(&Vocabulary::parse(&vocabulary.to_text()).unwrap(), &vocabulary);
        }

        #[test]
        fn ids_stay_when_text_is_printed_and_read_again(text in "(hello|world|,|nobody|!| |\\n|[^a]){0,20}") {
            let (vocabulary, tokenizer) = (small(), Tokenizer::words());
            let mut ids = Vec::new();
            vocabulary.encode(tokenizer, &text, &mut ids);
            let mut again = Vec::new();
            vocabulary.encode(tokenizer, &vocabulary.decode(tokenizer, ids.iter().copied()), &mut again);
            prop_assert_eq!(ids, again);
        }
    }
}
