//! `cargo xtask dist --check-reproducible`: a release is made here and once more elsewhere, and must be the same to the byte.
//!
//! Elsewhere is a fresh clone of the commit in another folder, with another target folder, other folders for the sources of crates and for
//! what zig keeps, and this program compiled again. The compilers are the same, and so are the downloaded crates, whose checksums are in
//! `Cargo.lock`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::building::run;
use super::machine::Machine;
use super::{digest::sha256, folder, make, names, read};
use crate::root;

/// Makes the files twice, and compares them.
pub(crate) fn check(machines: &[&'static Machine]) -> Result<()> {
    make(machines)?;
    let elsewhere = std::env::temp_dir().join(format!("keyhush-built-again-{}", std::process::id()));
    println!("\n=== once more, in {} ===", elsewhere.display());
    let made = make_in(&elsewhere, machines);
    let compared = made.and_then(|there| compare(machines, &folder(), &there));
    // Gigabytes, whatever came of it.
    std::fs::remove_dir_all(&elsewhere).with_context(|| format!("cannot remove {}", elsewhere.display()))?;
    compared
}

/// Makes the files in a clone; gives their folder.
fn make_in(elsewhere: &Path, machines: &[&'static Machine]) -> Result<PathBuf> {
    let clone = elsewhere.join("another-depth").join("source");
    run(Command::new("git").args(["clone", "--quiet"]).arg(root()).arg(&clone))?;
    let home = elsewhere.join("cargo");
    borrow_downloads(&home)?;
    let target = elsewhere.join("built");
    let mut command = crate::step::cargo();
    command.args(["xtask", "dist"]).args(machines.iter().map(|machine| machine.name));
    command.current_dir(&clone).env_remove("CARGO_MANIFEST_DIR");
    command.env("CARGO_HOME", &home).env("CARGO_TARGET_DIR", &target);
    command
        .env("CARGO_ZIGBUILD_CACHE_DIR", elsewhere.join("zigbuild"))
        .env("ZIG_GLOBAL_CACHE_DIR", elsewhere.join("zig"));
    run(&mut command)?;
    Ok(target.join("packages"))
}

/// A home of cargo with the index and the downloads of this one, which cargo unpacks again, and with its settings.
fn borrow_downloads(home: &Path) -> Result<()> {
    let this = super::building::cargo_home()?;
    std::fs::create_dir_all(home.join("registry")).with_context(|| format!("cannot create {}", home.display()))?;
    for name in ["registry/index", "registry/cache", "config.toml"] {
        if this.join(name).exists() {
            symlink(this.join(name), home.join(name)).with_context(|| format!("cannot link {name}"))?;
        }
    }
    Ok(())
}

fn compare(machines: &[&'static Machine], here: &Path, there: &Path) -> Result<()> {
    let mut different = Vec::new();
    for name in machines.iter().flat_map(|machine| names(machine)) {
        let (first, second) = (sha256(&read(here, &name)?), sha256(&read(there, &name)?));
        println!("{}  {first}  {second}  {name}", if first == second { "same" } else { "DIFFERENT" });
        if first != second {
            different.push(name);
        }
    }
    if !different.is_empty() {
        bail!(
            "two builds of the same commit differ in {}: something of the machine, the folder or the time is in them",
            different.join(", ")
        );
    }
    println!("two builds in two folders gave the same bytes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::machine::MACHINES;

    #[test]
    fn one_byte_of_difference_is_found_and_named() {
        let machine = &MACHINES[0];
        let folder = std::env::temp_dir().join(format!("keyhush-again-{}", std::process::id()));
        let [here, there] = ["here", "there"].map(|name| folder.join(name));
        for (at, name) in [&here, &there].into_iter().flat_map(|at| names(machine).map(|name| (at, name))) {
            std::fs::create_dir_all(at).unwrap();
            std::fs::write(at.join(name), "same").unwrap();
        }
        let same = compare(&[machine], &here, &there);
        std::fs::write(there.join(&names(machine)[1]), "Same").unwrap();
        let other = compare(&[machine], &here, &there);
        std::fs::remove_file(there.join(&names(machine)[1])).unwrap();
        let missing = compare(&[machine], &here, &there);
        std::fs::remove_dir_all(&folder).unwrap();
        same.unwrap();
        assert!(other.unwrap_err().to_string().contains(&names(machine)[1]));
        assert!(missing.is_err());
    }
}
