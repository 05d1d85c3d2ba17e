//! The routes: translates HTTP requests to messages of the protocol, and back (`docs/PROTOCOL.md`).

use std::{
    future::Future,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{Path, Request, State, rejection::PathRejection},
    http::{
        HeaderValue, Method, StatusCode, Uri,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::Response,
    routing::{MethodRouter, get, post, put},
};
use device::protocol::message::{Answer, MOST_BYTES, Ticket};
use listen::{Limits, Peer};
use tokio::time::timeout;

use super::{
    answers::{self, PROTOBUF, Refusal},
    blobs,
    bodies::Bodies,
    chunk::Chunk,
    service::Service,
};

struct Routes<S> {
    service: Arc<S>,
    bodies: Bodies,
    limits: Limits,
}

type Shared<S> = State<Arc<Routes<S>>>;

/// The routes of the protocol in front of a service.
///
/// Every refusal is an [`Answer`] with its reason. Paths of other versions, `/v2/...`, are answered by which ones are spoken.
pub fn app<S: Service>(service: Arc<S>, limits: Limits) -> Router {
    let bodies = Bodies::new(limits, MOST_BYTES);
    Router::new()
        .route("/healthz", only(get(healthy::<S>), "GET, HEAD"))
        .route("/readyz", only(get(ready::<S>), "GET, HEAD"))
        .route("/v1/hello", only(get(hello::<S>), "GET, HEAD"))
        .route("/v1/say", only(post(say::<S>), "POST"))
        .route("/v1/blob/{digest}", only(get(blob::<S>), "GET, HEAD"))
        .route("/v1/report/{ticket}/{offset}", only(put(chunk::<S>), "PUT"))
        .fallback(elsewhere::<S>)
        .with_state(Arc::new(Routes { service, bodies, limits }))
}

/// What the accept loop says for the routes to those for whom there is no place ([`listen::Server::when_full`]).
pub(super) fn crowded() -> Response {
    let time_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Refusal::Crowded.response(time_s)
}

/// Other methods are refused as everything is, with those that there are.
fn only<S: Service>(methods: MethodRouter<Arc<Routes<S>>>, allow: &'static str) -> MethodRouter<Arc<Routes<S>>> {
    methods.fallback(async move |State(routes): Shared<S>| routes.refuse(Refusal::NoSuchMethod { allow }))
}

async fn healthy<S: Service>(State(routes): Shared<S>) -> Response {
    let is_well = routes.service.is_well();
    told(is_well, if is_well { "ok\n".to_owned() } else { "down\n".to_owned() })
}

async fn ready<S: Service>(State(routes): Shared<S>) -> Response {
    let why_not = routes.service.not_ready().await;
    let lines: String = why_not.iter().map(|why| format!("{why}\n")).collect();
    told(why_not.is_empty(), if why_not.is_empty() { "ready\n".to_owned() } else { lines })
}

/// What a supervisor is told.
fn told(is_well: bool, words: String) -> Response {
    let mut response = Response::new(Body::from(words));
    if !is_well {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn hello<S: Service>(State(routes): Shared<S>) -> Response {
    answers::message(StatusCode::OK, &routes.service.hello())
}

async fn say<S: Service>(State(routes): Shared<S>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match routes.bodies.read(&head.headers, &PROTOBUF, body, MOST_BYTES).await {
        Ok(bytes) => {
            let from = head.extensions.get::<Peer>().map(|peer| peer.0);
            routes.answered(routes.service.say(bytes, from)).await
        }
        Err(refusal) => routes.refuse(refusal),
    }
}

async fn chunk<S: Service>(
    State(routes): Shared<S>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Response {
    let named = path.map_err(|_| Refusal::BadTicket).and_then(|Path((ticket, at))| {
        let ticket = digits(&ticket).ok_or(Refusal::BadTicket)?;
        Ok((Ticket(ticket), offset(&at).ok_or(Refusal::BadOffset)?))
    });
    let (ticket, offset) = match named {
        Ok(named) => named,
        Err(refusal) => return routes.refuse(refusal),
    };
    let (head, body) = request.into_parts();
    let mut chunk = Chunk::new(&head.headers, body, &routes.limits);
    let answered = match chunk.refused() {
        None => Some(routes.answered(routes.service.chunk(ticket, offset, &mut chunk)).await),
        Some(_) => None,
    };
    let refused = chunk.refused();
    chunk.let_go().await;
    match (refused, answered) {
        (None, Some(answered)) => answered,
        (refused, _) => routes.refuse(refused.unwrap_or(Refusal::Broken)),
    }
}

async fn blob<S: Service>(
    State(routes): Shared<S>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let Some(digest) = path.ok().and_then(|Path(digest)| digits(&digest)) else {
        return routes.refuse(Refusal::BadDigest);
    };
    match timeout(routes.limits.answer, routes.service.blob(digest)).await {
        Ok(Some(blob)) => {
            let time_s = routes.service.hello().time_s;
            let response = blobs::response(&blob, request.method(), request.headers(), time_s);
            let bytes = response.body().size_hint().exact().filter(|_| request.method() != Method::HEAD);
            routes.service.sends(bytes.unwrap_or_default());
            response
        }
        Ok(None) => routes.refuse(Refusal::NoSuchBlob),
        Err(_) => routes.refuse(Refusal::Overdue),
    }
}

async fn elsewhere<S: Service>(State(routes): Shared<S>, _method: Method, uri: Uri) -> Response {
    let version = uri.path().split('/').nth(1).and_then(|first| first.strip_prefix('v'));
    match version {
        Some(v) if v != "1" && !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()) => {
            answers::unsupported(&routes.service.hello())
        }
        _ => routes.refuse(Refusal::NoSuchPath),
    }
}

impl<S: Service> Routes<S> {
    fn refuse(&self, refusal: Refusal) -> Response {
        refusal.response(self.service.hello().time_s)
    }

    async fn answered(&self, answer: impl Future<Output = Answer> + Send) -> Response {
        match timeout(self.limits.answer, answer).await {
            Ok(answer) => answers::answer(&answer),
            Err(_) => self.refuse(Refusal::Overdue),
        }
    }
}

/// 32 bytes in the one way to write them, so that a blob has one path.
fn digits(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if hex.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

/// Without a sign, which Rust would take.
fn offset(digits: &str) -> Option<u64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}
