//! What devices say to a coordinator, in any order, with anything in it: tickets, messages of secure aggregation, reports.

use std::collections::BTreeSet;

use device::protocol::message::{Answer, CheckIn, DeviceKey, Next, Request, Says, Ticket, Wants};
use federated::protocol::{
    coordinator::{Coordinator, Report},
    desk::{Aggregation, Closed},
    secure::SecureDesk,
};
use privacy::stages::Encoded;
use prost::Message;
use secagg::{
    entropy::{Entropy, NoRandomness},
    parameters::{Adversary, Assumptions},
    session::{Inputs, Terms},
};

use super::{
    Front,
    uploads::{AT, TASK, coordinator, encoding, opening, round_key},
};

/// Devices that are enrolled.
pub(super) const DEVICES: u8 = 4;
/// Reports that the attempt wants.
const GOAL: u64 = 3;
pub(super) const DIMENSION: usize = 8;
/// The most events of an input.
const MOST_EVENTS: usize = 40;

/// Kinds of events, each with who, and bytes behind a length.
pub(super) const SAYS: u8 = 0;
pub(super) const SENDS: u8 = 1;
pub(super) const WAITS: u8 = 2;

/// Coins that repeat.
pub(super) struct Coins(pub(super) u64);

impl Entropy for Coins {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        for byte in buffer {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
        Ok(())
    }
}

pub(super) fn key(who: u8) -> DeviceKey {
    DeviceKey([who % DEVICES + 1; 32])
}

fn terms() -> Terms {
    let (dropout, corrupted) = (0.0, 0.0);
    let adversary = Adversary::Curious;
    Terms {
        task: TASK.0,
        model: [9; 32],
        round: 0,
        assumptions: Assumptions { dropout, corrupted, security_bits: 1, failure_bits: 20, adversary },
        most_clients: DEVICES.into(),
        least_survivors: 2,
        dimension: DIMENSION as u32,
        bits: 8,
        inputs: Inputs::Bounded { largest: 3 },
        most_evidence: 64,
    }
}

/// A coordinator whose attempt wants devices.
pub(super) fn begun(is_secure: bool) -> Coordinator {
    let devices: Vec<DeviceKey> = (0..DEVICES).map(key).collect();
    let (mut coordinator, _) = coordinator(GOAL, &devices);
    let aggregation = if is_secure {
        Aggregation::Secure(Box::new(SecureDesk::new(terms(), 3, Box::new(Coins(1)))))
    } else {
        Aggregation::Plain(encoding(DIMENSION))
    };
    coordinator.open(opening(GOAL, aggregation), 0).unwrap();
    coordinator
}

/// What a device speaks with once it is given the attempt.
pub(super) fn ticket(device: &DeviceKey) -> Ticket {
    round_key().ticket(&AT, &[9; 32], device)
}

/// Everything that was said, and what came of it.
struct Story {
    coordinator: Coordinator,
    now: u64,
    requests: u64,
    answered: BTreeSet<u64>,
    /// Whose reports were taken.
    taken: BTreeSet<DeviceKey>,
}

impl Story {
    fn says(&mut self, who: DeviceKey, bytes: &[u8]) {
        let Some(mut wants) = Request::decode(bytes).ok().and_then(|request| request.wants) else { return };
        match &mut wants {
            Wants::CheckIn(CheckIn { patience_ms, .. }) | Wants::Next(Next { patience_ms, .. }) => {
                *patience_ms %= 5_000
            }
            Wants::Enrol(_) | Wants::Secure(_) => {}
        }
        self.requests += 1;
        self.coordinator.said(self.requests, who, &wants, self.now).unwrap();
        self.hear();
        if bytes.len().is_multiple_of(5) {
            self.requests += 1;
            self.coordinator.said_before(self.requests, who, &wants, self.now);
            self.hear();
            assert!(self.answered.contains(&self.requests), "what is played again waits for nothing");
        }
    }

    fn sends(&mut self, who: DeviceKey, bytes: &[u8]) {
        let ticket = ticket(&who);
        let Ok(expected) = self.coordinator.begins(&ticket, self.now) else { return };
        assert_eq!(expected.device, who);
        let report = match &expected.encoding {
            Some(encoding) => match Encoded::check(bytes, encoding) {
                Ok(encoded) => Report::Plain(encoded),
                Err(_) => return,
            },
            None => Report::Masked(bytes.to_vec()),
        };
        self.requests += 1;
        self.coordinator.report(self.requests, &ticket, &report, self.now).unwrap();
        if self.hear() {
            self.taken.insert(who);
        }
    }

    /// What may be said now; whether the last request was told that its bytes arrived.
    fn hear(&mut self) -> bool {
        let mut arrived = false;
        for (request, Answer { says }) in self.coordinator.flush().unwrap() {
            assert!(request <= self.requests && self.answered.insert(request), "an answer to nobody, or a second one");
            match says {
                Some(Says::Received(_)) => arrived |= request == self.requests,
                Some(_) => {}
                None => panic!("an answer that says nothing"),
            }
        }
        arrived
    }
}

/// The first byte says whether sums are secure. It is taken where the attempt comes to a sum, or to its unmasking.
pub(super) fn conversation(bytes: &[u8]) -> bool {
    let mut front = Front(bytes);
    let Some([secure]) = front.take() else { return false };
    let (answered, taken) = (BTreeSet::new(), BTreeSet::new());
    let mut story = Story { coordinator: begun(secure & 1 == 1), now: 0, requests: 0, answered, taken };
    for _ in 0..MOST_EVENTS {
        let Some([kind, who]) = front.take() else { break };
        let Some(piece) = front.piece() else { break };
        match kind % 3 {
            SAYS => story.says(key(who), piece),
            SENDS => story.sends(key(who), piece),
            _ => {
                story.now += piece.iter().map(|byte| u64::from(*byte) * 100).sum::<u64>();
                story.coordinator.tick(story.now).unwrap();
                story.hear();
            }
        }
    }
    match story.coordinator.take_closed(&TASK) {
        None | Some(Closed::Failed(..)) => false,
        Some(Closed::Masked(_)) => true,
        Some(Closed::Sum(_, devices)) => {
            assert_eq!(devices.len() as u64, GOAL, "exactly the goal's");
            assert_eq!(devices.iter().copied().collect::<BTreeSet<_>>(), story.taken, "each of them once");
            true
        }
    }
}
