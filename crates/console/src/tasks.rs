//! The endpoints of tasks: what there is, orders, a new task, what can be taken home.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    http::{StatusCode, header::CONTENT_DISPOSITION},
    response::Response,
};
use federated::protocol::order::Order;
use ledger::{Approval, VerifyingKey, hex};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::{
    listing::{Listed, Spent, Stands, list_in},
    orders::Orders,
    state::State,
    tasks::{ServeError, check_new, created::Created},
};
use tokio::time::{Instant, sleep};

use crate::{
    Console,
    access::Role,
    endpoint::{self, Asked, Described, Endpoint, JSON, Shared},
    export,
    problems::Problem,
};

/// How long the server is given to take up a task that was created, and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// A task, for those who may only see what is released; what operators may see is apart.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The task's name.
    pub task: String,
    /// The digest of its terms.
    pub digest: Option<String>,
    /// How it stands.
    pub state: Stands,
    /// What its operator wants of it.
    pub wanted: Order,
    /// Whether the server does what is wanted.
    pub obeyed: bool,
    /// Why the task is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What its ledger says.
    pub ledger: Option<Spent>,
    /// Outside the guarantee (rule P26).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<ForOperators>,
}

/// Exact counts of devices and words of failures: for operators, and not covered by the guarantee (rule P26).
#[derive(Debug, Serialize, Deserialize)]
pub struct ForOperators {
    /// Devices that are enrolled on the server.
    pub enrolled: u64,
    /// How many different devices were given the task.
    pub asked: Option<u64>,
    /// Why it cannot continue, or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

impl Task {
    /// What somebody may see of a task.
    #[must_use]
    pub fn of(listed: Listed, for_operators: bool) -> Self {
        let Listed { task, digest, state, wanted, obeyed, why, enrolled, asked, ledger } = listed;
        let (why, broken) = if state == Stands::Over { (why, None) } else { (None, why) };
        let operators = for_operators.then_some(ForOperators { enrolled, asked, broken });
        Self { task, digest, state, wanted, obeyed, why, ledger, operators }
    }
}

/// A task that is to be created.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Its name.
    pub name: String,
    /// Its settings, as TOML.
    pub settings: String,
    /// The privacy officer's approval of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// What an officer who approves a plan must know of a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct AboutServer {
    /// The server's realm.
    pub realm: String,
    /// The program that it runs, as plans name it.
    pub software: String,
    /// The officers of whom one must approve each task; empty where no approval is needed.
    pub officers: Vec<VerifyingKey>,
}

const LIST: Described = Described {
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

/// An order for a task, as an endpoint.
const fn ordering(path: &'static str, about: &'static str) -> Described {
    Described {
        method: "POST",
        path,
        role: Some(Role::Operator),
        about,
        answers: Some("Task"),
        problems: &[404, 409],
        ..LIST
    }
}

pub(crate) fn endpoints<S: State + 'static>() -> Vec<Endpoint<S>> {
    let about = Described {
        path: "/api/server",
        about: "The server's realm, its program, and the privacy officers that it trusts: what an approval needs.",
        answers: Some("Server"),
        ..LIST
    };
    let one =
        Described { path: "/api/tasks/{name}", about: "One task.", answers: Some("Task"), problems: &[404], ..LIST };
    let create = Described {
        method: "POST",
        role: Some(Role::Officer),
        about: "Creates a task: its settings are checked wholly, and it runs without a restart of the server.",
        takes: Some("NewTask"),
        status: 201,
        answers: Some("Task"),
        problems: &[409, 422],
        ..LIST
    };
    let exports = Described {
        path: "/api/tasks/{name}/export",
        about: "The files that can be taken home of a task: ledger, statement, metrics, and its model once it is over.",
        answers: Some("Export"),
        ..one
    };
    let export = Described {
        path: "/api/tasks/{name}/export/{file}",
        about: "One of these files.",
        kind: "*/*",
        answers: None,
        ..one
    };
    let pause = ordering("/api/tasks/{name}/pause", "Pauses a task after its current round, until it is resumed.");
    let resume = ordering("/api/tasks/{name}/resume", "Resumes a paused task.");
    let stop = ordering(
        "/api/tasks/{name}/stop",
        "Stops a task permanently: its ledger is closed, its keys are destroyed, its last released model is kept.",
    );
    vec![
        Endpoint::new(about, show_server),
        Endpoint::new(LIST, show_all),
        Endpoint::new(create, create_one),
        Endpoint::new(one, show_one),
        Endpoint::new(exports, show_exports),
        Endpoint::new(export, export_one),
        Endpoint::new(pause, |shared, asked| order(shared, asked, Order::Pause)),
        Endpoint::new(resume, |shared, asked| order(shared, asked, Order::Run)),
        Endpoint::new(stop, |shared, asked| order(shared, asked, Order::Stop)),
    ]
}

