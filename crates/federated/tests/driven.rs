//! A run that is driven to its end: whoever watches is told of it, and whoever stops it loses nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::fs;

use crate::workshop::{means, plan};
use keyhush_federated::{
    fleet::Stop,
    home::{MODEL_FOLDER, RunFolder},
    metrics::{METRICS_FILE, Metrics},
    run::{self, After, Course, Driven, Observer, Run, RunError, Way},
};

/// Writes down what it is told, and stops the run after a round.
struct Watches<'a> {
    stop: &'a Stop,
    stops_after: Option<u64>,
    told: Vec<String>,
}

impl Observer for Watches<'_> {
    type Error = RunError;

    fn begins(&mut self, run: &Run<'_>, way: Way<'_>) -> Result<(), RunError> {
        self.told.push(format!("{way:?} after {}", run.state().round));
        Ok(())
    }

    fn warns(&mut self, words: &str) {
        self.told.push(format!("warning: {words}"));
    }

    fn stepped(&mut self, run: &Run<'_>, metrics: Option<&Metrics>) -> Result<(), RunError> {
        let round = run.state().round;
        if self.stops_after == Some(round) {
            self.stop.ask();
        }
        self.told.push(format!("{round}{}", if metrics.is_some() { ", measured" } else { "" }));
        Ok(())
    }

    fn rests(&mut self) -> Result<(), RunError> {
        self.told.push("rests".into());
        Ok(())
    }
}

#[test]
fn who_stops_a_run_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&["evaluation.every=3"]);
    let drive = |name: &str, way, stops_after| {
        let (stop, path) = (Stop::new(), folder.path().join(name));
        let course = Course { plan: &plan, opened: &opened, folder: &path, way, after: After::Close };
        let mut watches = Watches { stop: &stop, stops_after, told: Vec::new() };
        let driven = course.drive_alone(means(), &stop, &mut watches).unwrap();
        (driven, watches.told)
    };
    let (whole, told) = drive("whole", Way::Begin, None);
    assert!(matches!(whole, Driven::Over(ending) if ending.rounds == 6));
    assert_eq!(told, ["Begin after 0", "1", "2", "3, measured", "4", "5", "6, measured", "rests"]);
    let (stopped, told) = drive("other", Way::Begin, Some(4));
    assert!(matches!(stopped, Driven::Stopped { round: 4 }));
    assert_eq!(told[told.len() - 2..], ["4", "rests"]);
    assert!(!folder.path().join("other").join(MODEL_FOLDER).exists(), "it is not over");
    let (ended, told) = drive("other", Way::Resume, None);
    assert!(matches!(ended, Driven::Over(_)));
    assert_eq!(told, ["Resume after 4", "5", "6, measured", "rests"]);
    for file in [format!("{MODEL_FOLDER}/model.safetensors").as_str(), METRICS_FILE] {
        let read = |name: &str| fs::read(folder.path().join(name).join(file)).unwrap();
        assert!(read("whole") == read("other"), "{file}");
    }
}

/// Rule P22: a run of a sweep is known as one before anything else of it is there, and its ledger stays open.
#[test]
fn p22_a_run_to_choose_from_is_not_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&[]);
    for (name, after) in [("closed", After::Close), ("open", After::Choose)] {
        let (stop, path) = (Stop::new(), folder.path().join(name));
        let course = Course { plan: &plan, opened: &opened, folder: &path, way: Way::Begin, after };
        let mut watches = Watches { stop: &stop, stops_after: None, told: Vec::new() };
        course.drive_alone(means(), &stop, &mut watches).unwrap();
        assert_eq!(run::is_undecided(&RunFolder::at(&path)).unwrap(), after == After::Choose);
    }
}
