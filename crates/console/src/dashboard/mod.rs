//! The dashboard at `/`: the page, what it is told, and how it hears of changes.
//!
//! | module       | what it is                                                                                   |
//! |--------------|----------------------------------------------------------------------------------------------|
//! | `pages`      | the files of the page (`web/`), embedded in the program                                      |
//! | [`told`]     | what pages are told of a task, typed: the plan, releases, and what follows from these        |
//! | [`operations`] | exact counts and times, under one key that says so, for operators (rule P26)                 |
//! | [`listing`]  | all tasks twice, for viewers and for operators, with what changed since a version            |
//! | `watching`   | reads the state of tasks again when it changed                                               |
//! | `streams`    | how many pages may listen at a time                                                          |
//! | `meanings`   | what each chart means, in a sentence                                                         |
//!
//! The endpoints that answer with it are those of `feed`.

pub mod listing;
mod meanings;
pub mod operations;
mod pages;
mod streams;
pub mod told;
mod watching;

use std::sync::Arc;

pub(crate) use self::pages::assets;
pub(crate) use self::streams::Place;
use self::{
    listing::{Tasks, View},
    streams::Streams,
    watching::{Reader, Watching},
};
use crate::{Console, access::Role, export::HEAD as HEAD_FILE, problems::Problem};
use axum::http::StatusCode;
use bytes::Bytes;
use federated::home::{LEDGER_FILE, Records, STATEMENT_FILE, STATEMENT_JSON};
use ledger::Ledger;
use server::{
    listing::{Listed, Stands},
    state::{State, TaskState},
};

/// What the pages of a console are told.
pub(crate) struct Dashboard {
    pub(crate) tasks: Tasks,
    pub(crate) streams: Streams,
    #[expect(dead_code, reason = "the state is read for as long as it is here")]
    watching: Watching,
}

impl Dashboard {
    /// Of a console: its state is read from now on.
    pub(crate) fn of<S: State + 'static>(console: &Console<S>) -> Self {
        let tasks = Tasks::of(console.about.clone());
        let reader = Reader::new(Arc::clone(&console.state), &console.data, tasks.clone(), &console.observed);
        Self { tasks, streams: Streams::default(), watching: reader.start() }
    }

    /// The same of tasks as viewers are told of them: as they stood at the last moment of which viewers are told (rule P23).
    pub(crate) fn for_viewers(&self, listed: Listed) -> Listed {
        let view = self.tasks.view(&listed.task, Role::Viewer);
        let state = if listed.state == Stands::Pausing { Stands::Paused } else { listed.state };
        // What was never read is not told yet.
        let ledger = view.and_then(|view| view.spent.clone());
        Listed { state, ledger, ..listed }
    }

    /// A file of a task as viewers may have it now; none where it is the same for everybody.
    pub(crate) fn file_for_viewers<S: State>(
        &self,
        console: &Console<S>,
        task: &str,
        file: &str,
    ) -> Result<Option<Bytes>, Problem> {
        let view = self.tasks.view(task, Role::Viewer).ok_or_else(not_begun)?;
        let statement = || view.statement.clone().ok_or_else(not_begun);
        Ok(match file {
            STATEMENT_FILE => Some(statement()?.0),
            STATEMENT_JSON => Some(statement()?.1),
            HEAD_FILE => Some(format!("{}\n", view.head).into()),
            LEDGER_FILE => Some(entries_of(console, &view)?),
            _ => None,
        })
    }
}

/// The entries of a ledger up to the head of a view.
fn entries_of<S: State>(console: &Console<S>, view: &View) -> Result<Bytes, Problem> {
    let unread = || Problem::internal("the ledger of this task cannot be read");
    let task = console.state.read_task(&view.line.name).map_err(|_| unread())?;
    let store = task.home().read_store().map_err(|_| unread())?;
    let ledger = Ledger::open(store, None, &[view.head]).map_err(|_| unread())?;
    let mut lines = String::new();
    for entry in ledger.entries().map_err(|_| unread())?.take(usize::try_from(view.head.length).unwrap_or(usize::MAX)) {
        lines.push_str(&entry.map_err(|_| unread())?.line());
        lines.push('\n');
    }
    Ok(lines.into())
}

/// There is nothing to tell of a task but its line.
pub(crate) fn not_begun() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not-begun",
        "the task has not begun",
        "there is no ledger of this task yet, or it cannot be read",
        "see its state at GET /api/dashboard; it begins when a server runs it",
    )
}
