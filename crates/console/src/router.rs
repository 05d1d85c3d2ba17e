//! From endpoints, each described once, to routes: who may use it, limits on bodies and time, headers of every answer.
//!
//! An [`Endpoint`] says its method, its path, the role that it needs and what it takes and answers; `/openapi.json` is made from the same
//! values. All endpoints are listed in `endpoints`: another part of the console adds its own there.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::RawPathParams;
use axum::{
    Router,
    extract::{Request, State as Shares},
    http::{
        HeaderName, HeaderValue, Method, StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS},
    },
    middleware::{Next, from_fn},
    response::Response,
    routing::{MethodFilter, MethodRouter},
};
use bytes::Bytes;
use listen::{Ending, Limits, Peer};
use serde_json::Value;
pub use server::http::REQUEST_ID;
use server::{
    http::{Reading, request_id},
    state::State,
};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    Console,
    dashboard::{self, Dashboard},
    endpoint::{self, Asked, Described, Endpoint, JSON, RequestId, Shared, may},
    feed,
    lately::Lately,
    metrics, openapi,
    problems::Problem,
    tasks,
};

/// What browsers let the dashboard do: load files from this server, and send requests to it.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The most bytes of a body.
pub const MOST_BYTES: usize = 1 << 20;
/// The memory for bodies that arrive.
const ROOM: usize = 8 << 20;
/// Requests that read the state of the server at a time; the others wait. Devices have the rest of its threads.
const READERS: usize = 4;

/// All endpoints of the console.
fn endpoints<S: State + 'static>() -> Vec<Endpoint<S>> {
    let mut all: Vec<Endpoint<S>> = feed::endpoints();
    all.extend(tasks::endpoints());
    all.extend(metrics::endpoints());
    let mut described: Vec<Described> = all.iter().map(|endpoint| endpoint.described).collect();
    described.push(openapi::DESCRIBED);
    all.push(openapi::endpoint(openapi::document(&described, &schemas())));
    all
}

/// The routes of a console.
pub(crate) fn of<S: State + 'static>(console: Console<S>) -> Router {
    let limits = console.limits;
    let bodies = Reading::new(Limits { room: ROOM, ..limits });
    let dashboard = Dashboard::of(&console);
    let (readers, read) = (Arc::new(Semaphore::new(READERS)), Lately::default());
    let shared = Arc::new(Shared { console, dashboard, bodies, readers, read });
    let mut paths: BTreeMap<&'static str, Vec<Endpoint<S>>> = BTreeMap::new();
    for endpoint in endpoints() {
        paths.entry(endpoint.described.path).or_default().push(endpoint);
    }
    let mut router = Router::new();
    for (path, endpoints) in paths {
        router = router.route(path, methods(endpoints));
    }
    for asset in dashboard::assets() {
        let show = async || endpoint::with(StatusCode::OK, asset.kind, asset.bytes);
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

/// The schemas that endpoints name.
fn schemas() -> BTreeMap<&'static str, Value> {
    let mut all = BTreeMap::new();
    all.extend(feed::schemas());
    all.extend(tasks::schemas());
    all
}

fn id_of(request: &Request) -> &str {
    request.extensions().get::<RequestId>().map_or("", |id| &id.0)
}

/// Gives a request its id, and every answer its headers.
async fn headed(mut request: Request, next: Next) -> Response {
    let id = request_id();
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
