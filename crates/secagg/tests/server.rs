//! A server among liars: what is not as it must be is refused, changes nothing, and the sum of the others is exact.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::story::{
    self, Device, Devices, advertise, honestly, hostile, input, mask, masked, plain_sum, promising_nothing, share,
    shared, terms, unmask,
};
use keyhush_secagg::{
    ClientId,
    directory::{Everybody, Member},
    entropy::{Entropy, SimulatedEntropy},
    message::{
        AdvertiseKeys, Agreement, Delivery, MaskedInput, Neighbourhood, Opened, ShareKeys, Survivors, UnmaskRequest,
        UnmaskResponse, View,
    },
    parameters::{Adversary, Assumptions, Committee},
    server::{
        CollectAgreement, CollectKeys, CollectMasked, CollectShares, CollectUnmask, Connect, Outcome, Refusal,
        RoundFailure, Serial,
    },
    session::{OfferHash, SessionId, Terms},
    wire::{SUITE, VERSION, WireError},
};
use proptest::prelude::*;

/// Everybody is everybody's neighbour, and three shares open a secret.
const SEVEN: Connect = Connect::Insecure { degree: 6, threshold: 3 };

fn open(clients: u32, seed: u64) -> CollectKeys {
    CollectKeys::open(terms(clients, Adversary::Curious), &mut SimulatedEntropy::from_seed(seed)).unwrap()
}

fn finish_masked(mut server: CollectMasked, mut devices: Devices) -> Outcome {
    mask(&mut server, &mut devices, &terms(7, Adversary::Curious), honestly);
    let mut server = until_asked(server);
    unmask(&mut server, &mut devices, honestly);
    server.close(&Serial).unwrap()
}

/// Inputs are there, and there is nothing to agree on.
fn until_asked(server: CollectMasked) -> CollectUnmask {
    let agreement = server.close().unwrap();
    assert!(!agreement.is_needed() && agreement.clients().count() == 0);
    agreement.close().unwrap()
}

fn finish_shares(mut server: CollectShares, mut devices: Devices) -> Outcome {
    share(&mut server, &mut devices, honestly);
    finish_masked(server.close().unwrap(), devices)
}

#[test]
fn keys_that_cannot_take_part_are_refused() {
    let mut server = open(7, 1);
    let mut devices = advertise(&mut server, 0..6, 1);
    let (device, good) = Device::begin(*server.offer(), ClientId(6), 1);
    let good = AdvertiseKeys::decode(&good).unwrap();
    let others = AdvertiseKeys::decode(&Device::begin(*server.offer(), ClientId(0), 1).1).unwrap().member;
    let Member { pseudonym: zero, keys: others, .. } = others;
    let six = ClientId(6);
    let mut refused = |change: &dyn Fn(&mut AdvertiseKeys)| {
        let mut message = good.clone();
        change(&mut message);
        server.receive(six, &message.encode(), &Everybody).unwrap_err()
    };
    assert_eq!(refused(&|m| m.offer = OfferHash([0; 32])), Refusal::OtherSession);
    let identity = std::array::from_fn(|i| u8::from(i == 0));
    let twice: [&dyn Fn(&mut Member); 15] = [
        &|m| m.keys.sealing = [0; 32],
        &|m| m.keys.masking = [0; 32],
        &|m| m.keys.signing = identity,
        &|m| m.keys.signing = [[2].as_slice(), &[0; 31]].concat().try_into().unwrap(),
        &|m| m.keys.masking = m.keys.sealing,
        &|m| m.keys.sealing = m.keys.signing,
        &|m| m.keys.masking = m.keys.signing,
        &|m| m.keys = others,
        &|m| m.keys.sealing = others.sealing,
        &|m| m.keys.masking = others.masking,
        &|m| m.keys.masking = others.sealing,
        &|m| m.keys.signing = others.signing,
        &|m| m.keys.sealing = others.signing,
        &|m| m.keys.masking = others.signing,
        &|m| m.pseudonym = zero,
    ];
    for change in twice {
        assert_eq!(refused(&|m| change(&mut m.member)), Refusal::Key(six));
    }
    assert!(matches!(server.receive(six, &good.encode()[1..], &Everybody), Err(Refusal::Wire(_))));
    assert_eq!(server.receive(ClientId(5), &good.encode(), &Everybody), Err(Refusal::Repeated(ClientId(5))));
    assert_eq!(server.arrived(), 6);
    server.receive(six, &good.encode(), &Everybody).unwrap();
    devices.insert(six, device);
    let late = Device::begin(*server.offer(), ClientId(7), 1).1;
    assert_eq!(server.receive(ClientId(7), &late, &Everybody), Err(Refusal::Full { most: 7 }));
    let outcome = finish_shares(server.close(SEVEN).unwrap(), devices);
    assert_eq!(*outcome.sum, plain_sum(&terms(7, Adversary::Curious), 0..7));
}

