//! A device's key, guard and diary, in its own folder.
//!
//! | path     | what it holds                                                        |
//! |----------|----------------------------------------------------------------------|
//! | `guard`  | what the device has sent ([`device::guard::file`])              |
//! | `key`    | the 32 bytes of its Ed25519 key                                      |
//! | `diary`  | what it tells its owner                                              |
//!
//! All are for their owner alone (0600), locked while a process has them, and written whole or not at all. A key whose guard is lost is of no
//! use: what it gave is forgotten, so the device starts over, under a new key. The guard is made first, so a crash leaves no key without
//! one.

use std::path::Path;

use device::{
    guard::{Guard, GuardError, Store, file::FileStore},
    protocol::diary::Diary,
};
use ed25519_dalek::SigningKey;
use secagg::entropy::{Entropy, OsEntropy};
use zeroize::Zeroizing;

use crate::AgentError;

/// A device's lasting state.
#[derive(Debug)]
pub struct Identity {
    /// Its key.
    pub key: SigningKey,
    /// The guard, which records sent inputs.
    pub guard: Guard<FileStore>,
    /// What it tells its owner.
    pub diary: Diary<FileStore>,
}

impl Identity {
    /// Opens what is in a folder, or makes both.
    ///
    /// # Errors
    /// When another process has it, or what is there is not whole; when there is a key without a guard.
    pub fn open_or_make(folder: &Path) -> Result<Self, AgentError> {
        make_folder(folder).map_err(|error| AgentError::Folder { path: folder.to_owned(), error })?;
        let path = folder.join("key");
        let mut keys = FileStore::lock(path.clone())?;
        let known = keys.load()?.map(Zeroizing::new);
        let (guard, diary) = (folder.join("guard"), FileStore::lock(folder.join("diary"))?);
        let mut store = FileStore::lock(guard)?;
        let guard = match (store.load()?, &known) {
            (Some(_), _) => Guard::open(store)?,
            (None, None) => Guard::begin(store)?,
            (None, Some(_)) => return Err(GuardError::Missing.into()),
        };
        let key = match known {
            Some(bytes) => {
                let got = bytes.len();
                let bytes = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| AgentError::Key { path, got })?;
                SigningKey::from_bytes(&Zeroizing::new(bytes))
            }
            None => {
                let key = fresh_key()?;
                keys.save(&*Zeroizing::new(key.to_bytes()))?;
                key
            }
        };
        Ok(Self { key, guard, diary: Diary::open(diary)? })
    }
}

/// A folder for its owner alone.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// A new key.
///
/// # Errors
/// When there is no randomness.
pub fn fresh_key() -> Result<SigningKey, AgentError> {
    let mut bytes = Zeroizing::new([0; 32]);
    OsEntropy.fill(&mut *bytes).map_err(|e| AgentError::NoRandomness(e.to_string()))?;
    Ok(SigningKey::from_bytes(&bytes))
}
