//! Tests: every refusal of a plan, and the rules of PRIVACY.md it enforces, by number.

use device::learner::{Learner, language::LanguageLearner};
use ledger::{Budget, DataSource, PublicData, Start};
use lm::model::config::ModelConfig;
use privacy::{AccountantKind, Adjacency, Delta, NoiseMultiplier, PrivacyEvent, SamplingRate, event::Noise};
use sha2::{Digest, Sha256};

use super::{Plan, Setting};
use crate::config::{ConfigError, Document, tests::TEXT};

/// Settings of a tree on arrivals, as `--set` says them.
pub(super) const TREE: [&str; 4] = [
    "privacy.mechanism=tree",
    "participation.kind=arrival",
    "participation.min_separation=20",
    "participation.max_participations=3",
];

fn setting() -> Setting {
    setting_of(&ModelConfig::preset("tiny").unwrap().with_vocabulary(100))
}

fn setting_of(model: &ModelConfig) -> Setting {
    let parameters = LanguageLearner::new(model, 4, 5).unwrap().layout().clone();
    let data = DataSource::MadeUp { what: "nobody".into() };
    let general = Some(device::finetune::GeneralText::new([vec![5, 6, 7]]));
    let (start, public_data, counted) = (Start::Random, Vec::new(), Some(6));
    Setting { parameters, data, start, non_private: None, after: Vec::new(), public_data, counted, general }
}

fn plan_of(set: &[&str]) -> Result<Plan, ConfigError> {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let document = Document::new(TEXT, &set)?;
    Plan::new(document.config()?, &setting())
}

/// A plan for a model of the papers, without its parameters.
pub(super) fn plan_for(preset: &str, set: &[&str]) -> Plan {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(TEXT, &set).unwrap().config().unwrap();
    Plan::new(config, &setting_of(&ModelConfig::preset(preset).unwrap())).unwrap()
}

pub(super) fn plan(set: &[&str]) -> Plan {
    plan_of(set).unwrap_or_else(|e| panic!("{set:?}: {e}"))
}

pub(super) fn refused(set: &[&str]) -> (String, String) {
    let error = plan_of(set).map(|_| ()).expect_err(&format!("{set:?} was not refused"));
    (error.key, error.problem)
}

/// The multiplier that the accountant sees for a release.
fn multiplier(event: &PrivacyEvent) -> f64 {
    let flat = event.flatten().unwrap();
    let (PrivacyEvent::SampledGaussian { noise, .. } | PrivacyEvent::CorrelatedGaussian { noise, .. }) =
        flat.leaves[0].0
    else {
        panic!("{event:?}")
    };
    match noise {
        Noise::Gaussian(z) => z.get(),
        other => other.multiplier().get(),
    }
}

#[test]
fn p1_the_multiplier_is_relative_to_the_sensitivity_under_the_plans_adjacency() {
    for (kind, adjacency) in [("poisson", Adjacency::AddOrRemove), ("fixed-size", Adjacency::ReplaceOne)] {
        let plan = plan(&[&format!("participation.kind={kind}")]);
        assert_eq!(plan.adjacency(), adjacency);
        let z = multiplier(&plan.event(1).unwrap());
        assert!((1.0..1.000_01).contains(&z), "{kind}: {z}");
    }
    // The same z is twice the noise where a user is replaced: the sum can move by 2C.
    let sigma = |kind: &str| {
        let plan = plan(&[&format!("participation.kind={kind}")]);
        plan.phase(0).released_layout().unwrap().segments()[0].sigma as f64
    };
    assert!((sigma("fixed-size") / sigma("poisson") - 2.0).abs() < 1e-5);
    assert_eq!(plan(&TREE).adjacency(), Adjacency::ZeroOut);
}

#[test]
fn the_accountant_judges_what_the_sampler_draws() {
    let plan = plan(&[]);
    let rate = SamplingRate::new(200.0 / 100_000.0).unwrap();
    let by_hand = PrivacyEvent::poisson(rate, NoiseMultiplier::new(1.0).unwrap()).times(60);
    let want = AccountantKind::Best.judge(&by_hand, Delta::new(1e-6).unwrap()).unwrap().epsilon.get();
    let got = plan.epsilon(60).unwrap().get();
    assert!((got / want - 1.0).abs() < 1e-3, "{got} instead of {want}");
    assert!(plan.epsilon(30).unwrap() < plan.epsilon(60).unwrap());
}

