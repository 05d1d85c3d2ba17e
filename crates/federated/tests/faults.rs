//! The simulated network with its faults, as a binary of its own: it is optimised (`xtask/src/compiler.rs`), since most of its time is
//! spent in the simulation itself.

mod network_faults;
mod world;
