//! What a device refuses, each thing by itself; what it reads; and bounds on tasks that a server makes up.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::participating::{Offered, step_terms, text, vocabulary};
use keyhush_device::{
    learner::told::LearnerTerms,
    protocol::{
        policy::{Policy, SecureFloor, Weak},
        task::{Bounds, Task, TaskError, Text},
        terms::TaskTerms,
    },
    upload::UploadTerms,
};
use lm::model::config::{ModelConfig, Token};
use privacy::{Participation, units::MinSeparation};

const LARGEST: UploadTerms = UploadTerms::Largest { momentum: 0.0, local_clip: None };
const WITH_MOMENTUM: UploadTerms = UploadTerms::Largest { momentum: 0.9, local_clip: None };

const fn mask(keep_rest: bool) -> UploadTerms {
    UploadTerms::Mask { coordinates: 302, seed: 1, keep_rest }
}

/// A change of the terms, a change of the policy, and what is said.
type Case = (fn(&mut TaskTerms), fn(&mut Policy), fn(&Weak) -> bool);

#[test]
fn each_promise_that_is_too_weak_is_refused() {
    fn same(_: &mut Policy) {}
    fn kept(_: &mut TaskTerms) {}
    let cases: [Case; 17] = [
        (|t| t.goal = 99, same, |w| matches!(w, Weak::Goal { got: 99, least: 100 })),
        (|t| t.privacy.noise_multiplier = None, same, |w| matches!(w, Weak::NoNoise)),
        (|t| t.privacy.simulated = true, same, |w| matches!(w, Weak::Simulated)),
        (|t| t.privacy.noise_multiplier = Some(0.09), same, |w| matches!(w, Weak::Noise { .. })),
        (|t| t.privacy.noise_multiplier = Some(f64::NAN), same, |w| matches!(w, Weak::Meaningless(_))),
        (|t| t.privacy.noise_multiplier = Some(f64::INFINITY), same, |w| matches!(w, Weak::Meaningless(_))),
        (|t| t.privacy.epsilon = Some(20.1), same, |w| matches!(w, Weak::Epsilon { .. })),
        (|t| t.privacy.epsilon = Some(f64::NAN), same, |w| matches!(w, Weak::Epsilon { .. })),
        (|t| t.privacy.epsilon = Some(-1.0), same, |w| matches!(w, Weak::Epsilon { .. })),
        (|t| t.privacy.epsilon = None, same, |w| matches!(w, Weak::Epsilon { got: None, .. })),
        (|t| t.privacy.delta = Some(1e-4), same, |w| matches!(w, Weak::Delta { .. })),
        (|t| t.privacy.delta = None, same, |w| matches!(w, Weak::Delta { got: None, .. })),
        (kept, |p| p.most_participations = Some(4), |w| matches!(w, Weak::Participations { got: 5, most: 4 })),
        (kept, |p| p.least_steps_between = 2, |w| matches!(w, Weak::Separation { got: 1, least: 2 })),
        (kept, |p| p.only_secure = true, |w| matches!(w, Weak::Plain)),
        (
            |t| t.participation = Participation::FixedSize { population: 1000, cohort: 10 },
            same,
            |w| matches!(w, Weak::Sampled),
        ),
        (
            |t| {
                let separation = MinSeparation::rounds_between(9).unwrap();
                t.participation = Participation::MinSeparation { separation, max_participations: 0 };
            },
            same,
            |w| matches!(w, Weak::Meaningless(_)),
        ),
    ];
    for (number, (of_terms, of_policy, expected)) in cases.into_iter().enumerate() {
        let (mut terms, mut policy) = (Offered::new(1).terms, Policy::default());
        policy.check_task(&terms).unwrap();
        of_terms(&mut terms);
        of_policy(&mut policy);
        let weak = policy.check_task(&terms).unwrap_err();
        assert!(expected(&weak), "{number}: {weak:?}");
        assert!(weak.to_string().len() > 20, "{weak}");
    }
    let small = Policy { largest_clip: Some(0.4), ..Policy::default() };
    assert!(matches!(small.check_step(&step_terms(3)), Err(Weak::Clip { .. })));
    Policy::default().check_step(&step_terms(3)).unwrap();
    // For made-up people everything goes.
    let mut terms = Offered::new(1).terms;
    (terms.goal, terms.privacy.noise_multiplier, terms.privacy.epsilon) = (1, None, None);
    Policy::for_made_up_people().check_task(&terms).unwrap();
}

/// A task promised sums of 200 reports, this device asked for 100 at least, and secure aggregation opened sums of 50.
#[test]
fn no_sum_is_opened_of_fewer_than_are_promised_or_asked_for() {
    let mut terms = Offered::new(1).terms;
    (terms.secure, terms.goal) = (true, 200);
    let floor = |policy: &Policy, goal| policy.secure_floor(&TaskTerms { goal, ..terms.clone() }).survivors;
    let policy = Policy::default();
    assert_eq!((policy.least_goal, policy.secure.survivors), (100, 50));
    assert_eq!((floor(&policy, 200), floor(&policy, 100), floor(&policy, 20)), (200, 100, 100));
    let strict = Policy { secure: SecureFloor { survivors: 300, ..SecureFloor::default() }, ..Policy::default() };
    assert_eq!(floor(&strict, 200), 300);
    assert_eq!(floor(&policy, u64::MAX), u32::MAX, "what cannot be kept is refused");
}

