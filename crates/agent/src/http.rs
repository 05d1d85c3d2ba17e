//! An HTTP/1.1 and TLS client for one server: reused connections, limits on time and size, and only explicitly configured trust.
//!
//! A device trusts the roots of a file, or one certificate and no other; never those of the system, which are somebody else's choice.
//! Without TLS it speaks to this very machine only, and only when told so.

use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use device::protocol::{
    hex,
    message::{MOST_BYTES, Ticket},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, RANGE},
};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use thiserror::Error;
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};
use tokio_rustls::TlsConnector;

use crate::{
    AgentError,
    traffic::{Counting, Traffic},
};

/// Connections that wait to be used again.
const MOST_IDLE: usize = 64;
/// How long it may take to be connected.
const CONNECT: Duration = Duration::from_secs(15);
/// A connection that turns out to be closed within this was closed before the request.
const STALE: Duration = Duration::from_secs(1);
/// The most certificates that are pinned: those of a server, while one takes the place of another.
const MOST_PINS: usize = 4;
/// How long a server may be silent in the middle of something.
const SILENCE: Duration = Duration::from_secs(60);

/// Whom to believe that it is the server.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Nobody is asked: no TLS, and only on this very machine.
    Loopback,
    /// Servers certified by one of the certificates in a PEM file.
    Roots(PathBuf),
    /// Who has the key of one of the certificates in a PEM file: the one of a server, and the next one before it is replaced.
    Pinned(PathBuf),
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The connection could not be opened.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// The connection was lost during a request.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// An answer that is none of this protocol.
    #[error("the server answered {0}")]
    Status(StatusCode),
}

/// A server.
pub struct Server {
    host: String,
    port: u16,
    authority: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// One for each connection that may be open.
    room: Semaphore,
    traffic: Arc<Traffic>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.authority)
    }
}

