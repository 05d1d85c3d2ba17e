//! Fine-tuning without forgetting, through the main loop: with noise and without, securely, with real devices; and what is refused.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, io::Write as _, path::Path};

use corpus::origin::Origin;
use device::{
    finetune::{FineTune, GeneralText},
    learner::examples::Examples,
    local::LocalTrainer,
    protocol::{
        blob::{Download, Wanted},
        task::{Bounds, Task, TaskError},
    },
};
use keyhush_federated::{
    config::Document,
    engine::{self, Means},
    fleet::{
        self, Stop,
        network::{NetworkTask, Reads},
    },
    home::{MODEL_FOLDER, Records, RunFolder},
    model_folder,
    plan::Plan,
    run::{Opened, Run, RunError},
};
use lm::{folder::Weights, kernels::KernelPath};
use privacy::{ClipNorm, stages::ClipRule};

use crate::{
    memory_home::MemoryHome,
    real_devices,
    small_runs::{RUN, TASK},
};

const REHEARSAL: [&str; 2] = ["finetune.kind=rehearsal", "finetune.lambda=0.5"];
const WITHOUT_FORGETTING: [&str; 2] = ["finetune.kind=without-forgetting", "finetune.lambda=0.5"];
const SECURE: [&str; 3] = ["aggregation=secagg", "participation.kind=fixed-size", "participation.cohort=40"];
const NO_NOISE: [&str; 3] = ["privacy.mechanism=none", "privacy.noise_multiplier=", "privacy.delta="];

fn opened(text: &str, set: &[&str]) -> Result<(Plan, Opened), RunError> {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(text, &set)?.config()?;
    let opened = Opened::new(&config)?;
    let plan = Plan::new(config, &opened.setting())?;
    Ok((plan, opened))
}

fn means(threads: usize) -> Means {
    Means::threads(KernelPath::best(), threads)
}

/// The model that a run of a few rounds ends with.
fn model(folder: &Path, set: &[&str], threads: usize) -> Vec<f32> {
    let few = ["rounds=2", "evaluation.every=2", "evaluation.users=2"];
    let (plan, opened) = opened(RUN, &[&few, set].concat()).unwrap();
    let home = RunFolder::at(folder);
    let population = opened.population(plan.ledger.unit).unwrap();
    let engine = engine::of(&plan.local, opened.learner(), means(threads)).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, home.secrets());
    let mut run = Run::begin(home, &plan, &opened, means(threads)).unwrap();
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap();
    trained(folder)
}

/// The parameters of the model of a run.
fn trained(folder: &Path) -> Vec<f32> {
    let folder = model_folder::read(&folder.join(MODEL_FOLDER)).unwrap();
    let Weights::Recurrent { values, .. } = folder.weights else { panic!("another model") };
    values
}

/// Every kind goes through the loop with noise, without, and with secure sums; it changes the model, and threads change nothing.
#[test]
fn every_kind_goes_through_the_loop() {
    let folder = tempfile::tempdir().unwrap();
    for (way, also) in [&[][..], &NO_NOISE, &SECURE].into_iter().enumerate() {
        let of = |name: &str, set: &[&str], threads| {
            model(&folder.path().join(format!("{way}-{name}")), &[also, set].concat(), threads)
        };
        let none = of("none", &[], 2);
        assert_eq!(none, of("retraining", &["finetune.kind=retraining"], 2), "plain training is what it was");
        let (rehearsal, soft) = (of("rehearsal", &REHEARSAL, 2), of("soft", &WITHOUT_FORGETTING, 1));
        assert!(none != rehearsal && none != soft && rehearsal != soft, "{way}");
        assert_eq!(rehearsal, of("again", &REHEARSAL, 1));
        let more = [&REHEARSAL[..], &["finetune.lambda=0.25"]].concat();
        assert_ne!(rehearsal, of("more", &more, 1));
    }
}

/// Settings without the section are written as they were before there was one.
#[test]
fn settings_without_the_section_say_nothing_of_it() {
    let (plan, opened) = opened(RUN, &[]).unwrap();
    assert!(!plan.settings.contains("finetune") && plan.local.finetune.is_none() && opened.general().is_none());
    assert!(!serde_json::to_string(&plan.local).unwrap().contains("finetune"));
    assert!(plan.ledger.public_data.is_empty());
}

