//! `keyhush eval`: how well a model predicts.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use corpus::store::{Part, Split, Store};
use federated::evaluate;
use indicatif::{ProgressBar, ProgressStyle};
use lm::{
    folder::Folder,
    language_model::LanguageModel,
    metrics::{Counts, HEADS, HeadWords, Measure, Metrics, MetricsError, Sequence, average_perplexity},
    predict::Keyboard,
    stream::{self, Line},
    tokenizer::{Rules, Tokenizer},
    vocabulary::{BOS, EOS, Vocabulary},
};
use serde::Serialize;

use crate::{data, failure::BadInput, kernels, model_folder};

/// Tokens of a store that are in memory at a time.
const TOKENS: usize = 1 << 20;

/// Arguments of `keyhush eval`.
#[derive(Args)]
pub(crate) struct EvalArgs {
    /// The model's folder
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// A test set, one sequence a line; with several sets their average perplexity is given too
    #[arg(long = "text", value_name = "FILE", required_unless_present = "stores")]
    texts: Vec<PathBuf>,
    /// A test set of `keyhush data import`, one sequence a post; keystrokes are not measured, since letters are not in it
    #[arg(long = "store", value_name = "STORE")]
    stores: Vec<PathBuf>,
    /// Split the users of the stores: so many of a thousand for validation and for testing
    #[arg(long, value_name = "VALIDATION:TEST", requires = "stores")]
    split: Option<String>,
    /// The salt of the split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split")]
    salt: u64,
    /// Which users of the split are measured
    #[arg(long, value_name = "PART", default_value = "test", requires = "split")]
    part: PartName,
    /// Threads; the numbers do not depend on it [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Answer as JSON
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

/// What is printed.
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
}

pub(crate) fn eval(args: &EvalArgs) -> anyhow::Result<()> {
    let threads = args.threads()?;
    let split = args.split.as_deref().map(|text| data::split(text, args.salt)).transpose()?;
    let users = split.map(|split| (split, args.part.into()));
    let Folder { vocabulary, rules, weights, .. } = model_folder::read(&args.model)?;
    let (model, tokenizer) = (weights.into_model(kernels::chosen()?)?, Tokenizer::new(rules));
    let keyboard = Keyboard::new(vocabulary.words());
    let measure = Measure::new(HeadWords::in_order(vocabulary.len()));
    let measure = match rules {
        Rules::Words1 => measure.with_keyboard(&keyboard),
        Rules::Characters1 => measure, // there are no words to suggest
    };
    let work = Work { model: model.as_ref(), measure, threads };
    let mut sets = Vec::new();
    for path in &args.texts {
        let lines = stream::lines(&model_folder::read_text("text", path)?, tokenizer, &vocabulary);
        let bar = progress(lines.len() as u64, "lines");
        let counts = work.count(&lines, |lines| bar.inc(lines))?;
        bar.finish_and_clear();
        sets.push(Set::new("text", path, &counts, "words")?);
    }
    for path in &args.stores {
        let store = data::open(path)?;
        check_store(path, &store, &vocabulary, tokenizer)?;
        sets.push(Set::new("store", path, &work.count_store(&store, users)?, "posts of such users")?);
    }
    let answer = Answer {
        average_perplexity: average(&sets, |m| (m.tokens, m.perplexity)),
        average_perplexity_without_unk: average(&sets, |m| (m.tokens - m.unknown, m.perplexity_without_unk)),
        sets,
    };
    print(&answer, args.json)
}

impl EvalArgs {
    fn threads(&self) -> Result<usize, BadInput> {
        match self.threads {
            Some(0) => Err(BadInput::wrong("threads", "at least one is needed")),
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
        }
    }
}

impl Set {
    fn new(field: &'static str, path: &Path, counts: &Counts, what: &str) -> Result<Self, BadInput> {
        let metrics = Metrics::from(counts);
        if metrics.tokens == 0 {
            return Err(BadInput::wrong(field, format!("{} has no {what}", path.display())));
        }
        Ok(Self { set: path.display().to_string(), metrics })
    }
}

