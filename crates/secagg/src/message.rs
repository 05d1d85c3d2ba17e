//! The messages of a round, and their encoding.
//!
//! | message            | from    | says                                                             |
//! |--------------------|---------|------------------------------------------------------------------|
//! | [`AdvertiseKeys`]  | client  | my keys of this round                                            |
//! | [`Neighbourhood`]  | server  | the closed directory, your position, your neighbours and the committee, proved |
//! | [`ShareKeys`]      | client  | a commitment to my own mask; two shares for each neighbour, sealed |
//! | [`Delivery`]       | server  | which neighbours shared, and what they sealed for you            |
//! | [`MaskedInput`]    | client  | whose shares were no good; my vector, masked                     |
//! | [`View`]           | server  | who shared, and whose vectors arrived, of everybody (*)          |
//! | [`Agreement`]      | client  | that I, of the committee, was shown this view: my signature (*)  |
//! | [`UnmaskRequest`]  | server  | whose vectors arrived; that a quorum was shown it (*)            |
//! | [`UnmaskResponse`] | client  | one share of each: of the own mask if it did, of the mask key if not |
//!
//! (*) against a semi-malicious server only.
//!
//! Each begins with the protocol's version, its suite and the message's number; then comes the offer's hash, and from
//! [`ShareKeys`] on the session.
//! Lists of neighbours, and of the committee, are in the order of their positions, which both sides know: nobody can be named
//! twice, and nobody who is not one.

use zeroize::Zeroizing;

use crate::{
    Pseudonym,
    directory::{Member, Name, Proof},
    keys::{PublicKeys, SEAL_OVERHEAD, Signature},
    masks::Shape,
    parameters::{MOST_CLIENTS, Parameters},
    session::{Coin, OfferHash, SessionId, digest},
    shamir::Share,
    wire::{Bits, Reader, SUITE, VERSION, WireError},
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
    const ALL: [Self; 9] = [
        Self::AdvertiseKeys,
        Self::Neighbourhood,
        Self::ShareKeys,
        Self::Delivery,
        Self::MaskedInput,
        Self::View,
        Self::Agreement,
        Self::UnmaskRequest,
        Self::UnmaskResponse,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
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
        let mut out = vec![VERSION, SUITE, self as u8];
        out.extend(session.iter().flat_map(|s| s.0));
        out
    }

    fn open(self, bytes: &[u8]) -> Result<Reader<'_>, WireError> {
        let mut reader = Reader::new(bytes);
        reader.protocol()?;
        match reader.u8()? {
            kind if kind == self as u8 => Ok(reader),
            got => Err(WireError::Kind { expected: self.name(), got }),
        }
    }
}

/// Which message bytes are, and what follows its number.
///
/// # Errors
/// When they are no message of this protocol.
pub(crate) fn kind(bytes: &[u8]) -> Result<(Kind, &[u8]), WireError> {
    let mut reader = Reader::new(bytes);
    reader.protocol()?;
    let number = reader.u8()?;
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
    Ok((kind.ok_or(WireError::Value { what: "the number of the message" })?, reader.rest()))
}

/// Version, suite, number and session.
const BEGIN: usize = 3 + 32;

/// Pseudonym and digest.
const NAME: usize = 16 + 32;

/// Pseudonym and keys.
const MEMBER: usize = 16 + 3 * 32;

/// Bytes of a client's messages in a round, evidence left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent by the client.
    pub up: usize,
    /// To the client, the offer left out: at most, since a committee that overlaps with the neighbours is not sent twice.
    pub down: usize,
}

