//! `keyhush eval` and `keyhush ngram` as a user calls them.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::{
    model_story::{Story, TEXT},
    toy::Toy,
};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::learner::language::LanguageLearner;
use federated::{
    engine::measure::OnThreads, evaluate::HeldOut, metrics::prediction::NEXT_WORDS, population::SyntheticPopulation,
};
use lm::{
    folder::{CARD_FILE, CONFIG_FILE, Folder, Guarantee, VOCABULARY_FILE, WEIGHTS_FILE, Weights},
    kernels::KernelPath,
    metrics::Metrics,
    model::{config::ModelConfig, initial::initial_parameters},
    tokenizer::Tokenizer,
};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn a_model_is_measured_the_same_on_any_number_of_threads() {
    let story = Story::new();
    let counted = story.json("ngram --text text.txt --out model --order 2");
    assert_eq!(counted["sequences"], 5);
    let line = "eval --model model --text text.txt";
    let one = story.out(&format!("{line} --json --threads 1"));
    assert_eq!(one, story.out(&format!("{line} --json --threads 3")));
    assert_eq!(one, story.out(&format!("{line} --json")));
    let set: Value = serde_json::from_str::<Value>(&one).unwrap()["sets"][0].clone();
    // 34 words, 5 signs and 5 ends; all are known.
    assert_eq!((&set["tokens"], &set["words"], &set["unknown"]), (&44.into(), &39.into(), &0.into()));
    assert!(number(&set["perplexity"]) < 10.0 && number(&set["keystroke_saving"]) > 0.5);
    assert_eq!(set["perplexity"], set["perplexity_without_unk"], "nothing is unknown");
    let shown = story.out(line);
    assert!(shown.contains("tokens              44: 39 words (0 unknown) and 5 ends of text"), "{shown}");
}

#[test]
fn unknown_words_are_typed_in_full() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    story.write("odd.txt", "zebras 1,000\n");
    let set = story.json("eval --model model --text odd.txt")["sets"][0].clone();
    assert_eq!((&set["words"], &set["unknown"], number(&set["keystroke_saving"])), (&2.into(), &2.into(), 0.0));
    assert_eq!(set["accuracy_in_vocabulary"], Value::Null, "there is no known word");
}

#[test]
fn several_sets_have_popovs_average() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    story.write("other.txt", "the cat ran to a strange log\n");
    let both = story.json("eval --model model --text text.txt --text other.txt");
    let set = |n: usize, key: &str| number(&both["sets"][n][key]);
    let nats = |n: usize| set(n, "tokens") * set(n, "perplexity").ln();
    let want = ((nats(0) + nats(1)) / (set(0, "tokens") + set(1, "tokens"))).exp();
    assert!((number(&both["average_perplexity"]) / want - 1.0).abs() < 1e-12);
    story.write("both.txt", format!("{TEXT}the cat ran to a strange log\n"));
    let joined = story.json("eval --model model --text both.txt")["sets"][0].clone();
    assert!((number(&joined["perplexity"]) / want - 1.0).abs() < 1e-9, "it is the perplexity of both as one");
}

/// The same posts as text and as a store give the same numbers.
#[test]
fn a_store_is_measured_like_its_text() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    let post = |(n, line): (usize, &str)| format!("{{\"user\":\"user{}\",\"text\":\"{line}\"}}\n", n % 3);
    story.write("posts.jsonl", TEXT.lines().chain(["An unknown cat"]).enumerate().map(post).collect::<String>());
    story.write("posts.txt", format!("{TEXT}An unknown cat\n"));
    story.out("data vocab --from-list model/vocab.txt --out words.vocab");
    story.out("data import posts.jsonl --vocab words.vocab --out posts.store");
    let mut text = story.json("eval --model model --text posts.txt")["sets"][0].clone();
    let mut store = story.json("eval --model model --store posts.store")["sets"][0].clone();
    assert_eq!(store["keystroke_saving"], Value::Null, "a store has no letters");
    for key in ["set", "keystroke_saving"] {
        text[key] = Value::Null;
        store[key] = Value::Null;
    }
    assert_eq!(text, store);
    // Users are split, so the parts have the tokens of the whole.
    let tokens = |part: &str| {
        let line = format!("eval --model model --store posts.store --split 300:300 --part {part}");
        let output = story.json(&line);
        output["sets"][0]["tokens"].as_u64().unwrap()
    };
    let (code, message) = story.error("eval --model model --store posts.store --split 1:1 --part test");
    assert_eq!((code, message.as_str()), (2, "error: --store: posts.store has no posts of these users\n"));
    assert_eq!(tokens("train") + tokens("test") + tokens("validation"), text["tokens"].as_u64().unwrap());
}

