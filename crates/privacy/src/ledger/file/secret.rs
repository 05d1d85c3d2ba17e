//! The folder `secret/`: the signing key, the run's noise key and, until the ledger is closed, the key of the pseudonyms
//! (rule P13).

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use zeroize::Zeroizing;

use super::{
    Place, beside,
    disk::{Disk, How},
    failed, folder,
};
use crate::{
    ledger::{
        digest::{hex, unhex},
        error::LedgerError,
        keys::{KeyError, SigningKey},
        participants::{KeyDestroyed, PseudonymKey},
    },
    rng::NoiseKey,
};

/// The secrets of a ledger.
pub(super) struct Secrets {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    signing: PathBuf,
    pseudonyms: PathBuf,
    noise: PathBuf,
}

impl Secrets {
    pub(super) fn new(place: &Place) -> Self {
        let secret = folder(&place.ledger).join("secret");
        let named = secret.join(place.ledger.file_name().unwrap_or_default());
        Self {
            disk: Arc::clone(&place.disk),
            signing: beside(&named, ".signing-key"),
            pseudonyms: beside(&named, ".pseudonym-key"),
            noise: beside(&named, ".noise-key"),
            folder: secret,
        }
    }

    /// Draws both keys and makes them durable. Keys of a creation that was not finished are replaced: they signed
    /// nothing.
    pub(super) fn draw(&self) -> Result<(SigningKey, PseudonymKey), LedgerError> {
        self.make_folder()?;
        let (signing, pseudonyms) = (SigningKey::generate()?, PseudonymKey::generate()?);
        self.write(&self.signing, &signing.to_secret_text())?;
        self.write(&self.pseudonyms, &pseudonyms.to_secret_text())?;
        self.disk.sync_folder(&self.folder).map_err(failed("sync", &self.folder))?;
        Ok((signing, pseudonyms))
    }

    /// Draws the noise key of a run and makes it durable. One that is there is replaced: it is drawn before the ledger is
    /// begun, so nothing was released with it.
    pub(super) fn draw_noise_key(&self) -> Result<NoiseKey, LedgerError> {
        self.make_folder()?;
        let key = NoiseKey::generate().map_err(KeyError::Randomness)?;
        self.write(&self.noise, &Zeroizing::new(hex(&*key.secret_bytes())))?;
        self.disk.sync_folder(&self.folder).map_err(failed("sync", &self.folder))?;
        Ok(key)
    }

    pub(super) fn noise_key(&self) -> Result<NoiseKey, LedgerError> {
        let missing = || LedgerError::SecretMissing { place: self.noise.display().to_string() };
        let text = self.read(&self.noise)?.ok_or_else(missing)?;
        let bytes: [u8; 32] = unhex(text.trim()).map_err(|_| missing())?;
        Ok(NoiseKey::from_secret_bytes(Zeroizing::new(bytes)))
    }

    fn make_folder(&self) -> Result<(), LedgerError> {
        if self.disk.create_folder(&self.folder, true).map_err(failed("make", &self.folder))? {
            let above = folder(&self.folder);
            self.disk.sync_folder(&above).map_err(failed("sync", &above))?;
        }
        self.refuse_loose(&self.folder, 0o700)
    }

    pub(super) fn signing_key(&self) -> Result<SigningKey, LedgerError> {
        match self.read(&self.signing)? {
            Some(text) => Ok(SigningKey::from_secret_text(&text)?),
            None => Err(LedgerError::SecretMissing { place: self.signing.display().to_string() }),
        }
    }

    /// None if it was destroyed.
    pub(super) fn pseudonym_key(&self) -> Result<Option<PseudonymKey>, LedgerError> {
        match self.read(&self.pseudonyms)? {
            // A crash in the middle of its destruction leaves what is not a key.
            Some(text) => Ok(PseudonymKey::from_secret_text(&text).ok()),
            None => Ok(None),
        }
    }

    pub(super) fn destroy_pseudonym_key(&self) -> Result<KeyDestroyed, LedgerError> {
        let path = &self.pseudonyms;
        if let Some(old) = self.read(path)? {
            let mut file = self.disk.writer(path, How::At(0)).map_err(failed("overwrite", path))?;
            let nothing = vec![b'\n'; old.len()];
            file.write(&nothing).and_then(|()| file.sync()).map_err(failed("overwrite", path))?;
            self.disk.remove(path).map_err(failed("remove", path))?;
        }
        self.disk.sync_folder(&self.folder).map_err(failed("sync", &self.folder))?;
        Ok(KeyDestroyed::assertion())
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), LedgerError> {
        if self.disk.reader(path).map_err(failed("look at", path))?.is_some() {
            self.disk.remove(path).map_err(failed("replace", path))?;
        }
        let mut file = self.disk.writer(path, How::New { private: true }).map_err(failed("make", path))?;
        file.write(text.as_bytes()).and_then(|()| file.sync()).map_err(failed("write", path))
    }

    fn read(&self, path: &Path) -> Result<Option<Zeroizing<String>>, LedgerError> {
        let Some(bytes) = self.disk.read(path).map_err(failed("read", path))? else { return Ok(None) };
        self.refuse_loose(&self.folder, 0o700)?;
        self.refuse_loose(path, 0o600)?;
        let bytes = Zeroizing::new(bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Some(Zeroizing::new(text)))
    }

    /// Refuses what others than the owner can reach.
    fn refuse_loose(&self, path: &Path, wanted: u32) -> Result<(), LedgerError> {
        match self.disk.mode(path).map_err(failed("look at", path))? {
            Some(mode) if mode & 0o077 != 0 => {
                Err(LedgerError::LooseSecret { place: path.display().to_string(), mode, wanted })
            }
            _ => Ok(()),
        }
    }
}
