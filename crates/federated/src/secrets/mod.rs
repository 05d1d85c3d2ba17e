//! The secrets of a run: keys, what noise can be drawn from, and what recognizes its data (rules P13, P20, P21).
//!
//! | module   | what it is                                                   |
//! |----------|--------------------------------------------------------------|
//! | `vault`  | where secrets are kept: the contract                         |
//! | `file`   | a folder of files: `secret/` beside a ledger, or one of a server |
//! | `shelf`  | the noise keys of steps                                      |
//!
//! What is kept, and for how long, is the same wherever it is kept; so is the order in which a run begins, opens and closes its
//! ledger together with its keys.

pub(crate) mod file;
mod shelf;
mod vault;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use self::vault::Secret;
pub use self::{
    file::FileVault,
    shelf::VaultShelf,
    vault::{SecretName, Vault},
};
use crate::protocol::ticket::RoundKey;
use ledger::{
    Approval, Ended, Head, KeyDestroyed, KeyError, Ledger, LedgerError, LedgerStore, NoiseDestroyed, Plan,
    PseudonymKey, SigningKey, hex, unhex,
};
use privacy::{
    rng::{NoiseKey, fill_from_os},
    step_keys::{LastStep, SecretSteps},
};

/// The secrets of a run. `Debug` shows nothing of them.
#[derive(Clone)]
pub struct Secrets {
    vault: Arc<dyn Vault>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// What noise or a cohort could be drawn again from.
const DRAWN_FROM: [SecretName; 7] = [
    SecretName::NoiseKey,
    SecretName::StepKeys,
    SecretName::NoiseLink,
    SecretName::EvaluationKeys,
    SecretName::EvaluationLink,
    SecretName::CohortSeed,
    SecretName::RoundKey,
];

/// The seed of the cohort of one step, as its file holds it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CohortSeed {
    round: u64,
    seed: String,
}

/// The key of one attempt, as its file holds it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptRoundKey {
    stream: String,
    round: u64,
    attempt: u32,
    key: String,
}

impl Secrets {
    /// The secrets in a vault.
    #[must_use]
    pub fn new(vault: Arc<dyn Vault>) -> Self {
        Self { vault }
    }

    fn secret(&self, name: SecretName) -> Secret {
        Secret::new(Arc::clone(&self.vault), name)
    }

    /// Draws keys and begins a ledger in an empty store.
    ///
    /// # Errors
    /// When the plan contradicts itself, or the keys or the first entry cannot be kept.
    pub fn begin_ledger<S: LedgerStore>(
        &self,
        store: S,
        plan: Plan,
        time: u64,
    ) -> Result<(Ledger<S>, PseudonymKey), LedgerError> {
        self.begin_approved_ledger(store, plan, None, time)
    }

    /// The same with the approval of the plan by a privacy officer, where there is one.
    ///
    /// # Errors
    /// As [`Self::begin_ledger`]; and when the approval is not of this plan.
    pub fn begin_approved_ledger<S: LedgerStore>(
        &self,
        store: S,
        plan: Plan,
        approval: Option<Approval>,
        time: u64,
    ) -> Result<(Ledger<S>, PseudonymKey), LedgerError> {
        plan.check()?;
        approval.iter().try_for_each(|approval| approval.check(&plan))?;
        let (signing, pseudonyms) = self.draw()?;
        Ok((Ledger::create_approved(store, plan, approval, signing, time)?, pseudonyms))
    }

    /// Opens a ledger for writing, and the key of its pseudonyms unless that is gone. Heads that are known must lie on it.
    ///
    /// # Errors
    /// Damage, a rewound or forked chain, or secrets that are missing or that others can read.
    pub fn open_ledger<S: LedgerStore>(
        &self,
        store: S,
        heads: &[Head],
    ) -> Result<(Ledger<S>, Option<PseudonymKey>), LedgerError> {
        let ledger = Ledger::open(store, Some(self.signing_key()?), heads)?;
        Ok((ledger, self.pseudonym_key()?))
    }

    /// Destroys noise key, noise state and the key of the pseudonyms, and closes the ledger: nothing can be released after
    /// this. A crash in between is found by [`Self::closing_begun`], and closing again brings it to its end.
    ///
    /// # Errors
    /// When something cannot be destroyed or kept.
    pub fn close_ledger<S: LedgerStore>(
        &self,
        ledger: &mut Ledger<S>,
        because: Ended,
        time: u64,
    ) -> Result<(), LedgerError> {
        self.begin_closing(because)?;
        let (noise, pseudonyms) = (self.destroy_noise()?, self.destroy_pseudonym_key()?);
        let _receipt = ledger.close(because, pseudonyms, noise, time)?;
        self.end_closing()
    }

    /// The noise keys of the run's steps. `last` is the last release of the ledger whose noise the run drew: a key behind it
    /// is destroyed, keys that are no longer needed are erased, and those of another state of the run are refused (rule P21).
    ///
    /// # Errors
    /// When they do not fit the ledger, are missing, or others can read them.
    pub fn step_keys(&self, last: Option<LastStep>) -> Result<SecretSteps<VaultShelf>, LedgerError> {
        let shelf = VaultShelf::new(self.secret(SecretName::StepKeys), self.secret(SecretName::NoiseLink));
        Ok(SecretSteps::new(self.noise_key()?, shelf.open(last)?))
    }