/// The server knows clients by their numbers, and the round knows them by pseudonyms: one for each, and no two alike.
#[test]
fn a_client_has_one_pseudonym_and_a_pseudonym_one_client() {
    let mut server = open(7, 1);
    let [one, two] = [1, 2].map(|id| Device::begin(*server.offer(), ClientId(id), 1).1);
    server.receive(ClientId(1), &one, &Everybody).unwrap();
    assert_eq!(server.receive(ClientId(1), &two, &Everybody), Err(Refusal::Repeated(ClientId(1))));
    assert_eq!(server.receive(ClientId(2), &one, &Everybody), Err(Refusal::Key(ClientId(2))));
    let mut taken = AdvertiseKeys::decode(&two).unwrap();
    taken.member.pseudonym = AdvertiseKeys::decode(&one).unwrap().member.pseudonym;
    assert_eq!(server.receive(ClientId(2), &taken.encode(), &Everybody), Err(Refusal::Key(ClientId(2))));
    assert_eq!(server.receive(ClientId(2), &two, &Everybody), Ok(()), "what was refused left nothing behind");
    assert_eq!(server.arrived(), 2);
}

/// Positions are in the order of pseudonyms, not of numbers, and the round ends with the sum of the right clients.
#[test]
fn who_a_client_is_to_the_server_is_nobody_elses_business() {
    let terms = terms(7, Adversary::Curious);
    let mut server = open(7, 1);
    let name = |id: u64| ClientId(1000 - 7 * id);
    let mut devices = std::collections::BTreeMap::new();
    for id in 0..7 {
        let (device, keys) = Device::begin(*server.offer(), ClientId(id), 1);
        server.receive(name(id), &keys, &Everybody).unwrap();
        devices.insert(id, device);
    }
    let mut server = server.close(SEVEN).unwrap();
    for (id, device) in &mut devices {
        let message = server.neighbourhood(name(*id)).unwrap();
        assert_eq!(u64::from(Neighbourhood::decode(&message).unwrap().position), *id);
        server.receive(name(*id), &device.answer(&message).unwrap()).unwrap();
    }
    let mut server = server.close().unwrap();
    for (id, device) in devices.iter_mut().filter(|(id, _)| **id != 2) {
        device.receive(&server.delivery(name(*id)).unwrap()).unwrap();
        server.receive(name(*id), &device.client.mask(&input(&terms, *id)).unwrap()).unwrap();
    }
    let mut server = until_asked(server);
    for (id, device) in devices.iter_mut().filter(|(id, _)| **id != 2) {
        server.receive(name(*id), &device.answer(&server.request(name(*id)).unwrap()).unwrap()).unwrap();
    }
    let outcome = server.close(&Serial).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&terms, (0..7).filter(|id| *id != 2)));
    let mut survivors: Vec<ClientId> = (0..7).filter(|id| *id != 2).map(name).collect();
    survivors.sort_unstable();
    assert_eq!(outcome.survivors, survivors);
}

#[test]
fn a_round_without_enough_clients_does_not_begin() {
    let mut server = open(7, 1);
    advertise(&mut server, 0..1, 1);
    assert_eq!(server.close(SEVEN).unwrap_err(), RoundFailure::TooFew { got: 1, needed: 2 });
    let mut server = open(7, 1);
    advertise(&mut server, 0..2, 1);
    assert!(matches!(server.close(Connect::Found), Err(RoundFailure::Parameters(_))));
}

