//! A server with a service that needs no coordinator, and a client that can send anything.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use device::protocol::message::{
    Answer, Hello, Later, MessageError, Realm, Reason, Received, Refused, Request, Says, Signed, Ticket, Unsupported,
    Wants,
};
use ed25519_dalek::SigningKey;
use keyhush_server::http::{Chunk, Limits, Origins, Packed, Piece, Served, Service, Transport, app, bind};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::{Mutex, oneshot},
    task::JoinHandle,
    time::sleep,
};

pub(crate) const REALM: Realm = Realm([7; 32]);
/// The digest of the one blob that there is, and its packed bytes.
pub(crate) const BLOB: &str = "0101010101010101010101010101010101010101010101010101010101010101";
pub(crate) const BLOB_BYTES: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// A blob that no socket takes at once.
pub(crate) const LARGE: &str = "0202020202020202020202020202020202020202020202020202020202020202";
pub(crate) const LARGE_BYTES: usize = 16 << 20;

/// Answers by itself.
#[derive(Default)]
pub(crate) struct Alone {
    /// Bytes of chunks that it was given.
    pub(crate) bytes: AtomicU64,
    /// Long messages that it does not let go of, while `keep` is locked.
    pub(crate) keep: Mutex<()>,
}

impl Service for Alone {
    fn hello(&self) -> Hello {
        Hello { oldest: 1, newest: 1, realm: REALM.0.to_vec(), time_s: 1_800_000_000 }
    }

    async fn say(&self, bytes: Bytes, _from: Option<IpAddr>) -> Answer {
        if bytes.len() > 1 << 16 {
            let _let_go = self.keep.lock().await;
        }
        match Signed::open(&bytes, &REALM) {
            Ok((_, Request { wants: Some(Wants::CheckIn(wants)), .. })) => {
                // Even no time at all takes a clock a millisecond.
                if wants.patience_ms > 0 {
                    sleep(Duration::from_millis(wants.patience_ms.into())).await;
                }
                Answer::new(Says::Later(Later { after_s: 60 }))
            }
            Ok(_) => Answer::refused(Reason::Unexpected, "this service only knows check-ins", 0, 0),
            Err(MessageError::Version { .. }) => Answer::new(Says::Unsupported(Unsupported { oldest: 1, newest: 1 })),
            Err(MessageError::Signature) => Answer::refused(Reason::Signature, "not signed", 0, 0),
            Err(MessageError::Malformed(_)) => Answer::refused(Reason::Malformed, "no message", 0, 0),
        }
    }

    async fn blob(&self, digest: [u8; 32]) -> Option<Packed> {
        match digest[0] {
            1 => Some(Packed::new(Bytes::from_static(BLOB_BYTES))),
            2 => Some(Packed::new(Bytes::from(vec![9; LARGE_BYTES]))),
            _ => None,
        }
    }

    async fn chunk(&self, _: Ticket, offset: u64, chunk: &mut Chunk) -> Answer {
        let mut bytes = 0;
        loop {
            match chunk.next().await {
                Piece::Bytes(piece) => bytes += piece.len() as u64,
                Piece::Nothing => {}
                Piece::End | Piece::Broken => break,
            }
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Answer::new(Says::Received(Received { offset: offset.saturating_add(bytes) }))
    }
}

/// A server that runs until it is stopped.
pub(crate) struct Running<S = Alone> {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<S>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Served>,
}

impl Running {
    pub(crate) async fn plain(limits: Limits) -> Self {
        Self::with(Transport::PlainOnLoopback, limits).await
    }

    pub(crate) async fn with(transport: Transport, limits: Limits) -> Self {
        Self::of(Alone::default(), transport, limits).await
    }
}

impl<S: Service> Running<S> {
    /// In front of a service.
    pub(crate) async fn of(service: S, transport: Transport, limits: Limits) -> Self {
        Self::open_to(service, transport, limits, Origins::default()).await
    }

    /// The same, where pages of some origins may speak.
    pub(crate) async fn open_to(service: S, transport: Transport, limits: Limits, origins: Origins) -> Self {
        let server = bind((Ipv4Addr::LOCALHOST, 0).into(), transport, limits).await.expect("a free port");
        let server = server.open_to(origins);
        let (address, service) = (server.address(), Arc::new(service));
        let (stop, stopped) = oneshot::channel();
        let routes = app(Arc::clone(&service), limits);
        let served = tokio::spawn(server.serve(routes, async {
            let _ = stopped.await;
        }));
        Self { address, service, stop, served }
    }

