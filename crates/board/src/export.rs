//! The page and its data as a folder, which opens without a server: for a colleague, an archive, a web server that serves files.
//!
//! Browsers give a file no right to fetch another, so the data is a script. It holds what the page shows and no more: no exact numbers
//! of runs with secret noise, and no paths of this machine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use durable::files::{self, FileError};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    listing::{Board, Listing},
    watch::Watcher,
    web::{ASSETS, PAGE, POLICY},
};

/// Where the page has its data from.
const DATA_FILE: &str = "data.js";
/// A run that cannot be read is tried again as if so much time had passed.
const AGAIN: Duration = Duration::from_secs(20);
/// What is replaced in the page.
const PLACE: &str = "<!--export-->";

/// Why there is no copy.
#[derive(Debug, Error)]
pub enum ExportError {
    /// There is nothing to copy.
    #[error("there are no runs in {roots}: name folders of runs, or train one first")]
    NoRuns {
        /// Where runs were looked for.
        roots: String,
    },
    /// The data has no form.
    #[error("the data cannot be written: {0}")]
    Data(#[from] serde_json::Error),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What is in the data.
#[derive(Serialize)]
struct Copied<'a> {
    /// When it was made, in seconds since 1970.
    made: u64,
    list: crate::listing::Told<'a>,
    details: BTreeMap<&'a str, Value>,
}

/// Writes a copy of the runs in some folders, and says how many there are. What lies in the folder under the same names is replaced.
///
/// # Errors
/// When there are no runs, or the disk fails.
pub fn write(roots: &[PathBuf], folder: &Path) -> Result<usize, ExportError> {
    let board = Board::default();
    let mut watcher = Watcher::new(roots.to_vec(), board.clone());
    // What cannot be read, mostly because it is just being written, is tried again, as if some time had passed.
    (0..3_u32).for_each(|time| watcher.look(SystemTime::now() + AGAIN * time));
    let listing = board.now();
    if listing.is_empty() {
        let roots = roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(ExportError::NoRuns { roots });
    }
    let data = data(&listing, SystemTime::now())?;
    files::make_folder(folder)?;
    for asset in &ASSETS {
        let path = folder.join(asset.path);
        files::make_folder(files::folder(&path))?;
        files::write(&path, asset.bytes)?;
    }
    files::write(&folder.join(DATA_FILE), data.as_bytes())?;
    files::write(&folder.join("index.html"), page().as_bytes())?;
    Ok(listing.len())
}

/// The page, which loads its data and asks nobody.
fn page() -> String {
    let policy = POLICY.replace("connect-src 'self'", "connect-src 'none'");
    let head = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<script defer src=\"{DATA_FILE}\"></script>"
    );
    PAGE.replace(PLACE, &head)
}

fn data(listing: &Listing, now: SystemTime) -> Result<String, serde_json::Error> {
    let mut details = BTreeMap::new();
    for run in listing.runs() {
        if let Some(detail) = listing.detail(&run.id) {
            details.insert(run.id.as_str(), serde_json::from_slice(&detail)?);
        }
    }
    let made = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let copy = Copied { made, list: listing.told(None), details };
    Ok(format!("window.keyhushCopy = {};\n", serde_json::to_string(&copy)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_a_copy_has_its_data_and_its_policy_first() {
        let page = page();
        assert!(!page.contains(PLACE) && page.contains("connect-src 'none'"));
        let at = |words: &str| page.find(words).unwrap();
        assert!(at("Content-Security-Policy") < at(DATA_FILE) && at(DATA_FILE) < at("source.js"));
    }
}
