//! What a browser is told whose page would speak to the server.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use device::protocol::message::{Later, Says};
use keyhush_server::http::{Limits, Origins, Transport};

use crate::peers::{Alone, BLOB, Reply, Running, check_in, report};

const PAGE: &str = "https://keyboard.example";
const OTHER: &str = "https://other.example";

async fn open_to_one_page() -> Running {
    let origins = Origins::new(vec!["http://localhost:8080".parse().unwrap(), PAGE.parse().unwrap()]);
    Running::open_to(Alone::default(), Transport::PlainOnLoopback, Limits::default(), origins).await
}

/// What a browser asks before a page may say something.
async fn preflight(server: &Running, origin: &str, method: &str, path: &str) -> Reply {
    let asks = format!(
        "Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: content-type\r\n"
    );
    server.client().await.send(&format!("OPTIONS {path} HTTP/1.1\r\nHost: x\r\n{asks}\r\n"), b"").await
}

#[tokio::test]
async fn a_page_of_an_origin_that_is_named_speaks_the_whole_protocol() {
    let server = open_to_one_page().await;
    for (method, path) in [("POST", "/v1/say".to_owned()), ("PUT", report("0")), ("GET", format!("/v1/blob/{BLOB}"))] {
        let asked = preflight(&server, PAGE, method, &path).await;
        assert_eq!((asked.status, asked.header("access-control-allow-origin")), (204, Some(PAGE)), "{path}");
        assert!(asked.header("access-control-allow-methods").unwrap().split(", ").any(|m| m == method));
        let says = asked.header("access-control-allow-headers").unwrap();
        assert!(["content-type", "range"].iter().all(|name| says.contains(name)), "{says}");
        assert_eq!(asked.header("vary"), Some("origin"));
        assert_eq!(asked.header("access-control-allow-credentials"), None);
    }
    let mut client = server.client().await;
    let body = check_in(0);
    let head = format!(
        "POST /v1/say HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let said = client.send(&head, &body).await;
    assert_eq!((said.status, said.says()), (200, Says::Later(Later { after_s: 60 })));
    assert_eq!(said.header("access-control-allow-origin"), Some(PAGE));
    // Refusals are read too, and what a download goes on by.
    let refused = client.get("/v1/blob/x", &format!("Origin: {PAGE}\r\n")).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (400, Some(PAGE)));
    let blob = client.get(&format!("/v1/blob/{BLOB}"), &format!("Origin: {PAGE}\r\n")).await;
    assert!(blob.header("access-control-expose-headers").unwrap().contains("etag"));
    assert_eq!(blob.header("vary"), Some("origin"), "a cache keeps one for each origin");
    server.stop().await;
}

#[tokio::test]
async fn a_page_of_any_other_origin_is_told_nothing() {
    let server = open_to_one_page().await;
    for origin in [OTHER, "null", "*", "https://keyboard.example.evil.example", "http://keyboard.example", ""] {
        let asked = preflight(&server, origin, "POST", "/v1/say").await;
        assert_eq!((asked.status, asked.header("access-control-allow-origin")), (405, None), "{origin}");
        let hello = server.client().await.get("/v1/hello", &format!("Origin: {origin}\r\n")).await;
        assert_eq!((hello.status, hello.header("access-control-allow-origin")), (200, None), "{origin}");
    }
    server.stop().await;
    // And where nobody is named, nobody is.
    let server = Running::plain(Limits::default()).await;
    let asked = preflight(&server, PAGE, "POST", "/v1/say").await;
    assert_eq!((asked.status, asked.header("access-control-allow-origin"), asked.header("vary")), (405, None, None));
    server.stop().await;
}
