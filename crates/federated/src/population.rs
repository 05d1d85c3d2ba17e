//! Whose text a simulation trains on: a synthetic crowd, made on demand, or a store.

use corpus::{
    store::{Store, StoreError},
    synth::Crowd,
};
use device::text::UserText;
use lm::{tokenizer::Tokenizer, vocabulary::Vocabulary};

/// Users by number, each with their text. Asked from many threads at once.
pub trait Population: Sync {
    /// How many there are.
    fn users(&self) -> u64;

    /// Writes what a user typed.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, user: u64, text: &mut UserText) -> Result<(), StoreError>;
}

/// A synthetic crowd, read with a vocabulary.
#[derive(Debug)]
pub struct SyntheticPopulation<'a> {
    crowd: Crowd,
    tokenizer: Tokenizer,
    vocabulary: &'a Vocabulary,
}

impl<'a> SyntheticPopulation<'a> {
    /// A crowd and how it is read.
    #[must_use]
    pub const fn new(crowd: Crowd, tokenizer: Tokenizer, vocabulary: &'a Vocabulary) -> Self {
        Self { crowd, tokenizer, vocabulary }
    }
}

impl Population for SyntheticPopulation<'_> {
    fn users(&self) -> u64 {
        self.crowd.plan().users
    }

    fn read(&self, user: u64, text: &mut UserText) -> Result<(), StoreError> {
        text.clear();
        let mut ids = Vec::new();
        for post in self.crowd.posts(user) {
            ids.clear();
            self.tokenizer.for_each(&post, |token| ids.push(self.vocabulary.id(token)));
            text.push(&ids);
        }
        Ok(())
    }
}

/// Some users of a store.
#[derive(Debug)]
pub struct StoredPopulation<'a> {
    store: &'a Store,
    users: Vec<u64>,
}

impl<'a> StoredPopulation<'a> {
    /// These users of a store.
    #[must_use]
    pub const fn new(store: &'a Store, users: Vec<u64>) -> Self {
        Self { store, users }
    }
}

impl Population for StoredPopulation<'_> {
    fn users(&self) -> u64 {
        self.users.len() as u64
    }

    fn read(&self, user: u64, text: &mut UserText) -> Result<(), StoreError> {
        text.clear();
        let Some(index) = usize::try_from(user).ok().and_then(|u| self.users.get(u)) else { return Ok(()) };
        let mut ids = Vec::new();
        for post in self.store.user(*index)?.posts() {
            ids.clear();
            post.copy_into(&mut ids);
            text.push(&ids);
        }
        Ok(())
    }
}
