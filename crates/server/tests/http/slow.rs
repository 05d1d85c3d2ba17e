//! Clients that take their time are cut, and others notice nothing.

use std::time::{Duration, Instant};

use device::protocol::message::{CHUNK, MOST_BYTES, Reason, Says, Wait};
use keyhush_server::http::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::peers::{Client, LARGE, LARGE_BYTES, Running, check_in, head, report};

const MS: Duration = Duration::from_millis(1);

/// A middle one and a high one of times that requests took.
fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// How long each of so many honest requests took.
async fn honest(server: &Running, count: usize) -> Vec<Duration> {
    let (mut client, body, mut times) = (server.client_from(99).await, check_in(0), Vec::new());
    for _ in 0..count {
        let asked = Instant::now();
        assert_eq!(client.body("POST", "/v1/say", &body).await.status, 200);
        times.push(asked.elapsed());
        sleep(2 * MS).await;
    }
    times
}

/// Half of them never finish their headers, half never finish their bodies. With `axum::serve` all of the first stay for as long as
/// they like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_slow_connections_are_closed_in_ten_seconds() {
    let server = Running::plain(Limits::default()).await;
    let before = honest(&server, 500).await;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = usize::try_from(files.saturating_sub(200) / 2).unwrap_or(usize::MAX).min(2000);
    let began = Instant::now();
    let mut slow = JoinSet::new();
    for i in 0..count {
        let mut client = server.client_from(2 + (i % 8) as u8).await;
        let begin = match i % 2 {
            0 => "POST /v1/say HTTP/1.1\r\nHost: x\r\nX-A: ".to_owned(),
            _ => head("PUT", &report("0"), "application/octet-stream", 10_000),
        };
        client.stream.write_all(begin.as_bytes()).await.unwrap();
        slow.spawn(async move {
            let opened = Instant::now();
            client.until_closed(Some(b'a')).await;
            opened.elapsed()
        });
    }
    let during = tokio::spawn(async move { (honest(&server, 800).await, server) });
    let mut longest = Duration::ZERO;
    while let Some(open) = slow.join_next().await {
        longest = longest.max(open.unwrap());
    }
    let (during, server) = during.await.unwrap();
    let (before, during) = (quantiles(before), quantiles(during));
    println!("{count} slow connections, all closed after {:?}, each after at most {longest:?}", began.elapsed());
    println!("honest requests, median and p99: {before:?} before, {during:?} meanwhile");
    assert!(longest < Duration::from_secs(10), "one was open for {longest:?}");
    assert!(
        during.1 < (before.1 * 20).max(250 * MS),
        "honest requests wait for slow ones: {during:?} after {before:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_header_has_its_time_however_often_a_byte_comes() {
    let server = Running::plain(Limits { header: 500 * MS, idle: 60_000 * MS, ..Limits::default() }).await;
    for begin in ["", "G", "GET /healthz HTTP/1.1\r\nX: "] {
        let mut client = server.client().await;
        client.stream.write_all(begin.as_bytes()).await.unwrap();
        timeout(5000 * MS, client.until_closed(begin.bytes().next())).await.expect("it is closed");
    }
    // And so has the second one.
    let mut client = server.client().await;
    assert_eq!(client.get("/healthz", "").await.status, 200);
    sleep(800 * MS).await;
    assert_eq!(client.get("/healthz", "").await.status, 200, "between requests there is more time");
    client.stream.write_all(b"GET /").await.unwrap();
    timeout(5000 * MS, client.until_closed(Some(b'a'))).await.expect("it is closed");
    server.stop().await;
}

