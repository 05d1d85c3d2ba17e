//! Secure rounds between devices as they ship and the server of `secagg`: the sum is the sum, and offers for something else are refused.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::participating::{Host, Offered, wait};
use keyhush_device::protocol::{
    message::{Says, SecureMessage, Wants},
    participant::Do,
    policy::{Policy, SecureFloor},
};
use privacy::stages::Residues;
use secagg::{
    ClientId,
    directory::Everybody,
    entropy::SimulatedEntropy,
    parameters::{Adversary, Assumptions},
    server::{CollectKeys, Connect, Serial},
    session::{Inputs, Offer, Terms},
};

const STEP: u64 = 4;

fn terms(offered: &Offered, residues: &Residues) -> Terms {
    let assignment = offered.assignment(STEP);
    Terms {
        task: assignment.task.unwrap().digest.try_into().unwrap(),
        model: assignment.model.unwrap().digest.try_into().unwrap(),
        round: STEP,
        assumptions: Assumptions::new(0.1, 0.2, Adversary::Curious),
        most_clients: 40,
        least_survivors: 36,
        dimension: residues.len() as u32,
        bits: residues.bits(),
        inputs: Inputs::Bounded { largest: residues.largest() },
        most_evidence: 0,
    }
}

fn offered() -> (Offered, Residues) {
    let mut offered = Offered::new(3);
    (offered.terms.secure, offered.terms.goal) = (true, 36);
    let residues = Residues::new(&offered.step.encoding, 40).unwrap();
    (offered, residues)
}

fn policy() -> Policy {
    let secure = SecureFloor { clients: 30, survivors: 30, ..SecureFloor::default() };
    Policy { only_secure: true, secure, least_goal: 30, ..Policy::default() }
}

fn secure(message: Vec<u8>) -> Says {
    Says::Secure(SecureMessage { ticket: vec![9; 32], message })
}

/// What a device says in secure aggregation.
fn spoken(host: &mut Host) -> Vec<u8> {
    match host.said().1 {
        Wants::Secure(SecureMessage { ticket, message }) => {
            assert_eq!(ticket, [9; 32]);
            message
        }
        other => panic!("it says {other:?}"),
    }
}

fn asks(host: &mut Host) {
    let (_, wants) = host.said();
    assert!(matches!(wants, Wants::Next(_)), "it says {wants:?}: {:?}", host.device.notes());
}

/// A server that tells it to wait has it wait for a moment, and not for the time of its part.
#[test]
fn nobody_is_silenced_in_the_midst_of_a_secure_round() {
    let (offered, residues) = offered();
    let server = CollectKeys::open(terms(&offered, &residues), &mut SimulatedEntropy::from_seed(1)).unwrap();
    let mut host = Host::new(policy(), 1);
    let mut assignment = offered.assignment(STEP);
    assignment.offer = server.offer().encode();
    host.idle().answer(Says::Assignment(assignment));
    host.fetched(&offered, STEP);
    spoken(&mut host);
    host.answer(wait(u32::MAX));
    let began = host.now.up_ms;
    asks(&mut host);
    assert_eq!(host.now.up_ms - began, 15_000);
}

