//! Computes how many neighbours each client shares its secrets with, and how many of them can open one.
//!
//! Of n clients a fraction gamma may be corrupted (they tell the server all they know) and a fraction delta may drop
//! out. Each client has k neighbours on a random ring, among whom its two secrets are shared with threshold t (Bell et
//! al., CCS 2020). The server may open one secret of each client: which one depends on whether it dropped out. With
//! both it would see the client's input. So (n, k, t) must keep three promises:
//!
//! - *secrecy*: no honest client has so many corrupted neighbours that both its secrets can be opened: with c of them a
//!   curious server needs t <= c.
//! - *connectivity*: the honest clients that remain are one connected graph, so that only the sum over all of them is
//!   free of masks.
//! - *correctness*: each client has t neighbours that remain.
//!
//! The first two fail with a chance of at most 2^-sigma together, the third with at most 2^-eta. [`Parameters::find`]
//! takes the smallest degree that keeps all three, and for the few clients that no ring can serve the complete graph,
//! where nothing is left to chance. [`Parameters::check_floor`] is what a device requires of parameters, no matter who proposes
//! them.
//!
//! **A server that lies** about who dropped out and who shared (semi-malicious) is held to one story by a [`Committee`],
//! whose quorum signs it. With one story it can still tell some clients S that others never shared, and so cut them off
//! from the rest before there is a story. It is kept from that by 2 t > k + c, where c counts the corrupted in *any* two
//! half-windows of the ring, k/2 places in a row each, with somebody between them on both sides:
//!
//! - A client that opens anything was told the truth, by the story, of all its neighbours. So an honest neighbour that is
//!   alive in the story either has a mask with it that cancels, or shows a mask that never does.
//! - If nobody of S opens anything, the shares of a client s in S come from neighbours that s was told to be absent. It
//!   has been told of t who are present, and t others give a share; the corrupted count twice: 2 t <= k + c, with c the
//!   corrupted among the k neighbours, which are two half-windows.
//! - If somebody of S does, take the one of them nearest to the rest on one side. The k/2 places next to it on that side
//!   hold nobody honest who opens anything, so at least t - k/2 of them are corrupted. On the other side it is the same,
//!   with other places: c >= 2 t - k in two half-windows.
//!
//! There are n (n - k - 1) / 2 pairs of half-windows. Connectivity follows, and is asked for all the same. The ring and
//! the committee follow from what the server and its clients can try again until they like it: [`GROUND_BITS`] such
//! tries are counted, so that each condition has G bits more than sigma.
//!
//! Fractions of clients are rounded down: 5 % of 19 clients is nobody.

mod committee;
mod error;
#[cfg(test)]
mod exact;
mod hypergeometric;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

use self::hypergeometric::{Hypergeometric, ln_choose};
pub use self::{
    committee::{Committee, EVERYBODY},
    error::{ParameterError, UnknownAdversary},
};

/// The fewest clients that can aggregate: each needs two others to share a secret with.
pub const LEAST_CLIENTS: u32 = 3;

/// The most clients of one sum.
pub const MOST_CLIENTS: u32 = 1 << 20;

/// The most bits of security, or against failure, that can be asked for.
pub const MOST_BITS: u32 = 128;

/// G: a semi-malicious server can draw the ring and the committee 2^G times, by trying coins, or keys of its clients, and
/// keep what it likes best. 2^64 hashes are beyond what a round has time for.
pub const GROUND_BITS: u32 = 64;

/// Bounds on chances are kept with this much to spare in their logarithm, so that rounding never decides for the unsafe
/// side: with 2^20 clients the logarithm of a factorial is 1.4e7, and its last digit 2e-9.
const TO_SPARE: f64 = 1e-6;

/// A fraction that means a whole number of clients may be so much short of it: 0.29 * 100 is 28.999999999999996.
const ROUNDING: f64 = 1e-14;

/// The adversary class of the server, which colludes with the corrupted clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Adversary {
    /// It follows the protocol, and looks at everything that it sees.
    Curious,
    /// It also lies about who shared and who dropped out, to each client as it likes.
    SemiMalicious,
}

