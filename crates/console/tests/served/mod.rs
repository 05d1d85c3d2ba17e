//! A real server with a console, in this process, and requests to it over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use federated::{
    engine::Means,
    fleet::Stop,
    protocol::{
        admission::{Anybody, EnrolmentLimits},
        pace::Pace,
    },
};
use keyhush_console::{
    Console,
    access::{Access, Role},
};
use ledger::VerifyingKey;
use lm::kernels::KernelPath;
use serde_json::Value;
use server::{
    http::{Limits, Origins, Proxies, Tells, Transport},
    observed::Observed,
    sqlite::SqliteState,
    tasks::{Happened, Settings, serve},
};

/// How long the server may take to come to something.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    tokens: Vec<(Role, String)>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.ask();
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok(), "the server panicked");
    }
}

impl Served {
    /// A server without tasks in a folder, which trusts these officers.
    pub(crate) fn start(folder: &Path, officers: &[VerifyingKey]) -> Self {
        let (data, secrets) = (folder.join("data"), folder.join("secrets"));
        let stop = Arc::new(Stop::new());
        let state = SqliteState::open(&data, &secrets).unwrap();
        let access = Access::in_secrets(&secrets);
        let tokens = Role::ALL.map(|role| (role, access.create(role.word(), role).unwrap().text().to_owned()));
        let reader = Arc::new(SqliteState::read(&data).unwrap());
        let limits = Limits::default();
        let (officers, observed) = (officers.to_vec(), Arc::<Observed>::default());
        let console = Console {
            state: reader,
            data: data.clone(),
            access,
            officers: officers.clone(),
            limits,
            observed: Arc::clone(&observed),
            about: None,
        };
        let settings = Settings {
            listen: "127.0.0.1:0".parse().unwrap(),
            data,
            transport: Transport::PlainOnLoopback,
            admission: Box::new(Anybody),
            attestation: None,
            enrolments: EnrolmentLimits::default(),
            means: Means::threads(KernelPath::best(), 1),
            limits,
            proxies: Proxies::default(),
            origins: Origins::default(),
            pace: Pace { least_s: 0.0, ..Pace::default() },
            routes: console.router(),
            tells: Tells::default(),
            observed,
            ends_with_tasks: false,
            officers,
        };
        let (listens, address) = mpsc::channel();
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let listens = std::sync::Mutex::new(listens);
            let happens = |happened: &Happened<'_>| {
                if let Happened::Listening(address) = happened {
                    listens.lock().unwrap().send(*address).unwrap();
                }
            };
            serve(&state, Vec::new(), settings, &stopping, &happens).unwrap();
        });
        let address = address.recv_timeout(PATIENCE).unwrap();
        Self { address, tokens: tokens.to_vec(), stop, thread: Some(thread) }
    }

    pub(crate) fn token(&self, role: Role) -> &str {
        &self.tokens.iter().find(|(known, _)| *known == role).unwrap().1
    }

    /// A request with a body of JSON, by somebody of a role, or by nobody.
    pub(crate) fn ask(&self, role: Option<Role>, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let token = role.map(|role| format!("authorization: Bearer {}\r\n", self.token(role))).unwrap_or_default();
        let body = body.map(ToString::to_string).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}{kind}content-length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat())
    }

    /// A request as it is.
    pub(crate) fn send(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that refuses early may close before all of it is sent.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Answer::parse(&bytes)
    }

    /// Asks until it is so.
    pub(crate) fn wait_for(&self, path: &str, is: impl Fn(&Answer) -> bool) -> Answer {
        let began = Instant::now();
        loop {
            let answer = self.ask(Some(Role::Operator), "GET", path, None);
            if is(&answer) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "it does not come to that: {answer:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole header");
        let head = std::str::from_utf8(&bytes[..at]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let body = &bytes[at + 4..];
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        assert!(!chunked, "answers of the API have a length");
        Self { status, headers, body: body.to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }
}
