//! Decoders get arbitrary bytes. What they take has one encoding: the bytes that they took.

use keyhush_secagg::{
    entropy::SimulatedEntropy,
    masks::{BLOCK, add_packed, pack, reduce},
    message::{
        AdvertiseKeys, Agreement, Delivery, Kind, MaskedInput, Neighbourhood, ShareKeys, UnmaskRequest, UnmaskResponse,
        View,
    },
    parameters::{Adversary, Assumptions, Floor, Parameters},
    session::Offer,
    shamir::{Share, correct, deal, reconstruct},
    wire::{SUITE, VERSION},
};

/// An offer. Taken if its terms have a meaning as well.
pub(crate) fn offer(bytes: &[u8]) -> bool {
    let Ok(offer) = Offer::decode(bytes) else { return false };
    assert_eq!(offer.encode(), bytes);
    offer.terms.check().is_ok()
}

/// A target for a message: decoded, and encoded again.
macro_rules! messages {
    ($($name:ident: $message:ident,)*) => {$(
        pub(crate) fn $name(bytes: &[u8]) -> bool {
            $message::decode(bytes).inspect(|message| assert_eq!(message.encode()[..], *bytes)).is_ok()
        }
    )*};
}

messages! {
    advertise_keys: AdvertiseKeys,
    neighbourhood: Neighbourhood,
    share_keys: ShareKeys,
    delivery: Delivery,
    view: View,
    agreement: Agreement,
    unmask_request: UnmaskRequest,
    unmask_response: UnmaskResponse,
}

/// A masked input, which the library writes in parts as it masks. Here all is written at once.
pub(crate) fn masked_input(bytes: &[u8]) -> bool {
    let Ok(MaskedInput { session, complaints, packed }) = MaskedInput::decode(bytes) else { return false };
    let mut encoded = vec![VERSION, SUITE, Kind::MaskedInput as u8];
    encoded.extend_from_slice(&session.0);
    encoded.extend_from_slice(&(complaints.len() as u32).to_le_bytes());
    let complaints: Vec<bool> = complaints.iter().collect();
    encoded.extend(complaints.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, bit| 2 * byte + u8::from(*bit))));
    encoded.extend_from_slice(packed);
    assert_eq!(encoded, bytes);
    true
}

/// Parameters that somebody proposes, and a floor: n, k, t, m, q; then the floor's clients, corrupted, drop-out, bits and
/// adversary. Where such a floor can be met, what is found meets it.
pub(crate) fn parameters(mut bytes: &[u8]) -> bool {
    let mut read = || -> Option<(Option<Parameters>, u32, Floor)> {
        let mut parts = [0; 5];
        for part in &mut parts {
            *part = number(&mut bytes)?;
        }
        let clients = number(&mut bytes)?;
        let (corrupted, dropout) = (fraction(&mut bytes)?, fraction(&mut bytes)?);
        let security_bits = number(&mut bytes)?;
        let [adversary] = take(&mut bytes)?;
        let adversary = if adversary == 0 { Adversary::Curious } else { Adversary::SemiMalicious };
        let floor = Floor { clients, survivors: 0, corrupted, dropout, security_bits, adversary };
        Some((Parameters::try_from(parts).ok(), parts[0], floor))
    };
    let Some((proposed, clients, floor)) = read() else { return false };
    let Floor { corrupted, dropout, security_bits, adversary, .. } = floor;
    let assumptions = Assumptions { corrupted, dropout, security_bits, failure_bits: 20, adversary };
    if let Ok(found) = Parameters::find(clients, &assumptions) {
        let floor = Floor { clients, ..floor };
        assert_eq!(found.check_floor(&floor), Ok(()));
    }
    proposed.is_some_and(|proposed| proposed.check_floor(&floor).is_ok())
}

