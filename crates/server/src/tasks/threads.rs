//! A thread for each task, and how a server ends: when it is told to, when its tasks are over, or by a bug.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use device::guard::TaskDigest;
use federated::{fleet::network::Driver, protocol::order::Order};

use super::{Happened, Ready, ServeError, Serving, note};
use crate::{
    orders,
    state::{Note, State, TaskState},
};

/// How often it is looked whether the server is to stop.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// How long it is waited for a task to end, before it is looked whether others came.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// That something is over, also where it ended by a bug.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<S: State> Serving<'_, S> {
    /// Runs all tasks. When somebody wants the server to stop, or the tasks are over, all who wait are told so first, and then the door is
    /// closed; a task that is within a step ends it meanwhile.
    pub(super) fn run_until_it_stops(
        self,
        ready: Vec<Ready<S::Task>>,
        ends_with_tasks: bool,
        closing: tokio::sync::oneshot::Sender<()>,
    ) -> Result<(), ServeError> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = || self.stop.is_asked() || over.load(Ordering::Acquire);
            scope.spawn(move || {
                while !is_over() {
                    std::thread::sleep(STOP_LOOK);
                }
                self.hub.close();
                let _ = closing.send(());
            });
            let _over = Over(&over);
            self.run_all(ready, ends_with_tasks)
        })
    }

    /// Runs all tasks, each on a thread of its own, and those that are created meanwhile.
    fn run_all(self, ready: Vec<Ready<S::Task>>, ends_with_tasks: bool) -> Result<(), ServeError> {
        std::thread::scope(|scope| {
            let (ended, ends) = mpsc::channel();
            let begin = |task: Ready<S::Task>| {
                let ended = ended.clone();
                scope.spawn(move || {
                    let done = caught(|| self.run_one(&task));
                    if let Err(error) = &done {
                        // Where that ends by a bug too, the server still ends, and says why.
                        _ = caught(|| {
                            self.is_broken(&task, error);
                            Ok(())
                        });
                    }
                    let _ = ended.send(done);
                });
            };
            let mut served: BTreeSet<String> = ready.iter().map(|task| task.name.clone()).collect();
            let mut running = ready.len();
            ready.into_iter().for_each(begin);
            let (mut first, mut looked) = (Ok(()), None::<Instant>);
            loop {
                if let Ok(done) = ends.recv_timeout(IDLE_LOOK) {
                    first = first.and(done);
                    running -= 1;
                }
                let ends = self.stop.is_asked() || self.hub.is_down();
                if !ends && looked.is_none_or(|looked| looked.elapsed() >= orders::EVERY) {
                    let new = self.newcomers(&mut served);
                    running += new.len();
                    new.into_iter().for_each(begin);
                    looked = Some(Instant::now());
                }
                // Devices are told when to come back as long as the server is there, and somebody answers them.
                if running == 0 && (first.is_err() || ends_with_tasks || ends) {
                    return first;
                }
            }
        })
    }

    /// A task cannot go on: that is said where people look for it, and its devices wait for it no longer.
    fn is_broken(self, task: &Ready<S::Task>, error: &ServeError) {
        // Where the state is what failed, nothing can be said there.
        let _ = task.state.write_note(&Note { broken: Some(error.to_string()), ..note(task, Order::Run) });
        self.gives_up(task);
        (self.happens)(&Happened::Broken { task: &task.name, error });
    }

    fn gives_up(self, task: &Ready<S::Task>) {
        let digests: Vec<TaskDigest> = task.tasks().map(|(network, _)| network.digest).collect();
        // Where the hub is down nobody is answered anyway.
        _ = self.hub.driver().with(move |coordinator, now| {
            digests.iter().for_each(|digest| coordinator.broke(digest, now));
            Ok(())
        });
    }
}

/// What a thread does. A panic in it is a bug, and an error like others.
fn caught(act: impl FnOnce() -> Result<(), ServeError>) -> Result<(), ServeError> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(ServeError::Died))
}