#[tokio::test]
async fn quiet_connections_are_closed() {
    let server = Running::plain(Limits { idle: 500 * MS, ..Limits::default() }).await;
    let mut client = server.client().await;
    assert_eq!(client.get("/healthz", "").await.status, 200);
    timeout(5000 * MS, client.until_closed(None)).await.expect("it is closed");
    // Waiting for an answer is not being quiet.
    let reply = server.client().await.body("POST", "/v1/say", &check_in(1500)).await;
    assert_eq!(reply.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn slow_bodies_are_told_and_cut() {
    let limits = Limits { grace: 500 * MS, rate: 100_000, ..Limits::default() };
    let server = Running::plain(limits).await;
    let path = report("0");
    // Nothing comes; or a little now and then.
    for trickle in [None, Some(b'a')] {
        let mut client = server.client().await;
        client.stream.write_all(head("PUT", &path, "application/octet-stream", 1000).as_bytes()).await.unwrap();
        if trickle.is_none() {
            let reply = timeout(5000 * MS, client.reply(false)).await.expect("in time").expect("it is told");
            assert_eq!((reply.status, reply.refused().0), (408, Reason::TooMuch));
        }
        timeout(5000 * MS, client.until_closed(trickle)).await.expect("it is cut");
    }
    // Fast enough, for longer than the grace: twice the rate.
    let mut client = server.client().await;
    client.stream.write_all(head("PUT", &path, "application/octet-stream", 300_000).as_bytes()).await.unwrap();
    for _ in 0..15 {
        client.stream.write_all(&[1; 20_000]).await.unwrap();
        sleep(100 * MS).await;
    }
    assert_eq!(client.reply(false).await.unwrap().status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_body_has_a_deadline_at_any_rate() {
    let server = Running::plain(Limits { body: 500 * MS, ..Limits::default() }).await;
    let mut client = server.client().await;
    client.stream.write_all(head("PUT", &report("0"), "application/octet-stream", CHUNK).as_bytes()).await.unwrap();
    for _ in 0..15 {
        // It may have been told already.
        let _ = client.stream.write_all(&[1; 50_000]).await;
        sleep(50 * MS).await;
    }
    let reply = timeout(5000 * MS, client.reply(false)).await.expect("in time").expect("it is told");
    assert_eq!(reply.status, 408);
    server.stop().await;
}

#[tokio::test]
async fn answers_that_nobody_takes_are_cut() {
    let server = Running::plain(Limits { stall: 500 * MS, ..Limits::default() }).await;
    let mut client = server.client().await;
    client.stream.write_all(format!("GET /v1/blob/{LARGE} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    sleep(2500 * MS).await;
    let (mut taken, mut buffer) = (0, vec![0; 1 << 16]);
    while let Ok(some @ 1..) = client.stream.read(&mut buffer).await {
        taken += some;
    }
    assert!(taken < LARGE_BYTES, "the rest was not sent");
    // Those who take it get it, with pauses.
    let mut client: Client<_> = server.client().await;
    let whole = client.get(&format!("/v1/blob/{LARGE}"), "").await;
    assert_eq!(whole.body.len(), LARGE_BYTES);
    server.stop().await;
}

#[tokio::test]
async fn bodies_for_which_there_is_no_room_wait_outside() {
    let server = Running::plain(Limits { room: MOST_BYTES, room_wait: 300 * MS, ..Limits::default() }).await;
    let (path, body) = ("/v1/say", vec![1; MOST_BYTES]);
    let kept = server.service.keep.lock().await;
    let mut first = server.client().await;
    first
        .stream
        .write_all(&[head("POST", path, "application/x-protobuf", MOST_BYTES).as_bytes(), &body].concat())
        .await
        .unwrap();
    sleep(200 * MS).await;
    let mut client = server.client().await;
    let second = client.body("POST", path, &body).await;
    assert_eq!((second.status, second.says()), (503, Says::Wait(Wait { after_ms: 1000 })));
    assert_eq!(client.get("/healthz", "").await.status, 200, "it keeps its connection");
    assert_eq!(
        server.client().await.body("POST", "/v1/say", &check_in(0)).await.status,
        200,
        "short ones need no room"
    );
    let chunk = server.client().await.body("PUT", &report("0"), &[1; CHUNK]).await;
    assert_eq!(chunk.status, 200, "nobody keeps chunks of reports");
    drop(kept);
    assert_eq!(first.reply(false).await.unwrap().refused().0, Reason::Malformed);
    let again = server.client().await.body("POST", path, &body).await;
    assert_eq!(again.refused().0, Reason::Malformed, "there is room again");
    server.stop().await;
}
