//! Text by user: import, a memory-mapped store, synthetic users.
//!
//! | module      | what it is                                              |
//! |-------------|---------------------------------------------------------|
//! | [`import`]  | turns files of posts into a store, grouped by user      |
//! | [`store`]   | all users' tokens in one immutable, memory-mapped file  |
//! | [`synth`]   | synthetic users, generated on demand                    |
//! | [`origin`]  | records where a vocabulary came from                    |
//! | [`text`]    | text input: plain, compressed, or standard input            |
//! | [`words`]   | vocabularies from lists, public text and users' text    |
//! | [`partial`] | a file that gets its name when it is complete           |
//! | `labels`    | labels of posts                                         |
//! | `progress`  | progress reports of long work                           |

pub mod import;
mod labels;
pub mod origin;
pub mod partial;
mod progress;
pub mod store;
pub mod synth;
pub mod text;
pub mod words;
