//! The MPI processes of `mpirun -n R keyhush train`, or this single process.

use federated::{
    engine::{Engine, Means},
    population::Population,
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
        let why = "this keyhush was built without MPI; build it with --features mpi, or start a single process";
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

/// How many processes share the users of a round.
pub(super) fn size(ranks: Option<&Ranks>) -> usize {
    #[cfg(feature = "mpi")]
    return ranks.map_or(1, Ranks::size);
    #[cfg(not(feature = "mpi"))]
    return ranks.map_or(1, |never| match *never {});
}

/// The engine of all processes, around that of this one.
#[allow(clippy::unnecessary_wraps, reason = "joining other processes can fail")]
pub(super) fn lead<'a>(
    ranks: Option<&'a Ranks>,
    own: Box<dyn Engine + 'a>,
    means: Means,
    description: &str,
) -> anyhow::Result<Box<dyn Engine + 'a>> {
    match ranks {
        None => Ok(own),
        #[cfg(feature = "mpi")]
        Some(ranks) => {
            let arithmetic = means.settled_by(&*own).arithmetic();
            let facts = cluster::Facts { arithmetic: &arithmetic, description: description.as_bytes() };
            Ok(Box::new(cluster::MpiEngine::new(ranks, own, &facts)?))
        }
        #[cfg(not(feature = "mpi"))]
        Some(never) => {
            let _ = (means, description);
            match *never {}
        }
    }
}

/// Trains for the process that leads until it says that the run has ended.
pub(super) fn serve(ranks: &Ranks, own: &mut dyn Engine, population: &dyn Population, means: Means, description: &str) {
    #[cfg(feature = "mpi")]
    {
        let arithmetic = means.settled_by(own).arithmetic();
        let facts = cluster::Facts { arithmetic: &arithmetic, description: description.as_bytes() };
        ranks.serve(own, population, &facts);
    }
    #[cfg(not(feature = "mpi"))]
    {
        let _ = (own, population, means, description);
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
