//! Secure aggregation in one attempt: the next message for each device, and the end of each phase.
//!
//! The protocol is that of the crate `secagg` (`docs/SECAGG.md`); here is what a network adds to it: devices ask what comes next, answer
//! in their own time, say things twice, and vanish. A phase ends when everybody has answered or its time is over and those
//! who have suffice; then devices that have not answered have dropped out.

use std::collections::{BTreeMap, BTreeSet};

use device::protocol::message::DeviceKey;
use ledger::FailureReason;
use secagg::{
    ClientId,
    directory::Everybody,
    entropy::Entropy,
    server::{
        CollectAgreement, CollectKeys, CollectMasked, CollectShares, CollectUnmask, Connect, Parallel, Refusal,
        RoundFailure,
    },
    session::{Offer, Terms},
};

use super::windows::Windows;

/// A source of the coin of each session.
pub type Coins = Box<dyn Entropy + Send>;

/// Why an attempt failed, where it is the protocol that failed: devices vanished, or did not keep to it. The reason names nobody, not
/// even where the protocol does: that a secret was dealt wrongly is said by those who hold its shares, and proves nothing of who
/// lied.
#[must_use]
pub const fn failure_reason(failure: &RoundFailure) -> Option<FailureReason> {
    match failure {
        RoundFailure::Terms(_) | RoundFailure::NoRandomness(_) | RoundFailure::Unfinished => None,
        RoundFailure::TooFew { .. } | RoundFailure::Parameters(_) => Some(FailureReason::BelowGoal),
        RoundFailure::OutOfReach { .. } | RoundFailure::NotAgreed { .. } => Some(FailureReason::OutOfReach),
        _ => Some(FailureReason::NotWhole),
    }
}

/// A secure aggregation while it is open.
pub struct SecureDesk {
    terms: Terms,
    least_clients: u64,
    coins: Coins,
    phase: Phase,
    /// Devices by their numbers in the session.
    devices: Vec<DeviceKey>,
    numbers: BTreeMap<DeviceKey, ClientId>,
    /// Who has answered in this phase.
    answered: BTreeSet<ClientId>,
    windows: Option<Windows>,
    until: u64,
    /// Since when enough inputs are there for a sum: the others have the time of an answer from then on.
    enough_since: Option<u64>,
    /// Who was asked for what comes before the sum, and did not answer in time.
    dropped: u64,
}

/// The phase of the secure aggregation.
enum Phase {
    Before,
    Keys(CollectKeys),
    Shares(CollectShares),
    Masked(CollectMasked),
    Agreement(CollectAgreement),
    Unmask(CollectUnmask),
    Over,
}

impl Phase {
    const fn word(&self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Keys(_) => "keys",
            Self::Shares(_) => "shares",
            Self::Masked(_) => "masked inputs",
            Self::Agreement(_) => "agreement",
            Self::Unmask(_) => "unmasking",
            Self::Over => "over",
        }
    }
}

impl std::fmt::Debug for SecureDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecureDesk({})", self.phase.word())
    }
}

/// The remaining work once all answers have arrived: removing the masks.
#[derive(Debug)]
pub struct Unmasking {
    server: CollectUnmask,
    devices: Vec<DeviceKey>,
}

/// A sum of masked vectors without its masks.
#[derive(Debug)]
pub struct Unmasked {
    /// The residues of the sum.
    pub sum: zeroize::Zeroizing<Vec<u32>>,
    /// Whose inputs are in it, in the order of their keys.
    pub survivors: Vec<DeviceKey>,
}

impl Unmasking {
    /// Everybody who was given the task.
    #[must_use]
    pub fn devices(&self) -> &[DeviceKey] {
        &self.devices
    }

    /// Takes the masks off, on as many threads as there are.
    ///
    /// # Errors
    /// When the masks do not cancel: there is no sum then, and never a wrong one.
    pub fn finish(self, parallel: &dyn Parallel) -> Result<Unmasked, RoundFailure> {
        let outcome = self.server.close(parallel)?;
        let device = |client: &ClientId| self.devices.get(client.0 as usize).copied();
        let mut survivors: Vec<DeviceKey> = outcome.survivors.iter().filter_map(device).collect();
        survivors.sort_unstable();
        Ok(Unmasked { sum: outcome.sum, survivors })
    }
}

/// The answer to a device in secure aggregation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hears {
    /// A message.
    Message(Vec<u8>),
    /// No message yet.
    Nothing,
    /// It has dropped out, or has done all that it can.
    NoMore,
}

impl SecureDesk {
    /// On terms, with coins from somewhere; it does not begin with fewer than so many devices.
    #[must_use]
    pub fn new(terms: Terms, least_clients: u64, coins: Coins) -> Self {
        Self {
            terms,
            least_clients,
            coins,
            phase: Phase::Before,
            devices: Vec::new(),
            numbers: BTreeMap::new(),
            answered: BTreeSet::new(),
            windows: None,
            until: 0,
            enough_since: None,
            dropped: 0,
        }
    }

