//! Suggestions against sorting everything, the split of what was typed, and a network that reads along.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::atomic::{AtomicUsize, Ordering};

use keyhush_lm::{
    kernels::KernelPath,
    language_model::LanguageModel,
    model::{
        batch::Batch,
        config::{Cell, ConfigError, ModelConfig},
        fast::{Network, NetworkError},
        parameters::ParameterLayout,
        reference::{Reference, State},
    },
    predict::{Keyboard, Predictor, Typed},
    tokenizer::Rules,
    vocabulary::Vocabulary,
};
use proptest::prelude::*;

fn vocabulary() -> Vocabulary {
    Vocabulary::new(["the", "he", "<num>", "hello", "help", "held", ",", "don't", "done", "été"]).unwrap()
}

fn suggested(log_probabilities: &[f32], typed: &str, count: usize) -> Vec<String> {
    let vocabulary = vocabulary();
    let keyboard = Keyboard::new(vocabulary.words());
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

#[test]
fn the_current_word_ends_where_the_tokenizer_says() {
    let vocabulary = vocabulary();
    let split = |text| Typed::new(text, Rules::Words1, &vocabulary);
    assert_eq!(split("E\u{301}te\u{301}").beginning, "e\u{301}te\u{301}", "accents belong to their letters");
    assert_eq!(split("the👍he").beginning, "he");
    assert_eq!((split("he held-he").finished, split("he held-he").beginning.as_str()), ("he held-", "he"));
    assert_eq!(split("don\u{2bc}t").beginning, "don't");
}

/// In the midst of a number or of an address the letters after its signs began a word of their own.
#[test]
fn numbers_and_addresses_are_no_words() {
    let vocabulary = vocabulary();
    let split = |text| Typed::new(text, Rules::Words1, &vocabulary);
    for (text, finished) in [
        ("at 12:3", "at "),
        ("1,000", ""),
        ("see www.he", "see "),
        ("the http://a.he", "the "),
        ("to john@example.he", "to "),
    ] {
        assert_eq!((split(text).is_word, split(text).finished), (false, finished), "{text}");
    }
    for (text, beginning) in
        [("2", "2"), ("2n", "2n"), ("12:30 ", ""), ("12:30, he", "he"), ("www.he he", "he"), ("a@he", "he")]
    {
        assert_eq!((split(text).is_word, split(text).beginning.as_str()), (true, beginning), "{text}");
    }
    let model = Counting::default();
    let mut predictor = Predictor::new(&model, &vocabulary, Rules::Words1);
    assert!(predictor.suggest("see www.he", 3).is_empty() && !predictor.suggest("see he", 3).is_empty());
}

/// A suggestion after a sign stuck to it, and a sign that was suggested had a space before it.
#[test]
fn spaces_are_where_people_put_them() {
    let (model, vocabulary) = (Counting::default(), vocabulary());
    let predictor = Predictor::new(&model, &vocabulary, Rules::Words1);
    for (text, word, want) in [
        ("hello,", "the", "hello, the "),
        ("hello, ", "the", "hello, the "),
        ("Ok!", "hello", "Ok! hello "),
        ("yes 👍🏽", "the", "yes 👍🏽 the "),
        ("(", "the", "(the "),
        ("well-", "held", "well-held "),
        ("say \"", "hello", "say \"hello "),
        ("hello ", ",", "hello, "),
        ("", "the", "the "),
        ("Th", "the", "The "),
        ("TH", "the", "THE "),
        ("T", "the", "The "),
    ] {
        assert_eq!(predictor.accept(text, word), want, "{text:?} and {word:?}");
    }
}

/// Models of every kind of part, with parameters that look random.
fn networks() -> Vec<(ModelConfig, Vec<f32>)> {
    let plain =
        ModelConfig { hidden: 21, embedding: 10, dense: None, tied: false, ..ModelConfig::preset("tiny").unwrap() };
    let plain = plain.with_vocabulary(150);
    let dense = ModelConfig { dense: Some(10), tied: true, ..plain.clone() };
    let configs = [
        ModelConfig { layers: 2, output_bias: true, ..plain.clone() },
        ModelConfig { cell: Cell::Cifg, recurrent_projection: Some(10), ..plain.clone() },
        ModelConfig { cell: Cell::Gru, layers: 2, user_context: Some(3), ..plain },
        ModelConfig { cell: Cell::Gru, ..dense.clone() },
        ModelConfig { user_context: Some(7), output_bias: true, ..dense },
    ];
    let parameters = |config: &ModelConfig| {
        let len = ParameterLayout::new(config).unwrap().len() as u32;
        let value = |i: u32| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0) * 0.4;
        (0..len).map(value).collect()
    };
    configs.into_iter().map(|config| (config.clone(), parameters(&config))).collect()
}

fn close(got: &[f32], want: &[f64]) -> bool {
    got.len() == want.len() && got.iter().zip(want).all(|(got, want)| (f64::from(*got) - want).abs() < 3e-5)
}