impl Server {
    /// The server at an address such as `https://example.org:8443`, with so many connections at a time.
    ///
    /// # Errors
    /// When the address or the certificate cannot be used.
    pub fn new(address: &str, trust: &Trust, connections: usize) -> Result<Self, AgentError> {
        let wrong = |problem| AgentError::Address { address: address.to_owned(), problem };
        if !address.contains("://") {
            return Err(wrong("has no scheme: write https:// before it"));
        }
        let uri: Uri = address.parse().map_err(|_| wrong("is not a URL"))?;
        let host = uri.host().ok_or_else(|| wrong("has no host name"))?.trim_matches(['[', ']']).to_owned();
        if !matches!(uri.path(), "" | "/") {
            return Err(wrong("has a path; give only the host"));
        }
        let (is_tls, usual) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(wrong("must begin with https:// or http://")),
        };
        let tls = match (is_tls, trust) {
            (false, Trust::Loopback) => {
                let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
                if !is_here {
                    return Err(wrong("is another machine; without TLS only this machine is allowed"));
                }
                None
            }
            (false, _) => return Err(wrong("has no TLS: use https://")),
            (true, Trust::Loopback) => return Err(wrong("uses TLS: give --roots or --pin")),
            (true, trust) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong("is not a valid TLS server name"))?;
                Some((TlsConnector::from(Arc::new(configured(trust)?)), name))
            }
        };
        let port = uri.port_u16().unwrap_or(usual);
        let authority = uri.authority().map_or_else(String::new, |a| a.as_str().to_owned());
        let room = Semaphore::new(connections.max(1));
        Ok(Self { host, port, authority, tls, idle: Mutex::default(), room, traffic: Arc::default() })
    }

    /// The network traffic so far.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// `GET /v1/hello`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn hello(&self) -> Result<Bytes, HttpError> {
        self.exchange(Method::GET, "/v1/hello", Bytes::new(), SILENCE).await
    }

    /// `POST /v1/say`. The server may think for as long as the device said, and a while more.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn say(&self, request: Vec<u8>, patience: Duration) -> Result<Bytes, HttpError> {
        self.exchange(Method::POST, "/v1/say", request.into(), patience + SILENCE).await
    }

    /// `PUT /v1/report/TICKET/OFFSET`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(&self, ticket: &Ticket, offset: u64, chunk: Vec<u8>) -> Result<Bytes, HttpError> {
        let path = format!("/v1/report/{}/{offset}", hex(&ticket.0));
        self.exchange(Method::PUT, &path, chunk.into(), 4 * SILENCE).await
    }

    /// `GET /v1/blob/DIGEST` from an offset on. Pieces are given as they come; returns when that was the last, or when `take` wants no more.
    ///
    /// # Errors
    /// When it breaks off.
    pub async fn blob(
        &self,
        digest: &[u8; 32],
        offset: u64,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), HttpError> {
        let _room = self.room.acquire().await;
        let mut request = self.request(Method::GET, &format!("/v1/blob/{}", hex(digest)), Bytes::new())?;
        if offset > 0 {
            let range = format!("bytes={offset}-");
            request.headers_mut().insert(RANGE, range.parse().map_err(broken)?);
        }
        let (response, sender) = self.request_on_any(request, SILENCE).await?;
        // A server that does not know ranges starts over.
        let mut skip = match response.status() {
            StatusCode::OK => offset,
            StatusCode::PARTIAL_CONTENT => 0,
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(()),
            other => return Err(HttpError::Status(other)),
        };
        let mut body = response.into_body();
        while let Some(frame) = timeout(SILENCE, body.frame()).await.map_err(|_| HttpError::TimedOut)? {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let start = usize::try_from(skip).unwrap_or(usize::MAX).min(data.len());
            skip -= start as u64;
            if !take(&data[start..]) {
                return Ok(());
            }
        }
        self.keep(sender);
        Ok(())
    }

    /// A request to the admin API of a server, with an access token: the status and the whole answer, of at most so many bytes.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Vec<u8>>,
        most: usize,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let _room = self.room.acquire().await;
        let mut request = self.request(method, path, body.unwrap_or_default().into())?;
        let bearer =
            format!("Bearer {token}").parse().map_err(|_| broken("the access token is not one line of text"))?;
        request.headers_mut().insert(AUTHORIZATION, bearer);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (response, sender) = self.request_on_any(request, SILENCE).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), most).collect().await.map_err(broken)?.to_bytes();
        self.keep(sender);
        Ok((status, body))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes, within: Duration) -> Result<Bytes, HttpError> {
        let _room = self.room.acquire().await;
        let request = self.request(method, path, body)?;
        let (response, sender) = self.request_on_any(request, within).await?;
        let status = response.status();
        let body = timeout(SILENCE, Limited::new(response.into_body(), MOST_BYTES).collect()).await;
        let body = body.map_err(|_| HttpError::TimedOut)?.map_err(broken)?.to_bytes();
        self.keep(sender);
        // Refusals are answers too, whatever their number; what has no body is no answer.
        if body.is_empty() && !status.is_success() { Err(HttpError::Status(status)) } else { Ok(body) }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, HttpError> {
        // Chunks are bytes as they are; everything else is a message.
        let kind = if method == Method::PUT { "application/octet-stream" } else { "application/x-protobuf" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, kind)
            .header(CONTENT_LENGTH, body.len());
        request.body(Full::new(body)).map_err(broken)
    }

    /// On a connection that waits, or on a new one where there is none or it turns out to be closed.
    async fn request_on_any(
        &self,
        request: Request<Full<Bytes>>,
        within: Duration,
    ) -> Result<(Response<Incoming>, SendRequest<Full<Bytes>>), HttpError> {
        let mut was_there = false;
        while let Some(mut sender) = self.take_idle() {
            let began = Instant::now();
            match timeout(within, sender.send_request(request.clone())).await {
                Err(_) => return Err(HttpError::TimedOut),
                Ok(Ok(response)) => return Ok((response, sender)),
                // It was closed while it waited, unless the server had the request for a while.
                Ok(Err(error)) if began.elapsed() < STALE && is_closed(&error) => {
                    was_there |= error.is_incomplete_message();
                }
                Ok(Err(error)) => return Err(broken(error)),
            }
        }
        let nobody = |_| HttpError::Connect("no server answers".to_owned());
        let connected = timeout(CONNECT, self.connect()).await.map_err(nobody).flatten();
        // A server that is gone now and was there a moment ago was lost.
        let mut sender = connected.map_err(|error| if was_there { broken(error) } else { error })?;
        let response = timeout(within, sender.send_request(request)).await.map_err(|_| HttpError::TimedOut)?;
        Ok((response.map_err(|error| self.unreadable(&error))?, sender))
    }

    /// Why an answer cannot be read. A server that speaks TLS answers plain HTTP with an alert, which is no HTTP.
    fn unreadable(&self, error: &hyper::Error) -> HttpError {
        if self.tls.is_none() && error.is_parse() {
            return broken(format!("this port speaks TLS, or something else than HTTP: use https:// ({error})"));
        }
        broken(error)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpError> {
        let failed = |e: io::Error| HttpError::Connect(e.to_string());
        let reached = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = reached.map_err(|error| unreached(&error))?;
        // What is written is whole messages: nothing is gained by waiting for more.
        stream.set_nodelay(true).map_err(failed)?;
        if self.tls.is_none() {
            is_this_machine(stream.peer_addr().map_err(failed)?.ip())?;
        }
        let stream = Counting::new(stream, Arc::clone(&self.traffic));
        match &self.tls {
            None => Self::speak(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                Self::speak(TokioIo::new(connector.connect(name.clone(), stream).await.map_err(failed)?)).await
            }
        }
    }

    async fn speak<T>(io: TokioIo<T>) -> Result<SendRequest<Full<Bytes>>, HttpError>
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io).await.map_err(|e| HttpError::Connect(e.to_string()))?;
        // It ends with the connection; errors are reported by the request.
        drop(tokio::spawn(connection));
        Ok(sender)
    }

    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE && !sender.is_closed() {
            idle.push(sender);
        }
    }
}

