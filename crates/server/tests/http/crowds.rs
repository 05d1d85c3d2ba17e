//! Many connections, more than there may be, and the end of a server that is in use.

use std::time::{Duration, Instant};

use device::protocol::message::Reason;
use keyhush_server::http::Limits;
use tokio::{task::JoinSet, time::sleep};

use crate::peers::{Running, check_in, head};

#[tokio::test]
async fn an_address_has_its_share_of_connections() {
    let server = Running::plain(Limits { by_loopback: 3, ..Limits::default() }).await;
    let mut inside = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        assert_eq!(client.get("/healthz", "").await.status, 200);
        inside.push(client);
    }
    let mut fourth = server.client().await;
    let reply = fourth.get("/healthz", "").await;
    assert_eq!((reply.status, reply.refused().0), (503, Reason::TooMuch));
    assert_eq!((reply.header("connection"), reply.header("retry-after")), (Some("close"), Some("30")));
    assert_eq!(server.client_from(2).await.get("/healthz", "").await.status, 200, "others have their own");
    assert_eq!(inside[0].get("/healthz", "").await.status, 200, "and those inside go on");
    inside.pop();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(server.client().await.get("/healthz", "").await.status, 200, "a place that was left is free");
    assert_eq!(server.stop().await.refused, 1);
}

#[tokio::test]
async fn a_full_server_closes_who_waited_longest_and_nobody_with_a_request() {
    let server = Running::plain(Limits { connections: 3, ..Limits::default() }).await;
    let mut works = server.client().await;
    let say = check_in(3000);
    let patient = async { works.body("POST", "/v1/say", &say).await.status };
    let others = async {
        sleep(Duration::from_millis(200)).await;
        let mut oldest = server.client().await;
        assert_eq!(oldest.get("/healthz", "").await.status, 200);
        let mut second = server.client().await;
        assert_eq!(second.get("/healthz", "").await.status, 200);
        assert_eq!(server.client().await.get("/healthz", "").await.status, 503, "nobody has waited for long");
        sleep(Duration::from_millis(1200)).await;
        assert_eq!(second.get("/healthz", "").await.status, 200);
        assert_eq!(server.client().await.get("/healthz", "").await.status, 200, "the oldest made place");
        oldest.until_closed(None).await;
        assert_eq!(second.get("/healthz", "").await.status, 200);
    };
    assert_eq!(tokio::join!(patient, others).0, 200);
    let served = server.stop().await;
    assert_eq!((served.evicted, served.refused), (1, 1), "{served:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_finishes_what_it_has_begun() {
    let server = Running::plain(Limits::default()).await;
    let mut clients = JoinSet::new();
    for _ in 0..50 {
        let mut client = server.client().await;
        clients.spawn(async move {
            let (body, mut answers) = (check_in(20), 0_u64);
            // An answer that has begun is whole, or the client panics.
            while let Some(reply) =
                client.try_send(&head("POST", "/v1/say", "application/x-protobuf", body.len()), &body).await
            {
                assert_eq!(reply.status, 200);
                answers += 1;
                if reply.header("connection") == Some("close") {
                    break;
                }
            }
            answers
        });
    }
    // One that is idle, and one that has sent half a header.
    let mut idle = server.client().await;
    assert_eq!(idle.get("/healthz", "").await.status, 200);
    sleep(Duration::from_millis(500)).await;
    let (address, asked) = (server.address, Instant::now());
    let served = server.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(4), "it stopped after {:?}", asked.elapsed());
    assert_eq!(served.cut, 0, "{served:?}");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens");
    idle.until_closed(None).await;
    while let Some(answers) = clients.join_next().await {
        assert!(answers.unwrap() > 5, "each was answered until the end");
    }
}

#[tokio::test]
async fn a_server_that_stops_cuts_who_goes_on_for_too_long() {
    let server = Running::plain(Limits { finish: Duration::from_millis(500), ..Limits::default() }).await;
    let mut client = server.client().await;
    let asked = tokio::spawn(async move {
        let body = check_in(3_600_000);
        client.try_send(&head("POST", "/v1/say", "application/x-protobuf", body.len()), &body).await.is_none()
    });
    sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    assert_eq!(server.stop().await.cut, 1);
    assert!(began.elapsed() < Duration::from_secs(4));
    assert!(asked.await.unwrap(), "it was cut");
}

/// As many as there are files for: 9,800 with 20,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes longer than 5 s"]
async fn ten_thousand_connections_are_kept_and_each_is_answered() {
    let server = Running::plain(Limits { idle: Duration::from_secs(300), ..Limits::default() }).await;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = usize::try_from(files.saturating_sub(300) / 2).unwrap_or(usize::MAX).min(10_000);
    let (began, mut clients) = (Instant::now(), Vec::new());
    for i in 0..count {
        let mut client = server.client_from(1 + (i % 8) as u8).await;
        assert_eq!(client.get("/healthz", "").await.status, 200);
        clients.push(client);
    }
    println!("{count} connections, each answered once: {:?}", began.elapsed());
    let (began, body) = (Instant::now(), check_in(0));
    for client in &mut clients {
        assert_eq!(client.body("POST", "/v1/say", &body).await.status, 200);
    }
    println!("a signed request on each, one after the other: {:?}", began.elapsed());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("server and clients together: {:?}", status.lines().find(|l| l.starts_with("VmRSS")));
    let served = server.stop().await;
    assert_eq!((served.refused, served.failed, served.cut), (0, 0, 0), "{served:?}");
}
