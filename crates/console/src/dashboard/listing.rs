//! All tasks as pages show them, twice: for viewers and for operators, each with what changed since a version.
//!
//! When a round ended depends on who took part in it (rule P23). So operators are told of each round as it is released, and viewers are
//! told of all that stands after an evaluation of the model, an operator's order, a start of the server or the end of the task, and of nothing
//! between: what they are told changes at no other time.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use ledger::Head;
use report::board::Chart;
use serde::Serialize;
use server::listing::Spent;
use tokio::sync::watch;

use super::{meanings, operations::Standing, told::Line};
use crate::{about::About, access::Role};

/// What one role is told of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// In the list.
    pub line: Line,
    /// All of it, as JSON; none where the task has not begun or cannot be read.
    pub detail: Option<Bytes>,
    /// Its statement, as Markdown and as JSON, each as the files of a finished task have them.
    pub statement: Option<(Bytes, Bytes)>,
    /// What its ledger says of its cost.
    pub spent: Option<Spent>,
    /// The head of the ledger that all of it is from.
    pub head: Head,
    /// What is exact of it (rule P26); empty in the view of viewers.
    pub standing: Standing,
}

impl View {
    /// A task of which there is no more than its line.
    pub(super) fn bare(line: Line) -> Self {
        Self { line, detail: None, statement: None, spent: None, head: Head::EMPTY, standing: Standing::default() }
    }
}

/// A task.
#[derive(Debug, Clone)]
struct Entry {
    operators: Arc<View>,
    viewers: Arc<View>,
    /// When viewers are told more: what has changed by then.
    moment: Moment,
}

/// What viewers are told is that of the last such moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Evaluations that are on record.
    pub evaluations: usize,
    /// How the task stands, as viewers are told.
    pub stands: String,
}

/// All tasks at a moment.
#[derive(Debug, Default)]
pub struct Listing {
    /// Grows with every change that operators are told.
    version: u64,
    /// Grows with every change that viewers are told: how many others there were is not theirs to know.
    for_viewers: u64,
    tasks: BTreeMap<String, Entry>,
}

/// A message to pages: all tasks, or those that changed.
#[derive(Debug, Serialize)]
pub struct Told<'a> {
    version: u64,
    /// Whether earlier messages are to be forgotten.
    reset: bool,
    /// The role of who is told.
    role: Role,
    names: Vec<&'a str>,
    tasks: Vec<&'a Line>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    charts: Vec<Chart>,
    /// What the server says of itself; in the first message, where it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'a About>,
}

impl Listing {
    fn view(&self, name: &str, role: Role) -> Option<Arc<View>> {
        let entry = self.tasks.get(name)?;
        Some(Arc::clone(if role >= Role::Operator { &entry.operators } else { &entry.viewers }))
    }

    const fn version(&self, role: Role) -> u64 {
        match role {
            Role::Viewer => self.for_viewers,
            Role::Operator | Role::Officer => self.version,
        }
    }

    fn told(&self, since: Option<u64>, role: Role) -> Told<'_> {
        let lines = self.tasks.values().map(|entry| match role {
            Role::Viewer => &entry.viewers.line,
            Role::Operator | Role::Officer => &entry.operators.line,
        });
        let newest = |line: &Line| line.version.max(line.operations.unwrap_or_default());
        Told {
            version: self.version(role),
            reset: since.is_none(),
            role,
            names: self.tasks.keys().map(String::as_str).collect(),
            tasks: lines.filter(|line| since.is_none_or(|since| newest(line) > since)).collect(),
            charts: if since.is_none() { meanings::explained() } else { Vec::new() },
            about: None,
        }
    }
}

/// The tasks, for all that look at them: one writes, any number read and wait for changes.
#[derive(Debug, Clone)]
pub struct Tasks {
    listing: Arc<watch::Sender<Listing>>,
    about: Option<Arc<About>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::of(None)
    }
}

impl Tasks {
    /// No tasks yet, of a server that says this of itself.
    pub(super) fn of(about: Option<Arc<About>>) -> Self {
        Self { listing: Arc::new(watch::channel(Listing::default()).0), about }
    }

    /// What a role is told of a task; none where there is no such task.
    #[must_use]
    pub fn view(&self, name: &str, role: Role) -> Option<Arc<View>> {
        self.listing.borrow().view(name, role)
    }