#[test]
fn shares_that_are_not_of_this_step_are_refused() {
    let mut server = open(7, 2);
    let mut devices = advertise(&mut server, 0..7, 2);
    let keys = Device::begin(*server.offer(), ClientId(0), 2).1;
    let mut server = server.close(SEVEN).unwrap();
    assert!(server.neighbourhood(ClientId(9)).is_none());
    let (mut replayed, mut silent) = (Vec::new(), 0);
    let message_of = |id: &ClientId, device: &mut Device, server: &CollectShares| {
        device.answer(&server.neighbourhood(*id).unwrap()).unwrap()
    };
    devices.retain(|id, device| {
        let message = message_of(id, device, &server);
        let good = ShareKeys::decode(&message).unwrap();
        let mut refused = |change: fn(&mut ShareKeys)| {
            let mut message = good.clone();
            change(&mut message);
            server.receive(*id, &message.encode()).unwrap_err()
        };
        assert_eq!(refused(|m| m.session = SessionId([0; 32])), Refusal::OtherSession);
        assert_eq!(refused(|m| m.sealed.truncate(5)), Refusal::Count { expected: 6, got: 5 });
        assert_eq!(refused(|m| m.sealed.push([0; _])), Refusal::Count { expected: 6, got: 7 });
        assert_eq!(server.receive(ClientId(9), &message), Err(Refusal::Stranger(ClientId(9))));
        assert!(matches!(server.receive(*id, &keys), Err(Refusal::Wire(WireError::Kind { got: 1, .. }))));
        // Client 3 never gets beyond refusals: it is as good as silent.
        if id.0 == 3 {
            silent += 1;
            return false;
        }
        server.receive(*id, &message).unwrap();
        assert_eq!(server.receive(*id, &message), Err(Refusal::Repeated(*id)));
        replayed = message;
        true
    });
    assert_eq!((server.arrived(), silent), (6, 1));
    let mut server = server.close().unwrap();
    assert!(server.delivery(ClientId(3)).is_none());
    assert!(matches!(server.receive(ClientId(6), &replayed), Err(Refusal::Wire(WireError::Kind { got: 3, .. }))));
    let outcome = finish_masked(server, devices);
    assert_eq!(*outcome.sum, plain_sum(&terms(7, Adversary::Curious), [0, 1, 2, 4, 5, 6].into_iter()));
}

/// The bytes of a masked input.
fn encode(session: &SessionId, complaints: &[bool], packed: &[u8]) -> Vec<u8> {
    let mut bits = vec![0; complaints.len().div_ceil(8)];
    complaints.iter().enumerate().for_each(|(i, c)| bits[i / 8] |= u8::from(*c) << (i % 8));
    [&[VERSION, SUITE, 5][..], &session.0, &(complaints.len() as u32).to_le_bytes(), &bits, packed].concat()
}

#[test]
fn inputs_that_are_not_of_this_step_are_refused() {
    let terms = terms(7, Adversary::Curious);
    let mut server = open(7, 3);
    let mut devices = advertise(&mut server, 0..7, 3);
    let mut server = server.close(SEVEN).unwrap();
    // Client 6 does not share.
    share(&mut server, &mut devices, |id: ClientId, message| (id.0 != 6).then_some(message));
    let mut server = server.close().unwrap();
    devices.retain(|id, device| {
        device.receive(&server.delivery(*id).unwrap()).unwrap();
        let message = device.client.mask(&input(&terms, id.0)).unwrap();
        let MaskedInput { session, complaints, packed } = MaskedInput::decode(&message).unwrap();
        let none: Vec<bool> = complaints.iter().collect();
        assert_eq!(encode(&session, &none, packed), message);
        let expected = packed.len();
        let about_the_absent: Vec<bool> = (0..6).map(|slot| slot == 5).collect();
        for (message, refusal) in [
            (encode(&SessionId([0; 32]), &none, packed), Refusal::OtherSession),
            (encode(&session, &none[1..], packed), Refusal::Count { expected: 6, got: 5 }),
            (encode(&session, &[&none[..], &[false]].concat(), packed), Refusal::Count { expected: 6, got: 7 }),
            (encode(&session, &about_the_absent, packed), Refusal::Complaint(ClientId(6))),
            (encode(&session, &none, &packed[1..]), Refusal::Length { expected, got: expected - 1 }),
            (encode(&session, &none, &[packed, &[0]].concat()), Refusal::Length { expected, got: expected + 1 }),
            (encode(&session, &none, &[]), Refusal::Length { expected, got: 0 }),
        ] {
            assert_eq!(server.receive(*id, &message), Err(refusal));
        }
        for stranger in [6, 9].map(ClientId) {
            assert_eq!(server.receive(stranger, &message), Err(Refusal::Stranger(stranger)));
        }
        server.receive(*id, &message).unwrap();
        assert_eq!(server.receive(*id, &message), Err(Refusal::Repeated(*id)), "counted once");
        true
    });
    assert_eq!(server.arrived(), 6);
    let mut server = until_asked(server);
    unmask(&mut server, &mut devices, honestly);
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&terms, 0..6));
}

