//! The messages of a round, and their bytes.
//!
//! | message            | from    | says                                                             |
//! |--------------------|---------|------------------------------------------------------------------|
//! | [`AdvertiseKeys`]  | client  | my keys of this round                                            |
//! | [`Neighbourhood`]  | server  | the closed directory, your position, your neighbours with proofs |
//! | [`ShareKeys`]      | client  | a commitment to my own mask; two shares for each neighbour, sealed |
//! | [`Delivery`]       | server  | which neighbours shared, and what they sealed for you            |
//! | [`MaskedInput`]    | client  | whose shares were no good; my vector, masked                     |
//! | [`View`]           | server  | who shared, and whose vectors arrived, of everybody (*)          |
//! | [`Agreement`]      | client  | for each neighbour: that I was shown this view (*)               |
//! | [`UnmaskRequest`]  | server  | which neighbours' vectors arrived; that they were shown it too (*) |
//! | [`UnmaskResponse`] | client  | one share of each: of the own mask if it did, of the mask key if not |
//!
//! (*) against a semi-malicious server only.
//!
//! Each begins with the protocol's version and its own number; from [`ShareKeys`] on the session follows. Lists of neighbours
//! are in the order of their positions, which both sides know: nobody can be named twice, and nobody who is not one.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{
    ClientId,
    directory::Member,
    keys::{PublicKeys, SEAL_OVERHEAD},
    masks::Shape,
    parameters::{Adversary, MOST_CLIENTS, Parameters},
    session::{Coin, OfferHash, SessionId, VERSION},
    shamir::Share,
    wire::{Bits, Reader, WireError},
};

/// Two sealed shares.
pub(crate) const SEALED: usize = SEAL_OVERHEAD + 2 * Share::SIZE;

/// Which message bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// [`AdvertiseKeys`].
    AdvertiseKeys = 1,
    /// [`Neighbourhood`].
    Neighbourhood = 2,
    /// [`ShareKeys`].
    ShareKeys = 3,
    /// [`Delivery`].
    Delivery = 4,
    /// [`MaskedInput`].
    MaskedInput = 5,
    /// [`View`].
    View = 6,
    /// [`Agreement`].
    Agreement = 7,
    /// [`UnmaskRequest`].
    UnmaskRequest = 8,
    /// [`UnmaskResponse`].
    UnmaskResponse = 9,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::AdvertiseKeys => "AdvertiseKeys",
            Self::Neighbourhood => "Neighbourhood",
            Self::ShareKeys => "ShareKeys",
            Self::Delivery => "Delivery",
            Self::MaskedInput => "MaskedInput",
            Self::View => "View",
            Self::Agreement => "Agreement",
            Self::UnmaskRequest => "UnmaskRequest",
            Self::UnmaskResponse => "UnmaskResponse",
        }
    }

    fn begin(self, session: Option<&SessionId>) -> Vec<u8> {
        let mut out = vec![VERSION, self as u8];
        out.extend(session.iter().flat_map(|s| s.0));
        out
    }

    fn open(self, bytes: &[u8]) -> Result<Reader<'_>, WireError> {
        let mut reader = Reader::new(bytes);
        match (reader.u8()?, reader.u8()?) {
            (VERSION, kind) if kind == self as u8 => Ok(reader),
            (VERSION, got) => Err(WireError::Kind { expected: self.name(), got }),
            (got, _) => Err(WireError::Version { got, ours: VERSION }),
        }
    }
}

/// Bytes of a client's messages in a round, evidence left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// From the client.
    pub up: usize,
    /// To the client, the offer left out.
    pub down: usize,
}

