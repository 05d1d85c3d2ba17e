//! NVRTC, which compiles CUDA kernels and needs no card: brought from PyPI, so that every kernel is compiled wherever tests run.
//!
//! Where CUDA is installed, its own is used. Where there is neither pip nor a network, kernels are not compiled, which is said and is no
//! failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::root;

/// The version that the bindings of `crates/cuda` are of.
const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";
/// Where libraries are looked for first.
pub(crate) const VARIABLE: &str = "LD_LIBRARY_PATH";
/// How the names of its files begin.
const LIBRARY: &str = "libnvrtc.so";

/// Where the driver of NVIDIA's cards says its version.
const DRIVER: &str = "/proc/driver/nvidia/version";

/// Brings it into `target/`, if it is nowhere; says whether tests that need a card will run.
pub(crate) fn install() -> Result<()> {
    if !Path::new(DRIVER).exists() {
        println!("no NVIDIA driver here: tests that need a GPU are skipped");
    }
    if is_installed() {
        println!("all there: {LIBRARY}");
        return Ok(());
    }
    let to = folder();
    if library_under(&to).is_some() {
        println!("all there: {PACKAGE} in {}", to.display());
        return Ok(());
    }
    println!("missing: {LIBRARY}; installing {PACKAGE} into {}", to.display());
    let pip = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"])
        .arg(&to)
        .arg(PACKAGE)
        .status();
    match pip {
        Ok(status) if status.success() && library_under(&to).is_some() => {}
        Ok(status) => println!("CUDA kernels are not compiled: python3 -m pip install {PACKAGE}: {status}"),
        Err(error) => println!("CUDA kernels are not compiled: there is no python3 to bring {PACKAGE}: {error}"),
    }
    Ok(())
}

/// What [`VARIABLE`] must be for tests to find what was brought; none where nothing was, or nothing need be.
pub(crate) fn search_path() -> Option<std::ffi::OsString> {
    if is_installed() {
        return None;
    }
    let own = library_under(&folder())?;
    let before = std::env::var_os(VARIABLE).unwrap_or_default();
    std::env::join_paths([own].into_iter().chain(std::env::split_paths(&before))).ok()
}

fn folder() -> PathBuf {
    root().join("target").join("nvrtc")
}

/// Whether this machine has CUDA's own, where libraries are looked for.
fn is_installed() -> bool {
    let named = std::env::var_os(VARIABLE).unwrap_or_default();
    let cached = Command::new("ldconfig").arg("-p").output();
    std::env::split_paths(&named).any(|folder| has_library(&folder))
        || cached.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(LIBRARY))
}

/// The folder of the library among those of PyPI's packages: `nvidia/cu13/lib` or `nvidia/cuda_nvrtc/lib`.
fn library_under(packages: &Path) -> Option<PathBuf> {
    let kinds = std::fs::read_dir(packages.join("nvidia")).into_iter().flatten().flatten();
    kinds.map(|kind| kind.path().join("lib")).find(|folder| has_library(folder))
}

fn has_library(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with(LIBRARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_where_the_package_puts_it_and_not_by_another_name() {
        let packages = std::env::temp_dir().join(format!("keyhush-nvrtc-{}", std::process::id()));
        let folder = packages.join("nvidia").join("cu13").join("lib");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libnvrtc-builtins.so.13.0"), "").unwrap();
        let before = library_under(&packages);
        std::fs::write(folder.join("libnvrtc.so.13"), "").unwrap();
        let after = library_under(&packages);
        std::fs::remove_dir_all(&packages).unwrap();
        assert_eq!((before, after), (None, Some(folder)));
        assert_eq!(library_under(&packages), None, "a folder that is not there has nothing");
    }
}