    /// The same for evaluations by devices, on a separate shelf: the noise of an evaluation step is never needed again, and recording one
    /// erases all keys of its shelf.
    ///
    /// # Errors
    /// As [`Self::step_keys`].
    pub fn evaluation_keys(&self, last: Option<LastStep>) -> Result<SecretSteps<VaultShelf>, LedgerError> {
        let shelf = VaultShelf::new(self.secret(SecretName::EvaluationKeys), self.secret(SecretName::EvaluationLink));
        Ok(SecretSteps::new(self.noise_key()?, shelf.open(last)?))
    }

    /// Draws both keys and makes them durable. Keys of a creation that was not finished are replaced: they signed
    /// nothing.
    fn draw(&self) -> Result<(SigningKey, PseudonymKey), LedgerError> {
        let (signing, pseudonyms) = (SigningKey::generate()?, PseudonymKey::generate()?);
        self.secret(SecretName::SigningKey).create(signing.to_secret_text().as_bytes())?;
        self.secret(SecretName::PseudonymKey).create(pseudonyms.to_secret_text().as_bytes())?;
        Ok((signing, pseudonyms))
    }

    /// Draws the noise key of a run and makes it durable. One that is there is replaced: it is drawn before the ledger is
    /// begun, so nothing was released with it.
    pub(crate) fn draw_noise_key(&self) -> Result<(), LedgerError> {
        let key = NoiseKey::generate().map_err(KeyError::Randomness)?;
        self.secret(SecretName::NoiseKey).create(Zeroizing::new(hex(&*key.secret_bytes())).as_bytes())
    }

    /// The noise key of a run.
    ///
    /// # Errors
    /// When it is missing, or others can read it.
    pub fn noise_key(&self) -> Result<NoiseKey, LedgerError> {
        let missing = || LedgerError::SecretMissing { place: self.secret(SecretName::NoiseKey).place() };
        let text = self.secret(SecretName::NoiseKey).read_text()?.ok_or_else(missing)?;
        key_of(&text).ok_or_else(missing)
    }

    /// The key that signs the ledger.
    ///
    /// # Errors
    /// When it is missing, or others can read it.
    pub fn signing_key(&self) -> Result<SigningKey, LedgerError> {
        match self.secret(SecretName::SigningKey).read_text()? {
            Some(text) => Ok(SigningKey::from_secret_text(&text)?),
            None => Err(LedgerError::SecretMissing { place: self.secret(SecretName::SigningKey).place() }),
        }
    }

    /// The key of the pseudonyms, by which a fleet says who took part; none if it was destroyed.
    ///
    /// # Errors
    /// When it cannot be read, or others can read it.
    pub fn pseudonym_key(&self) -> Result<Option<PseudonymKey>, LedgerError> {
        // A crash in the middle of its destruction leaves what is not a key.
        Ok(self
            .secret(SecretName::PseudonymKey)
            .read_text()?
            .and_then(|text| PseudonymKey::from_secret_text(&text).ok()))
    }

    /// Destroys the key of the pseudonyms. Nothing happens if it is gone already.
    ///
    /// That is what a program can do. Journals, copy-on-write file systems, snapshots, backups and the spare blocks of
    /// a flash disk may keep the old bytes; where that matters, keep `secret/` on an encrypted volume and destroy its
    /// key, or in memory (tmpfs).
    ///
    /// # Errors
    /// When the vault fails; then the key must be taken to be there still.
    pub fn destroy_pseudonym_key(&self) -> Result<KeyDestroyed, LedgerError> {
        self.secret(SecretName::PseudonymKey).destroy()?;
        Ok(KeyDestroyed::assertion())
    }

    /// Destroys all keys of a run that never continues and is not closed, that of its ledger too: nobody can write an entry behind those
    /// that others have seen.
    ///
    /// # Errors
    /// When the vault fails; then they must be taken to be there still.
    pub fn retire(&self) -> Result<(), LedgerError> {
        let _noise = self.destroy_noise()?;
        let _pseudonyms = self.destroy_pseudonym_key()?;
        self.end_closing()?;
        self.secret(SecretName::SigningKey).destroy()
    }

    /// What the cohort of a round is drawn from: its own seed, durable before it is used, and the same again after a crash
    /// (another one would favour cohorts that do not crash; rule P21).
    ///
    /// # Errors
    /// When there is no randomness, the vault fails, or the seed of a later round is there.
    pub fn cohort_seed(&self, round: u64) -> Result<NoiseKey, LedgerError> {
        let place = || self.secret(SecretName::CohortSeed).place();
        let kept = self.secret(SecretName::CohortSeed).read_text()?.filter(|text| !text.trim().is_empty());
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
        self.secret(SecretName::CohortSeed).wipe_from(0)?;
        self.secret(SecretName::CohortSeed).append(line.as_bytes())?;
        Ok(seed)
    }

