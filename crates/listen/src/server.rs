//! The accept loop: admits connections, limits their time, and shuts down.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{Router, body::Body, http::StatusCode, response::Response};
use hyper::{
    Request,
    body::Incoming,
    header::{CONNECTION, HeaderValue, RETRY_AFTER},
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    ListenError,
    census::{Admission, Census, Entry, one},
    limits::Limits,
    origins::Origins,
    proxies::Proxies,
    transport::Transport,
    watched::{Answering, Standing, Watched},
};

/// The longest header, and the most of it that hyper keeps of a connection.
const HEADER_BYTES: usize = 16 << 10;
/// The most fields of a header.
const HEADER_FIELDS: usize = 64;
/// What the system keeps of an answer that is not yet taken. More would hide for how long nothing is taken.
const SEND_BYTES: u32 = 128 << 10;
/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Files that are not for connections: those of the store, of its logs, of the runtime.
const OTHER_FILES: u64 = 256;
/// How long the loop pauses when the system has no more files, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// How soon those come back who are told that there is no place, in seconds.
const AFTER_S: u64 = 30;

/// From where a request came; the loop puts it beside each.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// That the server is told to stop, for answers that would otherwise not end; the loop puts it beside each request.
#[derive(Debug, Clone)]
pub struct Ending(watch::Receiver<bool>);

impl Ending {
    /// Whether it is told to.
    #[must_use]
    pub fn is_near(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is.
    pub async fn comes(&mut self) {
        // A server that is gone is one that has stopped.
        let _ = self.0.wait_for(|&stopped| stopped).await;
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    transport: Transport,
    limits: Limits,
    proxies: Proxies,
    origins: Origins,
    crowded: fn() -> Response,
}

/// Statistics of a server's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections that it took.
    pub connections: u64,
    /// Connections for which there was no place.
    pub refused: u64,
    /// Connections without a request that were closed to make place.
    pub evicted: u64,
    /// Times that the system could not give it a connection, mostly for want of files.
    pub failed: u64,
    /// Connections that had to be cut when it stopped.
    pub cut: u64,
    /// Connections that ended by a panic, which is a bug.
    pub panicked: u64,
}

impl Server {
    /// Listens. Connections wait until [`Server::serve`] is called.
    ///
    /// # Errors
    /// When the address cannot be had, or plain HTTP was asked for where other machines can connect.
    pub async fn bind(address: SocketAddr, transport: Transport, limits: Limits) -> Result<Self, ListenError> {
        transport.check(address)?;
        let listener = listen(address).map_err(|error| ListenError::Address { address, error })?;
        let address = listener.local_addr().map_err(|error| ListenError::Address { address, error })?;
        let connections = limits.connections.min(files_for_connections(limits.connections));
        let limits = Limits { connections, ..limits };
        let (proxies, origins, crowded) = (Proxies::default(), Origins::default(), crowded as fn() -> Response);
        Ok(Self { listener, address, transport, limits, proxies, origins, crowded })
    }

    /// Takes the word of these proxies on where requests come from. Each may have as many connections as an address of this machine.
    #[must_use]
    pub fn behind(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Lets pages of these origins speak to it.
    #[must_use]
    pub fn open_to(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// Says this to those for whom there is no place, instead of a line of text. Their connection is closed.
    #[must_use]
    pub fn when_full(self, crowded: fn() -> Response) -> Self {
        Self { crowded, ..self }
    }

    /// Where it listens: the port that it was given, where none was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its limits, with as many connections as the system lets it have.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Serves until it is told to stop. Then it takes no more connections and no more requests; those that are under way may continue
    /// for as long as [`Limits::finish`] says, and are cut.
    pub async fn serve(self, app: Router, stop: impl Future<Output = ()>) -> Served {
        let census = Census::new(self.limits);
        let (stopping, stopped) = watch::channel(false);
        let door = Arc::new(Door {
            app,
            transport: self.transport,
            limits: self.limits,
            proxies: self.proxies,
            origins: self.origins,
            crowded: self.crowded,
            stopped,
        });
        let mut served = Served::default();
        let mut tasks = JoinSet::new();
        let mut pause = PAUSES[0];
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                Some(ended) = tasks.join_next() => {
                    served.panicked += u64::from(panicked(ended));
                    continue;
                }
                accepted = self.listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                // It went before it was let in.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    served.failed += 1;
                    census.make_place();
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES[1]);
                    continue;
                }
            };
            pause = PAUSES[0];
            let peer = peer.ip();
            match census.admit(peer, door.proxies.are_at(peer)) {
                Admission::In(entry) => {
                    served.connections += 1;
                    tasks.spawn(Arc::clone(&door).connection(stream, peer, entry, false));
                }
                Admission::Told(entry) => {
                    served.refused += 1;
                    tasks.spawn(Arc::clone(&door).connection(stream, peer, entry, true));
                }
                Admission::Closed => served.refused += 1,
            }
        }
        drop(self.listener);
        stopping.send_replace(true);
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                served.panicked += u64::from(panicked(ended));
            }
        };
        let _ = timeout(self.limits.finish, all).await;
        served.cut = tasks.len() as u64;
        tasks.shutdown().await;
        served.evicted = census.evicted.load(Ordering::Relaxed);
        served
    }
}