impl Adversary {
    /// The most corrupted neighbours with which a client's input is still safe; none if it never is.
    fn withstood(self, degree: u32, threshold: u32) -> Option<u32> {
        match self {
            Self::Curious => threshold.checked_sub(1),
            Self::SemiMalicious => (2 * threshold).checked_sub(degree + 1),
        }
    }

    /// The least threshold with which a client's input is safe in spite of `corrupted` neighbours.
    fn threshold(self, degree: u32, corrupted: u32) -> u32 {
        match self {
            // A threshold of 1 would give each neighbour the secret itself.
            Self::Curious => (corrupted + 1).max(2),
            Self::SemiMalicious => (degree + corrupted) / 2 + 1,
        }
    }
}

impl fmt::Display for Adversary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curious => "curious",
            Self::SemiMalicious => "semi-malicious",
        })
    }
}

impl FromStr for Adversary {
    type Err = UnknownAdversary;
    fn from_str(text: &str) -> Result<Self, UnknownAdversary> {
        [Self::Curious, Self::SemiMalicious]
            .into_iter()
            .find(|a| a.to_string() == text)
            .ok_or_else(|| UnknownAdversary(text.chars().take(40).collect()))
    }
}

/// The assumptions that a round must withstand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    /// delta: the fraction of clients that may drop out after they have sent their keys.
    pub dropout: f64,
    /// gamma: the fraction of clients that may be on the server's side.
    pub corrupted: f64,
    /// sigma: secrecy fails with a chance of at most 2^-sigma.
    pub security_bits: u32,
    /// eta: a round whose drop-outs are within the bound fails with a chance of at most 2^-eta.
    pub failure_bits: u32,
    /// The adversary class of the server.
    pub adversary: Adversary,
}

impl Assumptions {
    /// Assumptions with 40 security bits and 20 failure bits.
    #[must_use]
    pub fn new(dropout: f64, corrupted: f64, adversary: Adversary) -> Self {
        Self { dropout, corrupted, security_bits: 40, failure_bits: 20, adversary }
    }

    /// Refuses what has no meaning, and what no graph withstands, however many clients there are.
    ///
    /// # Errors
    /// Which number is out of range.
    pub fn check(&self) -> Result<(), ParameterError> {
        let Self { dropout, corrupted, adversary, .. } = *self;
        check_fractions(corrupted, dropout)?;
        check_bits("security", 1, self.security_bits)?;
        check_bits("failure", 1, self.failure_bits)?;
        let together = match adversary {
            Adversary::Curious => corrupted + dropout,
            Adversary::SemiMalicious => corrupted + 2.0 * dropout,
        };
        if together > 0.9 + ROUNDING {
            return Err(ParameterError::TooAdverse { adversary, corrupted, dropout });
        }
        Ok(())
    }

    /// The most of `clients` that may drop out.
    #[must_use]
    pub fn most_dropped(&self, clients: u32) -> u32 {
        part(self.dropout, clients)
    }

    /// The most of `clients` that may be corrupted.
    #[must_use]
    pub fn most_corrupted(&self, clients: u32) -> u32 {
        part(self.corrupted, clients)
    }
}

/// The most corrupted clients in a part of a round that is drawn at random, except with a chance of 2^-`bits`: a part can have
/// more than its share.
#[must_use]
pub fn most_corrupted_in(clients: u32, corrupted: u32, part: u32, bits: u32) -> u32 {
    let drawn = Hypergeometric::new(clients, corrupted, part);
    let rare = |most: &u32| drawn.ln_above(*most) + TO_SPARE <= ln_power_of_half(bits);
    (0..part.min(corrupted)).find(rare).unwrap_or(part.min(corrupted))
}

/// The least that a device asks of the parameters of a round, whatever the server says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// The fewest clients.
    pub clients: u32,
    /// The fewest of whom a sum may be opened.
    pub survivors: u32,
    /// The fraction of clients that may be on the server's side.
    pub corrupted: f64,
    /// The fraction of clients that may drop out.
    pub dropout: f64,
    /// Secrecy fails with a chance of at most 2^-`security_bits`.
    pub security_bits: u32,
    /// What the server may do.
    pub adversary: Adversary,
}

