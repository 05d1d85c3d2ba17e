//! The server for real devices: HTTP, TLS and a database around the coordinator of [`federated::protocol`].
//!
//! | module     | what it is                                                                       |
//! |------------|----------------------------------------------------------------------------------|
//! | [`http`]   | the HTTP server: an accept loop that slow and hostile clients cannot exhaust; routes |
//! | [`hub`]    | the coordinator's thread, and the requests of the routes to it                      |
//! | [`disk`]   | how much room a folder has                                                         |
//! | `ready`    | whether the server can take devices now, and why not                               |
//! | `heard`    | replay protection                                                                  |
//! | `blobs`    | tasks and models that devices download, each in memory once                        |
//! | `uploads`  | incoming reports                                                                  |
//! | [`observed`] | what operators may see while it runs: counts and times                            |
//! | [`tasks`]  | a server with its tasks: started, resumed, stopped                                 |
//! | [`orders`] | the operator's orders: run, pause or stop a task                                   |
//! | [`listing`] | the state of each task, read while a server runs                                   |
//! | [`backup`] | copies of what a server keeps, and what can be done with them                      |
//! | [`attestation`] | asks the operator's attestation command about a device that enrols             |
//! | [`token`]  | the enrolment token, if the operator supplies none                                 |
//! | [`state`]  | all durable state, as a trait                                                      |
//! | [`sqlite`] | the same in one SQLite file: devices, attempts, ledgers, runs               |

pub mod attestation;
pub mod backup;
mod blobs;
pub mod disk;
mod heard;
pub mod http;
pub mod hub;
pub mod listing;
pub mod observed;
pub mod orders;
mod ready;
pub mod sqlite;
pub mod state;
pub mod tasks;
pub mod token;
mod uploads;
