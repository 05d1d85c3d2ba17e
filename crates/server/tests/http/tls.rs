//! TLS by default: who trusts the server's certificate speaks with it, others do not, and nobody speaks in the open.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use keyhush_server::http::{Limits, ListenError, Server, Transport, self_signed};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::peers::{Client, Running, check_in};

pub(crate) fn identity(folder: &Path) -> Transport {
    Transport::Tls(Arc::new(
        self_signed(folder, &["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("a certificate"),
    ))
}

/// A client that trusts the certificate in a folder.
pub(crate) fn trusting(folder: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("cert.pem")).expect("a certificate")).expect("a root");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

pub(crate) async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
) -> std::io::Result<Client<TlsStream<TcpStream>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Client::new(connector.connect(ServerName::try_from(name).expect("a name"), stream).await?))
}

#[tokio::test]
async fn devices_that_trust_the_certificate_are_answered_and_others_are_not() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Running::with(identity(ours.path()), Limits::default()).await;
    identity(theirs.path());
    let trusting_us = trusting(ours.path());
    for name in ["localhost", "127.0.0.1"] {
        let mut client = connect(&trusting_us, server.address, name).await.unwrap();
        assert_eq!(client.stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(client.body("POST", "/v1/say", &check_in(0)).await.status, 200);
        assert_eq!(client.get("/healthz", "").await.status, 200);
    }
    let error =
        connect(&trusting(theirs.path()), server.address, "localhost").await.err().expect("another's certificate");
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = connect(&trusting_us, server.address, "keyhush.example").await.err().expect("another's name");
    assert!(error.to_string().contains("certificate"), "{error}");
    // And who speaks in the open is not answered.
    let mut plain = server.client().await;
    assert!(plain.try_send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"").await.is_none_or(|r| r.status != 200));
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_has_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { handshake: Duration::from_millis(500), ..Limits::default() };
    let server = Running::with(identity(folder.path()), limits).await;
    for begin in [&b""[..], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"] {
        let mut client = server.client().await;
        client.stream.write_all(begin).await.unwrap();
        timeout(Duration::from_secs(5), client.until_closed(begin.first().map(|_| 0))).await.expect("it is closed");
    }
    server.stop().await;
}

#[tokio::test]
async fn plain_http_is_for_loopback_alone() {
    for elsewhere in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:0.0.0.0]:0"] {
        let address: SocketAddr = elsewhere.parse().unwrap();
        let error = Server::bind(address, Transport::PlainOnLoopback, Limits::default()).await.unwrap_err();
        assert!(matches!(error, ListenError::PlainElsewhere { .. }), "{elsewhere}: {error}");
        assert!(error.to_string().contains("use --certificate"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let anywhere = Server::bind("0.0.0.0:0".parse().unwrap(), identity(folder.path()), Limits::default()).await;
    assert!(anywhere.is_ok(), "with TLS it may be anywhere");
    let holder = Server::bind(([127, 0, 0, 1], 0).into(), Transport::PlainOnLoopback, Limits::default()).await.unwrap();
    let second = Server::bind(holder.address(), Transport::PlainOnLoopback, Limits::default()).await.unwrap_err();
    assert!(matches!(second, ListenError::Address { .. }), "{second}");
}
