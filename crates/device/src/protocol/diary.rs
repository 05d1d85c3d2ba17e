//! The diary: shows the device's owner what was sent, to whom and on which day, and what was refused and why.
//!
//! It stands beside the guard and permits nothing: the guard decides ([`crate::guard`]), the diary says it in words. It is written
//! before an input leaves, so after a crash it may speak of one that did not; never the other way round. No word of what was typed
//! and no time of day is in it. A server that asks for something absurd ten thousand times per day fills one line.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{hex, message::Realm, terms::Purpose};
use crate::guard::{Day, Limits, Store, StoreError, TaskDigest, Window, hours};

/// Refusals that are remembered, the newest ones.
const MOST_REFUSALS: usize = 512;
/// Servers and tasks that are remembered, the newest ones.
const MOST_KNOWN: usize = 256;
/// Characters of words that come from elsewhere.
const MOST_CHARACTERS: usize = 300;

const FORMAT: u32 = 1;

/// Why there is no diary.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DiaryError {
    /// What is there cannot be read.
    #[error("the diary cannot be read: {0}")]
    Damaged(String),
    /// It is of another version of the program.
    #[error("the diary has format {got}, but this program reads {FORMAT}; use the program that wrote it")]
    Version {
        /// Its format.
        got: u32,
    },
    /// The place where it is kept failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An input that left, or was about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The day, counted from 1970.
    pub day: u32,
    /// What its server calls the task.
    pub task: String,
    /// The task's digest, in hexadecimal digits.
    pub digest: String,
    /// Whose it is, in hexadecimal digits.
    pub realm: String,
    /// The step.
    pub step: u64,
    /// What left: a change to a model, or counts of how well one does.
    #[serde(default, skip_serializing_if = "is_training")]
    pub purpose: Purpose,
    /// Whether the server saw nothing but a sum.
    pub secure: bool,
    /// Whether the server said that it counts.
    #[serde(default)]
    pub thanked: bool,
}

fn is_training(purpose: &Purpose) -> bool {
    *purpose == Purpose::Training
}

/// A task or step that this device refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The last day on which it was asked for, counted from 1970.
    pub day: u32,
    /// How often it was asked for.
    pub times: u64,
    /// By whom, in hexadecimal digits.
    pub realm: String,
    /// The reason.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    realm: String,
    day: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Eligible {
    digest: String,
    from_step: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    format: u32,
    servers: Vec<Known>,
    eligible: Vec<Eligible>,
    given: Vec<Given>,
    refused: Vec<Refusal>,
}

/// The device's own record.
#[derive(Debug)]
pub struct Diary<S> {
    store: S,
    pages: Pages,
}

impl<S: Store> Diary<S> {
    /// The diary that is there, or an empty one.
    ///
    /// # Errors
    /// When what is there cannot be read, or the store fails.
    pub fn open(mut store: S) -> Result<Self, DiaryError> {
        let Some(bytes) = store.load()? else {
            let empty = Pages { format: FORMAT, servers: vec![], eligible: vec![], given: vec![], refused: vec![] };
            return Ok(Self { store, pages: empty });
        };
        let pages: Pages = serde_json::from_slice(&bytes).map_err(|e| DiaryError::Damaged(e.to_string()))?;
        match pages.format {
            FORMAT => Ok(Self { store, pages }),
            got => Err(DiaryError::Version { got }),
        }
    }

    fn save(&mut self) -> Result<(), StoreError> {
        let unwritten = |e: serde_json::Error| {
            let place = "the diary".to_owned();
            StoreError::Failed { doing: "write", place, problem: e.to_string() }
        };
        self.store.save(&serde_json::to_vec(&self.pages).map_err(unwritten)?)
    }

    /// Whether the device is enrolled with a server.
    #[must_use]
    pub fn knows(&self, realm: &Realm) -> bool {
        let realm = hex(&realm.0);
        self.pages.servers.iter().any(|known| known.realm == realm)
    }

    /// The device is enrolled.
    ///
    /// # Errors
    /// When that is not durable.
    pub fn enrolled(&mut self, realm: &Realm, day: Day) -> Result<(), StoreError> {
        self.pages.servers.retain(|known| known.realm != hex(&realm.0));
        self.pages.servers.push(Known { realm: hex(&realm.0), day: day.number() });
        keep_newest(&mut self.pages.servers, MOST_KNOWN);
        self.save()
    }

    /// The server knows the device no more.
    ///
    /// # Errors
    /// When that is not durable.
    pub fn forgotten(&mut self, realm: &Realm) -> Result<(), StoreError> {
        self.pages.servers.retain(|known| known.realm != hex(&realm.0));
        self.save()
    }

    /// The step of a task before which its server said that it does not need the device; 0 where it said nothing.
    #[must_use]
    pub fn eligible_from(&self, task: &TaskDigest) -> u64 {
        let digest = hex(&task.0);
        self.pages.eligible.iter().find(|e| e.digest == digest).map_or(0, |e| e.from_step)
    }

