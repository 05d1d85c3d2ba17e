//! How a device and a server speak: messages, terms, and the device's side as a machine without IO (`docs/PROTOCOL.md`).
//!
//! | module      | what it is                                                           |
//! |-------------|----------------------------------------------------------------------|
//! | [`message`] | what is said, its bytes and its signatures                           |
//! | [`terms`]   | what a device is told of a task and of a step                        |

pub mod message;
pub mod terms;
