//! Which model is trained: a new one, or one to start from.

use std::path::PathBuf;

use super::keys::{Key, Section, Visit, key};

/// Which model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// What is learned: one of [`crate::learners::LEARNERS`]; a language model if not said.
    pub learner: Option<String>,
    /// Whether the model reads what is known of a person, where the data has features of users.
    pub user_features: bool,
    /// Where its first parameters come from.
    pub start: ModelStart,
}

/// Where the first parameters of a model come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStart {
    /// They are drawn.
    New(NewModel),
    /// They are those of another model or run.
    From(EarlierModel),
}

/// A model that begins with random parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewModel {
    /// One of the presets; language models need one.
    pub preset: Option<String>,
    /// Entries of the vocabulary, instead of the preset's; a store has its own.
    pub vocabulary: Option<usize>,
    /// Units of a layer, instead of the preset's.
    pub hidden: Option<usize>,
    /// Size of the embedding, instead of the preset's.
    pub embedding: Option<usize>,
    /// Whether the output shares the embedding, instead of the preset's choice.
    pub tied: Option<bool>,
}

/// A model that was trained before; its folder says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierModel {
    /// The folder of the model or of its run.
    pub from: PathBuf,
    /// Why it may be taken for public, where it has no ledger (rule P15).
    pub public: Option<String>,
}

impl Default for ModelStart {
    fn default() -> Self {
        Self::New(NewModel::default())
    }
}

impl Model {
    /// What is said of a new model; nothing where it starts from another.
    #[must_use]
    pub fn new_model(&self) -> NewModel {
        match &self.start {
            ModelStart::New(new) => new.clone(),
            ModelStart::From(_) => NewModel::default(),
        }
    }

    /// The folder to start from, where there is one.
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
            key("from", "\"pretrained\"", "instead of a preset: the folder of a model or of a run"),
            key("public", "\"Wikipedia\"", "why that model may be taken for public, where it has no ledger"),
        );
        let learner = key("learner", "\"tags\"", "\"language\", or \"tags\": the labels of posts from their words");
        visit.may(&learner, &mut self.learner);
        // The folder to start from is written last, and decides what else there is.
        if visit.says(from.name) {
            self.start = ModelStart::From(EarlierModel { from: PathBuf::new(), public: None });
        }
        let features = "whether it reads what is known of a person, where the data has that";
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
                let says = "a new model: what this one is, the folder of from says";
                new.iter().for_each(|key| visit.unavailable(key, says));
                visit.rare(&features, &mut self.user_features, false);
                visit.need(&from, &mut earlier.from);
                visit.may(&public, &mut earlier.public);
            }
        }
    }
}

/// What can be said of a new model.
const fn new_keys() -> [Key<'static>; 5] {
    [
        key("preset", "\"tiny\"", "tiny, mcmahan2018, gboard, so-nwp, ... as in `keyhush pretrain`"),
        key("vocabulary", "1000", "entries of the vocabulary, instead of the preset's; a store has its own"),
        key("hidden", "64", "units of a layer, instead of the preset's"),
        key("embedding", "32", "its size, instead of the preset's"),
        key("tied", "true", "whether the output shares the embedding, instead of the preset's choice"),
    ]
}