impl Traffic {
    /// The traffic of a round without drop-outs, for a client in the committee.
    #[must_use]
    pub fn of(parameters: &Parameters, shape: &Shape) -> Self {
        let (clients, degree) = (parameters.clients() as usize, parameters.degree() as usize);
        let bits = |count: usize| 4 + count.div_ceil(8);
        let keys = 3 + 32 + MEMBER + 4;
        let shares = BEGIN + 32 + 4 + degree * SEALED;
        let input = masked_header(degree) + shape.packed_len();
        let opened = BEGIN + 4 + degree * (1 + Share::SIZE);
        let delivery = BEGIN + bits(degree) + degree * SEALED;
        let (size, quorum) = parameters.committee().map_or((0, 0), |c| (c.size as usize, c.quorum as usize));
        let listed = (degree + size).min(clients - 1);
        // All names where somebody signs, or else the hashes beside those who are shown.
        let proof = if size > 0 { NAME * clients } else { 32 * most_hashes(clients, listed + 1) };
        let neighbourhood = BEGIN + 5 * 4 + 2 * 32 + 4 + 4 + listed * (MEMBER + 4) + 1 + 4 + proof;
        let view = 2 * bits(clients);
        let (agreement, said) = match size {
            0 => ((0, 0), 1 + bits(degree)),
            _ => ((BEGIN + 64, BEGIN + view), 1 + view + bits(size) + quorum * size_of::<Signature>()),
        };
        let up = keys + shares + input + agreement.0 + opened;
        Self { up, down: neighbourhood + delivery + agreement.1 + BEGIN + said }
    }
}

/// The most hashes of a proof for so many of the leaves. On a level with w nodes, p of them on the path to a leaf that is
/// shown, there are at most p hashes beside paths and at most w - p; p is at most what is shown, and at least what is left of
/// it when all that can share a path do.
fn most_hashes(leaves: usize, shown: usize) -> usize {
    let (mut width, mut fewest, mut hashes) = (leaves, shown, 0);
    while width > 1 {
        hashes += shown.min(width / 2).min(width.saturating_sub(fewest));
        (width, fewest) = (width.div_ceil(2), fewest.div_ceil(2));
    }
    hashes
}

/// Bytes that the server keeps in a round, beside evidence: what its operator has to plan for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// The sum, however many have sent their vector.
    pub sum: usize,
    /// Sealed shares on their way, n k of them, from sharing until masked vectors are in.
    pub sealed: usize,
    /// Shares that were opened, n k again, from the first answer to the sum.
    pub opened: usize,
}

impl Holdings {
    /// The data that a server holds in such a round.
    #[must_use]
    pub fn of(parameters: &Parameters, shape: &Shape) -> Self {
        let shares = parameters.clients() as usize * parameters.degree() as usize;
        Self { sum: 4 * shape.padded(), sealed: SEALED * shares, opened: (Share::SIZE + 8) * shares }
    }
}

/// Bytes of a [`MaskedInput`] before its vector.
pub(crate) const fn masked_header(degree: usize) -> usize {
    BEGIN + 4 + degree.div_ceil(8)
}

/// A client's keys, for an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertiseKeys {
    /// Of what the client was offered.
    pub offer: OfferHash,
    /// What it is called, its keys, and the evidence for them.
    pub member: Member,
}

impl AdvertiseKeys {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::AdvertiseKeys.begin(None);
        out.extend_from_slice(&self.offer.0);
        write_member(&self.member, &mut out);
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::AdvertiseKeys.open(bytes)?;
        let offer = OfferHash(reader.array()?);
        let member = read_member(&mut reader)?;
        reader.end()?;
        Ok(Self { offer, member })
    }
}

pub(crate) fn write_member(Member { pseudonym, keys, evidence }: &Member, out: &mut Vec<u8>) {
    out.extend_from_slice(&pseudonym.0);
    keys.all().iter().for_each(|key| out.extend_from_slice(key));
    out.extend_from_slice(&(evidence.len() as u32).to_le_bytes());
    out.extend_from_slice(evidence);
}

pub(crate) fn read_member(reader: &mut Reader<'_>) -> Result<Member, WireError> {
    let pseudonym = Pseudonym(reader.array()?);
    let keys = PublicKeys { sealing: reader.array()?, masking: reader.array()?, signing: reader.array()? };
    Ok(Member { pseudonym, keys, evidence: reader.long_bytes()?.to_vec() })
}

