//! The commands and libraries that building and testing need, and how to get those that are missing as Debian packages.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Something that must be there, and the packages that bring it.
pub(crate) struct Needed {
    pub(crate) what: What,
    pub(crate) packages: &'static [&'static str],
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    /// A command on the path.
    Command(&'static str),
    /// libclang, where bindgen looks for it: where `LIBCLANG_PATH` says, in LLVM's own folders, in the system's.
    LibClang,
}

impl Needed {
    pub(crate) const fn command(name: &'static str, packages: &'static [&'static str]) -> Self {
        Self { what: What::Command(name), packages }
    }
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Command(name) => name,
            Self::LibClang => "libclang",
        }
    }

    fn is_there(self) -> bool {
        match self {
            Self::Command(name) => on_path(name),
            Self::LibClang => {
                std::env::var_os("LIBCLANG_PATH").is_some()
                    || has_libclang(&["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Path::new))
            }
        }
    }
}

/// Makes sure that all that is needed is there: installs as root, otherwise says what to run and fails.
pub(crate) fn install_missing(needed: &[Needed]) -> Result<()> {
    let names = |needed: &[&Needed]| needed.iter().map(|n| n.what.name()).collect::<Vec<_>>().join(", ");
    let missing: Vec<&Needed> = needed.iter().filter(|n| !n.what.is_there()).collect();
    if missing.is_empty() {
        println!("all there: {}", names(&needed.iter().collect::<Vec<_>>()));
        return Ok(());
    }
    let missing_names = names(&missing);
    if !on_path("apt-get") {
        bail!("missing: {missing_names}; there is no apt-get here, so install them the way your system does");
    }
    let packages: Vec<&str> = missing.iter().flat_map(|n| n.packages).copied().collect();
    if !is_root() {
        bail!("missing: {missing_names}; run\n    {}", line_to_run(&packages));
    }
    println!("missing: {missing_names}; installing {}", packages.join(", "));
    apt_get(&["update"])?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], packages.as_slice()].concat())
}

/// What a person who is not root must run.
fn line_to_run(packages: &[&str]) -> String {
    format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {}", packages.join(" "))
}

fn apt_get(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").status();
    let status = status.context("cannot start apt-get")?;
    if !status.success() {
        bail!("apt-get {}: {status}", args.join(" "));
    }
    Ok(())
}

pub(crate) fn on_path(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(command).is_file())
}

/// Whether one of the folders under these, or its folder `lib`, has libclang as it comes with its headers: under this name.
fn has_libclang(parents: &[&Path]) -> bool {
    parents.iter().any(|parent| {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
        let folders = entries.flat_map(|path| [path.join("lib"), path]).chain([parent.to_path_buf()]);
        folders.into_iter().any(|folder| folder.join("libclang.so").is_file())
    })
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_and_misses_what_is_not() {
        assert!(on_path("sh"));
        assert!(!on_path("a-command-that-nobody-has"));
    }

    #[test]
    fn libclang_is_found_in_llvms_own_folder_and_no_other_library_is_taken_for_it() {
        let parent = std::env::temp_dir().join(format!("keyhush-libclang-{}", std::process::id()));
        let folder = parent.join("llvm-14").join("lib");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libclang-cpp.so"), "").unwrap();
        let before = has_libclang(&[&parent]);
        std::fs::write(folder.join("libclang.so"), "").unwrap();
        let after = has_libclang(&[&parent]);
        std::fs::remove_dir_all(&parent).unwrap();
        assert!(!before && after);
        assert!(!has_libclang(&[&parent]), "a folder that is not there has nothing");
    }

    #[test]
    fn the_line_to_run_names_every_package() {
        let line = line_to_run(&["gcc", "libc6-dev"]);
        assert_eq!(line, "sudo apt-get update && sudo apt-get install -y --no-install-recommends gcc libc6-dev");
    }
}
