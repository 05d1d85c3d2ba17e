//! Measures slow connections to a real server: how soon those that never complete a request are closed, and how they affect an honest
//! device.
//!
//! A third says nothing, a third never finishes its header, a third never finishes its body; the latter two send a byte now and then, as
//! a client that wants to stay would. The honest device checks in again and again over one connection, which the coordinator answers by its database.
//! With TLS all of them complete the handshake first, none with a ticket of another, and dawdle after it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ::device::protocol::message::{Answer, CheckIn, Enrol, Hello, Realm, Request, Says, Wants};
use agent::http::{Trust, configured};
use ed25519_dalek::SigningKey;
use prost::Message;
use rustls::{ClientConfig, ClientConnection, StreamOwned, client::Resumption, pki_types::ServerName};
use serde::Serialize;

use super::{NetworkRun, SETTINGS, TASK, server::ServerProcess};
use crate::{BenchError, at_least_one};

/// They come over about a second, so that it is they who are measured and not how fast this process opens them on the cores that it shares with
/// the server: so many at once, and then a pause.
const AT_ONCE: usize = 20;
const BETWEEN: Duration = Duration::from_millis(10);
/// How often a slow connection sends a byte.
const DRIPS: Duration = Duration::from_millis(700);
/// The honest device pauses for so long between two requests.
const PAUSE: Duration = Duration::from_millis(2);
/// How long slow connections are waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The certificate that a server makes for itself, in its folder.
const CERTIFICATE: &str = "secrets/tls/cert.pem";
/// Files of this process beside the connections.
#[cfg(unix)]
const OTHER_FILES: u64 = 100;

/// The parameters of the benchmark.
#[derive(Debug, Clone)]
pub struct SlowRun {
    /// The program: `keyhush`.
    pub program: PathBuf,
    /// Slow connections.
    pub slow: usize,
    /// Honest requests before them.
    pub requests: usize,
    /// Whether all connections use TLS.
    pub tls: bool,
}

/// The results.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlowTook {
    /// Whether all connections used TLS, and slow ones completed its handshake.
    pub tls: bool,
    /// Slow connections.
    pub slow: usize,
    /// How many of them the server closed.
    pub closed: usize,
    /// How long one was open at most, in seconds, of those that it closed.
    pub longest_open_s: f64,
    /// Honest requests before them.
    pub before: Answered,
    /// Honest requests while there were some.
    pub meanwhile: Answered,
    /// The 99th percentile of the latter over that of the former.
    pub p99_ratio: f64,
    /// CPU seconds of the server.
    pub server_cpu_s: f64,
    /// The most memory of the server, in units of 10^6 bytes.
    pub server_peak_mb: f64,
}

/// The durations of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Answered {
    /// The number of requests.
    pub requests: usize,
    /// The middle one, in milliseconds.
    pub median_ms: f64,
    /// The 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// The longest, in milliseconds.
    pub most_ms: f64,
}

impl Answered {
    fn of(mut times: Vec<Duration>) -> Result<Self, BenchError> {
        times.sort();
        let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
        let ms = |time: Option<&Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
        match (ms(at(50)), ms(at(99)), ms(times.last())) {
            (Some(median_ms), Some(p99_ms), Some(most_ms)) => {
                Ok(Self { requests: times.len(), median_ms, p99_ms, most_ms })
            }
            _ => Err(BenchError::failed("no honest request was answered")),
        }
    }
}