#[test]
fn a_secure_round_of_forty_devices() {
    let (offered, residues) = offered();
    let mut entropy = SimulatedEntropy::from_seed(1);
    let mut server = CollectKeys::open(terms(&offered, &residues), &mut entropy).unwrap();
    let mut hosts: Vec<(ClientId, Host)> = (0..40).map(|n| (ClientId(n), Host::new(policy(), n as u8))).collect();
    for (id, host) in &mut hosts {
        let mut assignment = offered.assignment(STEP);
        assignment.offer = server.offer().encode();
        host.idle().answer(Says::Assignment(assignment));
        assert!(matches!(host.fetched(&offered, STEP), Do::Say(_)));
        server.receive(*id, &spoken(host), &Everybody).unwrap();
        host.answer(wait(100));
        asks(host);
    }
    let mut server = server.close(Connect::Found).unwrap();
    for (id, host) in &mut hosts {
        host.answer(secure(server.neighbourhood(*id).unwrap()));
        server.receive(*id, &spoken(host)).unwrap();
        host.answer(wait(100));
        asks(host);
        assert!(!host.device.holds_input(), "nothing is trained before it can leave");
    }
    let mut server = server.close().unwrap();
    let mut expected = vec![0u32; residues.len()];
    for (id, host) in hosts.iter_mut().filter(|(id, _)| id.0 != 7) {
        // Something of another part, and something that is no message, is not for this one.
        let elsewhere = server.delivery(*id).unwrap();
        host.answer(Says::Secure(SecureMessage { ticket: vec![8; 32], message: elsewhere }));
        asks(host);
        host.answer(secure(vec![0xff; 50]));
        asks(host);
        host.answer(secure(server.delivery(*id).unwrap()));
        let Do::Train(work) = host.wake() else { panic!("it does not train") };
        let encoded = host.train(&work);
        expected.iter_mut().zip(residues.of(&encoded).unwrap().iter()).for_each(|(e, r)| *e += r);
        assert_eq!(host.device.guard().inputs(), 0);
        let (offset, chunk) = host.sent();
        assert_eq!((offset, host.device.guard().inputs()), (0, 1));
        assert_ne!(chunk[chunk.len() - 100..], encoded.to_bytes()[encoded.to_bytes().len() - 100..]);
        server.receive(*id, &chunk).unwrap();
        host.received(chunk.len() as u64);
        asks(host);
    }
    let mut server = server.close().unwrap().close().unwrap();
    for (id, host) in hosts.iter_mut().filter(|(id, _)| id.0 != 7) {
        host.answer(secure(server.request(*id).unwrap()));
        server.receive(*id, &spoken(host)).unwrap();
        host.answer(wait(100));
        asks(host);
        host.thank(STEP + 2);
        assert!(!host.device.is_busy());
        assert!(host.device.page(host.now).contains("hidden by secure aggregation"));
    }
    let outcome = server.close(&Serial).unwrap();
    assert_eq!(outcome.survivors.len(), 39);
    assert_eq!(*outcome.sum, expected);
    assert!(residues.sum(&outcome.sum, 39).is_ok());
}

#[test]
fn an_offer_for_something_else_is_refused_and_costs_nothing() {
    let (offered, residues) = offered();
    let good = terms(&offered, &residues);
    let evil: [(&str, Terms); 11] = [
        ("in its task", Terms { task: [1; 32], ..good }),
        ("in its model", Terms { model: [1; 32], ..good }),
        ("in its step", Terms { round: STEP + 1, ..good }),
        ("number of coordinates", Terms { dimension: good.dimension + 1, ..good }),
        ("modulus", Terms { bits: good.bits + 1, ..good }),
        ("noised inputs", Terms { inputs: Inputs::Noised, ..good }),
        ("a sum of 29 could be opened", Terms { least_survivors: 29, ..good }),
        ("a sum of 35 could be opened", Terms { least_survivors: 35, ..good }),
        ("least_survivors", Terms { least_survivors: 1000, ..good }),
        ("below this device's floor", Terms { assumptions: Assumptions::new(0.01, 0.05, Adversary::Curious), ..good }),
        ("assumptions", Terms { assumptions: Assumptions::new(f64::NAN, 0.2, Adversary::Curious), ..good }),
    ];
    for (words, terms) in evil {
        let offer = match CollectKeys::open(good, &mut SimulatedEntropy::from_seed(1)) {
            Ok(server) => Offer { terms, ..*server.offer() },
            Err(e) => panic!("{e}"),
        };
        let mut host = Host::new(policy(), 1);
        let mut assignment = offered.assignment(STEP);
        assignment.offer = offer.encode();
        host.idle().answer(Says::Assignment(assignment));
        host.fetched(&offered, STEP);
        let said = host.refusals().concat();
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!(host.device.guard().inputs(), 0);
    }
    // A server that is not secure at all.
    let mut host = Host::new(policy(), 1);
    host.idle().answer(Says::Assignment(Offered::new(3).assignment(STEP)));
    host.fetched(&Offered::new(3), STEP);
    assert!(host.refusals().concat().contains("secure aggregation"));
}
