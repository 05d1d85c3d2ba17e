//! Whole rounds, message by message through their bytes, with clients that vanish where a test says.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

pub(crate) mod hostile;
pub(crate) mod recorded;

use std::collections::BTreeMap;

use keyhush_secagg::{
    ClientId,
    client::{Client, ClientError, Reply},
    directory::Everybody,
    entropy::{Entropy, NoRandomness, SimulatedEntropy},
    graph::Graph,
    message::Neighbourhood,
    parameters::{Adversary, Assumptions, Floor},
    server::{
        CollectAgreement, CollectKeys, CollectMasked, CollectShares, CollectUnmask, Connect, Outcome, RoundFailure,
        Serial,
    },
    session::{Inputs, Offer, Terms},
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
        most_evidence: 0,
    }
}

/// The same, promising nothing: devices hold the server to what it promises, and graphs of a test's choosing keep little.
pub(crate) fn promising_nothing(clients: u32, adversary: Adversary) -> Terms {
    let assumptions = Assumptions { security_bits: 1, ..Assumptions::new(0.0, 0.0, adversary) };
    Terms { assumptions, ..terms(clients, adversary) }
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
    pub(crate) entropy: Drawing,
}

/// What a device of a test draws from. Its pseudonym, which alone has sixteen bytes, is its number: who is at which position is
/// then who has which number.
pub(crate) struct Drawing {
    id: ClientId,
    rest: SimulatedEntropy,
}

impl Entropy for Drawing {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        match <&mut [u8; 16]>::try_from(&mut *buffer) {
            Ok(pseudonym) => *pseudonym = u128::from(self.id.0).to_be_bytes(),
            Err(_) => self.rest.fill(buffer)?,
        }
        Ok(())
    }
}

impl Device {
    /// Takes up an offer; gives the keys.
    pub(crate) fn begin(offer: Offer, id: ClientId, seed: u64) -> (Self, Vec<u8>) {
        let mut entropy = Self::entropy(seed, id);
        let (client, keys) = Client::begin(offer, Floor::none(), &Everybody, &mut entropy).unwrap();
        (Self { client, entropy }, keys)
    }

    /// What it draws its secrets from.
    pub(crate) fn entropy(seed: u64, id: ClientId) -> Drawing {
        Drawing { id, rest: SimulatedEntropy::from_seed(1000 * (seed + 1) + id.0) }
    }

    pub(crate) fn receive(&mut self, message: &[u8]) -> Result<Reply, ClientError> {
        self.client.receive(message, &Everybody, &mut self.entropy)
    }

    /// What it answers to a message that has an answer.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, ClientError> {
        match self.receive(message)? {
            Reply::Send(bytes) => Ok(bytes.to_vec()),
            other => panic!("no answer: {other:?}"),
        }
    }
}

pub(crate) type Devices = BTreeMap<ClientId, Device>;

/// What a client really says, given what it should: nothing if it vanishes.
pub(crate) trait Says: FnMut(ClientId, Vec<u8>) -> Option<Vec<u8>> {}
impl<F: FnMut(ClientId, Vec<u8>) -> Option<Vec<u8>>> Says for F {}

/// Everybody says what it should.
pub(crate) fn honestly(_: ClientId, message: Vec<u8>) -> Option<Vec<u8>> {
    Some(message)
}

/// Devices take up the offer and advertise their keys.
pub(crate) fn advertise(server: &mut CollectKeys, ids: impl Iterator<Item = u64>, seed: u64) -> Devices {
    let mut devices = Devices::new();
    for id in ids.map(ClientId) {
        let (device, keys) = Device::begin(*server.offer(), id, seed);
        server.receive(id, &keys, &Everybody).unwrap();
        devices.insert(id, device);
    }
    devices
}

/// Each learns its neighbours and sends shares for them.
pub(crate) fn share(server: &mut CollectShares, devices: &mut Devices, mut says: impl Says) {
    devices.retain(|id, device| {
        let shares = device.answer(&server.neighbourhood(*id).unwrap()).unwrap();
        says(*id, shares).is_some_and(|shares| server.receive(*id, &shares).map(|()| true).unwrap())
    });
}

