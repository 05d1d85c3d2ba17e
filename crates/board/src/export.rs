//! Exports the page and its data as a folder that opens without a server: for a colleague, an archive, or a static web server.
//!
//! Browsers do not let a file fetch other files, so the data is a script. It holds what the page shows and no more: no exact numbers of runs
//! with secret noise, and no paths of this machine.

use std::{
    collections::BTreeMap,
    fs,
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
    web::{PAGE, POLICY, assets},
};

/// The data of the page.
const DATA_FILE: &str = "data.js";
/// A run that cannot be read is tried again as if this much time had passed.
const AGAIN: Duration = Duration::from_secs(20);
/// What every page of the board has in it.
const PRODUCT: &str = "Keyhush <span>board</span>";
/// What is replaced in the page.
const PLACE: &str = "<!--export-->";

/// Why no copy was written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// There are no runs.
    #[error("there are no runs in {roots}: give folders of runs, or train one first")]
    NoRuns {
        /// The folders that were searched.
        roots: String,
    },
    /// The folder has a page of somebody else.
    #[error("{} exists and is not a copy of the board: choose an empty folder", path.display())]
    NotOurs {
        /// The page.
        path: PathBuf,
    },
    /// The data cannot be serialized.
    #[error("the data cannot be written: {0}")]
    Data(#[from] serde_json::Error),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The content of the data.
#[derive(Serialize)]
struct Copied<'a> {
    /// When it was made, in seconds since 1970.
    made: u64,
    list: crate::listing::Told<'a>,
    details: BTreeMap<&'a str, Value>,
}

/// Writes a copy of the runs in some folders, and returns how many there are. An earlier copy in the folder is replaced.
///
/// # Errors
/// When there are no runs, the folder has another page, or the disk fails.
pub fn write(roots: &[PathBuf], folder: &Path) -> Result<usize, ExportError> {
    let index = folder.join("index.html");
    let is_ours = |page: &[u8]| page.windows(PRODUCT.len()).any(|words| words == PRODUCT.as_bytes());
    if fs::read(&index).is_ok_and(|page| !is_ours(&page)) {
        return Err(ExportError::NotOurs { path: index });
    }
    let board = Board::default();
    let mut watcher = Watcher::new(roots.to_vec(), board.clone());
    // What cannot be read, usually because it is just being written, is tried again, as if some time had passed.
    (0..3_u32).for_each(|time| watcher.look(SystemTime::now() + AGAIN * time));
    let listing = board.now();
    if listing.is_empty() {
        let roots = roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(ExportError::NoRuns { roots });
    }
    let data = data(&listing, SystemTime::now())?;
    files::make_folder(folder)?;
    for asset in assets() {
        let path = folder.join(asset.path);
        files::make_folder(files::folder(&path))?;
        files::write(&path, asset.bytes)?;
    }
    files::write(&folder.join(DATA_FILE), data.as_bytes())?;
    files::write(&index, page().as_bytes())?;
    Ok(listing.len())
}

/// The page, which loads its data from the script and makes no requests.
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
    // As a text that is parsed: as an object literal, a run named `__proto__` would be no run.
    let text = serde_json::to_string(&serde_json::to_string(&copy)?)?;
    Ok(format!("window.keyhushCopy = JSON.parse({text});\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_a_copy_has_its_data_and_its_policy_first() {
        let page = page();
        assert!(!page.contains(PLACE) && page.contains("connect-src 'none'") && page.contains(PRODUCT));
        let at = |words: &str| page.find(words).unwrap();
        assert!(at("Content-Security-Policy") < at(DATA_FILE) && at(DATA_FILE) < at("source.js"));
    }
}
