//! `keyhush bench secagg`: a complete round of secure aggregation between simulated clients, and its cost for clients and server.

use std::fmt;

use bench::secagg::{About, Bytes, ClientSeconds, Each, RoundTook, SampleTook, SecureRound, Step, Traffic, VanishAt};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use secagg::parameters::Adversary;

use crate::{remaining, threads};

#[derive(Args)]
pub(crate) struct SecaggArgs {
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 1000)]
    clients: u32,
    /// Number of coordinates per input
    #[arg(long, value_name = "N", default_value_t = 2_400_000)]
    dimension: u32,
    /// Fraction of clients that drop out
    #[arg(long, value_name = "FRACTION", default_value_t = 0.05)]
    dropout: f64,
    /// The step before which they drop out
    #[arg(long, value_enum, value_name = "STEP", default_value_t = VanishName::Input)]
    vanish_at: VanishName,
    /// Fraction of clients that may collude with the server
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0 / 3.0)]
    corrupted: f64,
    /// Threat model of the server: curious or semi-malicious
    #[arg(long, value_name = "CLASS", default_value_t = Adversary::Curious)]
    adversary: Adversary,
    /// Insecure: number of neighbours per client, whether or not it protects them
    #[cfg(feature = "insecure")]
    #[arg(long, value_name = "N", requires = "threshold")]
    degree: Option<u32>,
    /// Insecure: number of shares that open a secret
    #[cfg(feature = "insecure")]
    #[arg(long, value_name = "N", requires = "degree")]
    threshold: Option<u32>,
    /// Largest coordinate [default: as needed for rounding by 1 % of the clip norm]
    #[arg(long, value_name = "N")]
    largest: Option<u32>,
    /// Compute sums mod 2^BITS [default: as few bits as the largest sum needs]
    #[arg(long, value_name = "BITS")]
    bits: Option<u32>,
    /// Number of threads that remove masks from the sum
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads::number)]
    threads: usize,
    /// Do not run a round: remove this many masks from a vector, and extrapolate to all masks of such a round
    #[arg(long, value_name = "N")]
    streams_sample: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The step before which clients drop out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VanishName {
    /// Before sending shares: nobody shares a mask with them
    Shares,
    /// Before sending their input: a mask per neighbour must be removed (the most expensive case)
    Input,
    /// Before the last answer: their input counts
    Unmask,
}

impl fmt::Display for VanishName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shares => "shares",
            Self::Input => "input",
            Self::Unmask => "unmask",
        })
    }
}

impl From<VanishName> for VanishAt {
    fn from(name: VanishName) -> Self {
        match name {
            VanishName::Shares => Self::Shares,
            VanishName::Input => Self::Input,
            VanishName::Unmask => Self::Unmask,
        }
    }
}

pub(crate) fn run(args: &SecaggArgs) -> anyhow::Result<()> {
    let round = SecureRound {
        clients: args.clients,
        dimension: args.dimension,
        dropout: args.dropout,
        vanish_at: args.vanish_at.into(),
        corrupted: args.corrupted,
        adversary: args.adversary,
        #[cfg(feature = "insecure")]
        graph: args.degree.zip(args.threshold),
        largest: args.largest,
        bits: args.bits,
        threads: args.threads,
    };
    match args.streams_sample {
        Some(streams) => {
            let took = round.sample(streams)?;
            if args.json { println!("{}", serde_json::to_string(&took)?) } else { print_sample(&took) }
        }
        None => {
            let bar = progress();
            let took = round.run(&mut |step| show(&bar, step))?;
            bar.finish_and_clear();
            if args.json { println!("{}", serde_json::to_string(&took)?) } else { print_round(&took) }
        }
    }
    Ok(())
}

/// Shown in a terminal only.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    match remaining::style("{msg:<15} {wide_bar} {percent} %, {left}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(bar: &ProgressBar, step: Step) {
    if bar.message() != step.what {
        bar.set_message(step.what);
    }
    bar.set_length(step.of);
    bar.set_position(step.done);
}

fn print_about(about: &About) {
    let About { clients, dimension, degree, threshold, bits, dropped, vanish_at, .. } = about;
    println!("clients           {clients}, of which {dropped} drop out before their {}", said(*vanish_at));
    let protects = if about.insecure {
        "INSECURE: chosen by hand".to_owned()
    } else {
        format!("for a {} server with {:.1} % of the clients", about.adversary, 100.0 * about.corrupted)
    };
    println!("neighbours        {degree}, threshold {threshold} ({protects})");
    if about.committee > 0 {
        println!("committee         {} sign the list of drop-outs, quorum {}", about.committee, about.quorum);
    }
    println!("vector            {dimension} coordinates up to {}, sums mod 2^{bits}", about.largest);
}

const fn said(vanish_at: VanishAt) -> &'static str {
    match vanish_at {
        VanishAt::Shares => "shares",
        VanishAt::Input => "input",
        VanishAt::Unmask => "last answer",
    }
}

fn print_round(took: &RoundTook) {
    print_about(&took.about);
    println!("sum               exact, of {} inputs", took.survivors);
    let ClientSeconds { keys, shares, deliver, mask, agree, unmask, total_s, .. } = &took.client;
    let Traffic { keys: k, shares: s, input: i, agree: a, unmask: u, total: t } = &took.bytes;
    println!("\nper client           CPU ms       most    bytes up       down");
    let none = Bytes { up: 0.0, down: 0.0 };
    for (step, each, bytes) in [
        ("keys", keys, k),
        ("shares", shares, s),
        ("delivery", deliver, &Bytes { down: i.down, ..none }),
        ("masking", mask, &Bytes { up: i.up, ..none }),
        ("agreement", agree, a),
        ("unmasking", unmask, u),
    ] {
        let Each { mean_s, max_s } = each;
        if *max_s == 0.0 {
            continue; // nobody did this
        }
        println!("{step:<15}{:12.3}{:11.3}{:12.0}{:11.0}", 1e3 * mean_s, 1e3 * max_s, bytes.up, bytes.down);
    }
    println!("{:<15}{:12.3}{:11}{:12.0}{:11.0}", "all", 1e3 * total_s, "", t.up, t.down);
    let server = &took.server;
    println!("\nthe server          CPU s");
    for (step, seconds) in [
        ("keys", server.keys_s),
        ("directory", server.directory_s),
        ("routing", server.route_s),
        ("adding inputs", server.add_s),
        ("answers", server.answers_s),
        ("secrets", server.reconstruct_s),
        ("masks", server.expand_s),
        ("unmasking", server.unmask_s),
        ("all", server.total_s),
    ] {
        println!("{step:<15}{seconds:10.3}");
    }
    let threads = if took.about.threads == 1 { "1 thread".into() } else { format!("{} threads", took.about.threads) };
    println!("\nmasks removed     {} by {threads}, {:.3} ns per coordinate", took.masks, took.ns_per_mask_element);
    print_peak(took.peak_mb);
    println!("wall seconds      {:.2}", took.wall_s);
}

fn print_sample(took: &SampleTook) {
    print_about(&took.about);
    let SampleTook { streams, streams_measured, measured_cpu_s, ns_per_mask_element, extrapolated_cpu_s, .. } = took;
    println!(
        "masks             {streams_measured} of {streams}: {measured_cpu_s:.3} CPU s, {ns_per_mask_element:.3} ns per coordinate"
    );
    println!("all masks         {extrapolated_cpu_s:.2} CPU s, extrapolated");
    print_peak(took.peak_mb);
}

fn print_peak(peak_mb: Option<f64>) {
    if let Some(peak) = peak_mb {
        println!("peak memory       {peak:.0} MB, whole process");
    }
}
