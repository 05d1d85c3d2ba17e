//! `--track`: sends the run to a tracking server while it trains.

use std::path::Path;

use federated::{plan::Plan, run::Driven};
use privacy::rng::Randomness;
use tracking::{Account, Address, Outcome, Pace, TrackError, Tracker};

use crate::failure::BadInput;

/// The server after `--track`. It is not parsed by clap, which would repeat a password in it.
pub(super) fn address(named: Option<&str>) -> Result<Option<Address>, BadInput> {
    named.map(str::parse).transpose().map_err(|error: TrackError| BadInput::wrong("track", error))
}

/// Follows the run in a folder, if `--track` was given.
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
            "the run is sent to {address} when it has finished: with secret noise, nobody may see how long rounds take"
        );
    }
    let say = Box::new(|words: &str| eprintln!("warning: {words}"));
    Tracker::start(address, account, folder, Pace::default(), say).map(Some).map_err(refused)
}

/// Sends the rest, however the run ended.
pub(super) fn end<E>(tracker: Option<Tracker>, driven: &Result<Driven, E>) {
    let outcome = match driven {
        Ok(Driven::Over(_)) => Outcome::Finished,
        Ok(Driven::Stopped { .. }) => Outcome::Interrupted,
        Err(_) => Outcome::Failed,
    };
    let missing = tracker.and_then(|tracker| tracker.finish(outcome));
    missing.iter().for_each(|words| eprintln!("warning: {words}"));
}
