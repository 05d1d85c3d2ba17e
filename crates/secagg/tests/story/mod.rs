//! Whole rounds, message by message through their bytes, with clients that vanish where a test says.
#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::BTreeMap;

use keyhush_secagg::{
    ClientId,
    client::Client,
    directory::Everybody,
    entropy::SimulatedEntropy,
    parameters::{Adversary, Assumptions, Floor},
    server::{CollectKeys, Connect, Outcome, RoundFailure, Serial},
    session::{Inputs, Terms},
};

/// The points at which a client can vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vanishes {
    BeforeKeys,
    BeforeShares,
    BeforeInput,
    BeforeUnmask,
    Never,
}

pub(crate) const POINTS: [Vanishes; 4] =
    [Vanishes::BeforeKeys, Vanishes::BeforeShares, Vanishes::BeforeInput, Vanishes::BeforeUnmask];

/// Terms for a few, with what small tests need.
pub(crate) fn terms(clients: u32, adversary: Adversary) -> Terms {
    Terms {
        task: [1; 32],
        model: [2; 32],
        round: 3,
        assumptions: Assumptions::new(0.1, 0.2, adversary),
        most_clients: clients,
        least_survivors: 2,
        dimension: 100,
        bits: 20,
        inputs: Inputs::Bounded { largest: ((1u64 << 20) / u64::from(clients) - 1) as u32 },
    }
}

/// A client's input: any, within the offer.
pub(crate) fn input(terms: &Terms, id: u64) -> Vec<u32> {
    let mut state = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as u32
    };
    let largest = match terms.inputs {
        Inputs::Bounded { largest } => largest,
        Inputs::Noised => 1000,
    };
    (0..terms.dimension).map(|_| next() % (largest + 1)).collect()
}

/// The plain sum of some clients' inputs.
pub(crate) fn plain_sum(terms: &Terms, ids: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut sum = vec![0u32; terms.dimension as usize];
    for id in ids {
        sum.iter_mut().zip(input(terms, id)).for_each(|(s, v)| *s += v);
    }
    sum
}

/// A client and its own randomness.
pub(crate) struct Device {
    pub(crate) client: Client,
    pub(crate) entropy: SimulatedEntropy,
}

/// A round of clients 0, 1, .. who vanish as they are told.
pub(crate) fn round(terms: Terms, connect: Connect, vanishes: &[Vanishes], seed: u64) -> Result<Outcome, RoundFailure> {
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(seed))?;
    let offer = *server.offer();
    let fate = |id: &ClientId| vanishes[id.0 as usize];

    // Every device that is there takes up the offer and advertises its keys.
    let mut devices: BTreeMap<ClientId, Device> = BTreeMap::new();
    for id in (0..vanishes.len() as u64).map(ClientId).filter(|id| fate(id) > Vanishes::BeforeKeys) {
        let mut entropy = SimulatedEntropy::from_seed(1000 * (seed + 1) + id.0);
        let (client, keys) = Client::begin(offer, id, Floor::none(), &Everybody, &mut entropy).unwrap();
        server.receive(id, &keys, &Everybody).unwrap();
        devices.insert(id, Device { client, entropy });
    }

    // The directory closes. Each learns its neighbours and sends shares for them.
    let mut server = server.close(connect)?;
    devices.retain(|id, device| {
        let neighbourhood = server.neighbourhood(*id).unwrap();
        let shares = device.client.receive(&neighbourhood, &Everybody, &mut device.entropy).unwrap().unwrap();
        let stays = fate(id) > Vanishes::BeforeShares;
        if stays {
            server.receive(*id, &shares).unwrap();
        }
        stays
    });

    // Shares are delivered. Each masks its input and sends it.
    let mut server = server.close()?;
    devices.retain(|id, device| {
        let Some(delivery) = server.delivery(*id) else { return false };
        assert_eq!(device.client.receive(&delivery, &Everybody, &mut device.entropy).unwrap(), None);
        let masked = device.client.mask(&input(&terms, id.0)).unwrap();
        let stays = fate(id) > Vanishes::BeforeInput;
        if stays {
            server.receive(*id, &masked).unwrap();
        }
        stays
    });

    // Survivors open one share of each neighbour.
    let mut server = server.close()?;
    for (id, device) in devices.iter_mut().filter(|(id, _)| fate(id) > Vanishes::BeforeUnmask) {
        let request = server.request(*id).unwrap();
        let shares = device.client.receive(&request, &Everybody, &mut device.entropy).unwrap().unwrap();
        server.receive(*id, &shares).unwrap();
    }
    server.close(&Serial)
}

/// Whose inputs are in the sum.
pub(crate) fn survivors(vanishes: &[Vanishes]) -> impl Iterator<Item = u64> + '_ {
    (0..vanishes.len() as u64).filter(|id| vanishes[*id as usize] > Vanishes::BeforeInput)
}