/// K models that arrive are averaged: the mean of their differences on top of the model that they were given (Popov et al. 2018, Figure 1).
#[test]
fn a_round_averages_the_models_of_those_who_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let queue = [
        "rounds=1",
        "evaluation.every=1",
        "participation.kind=once",
        "participation.population=7",
        "participation.cohort=7",
        "clip.norm=1000",
        "server.optimizer=sgd",
        "server.momentum=",
        "server.learning_rate=1.0",
        "privacy.grid_bits=24",
    ];
    let set = [&queue[..], &NO_NOISE, &WITHOUT_FORGETTING].concat();
    let (plan, opened) = opened(RUN, &set).unwrap();
    let population = opened.population(plan.ledger.unit).unwrap();
    let first = opened.first_parameters();
    let mut trainer = LocalTrainer::new(opened.learner(), plan.local.clone(), KernelPath::best()).unwrap();
    let clip = ClipRule::Flat(ClipNorm::new(1000.0).unwrap());
    let mut mean = vec![0.0; first.len()];
    for user in 0..7 {
        let mut examples = Examples::new(opened.learner().schema());
        population.read(user, &mut examples).unwrap();
        examples.truncate(60);
        let learned = trainer.train(first, &examples, &clip, 0.5, 0).unwrap();
        mean.iter_mut().zip(first).zip(&learned.difference).for_each(|((m, f), d)| *m += f64::from(f + d) / 7.0);
    }
    let got = model(folder.path(), &set, 2);
    let off: f64 = got.iter().zip(&mean).map(|(g, m)| (f64::from(*g) - m).powi(2)).sum();
    let moved: f64 = got.iter().zip(first).map(|(g, f)| f64::from(g - f).powi(2)).sum();
    assert!((off / moved).sqrt() < 0.02, "{}", (off / moved).sqrt());
}

fn refused(set: &[&str]) -> String {
    match opened(RUN, set) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{set:?} was taken"),
    }
}

#[test]
fn what_has_no_meaning_is_refused_by_its_key() {
    for lambda in ["0.0", "1.0", "1.5", "-0.5", "0.001"] {
        for kind in ["rehearsal", "without-forgetting"] {
            let [kind, lambda] = [format!("finetune.kind={kind}"), format!("finetune.lambda={lambda}")];
            let error = refused(&[&kind, &lambda]);
            assert!(error.starts_with("finetune.lambda: ") && error.contains("0.01"), "{error}");
        }
    }
    let with = |more: &[&str]| refused(&[&REHEARSAL[..], more].concat());
    assert!(with(&["local.algorithm=fedsgd-all"]).starts_with("finetune: "));
    assert!(with(&["finetune.general_tokens=0"]).starts_with("finetune.general_tokens: must be from 1 to"));
    assert!(with(&["finetune.public_text=nowhere.txt"]).starts_with("finetune.public_text: nowhere.txt: "));
    let tags = ["model.learner=tags", "model.preset=", "model.hidden=", "model.embedding=", "local.unroll="];
    assert!(with(&tags).starts_with("finetune.kind: \"rehearsal\" cannot be used with model.learner = \"tags\""));
    assert!(refused(&["finetune.kind=retraining", "finetune.lambda=0.5"]).contains("only valid with kind = "));
    assert!(refused(&["finetune.lambda=0.5"]).starts_with("finetune.kind: is missing"));
}

/// A store's users do not speak as made-up people do.
#[test]
fn a_store_needs_public_text_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::workshop::store(folder.path(), Origin::BuiltIn, 30, |_| (3..30).collect());
    let of_store = [
        "data.kind=store".to_owned(),
        format!("data.path={:?}", store.display().to_string()),
        "data.posts_per_user=".to_owned(),
        "model.vocabulary=".to_owned(),
        "participation.population=30".to_owned(),
    ];
    let of_store: Vec<&str> = of_store.iter().map(String::as_str).collect();
    let error = refused(&[&of_store[..], &REHEARSAL].concat());
    assert!(error.starts_with("finetune.public_text: is missing: "), "{error}");
    let text = folder.path().join("general.txt");
    fs::write(&text, "the first\nthe second\n").unwrap();
    let text = format!("finetune.public_text={:?}", text.display().to_string());
    assert!(opened(RUN, &[&of_store[..], &REHEARSAL, &[&text]].concat()).is_ok());
}