/// A round of seven: client 6 does not share, client 5 sends no input.
fn until_unmask() -> (CollectUnmask, Devices) {
    let mut server = open(7, 4);
    let mut devices = advertise(&mut server, 0..7, 4);
    let mut server = server.close(SEVEN).unwrap();
    share(&mut server, &mut devices, |id: ClientId, message| (id.0 != 6).then_some(message));
    let mut server = server.close().unwrap();
    let five_vanishes = |id: ClientId, message| (id.0 != 5).then_some(message);
    mask(&mut server, &mut devices, &terms(7, Adversary::Curious), five_vanishes);
    (until_asked(server), devices)
}

#[test]
fn answers_that_are_not_what_was_asked_are_refused() {
    let (mut server, mut devices) = until_unmask();
    for gone in [5, 6, 9].map(ClientId) {
        assert!(server.request(gone).is_none());
    }
    devices.retain(|id, device| {
        let message = device.answer(&server.request(*id).unwrap()).unwrap();
        let good = UnmaskResponse::decode(&message).unwrap();
        let mut refused = |change: &dyn Fn(&mut UnmaskResponse)| {
            let mut message = good.clone();
            change(&mut message);
            server.receive(*id, &message.encode()).unwrap_err()
        };
        let Opened::SelfSeed(share) = &good.opened[0] else { unreachable!() };
        let first = ClientId(u64::from(id.0 == 0));
        assert_eq!(refused(&|m| m.session = SessionId([0; 32])), Refusal::OtherSession);
        assert_eq!(refused(&|m| m.opened.truncate(5)), Refusal::Count { expected: 6, got: 5 });
        assert_eq!(refused(&|m| m.opened.push(Opened::Nothing)), Refusal::Count { expected: 6, got: 7 });
        assert_eq!(refused(&|m| m.opened[0] = Opened::MaskKey(share.clone())), Refusal::Share(first));
        assert_eq!(refused(&|m| m.opened[0] = Opened::Nothing), Refusal::Share(first));
        assert_eq!(refused(&|m| m.opened[4] = Opened::SelfSeed(share.clone())), Refusal::Share(ClientId(5)));
        assert_eq!(refused(&|m| m.opened[5] = Opened::SelfSeed(share.clone())), Refusal::Share(ClientId(6)));
        assert_eq!(refused(&|m| m.opened[5] = Opened::MaskKey(share.clone())), Refusal::Share(ClientId(6)));
        assert_eq!(refused(&|m| m.opened[0] = Opened::SelfSeed([0xff; 40].into())), Refusal::Share(first));
        for stranger in [5, 6, 9].map(ClientId) {
            assert_eq!(server.receive(stranger, &message), Err(Refusal::Stranger(stranger)));
        }
        server.receive(*id, &message).unwrap();
        assert_eq!(server.receive(*id, &message), Err(Refusal::Repeated(*id)));
        true
    });
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&terms(7, Adversary::Curious), 0..5));
}

/// The same answer three times is one answer: a threshold is of different clients.
#[test]
fn one_client_thrice_is_not_a_threshold() {
    let (mut server, mut devices) = until_unmask();
    let mut answers = Vec::new();
    devices.retain(|id, device| {
        answers.push((*id, device.answer(&server.request(*id).unwrap()).unwrap()));
        true
    });
    for _ in 0..3 {
        let _ = server.receive(answers[0].0, &answers[0].1);
    }
    assert_eq!(server.arrived(), 1);
    server.receive(answers[1].0, &answers[1].1).unwrap();
    assert!(matches!(server.can_close(), Err(RoundFailure::OutOfReach { needed: 3, .. })));
    assert!(matches!(server.close(&Serial), Err(RoundFailure::OutOfReach { needed: 3, .. })));
}

