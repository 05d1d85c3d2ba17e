//! `[model]`: a new model, or one to start from.

use std::path::PathBuf;

use super::{
    keys::{Key, Section, Visit, key},
    learners,
};

/// The model to train.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// What is learned: one of [`learners::LEARNERS`]; a language model by default.
    pub learner: Option<String>,
    /// Whether the model uses what is known about each user, if the data has features.
    pub user_features: bool,
    /// Where its initial parameters come from.
    pub start: ModelStart,
}

/// The origin of a model's initial parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStart {
    /// Parameters drawn at random.
    New(NewModel),
    /// They are those of another model or run.
    From(EarlierModel),
}

/// A model with random initial parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewModel {
    /// One of the presets; language models need one.
    pub preset: Option<String>,
    /// Vocabulary size, instead of the preset's; a store has its own.
    pub vocabulary: Option<usize>,
    /// Units per layer, instead of the preset's.
    pub hidden: Option<usize>,
    /// Embedding size, instead of the preset's.
    pub embedding: Option<usize>,
    /// Whether the output layer shares the embedding's weights, instead of the preset's choice.
    pub tied: Option<bool>,
}

/// A model that was trained before; its folder says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierModel {
    /// The folder of the model or of its run.
    pub from: PathBuf,
    /// Why it counts as public, if it has no ledger (rule P15).
    pub public: Option<String>,
}

impl Default for ModelStart {
    fn default() -> Self {
        Self::New(NewModel::default())
    }
}

impl Model {
    /// The settings of a new model; none of them are set if it starts from another.
    #[must_use]
    pub fn new_model(&self) -> NewModel {
        match &self.start {
            ModelStart::New(new) => new.clone(),
            ModelStart::From(_) => NewModel::default(),
        }
    }

    /// The folder to start from, if there is one.
    pub const fn from_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.start {
            ModelStart::New(_) => None,
            ModelStart::From(earlier) => Some(&mut earlier.from),
        }
    }
}

impl Section for Model {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let (from, public) = (
            key("from", "\"pretrained\"", "instead of a preset: the folder of an earlier model or run"),
            key("public", "\"Wikipedia\"", "why that model counts as public, if it has no ledger"),
        );
        let learners = learners::explained();
        let learner = key("learner", "\"tags\"", &learners);
        visit.may(&learner, &mut self.learner);
        // The folder to start from is written last, and decides what else there is.
        if visit.says(from.name) {
            self.start = ModelStart::From(EarlierModel { from: PathBuf::new(), public: None });
        }
        let features = "use what is known about each user, if the data has features";
        let features = key("user_features", "true", features);
        let new = new_keys();
        match &mut self.start {
            ModelStart::New(model) => {
                visit.may(&new[0], &mut model.preset);
                visit.may(&new[1], &mut model.vocabulary);
                visit.may(&new[2], &mut model.hidden);
                visit.may(&new[3], &mut model.embedding);
                visit.may(&new[4], &mut model.tied);
                visit.rare(&features, &mut self.user_features, false);
                visit.may(&from, &mut None::<PathBuf>);
                visit.unavailable(&public, "from, the model to start from");
            }
            ModelStart::From(earlier) => {
                let says = "a new model: with `from`, the folder of the earlier model sets this";
                new.iter().for_each(|key| visit.unavailable(key, says));
                visit.rare(&features, &mut self.user_features, false);
                visit.need(&from, &mut earlier.from);
                visit.may(&public, &mut earlier.public);
            }
        }
    }
}

/// The keys of a new model.
const fn new_keys() -> [Key<'static>; 5] {
    [
        key("preset", "\"tiny\"", "tiny, mcmahan2018, gboard, so-nwp, ...; see `keyhush pretrain --help`"),
        key("vocabulary", "1000", "vocabulary size, instead of the preset's; a store has its own"),
        key("hidden", "64", "units per layer, instead of the preset's"),
        key("embedding", "32", "embedding size, instead of the preset's"),
        key("tied", "true", "whether the output layer shares the embedding's weights"),
    ]
}