/// Nothing can be forgotten by a model that knows nothing yet.
#[test]
fn a_model_that_starts_at_random_is_warned_of() {
    let warned = |set: &[&str]| {
        let (plan, _) = opened(RUN, set).unwrap();
        plan.warnings
            .iter()
            .any(|warning| warning.contains("nothing yet that [finetune] could keep it from forgetting"))
    };
    assert!(warned(&REHEARSAL) && warned(&WITHOUT_FORGETTING));
    assert!(!warned(&[]) && !warned(&["finetune.kind=retraining"]));
}

/// What is taken for public is an assumption of the guarantee: it is in the plan of the ledger.
#[test]
fn general_text_is_named_as_public() {
    let (plan, opened) = opened(RUN, &REHEARSAL).unwrap();
    let [public] = &plan.ledger.public_data[..] else { panic!("{:?}", plan.ledger.public_data) };
    assert_eq!(public.what, "the general text that devices rehearse");
    assert!(
        public.why.starts_with("it is made up by the program (") && public.why.contains("20000 tokens"),
        "{public:?}"
    );
    assert_eq!(opened.general().map(GeneralText::tokens), Some(20_000));
}

/// A run goes on with the text that it began with, wherever that lies now.
#[test]
fn p21_a_run_goes_on_with_the_general_text_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let text = |name: &str, words: &str| {
        let path = folder.path().join(name);
        fs::File::create(&path).unwrap().write_all(words.as_bytes()).unwrap();
        format!("finetune.public_text={:?}", path.display().to_string())
    };
    let at = |home: &MemoryHome, text: &str, begin: bool| {
        let (plan, opened) = opened(RUN, &[&REHEARSAL[..], &[text]].concat()).unwrap();
        let begin = if begin { Run::begin } else { Run::resume };
        begin(home.clone(), &plan, &opened, means(1)).map(drop)
    };
    let home = MemoryHome::default();
    at(&home, &text("general.txt", "one two three\n"), true).unwrap();
    at(&home, &text("moved.txt", "one two three\n"), false).unwrap();
    let error = at(&home, &text("general.txt", "one two\n"), false).unwrap_err();
    assert!(matches!(error, RunError::GeneralTextChanged), "{error}");
}

/// The terms of a plan, as a device gets them.
fn told(plan: &Plan, opened: &Opened) -> Vec<u8> {
    let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
    let task = NetworkTask::new("words", &[3; 32], plan, reads).unwrap();
    let mut download = Download::new(Wanted::of(&task.blob, "the task", 1 << 24).unwrap());
    download.take(&task.packed).unwrap();
    download.finish().unwrap()
}

/// General text is a part of the task: a device reads it from the terms, whose digest is the task's.
#[test]
fn general_text_travels_with_the_task() {
    for set in [&REHEARSAL, &WITHOUT_FORGETTING] {
        let (plan, opened) = opened(TASK, set).unwrap();
        let task = Task::read(&told(&plan, &opened), &Bounds::default()).unwrap();
        assert_eq!(task.terms().local, plan.local);
        assert!(task.worker(KernelPath::best()).is_ok());
    }
    let (plan, opened) = opened(TASK, &REHEARSAL).unwrap();
    let Some(FineTune::Rehearsal { general, .. }) = &plan.local.finetune else { panic!("{:?}", plan.local) };
    assert_eq!(general.tokens(), 20_000);
    // Two texts are two tasks.
    let (other, others) = self::opened(TASK, &[&REHEARSAL[..], &["data.seed=9"]].concat()).unwrap();
    let digest = |bytes: &[u8]| Task::read(bytes, &Bounds::default()).unwrap().digest();
    assert_ne!(digest(&told(&plan, &opened)), digest(&told(&other, &others)));
}

