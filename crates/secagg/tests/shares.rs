//! Wrong shares and garbage: the sum is right and the liar is named, or there is no sum. Never a wrong one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::story::{Devices, Says, advertise, honestly, mask, masked, plain_sum, share, terms, unmask};
use keyhush_secagg::{
    ClientId,
    entropy::SimulatedEntropy,
    message::{Opened, ShareKeys, UnmaskResponse},
    parameters::Adversary,
    server::{CollectKeys, Connect, Outcome, RoundFailure, Serial, WrongShare},
    session::Terms,
    shamir,
};

const CLIENTS: u32 = 10;
/// Everybody holds a share of everybody else: nine of each secret, of which four open it and two can be wrong.
const CONNECT: Connect = Connect::Insecure { degree: 9, threshold: 4 };
const CORRECTABLE: u64 = (9 - 4) / 2;

fn ten() -> Terms {
    terms(CLIENTS, Adversary::Curious)
}

/// A round in which clients say other things than they should.
fn round(shares: impl Says, inputs: impl Says, answers: impl Says) -> Result<Outcome, RoundFailure> {
    let mut server = CollectKeys::open(ten(), &mut SimulatedEntropy::from_seed(1)).unwrap();
    let mut devices = advertise(&mut server, 0..u64::from(CLIENTS), 1);
    let mut server = server.close(CONNECT).unwrap();
    share(&mut server, &mut devices, shares);
    let mut server = server.close()?;
    mask(&mut server, &mut devices, &ten(), inputs);
    let mut server = server.close()?.close()?;
    unmask(&mut server, &mut devices, answers);
    server.close(&Serial)
}

/// Another share of the field. (The three lowest bits of an X25519 key mean nothing, so it is not one of those.)
fn spoil(share: &mut [u8; 40]) {
    share[4] ^= 1;
}

/// Who lies changes every share that it opens.
fn lie(message: &[u8], wrong: impl Fn(usize, &mut [u8; 40])) -> Vec<u8> {
    let mut response = UnmaskResponse::decode(message).unwrap();
    for (slot, opened) in response.opened.iter_mut().enumerate() {
        match opened {
            Opened::SelfSeed(share) | Opened::MaskKey(share) => wrong(slot, share),
            Opened::Nothing => {}
        }
    }
    response.encode().to_vec()
}

fn liars_below(count: u64) -> impl Says {
    move |id: ClientId, message: Vec<u8>| {
        Some(if id.0 < count { lie(&message, |_, share| spoil(share)) } else { message })
    }
}

#[test]
fn as_many_liars_as_can_be_told_do_no_harm_and_are_named() {
    // Of a client that drops out it is the mask key that is opened.
    let nine_vanishes = |id: ClientId, message| (id.0 != 9).then_some(message);
    for liars in 1..=CORRECTABLE {
        for with_drop_out in [false, true] {
            let outcome = match with_drop_out {
                false => round(honestly, honestly, liars_below(liars)),
                true => round(honestly, nine_vanishes, liars_below(liars)),
            };
            let outcome = outcome.unwrap();
            assert_eq!(*outcome.sum, plain_sum(&ten(), 0..10 - u64::from(with_drop_out)));
            for (holder, dealer) in (0..liars).flat_map(|h| (0..10).map(move |d| (h, d))).filter(|(h, d)| h != d) {
                let wrong = WrongShare { holder: ClientId(holder), dealer: ClientId(dealer) };
                assert!(outcome.wrong_shares.contains(&wrong), "{wrong:?}");
            }
            assert!(outcome.wrong_shares.iter().all(|wrong| wrong.holder.0 < liars), "nobody else is blamed");
        }
    }
}

#[test]
fn more_liars_than_can_be_told_leave_no_sum() {
    for liars in CORRECTABLE + 1..=10 {
        let failure = round(honestly, honestly, liars_below(liars)).unwrap_err();
        assert!(matches!(failure, RoundFailure::Dealt { .. }), "{liars} liars: {failure}");
    }
}

/// Shares that come after a threshold of right ones are not looked at: they can do no harm, whatever they are.
#[test]
fn a_lie_that_comes_late_changes_nothing() {
    let late = |id: ClientId, message: Vec<u8>| Some(if id.0 >= 6 { lie(&message, |_, s| spoil(s)) } else { message });
    let outcome = round(honestly, honestly, late).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&ten(), 0..10));
    assert!(outcome.wrong_shares.iter().all(|wrong| wrong.holder.0 >= 6));
}

/// Liars who agree on another secret of client 9's, with shares that fit together: the commitment tells.
#[test]
fn liars_who_agree_do_not_get_a_secret_of_theirs_taken() {
    let theirs = shamir::deal(&[42; 32], 4, 9, &mut SimulatedEntropy::from_seed(2)).unwrap();
    for liars in 4..=9 {
        let failure = round(honestly, honestly, |id: ClientId, message: Vec<u8>| {
            let agreed = |slot: usize, share: &mut [u8; 40]| {
                if slot == 8 {
                    *share = *theirs[id.0 as usize].to_bytes();
                }
            };
            Some(if id.0 < liars { lie(&message, agreed) } else { message })
        });
        assert_eq!(failure, Err(RoundFailure::Dealt { client: ClientId(9) }), "{liars} liars");
    }
}