/// b, the number of blocks and the lanes beyond those; then a packed vector. Taken if it has the right length. Then the
/// same bytes as lanes, which are packed and come back reduced.
pub(crate) fn packing(mut bytes: &[u8]) -> bool {
    let Some([bits, blocks, beyond]) = take(&mut bytes) else { return false };
    let bits = u32::from(bits);
    let mut lanes = vec![0; usize::from(blocks % 4) * BLOCK + usize::from(beyond)];
    let taken = add_packed(&mut lanes, bytes, bits).is_ok();
    let mut packed = Vec::new();
    if taken {
        assert!(pack(&lanes, bits, &mut packed).is_ok() && packed == bytes);
    } else {
        assert!(lanes.iter().all(|lane| *lane == 0), "no lane is changed");
    }
    packed.clear();
    lanes.iter_mut().zip(bytes.as_chunks().0).for_each(|(lane, word)| *lane = u32::from_le_bytes(*word));
    if pack(&lanes, bits, &mut packed).is_ok() {
        let mut sum = vec![0; lanes.len()];
        assert_eq!(add_packed(&mut sum, &packed, bits), Ok(()));
        assert!(reduce(&mut sum, bits).is_ok() && reduce(&mut lanes, bits).is_ok());
        assert_eq!(sum, lanes);
    }
    taken
}

/// A share.
pub(crate) fn share(bytes: &[u8]) -> bool {
    Share::from_bytes(bytes).inspect(|share| assert_eq!(share.to_bytes().as_slice(), bytes)).is_ok()
}

/// A threshold; then shares, each after the number of its holder, that nobody dealt. Taken if they give a secret: then
/// those that are not called wrong give it alone.
pub(crate) fn shares_any(mut bytes: &[u8]) -> bool {
    let Some([threshold]) = take(&mut bytes) else { return false };
    let threshold = usize::from(threshold);
    let mut shares = Vec::new();
    while let (Some(x), Some(share)) = (number(&mut bytes), take::<{ Share::SIZE }>(&mut bytes)) {
        shares.extend(Share::from_bytes(&share).ok().map(|share| (x, share)));
    }
    let all: Vec<(u32, &Share)> = shares.iter().map(|(x, share)| (*x, share)).collect();
    let trusted = reconstruct(&all, threshold);
    let Ok(decoded) = correct(&all, threshold) else { return false };
    assert!(2 * decoded.wrong.len() <= all.len() - threshold);
    if decoded.wrong.is_empty() {
        assert_eq!(trusted.as_ref(), Ok(&decoded.secret));
    }
    let right: Vec<(u32, &Share)> = all.into_iter().filter(|(x, _)| !decoded.wrong.contains(x)).collect();
    assert_eq!(reconstruct(&right, threshold), Ok(decoded.secret));
    true
}

/// A threshold and how many more hold shares of a secret; then changes to those: holder, limb, number. Taken if so few
/// are wrong that they must be found.
pub(crate) fn shares_dealt(mut bytes: &[u8]) -> bool {
    let Some([threshold, more]) = take(&mut bytes) else { return false };
    let threshold = usize::from(threshold % 16) + 1;
    let holders = threshold + usize::from(more % 32);
    let secret = std::array::from_fn(|i| i as u8 * 8);
    let dealt = deal(&secret, threshold, holders, &mut SimulatedEntropy::from_seed(1)).expect("a threshold in range");
    let mut shares = dealt.clone();
    while let (Some([holder, limb]), Some(number)) = (take(&mut bytes), take::<8>(&mut bytes)) {
        let share = &mut shares[usize::from(holder) % holders];
        let mut changed = share.to_bytes();
        let at = 8 * (usize::from(limb) % (Share::SIZE / 8));
        changed[at..at + 8].copy_from_slice(&number);
        *share = Share::from_bytes(&*changed).unwrap_or_else(|_| share.clone());
    }
    let numbered = (1..).zip(dealt.iter().zip(&shares));
    let is_wrong = |(_, (dealt, share)): &(u32, (&Share, &Share))| dealt.to_bytes() != share.to_bytes();
    let wrong: Vec<u32> = numbered.filter(is_wrong).map(|(x, _)| x).collect();
    let all: Vec<(u32, &Share)> = (1..).zip(&shares).collect();
    let decoded = correct(&all, threshold);
    if 2 * wrong.len() > holders - threshold {
        return false;
    }
    let decoded = decoded.expect("so few wrong shares are corrected");
    assert_eq!((*decoded.secret, decoded.wrong), (secret, wrong));
    true
}

/// Takes the first bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}

fn fraction(bytes: &mut &[u8]) -> Option<f64> {
    take(bytes).map(f64::from_le_bytes)
}
