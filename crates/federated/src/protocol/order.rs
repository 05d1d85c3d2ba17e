//! The operator's order for a task: run, pause or stop.
//!
//! A pause takes nothing from anybody: an attempt that devices were given continues to its end, with other devices where time runs out for
//! some, since their participations are used up either way (rule P24). Nothing after it begins. A stop gives such an attempt up: it is
//! recorded as failed, and the devices assigned to it took part.

use serde::{Deserialize, Serialize};

/// The operator's order for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The task runs.
    #[default]
    Run,
    /// No new device is asked once the current attempt has ended.
    Pause,
    /// The task ends now, permanently.
    Stop,
}