/// Names are what the machine takes them for: also `localhost` can be another machine.
fn is_this_machine(peer: IpAddr) -> Result<(), HttpError> {
    match peer.to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(HttpError::Connect(format!("{peer} is another machine, and TLS is not used"))),
    }
}

/// Why there is no connection, and what to look at.
fn unreached(error: &io::Error) -> HttpError {
    let words = error.to_string();
    let next = if error.kind() == io::ErrorKind::ConnectionRefused {
        "; nothing listens there: is the server running, and is the port right?"
    } else if words.contains("lookup address") {
        "; check the name of the server in its address"
    } else {
        ""
    };
    HttpError::Connect(format!("{words}{next}"))
}

fn is_closed(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || error.is_incomplete_message()
}

fn broken(error: impl fmt::Display) -> HttpError {
    HttpError::Broken(error.to_string())
}

/// What a connection over TLS is opened with, by this trust.
///
/// # Errors
/// When a certificate cannot be read.
pub fn configured(trust: &Trust) -> Result<ClientConfig, AgentError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Pinned(path) => {
            let certificates = certificates(path)?;
            if !(1..=MOST_PINS).contains(&certificates.len()) {
                let problem = format!(
                    "expected the certificate of the server, or that and the next one, at most {MOST_PINS}; it has {}",
                    certificates.len()
                );
                return Err(unusable(path, problem));
            }
            let pinned = Pinned { certificates, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned))
        }
        Trust::Roots(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|e| unusable(path, &e))?;
            }
            if roots.is_empty() {
                return Err(unusable(path, "contains no certificate"));
            }
            builder.with_root_certificates(roots)
        }
        Trust::Loopback => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

fn unusable(path: &Path, problem: impl fmt::Display) -> AgentError {
    AgentError::Certificate { path: path.to_owned(), problem: problem.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AgentError> {
    let bytes = std::fs::read(path).map_err(|e| unusable(path, e))?;
    CertificateDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|e| unusable(path, format!("{e:?}")))
}

/// Believes these certificates and no others. Names and dates in it are not looked at: it was given, not found. That the server has its key
/// is checked as always.
#[derive(Debug)]
struct Pinned {
    certificates: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.contains(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_reached_is_told_what_to_look_at() {
        let refused = unreached(&io::Error::from(io::ErrorKind::ConnectionRefused)).to_string();
        assert!(refused.starts_with("cannot connect: ") && refused.contains("is the server running"), "{refused}");
        let unknown = io::Error::other("failed to lookup address information: Name or service not known");
        assert!(unreached(&unknown).to_string().ends_with("check the name of the server in its address"));
        let without = Server::new("localhost:8443", &Trust::Loopback, 1).unwrap_err().to_string();
        assert!(without.contains("write https:// before it"), "{without}");
    }

    /// As a server that speaks TLS does.
    #[tokio::test]
    async fn an_alert_of_tls_is_not_called_a_broken_version() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let alert = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.unwrap();
            assert!(asked > 0);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &[21, 3, 3, 0, 2, 2, 70]).await.unwrap();
        };
        let server = Server::new(&format!("http://{address}"), &Trust::Loopback, 1).unwrap();
        let (said, ()) = tokio::join!(server.hello(), alert);
        let said = said.unwrap_err().to_string();
        assert!(said.contains("this port speaks TLS") && said.contains("use https://"), "{said}");
    }

    /// Whatever a resolver makes of `localhost`: the address that was reached is what counts.
    #[test]
    fn without_tls_only_this_machine_will_do() {
        for here in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(is_this_machine(here.parse().unwrap()).is_ok(), "{here}");
        }
        for elsewhere in ["192.0.2.7", "10.0.0.1", "::ffff:192.0.2.7", "fe80::1", "0.0.0.0"] {
            assert!(is_this_machine(elsewhere.parse().unwrap()).is_err(), "{elsewhere}");
        }
    }
}
