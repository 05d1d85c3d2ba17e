//! The operator's orders for tasks, whether or not a server runs: one file per order, in the data folder.
//!
//! `keyhush task pause TASK` makes `orders/TASK.pause`, `resume` removes it, `stop` makes `orders/TASK.stop`, which nobody removes. The
//! server looks every [`EVERY`]. Why files, and neither a socket nor rows of the database:
//!
//! - A wish is durable when the command says so, holds after any restart, and can be given while no server runs.
//! - One process writes the database, and it stays one.
//! - Only who may write in the folder of data can give orders: it is its owner's alone (0700), which the server insists on.
//! - That a file is there is all that counts, so there is nothing to parse, and no order of two commands undoes a stop.
//!
//! What cannot be looked at is taken for a pause: nobody is asked then.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use durable::{
    disk::{Disk, How, OsDisk},
    files::{FileError, failed, folder, sync_folder},
};
use federated::protocol::order::Order;

/// How often a server reads its orders.
pub const EVERY: Duration = Duration::from_millis(200);

/// The orders for the tasks of a server.
#[derive(Debug, Clone)]
pub struct Orders {
    folder: PathBuf,
}

impl Orders {
    /// The orders in a data folder.
    #[must_use]
    pub fn in_data(data: &Path) -> Self {
        Self { folder: data.join("orders") }
    }

    /// The order for a task.
    #[must_use]
    pub fn of(&self, task: &str) -> Order {
        match (self.place(task, Order::Stop).try_exists(), self.place(task, Order::Pause).try_exists()) {
            (Ok(true), _) => Order::Stop,
            (Ok(false), Ok(false)) => Order::Run,
            _ => Order::Pause,
        }
    }

    /// Says what is wanted of a task; durable when this returns. A stop stays, whatever is said after it.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn give(&self, task: &str, order: Order) -> Result<(), FileError> {
        let place = self.place(task, if order == Order::Run { Order::Pause } else { order });
        if order == Order::Run {
            OsDisk.remove(&place).map_err(failed("remove", &place))?;
        } else {
            if OsDisk.create_folder(&self.folder, true).map_err(failed("make", &self.folder))? {
                sync_folder(folder(&self.folder))?;
            }
            let mut file = OsDisk.writer(&place, How::Replace).map_err(failed("write", &place))?;
            file.sync().map_err(failed("sync", &place))?;
        }
        // Where there was never an order there is no folder.
        if self.folder.exists() { sync_folder(&self.folder) } else { Ok(()) }
    }

    /// Forgets what was wanted of an earlier task of this name, which was never begun; durable when this returns.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn forget(&self, task: &str) -> Result<(), FileError> {
        for order in [Order::Pause, Order::Stop] {
            let place = self.place(task, order);
            OsDisk.remove(&place).map_err(failed("remove", &place))?;
        }
        if self.folder.exists() { sync_folder(&self.folder) } else { Ok(()) }
    }

    fn place(&self, task: &str, order: Order) -> PathBuf {
        self.folder.join(format!("{task}.{}", if order == Order::Stop { "stop" } else { "pause" }))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn orders_are_kept_and_a_stop_is_final() {
        let data = tempfile::tempdir().unwrap();
        let orders = Orders::in_data(data.path());
        orders.give("words", Order::Run).unwrap();
        assert_eq!(orders.of("words"), Order::Run, "nothing was said");
        for order in [Order::Pause, Order::Run, Order::Pause, Order::Pause] {
            orders.give("words", order).unwrap();
            assert_eq!((orders.of("words"), orders.of("others")), (order, Order::Run));
        }
        orders.give("words", Order::Stop).unwrap();
        for after in [Order::Run, Order::Pause] {
            orders.give("words", after).unwrap();
            assert_eq!(Orders::in_data(data.path()).of("words"), Order::Stop);
        }
        let mode = fs::metadata(data.path().join("orders")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "its owner's alone");
    }

    #[test]
    fn what_cannot_be_looked_at_is_a_pause() {
        let data = tempfile::tempdir().unwrap();
        // A file where the folder should be: looking fails for everybody, also for root.
        fs::write(data.path().join("orders"), "").unwrap();
        assert_eq!(Orders::in_data(data.path()).of("words"), Order::Pause);
    }
}
