//! Checks that entries follow each other, and that a head lies on the chain.

use crate::{
    digest::Digest,
    entry::{Body, Entry, FORMAT},
    error::LedgerError,
    head::Head,
    keys::VerifyingKey,
};

/// The entries seen so far, each checked: index, hash of the one before, signature. For stores, which must know where
/// what they hold ends.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    key: Option<VerifyingKey>,
    hashes: Vec<Digest>,
}

impl Chain {
    /// Takes the next entry.
    ///
    /// # Errors
    /// Why it is not the next.
    pub fn accept(&mut self, entry: &Entry) -> Result<(), LedgerError> {
        let head = self.head();
        let refuse = |problem: String| Err(LedgerError::damaged(head.length, problem));
        if entry.index() != head.length {
            return refuse(format!("it claims to be entry {}", entry.index()));
        }
        if entry.previous() != head.hash {
            return refuse("it is not chained to the entry before it".into());
        }
        let key = match (self.key, entry.body()) {
            (None, Body::Opening(opening)) if opening.format == FORMAT => opening.key,
            (None, Body::Opening(opening)) => {
                return refuse(format!("its format is {}, but this program reads {FORMAT}", opening.format));
            }
            (None, _) => return refuse("a ledger begins with its plan".into()),
            (Some(_), Body::Opening(_)) => return refuse("a second plan".into()),
            (Some(key), _) => key,
        };
        if !entry.is_signed_by(&key) {
            return refuse("invalid signature".into());
        }
        self.key = Some(key);
        self.hashes.push(entry.hash());
        Ok(())
    }

    /// Whether the key of the chain signed an entry, wherever it belongs.
    #[must_use]
    pub fn signed(&self, entry: &Entry) -> bool {
        self.key.is_some_and(|key| entry.is_signed_by(&key))
    }

    /// The head of what was accepted.
    #[must_use]
    pub fn head(&self) -> Head {
        match self.hashes.last() {
            Some(hash) => Head { length: self.hashes.len() as u64, hash: *hash },
            None => Head::EMPTY,
        }
    }

    /// Refuses a head that does not lie on the chain (rule P17).
    ///
    /// # Errors
    /// When the chain is shorter, or another one.
    pub fn check_head(&self, shown: &Head) -> Result<(), LedgerError> {
        let Some(last) = shown.length.checked_sub(1) else { return Ok(()) };
        match usize::try_from(last).ok().and_then(|last| self.hashes.get(last)) {
            None => Err(LedgerError::Rewound { shown: *shown, have: self.hashes.len() as u64 }),
            Some(have) if *have != shown.hash => Err(LedgerError::Forked { shown: *shown, have: *have }),
            Some(_) => Ok(()),
        }
    }
}