/// Enough is when every secret has a threshold of shares: of five survivors each holds a share of each other.
#[test]
fn a_round_can_end_as_soon_as_there_is_enough() {
    let (mut server, mut devices) = until_unmask();
    let mut enough = Vec::new();
    devices.retain(|id, device| {
        let answer = device.answer(&server.request(*id).unwrap()).unwrap();
        if id.0 < 4 {
            server.receive(*id, &answer).unwrap();
            enough.push(server.can_close().is_ok());
        }
        true
    });
    assert_eq!(enough, [false, false, false, true], "three others for each of four, four for the fifth");
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&terms(7, Adversary::Curious), 0..5));
}

/// Nobody could take the masks off who has fewer neighbours left than the threshold: it is left out before there are any.
#[test]
fn who_has_lost_its_neighbours_is_left_out_in_time() {
    let terms = promising_nothing(16, Adversary::Curious);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(8)).unwrap();
    let mut devices = advertise(&mut server, 0..16, 8);
    let mut server = server.close(Connect::Insecure { degree: 6, threshold: 3 }).unwrap();
    let neighbours = story::neighbours(&server);
    let gone = &neighbours[0][..4];
    share(&mut server, &mut devices, |id: ClientId, message| (!gone.contains(&id.0)).then_some(message));
    let mut server = server.close().unwrap();
    assert!(server.delivery(ClientId(0)).is_none());
    let left: Vec<u64> = server.clients().map(|id| id.0).collect();
    assert!(left.len() > 5 && !left.contains(&0));
    for id in &left {
        let there = neighbours[*id as usize].iter().filter(|n| left.contains(n)).count();
        let delivered = Delivery::decode(&server.delivery(ClientId(*id)).unwrap()).unwrap();
        assert!(there >= 3 && delivered.sealed.iter().flatten().count() == there);
    }
    mask(&mut server, &mut devices, &terms, honestly);
    let mut server = until_asked(server);
    unmask(&mut server, &mut devices, honestly);
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&terms, left.into_iter()));
}

#[test]
fn an_abort_after_the_input_does_not_take_it_back() {
    let terms = terms(7, Adversary::Curious);
    let (server, mut devices) = masked(terms, SEVEN, 5);
    let mut server = until_asked(server);
    unmask(&mut server, &mut devices, |id: ClientId, message| (id.0 > 1).then_some(message));
    let outcome = server.close(&Serial).unwrap();
    assert_eq!((outcome.survivors.len(), outcome.sum.to_vec()), (7, plain_sum(&terms, 0..7)));
}

/// Everybody is everybody's neighbour, six shares open a secret, and the server is not taken at its word: seven must sign.
const TEN: Connect = Connect::Insecure { degree: 9, threshold: 6 };

fn ten() -> Terms {
    terms(10, Adversary::SemiMalicious)
}

/// A round of ten, up to the agreement; client 9 sends no input.
fn until_agreement() -> (CollectAgreement, Devices) {
    let (server, mut devices) = shared(ten(), TEN, 7);
    assert_eq!(server.parameters().committee(), Some(Committee { size: 10, quorum: 7 }));
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &ten(), |id: ClientId, message| (id.0 != 9).then_some(message));
    (server.close().unwrap(), devices)
}

/// What a device of that round signs with: the third that it draws.
fn signing_secret(id: u64) -> [u8; 32] {
    let (mut entropy, mut secret) = (Device::entropy(7, ClientId(id)), [0; 32]);
    (0..3).for_each(|_| entropy.fill(&mut secret).unwrap());
    secret
}

