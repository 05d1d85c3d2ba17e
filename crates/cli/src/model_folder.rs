//! Opens model folders and text files named by the user, for `eval`, `predict` and `ngram`.

use std::path::Path;

use corpus::{origin, text};
use federated::home;
use lm::{folder::Folder, tokenizer::Tokenizer, vocabulary::Vocabulary};

use crate::failure::BadInput;

/// Reads a model, or the model of a run, with everything checked.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Folder> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(BadInput::wrong("model", format!("folder {shown} does not exist")).into());
    }
    let model = home::model_in(folder);
    if !model.is_dir() {
        let why =
            format!("the run in {shown} has no model yet; let it finish, or end it with keyhush train --end {shown}");
        return Err(BadInput::wrong("model", why).into());
    }
    Ok(federated::model_folder::read(&model)?)
}

/// Writes a model into a folder, which is made where it does not exist; whatever else is in it stays.
pub(crate) fn write(model: &Folder, folder: &Path) -> anyhow::Result<()> {
    Ok(federated::model_folder::write(model, folder)?)
}

/// Reads a file of settings, which is named without a flag.
pub(crate) fn read_settings(path: &Path) -> Result<String, BadInput> {
    text::read(path).map_err(|error| BadInput::Refused(format!("{}: {error}", path.display())))
}

/// Reads a text file that the user named, plain or compressed (.gz, .zst); - is standard input.
pub(crate) fn read_text(field: &'static str, path: &Path) -> Result<String, BadInput> {
    text::read(path).map_err(|error| BadInput::wrong(field, format!("{}: {error}", path.display())))
}

/// The vocabulary of a model of public text, from the file that `--vocab` names.
pub(crate) fn read_vocabulary(path: &Path, tokenizer: Tokenizer) -> Result<Vocabulary, BadInput> {
    let text = read_text("vocab", path)?;
    origin::public_vocabulary(&text, tokenizer)
        .map_err(|error| BadInput::wrong("vocab", format!("{}: {error}", path.display())))
}