impl Default for Floor {
    /// A hundred clients and no sum of fewer than fifty, since in a smaller sum an input is not well hidden however it is
    /// masked; one in ten of them
    /// corrupted and one in twenty dropped, below which no deployment should plan; 40 bits; a curious server, which is
    /// where deployments begin. A device that does not take the server's word on drop-outs raises the last.
    fn default() -> Self {
        Self {
            clients: 100,
            survivors: 50,
            corrupted: 0.1,
            dropout: 0.05,
            security_bits: 40,
            adversary: Adversary::Curious,
        }
    }
}

impl Floor {
    /// Insecure: asks for nothing. For tests and benchmarks.
    #[cfg(any(test, feature = "insecure"))]
    #[must_use]
    pub fn none() -> Self {
        Self { clients: 0, survivors: 0, corrupted: 0.0, dropout: 0.0, security_bits: 0, adversary: Adversary::Curious }
    }

    /// The stricter of this and what an offer promises: a device holds the server to its own words too.
    #[must_use]
    pub fn raised_to(self, promised: &Assumptions) -> Self {
        Self {
            corrupted: self.corrupted.max(promised.corrupted),
            dropout: self.dropout.max(promised.dropout),
            security_bits: self.security_bits.max(promised.security_bits),
            adversary: self.adversary.max(promised.adversary),
            ..self
        }
    }

    /// Refuses what has no meaning.
    ///
    /// # Errors
    /// Which number is out of range.
    pub fn check(&self) -> Result<(), ParameterError> {
        check_fractions(self.corrupted, self.dropout)?;
        check_bits("security", 0, self.security_bits)
    }
}

/// The graph of a round, the threshold of its secrets, and who signs what became of everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    clients: u32,
    degree: u32,
    threshold: u32,
    committee: Option<Committee>,
}

impl Parameters {
    /// Finds the parameters of the smallest degree that withstand the assumptions.
    ///
    /// # Errors
    /// When the assumptions have no meaning or nothing withstands them: which condition cannot hold, what to change.
    pub fn find(clients: u32, assumptions: &Assumptions) -> Result<Self, ParameterError> {
        assumptions.check()?;
        check_clients(clients)?;
        let adversity = Adversity::of_assumptions(clients, assumptions);
        adversity.check_company()?;
        let committee = Committee::find(&adversity, assumptions.failure_bits)?;
        let Adversity { corrupted, dropped, adversary, .. } = adversity;
        let complete = clients - 1;

        // The larger the degree, the surer the connection.
        let (mut disconnected, mut least) = (0, complete.div_ceil(2));
        while disconnected + 1 < least {
            let middle = disconnected.midpoint(least);
            if adversity.is_connected(2 * middle) {
                least = middle;
            } else {
                disconnected = middle;
            }
        }
        // It is more likely than not that a client has as many corrupted neighbours as it has on average, rounded down.
        let average = u64::from(2 * least) * u64::from(corrupted) / u64::from(clients);
        let mut neighbours = u32::try_from(average).unwrap_or(corrupted);
        for degree in (2 * least..complete).step_by(2).chain([complete]) {
            // More neighbours have as many corrupted ones among them, or more.
            while !adversity.has_at_most(degree, neighbours) {
                neighbours += 1;
            }
            let threshold = adversary.threshold(degree, neighbours);
            if adversity.leaves(degree, threshold, assumptions.failure_bits) {
                return Ok(Self { clients, degree, threshold, committee });
            }
        }
        let (threshold, alive) = (adversary.threshold(complete, corrupted), complete.saturating_sub(dropped));
        Err(ParameterError::NoThreshold { clients, adversary, corrupted, dropped, threshold, alive })
    }

    /// Parameters that someone proposes. They are well-formed, and nothing more is known of them: see
    /// [`Self::check_floor`].
    ///
    /// # Errors
    /// Which of them has no meaning.
    pub fn from_parts(
        clients: u32,
        degree: u32,
        threshold: u32,
        committee: Option<Committee>,
    ) -> Result<Self, ParameterError> {
        check_clients(clients)?;
        let complete = clients - 1;
        if degree != complete && (degree == 0 || degree > complete || !degree.is_multiple_of(2)) {
            return Err(ParameterError::Degree { clients, degree });
        }
        if !(2..=degree).contains(&threshold) {
            return Err(ParameterError::Threshold { degree, threshold });
        }
        committee.map_or(Ok(()), |committee| committee.check(clients))?;
        Ok(Self { clients, degree, threshold, committee })
    }

