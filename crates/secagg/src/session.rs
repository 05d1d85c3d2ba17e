//! The session: what a round is for, and the one hash that everything in it is bound to.

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    masks::Shape,
    modulus::Modulus,
    parameters::{Adversary, Assumptions, Parameters},
    wire::{Reader, SUITE, VERSION, WireError},
};

/// Bytes of evidence that an offer can allow: a neighbourhood of a thousand must fit into memory.
pub const MOST_EVIDENCE: u32 = 1 << 16;

/// The terms of a round: what is summed, and what the sum must withstand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// The digest of the task: what devices compute.
    pub task: [u8; 32],
    /// The digest of the model that they begin with.
    pub model: [u8; 32],
    /// Which round of the task.
    pub round: u64,
    /// What the graph is to withstand.
    pub assumptions: Assumptions,
    /// Clients that are admitted at most: the modulus is for so many.
    pub most_clients: u32,
    /// Inputs below which no sum is opened, those of corrupted clients among them.
    pub least_survivors: u32,
    /// Coordinates.
    pub dimension: u32,
    /// b: sums are mod 2^b.
    pub bits: u32,
    /// What a coordinate of an input can be.
    pub inputs: Inputs,
    /// Bytes of evidence for a client's keys at most.
    pub most_evidence: u32,
}

/// The range of an input's coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    /// At most so much, and so little that no sum wraps.
    Bounded {
        /// The largest.
        largest: u32,
    },
    /// Any residue: inputs carry noise of their own, which has no bound. Who chose b has left room for the noise of all.
    Noised,
}

/// The server's offer of a round. A device that takes part has bound its masks to all of it: a server that
/// shows somebody another model, task or parameter gets masks that do not cancel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// The terms of the round.
    pub terms: Terms,
    /// Drawn for this attempt.
    pub nonce: [u8; 32],
    /// The digest of the coin that decides, with the directory, who is whose neighbour.
    pub coin: CoinCommitment,
}

/// Terms that nobody can take up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct TermsError {
    /// The name of the field.
    pub field: &'static str,
    /// A description of the problem.
    pub problem: String,
}

/// The digest of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferHash(pub [u8; 32]);

/// The session that all keys and ciphertexts of a round are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionId(pub [u8; 32]);

/// The server's share of the randomness of the graph, which it commits to before it knows any key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coin(pub [u8; 32]);

/// Its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoinCommitment(pub [u8; 32]);

impl Coin {
    /// The commitment that the offer contains.
    #[must_use]
    pub fn commitment(&self) -> CoinCommitment {
        CoinCommitment(digest(b"keyhush secagg coin v2", &[&self.0]))
    }

    /// The seed of the graph's permutation. The root is not known when the coin is drawn, nor the coin when keys are.
    pub(crate) fn permutation(&self, root: &[u8; 32]) -> [u8; 32] {
        digest(b"keyhush secagg graph v2", &[&self.0, root])
    }
}

/// The session of an offer, once the directory is closed.
pub(crate) fn session(offer: &OfferHash, root: &[u8; 32], parameters: &Parameters, coin: &Coin) -> SessionId {
    let numbers = parameters.to_parts().map(u32::to_le_bytes).concat();
    SessionId(digest(b"keyhush secagg session v2", &[&offer.0, root, &numbers, &coin.0]))
}

impl SessionId {
    /// The seed of the committee's draw: the directory is closed when it is known.
    pub(crate) fn committee_seed(&self) -> [u8; 32] {
        digest(b"keyhush secagg committee v2", &[&self.0])
    }
}

pub(crate) fn digest(label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(label);
    parts.iter().for_each(|p| hash.update(p));
    hash.finalize().into()
}

