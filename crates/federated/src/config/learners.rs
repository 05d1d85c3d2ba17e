//! The registry of learners: the only place where they are named and created from settings.
//!
//! A learner is a file in [`device::learner`] and an entry of [`LEARNERS`]. Its function gets the settings and the store, if the run
//! reads one, and says of any setting that it cannot use why.

use corpus::{
    origin::KnownVocabulary,
    store::Store,
    synth::{self, FEATURES},
};
use device::learner::{Learner, language::LanguageLearner, tags::TagLearner};
use lm::{
    model::config::{ConfigError as ModelError, ModelConfig, Token},
    tokenizer::Rules,
    vocabulary::Vocabulary,
};

use super::{
    Config, ConfigError, NewModel,
    nearest::{did_you_mean, one_of},
};

/// The default learner.
pub const LANGUAGE: &str = "language";
/// Words of a model of tags by default, as in Andrew et al. 2021.
const WORDS: usize = 10_000;

/// A learner, and the words that its examples are read with.
pub struct Made {
    /// The learner.
    pub learner: Box<dyn Learner>,
    /// The vocabulary.
    pub vocabulary: Vocabulary,
    /// How text becomes tokens.
    pub rules: Rules,
}

/// Makes a learner from settings.
type Make = fn(&Config, Option<&Store>) -> Result<Made, ConfigError>;

/// A kind of learner.
pub struct LearnerKind {
    /// Its name in settings.
    pub name: &'static str,
    /// What it does, in the comments of `keyhush init`.
    about: &'static str,
    make: Make,
    /// What is another in the settings of a small run than for a small language model, as `--set` takes it: tests and contract suites
    /// go over all learners, and make each from this.
    pub small: &'static [&'static str],
}

/// All learners; the first is the default.
pub static LEARNERS: &[LearnerKind] = &[
    LearnerKind { name: LANGUAGE, about: "predicts the next word", make: of_preset, small: &[] },
    LearnerKind {
        name: "tags",
        about: "predicts the labels of posts",
        make: tags,
        small: &[
            "model.learner=tags",
            "model.preset=",
            "model.hidden=",
            "model.embedding=",
            "model.vocabulary=300",
            "local.unroll=",
            "local.learning_rate=5.0",
        ],
    },
];

/// Their names and what they do, in a line.
pub(super) fn explained() -> String {
    one_of(&LEARNERS.iter().map(|kind| format!("{:?} ({})", kind.name, kind.about)).collect::<Vec<_>>())
}

/// The learner that settings ask for, before anything was learned.
///
/// # Errors
/// The setting that is wrong.
pub fn of(config: &Config, store: Option<&Store>) -> Result<Made, ConfigError> {
    named(config.model.learner.as_deref().unwrap_or(LANGUAGE), config, store)
}

/// The learner with a name.
///
/// # Errors
/// When there is none, or the setting that is wrong.
pub fn named(name: &str, config: &Config, store: Option<&Store>) -> Result<Made, ConfigError> {
    let Some(kind) = kind(name) else {
        let names: Vec<&str> = LEARNERS.iter().map(|kind| kind.name).collect();
        let meant = did_you_mean(name, &names).unwrap_or_default();
        let why = format!("no learner is called {name:?}{meant}; valid: {}", names.join(", "));
        return Err(ConfigError::new("model.learner", why));
    };
    (kind.make)(config, store)
}

/// The kind with a name.
#[must_use]
pub fn kind(name: &str) -> Option<&'static LearnerKind> {
    LEARNERS.iter().find(|kind| kind.name == name)
}

/// A language model from a preset.
fn of_preset(config: &Config, store: Option<&Store>) -> Result<Made, ConfigError> {
    let model = preset(config, store)?;
    let (vocabulary, rules) = match store {
        Some(store) => (store.vocabulary().clone(), store.meta().rules),
        None => {
            let KnownVocabulary { vocabulary, rules, .. } = built_in(model.token, model.vocabulary)?;
            (vocabulary, rules)
        }
    };
    Ok(Made { learner: language(config, &model)?, vocabulary, rules })
}

/// A language model that is known.
///
/// # Errors
/// When it cannot be built, or users cannot be read for it.
pub fn language(config: &Config, model: &ModelConfig) -> Result<Box<dyn Learner>, ConfigError> {
    let missing = || {
        ConfigError::new(
            "local.unroll",
            "is missing: give the number of tokens per sequence, which a language model needs",
        )
    };
    let unroll = config.local.unroll.ok_or_else(missing)?;
    let learner = LanguageLearner::new(model, config.local.batch, unroll);
    Ok(Box::new(learner.map_err(|e| ConfigError::new("model", e))?))
}

