//! Certificates: those of files, which are read again when they are replaced, and those that a server makes itself.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

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

use super::{HttpError, der};

/// How often the files of a certificate are looked at, at most: when somebody connects.
const LOOKS_EVERY: Duration = Duration::from_secs(2);

/// Who is told that a certificate was replaced, or why it was not.
type Says = Arc<dyn Fn(&str) + Send + Sync>;

/// A certificate with its chain and its key, which fit each other. Clones are the same one.
#[derive(Clone)]
pub struct Identity {
    config: Arc<RwLock<Arc<ServerConfig>>>,
    chain: PathBuf,
    key: PathBuf,
    looked: Arc<Mutex<Looked>>,
    says: Option<Says>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.chain).finish()
    }
}

/// When a file was written, and how long it is.
type Stamp = Option<(SystemTime, u64)>;

/// What the files were like when they were looked at last.
#[derive(Debug)]
struct Looked {
    at: Instant,
    chain: Stamp,
    key: Stamp,
}

impl Looked {
    fn at(chain: &Path, key: &Path) -> Self {
        let stamp = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        };
        Self { at: Instant::now(), chain: stamp(chain), key: stamp(key) }
    }
}

impl Identity {
    /// Reads PEM files: a certificate with the chain to its root, and its key. Once they hold another certificate with its key, that is used for
    /// connections from then on; until then, and where what they hold does not fit, the one that was read before.
    ///
    /// # Errors
    /// When a file cannot be read, holds no such thing, or the key is another's.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Self, HttpError> {
        // Before they are read: what is written meanwhile is read again.
        let looked = Looked::at(chain, key);
        let config = Arc::new(RwLock::new(Arc::new(read(chain, key)?)));
        let looked = Arc::new(Mutex::new(looked));
        Ok(Self { config, chain: chain.to_owned(), key: key.to_owned(), looked, says: None })
    }

    /// Has somebody told when the certificate was replaced, or could not be.
    #[must_use]
    pub fn telling(self, says: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { says: Some(Arc::new(says)), ..self }
    }

    /// What connections are opened with from now on.
    fn now(&self) -> Arc<ServerConfig> {
        let due = self.looked.try_lock().is_ok_and(|looked| looked.at.elapsed() >= LOOKS_EVERY);
        if due {
            self.look();
        }
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again, if they are not as they were.
    fn look(&self) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Looked::at(&self.chain, &self.key);
        let is_new = (now.chain, now.key) != (looked.chain, looked.key);
        *looked = now;
        drop(looked);
        if !is_new {
            return;
        }
        let said = match read(&self.chain, &self.key) {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                let print = fingerprint(&self.chain).unwrap_or_default();
                format!("the certificate was replaced; SHA-256 of the new one: {print}")
            }
            Err(error) => format!("the certificate was not replaced, and the one before is still used: {error}"),
        };
        if let Some(says) = &self.says {
            says(&said);
        }
    }
}

/// What connections are opened with by the certificate and the key in these files.
fn read(chain: &Path, key: &Path) -> Result<ServerConfig, HttpError> {
    let certificates = certificates(chain)?;
    let what = "a private key";
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|e| HttpError::Pem { what, path: key.to_owned(), error: e })?;
    let config = || -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, secret)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Devices that come back need no new handshake, and nothing is kept for them: tickets hold it, under keys that change.
        config.ticketer = ring::Ticketer::new()?;
        Ok(config)
    };
    config().map_err(|error| HttpError::Identity { path: chain.to_owned(), error })
}

impl Handshake for Identity {
    fn shake(&self, stream: TcpStream) -> Shaking {
        let accepting = TlsAcceptor::from(self.now()).accept(stream);
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

/// The file with all certificates that devices may pin: the one in use, and the next one.
const PINS: &str = "pins.pem";
/// The folder of the next certificate.
const NEXT: &str = "next";

/// Makes the certificate that is to take the place of the one that [`self_signed`] made, for these names, and leaves that in use. They must
/// include all names of that: it is what devices call the server, and what the server is started for again. Gives the file with both, for
/// devices to pin before the change. Where there is a next one already, it is that.
///
/// # Errors
/// When there is none to be replaced, a name of it is missing, the next one is for other names, or the disk fails.
pub fn prepare_next(folder: &Path, names: &[String]) -> Result<PathBuf, HttpError> {
    let (now, next) = (folder.join("cert.pem"), folder.join(NEXT));
    refuse_fewer(&now, names)?;
    self_signed(&next, names).map_err(|error| match error {
        HttpError::OtherNames { path, name, .. } => HttpError::OtherNext { path, name },
        other => other,
    })?;
    write_pins(folder, &[&now, &next.join("cert.pem")])
}

/// Puts the next certificate in the place of the one in use. A server that runs uses it within seconds, without a restart.
///
/// # Errors
/// When there is no next one, it lacks a name of the one in use, or the disk fails. After a crash it can be done again.
pub fn switch_to_next(folder: &Path) -> Result<PathBuf, HttpError> {
    let [now, next] = [folder.to_owned(), folder.join(NEXT)].map(|f| (f.join("cert.pem"), f.join("key.pem")));
    // A crash may have come after the first of the two.
    let key = if next.1.exists() { &next.1 } else { &now.1 };
    read(&next.0, key)?;
    if now.0.exists() {
        refuse_fewer(&now.0, &names_of(&next.0)?)?;
    }
    for (from, to) in [(&next.1, &now.1), (&next.0, &now.0)] {
        if from.exists() {
            std::fs::rename(from, to).map_err(files::failed("replace", to))?;
            files::sync_folder(folder)?;
        }
    }
    write_pins(folder, &[&now.0])
}

/// Writes all certificates of these files into the one to pin.
fn write_pins(folder: &Path, certificates: &[&Path]) -> Result<PathBuf, HttpError> {
    let texts = certificates.iter().map(|path| files::read_text(path)).collect::<Result<String, _>>()?;
    let pins = folder.join(PINS);
    files::write(&pins, texts.as_bytes())?;
    Ok(pins)
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
        Some(name) => Err(HttpError::OtherNames { path: path.to_owned(), name: name.clone(), have: names_of(path)? }),
    }
}

/// That these are all names of a certificate, or more.
fn refuse_fewer(path: &Path, names: &[String]) -> Result<(), HttpError> {
    let is_same = |one: &str, other: &str| match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    };
    let mut missing = names_of(path)?;
    missing.retain(|name| !names.iter().any(|other| is_same(name, other)));
    if missing.is_empty() { Ok(()) } else { Err(HttpError::LacksNames { path: path.to_owned(), missing }) }
}

