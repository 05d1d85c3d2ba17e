//! Gboard's scale against a server that is not taken at its word: thousands of clients with hundreds of neighbours each.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::thread;

use crate::story::{Device, Vanishes, advertise, input, plain_sum, survivors, terms};
use keyhush_secagg::{
    ClientId,
    entropy::SimulatedEntropy,
    parameters::{Adversary, Assumptions},
    server::{CollectKeys, Connect, Job, Parallel},
    session::{Inputs, Terms},
};

/// As many threads as there are processors.
struct Threads(usize);

impl Parallel for Threads {
    fn width(&self) -> usize {
        self.0
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        thread::scope(|scope| jobs.into_iter().for_each(|job| drop(scope.spawn(job))));
    }
}

/// What each device says to what it is told, in the order of the devices; computed on all processors.
fn answers(
    threads: &Threads,
    devices: &mut [(ClientId, Device)],
    says: impl Fn(ClientId, &mut Device) -> Vec<u8> + Sync,
) -> Vec<Vec<u8>> {
    let piece = devices.len().div_ceil(threads.width());
    thread::scope(|scope| {
        let says = &says;
        let work = |devices| move || -> Vec<Vec<u8>> { said_by(devices, says) };
        let running: Vec<_> = devices.chunks_mut(piece).map(|devices| scope.spawn(work(devices))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

fn said_by(devices: &mut [(ClientId, Device)], says: &impl Fn(ClientId, &mut Device) -> Vec<u8>) -> Vec<Vec<u8>> {
    devices.iter_mut().map(|(id, device)| says(*id, device)).collect()
}

/// A round with a tenth that may drop out and a share that may be corrupted, on a ring with a committee of some of them. Gives degree,
/// threshold, committee and quorum.
fn round_of(clients: u32, corrupted: f64) -> [u32; 4] {
    let threads = Threads(thread::available_parallelism().map_or(1, usize::from));
    let terms = Terms {
        assumptions: Assumptions::new(0.1, corrupted, Adversary::SemiMalicious),
        least_survivors: clients * 9 / 10,
        inputs: Inputs::Bounded { largest: 100 },
        ..terms(clients, Adversary::SemiMalicious)
    };
    // One in fifty vanishes at each of three points.
    let point = |id: usize| [Vanishes::BeforeShares, Vanishes::BeforeInput, Vanishes::BeforeUnmask].get(id % 50);
    let vanishes: Vec<Vanishes> = (0..clients as usize).map(|id| *point(id).unwrap_or(&Vanishes::Never)).collect();
    let stays = |id: ClientId, point| vanishes[id.0 as usize] > point;

    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(1)).unwrap();
    let mut devices: Vec<_> = advertise(&mut server, 0..u64::from(clients), 1).into_iter().collect();
    let mut server = server.close(Connect::Found).unwrap();
    let parameters = *server.parameters();
    let committee = parameters.committee().unwrap();
    assert!(!parameters.is_complete() && committee.size < clients, "{parameters:?}");

    let told = |id, device: &mut Device| device.answer(&server.neighbourhood(id).unwrap()).unwrap();
    let shares = answers(&threads, &mut devices, told);
    for ((id, _), shares) in devices.iter().zip(shares).filter(|((id, _), _)| stays(*id, Vanishes::BeforeShares)) {
        server.receive(*id, &shares).unwrap();
    }
    devices.retain(|(id, _)| stays(*id, Vanishes::BeforeShares));

    let mut server = server.close().unwrap();
    let masked = answers(&threads, &mut devices, |id, device| {
        device.receive(&server.delivery(id).unwrap()).unwrap();
        device.client.mask(&input(&terms, id.0)).unwrap()
    });
    for ((id, _), masked) in devices.iter().zip(masked).filter(|((id, _), _)| stays(*id, Vanishes::BeforeInput)) {
        server.receive(*id, &masked).unwrap();
    }
    devices.retain(|(id, _)| stays(*id, Vanishes::BeforeInput));

    // The committee signs; nobody else is asked, and a quorum is enough.
    let mut server = server.close().unwrap();
    assert!(server.clients().count() <= committee.size as usize);
    for (id, device) in &mut devices {
        if server.can_close().is_err()
            && let Some(view) = server.view(*id)
        {
            server.receive(*id, &device.answer(&view).unwrap()).unwrap();
        }
    }
    assert_eq!(server.arrived(), committee.quorum as usize);

    let mut server = server.close().unwrap();
    devices.retain(|(id, _)| stays(*id, Vanishes::BeforeUnmask));
    let asked = |id, device: &mut Device| device.answer(&server.request(id).unwrap()).unwrap();
    let opened = answers(&threads, &mut devices, asked);
    devices.iter().zip(opened).for_each(|((id, _), opened)| server.receive(*id, &opened).unwrap());

    let outcome = server.close(&threads).unwrap();
    assert_eq!(outcome.survivors.len(), survivors(&vanishes).count());
    assert_eq!(*outcome.sum, plain_sum(&terms, survivors(&vanishes)));
    assert!(outcome.wrong_shares.is_empty() && outcome.complaints.is_empty());
    [parameters.degree(), parameters.threshold(), committee.size, committee.quorum]
}

#[test]
fn hundreds_of_clients_with_some_of_them_as_neighbours() {
    let [degree, threshold, committee, quorum] = round_of(320, 0.05);
    assert!(threshold < degree && quorum < committee, "{degree} {threshold} {committee} {quorum}");
}

#[test]
#[ignore = "long: half a minute"]
fn four_hundred_clients_with_half_of_them_as_neighbours() {
    assert_eq!(round_of(400, 1.0 / 3.0), [194, 158, 174, 143]);
}

#[test]
#[ignore = "long: a minute"]
fn a_thousand_clients_with_hundreds_of_neighbours() {
    assert_eq!(round_of(1000, 1.0 / 3.0), [310, 252, 256, 210]);
}

/// As many as a production round has had.
#[test]
#[ignore = "long: minutes"]
fn thousands_of_clients_with_hundreds_of_neighbours() {
    assert_eq!(round_of(6500, 1.0 / 3.0), [476, 385, 343, 281]);
}
