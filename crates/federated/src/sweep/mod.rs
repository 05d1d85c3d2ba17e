//! Sweeps: every combination of some settings, each with several seeds, and their joint results.
//!
//! | module        | what it is                                                              |
//! |---------------|-------------------------------------------------------------------------|
//! | [`grid`]      | the combinations                                                        |
//! | [`design`]    | the same, each planned before any work                                  |
//! | [`estimate`]  | how sure a mean over seeds is                                           |
//! | [`summary`]   | the runs of one combination together                                    |
//! | [`choice`]    | the run that is kept, and the price of having looked at all (rule P15)  |
//!
//! What shows them is in the crate `report`.

pub mod choice;
pub mod design;
pub mod estimate;
pub mod grid;
pub mod summary;

use std::path::Path;

use lm::{folder::WEIGHTS_FILE, kernels::KernelPath};
use sha2::{Digest, Sha256};

use crate::{
    config::{Config, ConfigError},
    home::MODEL_FOLDER,
    metrics::{METRICS_FILE, Metrics},
};
use durable::files::{self, FileError};

/// The settings of the run with the so many-th seed: the first is the settings as they stand. The crowd stays the same, and a
/// run whose noise is secret stays secret.
#[must_use]
pub fn with_seed(config: &Config, number: u64) -> Config {
    let mut config = config.clone();
    config.seed = config.seed.wrapping_add(number);
    config.noise_seed = config.noise_seed.map(|seed| seed.wrapping_add(number));
    config
}

/// Whether the run of a folder is done: its model is what is written last.
#[must_use]
pub fn is_finished(folder: &Path) -> bool {
    folder.join(MODEL_FOLDER).join(WEIGHTS_FILE).is_file()
}

/// The evaluations of a run.
///
/// # Errors
/// When they cannot be read.
pub fn metrics(folder: &Path) -> Result<Vec<Metrics>, FileError> {
    files::read_lines(&folder.join(METRICS_FILE))
}

/// A name for the folder of runs that have all settings in common: the same settings, the same name.
///
/// # Errors
/// When the settings have a path that is not text.
pub fn fingerprint(config: &Config, kernels: KernelPath) -> Result<String, ConfigError> {
    let digest = Sha256::digest(format!("{}\n{}", kernels.name(), config.to_toml()?));
    Ok(digest[..4].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A name as a folder can have it.
#[must_use]
pub fn folder_name(name: &str) -> String {
    let mut folder = String::new();
    for c in name.chars() {
        let kept = c.is_ascii_alphanumeric() || matches!(c, '.' | '=' | '+' | '-' | '_');
        if kept {
            folder.push(c);
        } else if !folder.is_empty() && !folder.ends_with('_') {
            folder.push('_');
        }
    }
    let folder = folder.trim_end_matches('_').trim_start_matches('.').to_owned();
    if folder.is_empty() { "run".to_owned() } else { folder }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Document, FIRST_RUN};

    #[test]
    fn the_first_seed_is_the_settings_as_they_stand() {
        let config = Document::new(FIRST_RUN, &["seed=5".to_owned()]).unwrap().config().unwrap();
        assert_eq!(with_seed(&config, 0), config);
        let third = with_seed(&config, 2);
        assert_eq!((third.seed, third.noise_seed), (7, config.noise_seed.map(|s| s + 2)));
        assert_eq!(third.data, config.data);
        let secret = Config { noise_seed: None, ..config };
        assert_eq!(with_seed(&secret, 2).noise_seed, None);
    }

    #[test]
    fn other_settings_have_another_fingerprint() {
        let config = Document::new(FIRST_RUN, &[]).unwrap().config().unwrap();
        let of = |config: &Config| fingerprint(config, KernelPath::best()).unwrap();
        let name = of(&config);
        assert_eq!((name.len(), &name), (8, &of(&config.clone())));
        assert_ne!(name, of(&with_seed(&config, 1)));
    }

    #[test]
    fn names_become_folders() {
        assert_eq!(folder_name("clip.norm=0.5, server.optimizer=adam"), "clip.norm=0.5_server.optimizer=adam");
        assert_eq!(folder_name("C = 100"), "C_=_100");
        assert_eq!(folder_name("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!([folder_name("..."), folder_name("é")], ["run", "run"]);
    }
}