/// A server can write anything into its terms: an id that is no word, or a model for which a device has no room twice.
#[test]
fn a_device_refuses_general_text_in_other_words_and_labels_without_room() {
    let (mut plan, opened) = opened(TASK, &REHEARSAL).unwrap();
    let general = GeneralText::new([vec![5, u32::try_from(opened.vocabulary().len()).unwrap()]]);
    plan.local.finetune = Some(FineTune::Rehearsal { lambda: 0.5, general });
    let refused = Task::read(&told(&plan, &opened), &Bounds::default());
    assert!(matches!(refused, Err(TaskError::Mismatch { what: "an id of the general text", .. })), "{refused:?}");
    plan.local.finetune = None;
    let once = opened.learner().memory().trainer;
    let tight = Bounds { training_bytes: once, ..Bounds::default() };
    assert!(Task::read(&told(&plan, &opened), &tight).is_ok());
    plan.local.finetune = Some(FineTune::SoftLabels { lambda: 0.5 });
    let refused = Task::read(&told(&plan, &opened), &tight);
    assert!(matches!(refused, Err(TaskError::TooMuch { what: "the memory for training", .. })), "{refused:?}");
}

/// Real devices fine-tune as simulated ones do: the same fleet, and other models than without.
#[test]
fn real_devices_fine_tune() {
    let model = |set: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        // One round: whoever was asked for it and not needed may ask for its model later, when there is another.
        let few = ["rounds=1", "evaluation.every=1"];
        let (plan, opened) = real_devices::plan(&[&few, set].concat());
        let mut lives = real_devices::lives(&plan, &opened);
        let mut fleet = lives();
        let mut run = Run::begin(RunFolder::at(folder.path()), &plan, &opened, means(1)).unwrap();
        while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
        run.finish().unwrap();
        trained(folder.path())
    };
    let [none, plain, rehearsal, soft] =
        [&[][..], &["finetune.kind=retraining"], &REHEARSAL, &WITHOUT_FORGETTING].map(model);
    assert!(none == plain && none != rehearsal && none != soft && rehearsal != soft);
}

mod ensemble {
    //! Transfer learning from an ensemble: what is learned, on which text, and what is refused.

    use device::learner::{Learner as _, language::LanguageLearner};
    use keyhush_federated::finetune::ensemble::{
        Distilling, EnsembleError, On, Trained, check, distil, generate, user_models,
    };
    use lm::{
        language_model::LanguageModel as _,
        model::{
            batch::Batch,
            config::ModelConfig,
            fast::Network,
            parameters::ParameterLayout,
            reference::{Reference, Soft, State},
        },
        vocabulary::{BOS, EOS},
    };

    use super::*;

    fn learner() -> LanguageLearner {
        let config = ModelConfig { hidden: 8, ..ModelConfig::preset("tiny").unwrap() };
        LanguageLearner::new(&config.with_vocabulary(40).with_embedding(8), 4, 5).unwrap()
    }

    fn text() -> GeneralText {
        GeneralText::new((0..40u32).map(|n| (0..6).map(|i| 3 + (n * 5 + i * 3) % 37).collect()))
    }

