//! The model card (`README.md`), with the model's guarantee.

use std::{collections::BTreeMap, fmt::Write};

use super::{Folder, FolderError, Weights};
use crate::tokenizer::Rules;

/// What is guaranteed to the people whose text a model was trained with. The trainer supplies the texts: a statement is
/// made by the ledger, not by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guarantee {
    /// No guarantee, and the reason.
    None {
        /// For example that all text was public.
        why: String,
    },
    /// Differential privacy, as a ledger says.
    Private {
        /// Epsilon, as the statement prints it.
        epsilon: String,
        /// Delta, as the statement prints it.
        delta: String,
        /// Whom it is for: each user, or each user of a synthetic crowd.
        protects: String,
        /// The statement in Markdown, without a title.
        statement: String,
        /// The ledger's head, `LENGTH:HASH`; of a model that was distilled from several, the heads of their ledgers with spaces between them.
        ledger_head: String,
    },
}

impl Guarantee {
    /// The guarantee of a model trained on public text alone.
    #[must_use]
    pub fn public_text() -> Self {
        Self::None { why: "the model was trained on public text alone, so there is nobody to protect".to_owned() }
    }

    /// The ledger's head, where there is a ledger.
    #[must_use]
    pub fn ledger_head(&self) -> Option<&str> {
        match self {
            Self::None { .. } => None,
            Self::Private { ledger_head, .. } => Some(ledger_head),
        }
    }

    /// What the card says of it, a paragraph each.
    fn sentences(&self) -> Vec<String> {
        match self {
            Self::None { why } => vec![format!("None: {why}.")],
            Self::Private { epsilon, delta, protects, statement, ledger_head } => vec![
                format!(
                    "**({epsilon}, {delta})-differentially private** for {protects}, as {} says:",
                    if ledger_head.contains(' ') {
                        "what all ledgers with these heads cost together"
                    } else {
                        "the ledger with this head"
                    }
                ),
                format!("`{ledger_head}`"),
                statement.trim_end().to_owned(),
            ],
        }
    }

    /// Writes itself into the metadata of the parameters.
    pub(super) fn describe(&self, metadata: &mut BTreeMap<String, String>) {
        let entries: &[(&str, &String)] = match self {
            Self::None { why } => &[("guarantee", &"none".to_owned()), ("guarantee_text", why)],
            Self::Private { epsilon, delta, protects, statement, ledger_head } => &[
                ("guarantee", &"differential privacy".to_owned()),
                ("guarantee_text", statement),
                ("epsilon", epsilon),
                ("delta", delta),
                ("protects", protects),
                ("ledger_head", ledger_head),
            ],
        };
        metadata.extend(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).clone())));
    }

    /// Reads itself from the metadata.
    pub(super) fn from_metadata<'a>(
        said: impl Fn(&'static str) -> Result<&'a str, FolderError>,
    ) -> Result<Self, FolderError> {
        let owned = |key| said(key).map(str::to_owned);
        match said("guarantee")? {
            "none" => Ok(Self::None { why: owned("guarantee_text")? }),
            _ => Ok(Self::Private {
                epsilon: owned("epsilon")?,
                delta: owned("delta")?,
                protects: owned("protects")?,
                statement: owned("guarantee_text")?,
                ledger_head: owned("ledger_head")?,
            }),
        }
    }
}

/// Refuses the card of another model: it must say what this one is, and the whole guarantee. The rest may be edited.
pub(super) fn check(card: &str, folder: &Folder) -> Result<(), FolderError> {
    let said = [title(folder), what_it_is(folder)].into_iter().chain(folder.guarantee.sentences());
    let missing = said.into_iter().find(|said| !card.contains(said.as_str()));
    missing.map_or(Ok(()), |missing| Err(FolderError::OtherCard { missing }))
}

fn title(folder: &Folder) -> String {
    format!("# {}\n", folder.name.replace(['\n', '\r'], " "))
}

/// The card of a model.
pub(super) fn render(folder: &Folder) -> String {
    let mut card = String::new();
    // Writing to a string does not fail.
    let _ = write_card(folder, &mut card);
    card
}

fn write_card(folder: &Folder, out: &mut String) -> std::fmt::Result {
    let privacy = match folder.guarantee {
        Guarantee::None { .. } => "",
        Guarantee::Private { .. } => "\n- differential-privacy",
    };
    writeln!(out, "---\nlibrary_name: keyhush\npipeline_tag: text-generation")?;
    writeln!(out, "tags:\n- keyboard\n- next-word-prediction{privacy}\n---\n")?;
    writeln!(out, "{}\n{}\n", title(folder), what_it_is(folder))?;
    writeln!(out, "## Guarantee\n\n{}", folder.guarantee.sentences().join("\n\n"))?;
    writeln!(out, "\n## Files\n\n- `model.safetensors`: the parameters. The guarantee is repeated in its metadata.")?;
    writeln!(out, "- `config.json`: the architecture of the model.")?;
    writeln!(out, "- `vocab.txt`: the vocabulary, one entry per line in the order of ids.\n")?;
    writeln!(
        out,
        "`keyhush eval --model DIR --text FILE` evaluates it; `keyhush predict --model DIR` shows its suggestions while you type."
    )
}

fn what_it_is(folder: &Folder) -> String {
    let entries = folder.vocabulary.len();
    let tokens = match folder.rules {
        Rules::Words1 => "words",
        Rules::Characters1 => "characters",
    };
    let made_of = match &folder.weights {
        Weights::Recurrent { config, values } => {
            let cell = format!("{:?}", config.cell).to_uppercase();
            let layers = if config.layers == 1 { "layer" } else { "layers" };
            format!("{cell} with {} {layers} of {} units, {} parameters", config.layers, config.hidden, values.len())
        }
        Weights::Ngrams(model) => format!("interpolated Kneser-Ney model of order {}", model.order()),
        Weights::Learned(learned) => {
            format!("model of the learner {} with {} parameters", learned.config.learner, learned.values.len())
        }
    };
    format!("A keyboard language model over {tokens}: {made_of}, {entries} entries in the vocabulary.")
}
