//! Every input that is kept for the fuzzer goes through its target here, so that what was once found stays mended.
//!
//! The seeds among them follow from the code. Where they no longer do, this writes them again:
//! `SEEDS=overwrite cargo test -p keyhush-agent --profile ci --test all the_kept_seeds`
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "fuzzing/mod.rs"]
pub(crate) mod fuzzing;
#[path = "../../../fuzz/src/kept.rs"]
mod kept;

use fuzzing::{TARGETS, seeds::seeds};
use kept::Kept;

const KEPT: Kept = Kept { targets: &TARGETS, is_ours: |name| name.starts_with("agent_"), seeds };

#[test]
fn every_target_has_a_folder_and_every_folder_a_target() {
    KEPT.check_folders();
}

#[test]
fn every_kept_input_goes_through_its_target() {
    KEPT.run_all();
}

#[test]
fn seeds_are_taken_and_refused_as_their_names_say() {
    KEPT.check_names();
}

#[test]
fn the_kept_seeds_are_of_this_version() {
    KEPT.check_seeds();
}