/// The names that the first certificate of a file is for.
fn names_of(path: &Path) -> Result<Vec<String>, HttpError> {
    let unreadable = || rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
    let names = der::names(&certificates(path)?.swap_remove(0));
    names.ok_or_else(|| HttpError::Identity { path: path.to_owned(), error: unreadable() })
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
    fn a_certificate_is_replaced_once_the_next_one_and_its_key_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("tls");
        let names = names(&["localhost"]);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        let identity =
            self_signed(&here, &names).unwrap().telling(move |words| tells.lock().unwrap().push(words.to_owned()));
        let print = || fingerprint(&here.join("cert.pem")).unwrap();
        let (first, before) = (print(), identity.now());
        let none = switch_to_next(&here).unwrap_err();
        assert!(matches!(none, HttpError::Pem { .. }), "{none}");
        let pins = prepare_next(&here, &names).unwrap();
        assert_eq!(prepare_next(&here, &names).unwrap(), pins);
        assert_eq!(certificates(&pins).unwrap().len(), 2);
        assert_eq!(print(), first, "the one in use stays");
        // Of half a change nothing is used: a crash, or a look, between the two files.
        std::fs::rename(here.join("next/key.pem"), here.join("key.pem")).unwrap();
        identity.look();
        assert!(Arc::ptr_eq(&before, &identity.now()) && told.lock().unwrap()[0].contains("was not replaced"));
        switch_to_next(&here).unwrap();
        identity.look();
        assert!(!Arc::ptr_eq(&before, &identity.now()) && print() != first);
        assert!(told.lock().unwrap()[1].contains(&print()), "{told:?}");
        assert_eq!(certificates(&pins).unwrap().len(), 1);
        self_signed(&here, &names).expect("the next start finds a pair that fits");
    }

    #[test]
    fn the_next_certificate_has_all_names_of_the_one_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("tls");
        let (both, more) = (names(&["localhost", "127.0.0.1"]), names(&["127.0.0.1", "LOCALHOST", "keyhush.example"]));
        self_signed(&here, &both).unwrap();
        for fewer in [names(&["localhost"]), names(&["elsewhere.example", "localhost"])] {
            let refused = prepare_next(&here, &fewer).unwrap_err();
            assert!(
                matches!(&refused, HttpError::LacksNames { missing, .. } if *missing == ["127.0.0.1"]),
                "{refused}"
            );
            assert!(refused.to_string().contains("add --name 127.0.0.1;") && !here.join("next").exists(), "{refused}");
        }
        // One that lacks a name is not used either, wherever it comes from.
        self_signed(&here.join("next"), &both[..1]).unwrap();
        let refused = switch_to_next(&here).unwrap_err();
        assert!(matches!(refused, HttpError::LacksNames { .. }), "{refused}");
        let other = prepare_next(&here, &both).unwrap_err();
        assert!(matches!(other, HttpError::OtherNext { .. }), "{other}");
        std::fs::remove_dir_all(here.join("next")).unwrap();
        // A name is added: by a certificate with all of them, and not by one that no device has pinned.
        let asked = self_signed(&here, &more).unwrap_err();
        assert!(matches!(asked, HttpError::OtherNames { .. }), "{asked}");
        let said = "--name localhost --name 127.0.0.1 --name keyhush.example";
        assert!(asked.to_string().contains(said), "{asked}");
        prepare_next(&here, &more).unwrap();
        switch_to_next(&here).unwrap();
        self_signed(&here, &both).expect("a server is started again for the names that it had");
        self_signed(&here, &more).expect("and for the new one");
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
