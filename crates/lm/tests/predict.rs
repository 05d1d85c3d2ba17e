//! Suggestions against sorting everything, and the split of what was typed.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use keyhush_lm::{
    predict::{Keyboard, Typed},
    tokenizer::Rules,
    vocabulary::Vocabulary,
};
use proptest::prelude::*;

fn vocabulary() -> Vocabulary {
    Vocabulary::new(["the", "he", "<num>", "hello", "help", "held", ",", "don't", "done", "été"]).unwrap()
}

fn suggested(log_probabilities: &[f32], typed: &str, count: usize) -> Vec<String> {
    let keyboard = Keyboard::new(vocabulary().words());
    keyboard.suggest(log_probabilities, typed, count).iter().map(|id| keyboard.word(*id).to_owned()).collect()
}

#[test]
fn letters_narrow_the_words_down() {
    let mut values: Vec<f32> = (0..13).map(|i| -(i as f32)).collect();
    assert_eq!(suggested(&values, "", 3), ["the", "he", "hello"]);
    assert_eq!(suggested(&values, "h", 3), ["he", "hello", "help"]);
    assert_eq!(suggested(&values, "hel", 2), ["hello", "help"]);
    assert_eq!(suggested(&values, "held", 3), ["held"]);
    assert_eq!(suggested(&values, "é", 3), ["été"]);
    assert!(suggested(&values, "x", 3).is_empty() && suggested(&values, "", 0).is_empty());
    values[8] = 0.0;
    values[4] = f32::NAN;
    values[6] = values[7];
    assert_eq!(suggested(&values, "h", 9), ["held", "hello", "help"], "ties by id, what has no number never");
    assert_eq!(suggested(&values[..7], "h", 9), ["hello"], "shorter lists are no danger");
    assert_eq!(Keyboard::new(["<bos>"; 2]).suggest(&values, "", 3), [0; 0]);
}

#[test]
fn what_was_typed_is_split_at_the_current_word() {
    let vocabulary = vocabulary();
    let split = |text| {
        let typed = Typed::new(text, Rules::Words1, &vocabulary);
        (typed.context, typed.beginning)
    };
    assert_eq!(split(""), (vec![0], String::new()));
    assert_eq!(split("Hel"), (vec![0], "hel".to_owned()));
    assert_eq!(split("hello "), (vec![0, 6], String::new()));
    assert_eq!(split("Hello, the nobody DON’"), (vec![0, 6, 9, 3, 2], "don'".to_owned()));
    assert_eq!(split("hello,"), (vec![0, 6, 9], String::new()));
    assert_eq!(split("the 'he").1, "he");
    let characters = Typed::new("he", Rules::Characters1, &vocabulary);
    assert_eq!((characters.context.len(), characters.beginning), (3, String::new()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The number of letters is the first at which the list holds the word, whatever the words and values are.
    #[test]
    fn letters_until_shown_agrees_with_the_list(
        words in prop::collection::btree_set("[abé]{1,4}|<num>", 1..40),
        values in prop::collection::vec(prop_oneof![9 => (-4i8..0).prop_map(f32::from), 1 => Just(f32::NAN)], 43),
        shown in 1usize..4,
    ) {
        let vocabulary = Vocabulary::new(words).unwrap();
        let keyboard = Keyboard::new(vocabulary.words());
        let values = &values[..vocabulary.len()];
        for id in 0..vocabulary.len() as u32 {
            let word = vocabulary.word(id).unwrap();
            let ends: Vec<usize> = word.char_indices().map(|(at, _)| at).chain([word.len()]).collect();
            let want = ends.iter().position(|end| keyboard.suggest(values, &word[..*end], shown).contains(&id));
            prop_assert_eq!(keyboard.letters_until_shown(values, id, shown), want, "{}", word);
        }
    }

    #[test]
    fn any_text_can_be_split(text in ".{0,40}") {
        let vocabulary = vocabulary();
        for rules in [Rules::Words1, Rules::Characters1] {
            let typed = Typed::new(&text, rules, &vocabulary);
            prop_assert!(text.starts_with(typed.finished));
        }
    }
}