impl SlowRun {
    /// Runs it.
    ///
    /// # Errors
    /// When the server cannot be started, or an honest request is not answered.
    pub fn run(&self) -> Result<SlowTook, BenchError> {
        at_least_one([("slow", self.slow), ("requests", self.requests)])?;
        let folder = tempfile::tempdir().map_err(BenchError::failed)?;
        std::fs::write(folder.path().join(format!("{TASK}.toml")), SETTINGS).map_err(BenchError::failed)?;
        let run = self.idle_server();
        let task = run.task()?;
        let mut server = ServerProcess::start(&run, folder.path(), &task.set, self.tls)?;
        let door = Door::of(server.address(), self.tls.then(|| folder.path().join(CERTIFICATE)).as_deref())?;
        let mut honest = Honest::new(&door).map_err(BenchError::failed)?;
        let before = honest.asks(|done| done < self.requests).map_err(BenchError::failed)?;
        let over = AtomicBool::new(false);
        let (slow, meanwhile) = std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                let slow = Slow::open(&door, self.slow).and_then(Slow::until_closed);
                over.store(true, Ordering::Release);
                slow
            });
            let meanwhile = honest.asks(|_| !over.load(Ordering::Acquire));
            (slow.join(), meanwhile)
        });
        let slow = slow.map_err(|_| BenchError::failed("the slow connections ended by a bug"))?;
        let (closed, longest) = slow.map_err(BenchError::failed)?;
        server.is_over()?;
        let (before, meanwhile) = (Answered::of(before)?, Answered::of(meanwhile.map_err(BenchError::failed)?)?);
        let used = server.used();
        Ok(SlowTook {
            tls: self.tls,
            slow: self.slow,
            closed,
            longest_open_s: longest.as_secs_f64(),
            before,
            meanwhile,
            p99_ratio: meanwhile.p99_ms / before.p99_ms,
            server_cpu_s: used.cpu_s,
            server_peak_mb: used.peak_mb,
        })
    }

    /// A server whose task waits for devices that never come.
    fn idle_server(&self) -> NetworkRun {
        NetworkRun {
            program: self.program.clone(),
            devices: 1000,
            goal: 100,
            rounds: 10,
            secagg: false,
            model: "tiny".to_owned(),
            kill_server_every: None,
            ready_made: false,
            realistic_day_s: None,
            threads: 1,
            set: Vec::new(),
            patience: PATIENCE,
        }
    }
}

/// How connections to the server are opened.
struct Door {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection that is open: with TLS after its handshake.
enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Door {
    /// The server at an address; with TLS where it made this certificate.
    fn of(address: &str, certificate: Option<&Path>) -> Result<Self, BenchError> {
        let address = address.parse().map_err(BenchError::failed)?;
        let tls = certificate.map(|certificate| -> Result<_, BenchError> {
            let mut config = configured(&Trust::Pinned(certificate.to_owned())).map_err(BenchError::failed)?;
            // A device that nobody knows has no ticket: each handshake is a whole one.
            config.resumption = Resumption::disabled();
            Ok(Arc::new(config))
        });
        Ok(Self { address, tls: tls.transpose()? })
    }

    fn open(&self) -> io::Result<Wire> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let Some(config) = &self.tls else { return Ok(Wire::Plain(stream)) };
        let name = ServerName::from(self.address.ip());
        let mut session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut stream)?;
        }
        Ok(Wire::Tls(Box::new(StreamOwned::new(session, stream))))
    }
}

