//! What an endpoint is: described once, with the function that answers it, and what such a function is given.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc};

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
    response::Response,
};
use bytes::Bytes;
use listen::Ending;
use serde::Serialize;
use server::{http::Reading, state::State};
use tokio::sync::Semaphore;

use crate::{
    Console, ConsoleError,
    access::{Role, Who},
    dashboard::Dashboard,
    lately::Lately,
    problems::Problem,
};

/// The media type of answers that are data.
pub const JSON: &str = "application/json";
/// The id of a request, which every answer has in its header and every problem in its text. It is drawn here: nothing of a client's is repeated.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// A request, once it is known who asks and that they may.
#[derive(Debug)]
pub struct Asked {
    /// Who asks; none where an endpoint is for everyone.
    pub who: Option<Who>,
    /// The id of the request.
    pub id: RequestId,
    /// The parts of the path that are parameters, decoded.
    pub parameters: Vec<(String, String)>,
    /// What is after the question mark.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; empty where the endpoint takes none.
    pub body: Bytes,
    /// The address of the client.
    pub from: Option<IpAddr>,
    /// That the server is told to stop, for answers that go on; none where nothing says so.
    pub ending: Option<Ending>,
}

impl Asked {
    /// A parameter of the path; empty where the path has none of this name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Whether who asks may see what is outside the guarantee (rule P26).
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.role >= Role::Operator)
    }
}

/// What an endpoint is, for those who read the description.
#[derive(Debug, Clone, Copy)]
pub struct Described {
    /// Its method.
    pub method: &'static str,
    /// Its path, with its parameters in braces.
    pub path: &'static str,
    /// The role that it needs; none where it is for everyone.
    pub role: Option<Role>,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// The schema of the JSON that it takes, by its name in the description; none where it takes no body.
    pub takes: Option<&'static str>,
    /// The status of its answer where all is well.
    pub status: u16,
    /// The media type of that answer.
    pub kind: &'static str,
    /// The schema of that answer where it is JSON, by its name in the description.
    pub answers: Option<&'static str>,
    /// The statuses of its own problems; those of every endpoint are added.
    pub problems: &'static [u16],
}

pub(crate) type Answered = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;
pub(crate) type Handler<S> = Arc<dyn Fn(Arc<Shared<S>>, Asked) -> Answered + Send + Sync>;

/// A described function.
pub struct Endpoint<S> {
    /// The description of the endpoint.
    pub described: Described,
    pub(crate) handler: Handler<S>,
}

impl<S: State + 'static> Endpoint<S> {
    /// An endpoint that is answered by a function.
    pub fn new<F>(described: Described, answer: impl Fn(Arc<Shared<S>>, Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        Self { described, handler: Arc::new(move |shared, asked| Box::pin(answer(shared, asked))) }
    }
}

/// What all requests share.
pub struct Shared<S> {
    /// The console.
    pub console: Console<S>,
    /// What its pages are told.
    pub(crate) dashboard: Dashboard,
    pub(crate) bodies: Reading,
    pub(crate) readers: Arc<Semaphore>,
    /// What metrics were made of last.
    pub(crate) read: Lately,
}

impl<S: State + 'static> Shared<S> {
    /// Looks at the state of the server, on a thread where that may take a while.
    ///
    /// # Errors
    /// What the function says, or that it ended by a bug.
    pub async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Console<S>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = Arc::clone(&self.readers).acquire_owned().await;
        let turn = turn.map_err(|_| Problem::unavailable("the server is stopping", 5))?;
        let shared = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            let found = look(&shared.console);
            drop(turn);
            found
        });
        looked.await.unwrap_or_else(|_| Err(Problem::internal("this request met a bug in the server")))
    }
}

/// An answer that is data.
///
/// # Errors
/// When it cannot be written as JSON, which is a bug.
pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value).map_err(|_| Problem::internal("the answer cannot be written as JSON"))?;
    Ok(with(status, JSON, text))
}

/// An answer of any kind.
pub fn with(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Who asks, if their role is enough.
pub(crate) fn may<S>(console: &Console<S>, headers: &HeaderMap, role: Role) -> Result<Who, Problem> {
    let shown = headers.get(AUTHORIZATION).ok_or_else(|| Problem::unauthorized("the request has no access token"))?;
    let token = shown.to_str().ok().and_then(|shown| shown.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    let token = token.ok_or_else(|| Problem::unauthorized("the header Authorization has no bearer token"))?;
    let who = console.access.who(token).map_err(no_access)?;
    let who = who.ok_or_else(|| Problem::unauthorized("the access token is unknown, or was revoked"))?;
    if who.role < role { Err(Problem::forbidden(who.role.word(), role.word())) } else { Ok(who) }
}

/// Nobody is let in where it cannot be told who may be.
fn no_access(error: ConsoleError) -> Problem {
    let detail = match error {
        ConsoleError::Damaged { .. } => "the server's file of access tokens is damaged",
        ConsoleError::Loose { .. } => "the server's file of access tokens can be read by others",
        _ => "the server's file of access tokens cannot be read",
    };
    let mut problem = Problem::unavailable(detail, 30);
    problem.next =
        "run keyhush access list --secrets DIR on the server's machine: it says what is wrong and what to do"
            .to_owned();
    problem
}
