//! The processes of `mpirun -n R keyhush train`, or this one alone.

use federated::{
    fleet::{Fleet, threads::ThreadFleet},
    run::Means,
};

#[cfg(feature = "mpi")]
pub(super) use cluster::Ranks;

/// Without the feature `mpi` there are no others.
#[cfg(not(feature = "mpi"))]
pub(super) enum Ranks {}

/// The others, if a launcher started several of us.
#[cfg(feature = "mpi")]
pub(super) fn join() -> anyhow::Result<Option<Ranks>> {
    Ok(Ranks::join()?)
}

/// The same; processes that cannot talk to each other must not write into one folder.
#[cfg(not(feature = "mpi"))]
pub(super) fn join() -> anyhow::Result<Option<Ranks>> {
    if cluster::started_by_mpi() {
        let why = "this keyhush was built without MPI: build it with --features mpi, or start one process";
        return Err(crate::failure::BadInput::Refused(why.into()).into());
    }
    Ok(None)
}

/// Whether this process runs the loop.
pub(super) fn leads(ranks: Option<&Ranks>) -> bool {
    #[cfg(feature = "mpi")]
    return ranks.is_none_or(Ranks::leads);
    #[cfg(not(feature = "mpi"))]
    return ranks.is_none();
}

/// Does something with the fleet of all processes.
#[allow(clippy::needless_pass_by_value, reason = "the fleet moves into that of all processes")]
pub(super) fn lead<T>(
    ranks: Option<&Ranks>,
    #[allow(unused_mut, reason = "it is used where there is no MPI")] mut own: ThreadFleet<'_>,
    means: Means,
    description: &str,
    work: impl FnOnce(&mut dyn Fleet) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match ranks {
        None => work(&mut own),
        #[cfg(feature = "mpi")]
        Some(ranks) => {
            let facts = cluster::Facts { kernels: means.kernels, description: description.as_bytes() };
            work(&mut cluster::MpiFleet::new(ranks, own, &facts)?)
        }
        #[cfg(not(feature = "mpi"))]
        Some(never) => {
            let _ = (means, description);
            match *never {}
        }
    }
}

/// Trains for the process that leads until it says that the run has ended.
#[allow(clippy::needless_pass_by_ref_mut, reason = "it trains where there is MPI")]
pub(super) fn serve(ranks: &Ranks, own: &mut ThreadFleet<'_>, means: Means, description: &str) {
    #[cfg(feature = "mpi")]
    ranks.serve(own, &cluster::Facts { kernels: means.kernels, description: description.as_bytes() });
    #[cfg(not(feature = "mpi"))]
    {
        let _ = (own, means, description);
        match *ranks {}
    }
}

/// Tells the process that leads why this one cannot take part.
pub(super) fn refuse(ranks: &Ranks, problem: &anyhow::Error) {
    #[cfg(feature = "mpi")]
    ranks.refuse(format!("{problem:#}"));
    #[cfg(not(feature = "mpi"))]
    {
        let _ = problem;
        match *ranks {}
    }
}
