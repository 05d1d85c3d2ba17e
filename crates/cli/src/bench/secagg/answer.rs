//! What is printed.

use secagg::server::Connect;
use serde::Serialize;

use super::{
    Case, VanishAt,
    round::{Clients, Clock, Server},
};

/// Which round.
#[derive(Serialize)]
pub(super) struct About {
    clients: u32,
    dimension: u32,
    dropout: f64,
    dropped: u32,
    vanish_at: VanishAt,
    corrupted: f64,
    adversary: String,
    /// Whether degree and threshold were chosen, whatever they protect.
    insecure: bool,
    degree: u32,
    threshold: u32,
    /// Who sign, and how many signatures decide; 0 where the server is taken at its word.
    committee: u32,
    quorum: u32,
    bits: u32,
    largest: u32,
    threads: usize,
}

impl About {
    pub(super) fn new(case: &Case) -> Self {
        let Case { asked, terms, connect, parameters, largest, dropped, vanish_at, threads } = *case;
        let (committee, quorum) = parameters.committee().map_or((0, 0), |c| (c.size, c.quorum));
        Self {
            clients: terms.most_clients,
            dimension: terms.dimension,
            dropout: asked.dropout,
            dropped,
            vanish_at,
            corrupted: asked.corrupted,
            adversary: asked.adversary.to_string(),
            insecure: connect != Connect::Found,
            degree: parameters.degree(),
            threshold: parameters.threshold(),
            committee,
            quorum,
            bits: terms.bits,
            largest,
            threads,
        }
    }

    fn print(&self) {
        let Self { clients, dimension, degree, threshold, bits, dropped, vanish_at, .. } = self;
        println!("clients           {clients}, of whom {dropped} vanish before their {}", said(*vanish_at));
        let protects = if self.insecure {
            "INSECURE: chosen, whatever they protect".to_owned()
        } else {
            format!("for a {} server with {:.1} % of the clients", self.adversary, 100.0 * self.corrupted)
        };
        println!("neighbours        {degree}, threshold {threshold} ({protects})");
        if self.committee > 0 {
            println!("committee         {} sign who dropped out, {} decide", self.committee, self.quorum);
        }
        println!("vector            {dimension} coordinates up to {}, sums mod 2^{bits}", self.largest);
    }
}

const fn said(vanish_at: VanishAt) -> &'static str {
    match vanish_at {
        VanishAt::Shares => "shares",
        VanishAt::Input => "input",
        VanishAt::Unmask => "last answer",
    }
}

/// CPU seconds of one client for one step.
#[derive(Serialize)]
pub(super) struct Each {
    mean_s: f64,
    max_s: f64,
}

impl Each {
    fn new(clock: &Clock) -> Self {
        Self { mean_s: clock.total_s / f64::from(clock.times.max(1)), max_s: clock.max_s }
    }
}

/// CPU seconds of a client, step by step.
#[derive(Serialize)]
pub(super) struct ClientSeconds {
    /// Draws its keys.
    keys: Each,
    /// Checks its neighbours and seals shares for them.
    shares: Each,
    /// Opens what they sealed and agrees with each on a mask.
    deliver: Each,
    /// Masks its input.
    mask: Each,
    /// Signs what it was shown, if it is in the committee.
    agree: Each,
    /// Opens a share of each.
    unmask: Each,
    /// The means together: a client that stays to the end.
    total_s: f64,
    /// Every client, with those who vanish as long as they were there.
    pub(super) all_clients_s: f64,
}

impl ClientSeconds {
    pub(super) fn new(clients: &Clients) -> Self {
        let Clients { keys, shares, deliver, mask, agree, unmask } = clients;
        let clocks = [keys, shares, deliver, mask, agree, unmask];
        let each = clocks.map(Each::new);
        let total_s = each.iter().map(|each| each.mean_s).sum();
        let [keys, shares, deliver, mask, agree, unmask] = each;
        let all_clients_s = clocks.iter().map(|clock| clock.total_s).sum();
        Self { keys, shares, deliver, mask, agree, unmask, total_s, all_clients_s }
    }
}

/// CPU seconds of the server, all threads together.
#[derive(Serialize)]
pub(super) struct ServerSeconds {
    /// Keys that arrive, checked.
    keys_s: f64,
    /// Parameters, tree and graph.
    directory_s: f64,
    /// Neighbourhoods, shares and deliveries on their way.
    route_s: f64,
    /// Masked inputs, added as they arrive.
    add_s: f64,
    /// Signatures, requests and answers.
    answers_s: f64,
    /// Secrets put together and checked, and keys agreed.
    reconstruct_s: f64,
    /// Masks expanded and taken off.
    expand_s: f64,
    /// From the last answer to the sum: the two before, and what is between and after them.
    unmask_s: f64,
    pub(super) total_s: f64,
}