    /// The fewest devices that it begins with.
    #[must_use]
    pub const fn least_clients(&self) -> u64 {
        self.least_clients
    }

    /// The most devices.
    #[must_use]
    pub fn most_clients(&self) -> u64 {
        self.terms.most_clients.into()
    }

    /// The bytes of a masked input.
    #[must_use]
    pub fn input_bytes(&self, device: &DeviceKey) -> Option<usize> {
        match &self.phase {
            Phase::Masked(server) => server.upload(*self.numbers.get(device)?).ok().map(|upload| upload.expected()),
            _ => None,
        }
    }

    /// Whether inputs are asked for, or were.
    #[must_use]
    pub const fn asks_for_inputs(&self) -> bool {
        !matches!(self.phase, Phase::Before | Phase::Keys(_) | Phase::Shares(_))
    }

    /// Whether inputs are what comes next.
    #[must_use]
    pub(super) const fn awaits_inputs(&self) -> bool {
        matches!(self.phase, Phase::Masked(_))
    }

    /// What devices are offered, once it has begun.
    #[must_use]
    pub fn offer(&self) -> Option<&Offer> {
        match &self.phase {
            Phase::Keys(server) => Some(server.offer()),
            _ => None,
        }
    }

    /// Begins with these devices.
    ///
    /// # Errors
    /// When the terms have no meaning, or there is no randomness.
    pub fn begin(&mut self, devices: &[DeviceKey], windows: &Windows, now: u64) -> Result<(), RoundFailure> {
        self.devices = devices.to_vec();
        self.numbers = devices.iter().zip(0..).map(|(device, number)| (*device, ClientId(number))).collect();
        self.windows = Some(*windows);
        let server = CollectKeys::open(self.terms, &mut *self.coins)?;
        self.enter(Phase::Keys(server), now);
        Ok(())
    }

    fn enter(&mut self, phase: Phase, now: u64) {
        let windows = self.windows.as_ref();
        let time = match &phase {
            Phase::Masked(_) => windows.map_or(0, |w| w.report_ms),
            _ => windows.map_or(0, |w| w.answer_ms),
        };
        self.phase = phase;
        self.until = now + time;
        self.enough_since = None;
        self.answered.clear();
    }

    /// What a device is to hear next.
    #[must_use]
    pub fn next(&self, device: &DeviceKey) -> Hears {
        let Some(client) = self.numbers.get(device).copied() else { return Hears::NoMore };
        if self.answered.contains(&client) {
            return Hears::Nothing;
        }
        let message = match &self.phase {
            Phase::Before | Phase::Keys(_) => return Hears::Nothing,
            Phase::Shares(server) => server.neighbourhood(client),
            Phase::Masked(server) => server.delivery(client),
            // Who is not in the committee waits until it is asked to unmask.
            Phase::Agreement(server) => return server.view(client).map_or(Hears::Nothing, Hears::Message),
            Phase::Unmask(server) => server.request(client),
            Phase::Over => None,
        };
        message.map_or(Hears::NoMore, Hears::Message)
    }

