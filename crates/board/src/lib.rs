//! One page over all runs, live while they train (`keyhush board`).
//!
//! | module      | what it is                                                                       |
//! |-------------|----------------------------------------------------------------------------------|
//! | `folders`   | finds the folders that are runs                                                  |
//! | [`watch`]   | polls their files, and reads those that changed                                  |
//! | [`listing`] | all runs as the page shows them, with what changed                               |
//! | [`http`]    | the page, a small JSON API and server-sent events, as an `axum` router           |
//! | [`web`]     | the files of the page (`web/`), embedded in the program                          |
//! | [`events`]  | server-sent events, for any page                                                 |
//! | [`export`]  | exports the page and its data as a folder that opens without a server            |
//!
//! What may be shown of a run is decided by [`report::board`] and by what runs keep ([`federated::run::Kept`]); nothing is decided
//! here. Who listens, where and with which limits is the caller's: the command line takes the crate `listen`.

pub mod events;
pub mod export;
mod folders;
pub mod http;
pub mod listing;
pub mod watch;
pub mod web;