#[test]
fn signatures_that_are_not_of_this_step_are_refused() {
    let (mut server, mut devices) = until_agreement();
    assert!(server.is_needed());
    assert_eq!(server.clients().map(|id| id.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    for gone in [9, 11].map(ClientId) {
        assert!(server.view(gone).is_none());
    }
    let view = View::decode(&server.view(ClientId(0)).unwrap()).unwrap();
    let other_view = View { alive: view.present.clone(), ..view.clone() };
    let other_session = View { session: SessionId([0; 32]), ..view.clone() };
    devices.retain(|id, device| {
        let message = device.answer(&server.view(*id).unwrap()).unwrap();
        let good = Agreement::decode(&message).unwrap();
        let mut refused = |change: &dyn Fn(&mut Agreement)| {
            let mut message = good.clone();
            change(&mut message);
            server.receive(*id, &message.encode()).unwrap_err()
        };
        let wrong = Refusal::Signature(*id);
        let by = |id, view| hostile::signature(signing_secret(id), view);
        assert_eq!(by(id.0, &view), good.signature);
        assert_eq!(refused(&|m| m.session = SessionId([0; 32])), Refusal::OtherSession);
        assert_eq!(refused(&|m| m.signature[0] ^= 1), wrong, "the point");
        assert_eq!(refused(&|m| m.signature[32] ^= 1), wrong, "the scalar");
        assert_eq!(refused(&|m| m.signature = [0; 64]), wrong);
        assert_eq!(refused(&|m| m.signature = by((id.0 + 1) % 9, &view)), wrong, "another's");
        assert_eq!(refused(&|m| m.signature = by(77, &view)), wrong, "a stranger's");
        assert_eq!(refused(&|m| m.signature = by(id.0, &other_view)), wrong, "of another view");
        assert_eq!(refused(&|m| m.signature = by(id.0, &other_session)), wrong, "of another session");
        assert!(matches!(server.receive(*id, &message[..98]), Err(Refusal::Wire(WireError::Short))));
        for stranger in [9, 11].map(ClientId) {
            assert_eq!(server.receive(stranger, &message), Err(Refusal::Stranger(stranger)));
        }
        server.receive(*id, &message).unwrap();
        assert_eq!(server.receive(*id, &message), Err(Refusal::Repeated(*id)));
        true
    });
    assert_eq!(server.arrived(), 9);
    let mut server = server.close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&ten(), 0..9));
}

/// Above three hundred clients a committee signs: whoever is not in it is asked for nothing, and what it signs is refused.
#[test]
fn only_the_committee_is_asked_to_sign() {
    let assumptions = Assumptions::new(0.1, 0.05, Adversary::SemiMalicious);
    let terms = Terms { assumptions, dimension: 4, ..terms(301, Adversary::SemiMalicious) };
    let (server, mut devices) = shared(terms, Connect::Found, 4);
    let Committee { size, quorum } = server.parameters().committee().unwrap();
    assert!(quorum < size && size < 100, "{quorum} of {size}");
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, honestly);
    let mut server = server.close().unwrap();
    let signers: Vec<ClientId> = server.clients().collect();
    assert_eq!(signers.len(), size as usize);
    let view = View::decode(&server.view(signers[0]).unwrap()).unwrap();
    for (id, device) in &mut devices {
        assert_eq!(server.view(*id).is_some(), signers.contains(id));
        if !signers.contains(id) {
            let (mut entropy, mut secret) = (Device::entropy(4, *id), [0; 32]);
            (0..3).for_each(|_| entropy.fill(&mut secret).unwrap());
            let signature = hostile::signature(secret, &view);
            let message = Agreement { session: view.session, signature }.encode();
            assert_eq!(server.receive(*id, &message), Err(Refusal::Stranger(*id)));
        } else {
            server.receive(*id, &device.answer(&view.encode()).unwrap()).unwrap();
        }
    }
    assert_eq!(server.arrived(), size as usize);
    let mut server = server.close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&terms, 0..301));
}

