//! Devices that come and go, a network that loses, delays, doubles and reorders, and a server that is killed at any durable step: a
//! discrete-event simulation of the real coordinator, the real fleet and the real loop. A seed replays to the event.
//!
//! Each device's report has a one in a place of its own, so that whatever is lost or counted twice shows in what was released.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod world;

use world::{Faults, Flaw, Story, Violation};

/// How many schedules run with every test.
const SCHEDULES: u64 = 500;

fn run(seeds: std::ops::Range<u64>, flaw: Option<Flaw>) -> Result<Vec<Story>, (u64, Violation)> {
    seeds.map(|seed| Story::play(seed, Faults::of(seed), flaw).map_err(|violation| (seed, violation))).collect()
}

#[test]
fn nothing_is_lost_or_counted_twice_whatever_happens() {
    let stories = run(0..SCHEDULES, None).unwrap_or_else(|(seed, violation)| panic!("schedule {seed}: {violation}"));
    let crashes: u64 = stories.iter().map(|story| story.crashes).sum();
    let released: u64 = stories.iter().map(|story| story.released).sum();
    let resumed: u64 = stories.iter().map(|story| story.resumed_with_reports).sum();
    assert!(crashes > SCHEDULES / 2 && released > SCHEDULES, "{crashes} crashes, {released} releases");
    assert!(resumed > 0, "no sum went on after a crash");
}

#[test]
#[ignore = "long: ten thousand schedules"]
fn nothing_is_lost_in_ten_thousand_schedules() {
    run(0..10_000, None).unwrap_or_else(|(seed, violation)| panic!("schedule {seed}: {violation}"));
}

#[test]
fn a_seed_is_the_same_story_twice() {
    for seed in [3, 17, 99] {
        let play = || Story::play(seed, Faults::of(seed), None).unwrap();
        assert_eq!(play(), play(), "schedule {seed}");
    }
}

/// What the simulation is for: a server that does one thing wrong is found out.
#[test]
fn servers_with_a_flaw_are_found_out() {
    for flaw in [Flaw::ForgetsWrites, Flaw::AnswersBeforeWriting] {
        assert!(run(0..SCHEDULES, Some(flaw)).is_err(), "{flaw:?} went unnoticed");
    }
}

#[test]
fn at_10_percent_drop_out_999_of_1000_rounds_close_and_30_percent_is_met_within_three() {
    let (mut closed, mut attempts) = (0, 0);
    for seed in 0..25 {
        let faults = Faults { vanish: 0.1, rounds: 40, devices: 400, goal: 50, ..Faults::calm() };
        let story = Story::play(seed, faults, None).unwrap();
        closed += story.released;
        attempts += story.released + story.failed;
    }
    assert!(closed >= 1_000 && attempts - closed <= 1, "{closed} of {attempts}");
    let faults = Faults { vanish: 0.3, rounds: 8, devices: 800, goal: 50, ..Faults::calm() };
    let story = Story::play(7, faults, None).unwrap();
    assert!(story.topped_up[3..].iter().all(|late| !late), "more devices were asked for in later rounds: {story:?}");
}