/// Who counts participations cannot continue with other users.
#[test]
fn p6_limits_on_participation_are_known_as_such() {
    let counts = |set: &[&str]| plan(set).phases()[0].counts_participations();
    let arrival = ["participation.min_separation=4", "participation.max_participations=100"];
    assert!(!counts(&["participation.kind=poisson"]) && !counts(&["participation.kind=fixed-size"]));
    assert!(counts(&["participation.kind=once", "rounds=2"]));
    assert!(counts(&[&["participation.kind=arrival"][..], &arrival].concat()));
}

#[test]
fn p6_p7_what_a_tree_needs() {
    assert_eq!(refused(&["privacy.mechanism=tree"]).0, "privacy.mechanism");
    let with = |more: &[&'static str]| [&TREE[..], more].concat();
    plan(&with(&[]));
    assert_eq!(refused(&with(&["participation.min_separation="])).0, "participation.min_separation");
    assert_eq!(refused(&with(&["participation.max_participations="])).0, "participation.max_participations");
    // 200 users per round with 600 rounds between need 120,200.
    assert_eq!(refused(&with(&["rounds=2000", "participation.min_separation=600"])).0, "participation.min_separation");
    let (key, why) = refused(&with(&["rounds=1501"]));
    assert!(key == "participation.max_participations" && why.contains("1501 rounds"), "{key}: {why}");
    plan(&with(&["rounds=1500"]));
    // Within a segment nothing changes.
    let change = r#"schedule=[{ from = 20, clip_norm = 0.4 }]"#;
    assert_eq!(refused(&with(&[change])).0, "schedule.0.clip_norm");
    plan(&with(&[change, "privacy.restarts=[20]"]));
    assert_eq!(refused(&with(&["schedule=[{ from = 20, noise_multiplier = 2.0 }]"])).0, "schedule.0.noise_multiplier");
    assert_eq!(refused(&with(&["schedule=[{ from = 20, cohort = 100 }]"])).0, "schedule.0.cohort");
    assert_eq!(refused(&with(&["privacy.restarts=[20, 20]"])).0, "privacy.restarts");
    assert_eq!(refused(&["privacy.restarts=[20]"]).0, "privacy.restarts");
    for mechanism in ["banded", "blt"] {
        let set = with(&["privacy.bands=8"]);
        let mut set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        set.push(format!("privacy.mechanism={mechanism}"));
        if mechanism == "blt" {
            set.push("privacy.bands=".into());
        }
        plan(&set.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn p9_the_clip_bit_is_paid_for_out_of_the_same_noise() {
    let adaptive = ["clip.kind=adaptive", "clip.quantile=0.5", "clip.norm=0.1"];
    let plan_with_bit = plan(&adaptive);
    let layout = plan_with_bit.phase(0).released_layout().unwrap();
    assert_eq!(layout.segments().len(), 2, "{layout:?}");
    // The whole release has the multiplier that was asked for, and the update a little more noise (Theorem 1).
    let without = plan(&[]).phase(0).released_layout().unwrap().segments()[0].sigma;
    assert!(layout.segments()[0].sigma > without);
    let z = multiplier(&plan_with_bit.event(1).unwrap());
    assert!((1.0..1.000_1).contains(&z), "{z}");
    // sigma_b is a twentieth of the cohort: noise of 2 h sigma_b.
    assert!((layout.segments()[1].sigma as f64 / (2.0 * 32768.0 * 10.0) - 1.0).abs() < 1e-3);
    assert_eq!(refused(&["clip.kind=adaptive", "clip.norm=0.1"]).0, "clip.quantile");
    assert_eq!(refused(&["clip.quantile=0.5"]).0, "clip.quantile");
    assert_eq!(refused(&["clip.kind=adaptive", "clip.quantile=1.5"]).0, "clip.quantile");
    // A bit that takes more than all of the release may spend.
    assert_eq!(refused(&[&adaptive[..], &["clip.count_stddev=0.4"]].concat()).0, "privacy");
}

#[test]
fn p10_estimators_and_where_they_are_refused() {
    let plan_fixed = plan(&["estimator.full_weight_tokens=400", "estimator.total_weight=60000"]);
    assert_eq!(plan_fixed.stage(0).denominator, Some(60_000.0 * 0.002));
    assert_eq!(plan(&[]).stage(0).denominator, Some(200.0));
    assert_eq!(refused(&["estimator.full_weight_tokens=400"]).0, "estimator.total_weight");
    let clipped = plan(&["estimator.kind=clipped", "estimator.least_total_weight=50000"]);
    assert_eq!(clipped.stage(0).denominator, Some(1.0));
    let layout = clipped.phase(0).released_layout().unwrap();
    assert_eq!(layout.segments().len(), 1, "the weight is never released: {layout:?}");
    let z = multiplier(&clipped.event(1).unwrap());
    assert!((1.0..1.000_1).contains(&z), "{z}");
    let with = |more: &[&'static str]| [&TREE[..], more].concat();
    assert_eq!(refused(&with(&["estimator.kind=clipped"])).0, "estimator.kind");
    assert_eq!(refused(&["estimator.kind=average"]).0, "estimator.kind");
    let no_noise = ["privacy.mechanism=none", "privacy.noise_multiplier="];
    let average = plan(&[&no_noise[..], &["estimator.kind=average"]].concat());
    assert_eq!(average.stage(0).denominator, None);
    assert!(!average.epsilon(1).unwrap().is_finite());
}

#[test]
fn p11_what_is_declared_is_not_measured_and_the_goal_is_the_denominator() {
    assert_eq!(plan(&TREE).stage(0).denominator, Some(200.0));
    assert_eq!(refused(&[&TREE[..], &["estimator.total_weight=100"]].concat()).0, "estimator.total_weight");
    assert_eq!(refused(&["participation.population=0"]).0, "participation.population");
    assert_eq!(refused(&["participation.cohort=100001"]).0, "participation.cohort");
    assert_eq!(refused(&["privacy.delta=1e-4"]).0, "privacy.delta");
    // A vocabulary that was counted from the users' text is an event of its own, and costs infinity.
    let mut counted = setting();
    counted.non_private = Some("the vocabulary was counted without noise".into());
    let plan = Plan::new(Document::new(TEXT, &[]).unwrap().config().unwrap(), &counted).unwrap();
    assert!(!plan.epsilon(1).unwrap().is_finite());
    assert_eq!(plan.ledger.phases.len(), 2);
}

#[test]
fn privacy_keys_have_no_defaults() {
    for key in ["privacy.noise_multiplier", "privacy.delta", "clip.norm"] {
        let (refused_key, why) = refused(&[&format!("{key}=")]);
        assert_eq!(refused_key, key);
        assert!(why.contains("is missing"), "{why}");
    }
    for key in ["privacy.mechanism", "clip.kind", "participation.kind", "participation.population"] {
        let error = plan_of(&[&format!("{key}=")]).map(|_| ()).unwrap_err();
        assert!(error.key == key && error.problem.contains("is missing"), "{error}");
    }
    for (key, bad) in [
        ("privacy.noise_multiplier", "0"),
        ("privacy.noise_multiplier", "nan"),
        ("privacy.delta", "0"),
        ("clip.norm", "-1"),
        ("clip.norm", "inf"),
        ("local.learning_rate", "0"),
        ("local.batch", "0"),
        ("server.learning_rate", "nan"),
        ("rounds", "0"),
        ("evaluation.every", "0"),
    ] {
        assert_eq!(refused(&[&format!("{key}={bad}")]).0, key);
    }
}

#[test]
fn p14_a_budget_is_fixed_in_advance_or_a_filter() {
    let fixed = plan(&["privacy.max_epsilon=2"]);
    assert!(matches!(fixed.ledger.budget, Some(Budget::Fixed { .. })));
    let (key, why) = refused(&["evaluation.stop_at_accuracy=0.2"]);
    assert!(key == "evaluation.stop_at_accuracy" && why.contains("filter"), "{key}: {why}");
    // Sampling has no rho, so there is no filter for it.
    assert_eq!(refused(&["evaluation.stop_at_accuracy=0.2", "privacy.max_epsilon=2"]).0, "privacy.max_epsilon");
    let filter = [&TREE[..], &["evaluation.stop_at_accuracy=0.2", "privacy.max_epsilon=9"]].concat();
    assert!(matches!(plan(&filter).ledger.budget, Some(Budget::ZcdpFilter { .. })));
    assert_eq!(
        refused(&["privacy.mechanism=none", "privacy.noise_multiplier=", "privacy.max_epsilon=2"]).0,
        "privacy.max_epsilon"
    );
}

#[test]
fn p15_a_start_is_in_the_ledger() {
    let mut public = setting();
    public.start = Start::Public(PublicData { what: "a model".into(), why: "Wikipedia".into() });
    let config = Document::new(TEXT, &[]).unwrap().config().unwrap();
    assert_eq!(Plan::new(config.clone(), &public).unwrap().ledger.start, public.start);
    public.start = Start::Public(PublicData { what: "a model".into(), why: " ".into() });
    assert_eq!(Plan::new(config, &public).map(|_| ()).unwrap_err().key, "model.from");
}

#[test]
fn p16_a_small_cohort_has_its_own_epsilon_and_projects_the_other() {
    let plan = plan(&["stands_for={ population = 10_000_000, cohort = 5000 }"]);
    // The noise of the average is that of the large cohort.
    let phase = plan.phase(0);
    assert!((phase.noise.unwrap().get() - 200.0 / 5000.0).abs() < 1e-12);
    let rate = SamplingRate::new(5000.0 / 10_000_000.0).unwrap();
    let large = PrivacyEvent::poisson(rate, NoiseMultiplier::new(1.0).unwrap()).times(60);
    let want = AccountantKind::Best.judge(&large, Delta::new(1e-6).unwrap()).unwrap().epsilon;
    assert_eq!(plan.projected_epsilon(60).unwrap(), Some(want));
    assert!(plan.epsilon(60).unwrap().get() > 100.0, "the run as it was is not private, and says so");
    assert!(plan.warnings.iter().any(|w| w.contains("means nothing")), "{:?}", plan.warnings);
    assert_eq!(refused(&["stands_for={ population = 10_000_000, cohort = 100 }"]).0, "stands_for.cohort");
    let tree = [&TREE[..], &["stands_for={ population = 10_000_000, cohort = 5000 }"]].concat();
    assert_eq!(refused(&tree).0, "stands_for");
}

#[test]
fn schedules_split_a_run_and_accounting_follows() {
    // At a fixed z a clip and its noise change together, and the event stays (Figure 4).
    let clips = plan(&["schedule=[{ from = 20, clip_norm = 0.4 }]"]);
    assert_eq!((clips.phases().len(), clips.stages().len()), (1, 2));
    assert_eq!(clips.epsilon(60).unwrap(), plan(&[]).epsilon(60).unwrap());
    assert_eq!((clips.stage(19).clip.get(), clips.stage(20).clip.get()), (0.8, 0.4));
    // Another cohort or another z is another phase.
    let cohorts = plan(&["schedule=[{ from = 20, cohort = 1000 }, { from = 50, noise_multiplier = 2.0 }]"]);
    assert_eq!(cohorts.phases().iter().map(|p| (p.first, p.rounds)).collect::<Vec<_>>(), [(0, 20), (20, 30), (50, 10)]);
    assert_eq!(cohorts.planned_participations(60), 20 * 200 + 40 * 1000);
    assert_eq!(cohorts.planned_participations(21), 20 * 200 + 1000);
    assert!(cohorts.epsilon(60).unwrap() > plan(&[]).epsilon(60).unwrap());
    assert_eq!(cohorts.stage(59).denominator, Some(1000.0));
    assert_eq!(refused(&["schedule=[{ from = 60 }]"]).0, "schedule.0.from");
    assert_eq!(refused(&["schedule=[{ from = 20 }, { from = 10 }]"]).0, "schedule.1.from");
}

#[test]
fn a_learning_rate_that_changes_without_the_clip_is_a_warning() {
    let warned = |set: &[&str]| plan(set).warnings.iter().any(|w| w.contains("clip"));
    assert!(warned(&["schedule=[{ from = 20, local_learning_rate = 0.1 }]"]));
    assert!(!warned(&["schedule=[{ from = 20, local_learning_rate = 0.1, clip_norm = 0.2 }]"]));
    assert!(!warned(&[]));
}

#[test]
fn what_has_no_meaning_is_refused() {
    for (set, key) in [
        ("local.epochs=0", "local.epochs"),
        ("server.momentum=0.9", "server.momentum"),
        ("server.optimizer=momentum", "server.momentum"),
        ("server.tau=0.1", "server.tau"),
        ("participation.min_separation=3", "participation.min_separation"),
        ("participation.allow_absent=true", "participation.allow_absent"),
        ("clip.norm=1e300", "clip.norm"),
        ("clip.norm=1e-300", "clip.norm"),
        ("data.path=x.store", "data.path"),
        ("data.kind=store", "data.path"),
        ("unit=device", "unit"),
        ("unit=example", "data.users"),
        ("floating_point_noise=true", "floating_point_noise"),
        ("privacy.bands=3", "privacy.bands"),
        ("privacy.group=0", "privacy.group"),
        ("privacy.grid_bits=40", "privacy"),
        ("estimator.least_total_weight=3", "estimator.least_total_weight"),
    ] {
        assert_eq!(refused(&[set]).0, key, "{set}");
    }
    let no_noise = ["privacy.mechanism=none"];
    assert_eq!(refused(&no_noise).0, "privacy.noise_multiplier");
    for algorithm in ["local.algorithm=fedsgd-batch", "local.algorithm=fedsgd-all"] {
        assert_eq!(refused(&[algorithm, "local.epochs=", "clip.greedy=true"]).0, "clip.greedy");
    }
}

/// Corrupted devices do not spread evenly over groups: each is planned for as many as a group can have by chance.
#[test]
fn p19_a_group_is_planned_for_more_than_its_share_of_the_corrupted() {
    let secure = |more: &[&'static str]| {
        let set =
            [&["aggregation=secagg", "participation.kind=fixed-size", "participation.cohort=1000"], more].concat();
        plan(&set).phases()[0].secure.clone().unwrap()
    };
    let whole = secure(&["secagg.corrupted=0.2"]);
    assert_eq!(whole.assumptions.most_corrupted(1000), 200);
    let group = secure(&["secagg.corrupted=0.2", "secagg.groups=10"]);
    // 20 on average of a hundred, with a standard deviation of 3.8; more than 51 less than once in 2^44 draws, and 50 is not enough.
    let most = group.assumptions.most_corrupted(100);
    assert_eq!(most, 51);
    let words = group.words(false);
    assert!(words.contains("20.0 % of devices corrupted"), "{words}");
    assert!(words.contains(&format!("planned for up to {most} corrupted each")), "{words}");
    let groups = |more: &[&'static str]| {
        let set = ["aggregation=secagg", "participation.kind=fixed-size", "participation.cohort=40", "secagg.groups=4"];
        refused(&[&set, more].concat())
    };
    let (key, why) = groups(&["secagg.corrupted=0.3"]);
    assert!(key == "secagg.groups" && why.contains("use fewer groups or a larger cohort"), "{key}: {why}");
    // And it opens no sum of fewer than a group has to have.
    assert_eq!(groups(&["secagg.corrupted=0.0", "secagg.least_survivors=2"]).0, "secagg.least_survivors");
}

#[test]
fn p19_what_secure_aggregation_needs() {
    let secagg = |more: &[&'static str]| [&["aggregation=secagg"], more].concat();
    let secure = plan(&secagg(&[])).phases()[0].secure.clone().unwrap();
    // 200 by chance, six standard deviations either way; a tenth of the fewest may vanish.
    assert_eq!((secure.most_clients, secure.least_survivors), (291, 99));
    let exact = plan(&secagg(&["participation.kind=fixed-size"])).phases()[0].secure.clone().unwrap();
    assert_eq!((exact.most_clients, exact.least_survivors), (200, 180));

    assert_eq!(refused(&["secagg.dropout=0.05"]).0, "secagg");
    assert_eq!(refused(&secagg(&["secagg.dropout=0.8"])).0, "secagg");
    assert_eq!(refused(&secagg(&["secagg.least_survivors=150"])).0, "secagg.least_survivors");
    assert_eq!(refused(&secagg(&["participation.cohort=30"])).0, "participation.cohort");
    let (key, why) = refused(&secagg(&["participation.vanish=0.09"]));
    assert!(key == "participation.vanish" && why.contains("secagg.dropout"), "{key}: {why}");
    plan(&secagg(&["participation.vanish=0.01", "secagg.dropout=0.2"]));
    assert_eq!(refused(&["participation.vanish=1.0"]).0, "participation.vanish");
    // A sum that does not fit 32 bits; rotated it does.
    let (key, why) = refused(&secagg(&["privacy.grid_bits=24"]));
    assert!(key == "aggregation" && why.contains("rotation"), "{key}: {why}");
    plan(&secagg(&["privacy.grid_bits=24", "privacy.rotation=true"]));
    let clipped = refused(&secagg(&["estimator.kind=clipped", "estimator.least_total_weight=50000.0"]));
    assert!(clipped.0 == "estimator.kind" && clipped.1.contains("nobody can check"), "{clipped:?}");
}

#[test]
fn p3_noise_that_devices_add_needs_independent_rounds_without_sampling() {
    let with = |set: &[&'static str]| [&["aggregation=secagg", "secagg.noise=distributed"], set].concat();
    let arrival =
        ["participation.kind=arrival", "participation.min_separation=20", "participation.max_participations=3"];
    let plan = plan(&with(&arrival));
    let noise = plan.phases()[0].secure.as_ref().unwrap().noise.as_ref().unwrap();
    // A tenth of 200 may vanish, a third may be corrupted.
    assert_eq!((noise.survivors().least, noise.survivors().corrupted), (180, 66));
    assert!(plan.epsilon(60).unwrap().get().is_finite());
    for (set, says) in [
        (with(&[]), "sampling does not help"),
        (with(&TREE), "the devices that added it are gone"),
        (with(&["privacy.mechanism=none", "privacy.noise_multiplier="]), "only valid with noise"),
    ] {
        let (key, why) = refused(&set);
        assert!(key == "secagg.noise" && why.contains(says), "{key}: {why}");
    }
    // Nobody's noise is left where as many may be corrupted as survive.
    let (key, _) = refused(&[&with(&arrival)[..], &["secagg.least_survivors=60"]].concat());
    assert_eq!(key, "secagg.noise");
}

/// A phrase was worded better, and no run with a sparse upload that was begun before could be resumed: the plan of its ledger was another.
#[test]
fn what_a_plan_says_stays_as_it_is_so_that_runs_of_earlier_versions_can_be_resumed() {
    let devices = [&TREE[..], &["unit=device", "data.kind=devices"]].concat();
    let sparse = ["noise_seed=1", "upload.kind=sparse", "upload.share=0.01"];
    let mask = ["noise_seed=1", "upload.kind=mask", "upload.share=0.1", "upload.keep_rest=true"];
    let mut others = Vec::new();
    for (set, expected) in [
        (&[][..], "5e2814e2bf0c1fb3"),
        (&sparse, "ca444d4a631eb04b"),
        (&mask, "59d2fccd748fa7ef"),
        (&["aggregation=secagg", "clip.kind=adaptive", "clip.quantile=0.5"], "ccdb77f77a1abed9"),
        (&["privacy.mechanism=none", "privacy.noise_multiplier=", "privacy.delta="], "75d3b72007ee666d"),
        (&TREE, "91ef387eb76e59fd"),
        (&devices, "19990657d0f002fb"),
        (&[&devices[..], &sparse[1..]].concat(), "f7c9cd6e67719f69"),
    ] {
        let said = ledger::Plan { software: String::new(), ..plan(set).ledger };
        let said = serde_json::to_string(&said).unwrap();
        let digest = ledger::hex(&Sha256::digest(&said)[..8]);
        others.extend((digest != expected).then(|| format!("{digest} is not {expected}: {said}")));
    }
    assert!(others.is_empty(), "if this is meant, tell users that such runs cannot be resumed:\n{}", others.join("\n"));
}
