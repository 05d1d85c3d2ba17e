//! The coordinator's side of the protocol with devices, without IO: who is asked, what is taken, what is kept (`docs/PROTOCOL.md`).
//!
//! Inputs and the time go in, writes and answers come out, and no answer leaves before the writes that it speaks of are durable.
//! The server puts the network around it, and the tests a simulated one.
//!
//! | module    | what it is                                                            |
//! |-----------|-----------------------------------------------------------------------|
//! | [`store`] | what must survive a crash: the contract, and one in memory             |

pub mod store;
