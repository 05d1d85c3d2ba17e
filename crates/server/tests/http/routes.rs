//! What every route answers to those who ask properly.

use device::protocol::message::{CHUNK, Hello, Later, Received, Says, Unsupported};
use keyhush_server::http::Limits;
use prost::Message;

use crate::peers::{BLOB, BLOB_BYTES, REALM, Running, check_in, report};

#[tokio::test]
async fn messages_and_chunks_are_answered_over_one_connection() {
    let server = Running::plain(Limits::default()).await;
    let mut client = server.client().await;
    let hello = client.get("/v1/hello", "").await;
    assert_eq!((hello.status, hello.header("content-type")), (200, Some("application/x-protobuf")));
    assert_eq!(Hello::decode(&hello.body[..]).unwrap().realm, REALM.0);
    let said = client.body("POST", "/v1/say", &check_in(0)).await;
    assert_eq!((said.status, said.says()), (200, Says::Later(Later { after_s: 60 })));
    assert_eq!(said.header("cache-control"), Some("no-store"));
    assert_eq!(said.header("content-encoding"), None);
    let chunk = client.body("PUT", &report("5"), &vec![1; CHUNK]).await;
    assert_eq!((chunk.status, chunk.says()), (200, Says::Received(Received { offset: 5 + CHUNK as u64 })));
    let healthy = client.get("/healthz", "").await;
    assert_eq!((healthy.status, &healthy.body[..]), (200, &b"ok\n"[..]));
    assert_eq!(server.stop().await.connections, 1);
}

#[tokio::test]
async fn bodies_may_come_in_pieces_of_unknown_number() {
    let server = Running::plain(Limits::default()).await;
    let mut client = server.client().await;
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        report("0")
    );
    let reply = client.send(&head, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").await;
    assert_eq!(reply.says(), Says::Received(Received { offset: 5 }));
    let reply = client.send(&head, b"0\r\n\r\n").await;
    assert_eq!(reply.refused().1, "the body is empty");
    let long = [format!("{:x}\r\n", CHUNK + 1).into_bytes(), vec![0; CHUNK + 1], b"\r\n0\r\n\r\n".to_vec()].concat();
    assert_eq!(server.client().await.send(&head, &long).await.status, 413);
    server.stop().await;
}

#[tokio::test]
async fn blobs_are_cached_and_resumed() {
    let server = Running::plain(Limits::default()).await;
    let mut client = server.client().await;
    let path = format!("/v1/blob/{BLOB}");
    let whole = client.get(&path, "").await;
    assert_eq!((whole.status, &whole.body[..]), (200, BLOB_BYTES));
    assert_eq!(whole.header("content-encoding"), Some("gzip"));
    assert_eq!(whole.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let tag = whole.header("etag").unwrap().to_owned();

    let again = client.get(&path, &format!("If-None-Match: \"x\", {tag}\r\n")).await;
    assert_eq!((again.status, again.header("etag")), (304, Some(&*tag)));
    assert_eq!(client.get(&path, "If-None-Match: \"x\"\r\n").await.status, 200);

    let head = client.send(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"), b"").await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("36")));

    let rest = client.get(&path, "Range: bytes=10-\r\n").await;
    assert_eq!((rest.status, rest.header("content-range")), (206, Some("bytes 10-35/36")));
    assert_eq!(&rest.body[..], &BLOB_BYTES[10..]);
    let some = client.get(&path, &format!("Range: bytes=2-4\r\nIf-Range: {tag}\r\n")).await;
    assert_eq!((some.status, &some.body[..]), (206, &b"234"[..]));
    let other = client.get(&path, "Range: bytes=2-4\r\nIf-Range: \"other\"\r\n").await;
    assert_eq!((other.status, other.body.len()), (200, 36), "half of one packing is no part of another");
    let several = client.get(&path, "Range: bytes=0-1,4-5\r\n").await;
    assert_eq!((several.status, several.body.len()), (200, 36));

    let beyond = client.get(&path, "Range: bytes=36-\r\n").await;
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */36")));
    assert_eq!(beyond.refused().1, "the range is out of bounds");
    server.stop().await;
}

#[tokio::test]
async fn other_versions_are_told_which_are_spoken() {
    let server = Running::plain(Limits::default()).await;
    let mut client = server.client().await;
    for path in ["/v2/hello", "/v2/say", "/v0/x", "/v99999999999999999999/", "/v2"] {
        let reply = client.get(path, "").await;
        assert_eq!(
            (reply.status, reply.says()),
            (400, Says::Unsupported(Unsupported { oldest: 1, newest: 1 })),
            "{path}"
        );
    }
    let reply = client.body("POST", "/v2/say", b"anything").await;
    assert_eq!(reply.says(), Says::Unsupported(Unsupported { oldest: 1, newest: 1 }));
    let mut client = server.client().await;
    for path in
        ["/", "/v", "/v1", "/v1/", "/v1/hello/", "/v1x/hello", "/vx/hello", "/v1/report/x", "/v1/blob", "/%76%32"]
    {
        let reply = client.get(path, "").await;
        assert_eq!((reply.status, reply.refused().1.as_str()), (404, "not found"), "{path}");
    }
    server.stop().await;
}
