//! Distilling from released models: the private variant of transfer learning from an ensemble (Popov et al. 2018, equation 4).
//!
//! Each teacher is the model of a finished run, such as one run for each of several cohorts. Users paid for it when it was released, and
//! what is learned from released models is post-processing: nobody's text is read again, and no model of a single user exists. The text on
//! which the teachers are listened to must be public, or be written by the models themselves.
//!
//! **What the new model costs is what all its teachers cost together** ([`ledger::together`]): their events compose, as if somebody had
//! taken part in all of the runs. Where no person is in two of them, everybody pays for one run alone, which is less. But no ledger
//! shows that: pseudonyms are made with a key of each run, which is destroyed. So the sum is what is stated, and it holds for both. A
//! model from which several teachers started is counted once for each of them.

use std::path::{Path, PathBuf};

use device::learner::{Learner as _, language::LanguageLearner};
use ledger::{DataSource, Head, Ledger, LedgerError, statement::Statement, together_if_secret};
use lm::{
    folder::{Folder, Guarantee, Weights},
    kernels::KernelPath,
    model::config::ModelConfig,
    tokenizer::Rules,
    vocabulary::Vocabulary,
};
use privacy::{Delta, Epsilon, rng::Randomness};
use serde::Serialize;
use thiserror::Error;

use crate::{
    finetune::ensemble::{Distilling, EnsembleError, distil},
    home::{
        LEDGER_FILE, MODEL_FOLDER,
        heads::{self, HeadsError},
    },
    ledger_file::{FileStore, Place},
    model_folder::{self, ModelFolderError},
    price::{Meaning, Price},
    run::protects,
};