async fn show_server<S: State + 'static>(shared: Arc<Shared<S>>, _: Asked) -> Result<Response, Problem> {
    let about = shared.look(|console| {
        let realm = console.state.coordinator().realm().map_err(|error| failed(error.into()))?;
        let (software, officers) = (federated::SOFTWARE.to_owned(), console.officers.clone());
        Ok(AboutServer { realm: hex(&realm), software, officers })
    });
    endpoint::json(StatusCode::OK, &about.await?)
}

async fn show_all<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let listed = shared.look(|console| listed(console)).await?;
    let tasks: Vec<Task> = listed.into_iter().map(|listed| as_seen_by(&asked, &shared, listed)).collect();
    endpoint::json(StatusCode::OK, &json!({ "tasks": tasks }))
}

async fn show_one<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let name = asked.parameter("name").to_owned();
    let listed = shared.look(move |console| named(console, &name)).await?;
    endpoint::json(StatusCode::OK, &as_seen_by(&asked, &shared, listed))
}

/// What who asks may see of a task. When a round ended is an exact value, so viewers see how the task stood after the last evaluation (rule P23).
fn as_seen_by<S>(asked: &Asked, shared: &Shared<S>, listed: Listed) -> Task {
    let operator = asked.is_operator();
    Task::of(if operator { listed } else { shared.dashboard.for_viewers(listed) }, operator)
}

async fn order<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked, order: Order) -> Result<Response, Problem> {
    let name = asked.parameter("name").to_owned();
    let given = shared.look(move |console| {
        if let Some(why) = named(console, &name)?.refuses(order) {
            return Err(Problem::conflict(why, "see GET /api/tasks for how each task stands"));
        }
        Orders::in_data(&console.data).give(&name, order).map_err(|error| failed(error.into()))?;
        named(console, &name)
    });
    endpoint::json(StatusCode::OK, &Task::of(given.await?, asked.is_operator()))
}

async fn create_one<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let new: NewTask = serde_json::from_slice(&asked.body).map_err(|error| {
        Problem::bad_request(
            format!("the body is not a new task: {error}"),
            "send {\"name\": ..., \"settings\": \"...TOML...\", \"approval\": {...}}",
        )
    })?;
    let name = new.name.clone();
    shared.look(move |console| create(console, &new)).await?;
    let until = Instant::now() + PATIENCE;
    loop {
        let looking = name.clone();
        let listed = shared.look(move |console| named(console, &looking)).await?;
        match listed.state {
            Stands::Refused => return Err(refused(listed.why.unwrap_or_default())),
            Stands::NotServed if Instant::now() < until => sleep(LOOK).await,
            _ => return endpoint::json(StatusCode::CREATED, &Task::of(listed, asked.is_operator())),
        }
    }
}

