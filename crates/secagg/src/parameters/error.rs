//! Why parameters are refused, and what to change.

use thiserror::Error;

use super::{Adversary, LEAST_CLIENTS, MOST_BITS, MOST_CLIENTS};

/// Parameters or assumptions that are refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A fraction that is none.
    #[error("the {what} fraction must be at least 0 and less than 1, got {value}")]
    Fraction {
        /// The kind of clients.
        what: &'static str,
        /// The refused value.
        value: f64,
    },
    /// A number of bits that cannot be kept.
    #[error("the {what} bits must be from {least} to {MOST_BITS}, got {value}")]
    Bits {
        /// The name of the number.
        what: &'static str,
        /// The fewest.
        least: u32,
        /// The refused value.
        value: u32,
    },
    /// Assumptions that no graph withstands.
    #[error(
        "with a {adversary} server, {corrupted} corrupted and {dropout} dropping out, no threshold is possible: {} must be at most 0.9; over-select so that fewer drop out, or assume fewer corrupted",
        match adversary {
            Adversary::Curious => "corrupted + dropout",
            Adversary::SemiMalicious => "corrupted + 2 dropout",
        }
    )]
    TooAdverse {
        /// The adversary class of the server.
        adversary: Adversary,
        /// The corrupted fraction.
        corrupted: f64,
        /// The drop-out fraction.
        dropout: f64,
    },
    /// Too few or too many clients for any graph.
    #[error(
        "the number of clients must be from {LEAST_CLIENTS} to {MOST_CLIENTS}, got {clients}; change the size of the cohort"
    )]
    Clients {
        /// The number of clients.
        clients: u32,
    },
    /// Nobody is sure to have company.
    #[error(
        "of {clients} clients, {corrupted} may be corrupted and {dropped} may drop out, so fewer than two honest ones may remain, and a sum of one input hides nothing; use more clients, or plan for fewer drop-outs or corrupted clients"
    )]
    NoCompany {
        /// The number of clients.
        clients: u32,
        /// The number of clients that may be corrupted.
        corrupted: u32,
        /// The number of clients that may drop out.
        dropped: u32,
    },
    /// Secrecy needs a threshold that drop-outs do not leave, whatever the graph.
    #[error(
        "{clients} clients cannot both keep secrets and survive drop-outs: even if each shares with all others, a {adversary} server with {corrupted} corrupted clients needs a threshold of {threshold}, but with {dropped} dropped only {alive} others are certain to remain; use more clients, or plan for fewer drop-outs or corrupted clients"
    )]
    NoThreshold {
        /// The number of clients.
        clients: u32,
        /// The adversary class of the server.
        adversary: Adversary,
        /// The number of clients that may be corrupted.
        corrupted: u32,
        /// The number of clients that may drop out.
        dropped: u32,
        /// What secrecy calls for.
        threshold: u32,
        /// The number of clients that remain.
        alive: u32,
    },
    /// Nobody is left to agree on who dropped out.
    #[error(
        "{clients} clients cannot agree on who dropped out: with {corrupted} corrupted, {quorum} signatures are needed, but with {dropped} dropped only {alive} clients are certain to remain; use more clients, or plan for fewer drop-outs or corrupted clients"
    )]
    NoQuorum {
        /// The number of clients.
        clients: u32,
        /// The number of clients that may be corrupted.
        corrupted: u32,
        /// The number of clients that may drop out.
        dropped: u32,
        /// Signatures that are needed.
        quorum: u32,
        /// The number of clients that remain.
        alive: u32,
    },
    /// The quorum is too small for the committee.
    #[error(
        "{quorum} signatures of a committee of {size} among {clients} clients are not enough; more than half are needed"
    )]
    Committee {
        /// How many clients there are.
        clients: u32,
        /// How many are in the committee.
        size: u32,
        /// How many of them decide.
        quorum: u32,
    },
    /// Nobody signs what became of everybody.
    #[error("below this device's floor: nobody signs who dropped out, and the server may lie about it")]
    NoCommittee,
    /// A committee that could sign two stories.
    #[error(
        "below this device's floor: with {corrupted} of {clients} clients corrupted, a committee of {size} with {quorum} signatures could sign two views too often for {bits} bits of security; the server must raise them"
    )]
    TwoViews {
        /// How many clients there are.
        clients: u32,
        /// The number of clients that may be corrupted.
        corrupted: u32,
        /// How many are in the committee.
        size: u32,
        /// How many of them decide.
        quorum: u32,
        /// Bits of security.
        bits: u32,
    },
    /// No graph has this degree.
    #[error(
        "{clients} clients cannot have {degree} neighbours each: the degree must be {} (all others), or even and less than that",
        clients.saturating_sub(1)
    )]
    Degree {
        /// How many clients there are.
        clients: u32,
        /// The refused degree.
        degree: u32,
    },
    /// No sharing has this threshold.
    #[error("the threshold of a secret shared among {degree} neighbours must be from 2 to {degree}, got {threshold}")]
    Threshold {
        /// Among how many a secret is shared.
        degree: u32,
        /// The refused threshold.
        threshold: u32,
    },
    /// Fewer clients than a device agrees to hide among.
    #[error("a sum of {clients} inputs is below this device's floor of {floor}; the server must select more clients")]
    FewClients {
        /// The number of clients.
        clients: u32,
        /// How many the device wants.
        floor: u32,
    },
    /// The honest clients that remain could fall apart into groups, each with a sum of its own.
    #[error(
        "below this device's floor: with {degree} neighbours each, {gone} corrupted or dropped of {clients} clients disconnect the others too often for {bits} bits of security; the server must raise the degree"
    )]
    Disconnected {
        /// The number of clients.
        clients: u32,
        /// Neighbours of each.
        degree: u32,
        /// How many may be corrupted or drop out.
        gone: u32,
        /// Bits of security.
        bits: u32,
    },
    /// The server could open both secrets of a client.
    #[error(
        "below this device's floor: with {degree} neighbours each and a threshold of {threshold}, a {adversary} server that controls {corrupted} of {clients} clients opens a client's input too often for {bits} bits of security; the server must raise the threshold, or the degree with it"
    )]
    Exposed {
        /// The number of clients.
        clients: u32,
        /// Neighbours of each.
        degree: u32,
        /// Shares that open a secret.
        threshold: u32,
        /// The adversary class of the server.
        adversary: Adversary,
        /// The number of clients that may be corrupted.
        corrupted: u32,
        /// Bits of security.
        bits: u32,
    },
}

/// Not the name of an adversary.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the adversary must be `curious` or `semi-malicious`, got `{0}`")]
pub struct UnknownAdversary(pub String);
