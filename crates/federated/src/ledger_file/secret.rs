//! The folder `secret/`: keys, what noise could be drawn again from, and what a run must recognise (rules P13, P20, P21).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Place, private::PrivateFile, step_keys::FileShelf};
use durable::files::{beside, folder};
use ledger::{Ended, KeyDestroyed, KeyError, LedgerError, NoiseDestroyed, PseudonymKey, SigningKey, hex, unhex};
use privacy::rng::NoiseKey;

/// The secrets of a ledger.
pub(super) struct Secrets {
    signing: PrivateFile,
    pseudonyms: PrivateFile,
    noise: PrivateFile,
    cohort: PrivateFile,
    beginning: PrivateFile,
    attempt: PrivateFile,
    closing: PrivateFile,
    pub(super) shelf: FileShelf,
}

/// The seed of the cohort of one step, as its file holds it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CohortSeed {
    round: u64,
    seed: String,
}

impl Secrets {
    pub(super) fn new(place: &Place) -> Self {
        let file = |suffix: &str| {
            let named = folder(&place.ledger).join("secret").join(place.ledger.file_name().unwrap_or_default());
            PrivateFile::new(Arc::clone(&place.disk), beside(&named, suffix))
        };
        Self {
            signing: file(".signing-key"),
            pseudonyms: file(".pseudonym-key"),
            noise: file(".noise-key"),
            cohort: file(".cohort-seed"),
            beginning: file(".beginning"),
            attempt: file(".attempt"),
            closing: file(".closing"),
            shelf: FileShelf::new(file(".step-keys"), file(".noise-link")),
        }
    }

    /// Draws both keys and makes them durable. Keys of a creation that was not finished are replaced: they signed
    /// nothing.
    pub(super) fn draw(&self) -> Result<(SigningKey, PseudonymKey), LedgerError> {
        let (signing, pseudonyms) = (SigningKey::generate()?, PseudonymKey::generate()?);
        self.signing.write(signing.to_secret_text().as_bytes())?;
        self.pseudonyms.write(pseudonyms.to_secret_text().as_bytes())?;
        Ok((signing, pseudonyms))
    }

    /// Draws the noise key of a run and makes it durable. One that is there is replaced: it is drawn before the ledger is
    /// begun, so nothing was released with it.
    pub(super) fn draw_noise_key(&self) -> Result<(), LedgerError> {
        let key = NoiseKey::generate().map_err(KeyError::Randomness)?;
        self.noise.write(Zeroizing::new(hex(&*key.secret_bytes())).as_bytes())
    }

    pub(super) fn noise_key(&self) -> Result<NoiseKey, LedgerError> {
        let missing = || LedgerError::SecretMissing { place: self.noise.path().display().to_string() };
        let text = self.noise.read_text()?.ok_or_else(missing)?;
        key_of(&text).ok_or_else(missing)
    }

    pub(super) fn signing_key(&self) -> Result<SigningKey, LedgerError> {
        match self.signing.read_text()? {
            Some(text) => Ok(SigningKey::from_secret_text(&text)?),
            None => Err(LedgerError::SecretMissing { place: self.signing.path().display().to_string() }),
        }
    }

    /// None if it was destroyed.
    pub(super) fn pseudonym_key(&self) -> Result<Option<PseudonymKey>, LedgerError> {
        // A crash in the middle of its destruction leaves what is not a key.
        Ok(self.pseudonyms.read_text()?.and_then(|text| PseudonymKey::from_secret_text(&text).ok()))
    }

    pub(super) fn destroy_pseudonym_key(&self) -> Result<KeyDestroyed, LedgerError> {
        self.pseudonyms.destroy()?;
        Ok(KeyDestroyed::assertion())
    }

    /// The seed of a round's cohort: the one that was drawn for it, or a new one.
    pub(super) fn cohort_seed(&self, round: u64) -> Result<NoiseKey, LedgerError> {
        let place = || self.cohort.path().display().to_string();
        let kept = self.cohort.read_text()?.filter(|text| !text.trim().is_empty());
        if let Some(text) = kept {
            // What was being written in a crash was not used.
            let kept: Option<CohortSeed> = serde_json::from_str(&text).ok();
            match kept {
                Some(kept) if kept.round == round => {
                    let seed = Zeroizing::new(kept.seed);
                    return key_of(&seed).ok_or_else(|| LedgerError::SecretMissing { place: place() });
                }
                Some(kept) if kept.round > round => {
                    return Err(LedgerError::SecretAhead { place: place(), kept: kept.round, asked: round });
                }
                _ => {}
            }
        }
        let seed = NoiseKey::generate().map_err(KeyError::Randomness)?;
        let line = CohortSeed { round, seed: hex(&*seed.secret_bytes()) };
        let line = Zeroizing::new(serde_json::to_string(&line).map_err(|e| LedgerError::storage("a seed", e))?);
        self.cohort.wipe_from(0)?;
        self.cohort.append(line.as_bytes())?;
        Ok(seed)
    }

    pub(super) fn settle_cohort_seed(&self, next_round: u64) -> Result<(), LedgerError> {
        let kept = self.cohort.read_text()?.and_then(|text| serde_json::from_str::<CohortSeed>(&text).ok());
        if kept.is_some_and(|kept| kept.round < next_round) { self.erase_cohort_seed() } else { Ok(()) }
    }

    /// The step whose cohort it was is recorded.
    pub(super) fn erase_cohort_seed(&self) -> Result<(), LedgerError> {
        self.cohort.wipe_from(0)
    }

    pub(super) fn beginning(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        self.beginning.read()
    }

    pub(super) fn keep_beginning(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.beginning.replace(bytes)
    }

    pub(super) fn begin_closing(&self, because: Ended) -> Result<(), LedgerError> {
        let line = serde_json::to_vec(&because).map_err(|e| LedgerError::storage("the closing", e))?;
        self.closing.replace(&line)
    }

    pub(super) fn end_closing(&self) -> Result<(), LedgerError> {
        self.closing.destroy()
    }

    pub(super) fn closing_begun(&self) -> Result<Option<Ended>, LedgerError> {
        Ok(self.closing.read()?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// What is in `secret/` that noise or a cohort could be drawn again from.
    fn drawn_from(&self) -> [&PrivateFile; 4] {
        [&self.noise, self.shelf.keys(), self.shelf.links(), &self.cohort]
    }

    pub(super) fn destroy_noise(&self) -> Result<NoiseDestroyed, LedgerError> {
        self.drawn_from().into_iter().try_for_each(PrivateFile::destroy)?;
        self.beginning.destroy()?;
        self.attempt.destroy()?;
        Ok(NoiseDestroyed::assertion())
    }

    /// Whether anything is left that noise or a cohort could be drawn again from.
    pub(super) fn has_noise(&self) -> Result<bool, LedgerError> {
        for file in self.drawn_from() {
            if file.exists()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// 64 hexadecimal digits as a key.
fn key_of(text: &str) -> Option<NoiseKey> {
    let bytes: [u8; 32] = unhex(text.trim()).ok()?;
    Some(NoiseKey::from_secret_bytes(Zeroizing::new(bytes)))
}
