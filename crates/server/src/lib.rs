//! The server of real fleets: HTTP, TLS and a database around the coordinator of [`federated::protocol`].
//!
//! | module     | what it is                                                                       |
//! |------------|----------------------------------------------------------------------------------|
//! | [`http`]   | an accept loop that slow and hostile clients cannot fill; the routes               |
//! | [`hub`]    | the coordinator's thread, and what the routes ask of it                             |
//! | `heard`    | which check-ins were heard before                                                  |
//! | `uploads`  | reports on their way in                                                           |
//! | [`tasks`]  | a server with its tasks: begun, gone on with, stopped                              |
//! | [`orders`] | what the operator wants of each task: to run, to rest, to end                      |
//! | [`listing`] | where each task stands, for whoever looks while a server runs                      |
//! | [`sqlite`] | everything that a server keeps, in one SQLite file: devices, attempts, ledgers, runs |

mod heard;
pub mod http;
pub mod hub;
pub mod listing;
pub mod orders;
pub mod sqlite;
pub mod tasks;
mod uploads;
