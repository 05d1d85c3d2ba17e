//! Model folders on disk, and text files as sequences: what `eval`, `predict` and `ngram` share.

use std::{fs, io::Write, path::Path};

use anyhow::Context;
use lm::{
    folder::{CARD_FILE, CONFIG_FILE, Files, Folder, Source, VOCABULARY_FILE, WEIGHTS_FILE},
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, Vocabulary},
};

use crate::failure::BadInput;

/// Reads a model, with everything checked.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Folder> {
    if !folder.is_dir() {
        return Err(BadInput::wrong("model", format!("there is no folder {}", folder.display())).into());
    }
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (config, vocabulary, card) = (text(CONFIG_FILE)?, text(VOCABULARY_FILE)?, text(CARD_FILE)?);
    let path = folder.join(WEIGHTS_FILE);
    let mut weights = fs::File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let source = Source { weights: &mut weights, config: &config, vocabulary: &vocabulary, card: &card };
    Folder::read(source).with_context(|| format!("cannot read the model {}", folder.display()))
}

/// Writes a model into a folder, which is made where it does not exist; whatever else is in it stays.
///
/// Each file is written under another name, made durable, and renamed: what has its name is whole. A write that is cut
/// short can leave files of two models beside each other, and those are refused when they are read: the parameters name the
/// others by their checksums. The parameters come last, so that a new folder is no model before all of it is there.
pub(crate) fn write(model: &Folder, folder: &Path) -> anyhow::Result<()> {
    let Files { weights, config, vocabulary, card } = model.write()?;
    let new = !folder.exists();
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let files: [(&str, &[u8]); 4] = [
        (CONFIG_FILE, config.as_bytes()),
        (VOCABULARY_FILE, vocabulary.as_bytes()),
        (CARD_FILE, card.as_bytes()),
        (WEIGHTS_FILE, &weights),
    ];
    let hidden = |name: &str| folder.join(format!(".{name}.new"));
    for (name, content) in files {
        write_durably(&hidden(name), content)
            .with_context(|| format!("cannot write {}", folder.join(name).display()))?;
    }
    for (name, _) in files {
        let path = folder.join(name);
        fs::rename(hidden(name), &path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    sync_folder(folder)?;
    match folder.parent() {
        Some(parent) if new => sync_folder(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }),
        _ => Ok(()),
    }
}

fn write_durably(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot make {} durable", folder.display()))
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
