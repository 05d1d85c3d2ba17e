//! States of the server's side as bytes, so that a round outlives the process that runs it.
//!
//! What is saved is what the server may keep: the offer, its coin, keys of clients, shares that it cannot open, masked sums.
//! The coin is to be kept from clients until the directory closes. The last state, with secrets that clients opened, has no
//! bytes. Bytes end with a digest: what was cut or changed on its way is refused, and whoever fears more signs them.
//!
//! Saved twice and restored twice a round does no harm: clients answer each question once, and sign one story.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{
    Accumulator, CollectAgreement, CollectKeys, CollectMasked, CollectShares, Refusal, Round,
    agreement::Summed,
    fates::{Complaints, Fates},
    shares::Dealt,
};
use crate::{
    ClientId,
    masks::Shape,
    message::{SEALED, read_bits, read_member, write_bits, write_member},
    parameters::Parameters,
    session::{Coin, Offer, SUITE, SessionId, VERSION},
    wire::{Bits, Reader, WireError},
};

/// Which state bytes are.
#[derive(Clone, Copy)]
#[repr(u8)]
enum State {
    Keys = 1,
    Shares = 2,
    Masked = 3,
    Agreement = 4,
    Accumulator = 5,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Keys => "CollectKeys",
            Self::Shares => "CollectShares",
            Self::Masked => "CollectMasked",
            Self::Agreement => "CollectAgreement",
            Self::Accumulator => "Accumulator",
        }
    }

    /// Version, suite, which state; what `write` says; a digest of all that.
    fn save(self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![VERSION, SUITE, self as u8];
        write(&mut out);
        let digest = digest(&out);
        out.extend_from_slice(&digest);
        out
    }

    fn open(self, bytes: &[u8]) -> Result<Reader<'_>, WireError> {
        let (said, end) = bytes.split_last_chunk::<32>().ok_or(WireError::Short)?;
        let mut reader = Reader::new(said);
        reader.protocol()?;
        match reader.u8()? {
            _ if *end != digest(said) => Err(WireError::Value { what: "a saved state that was cut or changed" }),
            state if state == self as u8 => Ok(reader),
            got => Err(WireError::Kind { expected: self.name(), got }),
        }
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(b"keyhush secagg saved v2").chain_update(bytes).finalize().into()
}

impl CollectKeys {
    /// Its bytes.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        State::Keys.save(|out| {
            write_long(&self.offer.encode(), out);
            out.extend_from_slice(&self.coin.0);
            write_u32(self.members.len(), out);
            for (client, member) in self.members.values() {
                out.extend_from_slice(&client.0.to_le_bytes());
                write_member(member, out);
            }
        })
    }

    /// From bytes that were saved.
    ///
    /// # Errors
    /// When they are not such a state's.
    pub fn restore(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = State::Keys.open(bytes)?;
        let mut keys = Self::new(Offer::decode(reader.long_bytes()?)?, Coin(reader.array()?));
        for _ in 0..reader.count(8)? {
            let client = ClientId(reader.u64()?);
            keys.insert(client, read_member(&mut reader)?);
        }
        reader.end()?;
        Ok(keys)
    }
}

impl Round {
    fn write(&self, out: &mut Vec<u8>) {
        write_long(&self.offer.encode(), out);
        out.extend_from_slice(&self.coin.0);
        self.parameters.to_parts().iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        for (client, member) in self.at.iter().zip(self.directory.members()) {
            out.extend_from_slice(&client.0.to_le_bytes());
            write_member(member, out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (offer, coin) = (Offer::decode(reader.long_bytes()?)?, Coin(reader.array()?));
        let parts = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let no_graph = |_| WireError::Value { what: "a graph of such numbers" };
        let parameters = Parameters::try_from(parts).map_err(no_graph)?;
        offer.terms.check().map_err(|_| WireError::Value { what: "terms of a saved round" })?;
        let member = |_| Ok((ClientId(reader.u64()?), read_member(reader)?));
        let members: Vec<_> = (0..parameters.clients()).map(member).collect::<Result<_, WireError>>()?;
        Ok(Self::new(offer, coin, parameters, members.into_iter()))
    }
}

impl Dealt {
    fn write(all: &[Option<Self>], out: &mut Vec<u8>) {
        write_bits(&Bits::new(all.iter().map(Option::is_some).collect()), out);
        for dealt in all.iter().flatten() {
            out.extend_from_slice(&dealt.commitment);
            dealt.sealed.iter().for_each(|sealed| out.extend_from_slice(sealed));
        }
    }

    fn read(round: &Round, reader: &mut Reader<'_>) -> Result<Vec<Option<Self>>, WireError> {
        let there = read_bits_of(round, reader)?;
        let mut one = || {
            let commitment = reader.array()?;
            let sealed = (0..round.parameters.degree()).map(|_| reader.array::<SEALED>());
            Ok(Self { commitment, sealed: sealed.collect::<Result<_, _>>()? })
        };
        there.iter().map(|there| there.then(&mut one).transpose()).collect()
    }
}

impl CollectShares {
    /// Its bytes.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        State::Shares.save(|out| {
            self.round.write(out);
            Dealt::write(&self.dealt, out);
        })
    }

    /// From bytes that were saved.
    ///
    /// # Errors
    /// When they are not such a state's.
    pub fn restore(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = State::Shares.open(bytes)?;
        let round = Round::read(&mut reader)?;
        let dealt = Dealt::read(&round, &mut reader)?;
        reader.end()?;
        Ok(Self { round, dealt })
    }
}

impl Accumulator {
    /// Its bytes.
    ///
    /// # Errors
    /// When it is spoiled.
    pub fn save(&self) -> Result<Vec<u8>, Refusal> {
        self.check()?;
        Ok(State::Accumulator.save(|out| self.write(out)))
    }

