//! Everything that can be wrong with a request is refused with a reason, and the server goes on.

use device::protocol::message::{CHUNK, MOST_BYTES, Reason, Says, Signed, Unsupported};
use keyhush_server::http::Limits;
use prost::Message;

use crate::peers::{BLOB, Reply, Running, check_in, head, report};

const PROTOBUF: &str = "application/x-protobuf";
const OCTETS: &str = "application/octet-stream";

/// The answer to what is sent over a connection of its own, after which the server still answers others.
async fn told(server: &Running, head: &str, body: &[u8]) -> Reply {
    let reply = server.client().await.send(head, body).await;
    assert_eq!(server.client().await.get("/healthz", "").await.status, 200);
    reply
}

#[track_caller]
fn refused(reply: &Reply, status: u16, reason: Reason, words: &str) {
    assert_eq!((reply.status, reply.refused()), (status, (reason, words.to_owned())));
}

#[tokio::test]
async fn bodies_that_are_none_are_refused() {
    let server = Running::plain(Limits::default()).await;
    let say = |body: &'static [u8]| head("POST", "/v1/say", PROTOBUF, body.len());
    refused(&told(&server, &say(b""), b"").await, 400, Reason::Malformed, "the body is empty");
    let put = head("PUT", &report("0"), OCTETS, 0);
    refused(&told(&server, &put, b"").await, 400, Reason::Malformed, "the body is empty");
    let none = "POST /v1/say HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n\r\n";
    refused(&told(&server, none, b"").await, 400, Reason::Malformed, "the body is empty");
    for evil in [&b"\xff"[..], b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"{\"json\": true}", &[0; 1000]] {
        let reply = told(&server, &head("POST", "/v1/say", PROTOBUF, evil.len()), evil).await;
        refused(&reply, 400, Reason::Malformed, "no message");
    }
    let mut forged = check_in(0);
    *forged.last_mut().unwrap() ^= 1;
    let reply = told(&server, &head("POST", "/v1/say", PROTOBUF, forged.len()), &forged).await;
    refused(&reply, 401, Reason::Signature, "not signed");
    let newer = Signed { version: 2, ..Signed::decode(&check_in(0)[..]).unwrap() }.encode_to_vec();
    let reply = told(&server, &head("POST", "/v1/say", PROTOBUF, newer.len()), &newer).await;
    assert_eq!((reply.status, reply.says()), (400, Says::Unsupported(Unsupported { oldest: 1, newest: 1 })));
    server.stop().await;
}

#[tokio::test]
async fn long_bodies_are_refused_before_they_are_read() {
    let server = Running::plain(Limits::default()).await;
    for length in [MOST_BYTES + 1, 2 << 30, 1 << 60] {
        let words = "the body is longer than 2^20 bytes";
        let reply = told(&server, &head("POST", "/v1/say", PROTOBUF, length), b"").await;
        refused(&reply, 413, Reason::TooLong, words);
        let reply = told(&server, &head("PUT", &report("0"), OCTETS, length), b"").await;
        refused(&reply, 413, Reason::TooLong, words);
    }
    // The longest that is taken.
    let mut client = server.client().await;
    assert_eq!(client.body("PUT", &report("0"), &vec![0; CHUNK]).await.status, 200);
    // A length that is no number of 64 bits is no request at all.
    let beyond = "PUT /v1/say HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n";
    assert!((400..500).contains(&told(&server, beyond, b"").await.status));
    server.stop().await;
}

