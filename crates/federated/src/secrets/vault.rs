//! Storage for secrets: the trait, and one secret in a vault.

use std::{fmt, sync::Arc};

use ledger::LedgerError;
use zeroize::Zeroizing;

/// The name of a secret of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretName {
    /// What the ledger is signed with.
    SigningKey,
    /// The key of the pseudonyms, until the ledger is closed.
    PseudonymKey,
    /// The noise key of the run, where it has one, until the ledger is closed.
    NoiseKey,
    /// The noise keys of its steps, no longer than they are needed.
    StepKeys,
    /// The last step whose release is recorded, and the link to it.
    NoiseLink,
    /// The noise keys of evaluations by devices, as [`Self::StepKeys`]: what is recorded of the one erases nothing of the other.
    EvaluationKeys,
    /// As [`Self::NoiseLink`], of evaluations.
    EvaluationLink,
    /// What the cohort of the step that is not recorded yet is drawn from.
    CohortSeed,
    /// What the tickets of an attempt with devices, and the seal of its sum, follow from, until it is settled.
    RoundKey,
    /// What the run must recognise when it continues.
    Beginning,
    /// That the ledger is being closed, and why.
    Closing,
}

impl SecretName {
    /// All values.
    pub const ALL: [Self; 11] = [
        Self::SigningKey,
        Self::PseudonymKey,
        Self::NoiseKey,
        Self::StepKeys,
        Self::NoiseLink,
        Self::EvaluationKeys,
        Self::EvaluationLink,
        Self::CohortSeed,
        Self::RoundKey,
        Self::Beginning,
        Self::Closing,
    ];

    /// A one-word name for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SigningKey => "signing-key",
            Self::PseudonymKey => "pseudonym-key",
            Self::NoiseKey => "noise-key",
            Self::StepKeys => "step-keys",
            Self::NoiseLink => "noise-link",
            Self::EvaluationKeys => "evaluation-keys",
            Self::EvaluationLink => "evaluation-link",
            Self::CohortSeed => "cohort-seed",
            Self::RoundKey => "round-key",
            Self::Beginning => "beginning",
            Self::Closing => "closing",
        }
    }
}

/// Keeps the secrets of one run: in files, or wherever a server can.
///
/// The contract: what a call did is durable when it returns. What was wiped or destroyed cannot be read again by anyone, as far as a
/// program can see to that. Nobody but the owner reaches any of it; where others do, reading is an error.
pub trait Vault: Send + Sync {
    /// What a secret holds; none where there is none.
    ///
    /// # Errors
    /// When it cannot be read, or others can read it.
    fn read(&self, name: SecretName) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError>;

    /// Recreates it. What was there was never used, and need not be overwritten.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn create(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError>;

    /// Replaces it at once: after a crash it holds the old or the new.
    ///
    /// # Errors
    /// As [`Self::create`].
    fn replace(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError>;

    /// Adds to its end, or makes it. After a crash a part of what was added may be there.
    ///
    /// # Errors
    /// As [`Self::create`].
    fn append(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError>;

    /// Overwrites what is behind an offset, and cuts it off. After a crash it may hold other bytes there, as many or fewer.
    ///
    /// # Errors
    /// When what was there must be taken to be there still.
    fn wipe_from(&self, name: SecretName, offset: usize) -> Result<(), LedgerError>;

    /// Overwrites and removes it. Nothing happens if it is gone already.
    ///
    /// # Errors
    /// As [`Self::wipe_from`].
    fn destroy(&self, name: SecretName) -> Result<(), LedgerError>;

    /// Whether it is there.
    ///
    /// # Errors
    /// When that cannot be told.
    fn exists(&self, name: SecretName) -> Result<bool, LedgerError>;

    /// Where it is, for words.
    fn place(&self, name: SecretName) -> String;
}

/// One secret of a vault. `Debug` shows its name, and nothing of what it is.
#[derive(Clone)]
pub(super) struct Secret {
    vault: Arc<dyn Vault>,
    name: SecretName,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.name.word())
    }
}

impl Secret {
    pub(super) const fn new(vault: Arc<dyn Vault>, name: SecretName) -> Self {
        Self { vault, name }
    }

    pub(super) fn place(&self) -> String {
        self.vault.place(self.name)
    }

    pub(super) fn read(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        self.vault.read(self.name)
    }

    /// The same as text; bytes that are not are replaced, and then are no key.
    pub(super) fn read_text(&self) -> Result<Option<Zeroizing<String>>, LedgerError> {
        Ok(self.read()?.map(|bytes| Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())))
    }

    pub(super) fn create(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.vault.create(self.name, bytes)
    }

    pub(super) fn replace(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.vault.replace(self.name, bytes)
    }

    pub(super) fn append(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.vault.append(self.name, bytes)
    }

    pub(super) fn wipe_from(&self, offset: usize) -> Result<(), LedgerError> {
        self.vault.wipe_from(self.name, offset)
    }

    pub(super) fn destroy(&self) -> Result<(), LedgerError> {
        self.vault.destroy(self.name)
    }
}