    /// From bytes that were saved.
    ///
    /// # Errors
    /// When they are not such a state's.
    pub fn restore(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = State::Accumulator.open(bytes)?;
        let sum = Self::read(&mut reader)?;
        reader.end()?;
        Ok(sum)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session().0);
        write_u32(self.shape().dimension(), out);
        out.extend_from_slice(&self.shape().bits().to_le_bytes());
        write_lanes(self.lanes(), out);
        write_u32(self.inputs.len(), out);
        for (position, complaints) in &self.inputs {
            out.extend_from_slice(&position.to_le_bytes());
            write_u32(complaints.len(), out);
            complaints.iter().for_each(|about| out.extend_from_slice(&about.to_le_bytes()));
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let session = SessionId(reader.array()?);
        let shape = Shape::new(reader.u32()? as usize, reader.u32()?);
        let shape = shape.map_err(|_| WireError::Value { what: "the shape of a saved sum" })?;
        let lanes = read_lanes(&shape, reader)?;
        let mut inputs = BTreeMap::new();
        for _ in 0..reader.count(8)? {
            let position = reader.u32()?;
            let about = reader.count(4)?;
            inputs.insert(position, (0..about).map(|_| reader.u32()).collect::<Result<_, _>>()?);
        }
        Ok(Self::restored(session, shape, lanes, inputs))
    }
}

impl CollectMasked {
    /// Its bytes. Inputs that were let in and not merged are not in them: they have to be uploaded or added again.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        State::Masked.save(|out| {
            self.round.write(out);
            Dealt::write(&self.dealt, out);
            self.sum.write(out);
        })
    }

    /// From bytes that were saved.
    ///
    /// # Errors
    /// When they are not such a state's.
    pub fn restore(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = State::Masked.open(bytes)?;
        let round = Round::read(&mut reader)?;
        let dealt = Dealt::read(&round, &mut reader)?;
        let sum = Accumulator::read(&mut reader)?;
        reader.end()?;
        let wrong = || WireError::Value { what: "a saved sum of another round" };
        let shared = |at: u32| dealt.get(at as usize).is_some_and(Option::is_some);
        if !sum.positions().all(shared) || !sum.inputs.values().flatten().all(|about| shared(*about)) {
            return Err(wrong());
        }
        Self::new(round, dealt).with_sum(sum).map_err(|_| wrong())
    }
}

impl CollectAgreement {
    /// Its bytes.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        State::Agreement.save(|out| {
            let Summed { round, commitments, fates, lanes, .. } = &self.summed;
            round.write(out);
            write_bits(&Bits::new(commitments.iter().map(Option::is_some).collect()), out);
            commitments.iter().flatten().for_each(|c| out.extend_from_slice(c));
            write_bits(&fates.view(round).alive, out);
            write_u32(fates.complaints().len(), out);
            for number in fates.complaints().iter().flat_map(|(who, whose)| [who, whose]) {
                out.extend_from_slice(&number.to_le_bytes());
            }
            write_lanes(lanes, out);
            write_u32(self.signatures.len(), out);
            for (slot, signature) in &self.signatures {
                write_u32(*slot, out);
                out.extend_from_slice(signature);
            }
        })
    }

    /// From bytes that were saved.
    ///
    /// # Errors
    /// When they are not such a state's.
    pub fn restore(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = State::Agreement.open(bytes)?;
        let round = Round::read(&mut reader)?;
        let present = read_bits_of(&round, &mut reader)?;
        let one = |there: bool| there.then(|| reader.array()).transpose();
        let commitments: Vec<Option<[u8; 32]>> = present.iter().map(one).collect::<Result<_, _>>()?;
        let alive = read_bits_of(&round, &mut reader)?;
        let count = reader.count(8)?;
        let complaints: Complaints =
            (0..count).map(|_| Ok((reader.u32()?, reader.u32()?))).collect::<Result<_, WireError>>()?;
        let shared = |at: u32| present.get(at as usize);
        if !complaints.iter().all(|(who, whose)| shared(*who) && shared(*whose)) {
            return Err(WireError::Value { what: "a complaint of nobody" });
        }
        let fates = Fates::new(present.iter(), |at| alive.get(at as usize), complaints);
        let shape = round.terms().shape().map_err(|_| WireError::Value { what: "the shape of a saved sum" })?;
        let lanes = read_lanes(&shape, &mut reader)?.into();
        let mut agreement = Self::new(Summed { round, shape, commitments, fates, lanes });
        for _ in 0..reader.count(4 + 64)? {
            let slot = reader.u32()? as usize;
            agreement.signatures.insert(slot, reader.array()?);
        }
        reader.end()?;
        let members = agreement.summed.round.committee.len();
        if agreement.signatures.keys().any(|slot| *slot >= members) {
            return Err(WireError::Value { what: "a signature of nobody" });
        }
        Ok(agreement)
    }
}

/// One bit for each client.
fn read_bits_of(round: &Round, reader: &mut Reader<'_>) -> Result<Bits, WireError> {
    let bits = read_bits(reader)?;
    let other = WireError::Value { what: "a saved state of another number of clients" };
    if bits.len() == round.at.len() { Ok(bits) } else { Err(other) }
}

fn write_u32(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

fn write_long(bytes: &[u8], out: &mut Vec<u8>) {
    write_u32(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn write_lanes(lanes: &[u32], out: &mut Vec<u8>) {
    out.reserve(4 * lanes.len());
    lanes.iter().for_each(|lane| out.extend_from_slice(&lane.to_le_bytes()));
}

fn read_lanes(shape: &Shape, reader: &mut Reader<'_>) -> Result<Vec<u32>, WireError> {
    let bytes = reader.bytes(4 * shape.padded())?;
    Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}
