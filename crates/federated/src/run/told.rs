//! The summary of a run in words: the sentence to quote, and the notes that belong to it.

use ledger::{
    DataSource,
    statement::{Statement, rounded_up},
};

use super::{
    Totals,
    presence::few,
    stated::{counted, price},
};
use crate::{
    burden::Burden,
    metrics::{
        Metrics,
        registry::{Absent, Goal},
    },
    numbers::{self, grouped},
    plan::Sent,
    price::Meaning,
    round::attempts::Failed,
};

/// A loss, such as perplexity, that is so many times that of the start says nothing any more.
const BEYOND_MEASURE: f64 = 100.0;

/// What a sentence is made from.
pub(super) struct Told<'a> {
    /// Users of a round, as planned.
    pub(super) cohort: u64,
    /// Rounds that were settled.
    pub(super) rounds: u64,
    /// Its evaluations.
    pub(super) history: &'a [Metrics],
    /// What users did, exactly; simulations only.
    pub(super) totals: Option<Totals>,
    /// Failed attempts.
    pub(super) failed: &'a [Failed],
    /// What the ledger guarantees.
    pub(super) statement: &'a Statement,
}

impl Told<'_> {
    /// What a person can quote: what the model does, for whom it was paid, and the price, if there is one (rule P23).
    pub(super) fn sentence(&self) -> String {
        let Some(Metrics { measured, round, .. }) = self.history.last() else {
            return "Nothing has been measured yet.".into();
        };
        let statement = self.statement;
        let price = price(statement);
        let unit = statement.unit.name();
        let mood = if price.meaning == Meaning::IfSecret { "In simulation, the model" } else { "The model" };
        let does = (measured.measures().does)(measured.headline());
        let done = format!("{mood} {does} after {}{}", self.rounds_words(unit), measured_at(*round, self.rounds));
        let judged = judged(self.history);
        if !price.epsilon.is_finite() {
            return format!("{done}, with no privacy at all (epsilon is infinite).{judged}");
        }
        let (epsilon, delta) = (rounded_up(price.epsilon.get()), format!("{:e}", statement.guarantee.delta.get()));
        let (adjacency, counted) = (statement.adjacency, counted(statement));
        let private = format!("{unit}-level ({epsilon}, {delta})-differential privacy ({adjacency}){counted}");
        match (price.meaning, &statement.data) {
            (Meaning::IfSecret, _) => {
                format!(
                    "{done}.{judged} No guarantee: the noise was simulated; with secret noise it would be {private}."
                )
            }
            (_, DataSource::MadeUp { .. }) => format!("{done}, with {private}; nobody real is protected.{judged}"),
            (_, DataSource::Users { .. }) => format!("{done}, with {private}.{judged}"),
        }
    }

    /// The rounds, of whom they were, and who was missing.
    fn rounds_words(&self, unit: &str) -> String {
        let made_up = if self.statement.data.is_made_up() { "synthetic " } else { "" };
        let (cohort, population) = (grouped(self.cohort), grouped(self.statement.population));
        let rounds = numbers::counted(self.rounds, "round");
        let there = match self.totals.and_then(|totals| totals.users_of_a_round()) {
            Some(0.0) => ", none of whom exist".to_owned(),
            Some(there) if there < 0.5 * self.cohort as f64 => {
                format!(", of whom only {} per round exist", few(there))
            }
            _ => String::new(),
        };
        let failed = match self.failed.iter().filter(|failed| failed.passed_over).count() {
            0 => String::new(),
            passed_over => format!(", {passed_over} of which failed"),
        };
        format!("{rounds} of {cohort} of {population} {made_up}{unit}s{there}{failed}")
    }
}

/// After which round it was measured, where others have followed: what it costs is what all of them cost.
fn measured_at(round: u64, rounds: u64) -> String {
    if round == rounds {
        return String::new();
    }
    let round =
        if round == 0 { "before the first round".to_owned() } else { format!("after round {}", grouped(round)) };
    format!(" (measured {round})")
}

/// That a run ended below its start, or that a loss of it has left all measure; nothing where neither is so.
fn judged(history: &[Metrics]) -> String {
    let [first, .., last] = history else { return String::new() };
    let headline = last.measured.measures().headline;
    let mut words = String::new();
    if !headline.goal.reaches(last.measured.headline(), first.measured.headline()) {
        let before = headline.shown(first.measured.headline());
        words += &format!(" That is worse than before the first round ({before}).");
    }
    let losses = last.measured.measures().metrics.iter().filter(|metric| metric.goal == Goal::Lower);
    for loss in losses.filter(|metric| metric.absent == Absent::Infinite) {
        let of = |line: &Metrics| loss.of(line).unwrap_or(f64::INFINITY);
        let (before, now) = (of(first), of(last));
        if !now.is_finite() {
            words += &format!(" Its {} is no longer finite: training diverged.", loss.label);
        } else if now > BEYOND_MEASURE * before {
            let (before, now) = (loss.shown(before), loss.shown(now));
            words += &format!(" Its {} exploded: {now}, from {before} before the first round.", loss.label);
        }
    }
    words
}

