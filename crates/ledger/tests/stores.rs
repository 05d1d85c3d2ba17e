//! The store in memory keeps the contract of all stores; and the contract notices what it is there for.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_ledger::{MemoryStore, contract};

#[test]
fn a_store_in_memory_keeps_the_contract() {
    contract::store(MemoryStore::new(), |store| store);
}

/// Where a panic can be caught, which is not so in WebAssembly.
#[cfg(panic = "unwind")]
mod noticed {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use keyhush_ledger::{
        Attached, BegunAttempt, Entry, Head, LedgerError, LedgerStore, MemoryStore, Participations, contract,
    };

    /// What a store does wrong.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Wrong {
        TakesAnyHead,
        ForgetsVectors,
        ForgetsWhoTookPart,
        DropsAllVectors,
        KeepsTheFirstAttempt,
        ForgetsAttemptsInARestart,
        RemembersWhatItShouldForget,
        ReadsFromTheBeginning,
    }

    struct Broken(MemoryStore, Wrong);

    impl LedgerStore for Broken {
        fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
            let after = if self.1 == Wrong::TakesAnyHead { self.0.head()? } else { *after };
            let attached = match self.1 {
                Wrong::ForgetsVectors => Attached { released: None, ..attached },
                Wrong::ForgetsWhoTookPart => Attached { participations: None, ..attached },
                _ => attached,
            };
            self.0.append(&after, entry, attached)
        }
        fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
            self.0.read(if self.1 == Wrong::ReadsFromTheBeginning { 0 } else { from })
        }
        fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
            self.0.released(index)
        }
        fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
            self.0.discard_released(if self.1 == Wrong::DropsAllVectors { u64::MAX } else { below })
        }
        fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
            self.0.participations()
        }
        fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
            let keeps = self.1 == Wrong::KeepsTheFirstAttempt && self.0.begun_attempt()?.is_some();
            if keeps { Ok(()) } else { self.0.begin_attempt(begun) }
        }
        fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
            self.0.begun_attempt()
        }
        fn forget_attempt(&mut self) -> Result<(), LedgerError> {
            if self.1 == Wrong::RemembersWhatItShouldForget { Ok(()) } else { self.0.forget_attempt() }
        }
        fn head(&self) -> Result<Head, LedgerError> {
            self.0.head()
        }
    }

    #[test]
    fn the_contract_notices_a_store_that_does_not_keep_it() {
        for wrong in [
            Wrong::TakesAnyHead,
            Wrong::ForgetsVectors,
            Wrong::ForgetsWhoTookPart,
            Wrong::DropsAllVectors,
            Wrong::KeepsTheFirstAttempt,
            Wrong::ForgetsAttemptsInARestart,
            Wrong::RemembersWhatItShouldForget,
            Wrong::ReadsFromTheBeginning,
        ] {
            let again = move |mut store: Broken| {
                if wrong == Wrong::ForgetsAttemptsInARestart {
                    store.0.forget_attempt().unwrap();
                }
                store
            };
            let noticed = catch_unwind(AssertUnwindSafe(|| contract::store(Broken(MemoryStore::new(), wrong), again)));
            assert!(noticed.is_err(), "{wrong:?}");
        }
    }
}
