//! TLS towards a tracking server, with the certificates that the machine or its owner trusts.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    TrackError,
    address::{Account, Address},
};

/// Whom to trust, and the name that the server must show.
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    pub(crate) fn new(address: &Address, account: &Account) -> Result<Self, TrackError> {
        let problem = "has a host name that TLS cannot check";
        let wrong = |_| TrackError::Address { address: address.to_string(), problem };
        let name = ServerName::try_from(address.host.clone()).map_err(wrong)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(configured(account.roots.as_deref())?)), name })
    }

    /// TLS over a connection.
    pub(crate) async fn over(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

fn configured(roots: Option<&Path>) -> Result<ClientConfig, TrackError> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            let unusable = |problem: String| TrackError::Certificates { path: path.to_owned(), problem };
            let bytes = std::fs::read(path).map_err(|e| unusable(e.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&bytes) {
                let certificate = certificate.map_err(|e| unusable(format!("{e:?}")))?;
                store.add(certificate).map_err(|e| unusable(e.to_string()))?;
            }
            if store.is_empty() {
                return Err(unusable("it contains none".into()));
            }
        }
        None => {
            // A few of many may be too old to be parsed; the others are enough.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(TrackError::NoCertificates);
            }
        }
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}
