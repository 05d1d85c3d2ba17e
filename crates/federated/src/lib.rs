//! The other half of Algorithm 1 (McMahan et al. 2018), and the simulator: who takes part, who trains, what the server does
//! with what was released.
//!
//! | module         | what it is                                                              |
//! |----------------|-------------------------------------------------------------------------|
//! | [`cohort`]     | who takes part in a round                                               |
//! | [`population`] | whose text a simulation trains on                                       |
//! | [`fleet`]      | who does the local training of a round, and how the sum comes about     |
//! | [`optimizer`]  | what the server does with a released average                            |

pub mod cohort;
pub mod fleet;
pub mod optimizer;
pub mod population;
