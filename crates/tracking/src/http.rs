//! A client for tracking servers: HTTP/1.1, one request after the other on one connection, with limits on time and size.
//!
//! It uses the same crates as a device (`agent::http`), but not that module: a device only trusts given certificates, and only its own
//! machine without TLS, while a tracking server is any server that a person names.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request,
    client::conn::http1::{self, SendRequest},
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    TrackError,
    address::{Account, Address},
    tls::Tls,
};

/// How long a server may take for an answer, connecting included.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest answer that is read.
const MOST_BYTES: usize = 1 << 20;
/// How much of an error message is shown.
const MOST_SHOWN: usize = 300;

/// A server, and the connection to it.
pub(crate) struct Client {
    address: Address,
    account: Account,
    tls: Option<Tls>,
    idle: Option<SendRequest<Full<Bytes>>>,
}

/// An error as MLflow reports it.
#[derive(Deserialize)]
struct Said {
    error_code: String,
    message: String,
}

impl Client {
    pub(crate) fn new(address: Address, account: Account) -> Result<Self, TrackError> {
        let tls = if address.tls { Some(Tls::new(&address, &account)?) } else { None };
        Ok(Self { address, account, tls, idle: None })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn experiment(&self) -> &str {
        &self.account.experiment
    }

    /// Sends a request and returns the body of a successful answer.
    pub(crate) async fn ask(&mut self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, TrackError> {
        let request = self.request(method, path, body.into())?;
        let late = |_| TrackError::Away("no answer in time".into());
        timeout(PATIENCE, self.exchange(request)).await.map_err(late)?
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes, TrackError> {
        let broken = |error: hyper::Error| TrackError::Away(format!("the connection broke: {error}"));
        // A connection may have been closed while it was idle: then the request is sent on a new one. That is safe, for all requests can be
        // repeated: before a run is created it is searched for, and MLflow stores the same numbers once.
        let waiting = self.idle.take().filter(SendRequest::is_ready);
        let answer = match waiting {
            Some(mut sender) => sender.send_request(request.clone()).await.ok().map(|answer| (answer, sender)),
            None => None,
        };
        let (answer, sender) = match answer {
            Some(both) => both,
            None => {
                let mut sender = self.connect().await?;
                (sender.send_request(request).await.map_err(broken)?, sender)
            }
        };
        let status = answer.status();
        let moved = answer.headers().get(LOCATION).filter(|_| status.is_redirection()).cloned();
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|error| TrackError::Away(format!("the answer broke off: {error}")))?.to_bytes();
        self.idle = Some(sender);
        if status.is_success() {
            return Ok(body);
        }
        Err(match moved {
            Some(to) => redirected(status.as_u16(), &to),
            None => refused(status.as_u16(), &body),
        })
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, TrackError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address.prefix))
            .header(HOST, &self.address.authority)
            .header(USER_AGENT, concat!("keyhush/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json").header(CONTENT_LENGTH, body.len());
        }
        if let Some(authorization) = &self.account.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let wrong = "cannot be used in a request";
        request
            .body(Full::new(body))
            .map_err(|_| TrackError::Address { address: self.address.to_string(), problem: wrong })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, TrackError> {
        let failed = |e: std::io::Error| TrackError::Away(format!("cannot connect: {e}"));
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match &self.tls {
            None => speak(TokioIo::new(stream)).await,
            Some(tls) => speak(TokioIo::new(tls.over(stream).await.map_err(failed)?)).await,
        }
    }
}

async fn speak<T>(io: TokioIo<T>) -> Result<SendRequest<Full<Bytes>>, TrackError>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let failed = |e: hyper::Error| TrackError::Away(format!("cannot connect: {e}"));
    let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
    // It ends with the connection; the request returns the error.
    drop(tokio::spawn(connection));
    Ok(sender)
}

/// A redirect is not followed: the password would be sent to the host it names.
fn redirected(status: u16, to: &HeaderValue) -> TrackError {
    let to = String::from_utf8_lossy(to.as_bytes());
    refused(status, format!("it redirects to {to}: if that is your server, give its address").as_bytes())
}

/// A refusal with the server's message: MLflow's own, or the beginning of whatever a proxy says.
fn refused(status: u16, body: &[u8]) -> TrackError {
    let text = match serde_json::from_slice::<Said>(body) {
        Ok(Said { error_code, message }) => format!("{error_code}: {message}"),
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_SHOWN);
    TrackError::Refused { status, message: shown.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_the_servers_words() {
        let said = |status, body: &[u8]| refused(status, body).to_string();
        let of_mlflow = br#"{"error_code": "INVALID_PARAMETER_VALUE", "message": "no such run"}"#;
        assert_eq!(said(400, of_mlflow), "the server answers 400: INVALID_PARAMETER_VALUE: no such run");
        assert_eq!(said(502, b"<html>\n\x1b[31mbad"), "the server answers 502: <html>  [31mbad");
        assert!(said(500, &[b'x'; 5000]).len() < 400);
        let to = HeaderValue::from_static("https://tracking.example.org/api");
        assert!(redirected(308, &to).to_string().contains("308: it redirects to https://tracking.example.org/api: if"));
        assert!(refused(503, b"").may_pass() && refused(429, b"").may_pass() && !refused(403, b"").may_pass());
    }
}