/// What training says of its held-out users is what this command says of their text.
#[test]
fn a_run_in_training_is_measured_like_its_model() {
    let story = Story::new();
    let vocabulary = corpus::synth::vocabulary(300).unwrap();
    let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(vocabulary.len());
    let values = initial_parameters(&config, 1).unwrap();
    let crowd = Crowd::new(SynthPlan::new(2, 50, Dialect::Informal)).unwrap();
    story.write("posts.txt", (40..50).flat_map(|user| crowd.posts(user)).map(|post| post + "\n").collect::<String>());
    let learner = LanguageLearner::new(&config, 1, 1).unwrap();
    let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &vocabulary, &learner);
    let held_out = HeldOut::new(&population, 40..50, usize::MAX, &learner).unwrap();
    let mut threads = OnThreads::new(&learner, KernelPath::best(), 2);
    let counts = held_out.evaluate(&mut threads, &values).unwrap();
    let folder = Folder {
        name: "a test".to_owned(),
        rules: Tokenizer::words().rules(),
        weights: Weights::Recurrent { config, values },
        guarantee: Guarantee::public_text(),
        vocabulary: vocabulary.clone(),
    };
    let files = folder.write().unwrap();
    std::fs::create_dir(story.path("model")).unwrap();
    story.write(&format!("model/{WEIGHTS_FILE}"), files.weights);
    story.write(&format!("model/{CONFIG_FILE}"), files.config);
    story.write(&format!("model/{VOCABULARY_FILE}"), files.vocabulary);
    story.write(&format!("model/{CARD_FILE}"), files.card);
    let mut said = story.json("eval --model model --text posts.txt")["sets"][0].clone();
    said["keystroke_saving"] = Value::Null; // training does not measure letters
    said.as_object_mut().unwrap().remove("set");
    let mut want = serde_json::to_value(Metrics::from(&counts)).unwrap();
    // The numbers of a run have their names here too, but where both have the same.
    for (metric, value) in NEXT_WORDS.of_counts(&counts) {
        want[metric.name] = value.into();
    }
    assert_eq!(said, want);
}

#[test]
fn a_store_with_another_vocabulary_is_refused() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    story.write("posts.jsonl", "{\"user\":\"ann\",\"text\":\"the cat\"}\n");
    story.write("list.txt", "the\ncat\n");
    story.out("data vocab --from-list list.txt --no-punctuation --out small.vocab");
    story.out("data import posts.jsonl --vocab small.vocab --out small.store");
    let (code, message) = story.error("eval --model model --store small.store");
    assert!(
        code == 2 && message.contains("small.store has a different vocabulary: 5 entries, but the model has 19"),
        "{message}"
    );
    let words = std::fs::read_to_string(story.path("model/vocab.txt")).unwrap();
    story.write("list.txt", words.replace("\nmat\n", "\nrug\n"));
    story.out("data vocab --from-list list.txt --out other.vocab");
    story.out("data import posts.jsonl --vocab other.vocab --out other.store");
    let (code, message) = story.error("eval --model model --store other.store");
    assert!(code == 2 && message.contains("is \"rug\", but the model has \"mat\""), "{message}");
    story.out("data import posts.jsonl --characters --out letters.store");
    let (code, message) = story.error("eval --model model --store letters.store");
    assert!(
        code == 2 && message.contains("was made with the rules characters-1, but the model with words-1"),
        "{message}"
    );
}

