//! Model folders on disk, and text files as sequences: what `eval`, `predict` and `ngram` share.

use std::{fs, path::Path};

use lm::{
    folder::Folder,
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, Vocabulary},
};

use crate::failure::BadInput;

/// Reads a model, with everything checked.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Folder> {
    if !folder.is_dir() {
        return Err(BadInput::wrong("model", format!("there is no folder {}", folder.display())).into());
    }
    Ok(federated::model_folder::read(folder)?)
}

/// Writes a model into a folder, which is made where it does not exist; whatever else is in it stays.
pub(crate) fn write(model: &Folder, folder: &Path) -> anyhow::Result<()> {
    Ok(federated::model_folder::write(model, folder)?)
}

/// Reads a text file that the user named.
pub(crate) fn read_text(field: &'static str, path: &Path) -> Result<String, BadInput> {
    let wrong = |error: &dyn std::fmt::Display| BadInput::wrong(field, format!("{}: {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| wrong(&error))?;
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
        tokenizer.for_each_typed(line, |token, typed| {
            ids.push(vocabulary.id(token));
            letters.push(typed.try_into().unwrap_or(u32::MAX));
        });
        ids.push(EOS);
        letters.push(0);
        Line { ids, letters }
    };
    text.lines().map(line).filter(|line| line.ids.len() > 2).collect()
}
