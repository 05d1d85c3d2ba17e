//! Runs one round with every message encoded to bytes, and times every step.

use std::time::Instant;

use secagg::{
    ClientId,
    client::{Client, Reply},
    directory::Everybody,
    entropy::OsEntropy,
    server::{CollectAgreement, CollectKeys, CollectMasked, CollectShares, CollectUnmask},
    session::Offer,
};

use super::{
    Case, Step, VanishAt,
    answer::{About, Bytes, ClientSeconds, RoundTook, ServerSeconds, Traffic},
    workers::Workers,
};
use crate::{
    WorkError,
    clock::{peak_mb, thread_seconds},
};

/// CPU time of something that is done again and again.
#[derive(Default)]
pub(super) struct Clock {
    pub(super) total_s: f64,
    pub(super) max_s: f64,
    pub(super) times: u32,
}

impl Clock {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = thread_seconds();
        let result = work();
        let took = thread_seconds() - before;
        self.total_s += took;
        self.max_s = self.max_s.max(took);
        self.times += 1;
        result
    }
}

/// Bytes of a message in both directions.
#[derive(Default)]
struct Carried {
    up: u64,
    down: u64,
    clients: u64,
}

impl Carried {
    fn add(&mut self, down: &[u8], up: &[u8]) {
        self.down += down.len() as u64;
        self.up += up.len() as u64;
        self.clients += 1;
    }

    fn mean(&self) -> Bytes {
        let clients = self.clients.max(1) as f64;
        Bytes { up: self.up as f64 / clients, down: self.down as f64 / clients }
    }
}

/// What clients take: one clock for each message that they answer.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) keys: Clock,
    pub(super) shares: Clock,
    pub(super) deliver: Clock,
    pub(super) mask: Clock,
    pub(super) agree: Clock,
    pub(super) unmask: Clock,
}

/// What the server takes.
#[derive(Default)]
pub(super) struct Server {
    /// Keys that arrive, checked.
    pub(super) keys: Clock,
    /// The directory: parameters, tree, graph.
    pub(super) directory: Clock,
    /// Neighbourhoods, shares and deliveries on their way.
    pub(super) route: Clock,
    /// Masked inputs, added.
    pub(super) add: Clock,
    /// Signatures, requests and answers.
    pub(super) answers: Clock,
    /// The end, without what other threads do.
    pub(super) finish: Clock,
}

/// How far it is, and who hears of it.
struct Bar<'a> {
    step: Step,
    watch: &'a mut dyn FnMut(Step),
}

impl Bar<'_> {
    /// Clients come to something else.
    fn at(&mut self, what: &'static str) {
        self.step.what = what;
        (self.watch)(self.step);
    }

    /// A client is done with it.
    fn one(&mut self) {
        self.step.done += 1;
        (self.watch)(self.step);
    }
}

struct Bench<'a> {
    case: &'a Case,
    offer: Offer,
    /// Who is still there. A client's number is its id.
    clients: Vec<Option<Client>>,
    client: Clients,
    server: Server,
    carried: [Carried; 5],
    /// The plain sum of the inputs that the server has.
    plain: Vec<u32>,
    bar: Bar<'a>,
}

/// Runs a round.
pub(super) fn run(case: &Case, watch: &mut dyn FnMut(Step)) -> Result<RoundTook, WorkError> {
    let began = Instant::now();
    let keys = CollectKeys::open(case.terms, &mut OsEntropy)?;
    let mut bench = Bench {
        case,
        offer: *keys.offer(),
        clients: Vec::new(),
        client: Clients::default(),
        server: Server::default(),
        carried: Default::default(),
        plain: vec![0; case.terms.dimension as usize],
        bar: Bar { step: Step { what: "", done: 0, of: 5 * u64::from(case.terms.most_clients) }, watch },
    };
    let shares = bench.keys(keys)?;
    let inputs = bench.shares(shares)?;
    let agreement = bench.inputs(inputs)?;
    let answers = bench.agreement(agreement)?;
    bench.unmask(answers, began)
}