/// Who does not sign is in the sum, and is asked to unmask like everybody. Of nine seven must sign.
#[test]
fn who_does_not_sign_is_in_the_sum_all_the_same() {
    for (signers, enough) in [(9, true), (7, true), (6, false), (0, false)] {
        let (mut server, mut devices) = until_agreement();
        for (id, device) in devices.iter_mut().take(signers) {
            let signature = device.answer(&server.view(*id).unwrap()).unwrap();
            server.receive(*id, &signature).unwrap();
        }
        let not_agreed = RoundFailure::NotAgreed { got: signers, needed: 7 };
        if !enough {
            assert_eq!(server.can_close(), Err(not_agreed.clone()));
            assert_eq!(server.close().unwrap_err(), not_agreed);
            continue;
        }
        assert_eq!(server.can_close(), Ok(()));
        let mut server = server.close().unwrap();
        for id in devices.keys() {
            let request = UnmaskRequest::decode(&server.request(*id).unwrap()).unwrap();
            let Survivors::Agreed { signatures, .. } = request.survivors else { panic!("nobody's word is taken") };
            assert_eq!((signatures.len(), signatures.iter().flatten().count()), (10, 7), "no more than are needed");
        }
        unmask(&mut server, &mut devices, honestly);
        let outcome = server.close(&Serial).unwrap();
        assert_eq!((outcome.survivors.len(), outcome.sum.to_vec()), (9, plain_sum(&ten(), 0..9)));
    }
}

/// Who signs nonsense is one that does not sign: a quorum of others is enough.
#[test]
fn false_signatures_do_no_harm() {
    let (mut server, mut devices) = until_agreement();
    for (id, device) in &mut devices {
        let message = device.answer(&server.view(*id).unwrap()).unwrap();
        let mut message = Agreement::decode(&message).unwrap();
        if id.0 < 2 {
            message.signature.fill(id.0 as u8);
        }
        let taken = server.receive(*id, &message.encode());
        assert_eq!(taken, if id.0 < 2 { Err(Refusal::Signature(*id)) } else { Ok(()) });
    }
    let mut server = server.close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&ten(), 0..9));
}

/// The order in which a network brings messages.
type Order = Vec<usize>;

fn order() -> impl Strategy<Value = Order> {
    Just((0..7).collect::<Order>()).prop_shuffle()
}

/// A round in which messages arrive in these orders, some of them twice, and those of the step before late.
fn in_order(orders: &[Order; 4]) -> Outcome {
    let terms = terms(7, Adversary::Curious);
    let mut server = open(7, 6);
    let mut begun: Vec<_> = (0..7).map(|id| Device::begin(*server.offer(), ClientId(id), 6)).collect();
    for at in &orders[0] {
        server.receive(ClientId(*at as u64), &begun[*at].1, &Everybody).unwrap();
        assert!(server.receive(ClientId(*at as u64), &begun[*at].1, &Everybody).is_err());
    }
    let mut server = server.close(SEVEN).unwrap();
    let mut late: Vec<Vec<u8>> = begun.iter().map(|(_, keys)| keys.clone()).collect();
    for at in &orders[1] {
        let id = ClientId(*at as u64);
        assert!(server.receive(id, &late[*at]).is_err());
        late[*at] = begun[*at].0.answer(&server.neighbourhood(id).unwrap()).unwrap();
        if *at != 0 {
            server.receive(id, &late[*at]).unwrap();
        }
    }
    let mut server = server.close().unwrap();
    for at in orders[2].iter().filter(|at| **at != 0) {
        let id = ClientId(*at as u64);
        assert!(server.receive(id, &late[*at]).is_err());
        begun[*at].0.receive(&server.delivery(id).unwrap()).unwrap();
        late[*at] = begun[*at].0.client.mask(&input(&terms, id.0)).unwrap();
        if *at != 1 {
            server.receive(id, &late[*at]).unwrap();
        }
    }
    let mut server = until_asked(server);
    assert!(server.receive(ClientId(1), &late[1]).is_err(), "too late");
    for at in orders[3].iter().filter(|at| **at > 1) {
        let id = ClientId(*at as u64);
        assert!(server.receive(id, &late[*at]).is_err());
        let answer = begun[*at].0.answer(&server.request(id).unwrap()).unwrap();
        server.receive(id, &answer).unwrap();
    }
    server.close(&Serial).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_order_of_arrival_does_not_matter(orders in prop::array::uniform4(order())) {
        let outcome = in_order(&orders);
        prop_assert_eq!(&*outcome.sum, &plain_sum(&terms(7, Adversary::Curious), 2..7));
        let straight = std::array::from_fn(|_| (0..7).collect());
        prop_assert_eq!(outcome, in_order(&straight));
    }
}