/// The preset, with the changes of the settings.
fn preset(config: &Config, store: Option<&Store>) -> Result<ModelConfig, ConfigError> {
    let from = config.model.new_model();
    let missing = || ConfigError::new("model.preset", "is missing: a preset such as \"tiny\", or model.from");
    let name = from.preset.as_deref().ok_or_else(missing)?;
    let mut model = ModelConfig::preset(name).map_err(|e| {
        let meant = match &e {
            ModelError::Unknown { known, .. } => did_you_mean(name, &known.split(", ").collect::<Vec<_>>()),
            _ => None,
        };
        ConfigError::new("model.preset", format!("{e}{}", meant.unwrap_or_default()))
    })?;
    model.hidden = from.hidden.unwrap_or(model.hidden);
    model.tied = from.tied.unwrap_or(model.tied);
    if let Some(size) = from.embedding {
        model = model.with_embedding(size);
    }
    if config.model.user_features {
        model.user_context = Some(features(store)?);
    }
    // Users train without dropout, as the papers do.
    model.dropout = None;
    if let Some(store) = store {
        model.vocabulary = store.vocabulary().len();
        check_rules(store.meta().rules, model.token)?;
    } else {
        model.vocabulary = from.vocabulary.unwrap_or(model.vocabulary);
        model.vocabulary = built_in(model.token, model.vocabulary)?.vocabulary.len();
        let most = model.vocabulary;
        if let Some(asked) = from.vocabulary.filter(|asked| model.token == Token::Word && *asked > most) {
            let why = format!("must be at most {most}, got {asked}: the built-in word list has no more");
            return Err(ConfigError::new("model.vocabulary", why));
        }
    }
    model.check().map_err(|e| ConfigError::new("model", e))?;
    Ok(model)
}

/// How many numbers are known of each person.
fn features(store: Option<&Store>) -> Result<usize, ConfigError> {
    match store.map_or(FEATURES.len(), |store| store.feature_names().len()) {
        0 => Err(ConfigError::new(
            "model.user_features",
            "the store has no features: import it with --features, or leave this out",
        )),
        some => Ok(some),
    }
}

/// Refuses data that knows something else of people than the model was learned with.
///
/// # Errors
/// When the model reads features, and the data has others.
pub fn check_features(model: &ModelConfig, store: Option<&Store>) -> Result<(), ConfigError> {
    let Some(wanted) = model.user_context else { return Ok(()) };
    match store.map_or(FEATURES.len(), |store| store.feature_names().len()) {
        got if got == wanted => Ok(()),
        got => {
            let why = format!("it uses {wanted} features of a user, but the data has {got}");
            Err(ConfigError::new("model.from", why))
        }
    }
}

fn check_rules(rules: Rules, token: Token) -> Result<(), ConfigError> {
    match (rules, token) {
        (Rules::Words1, Token::Word) | (Rules::Characters1, Token::Character) => Ok(()),
        _ => Err(ConfigError::new("model.preset", format!("the store has tokens by the rules {rules}"))),
    }
}

fn built_in(token: Token, entries: usize) -> Result<KnownVocabulary, ConfigError> {
    let known = match token {
        Token::Word => KnownVocabulary::built_in(entries),
        Token::Character => KnownVocabulary::built_in_characters(),
    };
    known.map_err(|e| ConfigError::new("model.vocabulary", e))
}

/// Logistic regression from the words of a post to its labels.
fn tags(config: &Config, store: Option<&Store>) -> Result<Made, ConfigError> {
    let NewModel { preset, hidden, embedding, tied, vocabulary } = config.model.new_model();
    let said = [
        ("model.preset", preset.is_some()),
        ("model.hidden", hidden.is_some()),
        ("model.embedding", embedding.is_some()),
        ("model.tied", tied.is_some()),
        ("model.user_features", config.model.user_features),
        ("local.unroll", config.local.unroll.is_some()),
    ];
    if let Some((key, _)) = said.into_iter().find(|(_, said)| *said) {
        return Err(ConfigError::new(key, "only valid with model.learner = \"language\": \"tags\" has no such thing"));
    }
    let (words, rules, labels) = match store {
        Some(store) => (store.vocabulary().clone(), store.meta().rules, store.labels().clone()),
        None => {
            let KnownVocabulary { vocabulary, rules, .. } = built_in(Token::Word, vocabulary.unwrap_or(WORDS))?;
            (vocabulary, rules, synth::labels())
        }
    };
    if labels.is_empty() {
        let why = "the posts of the store have no labels to learn: import it with --labels";
        return Err(ConfigError::new("model.learner", why));
    }
    let learner = TagLearner::new(words.len(), labels.names().to_vec(), config.local.batch);
    Ok(Made { learner: Box::new(learner), vocabulary: words, rules })
}