    /// Erases what a crash left of cohorts of rounds before this one, which are recorded.
    ///
    /// # Errors
    /// When the vault fails.
    pub fn settle_cohort_seed(&self, next_round: u64) -> Result<(), LedgerError> {
        let kept = self
            .secret(SecretName::CohortSeed)
            .read_text()?
            .and_then(|text| serde_json::from_str::<CohortSeed>(&text).ok());
        if kept.is_some_and(|kept| kept.round < next_round) { self.erase_cohort_seed() } else { Ok(()) }
    }

    /// Erases the seed of the last cohort, once its round is recorded.
    ///
    /// # Errors
    /// When the vault fails; then the seed must be taken to be there still.
    pub fn erase_cohort_seed(&self) -> Result<(), LedgerError> {
        self.secret(SecretName::CohortSeed).wipe_from(0)
    }

    /// The key of an attempt with devices, at a step of a stream: drawn and made durable when it begins, and the same again after a crash.
    ///
    /// # Errors
    /// When there is no randomness, or the vault fails.
    pub fn round_key(&self, stream: &str, round: u64, attempt: u32) -> Result<RoundKey, LedgerError> {
        if let Some(kept) = self.kept_round_key(stream, round, attempt)? {
            return Ok(kept);
        }
        let mut bytes = Zeroizing::new([0; 32]);
        fill_from_os(&mut *bytes).map_err(KeyError::Randomness)?;
        let line = KeptRoundKey { stream: stream.to_owned(), round, attempt, key: hex(&*bytes) };
        let line = Zeroizing::new(serde_json::to_string(&line).map_err(|e| LedgerError::storage("a key", e))?);
        self.secret(SecretName::RoundKey).wipe_from(0)?;
        self.secret(SecretName::RoundKey).append(line.as_bytes())?;
        Ok(RoundKey::new(bytes))
    }

    /// The key of an attempt that was interrupted; none where it is gone, or what is there is no key of it.
    ///
    /// # Errors
    /// When the vault cannot be read, or others can read it.
    pub fn kept_round_key(&self, stream: &str, round: u64, attempt: u32) -> Result<Option<RoundKey>, LedgerError> {
        let Some(kept) = self.secret(SecretName::RoundKey).read()? else { return Ok(None) };
        let kept: Option<KeptRoundKey> = serde_json::from_slice(&kept).ok();
        let is_it = |kept: &KeptRoundKey| (kept.stream.as_str(), kept.round, kept.attempt) == (stream, round, attempt);
        Ok(kept.filter(is_it).and_then(|kept| {
            let key = Zeroizing::new(kept.key);
            Some(RoundKey::new(Zeroizing::new(unhex(&key).ok()?)))
        }))
    }

    /// Destroys the key of the last attempt, once it is settled: what was sealed with it opens for nobody.
    ///
    /// # Errors
    /// When the vault fails; then the key must be taken to be there still.
    pub fn destroy_round_key(&self) -> Result<(), LedgerError> {
        self.secret(SecretName::RoundKey).destroy()
    }

    /// The bytes kept by [`Self::keep_beginning`].
    ///
    /// # Errors
    /// When it cannot be read, or others can read it.
    pub fn beginning(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        self.secret(SecretName::Beginning).read()
    }

    /// Keeps what the run must recognise when it continues.
    ///
    /// # Errors
    /// When the vault fails.
    pub fn keep_beginning(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.secret(SecretName::Beginning).replace(bytes)
    }

    fn begin_closing(&self, because: Ended) -> Result<(), LedgerError> {
        let line = serde_json::to_vec(&because).map_err(|e| LedgerError::storage("the closing", e))?;
        self.secret(SecretName::Closing).replace(&line)
    }

    /// Removes what says that a ledger is being closed, once it is.
    ///
    /// # Errors
    /// When the vault fails.
    pub fn end_closing(&self) -> Result<(), LedgerError> {
        self.secret(SecretName::Closing).destroy()
    }

    /// Why the ledger is being closed, if that was begun.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn closing_begun(&self) -> Result<Option<Ended>, LedgerError> {
        Ok(self.secret(SecretName::Closing).read()?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Destroys the noise key of the run and everything else that noise could be drawn again from, as
    /// [`Self::destroy_pseudonym_key`] does.
    ///
    /// # Errors
    /// When the vault fails; then they must be taken to be there still.
    pub fn destroy_noise(&self) -> Result<NoiseDestroyed, LedgerError> {
        DRAWN_FROM.into_iter().try_for_each(|name| self.secret(name).destroy())?;
        self.secret(SecretName::Beginning).destroy()?;
        Ok(NoiseDestroyed::assertion())
    }
}

/// 64 hexadecimal digits as a key.
fn key_of(text: &str) -> Option<NoiseKey> {
    let bytes: [u8; 32] = unhex(text.trim()).ok()?;
    Some(NoiseKey::from_secret_bytes(Zeroizing::new(bytes)))
}