fn panicked(ended: Result<(), tokio::task::JoinError>) -> bool {
    ended.is_err_and(|error| error.is_panic())
}

/// What every connection needs.
struct Door {
    app: Router,
    transport: Transport,
    limits: Limits,
    proxies: Proxies,
    origins: Origins,
    crowded: fn() -> Response,
    stopped: watch::Receiver<bool>,
}

impl Door {
    async fn connection(self: Arc<Self>, stream: TcpStream, peer: IpAddr, entry: Entry, full: bool) {
        // Answers are small and waited for. A socket that cannot be told so is slower, and nothing else.
        let _ = stream.set_nodelay(true);
        let standing = Standing::new(entry, &self.limits);
        if let Transport::Tls(tls) = &self.transport {
            let mut stopped = self.stopped.clone();
            let stream = tokio::select! {
                shaken = timeout(self.limits.handshake, tls.shake(stream)) => match shaken {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(_)) | Err(_) => return,
                },
                () = standing.entry.sent_away() => return,
                _ = stopped.wait_for(|&stopped| stopped) => return,
            };
            return self.speak(stream, peer, standing, full).await;
        }
        self.speak(stream, peer, standing, full).await;
    }

    /// There is no place, and the connection is closed.
    fn turned_away(&self) -> Response {
        let mut response = (self.crowded)();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    async fn speak<I>(&self, stream: I, peer: IpAddr, standing: Arc<Standing>, full: bool)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (limits, mut stopped) = (self.limits, self.stopped.clone());
        standing.restart(&limits);
        let stream = TokioIo::new(Watched::new(stream, Arc::clone(&standing), limits));
        let routes = TowerToHyperService::new(self.app.clone());
        let service = service_fn(|mut request: Request<Incoming>| {
            standing.works();
            let origin = Peer(one(self.proxies.origin(peer, request.headers())));
            request.extensions_mut().insert(origin);
            request.extensions_mut().insert(Ending(self.stopped.clone()));
            let page = self.origins.of(request.headers());
            let preflight = self.origins.preflight(request.method(), request.headers());
            let asks = preflight.is_none() && !full;
            let (standing, answer) = (Arc::clone(&standing), asks.then(|| routes.call(request)));
            async move {
                let mut response = match (answer, preflight) {
                    (Some(answer), _) => answer.await?,
                    (None, Some(preflight)) if !full => preflight,
                    (None, _) => self.turned_away(),
                };
                self.origins.tell(page, &mut response);
                Ok::<_, Infallible>(response.map(|body| Answering { body, standing }))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // The stream has closer limits; this one is there if they should fail.
            .header_read_timeout(limits.idle + limits.header)
            .max_buf_size(HEADER_BYTES)
            .max_headers(HEADER_FIELDS)
            .serve_connection(stream, service);
        let mut connection = pin!(connection);
        // Errors are those of the other side: what it sent is not to be logged, and it has been told what it can be told.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = standing.entry.sent_away() => {}
            _ = stopped.wait_for(|&stopped| stopped) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// There is no place.
fn crowded() -> Response {
    let mut response = Response::new(Body::from("too many connections\n"));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(AFTER_S));
    response
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // So that a server that is started again need not wait until the system has forgotten the last one's connections.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How many connections there are files for, once the process has been given as many as it may have and needs.
fn files_for_connections(wanted: usize) -> usize {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let needed = wanted as u64 + OTHER_FILES;
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let mut files = current.unwrap_or(u64::MAX);
        let possible = maximum.unwrap_or(u64::MAX).min(needed);
        if files < possible && setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum }).is_ok() {
            files = possible;
        }
        usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(1)
    }
    #[cfg(not(unix))]
    wanted
}
