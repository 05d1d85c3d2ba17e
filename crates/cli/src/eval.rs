//! `keyhush eval`: measures how well a model predicts.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use corpus::store::{Part, Store};
use federated::{
    metrics::{
        Metric,
        prediction::{
            ACCURACY_IN_VOCABULARY, ACCURACY_TOP1, ACCURACY_TOP3, HEAD_10, HEAD_50, HEAD_100, NEXT_WORDS, PERPLEXITY,
        },
        registry::METRICS,
    },
    numbers::counted,
    test_sets::{self, Measured},
};
use indicatif::ProgressBar;
use lm::{
    folder::Folder,
    metrics::{Counts, HEADS, Metrics},
    predict::Keyboard,
    stream,
    tokenizer::Tokenizer,
    vocabulary::Vocabulary,
};
use serde::Serialize;

use crate::{data, failure::BadInput, kernels, model_folder, remaining, threads};

/// The registered metrics that [`rows`] and [`histograms`] show, in more detail; others have a row of their own.
static IN_DETAIL: [&Metric; 7] =
    [&ACCURACY_TOP1, &ACCURACY_TOP3, &ACCURACY_IN_VOCABULARY, &PERPLEXITY, &HEAD_10, &HEAD_50, &HEAD_100];
/// Those that [`Metrics`] has under the same names.
static IN_METRICS: [&Metric; 2] = [&ACCURACY_IN_VOCABULARY, &PERPLEXITY];

/// Arguments of `keyhush eval`.
#[derive(Args)]
pub(crate) struct EvalArgs {
    /// Folder of the model, or of a finished run
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Test set, one sequence per line; may be repeated, and then the average perplexity is printed too
    #[arg(long = "text", value_name = "FILE", required_unless_present = "stores")]
    texts: Vec<PathBuf>,
    /// Test set from `keyhush data import`, one sequence per post; keystrokes saved are not measured, since a store has no letters
    #[arg(long = "store", value_name = "STORE")]
    stores: Vec<PathBuf>,
    /// Split the users of the stores: users per thousand for validation and for testing
    #[arg(long, value_name = "VALIDATION:TEST", requires = "stores")]
    split: Option<String>,
    /// Salt of the split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split")]
    salt: u64,
    /// Part of the split to measure
    #[arg(long, value_name = "PART", default_value = "test", requires = "split")]
    part: PartName,
    /// Number of threads; does not change the results [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads::number)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A part of the users, as it is typed.
#[derive(Clone, Copy, ValueEnum)]
enum PartName {
    Train,
    Validation,
    Test,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Train => Self::Train,
            PartName::Validation => Self::Validation,
            PartName::Test => Self::Test,
        }
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Answer {
    sets: Vec<Set>,
    /// Popov's average over the sets, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_perplexity: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_perplexity_without_unk: Option<f64>,
}

/// A test set.
#[derive(Serialize)]
struct Set {
    /// The file it is in.
    set: String,
    #[serde(flatten)]
    metrics: Metrics,
    /// The numbers that runs have of a model, by their names there.
    #[serde(flatten)]
    registered: BTreeMap<&'static str, f64>,
}

pub(crate) fn eval(args: &EvalArgs) -> anyhow::Result<()> {
    let threads = threads::chosen(args.threads);
    let split = args.split.as_deref().map(|text| data::split(text, args.salt)).transpose()?;
    let users = split.map(|split| (split, args.part.into()));
    let Folder { vocabulary, rules, weights, .. } = model_folder::read(&args.model)?;
    let (model, tokenizer) = (weights.into_model(kernels::chosen()?)?, Tokenizer::new(rules));
    let keyboard = Keyboard::new(vocabulary.words());
    let measured = Measured::new(model.as_ref(), rules, &keyboard, threads);
    let mut sets = Vec::new();
    for path in &args.texts {
        let lines = stream::lines(&model_folder::read_text("text", path)?, tokenizer, &vocabulary);
        let bar = progress(lines.len() as u64, "lines");
        let counts = measured.lines(&lines, |lines| bar.inc(lines))?;
        bar.finish_and_clear();
        sets.push(Set::new("text", path, &counts, "words")?);
    }
    for path in &args.stores {
        let store = data::open(path)?;
        check_store(path, &store, &vocabulary, tokenizer)?;
        let bar = progress(store.users(), "users");
        let counts = measured.store(&store, users, |users| bar.set_position(users))?;
        bar.finish_and_clear();
        sets.push(Set::new("store", path, &counts, "posts of these users")?);
    }
    let metrics: Vec<&Metrics> = sets.iter().map(|set| &set.metrics).collect();
    let [average_perplexity, average_perplexity_without_unk] =
        [false, true].map(|without_unk| test_sets::average(&metrics, without_unk));
    let answer = Answer { average_perplexity, average_perplexity_without_unk, sets };
    print(&answer, args.json)
}

impl Set {
    fn new(field: &'static str, path: &Path, counts: &Counts, what: &str) -> Result<Self, BadInput> {
        let metrics = Metrics::from(counts);
        if metrics.tokens == 0 {
            return Err(BadInput::wrong(field, format!("{} has no {what}", path.display())));
        }
        Ok(Self { set: path.display().to_string(), metrics, registered: registered(counts) })
    }
}

/// The registered metrics of a language model, but those that [`Metrics`] has under the same names.
fn registered(counts: &Counts) -> BTreeMap<&'static str, f64> {
    let others = NEXT_WORDS.of_counts(counts).filter(|(metric, _)| !IN_METRICS.contains(metric));
    others.map(|(metric, value)| (metric.name, value)).collect()
}

