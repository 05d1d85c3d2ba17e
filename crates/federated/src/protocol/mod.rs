//! The server side of the device protocol, without IO: which devices are asked, what is accepted, what is stored (`docs/PROTOCOL.md`).
//!
//! Inputs and the time go in, writes and answers come out, and no answer leaves before the writes that it speaks of are durable.
//! The server puts the network around it, and the tests a simulated one.
//!
//! | module            | what it is                                                        |
//! |-------------------|-------------------------------------------------------------------|
//! | [`coordinator`]   | what devices are told, for all tasks of a server                   |
//! | [`desk`]          | one attempt while it is open: who was given it, whose reports are in |
//! | [`secure`]        | secure aggregation in one attempt                                  |
//! | [`windows`]       | how long devices have                                              |
//! | [`limits`]        | how often a device may take part                                   |
//! | [`left_out`]      | who spoiled too many secure rounds to be asked for more             |
//! | [`over_selection`] | how many are asked so that enough report                          |
//! | [`pace`]          | when devices are to come back                                      |
//! | [`admission`]     | who may enrol, and how many in an hour                             |
//! | [`order`]         | whether a task runs, rests or ends                                 |
//! | [`seen`]          | what operators may see of it: counts and times                      |
//! | [`ticket`]        | what binds messages to an attempt, and seals its sum               |
//! | [`store`]         | what must survive a crash: the contract, and one in memory          |

pub mod admission;
pub mod coordinator;
pub mod desk;
pub mod left_out;
pub mod limits;
pub mod order;
pub mod over_selection;
pub mod pace;
pub mod secure;
pub mod seen;
pub mod store;
pub mod ticket;
pub mod windows;
