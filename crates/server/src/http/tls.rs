//! Certificates.

use std::{path::Path, sync::Arc};

use durable::{
    disk::{Disk, OsDisk},
    files::{self, Replacement},
};
use listen::{Handshake, Shaking, Stream};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::ParsedCertificate,
};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use super::HttpError;

/// A certificate with its chain and its key, which fit each other.
#[derive(Debug, Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
}

impl Identity {
    /// Reads PEM files: a certificate with the chain to its root, and its key.
    ///
    /// # Errors
    /// When a file cannot be read, holds no such thing, or the key is another's.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Self, HttpError> {
        let certificates = certificates(chain)?;
        let what = "a private key";
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|e| HttpError::Pem { what, path: key.to_owned(), error: e })?;
        Self::new(certificates, secret).map_err(|error| HttpError::Identity { path: chain.to_owned(), error })
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Devices that come back need no new handshake, and nothing is kept for them: tickets hold it, under keys that change.
        config.ticketer = ring::Ticketer::new()?;
        Ok(Self { config: Arc::new(config) })
    }
}

impl Handshake for Identity {
    fn shake(&self, stream: TcpStream) -> Shaking {
        let accepting = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream);
        Box::pin(async { accepting.await.map(|stream| Box::new(stream) as Box<dyn Stream>) })
    }
}

/// A certificate of one's own for these names, for trying things out: `cert.pem`, which devices are told to trust, and `key.pem`,
/// which its owner alone can read. Where they are already, they are used again.
///
/// # Errors
/// When the disk fails, a name is no name, or what is there is for other names.
pub fn self_signed(folder: &Path, names: &[String]) -> Result<Identity, HttpError> {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    match (certificate.exists(), key.exists()) {
        (true, true) => fits(&certificate, names)?,
        (true, false) => return Err(HttpError::KeyMissing { certificate, key }),
        // The key comes first: without its certificate nobody has trusted it.
        (false, _) => make(&certificate, &key, names)?,
    }
    Identity::from_files(&certificate, &key)
}

/// The SHA-256 of the first certificate of a file, in hexadecimal digits: what two people compare who want to know whether they have the same one.
///
/// # Errors
/// When the file cannot be read, or holds no certificate.
pub fn fingerprint(certificate: &Path) -> Result<String, HttpError> {
    let digest = Sha256::digest(certificates(certificate)?.swap_remove(0));
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn make(certificate: &Path, key: &Path, names: &[String]) -> Result<(), HttpError> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)
        .map_err(|error| HttpError::Certificate { names: names.to_owned(), error })?;
    let secret = Zeroizing::new(signing_key.serialize_pem());
    // Its folder lies in one that is for the server's owner alone.
    let within = files::folder(key);
    for folder in [files::folder(within), within] {
        if OsDisk.create_folder(folder, true).map_err(files::failed("make", folder))? {
            files::sync_folder(files::folder(folder))?;
        }
    }
    let by = Replacement { new: &files::beside(key, ".new"), private: true, time: None };
    files::replace(&OsDisk, key, by, |out| out.write_all(secret.as_bytes()))?;
    files::write(certificate, cert.pem().as_bytes())?;
    Ok(())
}

/// That a certificate is for all of these names.
fn fits(path: &Path, names: &[String]) -> Result<(), HttpError> {
    let first = certificates(path)?.swap_remove(0);
    let parsed =
        ParsedCertificate::try_from(&first).map_err(|error| HttpError::Identity { path: path.to_owned(), error })?;
    let other = |name: &&String| {
        ServerName::try_from(name.as_str()).map_or(true, |n| rustls::client::verify_server_name(&parsed, &n).is_err())
    };
    match names.iter().find(other) {
        None => Ok(()),
        Some(name) => Err(HttpError::OtherNames { path: path.to_owned(), name: name.clone() }),
    }
}

/// Reads at least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let failed = |error| HttpError::Pem { what: "certificates", path: path.to_owned(), error };
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
    if all.is_empty() { Err(failed(rustls::pki_types::pem::Error::NoItemsFound)) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&n| n.to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("tls");
        self_signed(&here, &names(&["localhost", "127.0.0.1"])).unwrap();
        let read = || (std::fs::read(here.join("cert.pem")).unwrap(), std::fs::read(here.join("key.pem")).unwrap());
        let made = read();
        self_signed(&here, &names(&["127.0.0.1"])).unwrap();
        assert_eq!(made, read(), "the second time they are used as they are");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(here.join("key.pem")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let other = self_signed(&here, &names(&["keyhush.example"])).unwrap_err();
        assert!(matches!(other, HttpError::OtherNames { .. }), "{other}");
    }

    #[test]
    fn half_of_a_pair_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        self_signed(here, &names(&["localhost"])).unwrap();
        std::fs::remove_file(here.join("cert.pem")).unwrap();
        self_signed(here, &names(&["localhost"])).expect("a crash before the certificate was written");
        std::fs::remove_file(here.join("key.pem")).unwrap();
        let error = self_signed(here, &names(&["localhost"])).unwrap_err();
        assert!(matches!(error, HttpError::KeyMissing { .. }), "{error}");
    }

    #[test]
    fn files_that_hold_something_else_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        self_signed(&a, &names(&["localhost"])).unwrap();
        self_signed(&b, &names(&["localhost"])).unwrap();
        let other = Identity::from_files(&a.join("cert.pem"), &b.join("key.pem")).unwrap_err();
        assert!(matches!(other, HttpError::Identity { .. }), "{other}");
        let swapped = Identity::from_files(&a.join("key.pem"), &a.join("cert.pem")).unwrap_err();
        assert!(matches!(swapped, HttpError::Pem { what: "certificates", .. }), "{swapped}");
        let none = Identity::from_files(&a.join("cert.pem"), &a.join("none.pem")).unwrap_err();
        assert!(matches!(none, HttpError::Pem { what: "a private key", .. }), "{none}");
    }
}
