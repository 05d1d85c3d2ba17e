//! `keyhush eval`: how well a model predicts.

use std::{
    io::Write,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lm::{
    language_model::LanguageModel,
    metrics::{Counts, HEADS, HeadWords, Measure, Metrics, MetricsError, Sequence, average_perplexity, batches},
    predict::Keyboard,
    tokenizer::{Rules, Tokenizer},
};
use serde::Serialize;

use crate::{
    failure::BadInput,
    model_folder::{self, Line},
};

/// Sequences that are read side by side.
const ROWS: usize = 64;

/// Arguments of `keyhush eval`.
#[derive(Args)]
pub(crate) struct EvalArgs {
    /// The model's folder
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// A test set, one sequence a line; with several, their average perplexity is given too
    #[arg(long = "text", value_name = "FILE", required = true)]
    texts: Vec<PathBuf>,
    /// Threads; the numbers do not depend on it [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
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
    text: String,
    #[serde(flatten)]
    metrics: Metrics,
}

pub(crate) fn eval(args: &EvalArgs) -> anyhow::Result<()> {
    let threads = args.threads()?;
    let folder = model_folder::read(&args.model)?;
    let (vocabulary, tokenizer) = (folder.vocabulary.clone(), Tokenizer::new(folder.rules));
    let model = folder.into_model()?;
    let keyboard = Keyboard::new(vocabulary.words());
    let measure = Measure::new(HeadWords::in_order(vocabulary.len()));
    let measure = match tokenizer.rules() {
        Rules::Words1 => measure.with_keyboard(&keyboard),
        Rules::Characters1 => measure, // there are no words to suggest
    };
    let mut sets = Vec::new();
    for path in &args.texts {
        let lines = model_folder::lines(&model_folder::read_text("text", path)?, tokenizer, &vocabulary);
        if lines.is_empty() {
            return Err(BadInput::wrong("text", format!("{} has no words", path.display())).into());
        }
        let counts = count(model.as_ref(), &measure, &lines, threads)?;
        sets.push(Set { text: path.display().to_string(), metrics: Metrics::from(&counts) });
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

/// Counts on several threads. Batches do not depend on their number and counts add up exactly, so neither does the result.
fn count(model: &dyn LanguageModel, measure: &Measure<'_>, lines: &[Line], threads: usize) -> Result<Counts, MetricsError> {
    let lengths: Vec<usize> = lines.iter().map(|line| line.ids.len()).collect();
    let batches = batches(&lengths, ROWS);
    let progress = progress(lines.len() as u64);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Ok(Counts::default()));
    let work = || {
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            let sequence = |i: &usize| Sequence { ids: &lines[*i].ids, letters: &lines[*i].letters };
            let sequences: Vec<Sequence<'_>> = batch.iter().map(sequence).collect();
            let counted = measure.count(model, &sequences);
            progress.inc(batch.len() as u64);
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match (total.as_mut(), counted) {
                (Ok(sum), Ok(counts)) => sum.merge(&counts),
                (Ok(_), Err(error)) => *total = Err(error),
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|scope| (0..threads.min(batches.len())).for_each(|_| drop(scope.spawn(work))));
    progress.finish_and_clear();
    total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Shown in a terminal only.
fn progress(sequences: u64) -> ProgressBar {
    let bar = ProgressBar::new(sequences);
    match ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} sequences, {eta} left") {
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
        writeln!(out, "{gap}{}", set.text)?;
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
    writeln!(out, "  head words          tokens (%) with 0 to 10 of the first ten predictions among the most frequent")?;
    for (head, shares) in HEADS.iter().zip(heads) {
        let shares: String = shares.iter().map(|s| format!("{:>6.1}", 100.0 * s)).collect();
        writeln!(out, "  {:<19}{shares}", format!("  {head}"))?;
    }
    Ok(())
}