/// Shares are delivered. Each masks its input and sends it.
pub(crate) fn mask(server: &mut CollectMasked, devices: &mut Devices, terms: &Terms, mut says: impl Says) {
    devices.retain(|id, device| {
        let Some(delivery) = server.delivery(*id) else { return false };
        assert_eq!(device.receive(&delivery).unwrap(), Reply::Ready);
        let masked = device.client.mask(&input(terms, id.0)).unwrap();
        says(*id, masked).is_some_and(|masked| server.receive(*id, &masked).map(|()| true).unwrap())
    });
}

/// The committee signs who dropped out, where somebody has to.
pub(crate) fn agree(server: &mut CollectAgreement, devices: &mut Devices, mut says: impl Says) {
    devices.retain(|id, device| {
        let Some(view) = server.view(*id) else { return true };
        let signature = device.answer(&view).unwrap();
        says(*id, signature).is_some_and(|signature| server.receive(*id, &signature).map(|()| true).unwrap())
    });
}

/// Survivors open one share of each neighbour.
pub(crate) fn unmask(server: &mut CollectUnmask, devices: &mut Devices, mut says: impl Says) {
    devices.retain(|id, device| {
        let shares = device.answer(&server.request(*id).unwrap()).unwrap();
        says(*id, shares).is_some_and(|shares| server.receive(*id, &shares).map(|()| true).unwrap())
    });
}

/// A round of clients 0, 1, .. who vanish as they are told.
pub(crate) fn round(terms: Terms, connect: Connect, vanishes: &[Vanishes], seed: u64) -> Result<Outcome, RoundFailure> {
    let after = |point| move |id: ClientId, message| (vanishes[id.0 as usize] > point).then_some(message);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(seed))?;
    let there = (0..vanishes.len() as u64).filter(|id| vanishes[*id as usize] > Vanishes::BeforeKeys);
    let mut devices = advertise(&mut server, there, seed);
    let mut server = server.close(connect)?;
    share(&mut server, &mut devices, after(Vanishes::BeforeShares));
    let mut server = server.close()?;
    mask(&mut server, &mut devices, &terms, after(Vanishes::BeforeInput));
    let mut server = server.close()?;
    agree(&mut server, &mut devices, honestly);
    let mut server = server.close()?;
    unmask(&mut server, &mut devices, after(Vanishes::BeforeUnmask));
    server.close(&Serial)
}

/// Of each client 0, 1, ..: its neighbours, in the order of their positions.
pub(crate) fn neighbours(server: &CollectShares) -> Vec<Vec<u64>> {
    let any = server.clients().next().unwrap();
    let Neighbourhood { parameters, root, coin, .. } =
        Neighbourhood::decode(&server.neighbourhood(any).unwrap()).unwrap();
    let graph = Graph::new(&parameters, &hostile::sha256(&[b"keyhush secagg graph v2", &coin.0, &root]));
    (0..parameters.clients()).map(|at| graph.neighbours(at).into_iter().map(u64::from).collect()).collect()
}

/// A round that is over in its sharing: everybody has shared.
pub(crate) fn shared(terms: Terms, connect: Connect, seed: u64) -> (CollectShares, Devices) {
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(seed)).unwrap();
    let mut devices = advertise(&mut server, 0..u64::from(terms.most_clients), seed);
    let mut server = server.close(connect).unwrap();
    share(&mut server, &mut devices, honestly);
    (server, devices)
}

/// A round in which everybody has sent its input.
pub(crate) fn masked(terms: Terms, connect: Connect, seed: u64) -> (CollectMasked, Devices) {
    let (server, mut devices) = shared(terms, connect, seed);
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, honestly);
    (server, devices)
}

/// Whose inputs are in the sum.
pub(crate) fn survivors(vanishes: &[Vanishes]) -> impl Iterator<Item = u64> + '_ {
    (0..vanishes.len() as u64).filter(|id| vanishes[*id as usize] > Vanishes::BeforeInput)
}
