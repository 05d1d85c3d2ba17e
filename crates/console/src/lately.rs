//! The state of tasks as it was read a moment ago: their ledgers are opened for it, and metrics may be asked for often.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use server::{
    listing::{Listed, list_in},
    state::State,
};

use crate::{Console, problems::Problem};

/// For how long it is not read again.
const KEPT: Duration = Duration::from_secs(5);

/// What was read of tasks last.
#[derive(Default)]
pub(crate) struct Lately(Mutex<Option<(Instant, Arc<Vec<Listed>>)>>);

impl Lately {
    /// The tasks of a server, as they were a few seconds ago at most.
    pub(crate) fn tasks<S: State>(&self, console: &Console<S>) -> Result<Arc<Vec<Listed>>, Problem> {
        // Others that ask meanwhile wait for what is read now.
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tasks)) = read.as_ref().filter(|(at, _)| at.elapsed() < KEPT) {
            return Ok(Arc::clone(tasks));
        }
        let tasks = list_in(Some(&*console.state), &console.data);
        let tasks = Arc::new(tasks.map_err(|_| Problem::internal("the state of the tasks cannot be read"))?);
        *read = Some((Instant::now(), Arc::clone(&tasks)));
        Ok(tasks)
    }
}
