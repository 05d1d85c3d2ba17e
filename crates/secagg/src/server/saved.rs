//! The server's states as bytes, so that a round survives its process.
//!
//! What is saved is what the server may keep: the offer, its coin, keys of clients, shares that it cannot open, masked sums.
//! The coin is to be kept from clients until the directory closes. The last state, with secrets that clients opened, has no
//! bytes. Bytes end with a digest: what was cut or changed on its way is refused; sign them against deliberate changes.
//!
//! **One state of a round is kept, the last one.** A server that has asked clients to unmask and then continues from an older
//! state can hold late inputs of clients that it called dead before: it then has shares of both secrets of one client, where
//! nobody signs (curious), or loses the round. So each state replaces the one before it, durably, before the next message goes
//! out; and once anybody was asked to unmask, nothing is restored: a server that falls over then has lost its round.

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
    session::{Coin, Offer, SessionId},
    wire::{Bits, Reader, SUITE, VERSION, WireError},
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

    /// Restores a saved state.
    ///
    /// # Errors
    /// When they are not such a state's.
    pub fn restore(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = State::Keys.open(bytes)?;
        let mut keys = Self::new(read_offer(&mut reader)?, Coin(reader.array()?));
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
        let (offer, coin) = (read_offer(reader)?, Coin(reader.array()?));
        let parts = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let no_graph = |_| WireError::Value { what: "a graph of such numbers" };
        let parameters = Parameters::try_from(parts).map_err(no_graph)?;
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

    /// Restores a saved state.
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

    /// Restores a saved state.
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

    /// Restores a saved state.
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

    /// Restores a saved state.
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

fn read_offer(reader: &mut Reader<'_>) -> Result<Offer, WireError> {
    let offer = Offer::decode(reader.long_bytes()?)?;
    offer.terms.check().map_err(|_| WireError::Value { what: "terms of a saved round" })?;
    Ok(offer)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pseudonym, PublicKeys,
        directory::Member,
        entropy::SimulatedEntropy,
        parameters::{Adversary, Assumptions, Committee},
        session::{Inputs, Terms},
    };

    fn terms() -> Terms {
        Terms {
            task: [1; 32],
            model: [2; 32],
            round: 3,
            assumptions: Assumptions::new(0.1, 0.1, Adversary::SemiMalicious),
            most_clients: 4,
            least_survivors: 2,
            dimension: 5,
            bits: 8,
            inputs: Inputs::Bounded { largest: 3 },
            most_evidence: 0,
        }
    }

    /// Four clients, of whom the last did not share; the first has sent its input.
    fn collecting(complains_about: Vec<u32>, has_sent: u32) -> CollectMasked {
        let keys = CollectKeys::open(terms(), &mut SimulatedEntropy::from_seed(1)).unwrap();
        let member = |at: u8| {
            let keys = PublicKeys { sealing: [at; 32], masking: [at + 10; 32], signing: [at + 20; 32] };
            (ClientId(at.into()), Member { pseudonym: Pseudonym([at; 16]), keys, evidence: Vec::new() })
        };
        let parameters = Parameters::from_parts(4, 3, 2, Some(Committee { size: 4, quorum: 3 })).unwrap();
        let round = Round::new(keys.offer, keys.coin, parameters, (0..4).map(member));
        let dealt = |at: u32| (at < 3).then(|| Dealt { commitment: [7; 32], sealed: vec![[8; SEALED]; 3] });
        let shape = terms().shape().unwrap();
        let inputs = BTreeMap::from([(has_sent, complains_about)]);
        let sum = Accumulator::restored(round.session, shape, vec![0; shape.padded()], inputs);
        let mut masked = CollectMasked::new(round, (0..4).map(dealt).collect());
        masked.sum = sum;
        masked
    }

    fn refused<T>(restored: Result<T, WireError>) -> &'static str {
        match restored.err() {
            Some(WireError::Value { what }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_did_not_share_has_sent_nothing_and_is_not_complained_about() {
        let restored = |about, sent| CollectMasked::restore(&collecting(about, sent).save());
        assert_eq!(restored(vec![1, 2], 0).unwrap().arrived(), 1);
        for (about, sent) in [(vec![], 3), (vec![], 4), (vec![], u32::MAX), (vec![3], 0), (vec![1, 9], 0)] {
            assert_eq!(refused(restored(about, sent)), "a saved sum of another round");
        }
    }

    #[test]
    fn nobody_who_is_not_there_signs_or_complains() {
        let agreement = |who: u32, slot: usize| {
            let CollectMasked { round, dealt, .. } = collecting(vec![], 0);
            let fates = Fates::new(dealt.iter().map(Option::is_some), |at| at < 3, Complaints::from([(who, 1)]));
            let commitments = dealt.into_iter().map(|d| d.map(|d| d.commitment)).collect();
            let shape = terms().shape().unwrap();
            let lanes = vec![0; shape.padded()].into();
            let mut agreement = CollectAgreement::new(Summed { round, shape, commitments, fates, lanes });
            agreement.signatures.insert(slot, [0; 64]);
            CollectAgreement::restore(&agreement.save())
        };
        assert_eq!(agreement(0, 3).unwrap().arrived(), 1);
        assert_eq!(refused(agreement(3, 0)), "a complaint of nobody");
        assert_eq!(refused(agreement(7, 0)), "a complaint of nobody");
        assert_eq!(refused(agreement(0, 4)), "a signature of nobody");
    }

    #[test]
    fn terms_that_nobody_could_offer_are_not_restored() {
        let mut masked = collecting(vec![], 0);
        masked.round.offer.terms.bits = 0;
        assert_eq!(refused(CollectMasked::restore(&masked.save())), "terms of a saved round");
        let mut keys = CollectKeys::open(terms(), &mut SimulatedEntropy::from_seed(1)).unwrap();
        keys.offer.terms.dimension = 0;
        assert_eq!(refused(CollectKeys::restore(&keys.save())), "terms of a saved round");
    }
}