    fn how(on: On<'_>, epochs: u32) -> Distilling<'_> {
        Distilling { on, epochs, batch: 4, unroll: 5, learning_rate: 1.0 }
    }

    /// A step goes towards the mean of what the teachers predict (equation 4), and towards nothing else: the obvious way, of the reference.
    #[test]
    fn a_model_learns_the_mean_of_what_others_predict() {
        let learner = learner();
        let config = learner.recurrent().unwrap();
        let layout = ParameterLayout::new(config).unwrap();
        let scaled = |seed| -> Vec<f32> { learner.initial(seed).unwrap().iter().map(|v| 3.0 * v).collect() };
        let (start, teachers) = (scaled(9), vec![scaled(1), scaled(2)]);
        // Four posts of five tokens with their ends: one batch of four rows.
        let posts: Vec<Vec<u32>> = (0..4u32).map(|n| (0..4).map(|i| 3 + n * 7 + i).collect()).collect();
        let row = |post: &Vec<u32>, t: usize| {
            let input = if t == 0 { BOS } else { post[t - 1] };
            (input, post.get(t).copied().unwrap_or(EOS))
        };
        let places = (0..5).flat_map(|t| posts.iter().map(move |post| (post, t)));
        let (inputs, targets): (Vec<u32>, Vec<u32>) = places.map(|(post, t)| row(post, t)).unzip();
        let batch = Batch { rows: 4, inputs: &inputs, targets: &targets, context: &[] };
        let exactly = |values: &[f32]| {
            Reference::new(config.clone(), layout.clone(), values.iter().map(|v| f64::from(*v)).collect())
        };
        let said = teachers.iter().map(|t| exactly(t).probabilities(&batch, &mut State::zero(config, 4)));
        let labels = said.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect()).unwrap();
        let labels: Vec<f64> = labels.iter().map(|p| p / 2.0).collect();
        let mut gradient = vec![0.0; layout.len()];
        let soft = Soft { truth: 0.0, labels: &labels };
        exactly(&start).loss_and_gradient_towards(&batch, &mut State::zero(config, 4), soft, &mut gradient);

        let text = GeneralText::new(posts);
        let end = distil(&learner, &start, &teachers, how(On::Real(&text), 1), KernelPath::best()).unwrap();
        let (mut off, mut moved) = (0.0, 0.0);
        for ((end, start), gradient) in end.iter().zip(&start).zip(&gradient) {
            off += (f64::from(end - start) + gradient).powi(2);
            moved += gradient.powi(2);
        }
        assert!(moved > 0.0 && (off / moved).sqrt() < 1e-3, "{}", (off / moved).sqrt());
    }

    #[test]
    fn text_is_written_as_often_as_was_said_and_nothing_is_learned_of_nobody() {
        let learner = learner();
        let (start, teachers) = (learner.initial(9).unwrap(), vec![learner.initial(1).unwrap()]);
        let learn = |cycles, seed| {
            let on = On::Generated { tokens: 100, cycles, seed };
            distil(&learner, &start, &teachers, how(on, 3), KernelPath::best()).unwrap()
        };
        assert_eq!(learn(1, 5), learn(1, 5));
        assert_ne!(learn(1, 5), learn(3, 5));
        assert_ne!(learn(1, 5), learn(1, 6));
        let text = text();
        let nobody = distil(&learner, &start, &[], how(On::Real(&text), 1), KernelPath::best());
        assert!(matches!(nobody, Err(EnsembleError::Nothing(_))));
        let nothing = GeneralText::new([]);
        assert!(distil(&learner, &start, &teachers, how(On::Real(&nothing), 1), KernelPath::best()).is_err());
    }

    /// Text is drawn as the model predicts it.
    #[test]
    fn generated_text_is_the_models() {
        let learner = learner();
        let model: Vec<f32> = learner.initial(1).unwrap().iter().map(|v| 4.0 * v).collect();
        let config = learner.recurrent().unwrap();
        let of = |seed, cycle| generate(config, model.clone(), 20_000, seed, cycle, KernelPath::best()).unwrap();
        let posts = of(7, 0);
        assert!(posts == of(7, 0) && posts != of(8, 0) && posts != of(7, 1));
        assert!(
            posts.iter().all(|post| !post.is_empty() && post.iter().all(|id| *id != BOS && *id != EOS && *id < 40))
        );
        let network = Network::new(config, model, KernelPath::best()).unwrap();
        let predicted = network.after(&[BOS]).unwrap();
        // First words: EOS ends a post before its first word, and such posts are left out.
        let ends = f64::from(predicted[EOS as usize]).exp() + f64::from(predicted[BOS as usize]).exp();
        for word in 2..40u32 {
            let p = f64::from(predicted[word as usize]).exp() / (1.0 - ends);
            let share = posts.iter().filter(|post| post[0] == word).count() as f64 / posts.len() as f64;
            let deviation = (p * (1.0 - p) / posts.len() as f64).sqrt();
            assert!((share - p).abs() < 5.0 * deviation, "{word}: {share} instead of {p}");
        }
    }