/// Refuses a store whose ids mean something else to the model.
fn check_store(path: &Path, store: &Store, vocabulary: &Vocabulary, tokenizer: Tokenizer) -> Result<(), BadInput> {
    let other = |what: String| {
        let remedy =
            "import the text again with the model's vocabulary, from `keyhush data vocab --from-list MODEL/vocab.txt`";
        Err(BadInput::wrong("store", format!("{} {what}; {remedy}", path.display())))
    };
    let theirs = store.vocabulary();
    if store.tokenizer() != tokenizer {
        let (rules, ours) = (store.tokenizer().rules(), tokenizer.rules());
        return other(format!("was made by the rules {rules}, and the model by {ours}"));
    }
    if theirs.len() != vocabulary.len() {
        let (has, ours) = (theirs.len(), vocabulary.len());
        return other(format!("has another vocabulary: {has} entries, and the model has {ours}"));
    }
    match theirs.words().zip(vocabulary.words()).enumerate().find(|(_, (a, b))| a != b) {
        Some((id, (a, b))) => other(format!("has another vocabulary: entry {id} is {a:?}, and the model's is {b:?}")),
        None => Ok(()),
    }
}

/// What counts, and on how many threads.
struct Work<'a> {
    model: &'a dyn LanguageModel,
    measure: Measure<'a>,
    threads: usize,
}

impl Work<'_> {
    fn count(&self, lines: &[Line], done: impl Fn(u64) + Sync) -> Result<Counts, MetricsError> {
        let sequences: Vec<_> = lines.iter().map(|line| Sequence { ids: &line.ids, letters: &line.letters }).collect();
        evaluate::count(self.model, &self.measure, &sequences, self.threads, done)
    }

    /// The posts of all users, or of a part of them.
    fn count_store(&self, store: &Store, users: Option<(Split, Part)>) -> anyhow::Result<Counts> {
        let bar = progress(store.users(), "users");
        let mut total = Counts::default();
        let (mut lines, mut tokens) = (Vec::new(), 0);
        for index in 0..store.users() {
            let user = store.user(index)?;
            if users.is_none_or(|(split, part)| split.part(user.tag()) == part) {
                for post in user.posts().filter(|post| !post.is_empty()) {
                    tokens += post.len();
                    lines.push(Line {
                        ids: [BOS].into_iter().chain(post.iter()).chain([EOS]).collect(),
                        letters: Vec::new(),
                    });
                }
            }
            if tokens >= TOKENS {
                total.merge(&self.count(&lines, |_| {})?);
                lines.clear();
                tokens = 0;
                bar.set_position(index + 1);
            }
        }
        total.merge(&self.count(&lines, |_| {})?);
        bar.finish_and_clear();
        Ok(total)
    }
}

/// Shown in a terminal only.
fn progress(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    match ProgressStyle::with_template(&format!("{{wide_bar}} {{human_pos}}/{{human_len}} {what}, {{eta}} left")) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn average(sets: &[Set], of: impl Fn(&Metrics) -> (u64, Option<f64>)) -> Option<f64> {
    let parts: Option<Vec<(u64, f64)>> = sets.iter().map(|set| of(&set.metrics)).map(|(n, p)| Some((n, p?))).collect();
    parts.filter(|parts| parts.len() > 1).and_then(|parts| average_perplexity(&parts))
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
        for (name, value) in rows(&set.metrics) {
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
    let mut rows =
        vec![("tokens", format!("{tokens}: {words} words, of which {unknown} unknown, and {} ends", tokens - words))];
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

fn histograms(metrics: &Metrics, out: &mut impl Write) -> std::io::Result<()> {
    let Some(heads) = metrics.headedness else { return Ok(()) };
    writeln!(
        out,
        "  head words          tokens (%) with 0 to 10 of the first ten predictions among the most frequent"
    )?;
    for (head, shares) in HEADS.iter().zip(heads) {
        let shares: String = shares.iter().map(|s| format!("{:>6.1}", 100.0 * s)).collect();
        writeln!(out, "  {:<19}{shares}", format!("  {head}"))?;
    }
    Ok(())
}
