//! What is exact of a task, for operators: counts and times of check-ins and reports, and no device in any of them (rule P26).
//!
//! All of it stands under one key, `outside_the_guarantee`, with the words that must be said beside it.

use ledger::Observed as Frequencies;
use serde::Serialize;
use server::observed::{AttemptSeen, Bin, Ended, OUTSIDE, Observed, Series, StreamSeen};

use federated::protocol::seen::Shape;

use super::told::Limits;

/// The most attempts that are told.
const MOST_ATTEMPTS: usize = 60;
/// Seconds of one point of the check-ins.
const POINT_S: u64 = 60;

/// What operators are told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operations {
    /// The exact counts and times.
    pub outside_the_guarantee: Exact,
}

/// Exact counts and times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exact {
    /// The words that are shown beside these numbers.
    pub note: &'static str,
    /// Devices that are enrolled on the server, for all of its tasks.
    pub enrolled: u64,
    /// How many different devices were ever given the task; none where no server has run it yet, or it is over and they are forgotten.
    pub asked: Option<u64>,
    /// The declared population, which is public: no more different devices are ever asked.
    pub population: u64,
    /// Devices that wait to be asked now; none where this server does not run the task.
    pub waiting: Option<u64>,
    /// Check-ins per minute, for all tasks of the server.
    pub check_ins: Points,
    /// Attempts at rounds and evaluations since the server was started, the last ones, in the order in which they were opened.
    pub attempts: Vec<Attempt>,
    /// How often and how close together devices took part so far, of each stream with limits.
    pub observed: Vec<SoFar>,
}

/// Counts over time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Points {
    /// When each minute begins, in seconds since 1970.
    pub times: Vec<u64>,
    /// The count of each minute.
    pub counts: Vec<u64>,
}

/// An attempt at a round or an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    /// Of what, such as `round 12`.
    pub what: String,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// Whether it is open.
    pub open: bool,
    /// Whether its sum was released.
    pub released: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// When it was opened, in seconds since 1970.
    pub began: f64,
    /// When the attempt ended.
    pub ended: Option<f64>,
    /// How long devices had it.
    pub seconds: Option<f64>,
    /// How many reports the sum is of, which is public.
    pub goal: u64,
    /// Devices that were given it.
    pub asked: u64,
    /// Reports in its sum.
    pub reported: u64,
    /// Devices that dropped out of it.
    pub dropped: u64,
    /// How the parts of its devices went, the most frequent first.
    pub shapes: Vec<Session>,
}

/// How many devices had a part of this shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Its signs (Bonawitz et al. 2019, table 1).
    pub signs: &'static str,
    /// What they mean together.
    pub words: &'static str,
    /// How many devices.
    pub devices: u64,
}

/// How often and how close together devices took part so far in one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SoFar {
    /// The stream in the ledger.
    pub stream: String,
    /// What the stream is for, in words.
    pub title: &'static str,
    /// The most times of one device.
    pub max_participations: u64,
    /// The fewest rounds between two times of one device; none where no device came twice.
    pub min_separation: Option<u64>,
}

impl SoFar {
    /// Of all streams that were observed.
    pub(super) fn all<'a>(observed: impl IntoIterator<Item = (&'a String, &'a Frequencies)>) -> Vec<Self> {
        let one = |(stream, seen): (&String, &Frequencies)| {
            let seen = super::told::Seen::from(seen);
            let (max_participations, min_separation) = (seen.max_participations, seen.min_separation);
            Self { stream: stream.clone(), title: Limits::title_of(stream), max_participations, min_separation }
        };
        observed.into_iter().map(one).collect()
    }
}

/// What is known of a task from its state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// How many different devices were ever given it.
    pub asked: Option<u64>,
    /// The declared population.
    pub population: u64,
    /// How often and how close together devices took part.
    pub observed: Vec<SoFar>,
}

impl Operations {
    /// Of a task, from its state and from what is seen while the server runs.
    #[must_use]
    pub fn of(task: &str, standing: &Standing, observed: &Observed) -> Self {
        let seen = observed.task(task).unwrap_or_default();
        let attempts_of = |stream: &StreamSeen, word| {
            stream.attempts.iter().map(|attempt| Attempt::of(attempt, word)).collect::<Vec<_>>()
        };
        let waiting = Some(seen.rounds.waiting).filter(|_| !seen.task.is_empty());
        let mut attempts = attempts_of(&seen.rounds, "round");
        attempts.extend(seen.evaluations.iter().flat_map(|stream| attempts_of(stream, "evaluation")));
        attempts.sort_by(|a, b| a.began.total_cmp(&b.began));
        attempts.drain(..attempts.len().saturating_sub(MOST_ATTEMPTS));
        Self {
            outside_the_guarantee: Exact {
                note: OUTSIDE,
                enrolled: observed.snapshot().enrolled,
                asked: standing.asked,
                population: standing.population,
                waiting,
                check_ins: Points::of(&observed.series()),
                attempts,
                observed: standing.observed.clone(),
            },
        }
    }
}

impl Attempt {
    fn of(seen: &AttemptSeen, word: &str) -> Self {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let from = seen.assigned_ms.unwrap_or(seen.opened_ms);
        let mut shapes: Vec<Session> = Shape::ALL
            .into_iter()
            .filter_map(|shape| {
                let devices = *seen.shapes.get(shape.signs())?;
                Some(Session { signs: shape.signs(), words: shape.words(), devices })
            })
            .collect();
        shapes.sort_by_key(|session| std::cmp::Reverse(session.devices));
        Self {
            what: format!("{word} {}", seen.number),
            attempt: seen.attempt,
            open: seen.ended == Ended::Open,
            released: seen.ended == Ended::Released,
            why: seen.why.or((seen.ended == Ended::GivenUp).then_some("the task was ended, or cannot continue")),
            began: seconds(seen.opened_ms),
            ended: seen.ended_ms.map(seconds),
            seconds: seen.ended_ms.map(|ended| seconds(ended.saturating_sub(from))),
            goal: seen.goal,
            asked: seen.asked,
            reported: seen.reported,
            dropped: seen.dropped,
            shapes,
        }
    }
}

impl Points {
    /// Sums of whole minutes; the last may not be over, and is left out.
    fn of(series: &Series) -> Self {
        let (mut times, mut counts): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for (place, Bin { check_ins, .. }) in series.bins.iter().enumerate() {
            let at = series.from_ms / 1000 + place as u64 * series.bin_s;
            let minute = at / POINT_S * POINT_S;
            if times.last() != Some(&minute) {
                times.push(minute);
                counts.push(0);
            }
            if let Some(count) = counts.last_mut() {
                *count += u64::from(*check_ins);
            }
        }
        times.pop();
        counts.pop();
        Self { times, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_ins_are_told_of_whole_minutes() {
        let bin = |check_ins| Bin { check_ins, ..Bin::default() };
        let bins = (1..=14).map(bin).collect();
        let points = Points::of(&Series { from_ms: 90_000, bin_s: 10, bins });
        assert_eq!(points, Points { times: vec![60, 120], counts: vec![1 + 2 + 3, 4 + 5 + 6 + 7 + 8 + 9] });
        assert_eq!(Points::of(&Series { from_ms: 0, bin_s: 10, bins: Vec::new() }), Points::default());
    }
}
