//! The endpoints of tasks: all of them, and one.

use std::{collections::BTreeMap, sync::Arc};

use axum::{http::StatusCode, response::Response};
use federated::protocol::order::Order;
use serde::Serialize;
use serde_json::{Value, json};
use server::{
    listing::{Listed, Spent, Stands, list},
    orders::Orders,
    state::State,
    tasks::ServeError,
};

use crate::{
    Console,
    access::Role,
    problems::Problem,
    router::{self, Asked, Described, Endpoint, JSON, Shared},
};

/// A task, for those who may only see what is released; what operators may see is apart.
#[derive(Debug, Serialize)]
struct Task {
    /// The task's name.
    task: String,
    /// The digest of its terms.
    digest: Option<String>,
    /// How it stands.
    state: Stands,
    /// What its operator wants of it.
    wanted: Order,
    /// Whether the server does what is wanted.
    obeyed: bool,
    /// Why it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What its ledger says.
    ledger: Option<Spent>,
    /// Outside the guarantee (rule P26).
    #[serde(skip_serializing_if = "Option::is_none")]
    operators: Option<ForOperators>,
}

/// Exact counts of devices and words of failures: for operators, and not covered by the guarantee (rule P26).
#[derive(Debug, Serialize)]
struct ForOperators {
    /// Devices that are enrolled on the server.
    enrolled: u64,
    /// How many different devices were given the task.
    asked: Option<u64>,
    /// Why it cannot continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken: Option<String>,
}

impl Task {
    fn of(listed: Listed, for_operators: bool) -> Self {
        let Listed { task, digest, state, wanted, obeyed, why, enrolled, asked, ledger } = listed;
        let (why, broken) = if state == Stands::Over { (why, None) } else { (None, why) };
        let operators = for_operators.then_some(ForOperators { enrolled, asked, broken });
        Self { task, digest, state, wanted, obeyed, why, ledger, operators }
    }
}

pub(crate) fn endpoints<S: State + 'static>() -> Vec<Endpoint<S>> {
    let all = Described {
        method: "GET",
        path: "/api/tasks",
        role: Some(Role::Viewer),
        about: "All tasks: how each stands, and what its ledger says. Operators also see exact counts of devices, which are outside the guarantee.",
        takes: None,
        status: 200,
        kind: JSON,
        answers: Some("Tasks"),
        problems: &[],
    };
    let one =
        Described { path: "/api/tasks/{name}", about: "One task.", answers: Some("Task"), problems: &[404], ..all };
    vec![Endpoint::new(all, show_all), Endpoint::new(one, show_one)]
}

async fn show_all<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let listed = shared.look(|console| listed(console)).await?;
    let tasks: Vec<Task> = listed.into_iter().map(|listed| Task::of(listed, asked.is_operator())).collect();
    router::json(StatusCode::OK, &json!({ "tasks": tasks }))
}

async fn show_one<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let name = asked.parameter("name").to_owned();
    let listed = shared.look(move |console| named(console, &name)).await?;
    router::json(StatusCode::OK, &Task::of(listed, asked.is_operator()))
}

fn listed<S: State>(console: &Console<S>) -> Result<Vec<Listed>, Problem> {
    list(&*console.state, &Orders::in_data(&console.data)).map_err(unread)
}

fn named<S: State>(console: &Console<S>, name: &str) -> Result<Listed, Problem> {
    let tasks = listed(console)?;
    let names: Vec<String> = tasks.iter().map(|listed| listed.task.clone()).collect();
    tasks.into_iter().find(|listed| listed.task == name).ok_or_else(|| no_such_task(name, &names))
}

fn no_such_task(name: &str, names: &[String]) -> Problem {
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let detail = format!("this server has no task called {name:?}");
    let next = format!("use the name of one of its tasks: {there}");
    Problem::new(StatusCode::NOT_FOUND, "no-such-task", "no such task", detail, next)
}

fn unread(_: ServeError) -> Problem {
    Problem::internal("the state of the tasks cannot be read")
}

pub(crate) fn schemas() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        (
            "Tasks",
            json!({
                "type": "object",
                "required": ["tasks"],
                "additionalProperties": false,
                "properties": { "tasks": { "type": "array", "items": { "$ref": "#/components/schemas/Task" } } },
            }),
        ),
        (
            "Task",
            json!({
                "type": "object",
                "required": ["task", "digest", "state", "wanted", "obeyed", "ledger"],
                "additionalProperties": false,
                "properties": {
                    "task": { "type": "string" },
                    "digest": { "type": ["string", "null"], "pattern": "^[0-9a-f]{64}$" },
                    "state": { "enum": ["running", "pausing", "paused", "stopping", "over", "broken", "not_served"] },
                    "wanted": { "enum": ["run", "pause", "stop"] },
                    "obeyed": { "type": "boolean" },
                    "why": { "type": "string" },
                    "ledger": { "type": ["object", "null"] },
                    "operators": {
                        "description": "Exact counts, outside the guarantee; only for the roles operator and officer.",
                        "type": "object",
                        "required": ["enrolled", "asked"],
                        "additionalProperties": false,
                        "properties": {
                            "enrolled": { "type": "integer", "minimum": 0 },
                            "asked": { "type": ["integer", "null"], "minimum": 0 },
                            "broken": { "type": "string" },
                        },
                    },
                },
            }),
        ),
    ])
}
