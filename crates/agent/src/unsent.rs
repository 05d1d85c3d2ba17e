//! What a device has learned and not sent ([`device::unsent`]), for the threads that train and for the loop that lets its reports leave.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{
    guard::Store,
    protocol::task::Work,
    unsent::{Keep, Unsent, UnsentError},
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
    /// What is in a store, within these limits; what is older goes before this returns. Days are counted from 1970.
    ///
    /// # Errors
    /// When it cannot be read, or not be deleted.
    pub fn open(store: impl Store + Send + 'static, keep: Keep, today: u32) -> Result<Self, UnsentError> {
        let store: Box<dyn Store + Send> = Box::new(store);
        Ok(Self(Arc::new(Mutex::new(Unsent::open(store, keep, today)?))))
    }

    /// Describes it for its owner; nothing where there is nothing.
    #[must_use]
    pub fn page(&self) -> Option<String> {
        self.lock().page(today())
    }

    /// What was kept of the task of a piece of work.
    ///
    /// # Errors
    /// When something is to be kept after it, and could not be the last time and now.
    pub(crate) fn before(&self, work: &Work) -> Result<Option<Arc<Rest>>, UnsentError> {
        let Some(upload) = work.task.terms().upload.filter(|upload| upload.keeps_rest()) else { return Ok(None) };
        self.lock().before(work.asked.task, work.model.parameters().len(), upload.keeps_velocity())
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
