//! Model folders and text files that the user named: what `eval`, `predict` and `ngram` share.

use std::{fs, path::Path};

use lm::folder::Folder;

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
