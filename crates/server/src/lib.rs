//! The server of real fleets: HTTP, TLS and a database around the coordinator of [`federated::protocol`].
//!
//! | module     | what it is                                                                       |
//! |------------|----------------------------------------------------------------------------------|
//! | [`http`]   | an accept loop that slow and hostile clients cannot fill; the routes               |
//! | [`hub`]    | the coordinator's thread, and what the routes ask of it                             |
//! | `uploads`  | reports on their way in                                                           |
//! | [`tasks`]  | a server with its tasks: begun, gone on with, stopped                              |
//! | [`sqlite`] | everything that a server keeps, in one SQLite file: devices, attempts, ledgers, runs |

pub mod http;
pub mod hub;
pub mod sqlite;
pub mod tasks;
mod uploads;