impl Traffic {
    /// Of a round in which nobody vanishes.
    #[must_use]
    pub fn of(parameters: &Parameters, shape: &Shape, adversary: Adversary) -> Self {
        let (clients, degree) = (parameters.clients() as usize, parameters.degree() as usize);
        let (begin, bits) = (2 + 32, |count: usize| 4 + count.div_ceil(8));
        let keys = 2 + 32 + 64 + 1;
        let shares = begin + 32 + 4 + degree * SEALED;
        let input = begin + bits(degree) + shape.packed_len();
        let opened = begin + 4 + degree * (1 + Share::SIZE);
        // A proof has at most as many levels as it takes to tell the clients apart.
        let proof = 2 + 32 * clients.next_power_of_two().ilog2() as usize;
        let neighbourhood = 2 + 12 + 64 + 4 + proof + 4 + degree * (8 + 64 + 1 + proof);
        let delivery = begin + bits(degree) + degree * SEALED;
        let vouchers = bits(degree) + degree * size_of::<Voucher>();
        let (agreement, view, vouched) = match adversary {
            Adversary::Curious => (0, 0, bits(0)),
            Adversary::SemiMalicious => (begin + vouchers, begin + 2 * bits(clients), vouchers),
        };
        let request = begin + bits(degree) + vouched;
        let up = keys + shares + input + agreement + opened;
        Self { up, down: neighbourhood + delivery + view + request }
    }
}

/// A client's keys, for an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertiseKeys {
    /// Of what the client was offered.
    pub offer: OfferHash,
    /// Its keys.
    pub keys: PublicKeys,
    /// The evidence for them.
    pub evidence: Vec<u8>,
}

impl AdvertiseKeys {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::AdvertiseKeys.begin(None);
        out.extend_from_slice(&self.offer.0);
        write_keys(&self.keys, &mut out);
        write_evidence(&self.evidence, &mut out);
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::AdvertiseKeys.open(bytes)?;
        let offer = OfferHash(reader.array()?);
        let keys = read_keys(&mut reader)?;
        let evidence = reader.short_bytes()?.to_vec();
        reader.end()?;
        Ok(Self { offer, keys, evidence })
    }
}

fn write_keys(keys: &PublicKeys, out: &mut Vec<u8>) {
    out.extend_from_slice(&keys.sealing);
    out.extend_from_slice(&keys.masking);
}

fn read_keys(reader: &mut Reader<'_>) -> Result<PublicKeys, WireError> {
    Ok(PublicKeys { sealing: reader.array()?, masking: reader.array()? })
}

/// Evidence is at most 255 bytes; what is longer is cut, and nobody will believe it.
fn write_evidence(evidence: &[u8], out: &mut Vec<u8>) {
    let evidence = &evidence[..evidence.len().min(crate::directory::MOST_EVIDENCE)];
    out.push(evidence.len() as u8);
    out.extend_from_slice(evidence);
}

/// A member of the directory, and the proof that it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Who, and its keys.
    pub member: Member,
    /// The path to the root.
    pub proof: Vec<u8>,
}

/// What a client is told of the closed directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbourhood {
    /// Who take part, and how they are connected.
    pub parameters: Parameters,
    /// The directory's root.
    pub root: [u8; 32],
    /// The server's coin.
    pub coin: Coin,
    /// Where the client is in the directory.
    pub position: u32,
    /// The proof that its own keys are there.
    pub own_proof: Vec<u8>,
    /// Its neighbours, in the order of their positions.
    pub neighbours: Vec<Listing>,
}

impl Neighbourhood {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::Neighbourhood.begin(None);
        let p = &self.parameters;
        [p.clients(), p.degree(), p.threshold()].iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        out.extend_from_slice(&self.root);
        out.extend_from_slice(&self.coin.0);
        out.extend_from_slice(&self.position.to_le_bytes());
        write_proof(&self.own_proof, &mut out);
        out.extend_from_slice(&(self.neighbours.len() as u32).to_le_bytes());
        for Listing { member, proof } in &self.neighbours {
            out.extend_from_slice(&member.client.0.to_le_bytes());
            write_keys(&member.keys, &mut out);
            write_evidence(&member.evidence, &mut out);
            write_proof(proof, &mut out);
        }
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::Neighbourhood.open(bytes)?;
        let [clients, degree, threshold] = [reader.u32()?, reader.u32()?, reader.u32()?];
        let parameters = Parameters::from_parts(clients, degree, threshold)
            .map_err(|_| WireError::Value { what: "a graph of such numbers" })?;
        let (root, coin) = (reader.array()?, Coin(reader.array()?));
        let position = reader.u32()?;
        let own_proof = reader.medium_bytes()?.to_vec();
        let count = reader.count(8 + 64 + 1 + 2)?;
        let neighbours = (0..count).map(|_| read_listing(&mut reader)).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { parameters, root, coin, position, own_proof, neighbours })
    }
}

