//! The commands that building and testing need, and how to get those that are missing as Debian packages.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A command that must be on the path, and the packages that bring it.
pub(crate) struct Needed {
    pub(crate) command: &'static str,
    pub(crate) packages: &'static [&'static str],
}

/// Makes sure that every needed command is there: installs as root, otherwise says what to run and fails.
pub(crate) fn install_missing(needed: &[Needed]) -> Result<()> {
    let missing: Vec<&Needed> = needed.iter().filter(|n| !on_path(n.command)).collect();
    if missing.is_empty() {
        let commands: Vec<&str> = needed.iter().map(|n| n.command).collect();
        println!("all there: {}", commands.join(", "));
        return Ok(());
    }
    let commands: Vec<&str> = missing.iter().map(|n| n.command).collect();
    if !on_path("apt-get") {
        bail!("missing: {}; there is no apt-get here, so install them the way your system does", commands.join(", "));
    }
    let packages: Vec<&str> = missing.iter().flat_map(|n| n.packages).copied().collect();
    if !is_root() {
        bail!("missing: {}; run\n    {}", commands.join(", "), line_to_run(&packages));
    }
    println!("missing: {}; installing {}", commands.join(", "), packages.join(", "));
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

fn on_path(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(command).is_file())
}

fn is_root() -> bool {
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
    fn the_line_to_run_names_every_package() {
        let line = line_to_run(&["gcc", "libc6-dev"]);
        assert_eq!(line, "sudo apt-get update && sudo apt-get install -y --no-install-recommends gcc libc6-dev");
    }
}