impl Wire {
    const fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(from),
            Self::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A device that checks in again and again.
struct Honest {
    stream: Wire,
    key: SigningKey,
    realm: Realm,
    time_s: u64,
    number: u64,
}

impl Honest {
    /// Meets the server, and enrols.
    fn new(door: &Door) -> io::Result<Self> {
        let stream = door.open()?;
        let key = SigningKey::from_bytes(&[5; 32]);
        let mut honest = Self { stream, key, realm: Realm([0; 32]), time_s: 0, number: 0 };
        honest.stream.write_all(b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")?;
        honest.stream.flush()?;
        let hello = Hello::decode(&honest.body()?[..]).map_err(io::Error::other)?;
        honest.realm = Realm(hello.realm.try_into().map_err(|_| io::Error::other("the realm does not have 32 bytes"))?);
        honest.time_s = hello.time_s;
        match honest.says(Wants::Enrol(Enrol::default()))?.0 {
            Some(Says::Enrolled(_)) => Ok(honest),
            other => Err(io::Error::other(format!("the honest device is not enrolled: {other:?}"))),
        }
    }

    /// Checks in as long as that is wanted; gives how long each answer took.
    fn asks(&mut self, wanted: impl Fn(usize) -> bool) -> io::Result<Vec<Duration>> {
        let mut times = Vec::new();
        while wanted(times.len()) {
            let (says, took) = self.says(Wants::CheckIn(CheckIn { patience_ms: 1, resting: Vec::new() }))?;
            match says {
                Some(Says::Later(_)) => times.push(took),
                other => return Err(io::Error::other(format!("a check-in is answered by {other:?}"))),
            }
            std::thread::sleep(PAUSE);
        }
        Ok(times)
    }

    fn says(&mut self, wants: Wants) -> io::Result<(Option<Says>, Duration)> {
        self.number += 1;
        let request = Request { time_s: self.time_s, number: self.number, wants: Some(wants) };
        let body = request.sign(&self.key, &self.realm).encode_to_vec();
        let head = format!(
            "POST /v1/say HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let asked = Instant::now();
        self.stream.write_all(&[head.as_bytes(), &body].concat())?;
        self.stream.flush()?;
        let answer = self.body()?;
        let took = asked.elapsed();
        Ok((Answer::decode(&answer[..]).map_err(io::Error::other)?.says, took))
    }

    /// The body of the next answer.
    fn body(&mut self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.stream.read(&mut piece)?;
            if read == 0 {
                return Err(io::Error::other("the server hung up on an honest device"));
            }
            bytes.extend_from_slice(&piece[..read]);
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
            if bytes.len() >= end + 4 + length {
                return Ok(bytes.split_off(end + 4));
            }
        }
    }
}

/// A connection that takes its time.
struct Dawdler {
    stream: Wire,
    opened: Instant,
    /// When it sends the next byte; never where it says nothing.
    drips: Option<Instant>,
}

/// All slow connections.
struct Slow(Vec<Dawdler>);

impl Slow {
    fn open(door: &Door, count: usize) -> io::Result<Self> {
        allow_files(count);
        let ticket = "ab".repeat(32);
        let begin = [
            String::new(),
            "POST /v1/say HTTP/1.1\r\nHost: x\r\nX-A: ".to_owned(),
            format!(
                "PUT /v1/report/{ticket}/0 HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 10000\r\n\r\n"
            ),
        ];
        let open = |number: usize| -> io::Result<_> {
            let mut stream = door.open()?;
            let begin = &begin[number % begin.len()];
            stream.write_all(begin.as_bytes())?;
            stream.flush()?;
            stream.socket().set_nonblocking(true)?;
            if number % AT_ONCE == AT_ONCE - 1 {
                std::thread::sleep(BETWEEN);
            }
            let opened = Instant::now();
            Ok(Dawdler { stream, opened, drips: (!begin.is_empty()).then_some(opened + DRIPS) })
        };
        (0..count).map(open).collect::<io::Result<_>>().map(Self)
    }

    /// Waits until the server has closed them; gives how many it has, and how long one of those was open at most.
    fn until_closed(mut self) -> io::Result<(usize, Duration)> {
        let (began, count) = (Instant::now(), self.0.len());
        let mut longest = Duration::ZERO;
        while !self.0.is_empty() && began.elapsed() < PATIENCE {
            self.0.retain_mut(|dawdler| {
                let is_open = dawdler.is_open();
                if !is_open {
                    longest = longest.max(dawdler.opened.elapsed());
                }
                is_open
            });
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((count - self.0.len(), longest))
    }
}

impl Dawdler {
    /// Sends its byte, if it is time; whether the server still has it.
    fn is_open(&mut self) -> bool {
        let now = Instant::now();
        let drips = self.drips.is_some_and(|at| now >= at);
        if drips {
            self.drips = Some(now + DRIPS);
        }
        !is_closed(&mut self.stream) && (!drips || drip(&mut self.stream).is_ok())
    }
}

/// One more byte; a socket that takes none just now is as good.
fn drip(stream: &mut Wire) -> io::Result<()> {
    match stream.write(b"a") {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Whether the other side has hung up. What it says before is of no interest.
fn is_closed(stream: &mut Wire) -> bool {
    let mut said = [0; 1024];
    loop {
        match stream.read(&mut said) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// Lets this process have so many connections, as far as the system allows.
fn allow_files(connections: usize) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let wanted = maximum.unwrap_or(u64::MAX).min(connections as u64 + OTHER_FILES);
        if current.is_some_and(|current| current < wanted) {
            // Where it may not, opening them fails and says so.
            _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
        }
    }
    #[cfg(not(unix))]
    let _ = connections;
}