impl Bench<'_> {
    /// All clients advertise their keys.
    fn keys(&mut self, mut server: CollectKeys) -> Result<CollectShares, WorkError> {
        self.bar.at("advertise keys");
        let offered = self.offer.encode();
        for id in (0..self.case.terms.most_clients).map(u64::from).map(ClientId) {
            let begin = || -> Result<_, WorkError> {
                Ok(Client::begin(Offer::decode(&offered)?, self.case.floor(), &Everybody, &mut OsEntropy)?)
            };
            let (client, message) = self.client.keys.time(begin)?;
            self.server.keys.time(|| server.receive(id, &message, &Everybody))?;
            self.carried[0].add(&offered, &message);
            self.clients.push(Some(client));
            self.bar.one();
        }
        Ok(self.server.directory.time(|| server.close(self.case.connect))?)
    }

    /// Everybody shares its secrets.
    fn shares(&mut self, mut server: CollectShares) -> Result<CollectMasked, WorkError> {
        self.bar.at("share keys");
        self.vanish(VanishAt::Shares);
        for (id, slot) in ids(&mut self.clients) {
            let Some(client) = slot else { continue };
            let neighbourhood = self.server.route.time(|| server.neighbourhood(id)).ok_or("no neighbourhood")?;
            let message = self.client.shares.time(|| answer(client, &neighbourhood))?;
            self.server.route.time(|| server.receive(id, &message))?;
            self.carried[1].add(&neighbourhood, &message);
            self.bar.one();
        }
        Ok(self.server.route.time(|| server.close())?)
    }

    /// Everybody masks its input. One input is in memory at a time.
    fn inputs(&mut self, mut server: CollectMasked) -> Result<CollectAgreement, WorkError> {
        self.bar.at("mask inputs");
        self.vanish(VanishAt::Input);
        let mut input = vec![0; self.plain.len()];
        for (id, slot) in ids(&mut self.clients) {
            let Some(client) = slot else { continue };
            fill(&mut input, self.case.largest, id);
            self.plain.iter_mut().zip(&input).for_each(|(sum, value)| *sum += value);
            let delivery = self.server.route.time(|| server.delivery(id)).ok_or("no delivery")?;
            self.client.deliver.time(|| answer(client, &delivery))?;
            let message = self.client.mask.time(|| client.mask(&input))?;
            self.server.add.time(|| server.receive(id, &message))?;
            self.carried[2].add(&delivery, &message);
            self.bar.one();
        }
        Ok(self.server.answers.time(|| server.close())?)
    }

    /// Where the server is not taken at its word, the committee signs what it was shown.
    fn agreement(&mut self, mut server: CollectAgreement) -> Result<CollectUnmask, WorkError> {
        self.bar.at("agree");
        for (id, slot) in ids(&mut self.clients) {
            let Some(client) = slot else { continue };
            let Some(view) = self.server.answers.time(|| server.view(id)) else { continue };
            let message = self.client.agree.time(|| answer(client, &view))?;
            self.server.answers.time(|| server.receive(id, &message))?;
            self.carried[3].add(&view, &message);
            self.bar.one();
        }
        Ok(self.server.answers.time(|| server.close())?)
    }

    /// Those who are left open what is needed; the server takes the masks off.
    fn unmask(mut self, mut server: CollectUnmask, began: Instant) -> Result<RoundTook, WorkError> {
        self.bar.at("open shares");
        self.vanish(VanishAt::Unmask);
        for (id, slot) in ids(&mut self.clients) {
            let Some(mut client) = slot.take() else { continue };
            let request = self.server.answers.time(|| server.request(id)).ok_or("no request")?;
            let message = self.client.unmask.time(|| answer(&mut client, &request))?;
            self.server.answers.time(|| server.receive(id, &message))?;
            self.carried[4].add(&request, &message);
            self.bar.one();
        }
        self.bar.at("take masks off");
        let workers = Workers::new(self.case.threads);
        let outcome = self.server.finish.time(|| server.close(&workers))?;
        if *outcome.sum != self.plain {
            return Err("the sum is not that of the survivors' inputs: this is a bug in secure aggregation".into());
        }
        let batches = workers.batches();
        let [reconstruct_s, expand_s] = batches[..] else {
            return Err(format!("expected two batches of work, got {batches:?}").into());
        };
        let elements = outcome.masks as f64 * f64::from(self.case.terms.dimension);
        let server = ServerSeconds::new(&self.server, reconstruct_s, expand_s);
        let client = ClientSeconds::new(&self.client);
        Ok(RoundTook {
            about: About::new(self.case),
            exact: true,
            survivors: outcome.survivors.len(),
            masks: outcome.masks,
            ns_per_mask_element: expand_s * 1e9 / elements,
            cpu_s: client.all_clients_s + server.total_s,
            client,
            server,
            bytes: Traffic::new(self.carried.map(|carried| carried.mean())),
            peak_mb: peak_mb(),
            wall_s: began.elapsed().as_secs_f64(),
        })
    }

    /// Those who vanish here are gone.
    fn vanish(&mut self, step: VanishAt) {
        if self.case.vanish_at == step {
            let case = self.case;
            ids(&mut self.clients).filter(|(id, _)| case.vanishes(id.0)).for_each(|(_, client)| *client = None);
        }
    }
}

/// What a client says to a message: nothing where it only takes note.
fn answer(client: &mut Client, message: &[u8]) -> Result<Vec<u8>, WorkError> {
    match client.receive(message, &Everybody, &mut OsEntropy)? {
        Reply::Send(answer) => Ok(answer.to_vec()),
        Reply::Ready => Ok(Vec::new()),
        Reply::Ignored(why) => Err(why.into()),
    }
}

fn ids(clients: &mut [Option<Client>]) -> impl Iterator<Item = (ClientId, &mut Option<Client>)> {
    (0..).map(ClientId).zip(clients)
}

/// A client's input: numbers from 0 to the largest that follow from its own (SplitMix64), all with the same chance.
fn fill(input: &mut [u32], largest: u32, client: ClientId) {
    let count = u64::from(largest) + 1;
    let mut state = client.0.wrapping_mul(0xd1b5_4a32_d192_ed03);
    for value in input {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *value = (((z >> 32) * count) >> 32) as u32;
    }
}