/// Why nothing was learned from released models.
#[derive(Debug, Error)]
pub enum ReleasedError {
    /// No run was given.
    #[error("give the folder of at least one finished run")]
    None,
    /// A run whose model cannot be a teacher.
    #[error("{}: {problem}", run.display())]
    Run {
        /// Its folder.
        run: PathBuf,
        /// The cause.
        problem: String,
    },
    /// A ledger, or the files next to it.
    #[error(transparent)]
    Heads(#[from] HeadsError),
    /// The ledgers together.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A model's folder.
    #[error(transparent)]
    Model(#[from] ModelFolderError),
    /// The models cannot be trained with these batches.
    #[error(transparent)]
    Learner(#[from] lm::model::config::ConfigError),
    /// Learning from them.
    #[error(transparent)]
    Ensemble(#[from] EnsembleError),
}

/// What all teachers cost together, for a person who took part in all of their runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The number of teachers.
    pub models: usize,
    /// Epsilon, with what it means.
    #[serde(flatten)]
    pub price: Price,
    /// Its delta: the smallest that one of them has, where no other is asked for.
    pub delta: Delta,
    /// The people whom the guarantee covers.
    pub protects: String,
    /// The heads of their ledgers.
    pub ledger_heads: Vec<Head>,
}

impl Cost {
    /// What a person can quote.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { models, price, delta, .. } = self;
        let words = price.words();
        match (price.epsilon.is_finite(), price.meaning) {
            (false, _) => "No guarantee: users' data was released without noise.".to_owned(),
            (true, Meaning::IfSecret) => format!(
                "No guarantee: noise was simulated. {} epsilon {words}, at delta = {delta}.",
                if *models == 1 { "The model costs".to_owned() } else { format!("All {models} models together cost") }
            ),
            (true, _) => format!(
                "(epsilon, delta) = ({words}, {delta}) for {}, even for a person who took part in {}.",
                self.protects,
                if *models == 1 { "the run".to_owned() } else { format!("all {models} runs") }
            ),
        }
    }

    /// As the card of the new model has it.
    fn guarantee(&self) -> Guarantee {
        let Self { price, delta, protects, ledger_heads, .. } = self;
        if !price.epsilon.is_finite() {
            return Guarantee::None { why: "users' data was released without noise".into() };
        }
        if price.meaning != Meaning::Guaranteed {
            return Guarantee::None { why: "the noise was simulated and could be repeated".into() };
        }
        let heads: Vec<String> = ledger_heads.iter().map(ToString::to_string).collect();
        let statement = format!(
            "Distilled from the released models of {} runs, whose ledgers compose. {} Text of users was read in those runs only.",
            self.models,
            self.sentence()
        );
        Guarantee::Private {
            epsilon: price.words(),
            delta: delta.to_string(),
            protects: protects.clone(),
            statement,
            ledger_head: heads.join(" "),
        }
    }
}

/// Released models of one shape, and what they cost together.
pub struct Teachers {
    rules: Rules,
    vocabulary: Vocabulary,
    config: ModelConfig,
    models: Vec<Vec<f32>>,
    cost: Cost,
}

impl Teachers {
    /// Reads the models of finished runs, with their ledgers checked.
    ///
    /// # Errors
    /// When a run is not finished, its model is of another shape or without its ledger, or the ledgers do not compose.
    pub fn read(runs: &[PathBuf], delta: Option<Delta>) -> Result<Self, ReleasedError> {
        let (mut ledgers, mut folders) = (Vec::new(), Vec::new());
        for run in runs {
            let (ledger, folder) = finished(run)?;
            ledgers.push(ledger);
            folders.push(folder);
        }
        let cost = cost(&ledgers, delta)?;
        let mut teachers: Option<Self> = None;
        for (run, folder) in runs.iter().zip(folders) {
            let wrong = |problem: &str| ReleasedError::Run { run: run.clone(), problem: problem.to_owned() };
            let Folder { rules, vocabulary, weights, .. } = folder;
            let Weights::Recurrent { config, values } = weights else {
                return Err(wrong("is not a language model, and only those can be distilled"));
            };
            let config = ModelConfig { dropout: None, ..config };
            match &mut teachers {
                None => {
                    teachers = Some(Self { rules, vocabulary, config, models: vec![values], cost: cost.clone() });
                }
                Some(first) if first.rules != rules || !first.vocabulary.words().eq(vocabulary.words()) => {
                    return Err(wrong("has a different vocabulary than the first model"));
                }
                Some(first) if first.config != config => {
                    return Err(wrong("has a model of a different shape than the first"));
                }
                Some(first) => first.models.push(values),
            }
        }
        teachers.ok_or(ReleasedError::None)
    }

    /// What they cost together.
    #[must_use]
    pub const fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Their vocabulary.
    #[must_use]
    pub const fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// How text becomes its ids.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.rules
    }

    /// A model that has learned what they predict on average, from the mean of their parameters; with no epochs it is that mean.
    ///
    /// # Errors
    /// When there is nothing to learn on.
    pub fn teach(&self, how: Distilling<'_>, kernels: KernelPath) -> Result<Folder, ReleasedError> {
        let learner = LanguageLearner::new(&self.config, how.batch, how.unroll)?;
        let mut start = self.mean();
        if how.epochs > 0 {
            start = distil(&learner, &start, &self.models, how, kernels)?;
        } else {
            learner.after_step(&mut start);
        }
        Ok(Folder {
            name: format!("Distilled from {} released models", self.models.len()),
            rules: self.rules,
            vocabulary: self.vocabulary.clone(),
            weights: Weights::Recurrent { config: self.config.clone(), values: start },
            guarantee: self.cost.guarantee(),
        })
    }

    fn mean(&self) -> Vec<f32> {
        let parameters = self.models.first().map_or(0, Vec::len);
        let of = |place: usize| self.models.iter().map(|model| f64::from(model[place])).sum::<f64>();
        (0..parameters).map(|place| (of(place) / self.models.len() as f64) as f32).collect()
    }
}

/// The ledger and the model of a run that is over.
fn finished(run: &Path) -> Result<(Ledger<FileStore>, Folder), ReleasedError> {
    let wrong = |problem: &str| ReleasedError::Run { run: run.to_owned(), problem: problem.to_owned() };
    let path = run.join(LEDGER_FILE);
    if !path.is_file() {
        return Err(wrong("is not the folder of a run: it has no ledger, so what its model costs is not known"));
    }
    let shown: Vec<Head> = heads::check(&path)?.into_iter().map(|shown| shown.head).collect();
    let ledger = Place::new(path).read(&shown)?;
    if !ledger.is_closed() {
        return Err(wrong(
            "has not finished, so its cost is not known yet: let it finish, end it with keyhush train --end, or finish its sweep",
        ));
    }
    let folder = model_folder::read(&run.join(MODEL_FOLDER))?;
    let holds = Statement::of(&ledger)?.guarantee.holds;
    if holds && folder.guarantee.ledger_head().is_none() {
        return Err(wrong("has a ledger with a guarantee, but its model names no ledger: it belongs to another run"));
    }
    Ok((ledger, folder))
}

fn cost(ledgers: &[Ledger<FileStore>], delta: Option<Delta>) -> Result<Cost, ReleasedError> {
    let statements = ledgers.iter().map(Statement::of).collect::<Result<Vec<Statement>, LedgerError>>()?;
    let of_users = statements.iter().find(|said| matches!(said.data, DataSource::Users { .. }));
    let Some(said) = of_users.or(statements.first()) else { return Err(ReleasedError::None) };
    let all = together_if_secret(ledgers, delta)?;
    let secret = |said: &Statement| said.accounting.randomness == Randomness::Secret;
    let meaning = if statements.iter().all(secret) { Meaning::Guaranteed } else { Meaning::IfSecret };
    // Secret noise that guarantees nothing: something was released without any.
    let without = statements.iter().any(|said| secret(said) && !said.guarantee.holds);
    let (epsilon, rho) = if without { (Epsilon::INFINITE, None) } else { (all.judgement.epsilon, all.judgement.rho) };
    Ok(Cost {
        models: ledgers.len(),
        price: Price { meaning, epsilon, rho },
        delta: all.delta,
        protects: protects(said),
        ledger_heads: ledgers.iter().map(Ledger::head).collect(),
    })
}