    /// A message of a device. One that was said before is taken for what it is.
    ///
    /// # Errors
    /// When it is not what the protocol expects of this device now.
    pub fn receive(&mut self, device: &DeviceKey, bytes: &[u8]) -> Result<(), Refusal> {
        let client = self.numbers.get(device).copied().ok_or(Refusal::Stranger(ClientId(u64::MAX)))?;
        let taken = match &mut self.phase {
            Phase::Keys(server) => server.receive(client, bytes, &Everybody),
            Phase::Shares(server) => server.receive(client, bytes),
            Phase::Masked(server) => server.receive(client, bytes),
            Phase::Agreement(server) => server.receive(client, bytes),
            Phase::Unmask(server) => server.receive(client, bytes),
            Phase::Before | Phase::Over => Err(Refusal::Stranger(client)),
        };
        match taken {
            Ok(()) => {
                self.answered.insert(client);
                Ok(())
            }
            Err(Refusal::Repeated(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Time passes, or somebody has answered: the next phase, where it is time for it. Gives the end, or why there is none.
    pub fn tick(&mut self, now: u64) -> Option<Result<Unmasking, FailureReason>> {
        if matches!(&self.phase, Phase::Masked(server) if server.can_close().is_ok()) {
            self.enough_since.get_or_insert(now);
        }
        while self.is_due(now) {
            match self.advance() {
                Ok(Advanced::To(phase)) => self.enter(phase, now),
                Ok(Advanced::Complete(server)) => {
                    return Some(Ok(Unmasking { server, devices: std::mem::take(&mut self.devices) }));
                }
                Err(failure) => return Some(Err(failure_reason(&failure).unwrap_or(FailureReason::NotWhole))),
            }
        }
        None
    }

    /// Whether the phase is over: everybody has answered, or the time is over.
    fn is_due(&self, now: u64) -> bool {
        let Some(expected) = self.expected() else { return false };
        let answer_ms = self.windows.as_ref().map_or(0, |windows| windows.answer_ms);
        let enough = self.enough_since.is_some_and(|since| now > since + answer_ms);
        self.answered.len() >= expected || enough || now > self.until
    }

    /// How many are to answer in this phase.
    fn expected(&self) -> Option<usize> {
        Some(match &self.phase {
            Phase::Before | Phase::Over => return None,
            Phase::Keys(_) => self.devices.len(),
            Phase::Shares(server) => server.clients().count(),
            Phase::Masked(server) => server.clients().count(),
            Phase::Agreement(server) => server.clients().count(),
            Phase::Unmask(server) => server.clients().count(),
        })
    }

    /// Ends the phase. Devices that have not answered have dropped out.
    fn advance(&mut self) -> Result<Advanced, RoundFailure> {
        if matches!(self.phase, Phase::Keys(_) | Phase::Shares(_) | Phase::Masked(_)) {
            self.dropped += self.expected().unwrap_or(0).saturating_sub(self.answered.len()) as u64;
        }
        Ok(match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Before | Phase::Over => Advanced::To(Phase::Over),
            Phase::Keys(server) => Advanced::To(Phase::Shares(server.close(Connect::Found)?)),
            Phase::Shares(server) => Advanced::To(Phase::Masked(server.close()?)),
            Phase::Masked(server) => Advanced::To(Phase::Agreement(server.close()?)),
            Phase::Agreement(server) => Advanced::To(Phase::Unmask(server.close()?)),
            Phase::Unmask(server) => {
                server.can_close()?;
                Advanced::Complete(server)
            }
        })
    }

    /// How many devices answered all that they were asked for until their inputs had arrived, and how many did not. Where an attempt was spoiled before
    /// that, the others have not dropped out: a device that spoils one would have as many as there may be asked for the next.
    #[must_use]
    pub fn seen(&self) -> (u64, u64) {
        ((self.numbers.len() as u64).saturating_sub(self.dropped), self.dropped)
    }
}

/// What comes after a phase.
enum Advanced {
    /// The next phase.
    To(Phase),
    /// All answers have arrived.
    Complete(CollectUnmask),
}

#[cfg(test)]
mod tests {
    use privacy::{
        Adjacency, ClipNorm,
        encoding::{Encoding, VectorPlan},
        stages::Residues,
    };
    use secagg::{
        client::Client,
        entropy::OsEntropy,
        parameters::{Adversary, Assumptions, Floor},
        session::Inputs,
    };

    use super::*;

    const WINDOWS: Windows = Windows { select_ms: 1, report_ms: 1_000, answer_ms: 1_000, tick_ms: 1 };

    /// A secure attempt of six devices, which are asked for their keys.
    fn asks_for_keys() -> (SecureDesk, Vec<DeviceKey>) {
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let residues = Residues::new(&encoding, 6).unwrap();
        let terms = Terms {
            task: [1; 32],
            model: [9; 32],
            round: 0,
            assumptions: Assumptions::new(0.3, 0.0, Adversary::Curious),
            most_clients: 6,
            least_survivors: 4,
            dimension: residues.len() as u32,
            bits: residues.bits(),
            inputs: Inputs::Bounded { largest: residues.largest() },
            most_evidence: 0,
        };
        let mut desk = SecureDesk::new(terms, 6, Box::new(OsEntropy));
        let devices: Vec<DeviceKey> = (1..=6).map(|byte| DeviceKey([byte; 32])).collect();
        desk.begin(&devices, &WINDOWS, 0).unwrap();
        (desk, devices)
    }

    /// A device that spoiled an attempt before its inputs were asked for made everybody in it count as dropped out: the next one asked as many as there may be.
    #[test]
    fn a_spoiled_attempt_counts_only_those_who_did_not_answer() {
        let (mut desk, devices) = asks_for_keys();
        assert_eq!(desk.seen(), (6, 0), "nothing was asked for in vain");
        let floor = Floor { clients: 3, survivors: 2, corrupted: 0.0, dropout: 0.0, ..Floor::default() };
        let offer = *desk.offer().unwrap();
        for device in &devices[..5] {
            let (_, keys) = Client::begin(offer, floor, &Everybody, &mut OsEntropy).unwrap();
            desk.receive(device, &keys).unwrap();
        }
        assert!(desk.tick(1_000).is_none());
        assert_eq!((desk.phase.word(), desk.seen()), ("keys", (6, 0)), "there is time");
        assert!(desk.tick(1_001).is_none());
        assert_eq!((desk.phase.word(), desk.seen()), ("shares", (5, 1)));
        desk.receive(&devices[0], b"this is no share").unwrap_err();
        assert!(desk.tick(2_002).is_some_and(|end| end.is_err()), "nobody sent shares");
        assert_eq!(desk.seen(), (0, 6), "and all were asked for them");
    }
}
