//! The public vocabulary of the synthetic language.
//!
//! It was counted once in a text that belongs to no user, both dialects, and filled up from the lexicon. What came of it is kept in
//! `public_words.txt`: opening a crowd would otherwise generate and count that text each time. A test does.

use lm::vocabulary::{SPECIAL, Vocabulary, VocabularyError};

/// Every word of the language, more frequent ones before rarer ones.
const WORDS: &str = include_str!("public_words.txt");

/// The language's public vocabulary: its most frequent words. The language has somewhat more than 10,000 words; a larger size gives
/// all of them.
///
/// # Errors
/// When `size` leaves no room for words.
pub fn vocabulary(size: usize) -> Result<Vocabulary, VocabularyError> {
    let room = size.checked_sub(SPECIAL.len()).filter(|room| *room > 0).ok_or(VocabularyError::TooSmall { size })?;
    Vocabulary::new(WORDS.lines().take(room))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs};

    use lm::{tokenizer::Tokenizer, vocabulary::Counts};

    use super::*;
    use crate::synth::{Dialect, SynthPlan, lexicon, person::Person};

    /// The seed of the public text; no plan's users are in it.
    const PUBLIC_SEED: u64 = 0x7075_626C_6963;

    fn counted() -> Counts {
        let mut counts = Counts::new();
        for dialect in [Dialect::General, Dialect::Informal] {
            let plan = SynthPlan { posts_per_user: 20, ..SynthPlan::new(PUBLIC_SEED, 400, dialect) };
            for user in 0..plan.users {
                let person = Person::meet(&plan, user);
                let posts = (0..person.posts).map(|post| person.post(&plan, user, post).text);
                posts.for_each(|text| counts.add(Tokenizer::words(), &text));
            }
        }
        counts
    }

    #[test]
    fn the_words_are_those_of_the_public_text_and_then_of_the_lexicon() {
        let (counts, known) = (counted(), lexicon::get().by_rank());
        let is_known: BTreeSet<&str> = known.iter().copied().collect();
        // A typo can look like a rare word: what the lexicon does not know must be frequent to be an entry.
        let seen = counts.ranked().into_iter().filter(|(word, count)| is_known.contains(word) || *count >= 40);
        let mut words: Vec<&str> = seen.map(|(word, _)| word).filter(|word| !SPECIAL.contains(word)).collect();
        let mut have: BTreeSet<&str> = words.iter().copied().collect();
        words.extend(known.into_iter().filter(|word| have.insert(word)));
        let want: String = words.iter().flat_map(|word| [*word, "\n"]).collect();
        if want != WORDS {
            let to = env::temp_dir().join("public_words.txt");
            fs::write(&to, want).unwrap();
            panic!("the language has other words now: copy {} to crates/corpus/src/synth", to.display());
        }
    }

    #[test]
    fn a_vocabulary_has_the_most_frequent_words_and_room_for_one_at_least() {
        assert_eq!(vocabulary(5).unwrap().to_text(), "<bos>\n<eos>\n<unk>\n.\ni\n");
        assert!(vocabulary(1_000_000).unwrap().len() > 10_000);
        assert!(vocabulary(3).is_err() && vocabulary(0).is_err());
    }
}
