//! Canary users of a run: what they show, that they change nothing of its guarantee, and where they are refused.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use device::learner::examples::Examples;
use keyhush_federated::{
    canaries::{Canaries, Shown},
    config::{Config, ConfigError, Document},
    engine::{self, Means},
    fleet::{self, Stop},
    home::{AUDIT_FILE, Home, Paper, Records, RunFolder},
    plan::Plan,
    run::{Kept, Opened, Run, RunError},
};
use lm::kernels::KernelPath;
use privacy::audit::Verdict;

use super::small_runs::{RUN, TASK};

/// Everybody takes part often, people learn little, and the server adds up what was released.
const CANARIES: &str = "audit.canaries=200";
const CHANGES: [&str; 6] = [
    "participation.population=400",
    "participation.cohort=200",
    "local.learning_rate=0.001",
    "server.optimizer=sgd",
    "server.momentum=",
    "rounds=6",
];

fn config(set: &[&str]) -> Result<Config, ConfigError> {
    let set: Vec<String> = CHANGES.iter().chain(set).map(|s| (*s).to_owned()).collect();
    Document::new(RUN, &set)?.config()
}

fn planned(set: &[&str]) -> Result<(Plan, Opened), RunError> {
    of(config(&[&[CANARIES], set].concat())?)
}

fn without_canaries() -> (Plan, Opened) {
    of(config(&[]).unwrap()).unwrap()
}

fn of(config: Config) -> Result<(Plan, Opened), RunError> {
    let opened = Opened::new(&config)?;
    Ok((Plan::new(config, &opened.setting())?, opened))
}

/// A run to its end, killed after some rounds where that is said.
fn ran(folder: &Path, set: &[&str], killed_after: Option<usize>) -> Shown {
    let means = Means::threads(KernelPath::best(), 2);
    for (number, steps) in killed_after.into_iter().chain([usize::MAX]).enumerate() {
        let (plan, opened) = planned(set).unwrap();
        let population = opened.population(plan.ledger.unit).unwrap();
        let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
        let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
        let begin = if number == 0 { Run::begin } else { Run::resume };
        let mut run = begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
        for _ in 0..steps {
            if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
                return run.finish().unwrap().audit.unwrap();
            }
        }
    }
    unreachable!("the last life goes on to the end")
}

const NO_NOISE: [&str; 2] = ["privacy.mechanism=none", "privacy.noise_multiplier="];

#[test]
fn without_noise_canaries_show_that_there_is_no_privacy() {
    let folder = tempfile::tempdir().unwrap();
    let shown = ran(folder.path(), &NO_NOISE, None);
    assert_eq!((shown.canaries, shown.verdict), (200, Verdict::NoGuarantee));
    assert!(!shown.epsilon_formal.is_finite());
    assert!(shown.epsilon_lower > 0.5 && shown.epsilon_lower_any > 0.5 && shown.noise_below.is_none(), "{shown:?}");
    let both = &shown.guesses[0];
    assert!(both.correct * 10 >= both.made * 9, "{both:?}");
}

#[test]
fn with_noise_the_bound_is_under_the_formal_epsilon_and_a_kill_changes_nothing() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shown = ran(whole.path(), &[], None);
    assert_eq!(shown.verdict, Verdict::Consistent);
    assert!(shown.epsilon_lower <= shown.epsilon_formal.get() && shown.epsilon_formal.is_finite(), "{shown:?}");
    // Not an empty bound, and more than what is shown of any mechanism.
    assert!(shown.epsilon_lower > 0.1 && shown.epsilon_lower_any < shown.epsilon_lower, "{shown:?}");
    assert!(shown.noise_below.is_some_and(|scale| scale > 1.0), "{shown:?}");
    for at in &shown.at_deltas {
        assert!(at.delta > 1e-4 || at.epsilon_lower > 0.0, "{at:?}");
        assert!(at.epsilon_lower <= at.epsilon_formal.get(), "{at:?}");
    }
    assert_eq!(shown, ran(killed.path(), &[], Some(3)));
    let [one, other] = [&whole, &killed].map(|f| fs::read_to_string(f.path().join(AUDIT_FILE)).unwrap());
    assert_eq!(one, other);
    assert_eq!(Kept::read(&RunFolder::at(whole.path())).unwrap().audit, Some(shown));
}

