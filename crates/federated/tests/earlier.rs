//! Earlier tasks over the same devices (`devices.after`): which ledgers may be counted, and that every number counts them.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{fs, path::Path};

use crate::small_runs::TASK;
use crate::workshop::means;
use keyhush_federated::{
    config::Document,
    forecast::{Forecast, epsilons, epsilons_of_begun},
    home::{LEDGER_FILE, MODEL_FOLDER, RunFolder, lost::Lost},
    ledger_file::{FileStore, Place},
    model_folder,
    plan::Plan,
    price::Meaning,
    run::{Opened, Run, RunError},
};
use ledger::{Ended, Ledger};
use lm::folder::{Folder, Guarantee, Weights};
use privacy::Epsilon;

fn planned(set: &[&str]) -> Result<(Plan, Opened), RunError> {
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    let config = Document::new(TASK, &set).unwrap().config().unwrap();
    let opened = Opened::new(&config)?;
    let plan = Plan::new(config, &opened.setting()).unwrap();
    Ok((plan, opened))
}

fn place(folder: &Path) -> Place {
    Place::new(folder.join(LEDGER_FILE))
}

/// The ledger of a task that has not finished, with a model beside it.
fn running(folder: &Path) -> Ledger<FileStore> {
    fs::create_dir(folder).unwrap();
    let (plan, opened) = planned(&[]).unwrap();
    write_model(&opened, folder);
    place(folder).create(plan.ledger, 1).unwrap().0
}

fn end(folder: &Path, mut ledger: Ledger<FileStore>) {
    place(folder).secrets().close_ledger(&mut ledger, Ended::ByHand, 2).unwrap();
}

fn write_model(opened: &Opened, folder: &Path) {
    let (config, values) = (opened.learner().recurrent().unwrap().clone(), opened.first_parameters().to_vec());
    let model = Folder {
        name: "words".into(),
        rules: opened.rules(),
        vocabulary: opened.vocabulary().clone(),
        weights: Weights::Recurrent { config, values },
        guarantee: Guarantee::None { why: "a test".into() },
    };
    model_folder::write(&model, &folder.join(MODEL_FOLDER)).unwrap();
}

fn after(folders: &[&Path]) -> String {
    format!("devices.after={folders:?}")
}

/// How many ledgers a task counts, or why it does not.
fn imported(set: &[&str]) -> Result<usize, String> {
    planned(set).map(|(_, opened)| opened.imports().count()).map_err(|error| error.to_string())
}

fn refused(set: &[&str], words: &str) {
    let said = imported(set).unwrap_err();
    assert!(said.contains(words), "{said}");
}

/// What a task cost is known when it is over, and it is counted once: a copy that was cut short does not stand for the whole ledger.
#[test]
fn p15_an_earlier_task_is_over_and_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let [words, copy] = ["words", "copy"].map(|name| folder.path().join(name));
    let from = |folder: &Path, more: &[&Path]| {
        let from = format!("model.from={}", folder.display());
        let set = ["model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding="].map(str::to_owned);
        set.into_iter().chain([from, after(more)]).collect::<Vec<_>>()
    };
    let started = |set: &[String]| imported(&set.iter().map(String::as_str).collect::<Vec<_>>());
    let ledger = running(&words);
    refused(&[&after(&[&words])], "has not finished");
    let said = started(&from(&words, &[])).unwrap_err();
    assert!(said.contains("has not finished"), "{said}");

    // A copy from before the end, which lost that.
    fs::create_dir(&copy).unwrap();
    write_model(&planned(&[]).unwrap().1, &copy);
    place(&copy).copy(&FileStore::read_only(&place(&words)).unwrap()).unwrap();
    let lost = Lost { have: ledger.head(), acknowledged: None, why: "a test".into() };
    lost.write(&copy.join(LEDGER_FILE)).unwrap();
    end(&words, ledger);
    for folder in [&words, &copy] {
        assert_eq!(imported(&[&after(&[folder])]), Ok(1));
        assert_eq!(started(&from(folder, &[folder])), Ok(1), "the model and the task are one");
    }
    refused(&[&after(&[&words, &words.join(LEDGER_FILE)])], "given twice");
    refused(&[&after(&[&copy, &words])], "in another state");
    refused(&[&after(&[&words, &copy])], "in another state");
    let said = started(&from(&copy, &[&words])).unwrap_err();
    assert!(said.contains("in another state"), "{said}");
}

/// A backup from between the first entry and the imports: what the task was to count is not known from it.
#[test]
fn p15_a_ledger_without_its_imports_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [words, cut] = ["words", "cut"].map(|name| folder.path().join(name));
    let ledger = running(&words);
    end(&words, ledger);
    let (plan, opened) = planned(&[&after(&[&words])]).unwrap();
    fs::create_dir(&cut).unwrap();
    let (ledger, _) = place(&cut).create(plan.ledger.clone(), 3).unwrap();
    write_model(&opened, &cut);
    Lost { have: ledger.head(), acknowledged: None, why: "a test".into() }.write(&cut.join(LEDGER_FILE)).unwrap();
    assert!(epsilons_of_begun(&plan, &ledger, 3).unwrap().is_none());
    drop(ledger);
    refused(&[&after(&[&cut])], "was cut short");
    let from = format!("model.from={}", cut.display());
    let model = ["model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding="];
    refused(&[&model[..], &[from.as_str()]].concat(), "was cut short");
}

fn near(got: Epsilon, want: Epsilon) {
    assert!(want.get() > 0.0 && (got.get() / want.get() - 1.0).abs() < 1e-6, "{got}, and not {want}");
}

/// Metrics and forecasts left earlier tasks out: they were smaller than what the ledger counts.
#[test]
fn p15_p23_price_forecast_and_ledger_count_an_earlier_task_alike() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    let ledger = running(&words);
    end(&words, ledger);
    let after = after(&[&words]);
    let (plan, opened) = planned(&[&after]).unwrap();
    let run = Run::begin(RunFolder::at(folder.path().join("more")), &plan, &opened, means()).unwrap();
    let ledger = run.ledger();
    let so_far = ledger.epsilon(plan.ledger.delta).unwrap().epsilon;
    near(run.price().unwrap().epsilon, so_far);
    near(run.history()[0].price.epsilon, so_far);
    let (points, begun) = (epsilons(&plan, &opened, 6).unwrap(), epsilons_of_begun(&plan, ledger, 6).unwrap().unwrap());
    let whole = ledger.guaranteed().unwrap().epsilon;
    near(points[5].epsilon, whole);
    near(begun[5].epsilon, whole);
    // A budget pays for fewer rounds where an earlier task has used some of it.
    let limit = points[2].epsilon;
    let budget = format!("privacy.max_epsilon={}", limit.get());
    let paid = |set: &[&str]| {
        let (plan, opened) = planned(set).unwrap();
        Forecast::new(&plan, &opened, means(), 1, || ()).unwrap().budget.unwrap().rounds
    };
    let fit = points.iter().filter(|point| point.epsilon <= limit).count() as u64;
    assert!(fit < 6 && paid(&[&after, &budget]) == fit, "{points:?}");
    assert!(paid(&[&budget]) > fit);
    // Noise of an earlier task that anybody can draw again guarantees nothing of both.
    let (plan, opened) = planned(&["noise_seed=", &after]).unwrap();
    let secret = Run::begin(RunFolder::at(folder.path().join("secret")), &plan, &opened, means()).unwrap();
    assert_eq!(secret.price().unwrap().meaning, Meaning::IfSecret);
}
