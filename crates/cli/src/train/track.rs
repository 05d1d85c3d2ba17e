//! `--track`: the run is sent to a tracking server while it goes on.

use std::path::Path;

use federated::{plan::Plan, run::Driven};
use privacy::rng::Randomness;
use tracking::{Account, Address, Outcome, Pace, TrackError, Tracker};

use crate::failure::BadInput;

/// The server that somebody names. Not for clap to parse, which would repeat a password that stands in it.
pub(super) fn address(named: Option<&str>) -> Result<Option<Address>, BadInput> {
    named.map(str::parse).transpose().map_err(|error: TrackError| BadInput::wrong("track", error))
}

/// Follows the run in a folder, if somebody wants that.
pub(super) fn begin(
    address: Option<&Address>,
    folder: &Path,
    plan: &Plan,
    quiet: bool,
) -> Result<Option<Tracker>, BadInput> {
    let Some(address) = address else { return Ok(None) };
    let refused = |error: TrackError| BadInput::wrong("track", error);
    let account = Account::from_environment().map_err(refused)?;
    account.warning(address).iter().for_each(|words| eprintln!("warning: {words}"));
    if plan.randomness() == Randomness::Secret && !quiet {
        eprintln!(
            "the run is sent to {address} when it is over: with secret noise nobody may see how long rounds take"
        );
    }
    let say = Box::new(|words: &str| eprintln!("warning: {words}"));
    Tracker::start(address, account, folder, Pace::default(), say).map(Some).map_err(refused)
}

/// Sends the rest, whatever became of the run.
pub(super) fn end<E>(tracker: Option<Tracker>, driven: &Result<Driven, E>) {
    let outcome = match driven {
        Ok(Driven::Over(_)) => Outcome::Finished,
        Ok(Driven::Stopped { .. }) => Outcome::Interrupted,
        Err(_) => Outcome::Failed,
    };
    let missing = tracker.and_then(|tracker| tracker.finish(outcome));
    missing.iter().for_each(|words| eprintln!("warning: {words}"));
}