/// A client's part of the closed directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbourhood {
    /// Of what the client was offered.
    pub offer: OfferHash,
    /// Who take part, and how they are connected.
    pub parameters: Parameters,
    /// The directory's root.
    pub root: [u8; 32],
    /// The server's coin.
    pub coin: Coin,
    /// Where the client is in the directory.
    pub position: u32,
    /// Its neighbours and the committee, each once and itself left out, in the order of their positions.
    pub members: Vec<Member>,
    /// The proof that they are there, and itself.
    pub proof: Proof,
}

impl Neighbourhood {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::Neighbourhood.begin(None);
        out.extend_from_slice(&self.offer.0);
        self.parameters.to_parts().iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        out.extend_from_slice(&self.root);
        out.extend_from_slice(&self.coin.0);
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&(self.members.len() as u32).to_le_bytes());
        self.members.iter().for_each(|member| write_member(member, &mut out));
        write_proof(&self.proof, &mut out);
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::Neighbourhood.open(bytes)?;
        let offer = OfferHash(reader.array()?);
        let parts = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let parameters =
            Parameters::try_from(parts).map_err(|_| WireError::Value { what: "a graph of such numbers" })?;
        let (root, coin) = (reader.array()?, Coin(reader.array()?));
        let position = reader.u32()?;
        let count = reader.count(MEMBER + 4)?;
        let members = (0..count).map(|_| read_member(&mut reader)).collect::<Result<_, _>>()?;
        let proof = read_proof(&mut reader)?;
        reader.end()?;
        Ok(Self { offer, parameters, root, coin, position, members, proof })
    }
}

fn write_proof(proof: &Proof, out: &mut Vec<u8>) {
    match proof {
        Proof::Beside(hashes) => {
            out.push(0);
            out.extend_from_slice(&(hashes.len() as u32).to_le_bytes());
            hashes.iter().for_each(|hash| out.extend_from_slice(hash));
        }
        Proof::Whole(names) => {
            out.push(1);
            out.extend_from_slice(&(names.len() as u32).to_le_bytes());
            names.iter().for_each(|Name { pseudonym, rest }| out.extend([&pseudonym.0[..], rest].concat()));
        }
    }
}

fn read_proof(reader: &mut Reader<'_>) -> Result<Proof, WireError> {
    match reader.u8()? {
        0 => {
            let count = reader.count(32)?;
            Ok(Proof::Beside((0..count).map(|_| reader.array()).collect::<Result<_, _>>()?))
        }
        1 => {
            let count = reader.count(NAME)?;
            let name = |_| Ok(Name { pseudonym: Pseudonym(reader.array()?), rest: reader.array()? });
            Ok(Proof::Whole((0..count).map(name).collect::<Result<_, WireError>>()?))
        }
        _ => Err(WireError::Value { what: "the kind of a proof" }),
    }
}

/// A client's shares for its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareKeys {
    /// The session this message belongs to.
    pub session: SessionId,
    /// To the seed of the client's own mask.
    pub commitment: [u8; 32],
    /// The sealed shares, one for each neighbour.
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

    /// Decodes a message.
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

/// The shares that neighbours sealed for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The session this message belongs to.
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

    /// Decodes a message.
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
pub(crate) fn read_bits(reader: &mut Reader<'_>) -> Result<Bits, WireError> {
    let count = reader.u32()?;
    if count > MOST_CLIENTS {
        return Err(WireError::Value { what: "a neighbourhood of more than all clients" });
    }
    Bits::read(reader, count as usize)
}

pub(crate) fn write_bits(bits: &Bits, out: &mut Vec<u8>) {
    out.extend_from_slice(&(bits.len() as u32).to_le_bytes());
    bits.write(out);
}

/// A client's masked vector. The vector is not copied out of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedInput<'a> {
    /// The session this message belongs to.
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

    /// Decodes a message.
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

