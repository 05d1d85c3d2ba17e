//! All durable state of a server in one SQLite file: nothing to install, and one transaction for what belongs together.
//!
//! | module        | what it is                                                                              |
//! |---------------|-----------------------------------------------------------------------------------------|
//! | `server_state` | all of it together, with the folder of secrets ([`crate::state::State`])               |
//! | `database`    | the file: one server writes it, anybody of its owner's reads it; what a failed write means |
//! | `schema`      | its tables, and the version that they have                                              |
//! | `examination` | looks at all of it for `keyhush doctor`, and changes nothing                            |
//! | `coordinator` | what the coordinator of devices must not forget ([`federated::protocol::store::Store`])   |
//! | `copy`        | copies of it, and how old one is by what stands beside the secrets                       |
//! | `places`      | what hides the addresses from which devices enrol                                       |
//! | `task_home`   | the home of a task's run: papers, states, logs, models; which of them devices are given    |
//! | `task_ledger` | its ledger, and the head beside its secrets that shows when the file was set back        |
//!
//! **What is never here**: noise keys, the key of pseudonyms, the keys of sealed sums; those are files of `--secrets DIR/TASK/`
//! ([`federated::secrets::FileVault`]). No update and no sum that is not sealed. What is deleted is overwritten
//! (`secure_delete`); the write-ahead log may hold a sealed sum for longer, and so may a file system. What makes one unreadable
//! is that its key is destroyed.

mod assignments;
mod coordinator;
mod copy;
mod database;
mod error;
mod examination;
mod places;
mod schema;
mod server_state;
mod task_home;
mod task_ledger;

/// The name of the database in the folder of data.
pub const DATABASE: &str = "keyhush.sqlite";

pub use self::{
    copy::{Compared, ComparedTask, compare},
    database::Database,
    error::DatabaseError,
    examination::{Examined, ExaminedError, TaskExamined, examine},
    places::place_key,
    server_state::{SqliteState, check_folders, lock_secrets, resolved},
    task_home::TaskHome,
    task_ledger::TaskLedger,
};
