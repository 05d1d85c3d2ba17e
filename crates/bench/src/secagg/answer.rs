//! The results of the secure aggregation benchmark: time and bytes of each phase.

use secagg::server::Connect;
use serde::Serialize;

use super::{
    Case, VanishAt,
    round::{Clients, Clock, Server},
};

/// A description of the round.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// Clients of the round.
    pub clients: u32,
    /// Coordinates of an input.
    pub dimension: u32,
    /// The fraction of clients that may vanish.
    pub dropout: f64,
    /// Clients that vanish.
    pub dropped: u32,
    /// The step before which clients drop out.
    pub vanish_at: VanishAt,
    /// The fraction of clients that may be on the server's side.
    pub corrupted: f64,
    /// What the server may do.
    pub adversary: String,
    /// Whether degree and threshold were chosen, whatever they protect.
    pub insecure: bool,
    /// Neighbours of a client.
    pub degree: u32,
    /// Shares that open a secret.
    pub threshold: u32,
    /// How many sign; 0 where the server is taken at its word.
    pub committee: u32,
    /// Signatures that decide.
    pub quorum: u32,
    /// Sums are mod 2^bits.
    pub bits: u32,
    /// The largest coordinate.
    pub largest: u32,
    /// Threads that take masks off.
    pub threads: usize,
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
}

/// CPU seconds of one client for one step.
#[derive(Debug, Clone, Serialize)]
pub struct Each {
    /// The mean of those who did it.
    pub mean_s: f64,
    /// The largest value of any client, in seconds.
    pub max_s: f64,
}

impl Each {
    fn new(clock: &Clock) -> Self {
        Self { mean_s: clock.total_s / f64::from(clock.times.max(1)), max_s: clock.max_s }
    }
}

/// CPU seconds of a client, step by step.
#[derive(Debug, Clone, Serialize)]
pub struct ClientSeconds {
    /// Draws its keys.
    pub keys: Each,
    /// Checks its neighbours and seals shares for them.
    pub shares: Each,
    /// Opens what they sealed and agrees with each on a mask.
    pub deliver: Each,
    /// Masks its input.
    pub mask: Each,
    /// Signs what it was shown, if it is in the committee.
    pub agree: Each,
    /// Opens a share of each.
    pub unmask: Each,
    /// The means together: a client that stays to the end.
    pub total_s: f64,
    /// Every client, with those who vanish as long as they were there.
    pub all_clients_s: f64,
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
#[derive(Debug, Clone, Serialize)]
pub struct ServerSeconds {
    /// Keys that arrive, checked.
    pub keys_s: f64,
    /// Parameters, tree and graph.
    pub directory_s: f64,
    /// Neighbourhoods, shares and deliveries on their way.
    pub route_s: f64,
    /// Masked inputs, added as they arrive.
    pub add_s: f64,
    /// Signatures, requests and answers.
    pub answers_s: f64,
    /// Secrets reconstructed and checked, and keys agreed.
    pub reconstruct_s: f64,
    /// Masks expanded and taken off.
    pub expand_s: f64,
    /// From the last answer to the sum: the two before, and what is between and after them.
    pub unmask_s: f64,
    /// The total.
    pub total_s: f64,
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
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bytes {
    /// Bytes that a client sends.
    pub up: f64,
    /// Bytes received from the server.
    pub down: f64,
}

/// Bytes of a client, message by message.
#[derive(Debug, Clone, Serialize)]
pub struct Traffic {
    /// The offer; keys.
    pub keys: Bytes,
    /// The neighbourhood; sealed shares.
    pub shares: Bytes,
    /// What neighbours sealed; the masked input.
    pub input: Bytes,
    /// What became of everybody; a signature.
    pub agree: Bytes,
    /// Who is alive, and who signed that; opened shares.
    pub unmask: Bytes,
    /// A client that stays to the end.
    pub total: Bytes,
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
#[derive(Debug, Clone, Serialize)]
pub struct RoundTook {
    /// A description of the round.
    #[serde(flatten)]
    pub about: About,
    /// The sum was compared with the plain one. A round that is not exact prints an error.
    pub exact: bool,
    /// Inputs in the sum.
    pub survivors: usize,
    /// Masks that the server took off.
    pub masks: usize,
    /// CPU time of a coordinate of a mask.
    pub ns_per_mask_element: f64,
    /// CPU time of a client.
    pub client: ClientSeconds,
    /// CPU time of the server.
    pub server: ServerSeconds,
    /// All clients and the server.
    pub cpu_s: f64,
    /// Bytes of a client.
    pub bytes: Traffic,
    /// The most memory that the process ever had, where the system says: server, clients, one input and the plain sum.
    pub peak_mb: Option<f64>,
    /// Wall-clock time, in seconds.
    pub wall_s: f64,
}

/// Some masks of a round.
#[derive(Debug, Clone, Serialize)]
pub struct SampleTook {
    /// A description of the round.
    #[serde(flatten)]
    pub about: About,
    /// Masks that the server of such a round removes, on average.
    pub streams: u64,
    /// Masks that were taken off here.
    pub streams_measured: u32,
    /// CPU time of those.
    pub measured_cpu_s: f64,
    /// CPU time of a coordinate of a mask.
    pub ns_per_mask_element: f64,
    /// All of them, at the same pace.
    pub extrapolated_cpu_s: f64,
    /// The most memory that the process ever had, where the system says.
    pub peak_mb: Option<f64>,
}