/// A guarantee that is false is found out: a run without noise, judged by the ledger of one with noise.
#[test]
fn a_ledger_that_promises_too_much_is_refuted() {
    let (open, noised) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let set = ["privacy.noise_multiplier=8.0"];
    ran(open.path(), &NO_NOISE, None);
    let formal = ran(noised.path(), &set, None).epsilon_formal;
    let (plan, opened) = planned(&set).unwrap();
    let model = |folder: &Path| match keyhush_federated::model_folder::read(&folder.join("model")).unwrap().weights {
        lm::folder::Weights::Recurrent { values, .. } => values,
        other => panic!("{other:?}"),
    };
    let canaries = Canaries::of(&plan).unwrap();
    let judged = |folder: &Path| {
        let ledger = ledger::Ledger::open(RunFolder::at(noised.path()).read_store().unwrap(), None, &[]).unwrap();
        let scored = canaries.scores(opened.first_parameters(), &model(folder));
        Shown::of(&canaries, &scored, formal, &ledger).unwrap()
    };
    let (noised, open) = (judged(noised.path()), judged(open.path()));
    assert_eq!((noised.verdict, open.verdict), (Verdict::Consistent, Verdict::Violated));
    assert!(noised.epsilon_lower <= formal.get() && open.epsilon_lower > formal.get(), "{noised:?} {open:?}");
    assert!(open.noise_below.is_some_and(|scale| scale < 1.0), "{open:?}");
}

/// Where the accountant knows no more than an upper bound, the bound of the audit is of that number, and says so.
#[test]
fn a_bound_on_an_upper_bound_is_not_called_a_bound_on_epsilon() {
    let upper = "Of this kind of run the accountant knows no more than an upper bound";
    let words = |set: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let shown = ran(folder.path(), set, None);
        assert!(shown.epsilon_lower > 0.0, "{shown:?}");
        (shown.epsilon_lower_is_attained, shown.words())
    };
    let (is_attained, said) = words(&[]);
    assert!(is_attained && !said.contains(upper) && said.contains("confidence, epsilon at delta"), "{said}");
    for loose in ["participation.kind=fixed-size", "privacy.accountant=rdp"] {
        let (is_attained, said) = words(&[loose]);
        assert!(!is_attained && said.contains(upper), "{loose}: {said}");
        assert!(said.contains("the accountant's upper bound on epsilon at delta"), "{loose}: {said}");
        assert!(said.contains("and epsilon is at least 0."), "the other bound needs no accountant: {said}");
    }
}

/// 200 canaries can show something of any mechanism at delta 1e-5, and nothing at 1e-4; then the audit says what would do.
#[test]
fn where_nothing_can_be_shown_the_audit_says_so() {
    let at = |delta: &str| {
        let folder = tempfile::tempdir().unwrap();
        ran(folder.path(), &[&NO_NOISE[..], &[delta]].concat(), None)
    };
    let (small, large) = (at("privacy.delta=1e-6"), at("privacy.delta=1e-3"));
    assert!(small.epsilon_lower_any > 0.5 && small.any_would_need.is_none(), "{small:?}");
    assert!(!small.words().contains("whatever the run did"), "{}", small.words());
    assert_eq!(large.epsilon_lower_any, 0.0);
    let would = large.any_would_need.unwrap();
    assert!(would.delta.is_some_and(|delta| delta < 1e-5) && would.canaries.is_none(), "{would:?}");
    let said = large.words();
    assert!(
        said.contains("0 whatever the run did: a delta of 1e-3") && said.contains("at a delta of at most"),
        "{said}"
    );
}

