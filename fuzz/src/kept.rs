//! What every crate with fuzz targets tests: that each kept input goes through its target, and that seeds are what they are called.
//!
//! Included by `tests/fuzz.rs` of those crates.

use std::{collections::BTreeSet, fs, path::PathBuf};

/// A target by the name of its folder in `fuzz/corpus`.
type Named = (&'static str, fn(&[u8]) -> bool);
/// Inputs by their names.
type Inputs = Vec<(String, Vec<u8>)>;

/// The targets of a crate.
pub(crate) struct Kept {
    /// All of them.
    pub(crate) targets: &'static [Named],
    /// Which folders are this crate's.
    pub(crate) is_ours: fn(&str) -> bool,
    /// The seeds of a target by their names; those whose names begin with `taken` are taken.
    pub(crate) seeds: fn(&str) -> Inputs,
}

impl Kept {
    /// Every target has a folder and every folder a target.
    pub(crate) fn check_folders(&self) {
        let names = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let folders: BTreeSet<String> = names.filter(|name| (self.is_ours)(name)).collect();
        assert_eq!(folders, self.targets.iter().map(|(name, _)| (*name).to_owned()).collect());
    }

    /// Every kept input goes through its target.
    #[allow(clippy::print_stdout, reason = "shown where the target panics")]
    pub(crate) fn run_all(&self) {
        for (name, target) in self.targets {
            for entry in fs::read_dir(corpus().join(name)).unwrap() {
                let path = entry.unwrap().path();
                println!("{}", path.display());
                target(&fs::read(path).unwrap());
            }
        }
    }

    /// Seeds are taken and refused as their names say.
    pub(crate) fn check_names(&self) {
        for (target, run) in self.targets {
            for (name, bytes) in (self.seeds)(target) {
                assert_eq!(run(&bytes), name.starts_with("taken"), "{target}/{name}");
            }
        }
    }

    /// The kept seeds are those of this version; they are written with `SEEDS=overwrite`.
    pub(crate) fn check_seeds(&self) {
        let overwrite = std::env::var("SEEDS").is_ok_and(|v| v == "overwrite");
        for (target, _) in self.targets {
            let folder = corpus().join(target);
            for (name, bytes) in (self.seeds)(target) {
                if overwrite {
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(folder.join(&name), &bytes).unwrap();
                }
                let kept = fs::read(folder.join(&name)).unwrap_or_default();
                assert!(kept == bytes, "{target}/{name} is out of date: run this test with SEEDS=overwrite");
            }
        }
    }
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}