/// Who commits to another seed than it deals is named, and there is no sum: its mask could not be known.
#[test]
fn a_commitment_to_another_seed_leaves_no_sum() {
    let other = |id: ClientId, message: Vec<u8>| {
        let mut shares = ShareKeys::decode(&message).unwrap();
        shares.commitment[0] ^= u8::from(id.0 == 3);
        Some(shares.encode())
    };
    assert_eq!(round(other, honestly, honestly), Err(RoundFailure::Dealt { client: ClientId(3) }));
    // If it drops out, its seed is not needed, and its key is checked against the directory.
    let three_vanishes = |id: ClientId, message| (id.0 != 3).then_some(message);
    let outcome = round(other, three_vanishes, honestly).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&ten(), (0..10).filter(|id| *id != 3)));
}

/// What client 3 seals for so many of its neighbours is garbage.
fn garbage_for(neighbours: usize) -> impl Says {
    move |id: ClientId, message: Vec<u8>| {
        let mut shares = ShareKeys::decode(&message).unwrap();
        if id.0 == 3 {
            shares.sealed[..neighbours].fill([0xaa; _]);
        }
        Some(shares.encode())
    }
}

#[test]
fn garbage_for_neighbours_is_complained_about_and_the_round_goes_on() {
    let three_vanishes = |id: ClientId, message| (id.0 != 3).then_some(message);
    for neighbours in 1..=5 {
        let outcome = round(garbage_for(neighbours), honestly, honestly).unwrap();
        assert_eq!(*outcome.sum, plain_sum(&ten(), 0..10));
        let who = (0..10).filter(|id| *id != 3).take(neighbours);
        let complaints: Vec<_> = who.map(|who| (ClientId(who), ClientId(3))).collect();
        assert_eq!(outcome.complaints, complaints);
        let outcome = round(garbage_for(neighbours), three_vanishes, honestly).unwrap();
        assert_eq!(*outcome.sum, plain_sum(&ten(), (0..10).filter(|id| *id != 3)));
    }
}

/// A client can make a round fail, and is named. It is noticed before any share is opened, and no sum comes of it.
#[test]
fn garbage_for_too_many_ends_the_round_before_shares_are_opened() {
    for neighbours in 6..=9 {
        let asked = |_, _| -> Option<Vec<u8>> { panic!("nobody is asked") };
        let failure = round(garbage_for(neighbours), honestly, asked).unwrap_err();
        assert_eq!(failure, RoundFailure::OutOfReach { client: ClientId(3), got: 9 - neighbours, needed: 4 });
    }
}

/// A vector that is not masked as its sender said, by as little as a bit of the padding, or not masked at all.
#[test]
fn what_was_masked_otherwise_leaves_no_sum() {
    for change in [
        (|packed: &mut [u8]| packed.fill(0)) as fn(&mut [u8]),
        |packed| packed.reverse(),
        |packed| packed[..].iter_mut().for_each(|b| *b = b.wrapping_mul(3)),
        // The last bit of the last column is of the last element.
        |packed| *packed.last_mut().unwrap() ^= 0x80,
    ] {
        let other = |id: ClientId, mut message: Vec<u8>| {
            if id.0 == 4 {
                let packed = message.len() - 20 * 128;
                change(&mut message[packed..]);
            }
            Some(message)
        };
        assert_eq!(round(honestly, other, honestly), Err(RoundFailure::NotCancelled));
    }
}

/// One client's answer, sent by another as its own: wrong shares, like any.
#[test]
fn a_stolen_answer_is_a_lie() {
    let mut first = None;
    let thief = |id: ClientId, message: Vec<u8>| match id.0 {
        0 => first.insert(message).clone().into(),
        1 => first.clone(),
        _ => Some(message),
    };
    let outcome = round(honestly, honestly, thief).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&ten(), 0..10));
    assert!(outcome.wrong_shares.iter().all(|wrong| wrong.holder == ClientId(1)) && !outcome.wrong_shares.is_empty());
}

/// Complaints without a cause cost one share each, and are told from whom they came.
#[test]
fn a_false_complaint_does_not_end_the_round() {
    let terms = ten();
    let complains = |id: ClientId, mut message: Vec<u8>| {
        if id.0 < 5 {
            // After version, suite, number, session and count: nine bits, all set.
            message[39..41].copy_from_slice(&[0xff, 0x01]);
        }
        Some(message)
    };
    // Of clients 0 to 4 there are five good shares left, of the others four.
    let quiet = |id: ClientId, message: Vec<u8>| {
        let mut response = UnmaskResponse::decode(&message).unwrap();
        if id.0 < 5 {
            response.opened.fill(Opened::Nothing);
        }
        Some(response.encode().to_vec())
    };
    let outcome = round(honestly, complains, quiet).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&terms, 0..10));
    assert_eq!(outcome.complaints.len(), 5 * 9);
    assert!(outcome.complaints.iter().all(|(who, _)| who.0 < 5));
}

/// Honest clients are never blamed in an honest round.
#[test]
fn nobody_is_blamed_for_nothing() {
    let (server, mut devices): (_, Devices) = masked(ten(), CONNECT, 1);
    let mut server = server.close().unwrap().close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    let outcome = server.close(&Serial).unwrap();
    assert!(outcome.wrong_shares.is_empty() && outcome.complaints.is_empty());
    assert_eq!(outcome.masks, 10);
}
