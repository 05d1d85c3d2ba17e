//! What a round costs in bytes is what is said of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use keyhush_secagg::{
    ClientId,
    entropy::SimulatedEntropy,
    masks::Shape,
    message::Traffic,
    parameters::Adversary,
    server::{CollectKeys, Connect},
};
use story::{Device, honestly, terms};

/// Bytes from and to client 3 of sixteen, none of whom vanishes.
fn measured(adversary: Adversary) -> (Traffic, Traffic) {
    const ME: ClientId = ClientId(3);
    let terms = terms(16, adversary);
    let (mut up, mut down) = (0, 0);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(1)).unwrap();
    up += Device::begin(*server.offer(), ME, 1).1.len();
    let mut devices = story::advertise(&mut server, 0..16, 1);

    let mut server = server.close(Connect::Insecure { degree: 15, threshold: 9 }).unwrap();
    let parameters = *server.parameters();
    down += server.neighbourhood(ME).unwrap().len();
    let mut mine = |id: ClientId, message: Vec<u8>| {
        up += if id == ME { message.len() } else { 0 };
        honestly(id, message)
    };
    story::share(&mut server, &mut devices, &mut mine);
    let mut server = server.close().unwrap();
    down += server.delivery(ME).unwrap().len();
    story::mask(&mut server, &mut devices, &terms, &mut mine);
    let mut server = server.close().unwrap();
    down += server.view(ME).map_or(0, |view| view.len());
    story::agree(&mut server, &mut devices, &mut mine);
    let mut server = server.close().unwrap();
    down += server.request(ME).unwrap().len();
    story::unmask(&mut server, &mut devices, &mut mine);

    let shape = Shape::new(terms.dimension as usize, terms.bits).unwrap();
    (Traffic { up, down }, Traffic::of(&parameters, &shape, adversary))
}

#[test]
fn messages_are_as_long_as_said() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let (measured, said) = measured(adversary);
        assert_eq!(measured, said, "{adversary}");
    }
}