    /// It needs every user's model in the clear, so nothing that promises otherwise begins.
    #[test]
    fn what_promises_privacy_is_refused() {
        let of = |text: &str, set: &[&str]| opened(text, set).unwrap().0.config;
        let key = |config| check(&config).unwrap_err().to_string();
        assert!(key(of(RUN, &[])).starts_with("privacy.mechanism: "));
        let secure = [&NO_NOISE[..], &SECURE].concat();
        assert!(key(of(RUN, &secure)).starts_with("aggregation: "));
        assert!(key(of(TASK, &NO_NOISE)).starts_with("data.kind: "));
        assert_eq!(check(&of(RUN, &NO_NOISE)), Ok(()));
        // Also by whoever forgets to ask.
        let (plan, opened) = opened(RUN, &[]).unwrap();
        let population = opened.population(plan.ledger.unit).unwrap();
        let (learner, model) = (opened.learner(), opened.first_parameters());
        let trained =
            Trained { config: &plan.config, learner, local: &plan.local, model, population: population.as_ref() };
        assert!(matches!(user_models(&trained, &[0], KernelPath::best()), Err(EnsembleError::Config(_))));
    }

    #[test]
    fn the_models_of_users_are_what_they_would_send() {
        let (plan, opened) = opened(RUN, &[&NO_NOISE[..], &WITHOUT_FORGETTING].concat()).unwrap();
        let population = opened.population(plan.ledger.unit).unwrap();
        let (learner, model) = (opened.learner(), opened.first_parameters());
        let trained =
            Trained { config: &plan.config, learner, local: &plan.local, model, population: population.as_ref() };
        let models = user_models(&trained, &[3, 4], KernelPath::best()).unwrap();
        assert!(models.len() == 2 && models[0] != models[1] && models[0] != model);
        assert!(models.iter().all(|one| one.len() == model.len()));
    }
}

mod released {
    //! Distilling from released models: what it costs, which models may teach, and what cannot start from the result.

    use std::path::PathBuf;

    use keyhush_federated::{
        finetune::ensemble::{Distilling, On},
        home::LEDGER_FILE,
        ledger_file::Place,
        price::Meaning,
        released::{ReleasedError, Teachers},
    };
    use ledger::together;
    use lm::folder::Guarantee;

    use super::*;

    /// Runs that are over, each on a crowd of its own.
    fn runs<const N: usize>(folder: &Path, sets: [(&str, &[&str]); N]) -> Vec<PathBuf> {
        let run = |(name, set): (&str, &[&str])| {
            let _ = model(&folder.join(name), set, 1);
            folder.join(name)
        };
        sets.map(run).into()
    }

    fn text() -> GeneralText {
        GeneralText::new((0..20u32).map(|n| (0..6).map(|i| 3 + (n * 5 + i * 3) % 80).collect()))
    }

