//! Every input that is kept for the fuzzer goes through its target here, so that what was once found stays mended.
//!
//! The seeds among them follow from the code. Where they no longer do, this writes them again:
//! `SEEDS=overwrite cargo test -p keyhush-secagg --profile ci --test fuzz the_kept_seeds`
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fuzzing;
#[path = "../../../fuzz/src/kept.rs"]
mod kept;

use fuzzing::{TARGETS, seeds::seeds};
use kept::Kept;

const OF_OTHERS: [&str; 3] = ["agent_", "device_", "serve_"];
const KEPT: Kept =
    Kept { targets: &TARGETS, is_ours: |name| !OF_OTHERS.iter().any(|other| name.starts_with(other)), seeds };

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
