//! The server of real fleets: HTTP, TLS and a database around the coordinator of [`federated::protocol`].
//!
//! | module     | what it is                                                                       |
//! |------------|----------------------------------------------------------------------------------|
//! | [`http`]   | an accept loop that slow and hostile clients cannot fill; the routes               |
//! | [`hub`]    | the coordinator's thread, and what the routes ask of it                             |
//! | `heard`    | which check-ins were heard before                                                  |
//! | `blobs`    | tasks and models that devices ask for, in memory once each                         |
//! | `uploads`  | reports on their way in                                                           |
//! | [`tasks`]  | a server with its tasks: begun, gone on with, stopped                              |
//! | [`orders`] | what the operator wants of each task: to run, to rest, to end                      |
//! | [`listing`] | where each task stands, for whoever looks while a server runs                      |
//! | [`attestation`] | whether somebody vouches for a device that enrols                              |
//! | [`token`]  | the token that devices enrol with, where the operator brings none                  |
//! | [`sqlite`] | everything that a server keeps, in one SQLite file: devices, attempts, ledgers, runs |

pub mod attestation;
mod blobs;
mod heard;
pub mod http;
pub mod hub;
pub mod listing;
pub mod orders;
pub mod sqlite;
pub mod tasks;
pub mod token;
mod uploads;
