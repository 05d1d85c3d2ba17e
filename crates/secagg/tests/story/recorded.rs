//! What one client and its server said in a round: to be said again, later, otherwise.

use keyhush_secagg::{
    ClientId,
    client::{Client, Reply},
    entropy::SimulatedEntropy,
    message::{
        AdvertiseKeys, Agreement, Delivery, Kind, MaskedInput, Neighbourhood, ShareKeys, UnmaskRequest, UnmaskResponse,
        View,
    },
    parameters::Adversary,
    server::{CollectKeys, Connect},
    session::{Offer, Terms},
};

use super::{Device, advertise, agree, input, mask, share, terms, unmask};

pub(crate) const SEED: u64 = 77;
pub(crate) const ME: ClientId = ClientId(2);

/// How far a client has come.
pub(crate) const STATES: [&str; 5] = ["AwaitNeighbourhood", "AwaitDelivery", "Ready", "AwaitUnmask", "Done"];

/// A round of five in which everybody is everybody's neighbour, the threshold is three, and client 1 vanishes before its
/// input; as client 2 saw it, who does not take the server at its word.
pub(crate) struct Recorded {
    pub(crate) terms: Terms,
    pub(crate) offer: Offer,
    /// In the order of their numbers: client and server take turns.
    pub(crate) messages: [Vec<u8>; 9],
}

impl Recorded {
    pub(crate) fn new() -> Self {
        Self::with(terms(5, Adversary::SemiMalicious), 3)
    }

    /// The same on other terms. Messages that are not said on them are empty.
    pub(crate) fn with(terms: Terms, threshold: u32) -> Self {
        let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(SEED)).unwrap();
        let offer = *server.offer();
        let keys = Device::begin(offer, ME, SEED).1;
        let mut devices = advertise(&mut server, 0..5, SEED);
        let mut server = server.close(Connect::Insecure { degree: 4, threshold }).unwrap();
        let neighbourhood = server.neighbourhood(ME).unwrap();
        let mut said = Vec::new();
        let mut hear = |id, message: Vec<u8>| {
            said.extend((id == ME).then(|| message.clone()));
            Some(message)
        };
        share(&mut server, &mut devices, &mut hear);
        let mut server = server.close().unwrap();
        let delivery = server.delivery(ME).unwrap();
        mask(&mut server, &mut devices, &terms, |id: ClientId, message| hear(id, message).filter(|_| id.0 != 1));
        let mut server = server.close().unwrap();
        let view = server.view(ME).unwrap_or_default();
        agree(&mut server, &mut devices, &mut hear);
        let mut server = server.close().unwrap();
        let request = server.request(ME).unwrap();
        unmask(&mut server, &mut devices, &mut hear);
        let [shares, masked, agreement, response] = match <[_; 4]>::try_from(said) {
            Ok(all) => all,
            Err(all) => {
                let [shares, masked, response] = all.try_into().unwrap();
                [shares, masked, Vec::new(), response]
            }
        };
        let messages = [keys, neighbourhood, shares, delivery, masked, view, agreement, request, response];
        Self { terms, offer, messages }
    }

    pub(crate) fn message(&self, kind: Kind) -> &[u8] {
        &self.messages[kind as usize - 1]
    }

    pub(crate) fn neighbourhood(&self) -> Neighbourhood {
        Neighbourhood::decode(self.message(Kind::Neighbourhood)).unwrap()
    }

    pub(crate) fn delivery(&self) -> Delivery {
        Delivery::decode(self.message(Kind::Delivery)).unwrap()
    }

    pub(crate) fn view(&self) -> View {
        View::decode(self.message(Kind::View)).unwrap()
    }

    pub(crate) fn request(&self) -> UnmaskRequest {
        UnmaskRequest::decode(self.message(Kind::UnmaskRequest)).unwrap()
    }

    /// The client again, as it was in a state.
    pub(crate) fn device(&self, state: &str) -> Device {
        let mut device = Device::begin(self.offer, ME, SEED).0;
        while name(&device.client) != state {
            self.step(&mut device).unwrap();
        }
        device
    }

    /// Says to a client, or does with it, what comes next; gives its answer. A member of the committee signs at the first
    /// chance.
    pub(crate) fn step(&self, device: &mut Device) -> Option<Vec<u8>> {
        let next = match &device.client {
            Client::AwaitNeighbourhood(_) => Kind::Neighbourhood,
            Client::AwaitDelivery(_) => Kind::Delivery,
            Client::Ready(_) => return Some(device.client.mask(&input(&self.terms, ME.0)).unwrap()),
            Client::AwaitUnmask(_) => Kind::UnmaskRequest,
            Client::Done | Client::Aborted => return None,
        };
        match device.receive(self.message(next)).unwrap() {
            Reply::Send(answer) => Some(answer.to_vec()),
            _ => Some(Vec::new()),
        }
    }

    /// Whether each message is one that its decoder reads.
    pub(crate) fn decodes(kind: usize, bytes: &[u8]) -> bool {
        match kind {
            0 => AdvertiseKeys::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            1 => Neighbourhood::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            2 => ShareKeys::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            3 => Delivery::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            4 => MaskedInput::decode(bytes).is_ok(),
            5 => View::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            6 => Agreement::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            7 => UnmaskRequest::decode(bytes).is_ok_and(|m| m.encode() == bytes),
            8 => UnmaskResponse::decode(bytes).is_ok_and(|m| *m.encode() == bytes),
            _ => Offer::decode(bytes).is_ok_and(|m| m.encode() == bytes),
        }
    }
}

/// The state that a client is in.
pub(crate) fn name(client: &Client) -> &'static str {
    match client {
        Client::AwaitNeighbourhood(_) => STATES[0],
        Client::AwaitDelivery(_) => STATES[1],
        Client::Ready(_) => STATES[2],
        Client::AwaitUnmask(_) => STATES[3],
        Client::Done => STATES[4],
        Client::Aborted => "Aborted",
    }
}

/// The whole rest of a client's story from where it is: what it says, unmolested.
pub(crate) fn finish(recorded: &Recorded, device: &mut Device) -> Vec<Vec<u8>> {
    let mut said = Vec::new();
    while let Some(answer) = recorded.step(device) {
        said.extend(Some(answer).filter(|a| !a.is_empty()));
    }
    said
}
