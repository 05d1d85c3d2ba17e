//! Who typed what: import, a memory-mapped store by user, a synthetic crowd.
//!
//! | module     | what it is                                                 |
//! |------------|------------------------------------------------------------|
//! | [`import`] | files of posts to a store, grouped by user              |
//! | [`synth`]  | a synthetic crowd, any user of it on demand                |
//! | [`origin`] | where a vocabulary came from, and the file that says so    |
//! | [`store`]  | everybody's tokens in one immutable, memory-mapped file    |

pub mod import;
pub mod origin;
pub mod store;
pub mod synth;
