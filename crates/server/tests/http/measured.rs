//! What a request costs, printed: `cargo test --release -p keyhush-server --test http measured -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use device::protocol::message::CHUNK;
use keyhush_server::http::Limits;

use crate::{
    peers::{Running, check_in, report},
    tls::{connect, identity, trusting},
};

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints times, and judges none"]
async fn small_requests_and_large_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::with(identity(folder.path()), Limits::default()).await;
    let mut client = connect(&trusting(folder.path()), server.address, "localhost").await.unwrap();
    let body = check_in(0);
    for (what, signed) in [("GET /v1/hello", false), ("POST /v1/say, with its signature", true)] {
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..5000 {
            let asked = Instant::now();
            let reply =
                if signed { client.body("POST", "/v1/say", &body).await } else { client.get("/v1/hello", "").await };
            times.push(asked.elapsed());
            assert_eq!(reply.status, 200);
        }
        times.sort();
        println!("TLS, {what}: median {:?}, p99 {:?}", times[2500], times[4950]);
    }
    let mut shakes: Vec<Duration> = Vec::new();
    for _ in 0..200 {
        let (connector, asked) = (trusting(folder.path()), Instant::now());
        let mut fresh = connect(&connector, server.address, "localhost").await.unwrap();
        assert_eq!(fresh.get("/healthz", "").await.status, 200);
        shakes.push(asked.elapsed());
    }
    shakes.sort();
    println!("TLS, a connection with its handshake and a first answer: median {:?}", shakes[100]);

    let plain = Running::plain(Limits::default()).await;
    let (path, chunk) = (report("0"), vec![1; CHUNK]);
    let (began, used) = (Instant::now(), cpu());
    let mut over_tcp = plain.client().await;
    for _ in 0..2000 {
        assert_eq!(over_tcp.body("PUT", &path, &chunk).await.status, 200);
    }
    println!("plain, 2000 chunks of 1 MiB: {:?}, CPU of both sides {:?}", began.elapsed(), cpu() - used);
    let (began, used) = (Instant::now(), cpu());
    for _ in 0..500 {
        assert_eq!(client.body("PUT", &path, &chunk).await.status, 200);
    }
    println!("TLS, 500 chunks of 1 MiB: {:?}, CPU of both sides {:?}", began.elapsed(), cpu() - used);
    plain.stop().await;
    server.stop().await;
}
