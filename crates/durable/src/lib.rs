//! Files that survive a power cut.
//!
//! What is written is not on the disk before it is synced, and neither is the name of a new file before its folder is: a system
//! may keep any part of either, in any order (Pillai et al. 2014, `All File Systems Are Not Created Equal`). So before
//! anything is called durable, both are synced, and a file that others rely on gets its name when it is complete.
//!
//! | module         | what it is                                                                         |
//! |----------------|------------------------------------------------------------------------------------|
//! | [`disk`]       | the disk operations a store needs: a trait, and the operating system's            |
//! | [`files`]      | files that exist completely or not at all, atomic replacement, appended lines             |
//! | `power_loss`   | a disk for tests that loses what was not synced (feature `power-loss`)              |
//!
//! `tempfile` and `atomic-write-file` replace files too; neither lets a test put another disk beneath it, nor syncs the folder
//! where we need it.

pub mod disk;
pub mod files;
#[cfg(feature = "power-loss")]
pub mod power_loss;
