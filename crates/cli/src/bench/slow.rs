//! `keyhush bench slow-connections`: how a real server handles connections that never complete a request.

use bench::network::{Answered, SlowRun, SlowTook};
use clap::{Args, value_parser};

#[derive(Args)]
pub(crate) struct SlowArgs {
    /// Number of slow connections: a third sends nothing, a third never completes its header, a third never completes its body
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = value_parser!(u32).range(1..=20_000))]
    slow: u32,
    /// Number of honest requests before them, as a baseline
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// Use TLS: slow connections complete the handshake and only then slow down, and honest requests are encrypted
    #[arg(long)]
    tls: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &SlowArgs) -> anyhow::Result<()> {
    let (slow, requests) = (args.slow as usize, args.requests as usize);
    let took = SlowRun { program: std::env::current_exe()?, slow, requests, tls: args.tls }.run()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&took)?);
        return Ok(());
    }
    let SlowTook { tls, slow, closed, longest_open_s, before, meanwhile, p99_ratio, server_cpu_s, server_peak_mb } =
        took;
    let over = if tls { " over TLS" } else { "" };
    println!("slow connections  {closed} of {slow}{over} closed by the server, the last after {longest_open_s:.2} s");
    let print = |when: &str, Answered { requests, median_ms, p99_ms, most_ms }: Answered| {
        println!(
            "honest {when}  {requests} check-ins: median {median_ms:.2} ms, p99 {p99_ms:.2} ms, at most {most_ms:.2} ms"
        );
    };
    print("before    ", before);
    print("meanwhile ", meanwhile);
    println!("p99 meanwhile     {p99_ratio:.2} times that before");
    println!("server            {server_cpu_s:.2} CPU s, at most {server_peak_mb:.0} MB");
    Ok(())
}
