//! Finds the folders that are runs: those named by the user, and those inside them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use federated::{home::CONFIG_FILE, metrics::METRICS_FILE};

/// How deep runs may lie below a folder that was named: sweeps and experiments have folders of runs.
const DEEPEST: usize = 5;
/// The most folders that are looked into.
const MOST: usize = 20_000;

/// A run's folder and what the page calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) folder: PathBuf,
}

/// All runs in some folders, each once.
pub(crate) fn find(roots: &[PathBuf]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let (mut seen, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for root in roots {
        for folder in runs_in(root) {
            if !seen.insert(folder.canonicalize().unwrap_or_else(|_| folder.clone())) {
                continue;
            }
            let id = name(root, &folder);
            let mut free = (1..).map(|number| if number == 1 { id.clone() } else { format!("{id} ({number})") });
            let Some(id) = free.find(|id| !ids.contains(id)) else { continue };
            ids.insert(id.clone());
            found.push(Found { id, folder });
        }
    }
    found
}

/// The path below the folder that was named; of a run that was named itself, its own name.
fn name(root: &Path, folder: &Path) -> String {
    let below = folder.strip_prefix(root).ok().filter(|below| below.components().next().is_some());
    let whole = || root.canonicalize().ok().and_then(|root| root.file_name().map(PathBuf::from));
    let path = below.map(Path::to_owned).or_else(whole).unwrap_or_else(|| folder.to_owned());
    let parts: Vec<String> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    parts.join("/")
}

fn is_run(folder: &Path) -> bool {
    [METRICS_FILE, CONFIG_FILE].iter().all(|file| folder.join(file).is_file())
}

/// In the order of their names. A run holds no others.
fn runs_in(root: &Path) -> Vec<PathBuf> {
    let (mut runs, mut looked) = (Vec::new(), 0);
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        if is_run(&folder) {
            runs.push(folder);
            continue;
        }
        looked += 1;
        if depth == DEEPEST || looked > MOST {
            continue;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        // Links are not followed: they may lead in circles.
        let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let visible = inner.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
        folders.extend(visible.map(|entry| (entry.path(), depth + 1)));
    }
    runs.sort();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        [METRICS_FILE, CONFIG_FILE].iter().for_each(|file| fs::write(folder.join(file), "").unwrap());
    }

    #[test]
    fn runs_are_found_wherever_they_lie_and_named_by_where() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        ["runs/b", "runs/a/seed-0", "runs/a/seed-1", "runs/a/seed-1/model", "runs/.hidden/x", "other/b"]
            .iter()
            .for_each(|path| make(&at(path)));
        make(&at("runs/1/2/3/4/5"));
        make(&at("runs/1/2/3/4/x/6"));
        fs::create_dir_all(at("runs/empty")).unwrap();
        let ids = |roots: &[&str]| {
            let roots: Vec<PathBuf> = roots.iter().map(|path| at(path)).collect();
            find(&roots).into_iter().map(|found| found.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&["runs"]), ["1/2/3/4/5", "a/seed-0", "a/seed-1", "b"]);
        assert_eq!(ids(&["runs/b"]), ["b"]);
        assert_eq!(ids(&["runs", "other", "runs/b"]), ["1/2/3/4/5", "a/seed-0", "a/seed-1", "b", "b (2)"]);
        assert!(ids(&["nowhere", "runs/empty"]).is_empty());
    }
}
