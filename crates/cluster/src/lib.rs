//! The MPI engine: `mpirun -n R keyhush train ...`, where each rank trains its share of a round's users.
//!
//! Rank 0 alone runs the loop: it holds the noise key, the ledger, the optimizer and the files. Every round it tells the
//! others the model, how updates are clipped and encoded, who takes part, and the key of these users' randomness in this
//! round, which opens nothing else of the run. Every rank trains each R-th user with an engine of its own, and the integer
//! sums are added by one collective. Integers add up to the same bits in any order, so a run is the same for any number of
//! ranks and threads.
//!
//! The collective is a reduce to rank 0, not an all-reduce: the next thing that the others need is the model of the next
//! round, which comes by broadcast. The bytes are the same, since an all-reduce is a reduce and a broadcast, and no other
//! rank sees the sum before it has its noise.
//!
//! A rank is a process. With `--map-by ppr:1:node --bind-to none` there is one per machine, whose threads use all of it; by
//! default `mpirun` starts one per core, each on its own core. The results are the same. Waiting ranks sleep. Ctrl-C
//! makes `mpirun` kill all ranks; the run can be resumed as after any other kill.
//!
//! | module    | what it is                                                                                 |
//! |-----------|--------------------------------------------------------------------------------------------|
//! | `ranks`   | the MPI processes and their collective operations                                          |
//! | `message` | the messages of rank 0 to the others                                                       |
//! | `facts`   | facts that must be equal on all ranks                                                      |
//! | `engine`  | the engine on rank 0, and the loop of the other ranks                                      |
//!
//! Without the feature `mpi` there is nothing here but [`started_by_mpi`]: a program that cannot talk to the other ranks
//! must not run beside them.

#[cfg(feature = "mpi")]
mod engine;
#[cfg(feature = "mpi")]
mod facts;
#[cfg(feature = "mpi")]
mod message;
#[cfg(feature = "mpi")]
mod ranks;

#[cfg(feature = "mpi")]
pub use self::{
    engine::MpiEngine,
    facts::Facts,
    ranks::{JoinError, Ranks},
};

/// What the launchers of Open MPI and MPICH, and those of batch systems that speak PMI or PMIx, tell the processes they
/// start.
const LAUNCHERS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"];

/// Whether this process is one of several that `mpirun`, or another launcher, started.
#[must_use]
pub fn started_by_mpi() -> bool {
    LAUNCHERS.iter().any(|name| std::env::var_os(name).is_some())
}