/// Refuses a store whose ids mean something else to the model.
fn check_store(path: &Path, store: &Store, vocabulary: &Vocabulary, tokenizer: Tokenizer) -> Result<(), BadInput> {
    let remedy = "import the text again with the model's vocabulary (`keyhush data vocab --from-list MODEL/vocab.txt`)";
    test_sets::check_store(store, vocabulary, tokenizer)
        .map_err(|what| BadInput::wrong("store", format!("{} {what}; {remedy}", path.display())))
}

/// Shown in a terminal only.
fn progress(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    match remaining::style(&format!("{{wide_bar}} {{human_pos}}/{{human_len}} {what}, {{left}}")) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print(answer: &Answer, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(answer)?)?;
        return Ok(());
    }
    for (i, set) in answer.sets.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}", set.set)?;
        for (name, value) in rows(&set.metrics).into_iter().chain(more_rows(&set.registered)) {
            writeln!(out, "  {name:<19} {value}")?;
        }
        histograms(&set.metrics, &mut out)?;
    }
    if let Some(average) = answer.average_perplexity {
        let without = answer.average_perplexity_without_unk.map_or(String::new(), |p| format!(", without UNK {p:.2}"));
        writeln!(out, "\naverage perplexity    {average:.2}{without}")?;
    }
    Ok(())
}

fn rows(metrics: &Metrics) -> Vec<(&'static str, String)> {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let tops = |[one, three, five]: [f64; 3]| {
        format!("top 1 {}, top 3 {}, top 5 {}", percent(one), percent(three), percent(five))
    };
    let Metrics { tokens, words, unknown, impossible, .. } = metrics;
    let mut rows = vec![(
        "tokens",
        format!(
            "{tokens}: {} ({unknown} unknown) and {} of text",
            counted(*words, "word"),
            counted(tokens - words, "end")
        ),
    )];
    let mut push = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    push("accuracy", metrics.accuracy.map(tops));
    push("  without EOS", metrics.accuracy_without_eos.map(tops));
    push("  in vocabulary", metrics.accuracy_in_vocabulary.map(|a| format!("top 1 {}", percent(a))));
    push("perplexity", metrics.perplexity.map(|p| format!("{p:.2}")));
    push("  without UNK", metrics.perplexity_without_unk.map(|p| format!("{p:.2}")));
    push("  impossible", (*impossible > 0).then(|| format!("{impossible} targets had no probability")));
    push("keystroke saving", metrics.keystroke_saving.map(percent));
    rows
}

/// The registered metrics that are shown nowhere else.
fn more_rows(registered: &BTreeMap<&'static str, f64>) -> impl Iterator<Item = (&'static str, String)> {
    let others = METRICS.iter().filter(|metric| !IN_DETAIL.contains(metric));
    others.filter_map(|metric| Some((metric.label, metric.shown(*registered.get(metric.name)?))))
}

fn histograms(metrics: &Metrics, out: &mut impl Write) -> std::io::Result<()> {
    let Some(heads) = metrics.headedness else { return Ok(()) };
    writeln!(
        out,
        "  head words          tokens (%) by how many of their ten best predictions, 0 to 10, are among the most frequent"
    )?;
    for (head, shares) in HEADS.iter().zip(heads) {
        let shares: String = shares.iter().map(|s| format!("{:>6.1}", 100.0 * s)).collect();
        writeln!(out, "  {:<19}{shares}", format!("  {head}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts() -> Counts {
        let mut counts = Counts::default();
        counts.words.targets = 4;
        counts.words.hits = [1, 2, 3];
        counts
    }

    #[test]
    fn every_registered_metric_is_shown_once() {
        let counts = counts();
        let set = Set::new("text", Path::new("some.txt"), &counts, "words").unwrap();
        let said = serde_json::to_value(&set).unwrap();
        let measured: Vec<_> = NEXT_WORDS.of_counts(&counts).collect();
        assert!(measured.len() >= NEXT_WORDS.metrics.len());
        for (metric, value) in measured {
            assert_eq!(said[metric.name], json!(value), "{metric:?}");
        }
        let text = serde_json::to_string(&set).unwrap();
        for key in said.as_object().unwrap().keys() {
            assert_eq!(text.matches(&format!("\"{key}\":")).count(), 1, "{text}");
        }
        assert_eq!(more_rows(&set.registered).count(), 0, "all of today's are shown in detail");
        let recall = BTreeMap::from([("recall_top5", 0.25)]);
        assert_eq!(more_rows(&recall).map(|(_, value)| value).collect::<Vec<_>>(), ["25.00 %"]);
    }
}
