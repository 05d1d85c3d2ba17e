//! Model folders on disk, and text files as sequences: what `eval`, `predict` and `ngram` share.

use std::path::Path;

use anyhow::Context;
use lm::{
    folder::{CARD_FILE, CONFIG_FILE, Files, Folder, VOCABULARY_FILE, WEIGHTS_FILE},
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, Vocabulary},
};

use crate::failure::BadInput;

/// Reads a model, with everything checked.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Folder> {
    if !folder.is_dir() {
        return Err(BadInput::wrong("model", format!("there is no folder {}", folder.display())).into());
    }
    let bytes = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let text = |name: &str| -> anyhow::Result<String> {
        String::from_utf8(bytes(name)?).with_context(|| format!("{} is not text", folder.join(name).display()))
    };
    let files = Files {
        weights: bytes(WEIGHTS_FILE)?,
        config: text(CONFIG_FILE)?,
        vocabulary: text(VOCABULARY_FILE)?,
        card: text(CARD_FILE)?,
    };
    Folder::read(&files).with_context(|| format!("cannot read the model {}", folder.display()))
}

/// Writes a model into a folder, which is made where it does not exist.
pub(crate) fn write(model: &Folder, folder: &Path) -> anyhow::Result<()> {
    let Files { weights, config, vocabulary, card } = model.write()?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let files: [(&str, &[u8]); 4] = [
        (CONFIG_FILE, config.as_bytes()),
        (VOCABULARY_FILE, vocabulary.as_bytes()),
        (CARD_FILE, card.as_bytes()),
        (WEIGHTS_FILE, &weights),
    ];
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Reads a text file that the user named.
pub(crate) fn read_text(field: &'static str, path: &Path) -> Result<String, BadInput> {
    let wrong = |error: &dyn std::fmt::Display| BadInput::wrong(field, format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
    String::from_utf8(bytes).map_err(|error| wrong(&format!("not UTF-8: {}", error.utf8_error())))
}

/// A line of text as ids and as numbers of letters.
pub(crate) struct Line {
    pub(crate) ids: Vec<u32>,
    pub(crate) letters: Vec<u32>,
}

/// One sequence a line, `BOS ... EOS`; lines without tokens are left out.
pub(crate) fn lines(text: &str, tokenizer: Tokenizer, vocabulary: &Vocabulary) -> Vec<Line> {
    let line = |line: &str| {
        let mut ids = vec![BOS];
        let mut letters = vec![0];
        tokenizer.for_each(line, |token| {
            ids.push(vocabulary.id(token));
            letters.push(token.chars().count().try_into().unwrap_or(u32::MAX));
        });
        ids.push(EOS);
        letters.push(0);
        Line { ids, letters }
    };
    text.lines().map(line).filter(|line| line.ids.len() > 2).collect()
}
