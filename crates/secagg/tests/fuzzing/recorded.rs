//! A small round with every message that was sent in it, and both sides of it in every state, built again from those.
//!
//! Twelve clients on a ring, each with ten neighbours, of whose shares six open a secret; all of them sign, and seven
//! decide. Client 10 vanishes before it shares, client 11 before it sends its input. Of everybody's neighbours at least
//! eight are left, so that one of them may send wrong shares and do no harm. The server is not taken at its word. All
//! follows from seeds: a message that was kept in a file is one of this round.

use std::{collections::BTreeMap, sync::LazyLock};

use keyhush_secagg::{
    ClientId,
    client::{Client, Reply},
    directory::Everybody,
    entropy::SimulatedEntropy,
    parameters::{Adversary, Assumptions, Floor},
    server::{CollectAgreement, CollectKeys, CollectMasked, CollectShares, CollectUnmask, Connect},
    session::{Inputs, Offer, Terms},
};

/// Whose messages are replaced by arbitrary bytes.
pub(crate) const FUZZED: ClientId = ClientId(0);

const CLIENTS: u64 = 12;
const ABSENT: ClientId = ClientId(10);
const DEAD: ClientId = ClientId(11);
const CONNECT: Connect = Connect::Insecure { degree: 10, threshold: 6 };

type Messages = BTreeMap<ClientId, Vec<u8>>;

/// The messages of the round, by the client that sent them or that they are for.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) keys: Messages,
    pub(crate) neighbourhoods: Messages,
    pub(crate) shares: Messages,
    pub(crate) deliveries: Messages,
    pub(crate) masked: Messages,
    pub(crate) views: Messages,
    pub(crate) agreements: Messages,
    pub(crate) requests: Messages,
    pub(crate) responses: Messages,
}

/// The round.
pub(crate) static RECORDED: LazyLock<Recorded> = LazyLock::new(record);

/// A client and its own randomness.
pub(crate) struct Device {
    pub(crate) client: Client,
    pub(crate) entropy: SimulatedEntropy,
}

const TERMS: Terms = Terms {
    task: [1; 32],
    model: [2; 32],
    round: 3,
    // Devices hold the server to what it promises, and on so small a ring that is little.
    assumptions: Assumptions {
        dropout: 0.0,
        corrupted: 0.0,
        security_bits: 1,
        failure_bits: 20,
        adversary: Adversary::SemiMalicious,
    },
    most_clients: CLIENTS as u32,
    least_survivors: 2,
    dimension: 100,
    bits: 6,
    inputs: Inputs::Bounded { largest: 3 },
    most_evidence: 64,
};

/// Whose inputs are in the sum.
pub(crate) fn survivors() -> impl Iterator<Item = ClientId> {
    (0..CLIENTS).map(ClientId).filter(|id| ![ABSENT, DEAD].contains(id))
}

/// A client's input.
pub(crate) fn input(id: ClientId) -> Vec<u32> {
    (0..TERMS.dimension).map(|i| (i + id.0 as u32) % 4).collect()
}

/// The plain sum of the survivors' inputs.
pub(crate) fn plain_sum() -> Vec<u32> {
    let inputs: Vec<Vec<u32>> = survivors().map(input).collect();
    (0..TERMS.dimension as usize).map(|i| inputs.iter().map(|input| input[i]).sum()).collect()
}

pub(crate) fn offer() -> Offer {
    *open().offer()
}

/// A client that has advertised its keys.
pub(crate) fn begin(id: ClientId) -> (Device, Vec<u8>) {
    let mut entropy = SimulatedEntropy::from_seed(100 + id.0);
    let (client, keys) = Client::begin(offer(), Floor::none(), &Everybody, &mut entropy).unwrap();
    (Device { client, entropy }, keys)
}

