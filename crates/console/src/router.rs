//! From endpoints, each described once, to routes: who may use it, limits on bodies and time, headers of every answer.
//!
//! An [`Endpoint`] says its method, its path, the role that it needs and what it takes and answers; `/openapi.json` is made from the same
//! values. All endpoints are listed in [`endpoints`]: another part of the console adds its own there.

use std::{
    collections::BTreeMap,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, LazyLock},
};

use axum::extract::RawPathParams;
use axum::{
    Router,
    body::Body,
    extract::{Request, State as Shares},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::{Next, from_fn},
    response::Response,
    routing::{MethodFilter, MethodRouter},
};
use bytes::Bytes;
use listen::{Ending, Limits, Peer};
use serde::Serialize;
use serde_json::Value;
use server::{http::Reading, state::State};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    Console, ConsoleError,
    access::{Role, Who},
    dashboard::{self, Dashboard},
    openapi,
    problems::Problem,
    tasks,
};

/// The media type of answers that are data.
pub const JSON: &str = "application/json";
/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What browsers let the dashboard do: load files from this server, and send requests to it.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The most bytes of a body.
pub const MOST_BYTES: usize = 1 << 20;
/// The memory for bodies that arrive.
const ROOM: usize = 8 << 20;
/// Requests that read the state of the server at a time; the others wait. Devices have the rest of its threads.
const READERS: usize = 4;

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
    /// From where it came.
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

type Answered = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;
type Handler<S> = Arc<dyn Fn(Arc<Shared<S>>, Asked) -> Answered + Send + Sync>;

/// A described function.
pub struct Endpoint<S> {
    /// What it is.
    pub described: Described,
    handler: Handler<S>,
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

/// All endpoints of the console.
fn endpoints<S: State + 'static>() -> Vec<Endpoint<S>> {
    let mut all = dashboard::endpoints();
    all.extend(tasks::endpoints());
    all.extend(openapi::endpoints());
    all
}

/// What all requests share.
pub struct Shared<S> {
    /// The console.
    pub console: Console<S>,
    /// What its pages are told.
    pub(crate) dashboard: Dashboard,
    bodies: Reading,
    readers: Arc<Semaphore>,
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

/// The routes of a console.
pub(crate) fn of<S: State + 'static>(console: Console<S>) -> Router {
    let limits = console.limits;
    let bodies = Reading::new(Limits { room: ROOM, ..limits });
    let dashboard = Dashboard::of(&console);
    let shared = Arc::new(Shared { console, dashboard, bodies, readers: Arc::new(Semaphore::new(READERS)) });
    let mut paths: BTreeMap<&'static str, Vec<Endpoint<S>>> = BTreeMap::new();
    for endpoint in endpoints() {
        paths.entry(endpoint.described.path).or_default().push(endpoint);
    }
    let mut router = Router::new();
    for (path, endpoints) in paths {
        router = router.route(path, methods(endpoints));
    }
    for asset in dashboard::assets() {
        let show = async || with(StatusCode::OK, asset.kind, asset.bytes);
        router = router.route(&format!("/{}", asset.path), axum::routing::get(show));
    }
    // What is below /api is the console's, and what is not there is refused as the console refuses.
    let elsewhere = |request: Request| async move { Problem::no_such_path().response(id_of(&request)) };
    let router =
        router.route("/api", axum::routing::any(elsewhere)).route("/api/{*rest}", axum::routing::any(elsewhere));
    router.layer(from_fn(headed)).with_state(shared)
}

fn methods<S: State + 'static>(endpoints: Vec<Endpoint<S>>) -> MethodRouter<Arc<Shared<S>>> {
    let allow = allowed(&endpoints);
    let mut methods = MethodRouter::new();
    for endpoint in endpoints {
        let Ok(filter) = Method::from_bytes(endpoint.described.method.as_bytes())
            .map_err(|_| ())
            .and_then(|method| MethodFilter::try_from(method).map_err(|_| ()))
        else {
            continue;
        };
        let endpoint = Arc::new(endpoint);
        methods = methods.on(filter, move |Shares(shared): Shares<Arc<Shared<S>>>, request: Request| {
            let endpoint = Arc::clone(&endpoint);
            async move { answer(shared, &endpoint, request).await }
        });
    }
    methods.fallback(move |request: Request| {
        let allow = allow.clone();
        async move { Problem::no_such_method(&allow).response(id_of(&request)) }
    })
}