#[test]
fn bad_input_is_named() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    story.write("empty.txt", "\n  \n");
    story.write("bytes.txt", b"\xff\xfe");
    for (line, want) in [
        ("eval --model nowhere --text text.txt", "error: --model: folder nowhere does not exist\n"),
        ("eval --model model --text empty.txt", "error: --text: empty.txt has no words\n"),
        (
            "eval --model model --text nowhere.txt",
            "error: --text: nowhere.txt: No such file or directory (os error 2)\n",
        ),
        ("eval --model model --store nowhere.store", "error: store nowhere.store does not exist\n"),
        (
            "eval --model model --store text.txt --split 1",
            "error: --split: expected two numbers per thousand, such as 50:100, got \"1\"\n",
        ),
        ("ngram --text text.txt --out x --order 9", "error: --order: the order must be from 2 to 5, got 9\n"),
        ("ngram --text empty.txt --out x", "error: --text: no words found\n"),
        (
            "ngram --text text.txt --out x --vocabulary-size 3",
            "error: --vocabulary-size: a vocabulary of 3 entries has no room for words, since <bos>, <eos> and <unk> are entries too\n",
        ),
    ] {
        assert_eq!(story.error(line), (2, want.to_owned()), "{line}");
    }
    let (code, message) = story.error("eval --model model --text bytes.txt");
    assert!(code == 2 && message.starts_with("error: --text: bytes.txt: not UTF-8: "), "{message}");
    assert!(!story.path("x").exists(), "what fails writes nothing");
}

/// A text that is compressed, or comes on standard input, is the same text.
#[test]
fn text_is_read_however_it_lies_about() {
    let story = Story::new();
    story.json("ngram --text text.txt --out model --order 2");
    let measured =
        |text: &str| story.json(&format!("eval --model model --text {text}"))["sets"][0]["perplexity"].clone();
    story.write("packed.txt.zst", zstd::encode_all(TEXT.as_bytes(), 1).unwrap());
    assert_eq!(measured("packed.txt.zst"), measured("text.txt"));
    story.json("ngram --text packed.txt.zst --out packed --order 2");
    story.out("pretrain --data packed.txt.zst --model tiny --out network --epochs 1 --batch 2 --unroll 4 -q");
    let answer: Value = serde_json::from_str(&story.answer("eval --model model --text - --json", TEXT)).unwrap();
    assert_eq!(answer["sets"][0]["perplexity"], measured("text.txt"));
}

/// As `train --from` does, `eval` and `predict` take the folder of a run.
#[test]
fn the_folder_of_a_run_stands_for_its_model() {
    let toy = Toy::new();
    toy.ok(&["train", "run.toml", "--set", "rounds=1", "--out", "run", "--quiet"]);
    toy.write("text.txt", "see you at home\nsee you soon\n");
    let measured = |model: &str| toy.ok(&["eval", "--model", model, "--text", "text.txt", "--json"]);
    assert_eq!(measured("run"), measured("run/model"));
    toy.write("typed.txt", "see you\n");
    let suggested = |model: &str| {
        let typed = std::fs::File::open(toy.path("typed.txt")).unwrap();
        let output = toy.command(&["predict", "--model", model, "--json"]).stdin(typed).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(suggested("run").contains("\"typed\":\"see you\",\"suggestions\":[{"), "{}", suggested("run"));
    assert_eq!(suggested("run"), suggested("run/model"));
    std::fs::rename(toy.path("run/model"), toy.path("elsewhere")).unwrap();
    let said = toy.refused(&["eval", "--model", "run", "--text", "text.txt"]);
    assert!(said.contains("the run in run has no model yet"), "{said}");
    let said = toy.refused(&["eval", "--model", "elsewhere", "--text", "text.txt", "--threads", "100000"]);
    assert!(said.contains("'--threads <N>': must be from 1 to 1024, got 100000"), "{said}");
}

/// Kernels are chosen by the environment; the scalar ones give the same text.
#[test]
fn a_network_is_measured_on_the_kernels_that_are_named() {
    let story = Story::new();
    story.out("pretrain --data text.txt --model tiny --out model --epochs 1 --batch 2 --unroll 4");
    let run = |kernels: &str| {
        let mut command = assert_cmd::Command::cargo_bin("keyhush").unwrap();
        let model = story.path("model");
        let text = story.path("text.txt");
        command.arg("eval").arg("--model").arg(model).arg("--text").arg(text).env("KEYHUSH_KERNELS", kernels);
        command.output().unwrap()
    };
    let scalar = run("scalar");
    assert!(scalar.status.success(), "{}", String::from_utf8_lossy(&scalar.stderr));
    let unknown = run("abacus");
    assert_eq!(unknown.status.code(), Some(2));
    let message = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        message.starts_with("error: KEYHUSH_KERNELS=abacus: not available; this machine has ")
            && message.contains("scalar")
    );
}
