//! Measures a complete round of secure aggregation between simulated clients, with every message encoded and decoded: time and bytes for
//! clients and server.
//!
//! Clients draw their secrets as devices do, from the operating system. Their inputs follow from their numbers, and are made
//! when it is their turn, so that memory is that of a few vectors and of what all clients know between two messages. The
//! sum is compared with the plain sum of the survivors' inputs: a round that is fast and wrong is an error.

mod answer;
mod round;
mod sample;
mod workers;

use secagg::{
    modulus::Modulus,
    parameters::{Adversary, Assumptions, Floor, Parameters},
    server::Connect,
    session::{Inputs, Terms},
};
use serde::Serialize;

pub use self::answer::{About, Bytes, ClientSeconds, Each, RoundTook, SampleTook, ServerSeconds, Traffic};
use crate::{BenchError, at_least_one};

/// The variance that rounding may add to an update on the lattice, as a part of the clip norm's square: it decides how
/// large coordinates are when nobody says.
const ROUNDING: f64 = 0.01;

/// A description of the round.
#[derive(Debug, Clone, PartialEq)]
pub struct SecureRound {
    /// Clients of the round.
    pub clients: u32,
    /// Coordinates of an input.
    pub dimension: u32,
    /// The fraction of clients that may vanish, and does.
    pub dropout: f64,
    /// The step before which clients drop out.
    pub vanish_at: VanishAt,
    /// The fraction of clients that may be on the server's side.
    pub corrupted: f64,
    /// What the server may do.
    pub adversary: Adversary,
    /// Insecure: so many neighbours per client, and so many shares to open a secret, whatever they protect.
    #[cfg(feature = "insecure")]
    pub graph: Option<(u32, u32)>,
    /// The largest coordinate; unless given, as rounding by 1 % of the clip norm needs it.
    pub largest: Option<u32>,
    /// Sums are mod 2^bits; unless given, as few as the largest sum needs.
    pub bits: Option<u32>,
    /// Threads that take masks off the sum.
    pub threads: usize,
}

/// The progress of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The current phase.
    pub what: &'static str,
    /// Messages of clients so far.
    pub done: u64,
    /// Messages of all, at most.
    pub of: u64,
}

impl SecureRound {
    /// Runs the round; `watch` hears how far it is.
    ///
    /// # Errors
    /// When it cannot be meant, or the sum is not that of the survivors' inputs.
    pub fn run(&self, watch: &mut dyn FnMut(Step)) -> Result<RoundTook, BenchError> {
        Ok(round::run(&Case::new(self)?, watch)?)
    }

    /// No round: takes so many masks off a vector, and says how long all masks of such a round would take.
    ///
    /// # Errors
    /// When it cannot be meant.
    pub fn sample(&self, streams: u32) -> Result<SampleTook, BenchError> {
        sample::run(&Case::new(self)?, streams)
    }
}

/// Before what clients vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VanishAt {
    /// Their shares: nobody has a mask with them.
    Shares,
    /// Their input, which leaves a mask with each neighbour to be taken off: the costly point.
    Input,
    /// Their answer to the last question: their input counts.
    Unmask,
}

/// What is measured: everything that has been checked before any work.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// What is to be withstood, and is, unless the graph was chosen.
    asked: Assumptions,
    terms: Terms,
    connect: Connect,
    parameters: Parameters,
    largest: u32,
    dropped: u32,
    vanish_at: VanishAt,
    threads: usize,
}

impl Case {
    fn new(args: &SecureRound) -> Result<Self, BenchError> {
        at_least_one([("threads", args.threads), ("dimension", args.dimension as usize)])?;
        let assumptions = Assumptions::new(args.dropout, args.corrupted, args.adversary);
        assumptions.check().map_err(BenchError::refused)?;
        let (connect, parameters, promised) = connected(args, &assumptions).map_err(BenchError::refused)?;
        let largest = args.largest.unwrap_or_else(|| largest(args.dimension));
        let modulus = Modulus::new(largest, args.clients).map_err(|e| BenchError::wrong("largest", e))?;
        let bits = args.bits.unwrap_or(modulus.bits());
        modulus.widened(bits).map_err(|e| BenchError::wrong("bits", e))?;
        let dropped = assumptions.most_dropped(args.clients);
        let terms = Terms {
            task: [1; 32],
            model: [2; 32],
            round: 1,
            assumptions: promised,
            most_clients: args.clients,
            least_survivors: (args.clients - dropped).max(2),
            dimension: args.dimension,
            bits,
            inputs: Inputs::Bounded { largest },
            most_evidence: 0,
        };
        terms.check().map_err(BenchError::refused)?;
        let (vanish_at, threads) = (args.vanish_at, args.threads);
        Ok(Self { asked: assumptions, terms, connect, parameters, largest, dropped, vanish_at, threads })
    }

    /// What the simulated clients ask for: what they are promised, so that they check it as devices do.
    fn floor(&self) -> Floor {
        let Assumptions { dropout, corrupted, security_bits, adversary, .. } = self.terms.assumptions;
        let (clients, survivors) = (self.terms.most_clients, self.terms.least_survivors);
        Floor { clients, survivors, corrupted, dropout, security_bits, adversary }
    }

    /// Whether a client vanishes: they are spread evenly over the numbers, and so at random over the graph.
    fn vanishes(&self, client: u64) -> bool {
        let (clients, dropped) = (u64::from(self.terms.most_clients), u64::from(self.dropped));
        (client + 1) * dropped / clients > client * dropped / clients
    }
}

/// How clients are connected, and what they are promised: nothing, where somebody chose it.
fn connected(
    args: &SecureRound,
    asked: &Assumptions,
) -> Result<(Connect, Parameters, Assumptions), secagg::parameters::ParameterError> {
    #[cfg(feature = "insecure")]
    if let Some((degree, threshold)) = args.graph {
        let parameters = Parameters::insecure(args.clients, degree, threshold)?;
        let nothing = Assumptions { security_bits: 1, ..Assumptions::new(0.0, 0.0, Adversary::Curious) };
        return Ok((Connect::Insecure { degree, threshold }, parameters, nothing));
    }
    Ok((Connect::Found, Parameters::find(args.clients, asked)?, *asked))
}

/// Twice the largest coordinate of an update on the lattice, `2 ln d` standard deviations, where rounding adds
/// [`ROUNDING`] (Xu et al. 2023, Algorithm 2).
fn largest(dimension: u32) -> u32 {
    let bound = 2.0 * f64::from(dimension).ln() / (2.0 * ROUNDING.sqrt());
    2 * (bound.ceil() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_as_large_as_the_design_has_them() {
        assert_eq!(largest(2_400_000), 2 * 147);
        assert_eq!(largest(1), 2);
    }

    #[test]
    fn as_many_vanish_as_are_told_to() {
        for (clients, dropout, dropped) in [(50, 0.06, 3), (1000, 0.05, 50), (60, 0.0, 0)] {
            let args = args(clients, dropout);
            let case = Case::new(&args).unwrap();
            assert_eq!((0..u64::from(clients)).filter(|c| case.vanishes(*c)).count(), dropped, "{clients} {dropout}");
        }
    }

    fn args(clients: u32, dropout: f64) -> SecureRound {
        SecureRound {
            clients,
            dimension: 2_400_000,
            dropout,
            vanish_at: VanishAt::Input,
            corrupted: 1.0 / 3.0,
            adversary: Adversary::Curious,
            #[cfg(feature = "insecure")]
            graph: None,
            largest: None,
            bits: None,
            threads: 1,
        }
    }
}
