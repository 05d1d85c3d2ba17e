//! Requests of HTTP, as the routes get them: paths, headers, ranges, bodies.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri},
};
use device::protocol::message::{Answer, CHUNK, Hello, Later, MOST_BYTES, Received, Says, Ticket};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use keyhush_server::http::{Chunk, Limits, Packed, Piece, Proxies, Service, app};
use prost::Message;
use tokio::runtime::Runtime;

/// The blob whose digest begins with a 1.
pub(super) const BLOB: [u8; 40] = *b"forty bytes that are given out in parts.";

/// A service that checks what comes through.
struct Behind;

impl Service for Behind {
    fn hello(&self) -> Hello {
        Hello { oldest: 1, newest: 1, realm: vec![7; 32], time_s: 1 }
    }

    async fn say(&self, bytes: Bytes, _from: Option<IpAddr>) -> Answer {
        assert!((1..=MOST_BYTES).contains(&bytes.len()), "{} bytes", bytes.len());
        Answer::new(Says::Later(Later { after_s: 9 }))
    }

    async fn blob(&self, digest: [u8; 32]) -> Option<Packed> {
        (digest[0] == 1).then(|| Packed::new(Bytes::from_static(&BLOB)))
    }

    async fn chunk(&self, _ticket: Ticket, offset: u64, chunk: &mut Chunk) -> Answer {
        let mut bytes = 0;
        while let Piece::Bytes(piece) = chunk.next().await {
            bytes += piece.len();
        }
        assert!(bytes <= CHUNK, "{bytes} bytes");
        Answer::new(Says::Received(Received { offset: offset.saturating_add(bytes as u64) }))
    }
}

/// The first line is the method and the path; lines of the header follow until an empty one, and then the body.
fn parsed(bytes: &[u8]) -> Option<Request<Body>> {
    let mut lines = bytes.splitn(64, |byte| *byte == b'\n');
    let first = lines.next()?;
    let at = first.iter().position(|byte| *byte == b' ')?;
    let (method, path) = (Method::from_bytes(&first[..at]).ok()?, Uri::try_from(&first[at + 1..]).ok()?);
    let mut request = Request::new(Body::empty());
    (*request.method_mut(), *request.uri_mut()) = (method, path);
    let mut read = first.len() + 1;
    for line in lines {
        read += line.len() + 1;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        request.headers_mut().append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    let body = bytes.get(read..).unwrap_or_default();
    *request.body_mut() = Body::from(body.to_vec());
    Some(request)
}

/// A request at the routes.
pub(super) fn request(bytes: &[u8]) -> bool {
    static ROUTES: LazyLock<(Router, Runtime)> = LazyLock::new(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        (app(Arc::new(Behind), Limits::default()), runtime)
    });
    let Some(request) = parsed(bytes) else { return false };
    let (routes, runtime) = &*ROUTES;
    let method = request.method().clone();
    runtime.block_on(async {
        let Ok(response) = TowerToHyperService::new(routes.clone()).call(request).await;
        let (head, body) = response.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        assert!(head.status != StatusCode::INTERNAL_SERVER_ERROR, "{head:?}");
        let is_partial = head.status == StatusCode::PARTIAL_CONTENT;
        if is_partial {
            check_part(&head.headers, &body);
        }
        // Whatever is refused is so in words of the protocol, but to who asked for no body.
        let is_refused = head.status.is_client_error() || head.status.is_server_error();
        if is_refused && method != Method::HEAD {
            assert!(Answer::decode(&body[..]).unwrap().says.is_some(), "{head:?}");
        }
        head.status.is_success()
    })
}

/// A part is the one that its header names.
fn check_part(headers: &HeaderMap, body: &[u8]) {
    let range = headers["content-range"].to_str().unwrap();
    let (first, rest) = range.strip_prefix("bytes ").unwrap().split_once('-').unwrap();
    let (last, length) = rest.split_once('/').unwrap();
    let [first, last, length] = [first, last, length].map(|number| number.parse::<usize>().unwrap());
    assert_eq!((length, body), (BLOB.len(), &BLOB[first..=last]));
}

/// What a proxy that is trusted says of whom it speaks for, a field a line.
pub(super) fn forwarded(bytes: &[u8]) -> bool {
    let networks = ["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"].map(|network| network.parse().unwrap());
    let proxies = Proxies::new(networks.to_vec());
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(20) {
        let Ok(value) = HeaderValue::from_bytes(line) else { return false };
        headers.append("x-forwarded-for", value);
    }
    let peer: IpAddr = [10, 0, 0, 1].into();
    let (origin, stranger) = (proxies.origin(peer, &headers), [192, 0, 2, 1].into());
    assert!(!proxies.are_at(origin) && !origin.is_loopback(), "{origin} is limited by nobody");
    assert_eq!(proxies.origin(stranger, &headers), stranger, "the word of somebody else");
    !origin.is_unspecified()
}
