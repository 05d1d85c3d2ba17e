//! The noise keys of a run's steps, in the run's vault (rules P20 and P21).
//!
//! | secret               | what it holds                                                                  |
//! |----------------------|--------------------------------------------------------------------------------|
//! | `step-keys`          | a line for each step of the segment; for independent noise, of the open step alone |
//! | `noise-link`         | the last step whose release is recorded, and the link to it                    |
//!
//! With every record the link is written; to erase is then to overwrite the keys, synced, and cut them off: after a crash in
//! between it is done again. What a ledger and these say of each other is checked on opening: a key behind the link and
//! without an entry is destroyed (nobody saw what it was drawn for), a link without its entry means that the ledger is an old
//! copy, and an entry without its key that the keys are.

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::vault::Secret;
use ledger::{LedgerError, hex, unhex};
use privacy::step_keys::{KeyShelf, LastStep, Link, StepAt, StepKey, StepKeyError};

/// The keys of a segment, in a vault.
#[derive(Debug)]
pub struct VaultShelf {
    keys: Secret,
    links: Secret,
    kept: Vec<(StepAt, StepKey)>,
    /// The last step that was marked as recorded, and the link to it.
    marked: (Option<StepAt>, Link),
}

/// A line of the file of keys.
#[derive(Serialize, Deserialize, Zeroize)]
#[serde(deny_unknown_fields)]
struct KeyLine {
    #[zeroize(skip)]
    at: StepAt,
    key: String,
}

/// The file of the link.
#[derive(Serialize, Deserialize, Zeroize)]
#[serde(deny_unknown_fields)]
struct LinkLine {
    #[zeroize(skip)]
    at: StepAt,
    link: String,
}

impl VaultShelf {
    pub(super) const fn new(keys: Secret, links: Secret) -> Self {
        Self { keys, links, kept: Vec::new(), marked: (None, Link::FIRST) }
    }

    /// Reads what is kept and compares it with the last step that the ledger has. Nothing is destroyed unless both fit.
    pub(super) fn open(mut self, last: Option<LastStep>) -> Result<Self, LedgerError> {
        self.marked = self.read_link()?;
        let text = self.keys.read_text()?.unwrap_or_default();
        // What follows the last whole line was being written or erased in a crash.
        self.kept = text.split_inclusive('\n').map_while(|line| parse(line.strip_suffix('\n')?)).collect();
        let recorded = self.recorded(last.map(|last| last.at))?;
        if self.kept.len() > recorded || text.lines().count() > recorded {
            self.kept.truncate(recorded);
            self.keys.wipe_from(text.split_inclusive('\n').take(recorded).map(str::len).sum())?;
        }
        let settled = match last {
            Some(last) => self.settle(last),
            None => Ok(()),
        };
        settled.map_err(|e| LedgerError::storage("cannot settle the noise keys", e))?;
        Ok(self)
    }

    /// Brings to an end what a crash interrupted after the record of the last step.
    fn settle(&mut self, last: LastStep) -> Result<(), StepKeyError> {
        if self.marked.0 < Some(last.at) {
            self.mark()?;
        }
        if last.needed_again { Ok(()) } else { self.erase() }
    }

    /// How many of the keys were recorded. One that was not may be there; two, or one that is marked, cannot be without
    /// entries, nor can the last entry be without its key.
    fn recorded(&self, last: Option<StepAt>) -> Result<usize, LedgerError> {
        if let Some(at) = self.marked.0.filter(|at| Some(*at) > last) {
            return Err(LedgerError::KeyAhead { at });
        }
        let recorded = self.kept.iter().take_while(|(at, _)| Some(*at) <= last).count();
        if let Some((at, _)) = self.kept.get(recorded + 1) {
            return Err(LedgerError::KeyAhead { at: *at });
        }
        let newest = recorded.checked_sub(1).map(|i| self.kept[i].0).max(self.marked.0);
        match last {
            Some(at) if newest != Some(at) => Err(LedgerError::KeyBehind { at }),
            _ => Ok(recorded),
        }
    }

    fn read_link(&self) -> Result<(Option<StepAt>, Link), LedgerError> {
        let Some(text) = self.links.read_text()? else { return Ok((None, Link::FIRST)) };
        let line: Result<LinkLine, _> = serde_json::from_str(&text);
        let parsed = line.ok().and_then(|line| Some((line.at, unhex(&Zeroizing::new(line.link)).ok()?)));
        let damaged = || format!("{} is damaged", self.links.place());
        let (at, link) = parsed.ok_or_else(|| LedgerError::storage(damaged(), "it does not hold what was written"))?;
        Ok((Some(at), Link::from_secret_bytes(Zeroizing::new(link))))
    }
}

fn parse(line: &str) -> Option<(StepAt, StepKey)> {
    let line: KeyLine = serde_json::from_str(line).ok()?;
    let key = Zeroizing::new(line.key);
    Some((line.at, StepKey::from_secret_bytes(Zeroizing::new(unhex(&key).ok()?))))
}

impl KeyShelf for VaultShelf {
    fn keep(&mut self, at: StepAt, key: &StepKey) -> Result<(), StepKeyError> {
        let line = KeyLine { at, key: hex(&*key.secret_bytes()) };
        let mut text = Zeroizing::new(serde_json::to_string(&line).map_err(|e| StepKeyError::Storage(e.to_string()))?);
        text.push('\n');
        self.keys.append(text.as_bytes()).map_err(|e| failed(&e))?;
        self.kept.push((at, key.clone()));
        Ok(())
    }

    fn find(&self, at: StepAt) -> Option<StepKey> {
        self.kept.iter().find(|(known, _)| *known == at).map(|(_, key)| key.clone())
    }

    fn last(&self) -> Option<StepAt> {
        self.kept.last().map(|(at, _)| *at)
    }

    fn link(&self) -> Link {
        self.kept.last().map_or_else(|| self.marked.1.clone(), |(_, key)| key.link())
    }

    fn mark(&mut self) -> Result<(), StepKeyError> {
        let Some(at) = self.last() else { return Ok(()) };
        let link = self.link();
        let line = LinkLine { at, link: hex(&*link.secret_bytes()) };
        let text = Zeroizing::new(serde_json::to_string(&line).map_err(|e| StepKeyError::Storage(e.to_string()))?);
        self.links.replace(text.as_bytes()).map_err(|e| failed(&e))?;
        self.marked = (Some(at), link);
        Ok(())
    }

    fn erase(&mut self) -> Result<(), StepKeyError> {
        self.kept.clear();
        self.keys.wipe_from(0).map_err(|e| failed(&e))
    }
}

/// With what lies behind it: a step's error is one line.
fn failed(error: &LedgerError) -> StepKeyError {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    StepKeyError::Storage(format!("{error}{cause}"))
}