impl ServerSeconds {
    pub(super) fn new(server: &Server, reconstruct_s: f64, expand_s: f64) -> Self {
        let Server { keys, directory, route, add, answers, finish } = server;
        let unmask_s = reconstruct_s + expand_s + finish.total_s;
        Self {
            keys_s: keys.total_s,
            directory_s: directory.total_s,
            route_s: route.total_s,
            add_s: add.total_s,
            answers_s: answers.total_s,
            reconstruct_s,
            expand_s,
            unmask_s,
            total_s: [keys, directory, route, add, answers].map(|clock| clock.total_s).iter().sum::<f64>() + unmask_s,
        }
    }
}

/// Bytes of a client, the mean of those who did the step.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Bytes {
    pub(super) up: f64,
    pub(super) down: f64,
}

#[derive(Serialize)]
pub(super) struct Traffic {
    /// The offer; keys.
    keys: Bytes,
    /// The neighbourhood; sealed shares.
    shares: Bytes,
    /// What neighbours sealed; the masked input.
    input: Bytes,
    /// What became of everybody; a signature.
    agree: Bytes,
    /// Who is alive, and who signed that; opened shares.
    unmask: Bytes,
    /// A client that stays to the end.
    total: Bytes,
}

impl Traffic {
    pub(super) fn new(steps: [Bytes; 5]) -> Self {
        let total = steps.iter().fold(Bytes { up: 0.0, down: 0.0 }, |total, step| Bytes {
            up: total.up + step.up,
            down: total.down + step.down,
        });
        let [keys, shares, input, agree, unmask] = steps;
        Self { keys, shares, input, agree, unmask, total }
    }
}

/// A whole round.
#[derive(Serialize)]
pub(super) struct RoundAnswer {
    #[serde(flatten)]
    pub(super) about: About,
    /// The sum was compared with the plain one. A round that is not exact prints an error.
    pub(super) exact: bool,
    /// Inputs in the sum.
    pub(super) survivors: usize,
    /// Masks that the server took off.
    pub(super) masks: usize,
    pub(super) ns_per_mask_element: f64,
    pub(super) client: ClientSeconds,
    pub(super) server: ServerSeconds,
    /// All clients and the server.
    pub(super) cpu_s: f64,
    pub(super) bytes: Traffic,
    /// The most memory that the process ever had, where the system says: server, clients, one input and the plain sum.
    pub(super) peak_mb: Option<f64>,
    pub(super) wall_s: f64,
}

impl RoundAnswer {
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        self.about.print();
        println!("sum               exact, of {} inputs", self.survivors);
        let ClientSeconds { keys, shares, deliver, mask, agree, unmask, total_s, .. } = &self.client;
        let Traffic { keys: k, shares: s, input: i, agree: a, unmask: u, total: t } = &self.bytes;
        println!("\na client             CPU ms       most    bytes up       down");
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
        let server = &self.server;
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
        let threads =
            if self.about.threads == 1 { "1 thread".into() } else { format!("{} threads", self.about.threads) };
        println!("\nmasks taken off   {} by {threads}, {:.3} ns a coordinate", self.masks, self.ns_per_mask_element);
        print_peak(self.peak_mb);
        println!("wall seconds      {:.2}", self.wall_s);
        Ok(())
    }
}

/// Some masks of a round.
#[derive(Serialize)]
pub(super) struct SampleAnswer {
    #[serde(flatten)]
    pub(super) about: About,
    /// Masks that the server of such a round takes off, on average.
    pub(super) streams: u64,
    /// Masks that were taken off here.
    pub(super) streams_measured: u32,
    pub(super) measured_cpu_s: f64,
    pub(super) ns_per_mask_element: f64,
    /// All of them, at the same pace.
    pub(super) extrapolated_cpu_s: f64,
    pub(super) peak_mb: Option<f64>,
}

impl SampleAnswer {
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        self.about.print();
        let Self { streams, streams_measured, measured_cpu_s, ns_per_mask_element, extrapolated_cpu_s, .. } = self;
        println!(
            "masks             {streams_measured} of {streams}: {measured_cpu_s:.3} CPU s, {ns_per_mask_element:.3} ns a coordinate"
        );
        println!("all masks         {extrapolated_cpu_s:.2} CPU s, extrapolated");
        print_peak(self.peak_mb);
        Ok(())
    }
}

fn print_peak(peak_mb: Option<f64>) {
    if let Some(peak) = peak_mb {
        println!("peak memory       {peak:.0} MB, all of the process");
    }
}
