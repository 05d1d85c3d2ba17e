//! Opens what neighbours sealed, and masks the input: `y = x + PRG(b_i) + sum_(j > i) PRG(s_ij) - sum_(j < i) PRG(s_ij)` mod 2^b (Bonawitz
//! et al. 2017, section 4; Bell et al. 2020, Algorithm 2).

use zeroize::{Zeroize, Zeroizing};

use super::{AwaitDelivery, AwaitUnmask, ClientError, agree::Agreement};
use crate::{
    keys::Agreed,
    masks::{self, MaskKey, Shape, Sign},
    message::{Delivery, MaskedInput, SEALED},
    parameters::Adversary,
    session::{SessionId, Terms},
    shamir::Share,
    wire::Bits,
};

/// Elements that are masked at a time: what is in the clear and half masked stays small.
const CHUNK: usize = 128 * masks::BLOCK;

/// What a client holds for a neighbour.
#[derive(Debug)]
pub(super) enum Held {
    /// Nothing: the neighbour did not share.
    Absent,
    /// Nothing: what it sealed does not open, or is not two shares.
    Useless,
    /// A share of each of its secrets.
    Shares { mask_key: Share, self_seed: Share },
}

/// A client that waits for its input: it holds shares of its neighbours, and the keys of its masks.
pub struct Ready {
    terms: Terms,
    session: SessionId,
    threshold: usize,
    held: Vec<Held>,
    streams: Vec<(MaskKey, Sign)>,
    agreement: Option<Agreement>,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ready({} masks)", self.streams.len())
    }
}

impl AwaitDelivery {
    /// Opens what was sealed for this client. What does not open is complained about, and no reason to leave: the mask that
    /// two neighbours share does not depend on it.
    ///
    /// # Errors
    /// When so few neighbours are left that the sum could be of too few, or the message is not of this neighbourhood.
    pub fn deliver(self, message: &Delivery) -> Result<Ready, ClientError> {
        if message.session != self.session {
            return Err(ClientError::OtherSession);
        }
        if message.sealed.len() != self.neighbours.len() {
            return Err(ClientError::Count { expected: self.neighbours.len(), got: message.sealed.len() });
        }
        let present = message.sealed.iter().flatten().count();
        if present < self.threshold {
            return Err(ClientError::TooFew { got: present, needed: self.threshold });
        }
        let mut streams = vec![(self.self_seed.mask(&self.session, self.position), Sign::Plus)];
        let mut held = Vec::with_capacity(self.neighbours.len());
        for (slot, (neighbour, sealed)) in self.neighbours.iter().zip(&message.sealed).enumerate() {
            let Some(sealed) = sealed else {
                held.push(Held::Absent);
                continue;
            };
            held.push(open(&neighbour.sealing, &self.session, neighbour.position, self.position, sealed));
            let agreed = self.mask_key.agree(&neighbour.masking).map_err(|_| ClientError::Key { slot })?;
            let sign = if neighbour.position > self.position { Sign::Plus } else { Sign::Minus };
            streams.push((agreed.pair_mask(&self.session, self.position, neighbour.position), sign));
        }
        let Self { terms, session, drawn, position, threshold, committee, signing_key, .. } = self;
        let agreement = (terms.assumptions.adversary == Adversary::SemiMalicious).then(|| Agreement {
            drawn,
            position,
            least_survivors: terms.least_survivors as usize,
            committee,
            signing_key,
            signed: None,
        });
        Ok(Ready { terms, session, threshold, held, streams, agreement })
    }
}

fn open(sealing: &Agreed, session: &SessionId, from: u32, to: u32, sealed: &[u8; SEALED]) -> Held {
    let shares = sealing.open(session, from, to, sealed).and_then(|plain| {
        let (key, seed) = plain.split_at_checked(Share::SIZE)?;
        Some((Share::from_bytes(key).ok()?, Share::from_bytes(seed).ok()?))
    });
    shares.map_or(Held::Useless, |(mask_key, self_seed)| Held::Shares { mask_key, self_seed })
}

impl Ready {
    pub(super) const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Masks the input. The keys of the masks are gone afterwards.
    ///
    /// # Errors
    /// When the input does not fit the offer.
    pub fn mask(self, input: &[u32]) -> Result<(AwaitUnmask, Vec<u8>), ClientError> {
        let (expected, got) = (self.terms.dimension as usize, input.len());
        if got != expected {
            return Err(ClientError::Length { expected, got });
        }
        // Terms that were checked have a shape.
        let shape = self.terms.shape().map_err(|_| ClientError::Length { expected, got })?;
        let complaints = Bits::new(self.held.iter().map(|h| matches!(h, Held::Useless)).collect());
        let mut message = MaskedInput::begin(&self.session, &complaints);
        message.reserve_exact(shape.packed_len());
        mask_in_chunks(&shape, input, self.terms.largest_input(), &self.streams, &mut message)?;
        let Self { session, threshold, held, agreement, .. } = self;
        Ok((AwaitUnmask { session, threshold, held, agreement }, message))
    }
}

/// Appends the masked input, packed, if no coordinate is above the most.
fn mask_in_chunks(
    shape: &Shape,
    input: &[u32],
    most: u32,
    streams: &[(MaskKey, Sign)],
    message: &mut Vec<u8>,
) -> Result<(), ClientError> {
    let bits = shape.bits();
    let mut lanes = Zeroizing::new(vec![0; CHUNK.min(shape.padded())]);
    for start in (0..shape.padded()).step_by(CHUNK) {
        let lanes = &mut lanes[..CHUNK.min(shape.padded() - start)];
        let there = input.get(start..).unwrap_or_default();
        let there = &there[..there.len().min(lanes.len())];
        let got = masks::largest(there);
        if got > most {
            return Err(ClientError::Range { got, most });
        }
        lanes[..there.len()].copy_from_slice(there);
        lanes[there.len()..].zeroize();
        let first = (start / masks::BLOCK) as u64;
        masks::apply(lanes, first, bits, streams).expect("chunks are whole blocks");
        masks::pack(lanes, bits, message).expect("chunks are whole blocks");
    }
    Ok(())
}