/// Words are typed, taken back and replaced, further back than states are kept; whatever way leads there, the predictions
/// are those of the reference after the same words.
#[test]
fn a_network_that_reads_along_says_what_the_reference_says() {
    let long: Vec<u32> = (0..50).map(|i| i * 37 % 150).collect();
    let other: Vec<u32> = long[..45].iter().copied().chain([7, 8]).collect();
    let ways = [&long[..1], &long[..2], &long[..50], &long[..49], &other, &long[..10], &long[..10], &long[..11], &[9]];
    for (config, parameters) in networks() {
        let layout = ParameterLayout::new(&config).unwrap();
        let reference = Reference::new(config.clone(), layout, parameters.iter().map(|v| f64::from(*v)).collect());
        let context = vec![0.0; config.user_context.unwrap_or(0)];
        let want = |sequence: &[u32]| -> Vec<f64> {
            let batch = Batch { rows: 1, inputs: sequence, targets: &[], context: &context };
            let all = reference.probabilities(&batch, &mut State::zero(&config, 1));
            all[all.len() - config.vocabulary..].iter().map(|p| p.ln()).collect()
        };
        for path in KernelPath::ALL.into_iter().filter(|path| path.is_available()) {
            let network = Network::new(&config, parameters.clone(), path).unwrap();
            let mut reader = network.reader();
            assert!(reader.after(&[]).is_empty());
            for way in ways {
                let want = want(way);
                assert!(close(reader.after(way), &want), "{path:?} {config:?}, one by one, {} tokens", way.len());
                assert!(
                    close(&network.after(way).unwrap(), &want),
                    "{path:?} {config:?}, at once, {} tokens",
                    way.len()
                );
            }
        }
    }
}

/// Sequences of different lengths by different users, read side by side: each as the reference reads it with its user's context.
#[test]
fn a_network_reads_what_users_wrote_with_what_is_known_of_them() {
    let sequences: [&[u32]; 3] = [&[1, 9, 4], &[1, 30, 31, 32, 33], &[1]];
    for (config, parameters) in networks() {
        let known = |user: usize| -> Vec<f32> {
            (0..config.user_context.unwrap_or(0)).map(|i| ((user * 5 + i) as f32).sin()).collect()
        };
        let contexts: Vec<Vec<f32>> = (0..3).map(known).collect();
        let layout = ParameterLayout::new(&config).unwrap();
        let reference = Reference::new(config.clone(), layout, parameters.iter().map(|v| f64::from(*v)).collect());
        let network = Network::new(&config, parameters.clone(), KernelPath::best()).unwrap();
        let contexts: Vec<&[f32]> = contexts.iter().map(Vec::as_slice).collect();
        let mut visited = 0;
        network.read_knowing(&sequences, &contexts, &mut |sequence, position, got| {
            let inputs = &sequences[sequence][..=position];
            let batch = Batch { rows: 1, inputs, targets: &[], context: contexts[sequence] };
            let all = reference.probabilities(&batch, &mut State::zero(&config, 1));
            let want: Vec<f64> = all[all.len() - config.vocabulary..].iter().map(|p| p.ln()).collect();
            assert!(close(got, &want), "{config:?}, sequence {sequence}, position {position}");
            visited += 1;
        });
        assert_eq!(visited, 9);
    }
}

#[test]
fn what_cannot_predict_is_refused() {
    let (config, mut parameters) = networks().remove(0);
    parameters.pop();
    let got = parameters.len();
    let refused = |config: &ModelConfig| Network::new(config, parameters.clone(), KernelPath::best()).unwrap_err();
    assert_eq!(refused(&config), NetworkError::Length { want: got + 1, got });
    let projected = ModelConfig { cell: Cell::Gru, recurrent_projection: Some(10), ..config };
    assert_eq!(refused(&projected), NetworkError::Config(ConfigError::Projection));
    let missing = KernelPath::ALL.into_iter().find(|path| !path.is_available());
    if let Some(path) = missing {
        let error = Network::new(&networks().remove(0).0, parameters.clone(), path).unwrap_err();
        assert_eq!(error, NetworkError::Path { path });
    }
}

/// Always thinks that the lower id is likelier, and counts how often it is asked.
#[derive(Default)]
struct Counting(AtomicUsize);

impl LanguageModel for Counting {
    fn vocabulary(&self) -> usize {
        13
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let values: Vec<f32> = (0..13).map(|i| -(i as f32)).collect();
        sequences.iter().enumerate().for_each(|(s, ids)| (0..ids.len()).for_each(|t| visit(s, t, &values)));
    }
}

#[test]
fn letters_do_not_ask_the_model_and_capitals_stay() {
    let (model, vocabulary) = (Counting::default(), vocabulary());
    let mut predictor = Predictor::new(&model, &vocabulary, Rules::Words1);
    let mut words = |text: &str| -> Vec<String> { predictor.suggest(text, 3).into_iter().map(|s| s.word).collect() };
    for (typed, want) in
        [("", vec!["the", "he", "hello"]), ("h", vec!["he", "hello", "help"]), ("HEL", vec!["hello", "help", "held"])]
    {
        assert_eq!(words(typed), want);
    }
    assert_eq!(model.0.load(Ordering::Relaxed), 1, "the words before are the same");
    words("hello ");
    words("hello t");
    assert_eq!(model.0.load(Ordering::Relaxed), 2);
    let first = predictor.suggest("", 1).remove(0);
    assert_eq!((first.word.as_str(), first.probability), ("the", (-3.0_f64).exp()));
    assert_eq!(predictor.accept("say hel", "hello"), "say hello ");
    assert_eq!(predictor.accept("Say, Hel", "hello"), "Say, Hello ");
    assert_eq!(predictor.accept("É", "été"), "Été ");
    let characters = Predictor::new(&model, &vocabulary, Rules::Characters1);
    assert_eq!(characters.accept("he", "l"), "hel");
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
