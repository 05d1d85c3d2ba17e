//! All tests of `secagg` that share one binary; what each is about, it says itself.

mod client;
mod collusion;
mod decoders;
mod network;
mod scale;
mod server;
mod shamir;
mod shares;
mod signing;
mod story;
mod sum;
mod traffic;
