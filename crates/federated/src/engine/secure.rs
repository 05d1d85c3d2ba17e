//! Simulates secure aggregation: sums by the real protocol between simulated devices, including drop-outs.
//!
//! Every device is a client of its own, every message goes through its bytes, and the server adds up masked vectors as they
//! arrive: beside the model there is one vector for each thread and one for the server, whatever the cohort. What comes out
//! are the residues of the survivors' sum; since integers add up to the same in any order and under any masks, they are
//! those of the plain sum. Keys and masks come from the operating system also in simulations: no result depends on them.

use std::{
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use device::round::{Exact, Part, Task};
use ledger::FailureReason;
use privacy::{
    encoding::EncodingError,
    rng::StreamKey,
    stages::{Encoded, Residues},
};
use secagg::{
    ClientId,
    client::{Client, ClientError, Reply},
    directory::Everybody,
    entropy::OsEntropy,
    parameters::Floor,
    server::{CollectKeys, CollectMasked, CollectUnmask, Connect, Job, Outcome, Parallel, Refusal, RoundFailure},
    session::{Offer, Terms},
};
use zeroize::Zeroizing;

use super::{
    EngineError, PerUser, Users, drawn,
    vanishing::{Vanishes, Vanishing},
};
use crate::{plan::Secure, protocol::secure::failure_reason};

/// The task of a simulated secure aggregation: what it is bound to, and which devices drop out or spoil it.
#[derive(Clone, Copy)]
pub struct SecureTask<'a> {
    /// For how many devices, and against whom.
    pub secure: &'a Secure,
    /// How vectors become residues.
    pub residues: &'a Residues,
    /// The terms that devices are offered.
    pub terms: Terms,
    /// When each of them vanishes.
    pub vanishing: &'a Vanishing,
    /// The key of the noise that users add.
    pub noise: &'a StreamKey,
    /// Users with a lower number spoil what they take part in.
    pub spoilers: u64,
}

/// The result of a secure aggregation.
#[derive(Debug)]
pub struct Secured {
    /// The sum of the survivors' residues.
    pub sum: Zeroizing<Vec<u32>>,
    /// The number of survivors.
    pub survivors: u64,
    /// What each of them did, exactly.
    pub exact: Vec<(u64, Exact)>,
    /// Seconds that the threads worked, all together.
    pub busy_s: f64,
}