/// Canaries send what everybody sends: the coordinates of a mask, or the largest; what they owe comes later.
#[test]
fn canaries_send_what_everybody_sends() {
    let mask = ["upload.kind=mask", "upload.share=0.2"];
    let kept = [&mask[..], &["upload.keep_rest=true"]].concat();
    let sparse = ["upload.kind=sparse", "upload.share=0.2"];
    for upload in [&mask[..], &kept, &sparse] {
        let folder = tempfile::tempdir().unwrap();
        let shown = ran(folder.path(), &[&NO_NOISE[..], upload].concat(), None);
        let both = &shown.guesses[0];
        assert!(both.correct * 10 >= both.made * 8, "{upload:?}: {both:?}");
    }
    // What is kept survives a kill, as that of everybody does; with noise too.
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shown = ran(whole.path(), &sparse, None);
    assert_eq!(shown.verdict, Verdict::Consistent);
    assert_eq!(shown, ran(killed.path(), &sparse, Some(3)));
}

/// The plan of the ledger is the same but for what it says of the data: canaries are users as others.
#[test]
fn p11_canaries_are_declared_users_and_change_nothing_of_the_guarantee() {
    let with = planned(&[]).unwrap().0.ledger;
    let without = without_canaries().0.ledger;
    assert_ne!(with.data, without.data, "the ledger says that there are canaries");
    let data = without.data.clone();
    assert_eq!(ledger::Plan { data, ..with }, without);
}

/// What a run with secret noise writes of its canaries follows from the released model and from settings: nothing else is there.
#[test]
fn p12_the_audit_of_a_run_with_secret_noise_follows_from_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let shown = ran(folder.path(), &["noise_seed="], None);
    let (plan, opened) = planned(&["noise_seed="]).unwrap();
    let model = match keyhush_federated::model_folder::read(&folder.path().join("model")).unwrap().weights {
        lm::folder::Weights::Recurrent { values, .. } => values,
        other => panic!("{other:?}"),
    };
    let home = RunFolder::at(folder.path());
    let ledger = ledger::Ledger::open(home.read_store().unwrap(), None, &[]).unwrap();
    let canaries = Canaries::of(&plan).unwrap();
    let scored = canaries.scores(opened.first_parameters(), &model);
    let again = Shown::of(&canaries, &scored, shown.epsilon_formal, &ledger).unwrap();
    assert_eq!(again, shown);
    let text = home.paper(Paper::Audit).unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Shown>(&text).unwrap(), shown);
    assert!(!text.contains("score"), "scores of single canaries are not written");
}

/// Canaries have no text; everybody else is who they were.
#[test]
fn canaries_are_the_last_of_the_declared_users() {
    let (plan, opened) = planned(&[]).unwrap();
    let (_, plain) = without_canaries();
    let (with, without) = (opened.population(plan.ledger.unit).unwrap(), plain.population(plan.ledger.unit).unwrap());
    assert_eq!((with.users(), without.users()), (400, 400));
    let canaries = Canaries::of(&plan).unwrap();
    assert_eq!(canaries.numbers(), 200..400);
    let [mut one, mut other] = [(); 2].map(|()| Examples::new(opened.learner().schema()));
    for user in [0, 1, 199] {
        with.read(user, &mut one).unwrap();
        without.read(user, &mut other).unwrap();
        assert_eq!(one, other);
    }
    with.read(200, &mut one).unwrap();
    assert_eq!(one.len(), 0);
    let present = canaries.numbers().filter(|number| canaries.is_present(*number)).count();
    assert!((70..130).contains(&present), "{present}");
}

#[test]
fn what_cannot_be_audited_is_refused_before_it_begins() {
    let wrong = |set: &[&str]| planned(set).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(wrong(&["audit.canaries=19"]).contains("audit.canaries"));
    assert!(wrong(&["audit.canaries=201"]).contains("half of participation.population"));
    assert!(wrong(&["audit.confidence=1.0"]).contains("audit.confidence"));
    assert!(wrong(&["unit=example", "data.users=10"]).contains("audit"));
    assert!(wrong(&["aggregation=secagg"]).contains("audit"));
    // On a server there are no canaries: nobody is made up there.
    let set = ["audit.canaries=100".to_owned()];
    let refused = Document::new(TASK, &set).unwrap().config().unwrap_err().to_string();
    assert!(refused.contains("audit") && refused.contains("simulation"), "{refused}");
}