impl Terms {
    /// Refuses what has no meaning; what is left cannot wrap.
    ///
    /// # Errors
    /// Which part is wrong.
    pub fn check(&self) -> Result<(), TermsError> {
        let wrong = |field, problem: String| Err(TermsError { field, problem });
        if let Err(e) = self.assumptions.check() {
            return wrong("assumptions", e.to_string());
        }
        if let Inputs::Bounded { largest } = self.inputs
            && let Err(e) = Modulus::from_bits(self.bits, largest, self.most_clients)
        {
            return wrong("bits", e.to_string());
        }
        if self.most_evidence > MOST_EVIDENCE {
            return wrong("most_evidence", format!("must be at most {MOST_EVIDENCE} bytes"));
        }
        if let Err(e) = self.shape() {
            return wrong("dimension", e.to_string());
        }
        if !(2..=self.most_clients).contains(&self.least_survivors) {
            return wrong("least_survivors", format!("must be from 2 to {}, the most clients", self.most_clients));
        }
        Ok(())
    }

    /// How its vectors are laid out.
    pub(crate) fn shape(&self) -> Result<Shape, crate::masks::MaskError> {
        Shape::new(self.dimension as usize, self.bits)
    }

    /// The largest coordinate that a client may send.
    pub(crate) const fn largest_input(&self) -> u32 {
        match self.inputs {
            Inputs::Bounded { largest } => largest,
            Inputs::Noised => u32::MAX >> (32 - self.bits),
        }
    }
}

impl Offer {
    /// Its digest.
    #[must_use]
    pub fn hash(&self) -> OfferHash {
        OfferHash(digest(b"keyhush secagg offer v2", &[&self.encode()]))
    }

    /// Its bytes: the same for everybody.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { terms, nonce, coin } = self;
        let mut out = vec![VERSION, SUITE];
        for digest in [nonce, &terms.task, &terms.model] {
            out.extend_from_slice(digest);
        }
        out.extend_from_slice(&terms.round.to_le_bytes());
        let Assumptions { dropout, corrupted, security_bits, failure_bits, adversary } = terms.assumptions;
        out.extend_from_slice(&dropout.to_bits().to_le_bytes());
        out.extend_from_slice(&corrupted.to_bits().to_le_bytes());
        out.extend_from_slice(&security_bits.to_le_bytes());
        out.extend_from_slice(&failure_bits.to_le_bytes());
        out.push(match adversary {
            Adversary::Curious => 0,
            Adversary::SemiMalicious => 1,
        });
        let (noised, largest) = match terms.inputs {
            Inputs::Bounded { largest } => (0, largest),
            Inputs::Noised => (1, 0),
        };
        let Terms { most_clients, least_survivors, dimension, bits, most_evidence, .. } = *terms;
        for number in [most_clients, least_survivors, dimension, bits, largest, most_evidence] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(noised);
        out.extend_from_slice(&coin.0);
        out
    }

    /// An offer that arrived.
    ///
    /// # Errors
    /// When the bytes are not an offer's. [`Terms::check`] says whether it can be taken up.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        reader.protocol()?;
        let (nonce, task, model) = (reader.array()?, reader.array()?, reader.array()?);
        let round = reader.u64()?;
        let (dropout, corrupted) = (f64::from_bits(reader.u64()?), f64::from_bits(reader.u64()?));
        let (security_bits, failure_bits) = (reader.u32()?, reader.u32()?);
        let adversary = match reader.u8()? {
            0 => Adversary::Curious,
            1 => Adversary::SemiMalicious,
            _ => return Err(WireError::Value { what: "the adversary" }),
        };
        let [most_clients, least_survivors, dimension, bits, largest, most_evidence] =
            [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let inputs = match (reader.u8()?, largest) {
            (0, largest) => Inputs::Bounded { largest },
            (1, 0) => Inputs::Noised,
            _ => return Err(WireError::Value { what: "the kind of inputs" }),
        };
        let coin = CoinCommitment(reader.array()?);
        reader.end()?;
        let assumptions = Assumptions { dropout, corrupted, security_bits, failure_bits, adversary };
        let terms = Terms {
            task,
            model,
            round,
            assumptions,
            most_clients,
            least_survivors,
            dimension,
            bits,
            inputs,
            most_evidence,
        };
        Ok(Self { terms, nonce, coin })
    }
}
