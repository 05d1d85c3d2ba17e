//! Who typed what: import, a memory-mapped store by user, a synthetic crowd.
//!
//! | module      | what it is                                              |
//! |-------------|---------------------------------------------------------|
//! | [`import`]  | files of posts to a store, grouped by user              |
//! | [`store`]   | everybody's tokens in one immutable, memory-mapped file |
//! | [`synth`]   | a synthetic crowd, any user of it on demand             |
//! | [`origin`]  | where a vocabulary came from, and the file that says so |
//! | [`text`]    | text as it lies about: plain, compressed, on standard input |
//! | [`words`]   | vocabularies of lists, public text and users' text      |
//! | [`partial`] | a file that gets its name when it is whole              |
//! | `labels`    | names of what posts are about                           |
//! | `progress`  | how far an import is, or a crowd that is written        |

pub mod import;
mod labels;
pub mod origin;
pub mod partial;
mod progress;
pub mod store;
pub mod synth;
pub mod text;
pub mod words;
