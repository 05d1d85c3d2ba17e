//! Serves the page, a small JSON API and server-sent events.
//!
//! | request          | answer                                                        |
//! |------------------|---------------------------------------------------------------|
//! | `/`              | the page; `/board.js` and its like are the files that it loads |
//! | `/api/runs`      | all runs: where each of them stands                           |
//! | `/api/runs/ID`   | all that the page shows of one                                |
//! | `/api/events`    | the same as `/api/runs`, then what changes, as events `runs`  |
//!
//! Nothing is ever changed, so `GET` and `HEAD` are all that is answered. A server that only this machine can reach is still within
//! reach of every page that a browser on it opens, by a name that its owner lets point here (DNS rebinding): requests for other
//! names than this machine's own are refused.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::Response,
};
use tokio::sync::watch;

use crate::{
    events::{Events, Source},
    listing::{Board, Listing},
    web::{PAGE, POLICY, assets},
};

/// What is told of names that are not this machine's.
const OTHER_NAME: &str = "this board answers to 127.0.0.1 and localhost only: open it by one of those names\n";
const JSON: &str = "application/json";

/// The routes of a board.
pub fn router(board: Board) -> Router {
    Router::new().fallback(answer).with_state(board)
}

async fn answer(State(board): State<Board>, request: Request) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_own_name) {
        return plain(StatusCode::MISDIRECTED_REQUEST, OTHER_NAME);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused =
            plain(StatusCode::METHOD_NOT_ALLOWED, "this board is read-only: only GET requests are answered\n");
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let path = request.uri().path().trim_start_matches('/');
    match path {
        "" => with(StatusCode::OK, "text/html; charset=utf-8", PAGE.into()),
        "api/runs" => with(StatusCode::OK, JSON, board.told(None).1.into()),
        "api/events" => with(StatusCode::OK, Events::KIND, Body::new(Events::of(Runs::of(board)))),
        _ => match (path.strip_prefix("api/runs/"), assets().find(|asset| asset.path == path)) {
            (Some(id), _) => match decoded(id).and_then(|id| board.detail(&id)) {
                Some(detail) => with(StatusCode::OK, JSON, detail.into()),
                None => plain(StatusCode::NOT_FOUND, "there is no such run\n"),
            },
            (None, Some(asset)) => with(StatusCode::OK, asset.kind, asset.bytes.into()),
            (None, None) => plain(StatusCode::NOT_FOUND, "there is nothing here: the board is at /\n"),
        },
    }
}

/// Whether a host is this machine by a name that nobody else can give it. The port may be another's: boards are looked at through
/// tunnels.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    ["127.0.0.1", "localhost", "::1"].iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// A part of a path as it was meant: `%2F` is a slash. None where it is not text.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, tail.get(..2)) {
            (b'%', Some(digits)) => {
                bytes.push(hex(digits)?);
                rest = &tail[2..];
            }
            (b'%', None) => return None,
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn plain(status: StatusCode, words: &'static str) -> Response {
    with(status, "text/plain; charset=utf-8", words.into())
}

fn with(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    response
}

/// The runs of a board, for one page.
struct Runs {
    board: Board,
    changes: watch::Receiver<Listing>,
}

impl Runs {
    fn of(board: Board) -> Self {
        let changes = board.changes();
        Self { board, changes }
    }
}

impl Source for Runs {
    const NAME: &'static str = "runs";

    fn is_over(&mut self) -> bool {
        self.changes.borrow_and_update().is_over()
    }

    fn told(&mut self, since: Option<u64>) -> (u64, String) {
        self.board.told(since)
    }

    async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_answered_and_no_others() {
        for own in ["127.0.0.1:7475", "localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1"] {
            assert!(is_own_name(own), "{own}");
        }
        for other in
            ["evil.example:7475", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]:80", "", "192.168.0.1"]
        {
            assert!(!is_own_name(other), "{other}");
        }
    }

    #[test]
    fn parts_of_paths_are_decoded() {
        assert_eq!(decoded("a%2Fseed-0%20x").as_deref(), Some("a/seed-0 x"));
        assert_eq!(decoded("plain").as_deref(), Some("plain"));
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
