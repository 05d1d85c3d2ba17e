//! The endpoints of the dashboard: what its pages ask for, and how they hear of changes.
//!
//! | request                                | answer                                                              |
//! |----------------------------------------|---------------------------------------------------------------------|
//! | `GET /api/dashboard`                   | all tasks: where each of them stands                                |
//! | `GET /api/events`                      | the same, then what changes, as server-sent events `tasks`          |
//! | `GET /api/dashboard/NAME`              | all that is released of one task                                    |
//! | `GET /api/dashboard/NAME/operations`   | what is exact, for operators                                        |
//!
//! The page itself is for everybody: it has no data. Each request for data has a token in its header, also that for events, which the page
//! reads by fetch: there is no cookie that another page could use.

use std::{collections::BTreeMap, sync::Arc};

use axum::{body::Body, http::StatusCode, response::Response};
use board::events::{Events, Source};
use listen::Ending;
use serde_json::{Value, json};
use server::state::State;
use tokio::sync::watch;

use crate::{
    access::Role,
    dashboard::{
        Place,
        listing::{Listing, View},
        not_begun,
        operations::Operations,
    },
    endpoint::{self, Asked, Described, Endpoint, JSON, Shared, may},
    problems::Problem,
};

/// The role of who asks; the lowest where that is not known.
fn role_of(asked: &Asked) -> Role {
    asked.who.as_ref().map_or(Role::Viewer, |who| who.role)
}

pub(crate) fn endpoints<S: State + 'static>() -> Vec<Endpoint<S>> {
    let list = Described {
        method: "GET",
        path: "/api/dashboard",
        role: Some(Role::Viewer),
        about: "All tasks as the dashboard lists them. Viewers are told how a task stood after the last evaluation of its model.",
        takes: None,
        status: 200,
        kind: JSON,
        answers: Some("Told"),
        problems: &[],
    };
    let events = Described {
        path: "/api/events",
        about: "The same as server-sent events, named tasks: first all tasks, then those that changed. It ends when the token is revoked.",
        kind: Events::KIND,
        answers: None,
        ..list
    };
    let of_task = Described { problems: &[404], ..list };
    let detail = Described {
        path: "/api/dashboard/{name}",
        about: "All that is released of one task: curves, what it costs, participation, its statement and where its ledger ends.",
        answers: Some("Detail"),
        ..of_task
    };
    let operations = Described {
        path: "/api/dashboard/{name}/operations",
        role: Some(Role::Operator),
        about: "Exact counts and times of check-ins, reports and rounds since the server was started. They are outside the guarantee.",
        answers: Some("Operations"),
        ..of_task
    };
    vec![
        Endpoint::new(list, show_all),
        Endpoint::new(events, tell),
        Endpoint::new(detail, show_one),
        Endpoint::new(operations, show_operations),
    ]
}

async fn show_all<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    Ok(endpoint::with(StatusCode::OK, JSON, shared.dashboard.tasks.told(None, role_of(&asked)).1))
}

async fn show_one<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let view = view(&shared, &asked)?;
    Ok(endpoint::with(StatusCode::OK, JSON, view.detail.clone().ok_or_else(not_begun)?))
}

async fn show_operations<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let view = view(&shared, &asked)?;
    endpoint::json(StatusCode::OK, &Operations::of(&view.line.name, &view.standing, &shared.console.observed))
}

/// What who asks is told of a task.
fn view<S>(shared: &Shared<S>, asked: &Asked) -> Result<Arc<View>, Problem> {
    let view = shared.dashboard.tasks.view(asked.parameter("name"), role_of(asked));
    view.ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-task",
            "no such task",
            "this server has no task of this name",
            "see GET /api/dashboard for all tasks",
        )
    })
}

async fn tell<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let token = asked.who.as_ref().map_or("", |who| who.name.as_str());
    let place =
        shared.dashboard.streams.place(token).ok_or_else(|| {
            Problem::unavailable("too many pages of this server are open; close some of this token", 30)
        })?;
    let changes = shared.dashboard.tasks.changes();
    let (role, ending) = (role_of(&asked), asked.ending.clone());
    let pages = Pages { shared, asked, role, changes, ending, _place: place };
    Ok(endpoint::with(StatusCode::OK, Events::KIND, Body::new(Events::of(pages))))
}

/// The tasks, for one page.
struct Pages<S> {
    shared: Arc<Shared<S>>,
    asked: Asked,
    role: Role,
    changes: watch::Receiver<Listing>,
    ending: Option<Ending>,
    _place: Place,
}

impl<S: State + 'static> Source for Pages<S> {
    const NAME: &'static str = "tasks";

    /// When the server stops, or who asked may not any more: their token was revoked, or is now another's.
    fn is_over(&mut self) -> bool {
        let who = may(&self.shared.console, &self.asked.headers, Role::Viewer).ok();
        who.is_none() || who != self.asked.who || self.ending.as_ref().is_some_and(Ending::is_near)
    }

    fn told(&mut self, since: Option<u64>) -> (u64, String) {
        _ = self.changes.borrow_and_update();
        self.shared.dashboard.tasks.told(since, self.role)
    }

    async fn changed(&mut self) -> bool {
        match &mut self.ending {
            None => self.changes.changed().await.is_ok(),
            Some(ending) => tokio::select! {
                changed = self.changes.changed() => changed.is_ok(),
                () = ending.comes() => false,
            },
        }
    }
}

/// The schemas of what endpoints answer. What is in each is said by the types of `told` and `operations`.
pub(crate) fn schemas() -> BTreeMap<&'static str, Value> {
    let object =
        |required: &[&str], about: &str| json!({ "type": "object", "description": about, "required": required });
    BTreeMap::from([
        (
            "Told",
            object(
                &["version", "reset", "role", "names", "tasks"],
                "Tasks: all of them where reset is true, or those that changed.",
            ),
        ),
        (
            "Detail",
            object(
                &["name", "sentence", "curves", "spending", "participation", "ledger"],
                "What is released of a task, and what follows from it.",
            ),
        ),
        (
            "Operations",
            json!({
                "type": "object",
                "description": "Exact counts and times, outside the guarantee.",
                "required": ["outside_the_guarantee"],
                "additionalProperties": false,
                "properties": { "outside_the_guarantee": { "type": "object", "required": ["note", "enrolled", "attempts"] } },
            }),
        ),
    ])
}