    /// What changed after a version, or all of it, as JSON; and the version that this is.
    #[must_use]
    pub fn told(&self, since: Option<u64>, role: Role) -> (u64, String) {
        let listing = self.listing.borrow();
        let about = self.about.as_deref().filter(|_| since.is_none());
        let told = Told { about, ..listing.told(since, role) };
        (listing.version(role), serde_json::to_string(&told).unwrap_or_default())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Listing> {
        self.listing.subscribe()
    }

    /// Takes what a task is now. Operators are told all of it; viewers are told where the moment is another.
    pub(super) fn put(&self, mut view: View, moment: Moment) {
        self.listing.send_if_modified(|listing| {
            let before = listing.tasks.remove(&view.line.name);
            if let Some(before) = &before {
                view.line.version = before.operators.line.version;
                view.line.operations = before.operators.line.operations;
            }
            let same = before.filter(|before| before.moment == moment);
            if let Some(same) = same.as_ref().filter(|same| *same.operators == view) {
                listing.tasks.insert(view.line.name.clone(), same.clone());
                return false;
            }
            listing.version += 1;
            view.line.version = listing.version;
            view.line.operations = Some(listing.version);
            let viewers = same.map_or_else(
                || {
                    listing.for_viewers += 1;
                    let line = Line { version: listing.for_viewers, ..view.line.for_viewers() };
                    Arc::new(View { line, standing: Standing::default(), ..view.clone() })
                },
                |same| same.viewers,
            );
            listing.tasks.insert(view.line.name.clone(), Entry { operators: Arc::new(view), viewers, moment });
            true
        });
    }

    /// Operators are told that something exact changed.
    pub(super) fn touch(&self, name: &str) {
        self.listing.send_if_modified(|listing| {
            let version = listing.version + 1;
            let Some(entry) = listing.tasks.get_mut(name) else { return false };
            let mut view = View::clone(&entry.operators);
            view.line.operations = Some(version);
            entry.operators = Arc::new(view);
            listing.version = version;
            true
        });
    }

    /// Forgets tasks that are gone.
    pub(super) fn keep(&self, is_there: &dyn Fn(&str) -> bool) {
        self.listing.send_if_modified(|listing| {
            let before = listing.tasks.len();
            listing.tasks.retain(|name, _| is_there(name));
            let any = before != listing.tasks.len();
            listing.version += u64::from(any);
            listing.for_viewers += u64::from(any);
            any
        });
    }
}

#[cfg(test)]
mod tests {
    use federated::protocol::order::Order;

    use super::*;

    fn view(name: &str, rounds: u64) -> View {
        let line = Line { rounds, ..Line::unreadable(name, Order::Run, "words of the disk".into()) };
        View::bare(line)
    }

    fn moment(evaluations: usize) -> Moment {
        Moment { evaluations, stands: "running".into() }
    }

    fn rounds(tasks: &Tasks, since: Option<u64>, role: Role) -> (u64, Vec<u64>) {
        let (version, told) = tasks.told(since, role);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        (version, told["tasks"].as_array().unwrap().iter().map(|task| task["rounds"].as_u64().unwrap()).collect())
    }

    /// Rule P23: how long a round took is an exact value. A viewer who looks all the time learns when models were evaluated, and no more.
    #[test]
    fn p23_viewers_are_told_of_rounds_when_the_model_was_evaluated() {
        let tasks = Tasks::default();
        tasks.put(view("words", 0), moment(1));
        let (since, told) = rounds(&tasks, None, Role::Viewer);
        assert_eq!(told, [0]);
        for round in 1..4 {
            tasks.put(view("words", round), moment(1));
            assert_eq!(rounds(&tasks, Some(since), Role::Viewer), (since, vec![]), "nothing changed for viewers");
            assert_eq!(rounds(&tasks, None, Role::Viewer).1, [0]);
            assert_eq!(tasks.view("words", Role::Viewer).unwrap().line.rounds, 0);
            assert_eq!(rounds(&tasks, Some(since), Role::Operator).1, [round]);
            assert_eq!(tasks.view("words", Role::Officer).unwrap().line.rounds, round);
        }
        tasks.put(view("words", 4), moment(2));
        assert_eq!(rounds(&tasks, Some(since), Role::Viewer).1, [4]);
    }

    #[test]
    fn what_a_server_says_of_itself_is_in_the_first_message_alone() {
        let about = About { title: "a demo".into(), lead: String::new(), parts: Vec::new(), notes: Vec::new() };
        let tasks = Tasks::of(Some(Arc::new(about)));
        let (since, first) = tasks.told(None, Role::Viewer);
        assert!(first.contains("\"about\":{\"title\":\"a demo\""), "{first}");
        assert!(!tasks.told(Some(since), Role::Viewer).1.contains("\"about\":"));
        assert!(!Tasks::default().told(None, Role::Officer).1.contains("\"about\":"), "others say nothing");
    }

    #[test]
    fn p26_what_is_exact_wakes_operators_alone() {
        let tasks = Tasks::default();
        tasks.put(view("words", 0), moment(1));
        let (since, _) = tasks.told(None, Role::Operator);
        tasks.touch("words");
        tasks.touch("another");
        assert_eq!(rounds(&tasks, Some(since), Role::Operator).1, [0]);
        assert_eq!(rounds(&tasks, Some(1), Role::Viewer), (1, vec![]), "nor how often there was something");
        let (_, told) = tasks.told(None, Role::Viewer);
        assert!(!told.contains("operations") && !told.contains("words of the disk"), "{told}");
        tasks.keep(&|_| false);
        assert_eq!(rounds(&tasks, None, Role::Officer).1, Vec::<u64>::new());
    }
}