    fn how(on: On<'_>, epochs: u32) -> Distilling<'_> {
        Distilling { on, epochs, batch: 4, unroll: 5, learning_rate: 0.5 }
    }

    fn values(folder: &lm::folder::Folder) -> &[f32] {
        let Weights::Recurrent { values, .. } = &folder.weights else { panic!("another model") };
        values
    }

    #[test]
    fn p15_a_distilled_model_costs_what_its_teachers_cost_together() {
        let folder = tempfile::tempdir().unwrap();
        let runs =
            runs(folder.path(), [("a", &["noise_seed=", "data.seed=1"]), ("b", &["noise_seed=", "data.seed=2"])]);
        let teachers = Teachers::read(&runs, None).unwrap();
        let read = |run: &PathBuf| Place::new(run.join(LEDGER_FILE)).read(&[]).unwrap();
        let all = together(&runs.iter().map(read).collect::<Vec<_>>(), None).unwrap();
        let cost = teachers.cost();
        assert_eq!((cost.price.meaning, cost.price.epsilon), (Meaning::Guaranteed, all.judgement.epsilon));
        assert_eq!((cost.models, cost.delta, cost.ledger_heads.len()), (2, all.delta, 2));
        for run in &runs {
            let alone = Teachers::read(std::slice::from_ref(run), None).unwrap();
            assert!(alone.cost().price.epsilon < cost.price.epsilon, "somebody may be in both");
        }
        assert!(cost.sentence().contains("for a person who took part in all 2 runs"), "{}", cost.sentence());

        let text = text();
        let (mean, taught) = (
            teachers.teach(how(On::Real(&text), 0), KernelPath::best()).unwrap(),
            teachers.teach(how(On::Real(&text), 2), KernelPath::best()).unwrap(),
        );
        let [a, b] = [&runs[0], &runs[1]].map(|run| trained(run));
        for ((mean, a), b) in values(&mean).iter().zip(&a).zip(&b) {
            assert!((mean - (a + b) / 2.0).abs() <= 1e-6 * (a.abs() + b.abs()), "{mean} of {a} and {b}");
        }
        assert_ne!(values(&mean), values(&taught));

        // What it says of itself, and that no run can take it for something cheaper.
        let out = folder.path().join("distilled");
        model_folder::write(&taught, &out).unwrap();
        let card = fs::read_to_string(out.join("README.md")).unwrap();
        assert!(card.contains("what all ledgers with these heads cost together says"), "{card}");
        let Guarantee::Private { ledger_head, .. } = model_folder::read(&out).unwrap().guarantee else {
            panic!("{card}")
        };
        assert_eq!(ledger_head.split(' ').count(), 2);
        let from = format!("model.from={:?}", out.display().to_string());
        let new = ["model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding=", "model.public=x"];
        let error = refused(&[&new[..], &[&from]].concat());
        assert!(error.contains("distilled from several private models"), "{error}");
    }

    #[test]
    fn p23_simulated_teachers_and_teachers_without_noise_guarantee_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let runs = runs(folder.path(), [("secret", &["noise_seed="]), ("simulated", &[]), ("none", &NO_NOISE)]);
        let guarantee = |runs: &[PathBuf]| {
            let teachers = Teachers::read(runs, None).unwrap();
            let taught = teachers.teach(how(On::Real(&text()), 0), KernelPath::best()).unwrap();
            (teachers.cost().clone(), taught.guarantee)
        };
        let (cost, card) = guarantee(&runs[..2]);
        assert!(cost.price.meaning == Meaning::IfSecret && cost.price.epsilon.is_finite(), "one of them is enough");
        assert!(cost.sentence().starts_with("No guarantee: noise was simulated"), "{}", cost.sentence());
        assert!(matches!(card, Guarantee::None { why } if why.contains("simulated")));
        let (cost, card) = guarantee(&runs[2..]);
        assert!(!cost.price.epsilon.is_finite() && cost.sentence().contains("without noise"), "{}", cost.sentence());
        assert!(matches!(card, Guarantee::None { why } if why.contains("without noise")));
    }

    #[test]
    fn a_model_whose_cost_is_not_known_does_not_teach() {
        let folder = tempfile::tempdir().unwrap();
        let runs = runs(folder.path(), [("a", &[]), ("small", &["model.hidden=6", "data.seed=2"])]);
        let refused = |runs: &[PathBuf]| match Teachers::read(runs, None) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{runs:?} may teach"),
        };
        assert!(refused(&runs).contains("different shape"));
        assert!(refused(&[runs[0].clone(), runs[0].clone()]).contains("twice"));
        assert!(matches!(Teachers::read(&[], None), Err(ReleasedError::None)));
        let model = runs[0].join(MODEL_FOLDER);
        assert!(refused(&[model]).contains("it has no ledger"));
        // A run that is not over may still cost more.
        let (plan, opened) = opened(RUN, &["noise_seed="]).unwrap();
        let open = folder.path().join("open");
        drop(Run::begin(RunFolder::at(&open), &plan, &opened, means(1)).unwrap());
        assert!(refused(&[open]).contains("has not finished"));
        // Somebody puts a model into the folder of another run.
        let private = self::runs(folder.path(), [("private", &["noise_seed="])]);
        let stranger = model_folder::read(&runs[0].join(MODEL_FOLDER)).unwrap();
        model_folder::write(&stranger, &private[0].join(MODEL_FOLDER)).unwrap();
        assert!(refused(&private).contains("belongs to another run"));
    }
}