    /// Whether an input for a task of a server left, or was about to.
    #[must_use]
    pub fn gave(&self, realm: &Realm, task: &TaskDigest) -> bool {
        let (realm, digest) = (hex(&realm.0), hex(&task.0));
        self.pages.given.iter().rev().any(|given| given.digest == digest && given.realm == realm)
    }

    /// An input is about to leave.
    ///
    /// # Errors
    /// When that is not durable: then it may not leave.
    pub fn gives(&mut self, given: Given) -> Result<(), StoreError> {
        let Given { task, .. } = &given;
        self.pages.given.push(Given { task: plain(task), thanked: false, ..given });
        self.save()
    }

    /// The server said that an input counts, and from which step on it needs the device again.
    ///
    /// # Errors
    /// When that is not durable.
    pub fn thanked(&mut self, task: &TaskDigest, step: u64, from_step: u64) -> Result<(), StoreError> {
        let digest = hex(&task.0);
        let of_it = self.pages.given.iter_mut().rev().find(|given| given.digest == digest && given.step == step);
        if let Some(given) = of_it {
            given.thanked = true;
        }
        self.pages.eligible.retain(|e| e.digest != digest);
        self.pages.eligible.push(Eligible { digest, from_step });
        keep_newest(&mut self.pages.eligible, MOST_KNOWN);
        self.save()
    }

    /// The device would not do something.
    ///
    /// # Errors
    /// When that is not durable. Nothing depends on it.
    pub fn refuses(&mut self, realm: &Realm, why: &str, day: Day) -> Result<(), StoreError> {
        let (realm, why) = (hex(&realm.0), plain(why));
        match self.pages.refused.iter_mut().find(|refusal| refusal.realm == realm && refusal.why == why) {
            Some(refusal) => (refusal.day, refusal.times) = (day.number(), refusal.times.saturating_add(1)),
            None => self.pages.refused.push(Refusal { day: day.number(), times: 1, realm, why }),
        }
        keep_newest(&mut self.pages.refused, MOST_REFUSALS);
        self.save()
    }

    /// The inputs that were sent.
    #[must_use]
    pub fn given(&self) -> &[Given] {
        &self.pages.given
    }

    /// The tasks and steps that were refused.
    #[must_use]
    pub fn refused(&self) -> &[Refusal] {
        &self.pages.refused
    }

    /// Gives the store back, for tests of restarts.
    #[cfg(any(test, feature = "contract"))]
    pub fn into_store(self) -> S {
        self.store
    }

    /// All of it as a page for the device's owner. `left` is the inputs the guard has recorded, `rests` the tasks that it rests from and until when.
    #[must_use]
    pub fn page(&self, left: usize, rests: &[(TaskDigest, Day)], limits: &Limits) -> String {
        let mut page = String::from("What this device sent\n=====================\n\n");
        // Writing into a string does not fail.
        _ = writeln!(page, "{}\n", sentence(left, limits));
        for (task, until) in rests {
            let digest = hex(&task.0);
            let named = self.pages.given.iter().rev().find(|given| given.digest == digest);
            let (name, until) = (named.map_or("a task", |given| &given.task), date(until.number()));
            _ = writeln!(page, "It does not take part in {name} ({}) until {until}.\n", start(&digest));
        }
        for Given { day, task, digest, realm, step, purpose, secure, thanked } in &self.pages.given {
            let how =
                if *secure { "hidden by secure aggregation" } else { "visible to the server, to be added to others" };
            let counted = if *thanked { "it counts" } else { "the server did not say whether it counted" };
            let (server, digest) = (start(realm), start(digest));
            let what = match purpose {
                Purpose::Training => format!("step {step}: a model update"),
                Purpose::Evaluation => format!("evaluation {step}: counts of how well a model predicts your text"),
            };
            let day = date(*day);
            _ = writeln!(page, "{day}  {task} ({digest}) of server {server}, {what}, {how}; {counted}");
        }
        if self.pages.given.is_empty() {
            page.push_str("Nothing yet.\n");
        }
        page.push_str("\nWhat it refused\n===============\n\n");
        for Refusal { day, times, realm, why } in &self.pages.refused {
            let often = if *times == 1 { String::new() } else { format!(" ({times} times, most recently this)") };
            _ = writeln!(page, "{}  server {}: {why}{often}", date(*day), start(realm));
        }
        if self.pages.refused.is_empty() {
            page.push_str("Nothing.\n");
        }
        page.push_str(
            "\nEach report was computed from your text on this device, clipped and rounded: one model update, or a few counts for an evaluation. An evaluation does not train on your text, and the text is kept until it is trained on. No text has left this device, and neither has this page.\n",
        );
        page
    }
}

fn sentence(left: usize, limits: &Limits) -> String {
    let most = limits.most_inputs;
    let allowed = match limits.window {
        Window::Ever => format!("{most} in total"),
        Window::Days(days) if days.get() == 1 => format!("{most} per day"),
        Window::Days(days) => format!("{most} within {days} days"),
    };
    let rests = match limits.timer.own_s {
        0 => String::new(),
        seconds => format!(" After each it waits for {} h, or longer if a task requires it.", hours(seconds)),
    };
    format!("Reports sent, including failed attempts: {left}. Limit: {allowed}.{rests}")
}