fn write_proof(proof: &[u8], out: &mut Vec<u8>) {
    // 32 bytes a level: a tree of 2^32 leaves has a proof of 1024.
    out.extend_from_slice(&(proof.len() as u16).to_le_bytes());
    out.extend_from_slice(proof);
}

fn read_listing(reader: &mut Reader<'_>) -> Result<Listing, WireError> {
    let client = ClientId(reader.u64()?);
    let keys = read_keys(reader)?;
    let evidence = reader.short_bytes()?.to_vec();
    let proof = reader.medium_bytes()?.to_vec();
    Ok(Listing { member: Member { client, keys, evidence }, proof })
}

/// A client's shares for its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareKeys {
    /// Which session.
    pub session: SessionId,
    /// To the seed of the client's own mask.
    pub commitment: [u8; 32],
    /// For each neighbour.
    pub sealed: Vec<[u8; SEALED]>,
}

impl ShareKeys {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::ShareKeys.begin(Some(&self.session));
        out.extend_from_slice(&self.commitment);
        out.extend_from_slice(&(self.sealed.len() as u32).to_le_bytes());
        self.sealed.iter().for_each(|s| out.extend_from_slice(s));
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::ShareKeys.open(bytes)?;
        let (session, commitment) = (SessionId(reader.array()?), reader.array()?);
        let count = reader.count(SEALED)?;
        let sealed = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { session, commitment, sealed })
    }
}

/// What neighbours sealed for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Which session.
    pub session: SessionId,
    /// For each neighbour: what it sealed, if it shared.
    pub sealed: Vec<Option<[u8; SEALED]>>,
}

impl Delivery {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::Delivery.begin(Some(&self.session));
        out.extend_from_slice(&(self.sealed.len() as u32).to_le_bytes());
        Bits::new(self.sealed.iter().map(Option::is_some).collect()).write(&mut out);
        self.sealed.iter().flatten().for_each(|s| out.extend_from_slice(s));
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::Delivery.open(bytes)?;
        let session = SessionId(reader.array()?);
        let present = read_bits(&mut reader)?;
        let one = |there| if there { reader.array().map(Some) } else { Ok(None) };
        let sealed = present.iter().map(one).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { session, sealed })
    }
}

/// How many bits, and those: no more than there are clients in any round, since each can stand for much more than a bit.
fn read_bits(reader: &mut Reader<'_>) -> Result<Bits, WireError> {
    let count = reader.u32()?;
    if count > MOST_CLIENTS {
        return Err(WireError::Value { what: "a neighbourhood of more than all clients" });
    }
    Bits::read(reader, count as usize)
}

fn write_bits(bits: &Bits, out: &mut Vec<u8>) {
    out.extend_from_slice(&(bits.len() as u32).to_le_bytes());
    bits.write(out);
}

/// A client's masked vector. The vector is not copied out of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedInput<'a> {
    /// Which session.
    pub session: SessionId,
    /// Neighbours who shared, and whose shares were no good.
    pub complaints: Bits,
    /// The vector, packed.
    pub packed: &'a [u8],
}

impl<'a> MaskedInput<'a> {
    /// Its bytes, up to the vector, which follows.
    pub(crate) fn begin(session: &SessionId, complaints: &Bits) -> Vec<u8> {
        let mut out = Kind::MaskedInput.begin(Some(session));
        write_bits(complaints, &mut out);
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Kind::MaskedInput.open(bytes)?;
        let session = SessionId(reader.array()?);
        let complaints = read_bits(&mut reader)?;
        Ok(Self { session, complaints, packed: reader.rest() })
    }
}

/// What became of everybody, as the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Which session.
    pub session: SessionId,
    /// Who shared, by position.
    pub present: Bits,
    /// Whose vectors arrived, by position.
    pub alive: Bits,
}

