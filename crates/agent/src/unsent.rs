//! What a device has learned and not sent ([`device::unsent`]), for the threads that train and for the loop that lets its reports leave.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{
    guard::Store,
    protocol::task::Work,
    unsent::{Unsent, UnsentError},
    upload::Rest,
};

use crate::text::today;

/// It, wherever a [`Store`] keeps bytes: in a file of the device's folder (0600). Clones are the same.
#[derive(Clone)]
pub struct UnsentFile(Arc<Mutex<Unsent<Box<dyn Store + Send>>>>);

impl std::fmt::Debug for UnsentFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnsentFile")
    }
}

impl UnsentFile {
    /// What is in a store, kept for so many days; what is older goes before this returns. Days are counted from 1970.
    ///
    /// # Errors
    /// When it cannot be read, or not be deleted.
    pub fn open(store: impl Store + Send + 'static, days: u32, today: u32) -> Result<Self, UnsentError> {
        let store: Box<dyn Store + Send> = Box::new(store);
        Ok(Self(Arc::new(Mutex::new(Unsent::open(store, days, today)?))))
    }

    /// Describes it for its owner; nothing where there is nothing.
    #[must_use]
    pub fn page(&self) -> Option<String> {
        self.lock().page(today())
    }

    /// What was kept of the task of a piece of work.
    pub(crate) fn before(&self, work: &Work) -> Option<Rest> {
        let keeps = work.task.keeps_rest();
        keeps.then(|| self.lock().of(&work.asked.task, work.model.parameters().len()).cloned()).flatten()
    }

    /// What it came to. If the plan has no later input of this device, nothing is kept. What an earlier piece of work came to, and never left, is
    /// forgotten.
    pub(crate) fn learned(&self, work: &Work, rest: Option<Rest>) {
        self.lock().learned(work.asked, rest.filter(|_| !work.is_last));
    }

    /// The input of this step is about to leave.
    pub(crate) fn left(&self, step: u64) -> Result<(), UnsentError> {
        self.lock().left(step, today())
    }

    pub(crate) fn let_go_of_old(&self) -> Result<(), UnsentError> {
        self.lock().let_go_of_old(today())
    }

    fn lock(&self) -> MutexGuard<'_, Unsent<Box<dyn Store + Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