#[test]
fn a_policy_is_read_from_a_file_and_words_that_it_does_not_know_are_refused() {
    let policy: Policy = serde_json::from_str(r#"{"least_goal": 500, "secure": {"semi_malicious": true}}"#).unwrap();
    assert_eq!((policy.least_goal, policy.secure.semi_malicious, policy.secure.clients), (500, true, 100));
    assert_eq!(policy.bounds, Bounds::default());
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    assert!(serde_json::from_str::<Policy>(r#"{"least_gaol": 500}"#).is_err());
}

fn language(change: impl FnOnce(&mut ModelConfig)) -> TaskTerms {
    let mut terms = Offered::new(1).terms;
    let mut model = ModelConfig::preset("tiny").unwrap().with_vocabulary(vocabulary().len());
    change(&mut model);
    terms.learner = LearnerTerms::Language { model };
    terms
}

fn read(terms: &TaskTerms) -> Result<Task, TaskError> {
    Task::read(&serde_json::to_vec(terms).unwrap(), &Bounds::default())
}

#[test]
fn text_becomes_examples_by_the_rules_of_the_task() {
    let task = read(&language(|_| {})).unwrap();
    // Three posts of three, three and one words, each with its end.
    assert_eq!(task.examples(&text()).unwrap().len(), 4 + 4 + 2);
    assert_eq!(task.examples(&Text::default()).unwrap().len(), 0);
    let long = Text::of([(0..500).map(|n| format!("w{}", n % 90)).collect::<Vec<_>>().join(" ")]);
    assert_eq!(task.examples(&long).unwrap().len(), 100, "as many as the plan reads");
    let many = Text::of(vec!["w1 w2 w3"; 60]);
    assert_eq!(
        (task.examples(&many).unwrap().len(), task.posts_read(&many).unwrap()),
        (100, 25),
        "the rest is not read"
    );
    assert_eq!((task.posts_read(&text()).unwrap(), task.posts_read(&long).unwrap()), (3, 1));
    let tags = read(&Offered::new(3).terms).unwrap();
    let examples = tags.examples(&text()).unwrap();
    assert_eq!((examples.len(), examples.ids_of(1, 0), examples.ids_of(1, 1)), (3, &[0, 2][..], &[][..]));
    let personal = read(&language(|m| m.user_context = Some(2))).unwrap();
    assert!(matches!(personal.examples(&text()), Err(TaskError::Mismatch { .. })));
    let known = Text { features: vec![0.5, 1.0], ..text() };
    assert_eq!(personal.examples(&known).unwrap().features(), [0.5, 1.0]);
}

#[test]
fn tasks_that_ask_for_too_much_are_refused_before_there_is_room_for_them() {
    let evil: [(&str, TaskTerms); 8] = [
        ("size of a layer", language(|m| m.hidden = 1 << 16)),
        ("must be from 1 to", language(|m| m.hidden = usize::MAX)),
        ("size of the model", language(|m| (m.hidden, m.layers) = (1 << 14, 64))),
        ("vocabulary", language(|m| m.vocabulary = 1 << 24)),
        ("how text becomes tokens", language(|m| m.token = Token::Character)),
        ("unroll", {
            let mut t = language(|_| {});
            t.local.unroll = 1 << 30;
            t
        }),
        ("size of a batch", {
            let mut t = language(|_| {});
            t.local.batch = 1 << 20;
            t
        }),
        ("memory for training", {
            let mut t = language(|m| m.hidden = 1 << 11);
            (t.local.batch, t.local.unroll) = (1024, 256);
            t
        }),
    ];
    for (words, terms) in evil {
        let said = read(&terms).unwrap_err().to_string();
        assert!(said.contains(words), "{words}: {said}");
    }
    let labels = vec![String::new(); 1 << 20];
    let mut tags = Offered::new(1).terms;
    tags.learner = LearnerTerms::Tags { labels };
    assert!(read(&tags).unwrap_err().to_string().contains("size of the model"));
    let long = Task::read(&vec![b' '; (16 << 20) + 1], &Bounds::default());
    assert!(long.unwrap_err().to_string().contains("size of the task"));
}

/// A mask of nearly all of a large model took a gigabyte that was counted nowhere.
#[test]
fn parts_of_updates_and_what_is_kept_of_them_have_bounds() {
    let mut terms = Offered::new(3).terms;
    let read = |terms: &TaskTerms, bounds| Task::read(&serde_json::to_vec(terms).unwrap(), &bounds);
    let trainer = read(&terms, Bounds::default()).unwrap().learner().memory().trainer;
    // Of 303 parameters: what is kept, and what the part takes beside training.
    for (upload, unsent_bytes, part) in [
        (LARGEST, 4 * 303, 8 * 303 + 3 * 4 * 303),
        (WITH_MOMENTUM, 8 * 303, 8 * 303 + 3 * 8 * 303),
        (mask(true), 4 * 303, 8 * 302 + 303 / 4 + 3 * 4 * 303),
        (mask(false), 0, 8 * 302 + 303 / 4),
    ] {
        terms.upload = Some(upload);
        let bounds = Bounds { unsent_bytes, training_bytes: trainer + part, ..Bounds::default() };
        read(&terms, bounds).unwrap();
        let said = read(&terms, Bounds { training_bytes: trainer + part - 1, ..bounds }).unwrap_err().to_string();
        assert!(said.contains("memory for training"), "{upload:?}: {said}");
        if unsent_bytes > 0 {
            let said = read(&terms, Bounds { unsent_bytes: unsent_bytes - 1, ..bounds }).unwrap_err().to_string();
            assert!(said.contains("size of what is kept of updates"), "{upload:?}: {said}");
        }
    }
}