fn allowed<S>(endpoints: &[Endpoint<S>]) -> String {
    let mut allow: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.described.method).collect();
    if allow.contains(&"GET") {
        allow.push("HEAD");
    }
    allow.join(", ")
}

/// One request to one endpoint: who asks, whether they may, what they send, and the answer.
async fn answer<S: State + 'static>(shared: Arc<Shared<S>>, endpoint: &Endpoint<S>, request: Request) -> Response {
    let id = RequestId(id_of(&request).to_owned());
    let within = shared.console.limits.answer;
    let answered = async {
        let asked = admit(&shared, &endpoint.described, request).await?;
        (endpoint.handler)(Arc::clone(&shared), asked).await
    };
    match timeout(within, answered).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.response(&id.0),
        Err(_) => Problem::unavailable("the answer took too long", 5).response(&id.0),
    }
}

async fn admit<S: State + 'static>(
    shared: &Arc<Shared<S>>,
    described: &Described,
    request: Request,
) -> Result<Asked, Problem> {
    use axum::RequestExt;
    let id = RequestId(id_of(&request).to_owned());
    let who = match described.role {
        None => None,
        Some(role) => Some(may(&shared.console, request.headers(), role)?),
    };
    let mut request = request;
    let parameters = request.extract_parts::<RawPathParams>().await;
    let parameters = parameters.map_err(|_| Problem::bad_request("the path is not text", "send it in UTF-8"))?;
    let parameters = parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (head, body) = request.into_parts();
    let body = match described.takes {
        None => Bytes::new(),
        Some(_) => shared
            .bodies
            .read(&head.headers, &HeaderValue::from_static(JSON), body, MOST_BYTES)
            .await
            .map_err(|unread| unreadable(unread.status, unread.words, unread.after_s))?,
    };
    let from = head.extensions.get::<Peer>().map(|peer| peer.0);
    let ending = head.extensions.get::<Ending>().cloned();
    let query = head.uri.query().map(str::to_owned);
    Ok(Asked { who, id, parameters, query, headers: head.headers, body, from, ending })
}

fn unreadable(status: StatusCode, words: &'static str, after_s: u64) -> Problem {
    let next = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "send uncompressed JSON with the header Content-Type: application/json",
        StatusCode::PAYLOAD_TOO_LARGE => "send at most 1 MiB",
        _ if after_s > 0 => return Problem::unavailable(words, after_s),
        _ => "send the whole body as JSON",
    };
    let words = if status == StatusCode::UNSUPPORTED_MEDIA_TYPE { "the body is not plain JSON" } else { words };
    Problem::new(status, "bad-body", "the body cannot be used", words, next)
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

/// The schemas that the console's own endpoints name.
pub(crate) fn schemas() -> BTreeMap<&'static str, Value> {
    let mut all = BTreeMap::new();
    all.extend(dashboard::schemas());
    all.extend(tasks::schemas());
    all
}

/// What every endpoint is, in the order of paths.
pub(crate) fn described<S: State + 'static>() -> Vec<Described> {
    endpoints::<S>().into_iter().map(|endpoint| endpoint.described).collect()
}

fn id_of(request: &Request) -> &str {
    request.extensions().get::<RequestId>().map_or("", |id| &id.0)
}

/// Gives a request its id, and every answer its headers.
async fn headed(mut request: Request, next: Next) -> Response {
    let id = draw_id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

/// 16 hexadecimal digits: what this process began with, and a count.
fn draw_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static BEGAN: LazyLock<u32> = LazyLock::new(|| {
        let mut bytes = [0; 4];
        // Ids are for reading logs: without randomness they are still different within one process.
        _ = getrandom::fill(&mut bytes);
        u32::from_le_bytes(bytes)
    });
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("{:08x}{:08x}", *BEGAN, COUNT.fetch_add(1, Ordering::Relaxed))
}
