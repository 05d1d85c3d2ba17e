//! Reads and writes model folders on disk.

use std::{fs, path::Path};

use lm::folder::{CARD_FILE, CONFIG_FILE, Files, Folder, FolderError, Source, VOCABULARY_FILE, WEIGHTS_FILE};
use thiserror::Error;

use durable::files::{self, FileError};

/// A folder that cannot be read or written.
#[derive(Debug, Error)]
pub enum ModelFolderError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The contents of the folder are invalid.
    #[error("cannot read the model {folder}: {error}")]
    Folder {
        /// The folder.
        folder: String,
        /// The underlying error.
        error: FolderError,
    },
}

/// Reads a model, with everything checked.
///
/// # Errors
/// When a file is missing, damaged, or of another model.
pub fn read(folder: &Path) -> Result<Folder, ModelFolderError> {
    let text = |name: &str| files::read_text(&folder.join(name));
    let (config, vocabulary, card) = (text(CONFIG_FILE)?, text(VOCABULARY_FILE)?, text(CARD_FILE)?);
    let path = folder.join(WEIGHTS_FILE);
    let mut weights = fs::File::open(&path).map_err(files::failed("read", &path))?;
    let source = Source { weights: &mut weights, config: &config, vocabulary: &vocabulary, card: &card };
    Folder::read(source).map_err(|error| ModelFolderError::Folder { folder: folder.display().to_string(), error })
}

/// Writes a model into a folder, which is made where it does not exist; whatever else is in it stays.
///
/// Each file is there whole or not at all. A write that is cut short can leave files of two models beside each other, and
/// those are refused when they are read: the parameters name the others by their checksums. The parameters come last, so that
/// a new folder is no model before all of it is there.
///
/// # Errors
/// When the disk fails.
pub fn write(model: &Folder, folder: &Path) -> Result<(), ModelFolderError> {
    let in_folder = |error| ModelFolderError::Folder { folder: folder.display().to_string(), error };
    let Files { weights, config, vocabulary, card } = model.write().map_err(in_folder)?;
    let new = !folder.exists();
    files::make_folder(folder)?;
    let others = [(CONFIG_FILE, &config), (VOCABULARY_FILE, &vocabulary), (CARD_FILE, &card)];
    others.iter().try_for_each(|(name, text)| files::write(&folder.join(name), text.as_bytes()))?;
    files::write(&folder.join(WEIGHTS_FILE), &weights)?;
    if new {
        files::sync_folder(files::folder(folder))?;
    }
    Ok(())
}
