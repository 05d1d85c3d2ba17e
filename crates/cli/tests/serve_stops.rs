//! A server that is told to stop: whoever waits is answered first, it is gone in five seconds, and the run goes on afterwards.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    io::Write,
    net::TcpStream,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::small_runs::with;
use agent::{
    eligibility::Always,
    http::{Server, Trust},
    identity::fresh_key,
    one::{Clocks, Surroundings, act},
    text::{Synthetic, today},
    training::{Learning, Trainers},
    unsent::UnsentFile,
};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    guard::{Guard, Limits, MemoryStore, Timer, Window},
    protocol::{
        diary::Diary,
        participant::{Do, Note, Participant, Settings},
        policy::Policy,
    },
    unsent::Keep,
};
use secagg::entropy::OsEntropy;

use crate::serve::{Killed, PLAIN, serve, settings};

/// A device in the hands of the test.
struct Device {
    device: Participant<MemoryStore>,
    around: Surroundings,
    clocks: Clocks,
    notes: Vec<Note>,
}

impl Device {
    fn new(address: &str, user: u64) -> Self {
        let limits = Limits { most_inputs: 9, window: Window::Ever, separation: None, timer: Timer::NONE };
        let settings = Settings::new(fresh_key().unwrap(), Vec::new(), Policy::for_made_up_people(), limits);
        let guard = Guard::begin(MemoryStore::default()).unwrap();
        let diary = Diary::open(MemoryStore::default()).unwrap();
        let crowd = Arc::new(Crowd::new(SynthPlan::new(1, 4, Dialect::Informal)).unwrap());
        let around = Surroundings {
            server: Arc::new(Server::new(&format!("http://{address}"), &Trust::Loopback, 2).unwrap()),
            trainers: Arc::new(Trainers::new(1, Learning::Train)),
            content: None,
            text: Arc::new(Synthetic { crowd, user }),
            unsent: UnsentFile::open(MemoryStore::default(), Keep::default(), today()).unwrap(),
            eligibility: Arc::new(Always),
            patience: Duration::from_secs(20),
        };
        let device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
        Self { device, around, clocks: Clocks::now_on(), notes: Vec::new() }
    }

    /// What it wants to do next, once it wants to do something.
    async fn wants(&mut self) -> Do {
        loop {
            let next = self.device.next(self.clocks.now());
            self.notes.extend(self.device.notes());
            match next {
                Do::Sleep { .. } => tokio::time::sleep(Duration::from_millis(10)).await,
                other => return other,
            }
        }
    }

    async fn does(&mut self, what: Do) {
        act(&mut self.device, what, &self.around, self.clocks).await;
        self.notes.extend(self.device.notes());
    }

    /// Goes on until the next thing is such a one.
    async fn until(&mut self, is: impl Fn(&Self, &Do) -> bool) -> Do {
        loop {
            let next = self.wants().await;
            if is(self, &next) {
                return next;
            }
            self.does(next).await;
        }
    }

    /// Goes on until it hears that its part counts.
    async fn until_thanked(&mut self) {
        while !self.heard(|note| matches!(note, Note::Thanked { .. })) {
            let next = self.wants().await;
            self.does(next).await;
        }
    }

    fn heard(&self, is: impl Fn(&Note) -> bool) -> bool {
        self.notes.iter().any(is)
    }

    /// Every question that it asked was answered.
    fn was_answered(&self) -> bool {
        !self.heard(|note| matches!(note, Note::Broken | Note::Strange(_)))
    }
}

fn is_enrolled(device: &Device) -> bool {
    device.heard(|note| *note == Note::Enrolled)
}

fn term(server: &mut Killed) -> (Option<i32>, Duration) {
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap().success());
    let status = server.0.wait().unwrap();
    (status.code(), asked.elapsed())
}

/// Half of a report, on a connection that stays open.
fn half_a_report(address: &str, what: &Do) -> TcpStream {
    let Do::Send { ticket, offset, chunk } = what else { panic!("{what:?}") };
    let ticket: String = ticket.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = chunk.len();
    write!(stream, "PUT /v1/report/{ticket}/{offset} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n")
        .unwrap();
    write!(stream, "content-type: application/octet-stream\r\n\r\n").unwrap();
    stream.write_all(&chunk[..length / 2]).unwrap();
    stream
}

#[test]
fn a_server_that_is_told_to_stop_answers_who_waits_ends_in_five_seconds_and_goes_on_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let changes = [
        "rounds=1",
        "participation.population=4",
        "participation.min_separation=0",
        "participation.max_participations=1",
        "participation.cohort=2",
        "evaluation.every=1",
        "devices.report_seconds=120",
        "devices.begin_with=4",
    ];
    fs::write(folder.join("words.toml"), with(&settings(), &changes)).unwrap();
    let (mut server, address) = serve(folder, "127.0.0.1:0", &PLAIN);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut four: Vec<Device> = (0..4).map(|user| Device::new(&address, user)).collect();
        for device in &mut four {
            device.until(|device, _| is_enrolled(device)).await;
        }
        let mut last = four.pop().unwrap();
        // For two reports three devices are asked. Each trains, and has a report in its hand.
        let at_work = four.into_iter().map(|mut device| {
            tokio::spawn(async move {
                let report = device.until(|_, next| matches!(next, Do::Send { .. })).await;
                (device, report)
            })
        });
        let mut at_work: Vec<(Device, Do)> = futures(at_work.collect()).await;
        // The fourth waits in the lobby; the first has sent its report, and waits to be thanked; the second is in the midst of its own.
        let waits = tokio::spawn(async move {
            let check_in = last.until(|_, next| matches!(next, Do::Say(_))).await;
            last.does(check_in).await;
            last
        });
        let (mut first, report) = at_work.remove(0);
        first.does(report).await;
        let asks = tokio::spawn(async move {
            let next = first.until(|_, next| matches!(next, Do::Say(_))).await;
            first.does(next).await;
            first
        });
        let (second, report) = at_work.remove(0);
        let half = half_a_report(&address, &report);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!waits.is_finished() && !asks.is_finished(), "both wait for an answer");

        let told = tokio::task::spawn_blocking(move || term(&mut server));
        let (waited, asked) = (waits.await.unwrap(), asks.await.unwrap());
        let (code, took) = told.await.unwrap();
        assert_eq!(code, Some(130));
        assert!(took < Duration::from_secs(5), "it takes {took:?}");
        assert!(waited.was_answered(), "{:?}", waited.notes);
        assert!(asked.was_answered(), "{:?}", asked.notes);
        drop(half);

        // Another one goes on: the first device is asked for its report again, the second for all of its own.
        let (mut server, _) = serve(folder, &address, &PLAIN);
        // A server listens before it has taken its attempts up again, and knows no ticket until then: who asks in that moment loses its part.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let thanked = [asked, second].map(|mut device| {
            tokio::spawn(async move {
                device.until_thanked().await;
            })
        });
        futures(thanked.into()).await;
        assert!(server.0.wait().unwrap().success());
    });
    let done = folder.join("data/models/words");
    let verified = crate::serve::keyhush().args(["privacy", "verify", "--json"]).arg(&done).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// What all of them come to.
async fn futures<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut all = Vec::new();
    for task in tasks {
        all.push(tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap());
    }
    all
}