    pub(crate) async fn client(&self) -> Client<TcpStream> {
        self.client_from(1).await
    }

    /// From 127.0.0.1, 127.0.0.2, ...
    pub(crate) async fn client_from(&self, last: u8) -> Client<TcpStream> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).expect("loopback has many addresses");
        Client::new(socket.connect(self.address).await.expect("the server listens"))
    }

    /// Stops it, and looks whether anything in it panicked.
    pub(crate) async fn stop(self) -> Served {
        let _ = self.stop.send(());
        let served = self.served.await.expect("the loop does not panic");
        assert_eq!(served.panicked, 0, "{served:?}");
        served
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        lines.filter_map(|l| l.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn says(&self) -> Says {
        assert_eq!(self.header("content-type"), Some("application/x-protobuf"), "{self:?}");
        Answer::decode(&self.body[..]).expect("an answer").says.expect("it says something")
    }

    /// The reason and its words, of a refusal.
    pub(crate) fn refused(&self) -> (Reason, String) {
        let Says::Refused(Refused { reason, words, .. }) = self.says() else { panic!("no refusal: {self:?}") };
        assert!(self.status >= 400, "a refusal has no status of success: {self:?}");
        (reason.try_into().expect("a reason"), words)
    }
}

/// A client of HTTP that sends what it is told.
pub(crate) struct Client<I> {
    pub(crate) stream: I,
    buffer: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Client<I> {
    pub(crate) fn new(stream: I) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn get(&mut self, path: &str, fields: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"), b"").await
    }

    /// With the type that the path wants.
    pub(crate) async fn body(&mut self, method: &str, path: &str, body: &[u8]) -> Reply {
        let of = if method == "POST" { "application/x-protobuf" } else { "application/octet-stream" };
        self.send(&head(method, path, of, body.len()), body).await
    }

    pub(crate) async fn send(&mut self, head: &str, body: &[u8]) -> Reply {
        self.try_send(head, body).await.expect("an answer")
    }

    /// `None` where the other side hangs up before it says anything.
    pub(crate) async fn try_send(&mut self, head: &str, body: &[u8]) -> Option<Reply> {
        // The server may answer, and close, before it has read everything.
        let _ = self.stream.write_all(&[head.as_bytes(), body].concat()).await;
        let _ = self.stream.flush().await;
        self.reply(head.starts_with("HEAD")).await
    }

    pub(crate) async fn reply(&mut self, headless: bool) -> Option<Reply> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).expect("text");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let mut reply = Reply { status, head, body: Vec::new() };
        let length: usize = reply.header("content-length").map_or(0, |l| l.parse().expect("a length"));
        if !headless && status != 304 {
            while self.buffer.len() < length {
                self.more().await.expect("an answer that has begun is whole");
            }
            reply.body = self.buffer.drain(..length).collect();
        }
        Some(reply)
    }

    async fn more(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }

    /// Until the other side hangs up, whatever it says before. A byte is sent now and then, if it is said which.
    pub(crate) async fn until_closed(mut self, trickle: Option<u8>) {
        let mut rest = [0; 512];
        loop {
            tokio::select! {
                read = self.stream.read(&mut rest) => if matches!(read, Ok(0) | Err(_)) { return },
                () = sleep(Duration::from_millis(700)) => {
                    if let Some(byte) = trickle && self.stream.write_all(&[byte]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

pub(crate) fn head(method: &str, path: &str, of: &str, length: usize) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {of}\r\nContent-Length: {length}\r\n\r\n")
}

/// A check-in that is answered after so long.
pub(crate) fn check_in(patience_ms: u32) -> Vec<u8> {
    let wants = Wants::CheckIn(device::protocol::message::CheckIn { patience_ms, resting: Vec::new() });
    Request { time_s: 1_800_000_000, number: 1, wants: Some(wants) }
        .sign(&SigningKey::from_bytes(&[5; 32]), &REALM)
        .encode_to_vec()
}

/// A path of a chunk.
pub(crate) fn report(offset: &str) -> String {
    format!("/v1/report/{}/{offset}", "ab".repeat(32))
}