/// Why a secure round failed.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// The protocol says so.
    #[error("secure aggregation: {0}")]
    Failed(#[from] RoundFailure),
    /// A simulated device did not continue.
    #[error("a simulated device dropped out: {0}")]
    Left(#[from] ClientError),
    /// The server did not take what a simulated device said.
    #[error("the server refused a simulated device: {0}")]
    Refused(#[from] Refusal),
    /// Devices and plan do not fit.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
}

impl SecureError {
    /// Why the attempt failed, where it is the protocol that failed. Anything else is an error of the program or the machine.
    #[must_use]
    pub const fn failure(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(failure) => failure_reason(failure),
            _ => None,
        }
    }
}

/// Threads for the server's arithmetic.
#[derive(Debug, Clone, Copy)]
pub struct Threads(pub usize);

impl Parallel for Threads {
    fn width(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        std::thread::scope(|scope| jobs.into_iter().for_each(|job| _ = scope.spawn(job)));
    }
}

/// A device that takes part.
struct Device {
    user: u64,
    vanishes: Vanishes,
    client: Client,
}

impl Device {
    fn begin(offer: Offer, floor: Floor, user: u64, vanishes: Vanishes) -> Result<(Self, Vec<u8>), SecureError> {
        let (client, keys) = Client::begin(offer, floor, &Everybody, &mut OsEntropy)?;
        Ok((Self { user, vanishes, client }, keys))
    }

    const fn id(&self) -> ClientId {
        ClientId(self.user)
    }

    /// Its answer to a message; nothing where it only takes note.
    fn answer(&mut self, message: Option<Vec<u8>>) -> Result<Zeroizing<Vec<u8>>, SecureError> {
        let message = message.ok_or(SecureError::Refused(Refusal::Stranger(self.id())))?;
        match self.client.receive(&message, &Everybody, &mut OsEntropy)? {
            Reply::Send(answer) => Ok(answer),
            Reply::Ready => Ok(Zeroizing::default()),
            Reply::Ignored(why) => Err(SecureError::Left(why)),
        }
    }

    /// Its signature, if it is in the committee.
    fn signature(&mut self, view: Option<Vec<u8>>) -> Result<Option<Zeroizing<Vec<u8>>>, SecureError> {
        view.map(|view| self.answer(Some(view))).transpose()
    }
}

/// One secure aggregation between those of the users who are there.
///
/// # Errors
/// When there is no sum; [`SecureError::failure`] says whether that is the protocol's.
pub fn aggregate(
    engine: &mut dyn PerUser,
    task: &Task<'_>,
    users: &Users<'_>,
    secure: &SecureTask<'_>,
) -> Result<Secured, EngineError> {
    let mut session = Session { users, secure, threads: engine.threads(), busy_s: 0.0 };
    let (outcome, mut exact) = session.run(engine, task)?;
    exact.sort_unstable_by_key(|(user, _)| *user);
    let (sum, survivors) = (outcome.sum, outcome.survivors.len() as u64);
    Ok(Secured { sum, survivors, exact, busy_s: session.busy_s })
}

/// What there is when all inputs were sent.
struct Sent {
    server: CollectMasked,
    devices: Vec<Device>,
    exact: Vec<(u64, Exact)>,
}

/// One secure aggregation.
struct Session<'a, 'b> {
    users: &'a Users<'b>,
    secure: &'a SecureTask<'b>,
    threads: usize,
    busy_s: f64,
}

impl Session<'_, '_> {
    fn run(&mut self, engine: &mut dyn PerUser, task: &Task<'_>) -> Result<(Outcome, Vec<(u64, Exact)>), EngineError> {
        let mut server = CollectKeys::open(self.secure.terms, &mut OsEntropy).map_err(SecureError::Failed)?;

        // Every available device accepts the offer and advertises its keys.
        let offer = *server.offer();
        let mut there = self.there();
        let floor = self.secure.secure.floor();
        let begun = self.each(&mut there, |(user, vanishes)| Device::begin(offer, floor, *user, *vanishes))?;
        let mut devices = Vec::with_capacity(begun.len());
        for (device, keys) in begun {
            server.receive(device.id(), &keys, &Everybody).map_err(SecureError::Refused)?;
            devices.push(device);
        }

        // The directory closes; each checks its neighbours and shares its keys among them.
        let mut server = server.close(Connect::Found).map_err(SecureError::Failed)?;
        devices.retain(|device| device.vanishes > Vanishes::BeforeShares);
        let shares = self.each(&mut devices, |device| device.answer(server.neighbourhood(device.id())))?;
        for (device, shares) in devices.iter().zip(shares) {
            server.receive(device.id(), &shares).map_err(SecureError::Refused)?;
        }

        // Shares are delivered; each trains, masks what it learned and sends it.
        let server = server.close().map_err(SecureError::Failed)?;
        devices.retain(|device| device.vanishes.sends() && server.shared(device.id()));
        let Sent { server, mut devices, exact } = self.train(engine, task, server, devices)?;

        // Where the server is not taken at its word, the committee signs what became of everybody.
        let mut server = server.close().map_err(SecureError::Failed)?;
        devices.retain(|device| device.vanishes > Vanishes::BeforeUnmask);
        let signed = self.each(&mut devices, |device| device.signature(server.view(device.id())))?;
        for (device, signature) in devices.iter().zip(signed) {
            let Some(signature) = signature else { continue };
            server.receive(device.id(), &signature).map_err(SecureError::Refused)?;
        }

        // Those who are still there open one share of each neighbour.
        let mut server: CollectUnmask = server.close().map_err(SecureError::Failed)?;
        let opened = self.each(&mut devices, |device| device.answer(server.request(device.id())))?;
        for (device, opened) in devices.iter().zip(opened) {
            server.receive(device.id(), &opened).map_err(SecureError::Refused)?;
        }
        let watch = Instant::now();
        let outcome = server.close(&Threads(self.threads)).map_err(SecureError::Failed)?;
        self.busy_s += watch.elapsed().as_secs_f64() * self.threads as f64;
        Ok((outcome, exact))
    }

    /// Who of the users says anything at all.
    fn there(&self) -> Vec<(u64, Vanishes)> {
        let both = self.users.numbers.iter().map(|user| (*user, self.secure.vanishing.of(*user)));
        both.filter(|(_, vanishes)| *vanishes > Vanishes::BeforeKeys).collect()
    }

    /// Does something with every item, on all threads; results in the order of the items.
    fn each<T: Send, R: Send>(
        &mut self,
        items: &mut [T],
        f: impl Fn(&mut T) -> Result<R, SecureError> + Sync,
    ) -> Result<Vec<R>, EngineError> {
        let size = items.len().div_ceil(self.threads.max(1)).max(1);
        let piece = |items: &mut [T]| -> (Result<Vec<R>, EngineError>, f64) {
            let began = Instant::now();
            let done: Result<Vec<R>, SecureError> = items.iter_mut().map(&f).collect();
            (done.map_err(EngineError::from), began.elapsed().as_secs_f64())
        };
        let pieces: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = items.chunks_mut(size).map(|items| scope.spawn(|| piece(items))).collect();
            running.into_iter().map(|t| t.join().unwrap_or((Err(EngineError::Died), 0.0))).collect()
        });
        let mut all = Vec::new();
        for (piece, busy_s) in pieces {
            all.extend(piece?);
            self.busy_s += busy_s;
        }
        Ok(all)
    }

    /// Trains all devices that send an input, and adds up what they send.
    fn train(
        &mut self,
        engine: &mut dyn PerUser,
        task: &Task<'_>,
        server: CollectMasked,
        mut devices: Vec<Device>,
    ) -> Result<Sent, EngineError> {
        devices.sort_unstable_by_key(|device| device.user);
        let numbers: Vec<u64> = devices.iter().map(|device| device.user).collect();
        let devices: Vec<Mutex<Device>> = devices.into_iter().map(Mutex::new).collect();
        let (server, exact, problem) = (Mutex::new(server), Mutex::new(Vec::new()), Mutex::new(None));
        let this = &*self;
        let take = |user: u64, part: Part| {
            let Ok(place) = numbers.binary_search(&user) else { return ControlFlow::Break(()) };
            let of_user = part.exact;
            match this.send_input(&mut lock(&devices[place]), part.encoded, &server) {
                Ok(()) => lock(&exact).push((user, of_user)),
                Err(error) => {
                    *lock(&problem) = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let busy_s = engine.each(task, &Users { numbers: &numbers, ..*self.users }, &take)?;
        if let Some(problem) = into_inner(problem) {
            return Err(problem.into());
        }
        self.busy_s += busy_s;
        let devices = devices.into_iter().map(into_inner).collect();
        Ok(Sent { server: into_inner(server), devices, exact: into_inner(exact) })
    }

    /// One device: shares delivered, what it learned masked and sent.
    fn send_input(
        &self,
        device: &mut Device,
        encoded: Encoded,
        server: &Mutex<CollectMasked>,
    ) -> Result<(), SecureError> {
        let delivery = lock(server).delivery(device.id());
        device.answer(delivery)?;
        let input = self.residues(encoded, device.user)?;
        let mut masked = device.client.mask(&input)?;
        if device.user < self.secure.spoilers {
            spoil(&mut masked);
        }
        lock(server).receive(device.id(), &masked)?;
        Ok(())
    }

    fn residues(&self, encoded: Encoded, user: u64) -> Result<Zeroizing<Vec<u32>>, EncodingError> {
        match self.secure.secure.noise {
            None => self.secure.residues.of(&encoded),
            Some(_) => self.secure.residues.noised(encoded, &mut drawn(self.secure.noise, user).rounding),
        }
    }
}

/// Puts something into the padding of a masked vector, whose last number is the last of the message: the masks of all no longer
/// cancel, and the vector looks like any other. What up to 255 of them put there adds up, and does not cancel either.
fn spoil(masked: &mut [u8]) {
    if let Some(last) = masked.last_mut() {
        *last = last.wrapping_add(1);
    }
}

/// A thread that died holding the lock ends the round by itself.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