    /// Insecure: those that a benchmark likes, whatever they withstand.
    ///
    /// # Errors
    /// Which of them has no meaning.
    #[cfg(any(test, feature = "insecure"))]
    pub fn insecure(clients: u32, degree: u32, threshold: u32) -> Result<Self, ParameterError> {
        Self::from_parts(clients, degree, threshold, None)
    }

    /// Refuses what is below a device's floor: too few clients, secrecy or connectivity that fails too often, or a
    /// committee that could sign two stories.
    /// Whether the round survives drop-outs is the server's concern.
    ///
    /// # Errors
    /// What is below the floor.
    pub fn check_floor(&self, floor: &Floor) -> Result<(), ParameterError> {
        floor.check()?;
        let Self { clients, degree, threshold, .. } = *self;
        if clients < floor.clients {
            return Err(ParameterError::FewClients { clients, floor: floor.clients });
        }
        let adversity = Adversity::of_floor(clients, floor);
        adversity.check_company()?;
        let Adversity { corrupted, dropped, security_bits: bits, adversary, .. } = adversity;
        if !adversity.is_connected(degree) {
            return Err(ParameterError::Disconnected { clients, degree, gone: corrupted + dropped, bits });
        }
        let withstood = adversary.withstood(degree, threshold);
        if !withstood.is_some_and(|neighbours| adversity.has_at_most(degree, neighbours)) {
            return Err(ParameterError::Exposed { clients, degree, threshold, adversary, corrupted, bits });
        }
        match (adversary, self.committee) {
            (Adversary::Curious, _) => Ok(()),
            (Adversary::SemiMalicious, Some(committee)) => committee.check_floor(&adversity),
            (Adversary::SemiMalicious, None) => Err(ParameterError::NoCommittee),
        }
    }

    /// n, k, t, m and q; the last two are 0 where nobody signs.
    pub(crate) fn to_parts(self) -> [u32; 5] {
        let (size, quorum) = self.committee.map_or((0, 0), |c| (c.size, c.quorum));
        [self.clients, self.degree, self.threshold, size, quorum]
    }

    /// n: clients.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// k: neighbours of each client, among whom its secrets are shared.
    #[must_use]
    pub fn degree(&self) -> u32 {
        self.degree
    }

    /// t: shares that open a secret.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// The committee that signs the view; none against a curious server.
    #[must_use]
    pub fn committee(&self) -> Option<Committee> {
        self.committee
    }

    /// Whether everybody is everybody's neighbour.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.degree == self.clients - 1
    }
}

/// n, k, t, m and q.
impl TryFrom<[u32; 5]> for Parameters {
    type Error = ParameterError;
    fn try_from([clients, degree, threshold, size, quorum]: [u32; 5]) -> Result<Self, ParameterError> {
        let committee = ((size, quorum) != (0, 0)).then_some(Committee { size, quorum });
        Self::from_parts(clients, degree, threshold, committee)
    }
}

/// Assumptions, or a floor, in numbers of clients.
#[derive(Debug, Clone, Copy)]
struct Adversity {
    clients: u32,
    corrupted: u32,
    dropped: u32,
    security_bits: u32,
    adversary: Adversary,
}

impl Adversity {
    fn of_assumptions(clients: u32, assumptions: &Assumptions) -> Self {
        let Assumptions { security_bits, adversary, .. } = *assumptions;
        let (corrupted, dropped) = (assumptions.most_corrupted(clients), assumptions.most_dropped(clients));
        Self { clients, corrupted, dropped, security_bits, adversary }
    }

    fn of_floor(clients: u32, floor: &Floor) -> Self {
        let Floor { security_bits, adversary, .. } = *floor;
        let (corrupted, dropped) = (part(floor.corrupted, clients), part(floor.dropout, clients));
        Self { clients, corrupted, dropped, security_bits, adversary }
    }