/// The newest are at the end.
fn keep_newest<T>(list: &mut Vec<T>, most: usize) {
    let too_many = list.len().saturating_sub(most);
    list.drain(..too_many);
}

/// Words from elsewhere, so that they can stand on a page: no signs that move a terminal, and not too many.
pub(super) fn plain(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MOST_CHARACTERS).collect()
}

fn start(digits: &str) -> &str {
    digits.get(..8).unwrap_or(digits)
}

/// A day as a date (H. Hinnant's `civil_from_days`). Written out because this crate is for phones and browsers, where a library of dates
/// is more than all of it needs.
fn date(day: u32) -> String {
    let z = u64::from(day) + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{MemoryStore, Timer};

    const REALM: Realm = Realm([0xab; 32]);
    const TIMER: Timer = Timer { own_s: 86_400, task_s: 0 };
    const LIMITS: Limits = Limits { most_inputs: 5, window: Window::Ever, separation: None, timer: TIMER };

    fn given(step: u64) -> Given {
        let (task, digest, realm) = ("en\u{1b}[2J keyboard".to_owned(), hex(&[7; 32]), hex(&REALM.0));
        let purpose = if step == 9 { Purpose::Evaluation } else { Purpose::Training };
        Given { day: 20_000, task, digest, realm, step, purpose, secure: true, thanked: false }
    }

    #[test]
    fn it_remembers_through_its_store() {
        let mut diary = Diary::open(MemoryStore::default()).unwrap();
        assert!(!diary.knows(&REALM));
        diary.enrolled(&REALM, Day::at(0)).unwrap();
        diary.gives(given(3)).unwrap();
        diary.gives(given(9)).unwrap();
        diary.thanked(&TaskDigest([7; 32]), 9, 12).unwrap();
        diary.refuses(&REALM, "no noise", Day::at(86_400)).unwrap();
        diary.refuses(&REALM, "no noise", Day::at(3 * 86_400)).unwrap();
        let diary = Diary::open(diary.into_store()).unwrap();
        assert!(diary.knows(&REALM) && !diary.knows(&Realm([1; 32])));
        assert_eq!((diary.eligible_from(&TaskDigest([7; 32])), diary.eligible_from(&TaskDigest([8; 32]))), (12, 0));
        assert_eq!(diary.given().iter().map(|g| (g.step, g.thanked)).collect::<Vec<_>>(), [(3, false), (9, true)]);
        assert_eq!((diary.refused().len(), diary.refused()[0].times, diary.refused()[0].day), (1, 2, 3));
        assert!(diary.gave(&REALM, &TaskDigest([7; 32])) && !diary.gave(&Realm([1; 32]), &TaskDigest([7; 32])));
        let page = diary.page(2, &[(TaskDigest([7; 32]), Day::at(20_003 * 86_400))], &LIMITS);
        for words in [
            "including failed attempts: 2.",
            "5 in total",
            "After each it waits for 24 h",
            "It does not take part in en[2J keyboard (07070707) until 2024-10-07.",
            "2024-10-04",
            "en[2J keyboard",
            "step 3: a model update",
            "evaluation 9: counts of how well",
            "it counts",
            "1970-01-04",
            "2 times, ",
        ] {
            assert!(page.contains(words), "{words} is not in\n{page}");
        }
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn a_server_cannot_fill_it() {
        let mut diary = Diary::open(MemoryStore::default()).unwrap();
        for n in 0..560 {
            diary.refuses(&REALM, &format!("{n} {}", "x".repeat(10_000)), Day::at(0)).unwrap();
            diary.thanked(&TaskDigest([(n % 250) as u8; 32]), n, n).unwrap();
        }
        assert_eq!(diary.refused().len(), MOST_REFUSALS);
        assert!(diary.into_store().bytes.unwrap().len() < 1 << 18);
    }

    #[test]
    fn what_is_damaged_is_not_taken_for_an_empty_one() {
        for bytes in [&b""[..], b"{}", b"not JSON"] {
            let opened = Diary::open(MemoryStore { bytes: Some(bytes.to_vec()) });
            assert!(matches!(opened, Err(DiaryError::Damaged(_))), "{bytes:?}");
        }
        let later = br#"{"format":2,"servers":[],"eligible":[],"given":[],"refused":[]}"#;
        let opened = Diary::open(MemoryStore { bytes: Some(later.to_vec()) });
        assert!(matches!(opened, Err(DiaryError::Version { got: 2 })));
    }

    #[test]
    fn days_are_dates() {
        let known = [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_000, "2024-10-04")];
        for (day, expected) in known {
            assert_eq!(date(day), expected);
        }
        assert_eq!(date(u32::MAX).len(), 14);
    }
}
