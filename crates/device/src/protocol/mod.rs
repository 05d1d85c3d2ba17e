//! The device protocol: messages, terms, and the device as a state machine without IO (`docs/PROTOCOL.md`).
//!
//! | module          | what it is                                                           |
//! |-----------------|----------------------------------------------------------------------|
//! | [`message`]     | what is said, its bytes and its signatures                           |
//! | [`terms`]       | what a device is told of a task and of a step                        |
//! | [`blob`]        | bytes that never change, as they arrive                              |
//! | [`task`]        | a task and a model, read within bounds and ready to be trained       |
//! | [`policy`]      | what a device refuses, whatever it is asked                          |
//! | [`diary`]       | what it tells its owner                                              |
//! | [`participant`] | the device, from its first word to the thanks                        |

pub mod blob;
pub mod diary;
pub mod message;
pub mod participant;
pub mod policy;
pub mod task;
pub mod terms;

/// Hexadecimal digits, as paths and pages have them. `ledger` has the same, for what it keeps; a device has no ledger, and the crates below
/// both know nothing of texts.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