/// What should be known of a run beside its sentence. Totals are exact, and of simulations alone (rule P12).
pub(super) fn notes(burden: Option<&Burden>, totals: Option<&Totals>, sent: Option<Sent>) -> Vec<String> {
    let noise = burden.map(|burden| capital(&burden.words()));
    noise.into_iter().chain(totals.and_then(ran_away)).chain(sent.map(|sent| sent.words())).collect()
}

/// Users whose training diverged: they count as nothing, and nothing else shows it.
fn ran_away(totals: &Totals) -> Option<String> {
    let Totals { users, not_finite, .. } = *totals;
    (not_finite > 0).then(|| {
        format!(
            "Training diverged for {} of {} user updates, which were not finite and counted as zero; try a smaller local.learning_rate.",
            grouped(not_finite),
            grouped(users)
        )
    })
}

/// As a sentence that stands alone.
fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{
        Measured,
        prediction::{NEXT_WORDS, PERPLEXITY},
        tests::run,
    };

    fn perplexities(history: &mut [Metrics], values: &[f64]) {
        for (line, value) in history.iter_mut().zip(values) {
            let accuracy = line.measured.headline();
            line.measured =
                Measured::new(&NEXT_WORDS, |metric| Some(if *metric == PERPLEXITY { *value } else { accuracy }));
        }
    }

    /// A tile that was a mean of five evaluations hid a model that had fallen below its start.
    #[test]
    fn a_run_that_ends_below_its_start_says_so() {
        let mut fell = run(&[0.12, 0.2, 0.109]);
        perplexities(&mut fell, &[500.0, 400.0, 600.0]);
        assert_eq!(judged(&fell), " That is worse than before the first round (12.00 %).");
        let mut rose = run(&[0.12, 0.1, 0.13]);
        perplexities(&mut rose, &[500.0, 400.0, 600.0]);
        assert_eq!(judged(&rose), "");
        assert_eq!(judged(&rose[..1]), "", "one evaluation is the start");
    }

    #[test]
    fn a_loss_that_has_left_all_measure_is_said() {
        let mut history = run(&[0.1, 0.1]);
        perplexities(&mut history, &[1000.0, 1e9]);
        assert_eq!(judged(&history), " Its perplexity exploded: 1.000e9, from 1000 before the first round.");
        perplexities(&mut history, &[1000.0, f64::INFINITY]);
        assert_eq!(judged(&history), " Its perplexity is no longer finite: training diverged.");
        perplexities(&mut history, &[1000.0, 99_000.0]);
        assert_eq!(judged(&history), "");
    }

    /// "After 238 rounds", of a model that was measured after round 237.
    #[test]
    fn the_sentence_names_the_round_of_its_measurement() {
        assert_eq!(measured_at(238, 238), "");
        assert_eq!(measured_at(1237, 1238), " (measured after round 1,237)");
        assert_eq!(measured_at(0, 3), " (measured before the first round)");
    }

    /// "Predicts 0.1 % ... worse than before (0.09 %)": one was rounded and the other not.
    #[test]
    fn the_accuracy_and_what_it_is_compared_with_are_rounded_alike() {
        let mut fell = run(&[0.0009, 0.0007]);
        perplexities(&mut fell, &[1000.0, 1000.0]);
        assert!((NEXT_WORDS.does)(0.0007).starts_with("predicts 0.07 % of"), "{}", (NEXT_WORDS.does)(0.0007));
        assert_eq!(judged(&fell), " That is worse than before the first round (0.09 %).");
    }

    /// 367 of 506 users whose updates were not finite showed nowhere.
    #[test]
    fn users_whose_training_ran_away_are_counted() {
        let totals = Totals { rounds: 3, users: 506, tokens: 9, not_finite: 367 };
        let said = notes(None, Some(&totals), None);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("Training diverged for 367 of 506 user updates"), "{}", said[0]);
        assert!(notes(None, Some(&Totals { not_finite: 0, ..totals }), None).is_empty());
        assert!(notes(None, None, None).is_empty());
    }
}
