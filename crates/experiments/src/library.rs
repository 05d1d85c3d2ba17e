//! Finds experiments: in a folder such as a checkout of the repository, or among those built into this program.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use federated::config::{ConfigError, Document, FIRST_RUN};

use crate::{
    error::ExperimentError,
    format::{Experiment, FILE},
};

/// The folder of the experiments in a checkout.
const FOLDER: &str = "experiments";

/// The files of the experiments that are built in, by their paths in a checkout; a test compares them with the folder.
macro_rules! built_in {
    ([$($experiment:literal),* $(,)?], [$($other:literal),* $(,)?]) => {
        &[
            $((concat!("experiments/", $experiment, "/experiment.toml"),
               include_str!(concat!("../../../experiments/", $experiment, "/experiment.toml"))),)*
            $((concat!("experiments/", $other), include_str!(concat!("../../../experiments/", $other))),)*
            ("crates/federated/src/config/first-run.toml", FIRST_RUN),
        ]
    };
}

static BUILT_IN: &[(&str, &str)] = built_in!(
    [
        "andrew2021-figure3",
        "andrew2021-figure4",
        "andrew2021-figure5",
        "andrew2021-figure6",
        "andrew2021-figure7",
        "andrew2021-table1",
        "first-run",
        "mcmahan2018-figure1",
        "mcmahan2018-figure11-figure12",
        "mcmahan2018-figure2",
        "mcmahan2018-figure3",
        "mcmahan2018-figure4-figure8",
        "mcmahan2018-figure5",
        "mcmahan2018-figure6",
        "mcmahan2018-figure7",
        "mcmahan2018-figure9-figure10",
        "mcmahan2018-table1",
        "mcmahan2018-table2",
        "mcmahan2018-table3",
        "mcmahan2018-text-epsilons",
        "mcmahan2018-update-penalty",
        "mcmahan2018-wrong-corpus",
        "popov-figure2",
        "popov-table1",
        "popov-table2",
        "popov-table3",
        "popov-table4",
        "popov-table6",
        "xu2023-figure3",
        "xu2023-figure4a",
        "xu2023-figure4b",
        "xu2023-figure4c",
        "xu2023-mechanisms",
        "xu2023-report-goal",
        "xu2023-table1",
        "xu2023-table2",
        "xu2023-tied",
    ],
    [
        "common/andrew2021.toml",
        "common/mcmahan2018.toml",
        "common/popov2018.toml",
        "common/xu2023.toml",
        "popov-table4/config.toml"
    ]
);

/// A collection of experiments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Library {
    /// A folder with a folder for each.
    Folder(PathBuf),
    /// Those of the repository, as they were when this program was built.
    BuiltIn,
}

/// An experiment of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name: that of its folder.
    pub name: String,
    library: Library,
}

impl Library {
    /// The folder that somebody names; without one that of a checkout, if this is one; and what is built in anywhere else.
    #[must_use]
    pub fn here(named: Option<&Path>) -> Self {
        match named {
            Some(folder) => Self::Folder(folder.to_owned()),
            None => {
                let checkout = Self::Folder(FOLDER.into());
                if checkout.all().is_ok() { checkout } else { Self::BuiltIn }
            }
        }
    }

    /// All experiments, by name.
    ///
    /// # Errors
    /// When the folder cannot be read, or holds none.
    pub fn all(&self) -> Result<Vec<Found>, ExperimentError> {
        let mut names = match self {
            Self::Folder(folder) => in_folder(folder)?,
            Self::BuiltIn => BUILT_IN.iter().filter_map(|(path, _)| built_in_name(path)).collect(),
        };
        names.sort();
        Ok(names.into_iter().map(|name| Found { name, library: self.clone() }).collect())
    }

    /// The experiment with this name.
    ///
    /// # Errors
    /// When there is none; the error has the names that there are.
    pub fn find(&self, name: &str) -> Result<Found, ExperimentError> {
        let all = self.all()?;
        let found = all.iter().find(|found| found.name == name);
        found.cloned().ok_or_else(|| ExperimentError::Unknown {
            name: name.to_owned(),
            known: all.iter().map(|found| found.name.clone()).collect(),
        })
    }
}

