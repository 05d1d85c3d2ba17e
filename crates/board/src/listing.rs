//! All runs as the page shows them, with what changed since a given version.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use report::board::{Chart, Summary, charts};
use serde::Serialize;
use tokio::sync::watch;

/// Whether a run is training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A process holds it, or its files changed recently.
    Running,
    /// The run has finished.
    Finished,
    /// It has not finished, and nothing changes: it was interrupted or killed.
    Stopped,
    /// Its files cannot be read.
    Unreadable,
}

/// A run in the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Grows when something about the run changes.
    pub version: u64,
    /// Whether it is training.
    pub state: State,
    /// Why it cannot be read, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its progress and results; none if it cannot be read.
    #[serde(flatten)]
    pub summary: Option<Summary>,
}

/// A run with everything that the page shows about it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) listed: Listed,
    /// As JSON; none if it cannot be read.
    pub(crate) detail: Option<Bytes>,
}

/// All runs at a moment.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    version: u64,
    runs: BTreeMap<String, Entry>,
    /// Whether the board is shutting down.
    over: bool,
}

/// A message to pages: all runs, or those that changed.
#[derive(Debug, Serialize)]
pub(crate) struct Told<'a> {
    version: u64,
    /// Whether earlier messages are to be forgotten.
    reset: bool,
    ids: Vec<&'a str>,
    runs: Vec<&'a Listed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    charts: Vec<Chart>,
}

impl Listing {
    /// Grows with every change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How many runs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, by name.
    pub fn runs(&self) -> impl Iterator<Item = &Listed> {
        self.runs.values().map(|entry| &entry.listed)
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// All of one run, as JSON; none where there is none of this name, or it cannot be read.
    #[must_use]
    pub fn detail(&self, id: &str) -> Option<Bytes> {
        self.runs.get(id)?.detail.clone()
    }

    /// What changed after a version, or all of it.
    pub(crate) fn told(&self, since: Option<u64>) -> Told<'_> {
        let changed = |listed: &&Listed| since.is_none_or(|since| listed.version > since);
        Told {
            version: self.version,
            reset: since.is_none(),
            ids: self.runs.keys().map(String::as_str).collect(),
            runs: self.runs().filter(changed).collect(),
            charts: if since.is_none() { charts() } else { Vec::new() },
        }
    }
}

/// The runs, for all that look at them: one writes, any number read and wait for changes.
#[derive(Debug, Clone)]
pub struct Board {
    listing: Arc<watch::Sender<Listing>>,
}

impl Default for Board {
    fn default() -> Self {
        Self { listing: Arc::new(watch::channel(Listing::default()).0) }
    }
}

impl Board {
    /// The current list of runs.
    #[must_use]
    pub fn now(&self) -> Listing {
        self.listing.borrow().clone()
    }

    /// One run now, as JSON.
    #[must_use]
    pub fn detail(&self, id: &str) -> Option<Bytes> {
        self.listing.borrow().detail(id)
    }

    /// Something as JSON, of all runs now.
    pub(crate) fn told(&self, since: Option<u64>) -> (u64, String) {
        let listing = self.listing.borrow();
        (listing.version, serde_json::to_string(&listing.told(since)).unwrap_or_default())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Listing> {
        self.listing.subscribe()
    }

    /// Ends all waits for changes.
    pub fn end(&self) {
        self.listing.send_modify(|listing| listing.over = true);
    }

    /// Takes runs that changed, and forgets those that are gone. Nobody is told where that is nothing.
    pub(crate) fn update(&self, changed: Vec<Entry>, is_there: &dyn Fn(&str) -> bool) {
        self.listing.send_if_modified(|listing| {
            let before = listing.runs.len();
            listing.runs.retain(|id, _| is_there(id));
            let any = before != listing.runs.len() || !changed.is_empty();
            if any {
                listing.version += 1;
            }
            for mut entry in changed {
                entry.listed.version = listing.version;
                listing.runs.insert(entry.listed.id.clone(), entry);
            }
            any
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str) -> Entry {
        let listed = Listed { id: id.into(), version: 0, state: State::Unreadable, problem: None, summary: None };
        Entry { listed, detail: None }
    }

    fn ids(told: &str) -> (bool, String) {
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        let ids: Vec<&str> = told["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
        (told["reset"].as_bool().unwrap(), format!("{} of {}", ids.join(" "), told["ids"].as_array().unwrap().len()))
    }

    #[test]
    fn a_page_is_told_what_changed_and_what_is_gone() {
        let board = Board::default();
        board.update(vec![entry("a"), entry("b")], &|_| true);
        let (first, told) = board.told(None);
        assert_eq!(ids(&told), (true, "a b of 2".into()));
        assert!(told.contains(r#""charts":[{"key":"accuracy_top1""#));
        let waits = board.changes();
        board.update(Vec::new(), &|_| true);
        assert!(!waits.has_changed().unwrap(), "nothing is not told");
        board.update(vec![entry("b")], &|_| true);
        let (second, told) = board.told(Some(first));
        assert_eq!(ids(&told), (false, "b of 2".into()));
        assert!(!told.contains("charts"));
        board.update(Vec::new(), &|id| id != "a");
        assert_eq!(ids(&board.told(Some(second)).1), (false, " of 1".into()));
        assert!(waits.has_changed().unwrap());
    }
}