    /// Whether two honest clients are sure to remain.
    fn check_company(&self) -> Result<(), ParameterError> {
        let Self { clients, corrupted, dropped, .. } = *self;
        if clients < corrupted + dropped + 2 {
            return Err(ParameterError::NoCompany { clients, corrupted, dropped });
        }
        Ok(())
    }

    fn is_complete(&self, degree: u32) -> bool {
        degree == self.clients - 1
    }

    /// Whether the honest clients that remain are connected, except with half the chance that secrecy may fail with.
    ///
    /// A ring falls apart only if in two places k/2 clients in a row are gone. There are n (n - k - 1) / 2 such pairs
    /// of places, and the k clients of each are all gone with a chance of C(gone, k) / C(n, k).
    fn is_connected(&self, degree: u32) -> bool {
        if self.is_complete(degree) {
            return true;
        }
        let gone = ln_choose(self.corrupted + self.dropped, degree) - ln_choose(self.clients, degree);
        self.ln_pairs(degree) + gone + TO_SPARE < self.ln_half_security()
    }

    /// Whether every honest client has at most so many corrupted neighbours, except with half the chance that secrecy
    /// may fail with; against a server that lies, whether any two half-windows have.
    ///
    /// The neighbours of a client are a random k of all n, if one does not know whether it is honest itself. So
    /// n P[Hyp(n, corrupted, k) > neighbours] is the number of clients, corrupted ones included, that are expected to
    /// have more. Two half-windows are a random k of all n too, and the neighbours of a client are two of them.
    fn has_at_most(&self, degree: u32, neighbours: u32) -> bool {
        if self.is_complete(degree) {
            return self.corrupted <= neighbours;
        }
        let more = Hypergeometric::new(self.clients, self.corrupted, degree).ln_above(neighbours);
        let places = match self.adversary {
            Adversary::Curious => self.ln_clients(),
            Adversary::SemiMalicious => self.ln_pairs(degree),
        };
        places + more + TO_SPARE <= self.ln_half_security()
    }

    /// Whether every client has so many neighbours that remain, except with a chance of 2^-bits.
    fn leaves(&self, degree: u32, neighbours: u32, bits: u32) -> bool {
        if self.is_complete(degree) {
            return self.dropped + neighbours <= degree;
        }
        let fewer = Hypergeometric::new(self.clients, self.clients - self.dropped, degree).ln_below(neighbours);
        self.ln_clients() + fewer + TO_SPARE <= ln_power_of_half(bits)
    }

    fn ln_clients(&self) -> f64 {
        libm::log(f64::from(self.clients))
    }

    /// ln of the number of pairs of half-windows of a ring.
    fn ln_pairs(&self, degree: u32) -> f64 {
        libm::log(f64::from(self.clients) * f64::from(self.clients - degree - 1) / 2.0)
    }

    /// Half the chance that secrecy may fail with, less what a server that lies can try.
    fn ln_half_security(&self) -> f64 {
        let ground = match self.adversary {
            Adversary::Curious => 0,
            Adversary::SemiMalicious => GROUND_BITS,
        };
        ln_power_of_half(self.security_bits + 1 + ground)
    }
}

/// ln 2^-bits.
fn ln_power_of_half(bits: u32) -> f64 {
    -f64::from(bits) * std::f64::consts::LN_2
}

/// A fraction of the clients, rounded down.
fn part(fraction: f64, clients: u32) -> u32 {
    // A cast takes what is below zero, or no number, for zero.
    (((fraction + ROUNDING) * f64::from(clients)) as u32).min(clients)
}

fn check_clients(clients: u32) -> Result<(), ParameterError> {
    match clients {
        LEAST_CLIENTS..=MOST_CLIENTS => Ok(()),
        _ => Err(ParameterError::Clients { clients }),
    }
}

fn check_fractions(corrupted: f64, dropout: f64) -> Result<(), ParameterError> {
    for (what, value) in [("corrupted", corrupted), ("drop-out", dropout)] {
        if !(0.0..1.0).contains(&value) {
            return Err(ParameterError::Fraction { what, value });
        }
    }
    Ok(())
}

fn check_bits(what: &'static str, least: u32, value: u32) -> Result<(), ParameterError> {
    match value {
        _ if value < least || value > MOST_BITS => Err(ParameterError::Bits { what, least, value }),
        _ => Ok(()),
    }
}
