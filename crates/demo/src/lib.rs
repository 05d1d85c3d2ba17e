//! A demo: a server, devices of synthetic users, secure aggregation and a ledger, in one process, to be looked at.
//!
//! ```text
//! this process: server::tasks::serve, console  <--HTTP on loopback-->  agent::many (200 devices, no text of anybody real)
//! ```
//!
//! | module       | what it is                                                                    |
//! |--------------|-------------------------------------------------------------------------------|
//! | [`settings`] | the settings of its task, for so many devices and rounds                      |
//! | [`costs`]    | its epsilon, and that of the same plan with a million devices                 |
//! | [`mod@about`]| what is happening in it, in a few sentences                                   |
//! | [`place`]    | its folder, which is deleted at the end, also of a demo that was killed        |
//! | [`running`]  | server and devices, from their start to their end                             |
//! | [`error`]    | why there is no demo                                                          |
//!
//! Nothing of the machinery is simulated: devices are those of `keyhush device --synthetic` and speak the protocol over TCP, sums are
//! aggregated securely, noise is drawn from the operating system and is secret, and every release is in a signed ledger. Only the people
//! are made up.
//!
//! It speaks plain HTTP, on loopback alone: with a self-signed certificate browsers would begin with a warning, and nothing leaves
//! the machine. A server for real devices needs TLS, and gets it from `keyhush serve`.

pub mod about;
pub mod costs;
pub mod error;
pub mod place;
pub mod running;
pub mod settings;

pub use about::about;
pub use costs::Costs;
pub use error::DemoError;
pub use place::Place;
pub use running::{Demo, Ended, Step, Summary, TASK};
pub use settings::Settings;