impl View {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::View.begin(Some(&self.session));
        write_bits(&self.present, &mut out);
        write_bits(&self.alive, &mut out);
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::View.open(bytes)?;
        let session = SessionId(reader.array()?);
        let (present, alive) = (read_bits(&mut reader)?, read_bits(&mut reader)?);
        reader.end()?;
        Ok(Self { session, present, alive })
    }

    /// What clients vouch for.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"keyhush secagg view v1");
        hash.update(self.encode());
        hash.finalize().into()
    }
}

/// That one neighbour was shown a view, for another to check.
pub type Voucher = [u8; 16];

/// That a client was shown a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Which session.
    pub session: SessionId,
    /// For each neighbour, if it is alive.
    pub vouchers: Vec<Option<Voucher>>,
}

impl Agreement {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::Agreement.begin(Some(&self.session));
        write_vouchers(&self.vouchers, &mut out);
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::Agreement.open(bytes)?;
        let session = SessionId(reader.array()?);
        let vouchers = read_vouchers(&mut reader)?;
        reader.end()?;
        Ok(Self { session, vouchers })
    }
}

fn write_vouchers(vouchers: &[Option<Voucher>], out: &mut Vec<u8>) {
    write_bits(&Bits::new(vouchers.iter().map(Option::is_some).collect()), out);
    vouchers.iter().flatten().for_each(|v| out.extend_from_slice(v));
}

fn read_vouchers(reader: &mut Reader<'_>) -> Result<Vec<Option<Voucher>>, WireError> {
    let there = read_bits(reader)?;
    there.iter().map(|there| if there { reader.array().map(Some) } else { Ok(None) }).collect()
}

/// Whose vectors arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmaskRequest {
    /// Which session.
    pub session: SessionId,
    /// Of the client's neighbours.
    pub alive: Bits,
    /// Of each neighbour, that it was shown what the client was shown; none are there where the server is taken at its word.
    pub vouchers: Vec<Option<Voucher>>,
}

impl UnmaskRequest {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::UnmaskRequest.begin(Some(&self.session));
        write_bits(&self.alive, &mut out);
        write_vouchers(&self.vouchers, &mut out);
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::UnmaskRequest.open(bytes)?;
        let session = SessionId(reader.array()?);
        let alive = read_bits(&mut reader)?;
        let vouchers = read_vouchers(&mut reader)?;
        reader.end()?;
        Ok(Self { session, alive, vouchers })
    }
}

/// What a client opens of one neighbour: never both.
#[derive(Clone, PartialEq, Eq)]
pub enum Opened {
    /// Nothing: the neighbour did not share, or its shares were no good.
    Nothing,
    /// A share of the seed of its own mask: its vector arrived.
    SelfSeed(Zeroizing<[u8; Share::SIZE]>),
    /// A share of its mask key: its vector did not.
    MaskKey(Zeroizing<[u8; Share::SIZE]>),
}

/// What a client opens of each neighbour.
#[derive(Clone, PartialEq, Eq)]
pub struct UnmaskResponse {
    /// Which session.
    pub session: SessionId,
    /// Of each neighbour.
    pub opened: Vec<Opened>,
}

impl std::fmt::Debug for UnmaskResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UnmaskResponse({} neighbours)", self.opened.len())
    }
}

impl UnmaskResponse {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::UnmaskResponse.begin(Some(&self.session));
        out.extend_from_slice(&(self.opened.len() as u32).to_le_bytes());
        for opened in &self.opened {
            let (tag, share): (u8, &[u8]) = match opened {
                Opened::Nothing => (0, &[]),
                Opened::SelfSeed(share) => (1, &**share),
                Opened::MaskKey(share) => (2, &**share),
            };
            out.push(tag);
            out.extend_from_slice(share);
        }
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::UnmaskResponse.open(bytes)?;
        let session = SessionId(reader.array()?);
        let count = reader.count(1)?;
        let one = |_| {
            Ok(match reader.u8()? {
                0 => Opened::Nothing,
                1 => Opened::SelfSeed(Zeroizing::new(reader.array()?)),
                2 => Opened::MaskKey(Zeroizing::new(reader.array()?)),
                _ => return Err(WireError::Value { what: "the kind of a share" }),
            })
        };
        let opened = (0..count).map(one).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { session, opened })
    }
}