fn create<S: State>(console: &Console<S>, new: &NewTask) -> Result<(), Problem> {
    let created = Created::in_data(&console.data);
    let check = || {
        let task = (new.name.as_str(), new.settings.as_str());
        check_new(Some(&*console.state), &created, task, new.approval.as_ref(), Some(&console.officers)).map(drop)
    };
    created.create(&new.name, &new.settings, new.approval.as_ref(), check).map_err(|error| match error {
        ServeError::Name { .. } => Problem::bad_request(error.to_string(), "choose another name"),
        ServeError::Taken { .. } | ServeError::SameTask { .. } => {
            Problem::conflict(error.to_string(), "create it under another name")
        }
        ServeError::Busy => Problem::unavailable(error.to_string(), 3),
        ServeError::Approval { .. } => {
            let next = "have the plan approved with keyhush task approve, for the realm in GET /api/server, and send the approval with it";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "not-approved", "the approval is missing or not valid", error.to_string(), next)
        }
        error if error.is_of_the_task() => refused(error.to_string()),
        error => failed(error),
    })
}

fn refused(why: String) -> Problem {
    let next = "correct the settings, try them with keyhush plan, and create the task again";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-settings", "the settings cannot be used", why, next)
}

async fn show_exports<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let (name, operator) = (asked.parameter("name").to_owned(), asked.is_operator());
    let files = shared.look(move |console| exports(console, &name, operator)).await?;
    let files: Vec<Value> =
        files.iter().map(|file| json!({ "name": file.name, "kind": file.kind, "about": file.about })).collect();
    endpoint::json(StatusCode::OK, &json!({ "task": asked.parameter("name"), "files": files }))
}

async fn export_one<S: State + 'static>(shared: Arc<Shared<S>>, asked: Asked) -> Result<Response, Problem> {
    let (name, operator) = (asked.parameter("name").to_owned(), asked.is_operator());
    let wanted = asked.parameter("file").to_owned();
    let looks = Arc::clone(&shared);
    let (file, bytes) = shared
        .look(move |console| {
            let files = exports(console, &name, operator)?;
            let names: Vec<&str> = files.iter().map(|file| file.name).collect();
            let there = if names.is_empty() { "none, for the task has not begun".to_owned() } else { names.join(", ") };
            let file = files.iter().find(|file| file.name == wanted).ok_or_else(|| {
                let detail =
                    format!("there is no such file of this task for the token's role, or not yet; there are: {there}");
                let next = "use one of these names; the model is there once the task is over";
                Problem::new(StatusCode::NOT_FOUND, "no-such-file", "no such file", detail, next)
            })?;
            if !operator && let Some(bytes) = looks.dashboard.file_for_viewers(console, &name, file.name)? {
                return Ok((*file, bytes.to_vec()));
            }
            Ok((*file, export::bytes(&*console.state, &name, *file).map_err(failed)?))
        })
        .await?;
    let mut response = endpoint::with(StatusCode::OK, file.kind, bytes);
    let attached = format!("attachment; filename=\"{}\"", file.name);
    if let Ok(attached) = attached.parse() {
        response.headers_mut().insert(CONTENT_DISPOSITION, attached);
    }
    Ok(response)
}

/// The files of a task that somebody may have.
fn exports<S: State>(console: &Console<S>, name: &str, operator: bool) -> Result<Vec<export::File>, Problem> {
    let listed = named(console, name)?;
    if listed.ledger.is_none() {
        return Ok(Vec::new());
    }
    let files = export::files(&*console.state, name).map_err(failed)?;
    Ok(files.into_iter().filter(|file| operator || !file.for_operators).collect())
}

