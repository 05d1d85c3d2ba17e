//! The server of real fleets: HTTP, TLS and a database around the coordinator of [`federated::protocol`].
//!
//! | module     | what it is                                                                       |
//! |------------|----------------------------------------------------------------------------------|
//! | [`http`]   | an accept loop that slow and hostile clients cannot fill; the routes               |
//! | [`sqlite`] | everything that a server keeps, in one SQLite file: devices, attempts, ledgers, runs |

pub mod http;
pub mod sqlite;
