//! A device in secure aggregation: the real client of `secagg`, on a network that loses, doubles and reorders.

use std::rc::Rc;

use device::protocol::message::{Assignment, SecureMessage};
use privacy::{
    encoding::Encoding,
    stages::{Encoded, Residues},
};
use secagg::{
    client::{Client, Reply},
    directory::Everybody,
    parameters::{Adversary, Floor},
    session::Offer,
};

use super::{Chance, Doing, World};

/// What a device asks for at least: these are few, and nobody has secrets.
const FLOOR: Floor =
    Floor { clients: 3, survivors: 2, corrupted: 0.0, dropout: 0.0, security_bits: 40, adversary: Adversary::Curious };

/// What a device has of a secure attempt. It is gone when the device crashes.
pub(super) struct SecurePart {
    client: Client,
    residues: Residues,
    chance: Chance,
    /// What it says until it is heard.
    message: Vec<u8>,
    masked: Option<Rc<[u8]>>,
}

impl SecurePart {
    pub(super) fn begin(assignment: &Assignment, encoding: &Encoding, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let offer = Offer::decode(&assignment.offer).unwrap();
        let residues = Residues::new(encoding, offer.terms.most_clients.into()).unwrap();
        let (client, message) = Client::begin(offer, FLOOR, &Everybody, &mut chance).unwrap();
        Self { client, residues, chance, message, masked: None }
    }

    pub(super) fn says(&self, assignment: &Assignment) -> SecureMessage {
        SecureMessage { ticket: assignment.ticket.clone(), message: self.message.clone() }
    }

    pub(super) fn masked(&self) -> Option<Rc<[u8]>> {
        self.masked.clone()
    }

    /// Masks its input, once. Says whether it could.
    pub(super) fn mask(&mut self, input: &Encoded) -> bool {
        let masked = self.client.mask(&self.residues.of(input).unwrap());
        self.masked = masked.ok().map(Rc::from);
        self.masked.is_some()
    }
}

impl World {
    /// A device is told something of secure aggregation.
    pub(super) fn hears_secure(&mut self, device: usize, assignment: Box<Assignment>, message: &[u8]) {
        let Some(part) = &mut self.devices[device].secure else { return };
        match part.client.receive(message, &Everybody, &mut part.chance) {
            Ok(Reply::Send(answer)) => {
                part.message = answer.to_vec();
                self.devices[device].doing = Doing::Speaking(assignment);
                self.wake(device, 10);
            }
            Ok(Reply::Ready) => self.works(device, assignment),
            Ok(Reply::Ignored(_)) => {
                self.devices[device].doing = Doing::Asking(assignment);
                self.wake(device, 1_000);
            }
            // A device that said its keys before it crashed finds others in the directory, and leaves.
            Err(_) => self.gives_up(device),
        }
    }
}