/// The server's claim of who shared and whose inputs arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The session this message belongs to.
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
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_bits(&self.present, out);
        write_bits(&self.alive, out);
    }

    fn read(session: SessionId, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { session, present: read_bits(reader)?, alive: read_bits(reader)? })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::View.open(bytes)?;
        let session = SessionId(reader.array()?);
        let view = Self::read(session, &mut reader)?;
        reader.end()?;
        Ok(view)
    }

    /// The digest that the committee signs: session, who shared and whose vectors arrived.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        digest(b"keyhush secagg view v2", &[&self.encode()])
    }
}

/// A committee member's signature of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// The session this message belongs to.
    pub session: SessionId,
    /// The signature of the view's digest.
    pub signature: Signature,
}

impl Agreement {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::Agreement.begin(Some(&self.session));
        out.extend_from_slice(&self.signature);
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::Agreement.open(bytes)?;
        let (session, signature) = (SessionId(reader.array()?), reader.array()?);
        reader.end()?;
        Ok(Self { session, signature })
    }
}

/// Asks for shares: says whose vectors arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmaskRequest {
    /// The session this message belongs to.
    pub session: SessionId,
    /// Who is in the sum, and how the client knows.
    pub survivors: Survivors,
}

/// The survivors, and how a client knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Survivors {
    /// These of its neighbours, as the server says.
    Said(Bits),
    /// Those of a view that a quorum was shown.
    Agreed {
        /// The view.
        view: View,
        /// Of each of the committee, if it signed.
        signatures: Vec<Option<Signature>>,
    },
}

impl UnmaskRequest {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Kind::UnmaskRequest.begin(Some(&self.session));
        match &self.survivors {
            Survivors::Said(alive) => {
                out.push(0);
                write_bits(alive, &mut out);
            }
            Survivors::Agreed { view, signatures } => {
                out.push(1);
                view.write(&mut out);
                write_bits(&Bits::new(signatures.iter().map(Option::is_some).collect()), &mut out);
                signatures.iter().flatten().for_each(|s| out.extend_from_slice(s));
            }
        }
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When they are not such a message's.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Kind::UnmaskRequest.open(bytes)?;
        let session = SessionId(reader.array()?);
        let survivors = match reader.u8()? {
            0 => Survivors::Said(read_bits(&mut reader)?),
            1 => {
                let view = View::read(session, &mut reader)?;
                let there = read_bits(&mut reader)?;
                let one = |there| if there { reader.array().map(Some) } else { Ok(None) };
                Survivors::Agreed { view, signatures: there.iter().map(one).collect::<Result<_, _>>()? }
            }
            _ => return Err(WireError::Value { what: "how survivors are known" }),
        };
        reader.end()?;
        Ok(Self { session, survivors })
    }
}

/// The share a client opens of one neighbour: never both.
#[derive(Clone, PartialEq, Eq)]
pub enum Opened {
    /// Nothing: the neighbour did not share, or its shares were no good.
    Nothing,
    /// A share of the seed of its own mask: its vector arrived.
    SelfSeed(Zeroizing<[u8; Share::SIZE]>),
    /// A share of its mask key: its vector did not.
    MaskKey(Zeroizing<[u8; Share::SIZE]>),
}

/// The shares a client opens, one of each neighbour.
#[derive(Clone, PartialEq, Eq)]
pub struct UnmaskResponse {
    /// The session this message belongs to.
    pub session: SessionId,
    /// One share for each neighbour.
    pub opened: Vec<Opened>,
}

impl std::fmt::Debug for UnmaskResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UnmaskResponse({} neighbours)", self.opened.len())
    }
}

impl UnmaskResponse {
    /// Its bytes, which are wiped when they have been sent.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Kind::UnmaskResponse.begin(Some(&self.session)));
        // No room is left behind with shares in it when the bytes grow.
        out.reserve_exact(4 + self.opened.len() * (1 + Share::SIZE));
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

    /// Decodes a message.
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
