//! What a round costs in bytes is what is said of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::story::{self, Device, honestly, terms};
use keyhush_secagg::{
    ClientId,
    entropy::SimulatedEntropy,
    masks::Shape,
    message::{Delivery, Holdings, ShareKeys, Traffic},
    parameters::{Adversary, Assumptions, Parameters},
    server::{CollectKeys, Connect},
    session::Terms,
    shamir::Share,
};

fn shape(terms: &Terms) -> Shape {
    Shape::new(terms.dimension as usize, terms.bits).unwrap()
}

/// Bytes from and to each client of a round in which nobody vanishes, and whether it was asked to sign.
fn measured(terms: Terms, connect: Connect) -> (Vec<(Traffic, bool)>, Parameters) {
    let ids = || (0..u64::from(terms.most_clients)).map(ClientId);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(1)).unwrap();
    let mut up: Vec<usize> = ids().map(|id| Device::begin(*server.offer(), id, 1).1.len()).collect();
    let mut down = vec![0; up.len()];
    let mut told = |id: ClientId, message: Option<Vec<u8>>| down[id.0 as usize] += message.map_or(0, |m| m.len());
    let mut said = |id: ClientId, message: Vec<u8>| {
        up[id.0 as usize] += message.len();
        honestly(id, message)
    };
    let mut devices = story::advertise(&mut server, 0..terms.most_clients.into(), 1);
    let mut server = server.close(connect).unwrap();
    let parameters = *server.parameters();
    ids().for_each(|id| told(id, server.neighbourhood(id)));
    story::share(&mut server, &mut devices, &mut said);
    let mut server = server.close().unwrap();
    ids().for_each(|id| told(id, server.delivery(id)));
    story::mask(&mut server, &mut devices, &terms, &mut said);
    let mut server = server.close().unwrap();
    let signs: Vec<bool> = ids().map(|id| server.view(id).is_some()).collect();
    ids().for_each(|id| told(id, server.view(id)));
    story::agree(&mut server, &mut devices, &mut said);
    let mut server = server.close().unwrap();
    ids().for_each(|id| told(id, server.request(id)));
    story::unmask(&mut server, &mut devices, &mut said);
    let traffic = up.into_iter().zip(down).map(|(up, down)| Traffic { up, down });
    (traffic.zip(signs).collect(), parameters)
}

/// Where everybody is shown to everybody there is nothing that could be less.
#[test]
fn messages_are_as_long_as_said() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let terms = terms(16, adversary);
        let (measured, parameters) = measured(terms, Connect::Insecure { degree: 15, threshold: 10 });
        let said = Traffic::of(&parameters, &shape(&terms));
        for (traffic, signs) in measured {
            assert_eq!((traffic, signs), (said, adversary == Adversary::SemiMalicious));
        }
    }
}

/// On a ring what is said is for the worst: a committee of other clients than the neighbours, all of them far apart, and the
/// client among it.
#[test]
fn on_a_ring_with_a_committee_messages_are_at_most_as_long_as_said_and_not_much_shorter() {
    on_a_ring_with_a_committee(0.05, 75);
}

#[test]
#[ignore = "long: more who are corrupted, and so more neighbours and signatures"]
fn on_a_ring_with_a_large_committee_they_are_too() {
    on_a_ring_with_a_committee(0.2, 80);
}

/// Messages have at least so many percent of what is said. The smaller the lists, the more of them overlap, and the more of the proof
/// is hashes that need not be there.
fn on_a_ring_with_a_committee(corrupted: f64, percent: usize) {
    let assumptions = Assumptions::new(0.1, corrupted, Adversary::SemiMalicious);
    let terms = Terms { assumptions, ..terms(400, Adversary::SemiMalicious) };
    let (measured, parameters) = measured(terms, Connect::Found);
    let said = Traffic::of(&parameters, &shape(&terms));
    let committee = parameters.committee().unwrap().size as usize;
    assert!(!parameters.is_complete() && committee < 400, "{parameters:?}");
    assert_eq!(measured.iter().filter(|(_, signs)| *signs).count(), committee);
    for (Traffic { up, down }, signs) in measured {
        // Who does not sign says a signature less, and is not shown the view before it is signed.
        let (signature, view) = if signs { (0, 0) } else { (3 + 32 + 64, 3 + 32 + 2 * (4 + 50)) };
        assert_eq!(up, said.up - signature);
        assert!(down + view <= said.down && 100 * down >= percent * said.down, "{down}, {said:?}, {parameters:?}");
    }
}

/// What the server has to have room for: a sum, the sealed shares on their way, and those that were opened.
#[test]
fn the_server_holds_what_is_said() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let terms = terms(16, adversary);
        let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(1)).unwrap();
        let mut devices = story::advertise(&mut server, 0..16, 1);
        let mut server = server.close(Connect::Insecure { degree: 15, threshold: 10 }).unwrap();
        let shape = shape(&terms);
        let said = Holdings::of(server.parameters(), &shape);
        let mut sealed = 0;
        story::share(&mut server, &mut devices, |_, message: Vec<u8>| {
            sealed += ShareKeys::decode(&message).unwrap().sealed.iter().map(|s| s.len()).sum::<usize>();
            Some(message)
        });
        assert_eq!(sealed, said.sealed);
        let server = server.close().unwrap();
        let delivered = |id| {
            let delivery = Delivery::decode(&server.delivery(ClientId(id)).unwrap()).unwrap();
            delivery.sealed.iter().flatten().map(|s| s.len()).sum::<usize>()
        };
        assert_eq!((0..16).map(delivered).sum::<usize>(), said.sealed, "and it is all for somebody");
        assert_eq!(said.sum, shape.padded() * size_of::<u32>());
        // Each share that is opened lies there beside the number of its holder, which is padded to eight bytes.
        assert_eq!(said.opened, 16 * 15 * size_of::<(u32, Share)>());
    }
}