#[tokio::test]
async fn bodies_are_never_inflated() {
    let server = Running::plain(Limits::default()).await;
    let words = "the body must not be compressed";
    // A gigabyte of zeros, as its sender says; nobody looks.
    let bomb = [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03"[..], &[0xed; 1000]].concat();
    for (method, path, of) in [("POST", "/v1/say".to_owned(), PROTOBUF), ("PUT", report("0"), OCTETS)] {
        let plain = head(method, &path, of, bomb.len());
        let packed = plain.replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n");
        refused(&told(&server, &packed, &bomb).await, 415, Reason::Malformed, words);
    }
    let reply = told(&server, &head("POST", "/v1/say", PROTOBUF, bomb.len()), &bomb).await;
    refused(&reply, 400, Reason::Malformed, "no message");
    server.stop().await;
}

#[tokio::test]
async fn other_types_and_methods_are_refused() {
    let server = Running::plain(Limits::default()).await;
    let words = "messages must be application/x-protobuf, chunks application/octet-stream";
    for of in ["text/plain", "application/json", OCTETS, ""] {
        refused(&told(&server, &head("POST", "/v1/say", of, 3), b"abc").await, 415, Reason::Malformed, words);
    }
    refused(&told(&server, &head("PUT", &report("0"), PROTOBUF, 3), b"abc").await, 415, Reason::Malformed, words);
    let reply = told(&server, "GET /v1/say HTTP/1.1\r\nHost: x\r\n\r\n", b"").await;
    assert_eq!(reply.header("allow"), Some("POST"));
    refused(&reply, 405, Reason::Malformed, "method not allowed for this path");
    let blob = format!("/v1/blob/{BLOB}");
    for (method, path, allow) in [
        ("DELETE", &*blob, "GET, HEAD"),
        ("POST", "/v1/hello", "GET, HEAD"),
        ("OPTIONS", "/v1/say", "POST"),
        ("POST", &report("0"), "PUT"),
        ("FROB", "/healthz", "GET, HEAD"),
    ] {
        let reply = told(&server, &head(method, path, OCTETS, 0), b"").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn names_that_are_none_are_refused_and_not_repeated() {
    let server = Running::plain(Limits::default()).await;
    let short = "ab".repeat(31);
    for digest in [&*short, &"AB".repeat(32), &"zz".repeat(32), &"ab".repeat(33), "%00", "%ff", &"é".repeat(32)] {
        let reply = told(&server, &format!("GET /v1/blob/{digest} HTTP/1.1\r\nHost: x\r\n\r\n"), b"").await;
        if reply.status == 400 && reply.body.is_empty() {
            continue; // No path of HTTP at all: hyper says so.
        }
        refused(&reply, 400, Reason::Malformed, "a digest must be 64 lower-case hexadecimal digits");
    }
    let none = told(&server, &format!("GET /v1/blob/{} HTTP/1.1\r\nHost: x\r\n\r\n", "0e".repeat(32)), b"").await;
    refused(&none, 404, Reason::Closed, "no such blob, or no longer");
    let reply = told(&server, &head("PUT", &format!("/v1/report/{short}/0"), OCTETS, 1), b"a").await;
    refused(&reply, 400, Reason::Malformed, "a ticket must be 64 lower-case hexadecimal digits");
    for offset in ["-1", "+1", "1.5", "18446744073709551616", "99999999999999999999999999", "0x10", "%31%20", "NaN"] {
        let reply = told(&server, &head("PUT", &report(offset), OCTETS, 1), b"a").await;
        refused(&reply, 400, Reason::Malformed, "an offset must be an integer below 2^64");
    }
    let last = told(&server, &head("PUT", &report("18446744073709551615"), OCTETS, 1), b"a").await;
    assert_eq!(last.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn headers_that_are_too_much_are_refused() {
    let server = Running::plain(Limits::default()).await;
    let get = |fields: String| format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let huge = get(format!("X: {}\r\n", "a".repeat(40_000)));
    assert_eq!(told(&server, &huge, b"").await.status, 431);
    let many = get((0..100).map(|i| format!("X{i}: a\r\n")).collect());
    assert_eq!(told(&server, &many, b"").await.status, 431);
    let endless = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(70_000));
    assert!([414, 431].contains(&told(&server, &endless, b"").await.status));
    for garbage in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"] {
        assert_eq!(told(&server, garbage, b"").await.status, 400, "{garbage:?}");
    }
    let two = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(told(&server, two, b"a").await.status, 400);
    // What HTTP/2 begins with, and a handshake of TLS to a server without.
    for other in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"] {
        let mut client = server.client().await;
        tokio::io::AsyncWriteExt::write_all(&mut client.stream, other).await.unwrap();
        client.until_closed(None).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_smuggled_behind_a_refusal() {
    // A body that is refused unread is no second request.
    let server = Running::plain(Limits::default()).await;
    let mut client = server.client().await;
    let inner = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let first = client.send(&head("POST", "/v1/say", "text/plain", inner.len()), inner).await;
    assert_eq!(first.status, 415);
    let next = client.get("/v1/nowhere", "").await;
    assert_eq!(next.status, 404, "the next answer is of the next request");
    server.stop().await;
}