impl Found {
    /// Reads and checks it.
    ///
    /// # Errors
    /// When its file cannot be read or cannot be meant.
    pub fn experiment(&self) -> Result<Experiment, ExperimentError> {
        let path = self.path(Path::new(FILE));
        let text =
            self.text(Path::new(FILE)).map_err(|problem| ExperimentError::Format { path: path.clone(), problem })?;
        Experiment::parse(&text, &path)
    }

    /// Its folder, where it has one: results can lie there.
    #[must_use]
    pub fn folder(&self) -> Option<PathBuf> {
        match &self.library {
            Library::Folder(folder) => Some(folder.join(&self.name)),
            Library::BuiltIn => None,
        }
    }

    /// Where a file is that its experiment names, for people.
    pub(crate) fn path(&self, file: &Path) -> PathBuf {
        match &self.library {
            Library::Folder(folder) => folder.join(&self.name).join(file),
            Library::BuiltIn => plain(&Path::new(FOLDER).join(&self.name).join(file)),
        }
    }

    /// The text of that file.
    pub(crate) fn text(&self, file: &Path) -> Result<String, String> {
        let path = self.path(file);
        match &self.library {
            Library::Folder(_) => fs::read_to_string(&path).map_err(|error| error.to_string()),
            Library::BuiltIn => {
                let found = BUILT_IN.iter().find(|(known, _)| Path::new(known) == path);
                found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "is not built in".to_owned())
            }
        }
    }

    /// Settings from such a file, with changes. Errors name the line only where a person can open the file.
    pub(crate) fn document(&self, text: &str, set: &[String]) -> Result<Document, ConfigError> {
        match &self.library {
            Library::Folder(_) => Document::new(text, set),
            Library::BuiltIn => Document::built_in(text, set),
        }
    }
}

fn in_folder(folder: &Path) -> Result<Vec<String>, ExperimentError> {
    let wrong = |error: &dyn std::fmt::Display| ExperimentError::Folder {
        folder: folder.to_owned(),
        problem: error.to_string(),
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| wrong(&error))? {
        let path = entry.map_err(|error| wrong(&error))?.path();
        if path.join(FILE).is_file() {
            names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    if names.is_empty() { Err(wrong(&"there is no experiment in it")) } else { Ok(names) }
}

fn built_in_name(path: &str) -> Option<String> {
    Some(path.strip_prefix("experiments/")?.strip_suffix("/experiment.toml")?.to_owned())
}

/// The path without `..`: what is built in is no folder to climb in.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
    }

    /// A new experiment, or settings that one names, needs a line in the table above.
    #[test]
    fn what_is_built_in_is_what_the_repository_has() {
        let (folder, built_in) = (Library::Folder(checkout()), Library::BuiltIn);
        let names = |library: &Library| library.all().unwrap().into_iter().map(|found| found.name).collect::<Vec<_>>();
        assert_eq!(names(&built_in), names(&folder));
        for name in names(&folder) {
            let (there, here) = (folder.find(&name).unwrap(), built_in.find(&name).unwrap());
            let experiment = there.experiment().unwrap();
            let configs = experiment.configs().cloned();
            for file in configs.chain([PathBuf::from(FILE)]) {
                assert_eq!(here.text(&file).as_ref(), Ok(&there.text(&file).unwrap()), "{name}: {}", file.display());
            }
            assert_eq!(here.experiment().unwrap().title, experiment.title);
        }
        assert!(built_in.find("nothing").unwrap_err().to_string().contains("first-run"));
    }

    #[test]
    fn a_folder_that_somebody_names_is_taken_also_where_it_is_wrong() {
        let named = Library::here(Some(Path::new("/nowhere")));
        assert_eq!(named, Library::Folder("/nowhere".into()));
        assert!(named.all().unwrap_err().to_string().contains("/nowhere"));
        // Tests run in the folder of their crate, which has no experiments.
        assert_eq!(Library::here(None), Library::BuiltIn);
    }
}