/// A client gets a message that it goes on with, and answers, unless it is then ready for its input.
pub(crate) fn receive(device: &mut Device, bytes: &[u8]) -> Option<Vec<u8>> {
    match device.client.receive(bytes, &Everybody, &mut device.entropy).unwrap() {
        Reply::Send(answer) => Some(answer.to_vec()),
        Reply::Ready => None,
        Reply::Ignored(why) => panic!("{why}"),
    }
}

fn open() -> CollectKeys {
    CollectKeys::open(TERMS, &mut SimulatedEntropy::from_seed(1)).unwrap()
}

/// A round that has the keys of those in `recorded`, but for those of one.
pub(crate) fn collect_keys(recorded: &Recorded, but: Option<ClientId>) -> CollectKeys {
    let mut server = open();
    for (id, keys) in recorded.keys.iter().filter(|(id, _)| Some(**id) != but) {
        server.receive(*id, keys, &Everybody).unwrap();
    }
    server
}

/// The same round a step later, with shares.
pub(crate) fn collect_shares(recorded: &Recorded, but: Option<ClientId>) -> CollectShares {
    let mut server = collect_keys(recorded, None).close(CONNECT).unwrap();
    take(&recorded.shares, but, |id, bytes| server.receive(id, bytes).unwrap());
    server
}

/// A step later, with masked inputs.
pub(crate) fn collect_masked(recorded: &Recorded, but: Option<ClientId>) -> CollectMasked {
    let mut server = collect_shares(recorded, None).close().unwrap();
    take(&recorded.masked, but, |id, bytes| server.receive(id, bytes).unwrap());
    server
}

/// A step later, with signatures.
pub(crate) fn collect_agreement(recorded: &Recorded, but: Option<ClientId>) -> CollectAgreement {
    let mut server = collect_masked(recorded, None).close().unwrap();
    take(&recorded.agreements, but, |id, bytes| server.receive(id, bytes).unwrap());
    server
}

/// The last step, with no answers yet.
pub(crate) fn collect_unmask(recorded: &Recorded) -> CollectUnmask {
    collect_agreement(recorded, None).close().unwrap()
}

/// Hands messages on, but for those of one.
pub(crate) fn take(messages: &Messages, but: Option<ClientId>, mut give: impl FnMut(ClientId, &[u8])) {
    messages.iter().filter(|(id, _)| Some(**id) != but).for_each(|(id, bytes)| give(*id, bytes));
}

fn record() -> Recorded {
    let mut recorded = Recorded::default();
    let mut devices = BTreeMap::new();
    for id in (0..CLIENTS).map(ClientId) {
        let (device, keys) = begin(id);
        recorded.keys.insert(id, keys);
        devices.insert(id, device);
    }
    let server = collect_shares(&recorded, None);
    for (id, device) in &mut devices {
        let neighbourhood = server.neighbourhood(*id).unwrap();
        recorded.shares.insert(*id, receive(device, &neighbourhood).unwrap());
        recorded.neighbourhoods.insert(*id, neighbourhood);
    }
    recorded.shares.remove(&ABSENT);
    let server = collect_masked(&recorded, None);
    for (id, device) in devices.iter_mut().filter(|(id, _)| **id != ABSENT) {
        let delivery = server.delivery(*id).unwrap();
        receive(device, &delivery);
        recorded.masked.insert(*id, device.client.mask(&input(*id)).unwrap());
        recorded.deliveries.insert(*id, delivery);
    }
    recorded.masked.remove(&DEAD);
    let server = collect_agreement(&recorded, None);
    for id in survivors() {
        let view = server.view(id).unwrap();
        let device = devices.get_mut(&id).unwrap();
        recorded.agreements.insert(id, receive(device, &view).unwrap());
        recorded.views.insert(id, view);
    }
    let server = collect_unmask(&recorded);
    for id in survivors() {
        let request = server.request(id).unwrap();
        let device = devices.get_mut(&id).unwrap();
        recorded.responses.insert(id, receive(device, &request).unwrap());
        recorded.requests.insert(id, request);
    }
    recorded
}