fn listed<S: State>(console: &Console<S>) -> Result<Vec<Listed>, Problem> {
    list_in(Some(&*console.state), &console.data).map_err(failed)
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

/// What failed may have words about the machine: they are for its operator.
fn failed(_: ServeError) -> Problem {
    Problem::internal("the state of the tasks cannot be read or written")
}

pub(crate) fn schemas() -> BTreeMap<&'static str, Value> {
    let hex64 = json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let count = json!({ "type": "integer", "minimum": 0 });
    let closed = |required: &[&str], properties: Value| json!({ "type": "object", "required": required, "additionalProperties": false, "properties": properties });
    let refers = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let mut operators = closed(
        &["enrolled", "asked"],
        json!({
            "enrolled": count,
            "asked": { "type": ["integer", "null"], "minimum": 0 },
            "broken": { "type": "string" },
        }),
    );
    operators["description"] = "Exact counts, outside the guarantee; only for the roles operator and officer.".into();
    let price = json!({
        "description": "An epsilon under a name that says what it means; null where it is infinite.",
        "type": "object",
        "minProperties": 1,
        "maxProperties": 2,
        "patternProperties": { "^(epsilon|rho)": { "type": ["number", "null"], "minimum": 0 } },
        "additionalProperties": false,
    });
    let spent = closed(
        &["rounds", "planned_rounds", "population", "holds", "basis", "delta"],
        json!({
            "rounds": count,
            "planned_rounds": count,
            "population": count,
            "evaluations": count,
            "planned_evaluations": count,
            "holds": price,
            "basis": { "enum": ["spent", "plan", "budget"] },
            "so_far": price,
            "delta": { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
        }),
    );
    let task = closed(
        &["task", "digest", "state", "wanted", "obeyed", "ledger"],
        json!({
            "task": { "type": "string" },
            "digest": { "type": ["string", "null"], "pattern": "^[0-9a-f]{64}$" },
            "state": { "enum": ["running", "pausing", "paused", "stopping", "over", "broken", "not_served", "refused"] },
            "wanted": { "enum": ["run", "pause", "stop"] },
            "obeyed": { "type": "boolean" },
            "why": { "type": "string" },
            "ledger": { "oneOf": [{ "type": "null" }, spent] },
            "operators": operators,
        }),
    );
    let file = closed(
        &["name", "kind", "about"],
        json!({ "name": { "type": "string" }, "kind": { "type": "string" }, "about": { "type": "string" } }),
    );
    let vouched = closed(&["what", "digest"], json!({ "what": { "type": "string" }, "digest": hex64 }));
    let approval = closed(
        &["task", "realm", "officer", "signature"],
        json!({
            "task": { "type": "string" },
            "realm": hex64,
            "vouched": { "description": "What the task reads that the approval covers, as keyhush task approve wrote it.", "type": "array", "items": vouched },
            "officer": hex64,
            "signature": { "type": "string", "pattern": "^[0-9a-f]{128}$" },
        }),
    );
    let new = closed(
        &["name", "settings"],
        json!({
            "name": { "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$" },
            "settings": { "description": "TOML, as in a TASK.toml; whatever it reads is named by whole paths on the server's machine.", "type": "string" },
            "approval": refers("Approval"),
        }),
    );
    let server = closed(
        &["realm", "software", "officers"],
        json!({ "realm": hex64, "software": { "type": "string" }, "officers": { "type": "array", "items": hex64 } }),
    );
    BTreeMap::from([
        ("Tasks", closed(&["tasks"], json!({ "tasks": { "type": "array", "items": refers("Task") } }))),
        ("Task", task),
        (
            "Export",
            closed(
                &["task", "files"],
                json!({ "task": { "type": "string" }, "files": { "type": "array", "items": file } }),
            ),
        ),
        ("Approval", approval),
        ("NewTask", new),
        ("Server", server),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of failures may name what is on the server's disk.
    #[test]
    fn p26_viewers_are_not_told_why_something_broke_nor_how_many_there_are() {
        for state in [Stands::Broken, Stands::Refused, Stands::Over] {
            let listed = || Listed {
                task: "words".into(),
                digest: None,
                state,
                wanted: Order::Run,
                obeyed: true,
                why: Some("/data/keyhush.sqlite is damaged".into()),
                enrolled: 347,
                asked: Some(340),
                ledger: None,
            };
            let told = |operator| serde_json::to_value(Task::of(listed(), operator)).unwrap();
            let (viewer, operator) = (told(false), told(true));
            assert_eq!(viewer.get("why").is_some(), state == Stands::Over, "{viewer}");
            assert!(viewer.get("operators").is_none() && !viewer.to_string().contains("34"), "{viewer}");
            assert_eq!(operator["operators"]["enrolled"], 347);
            assert_eq!(operator["operators"].get("broken").is_some(), state != Stands::Over, "{operator}");
        }
    }
}
