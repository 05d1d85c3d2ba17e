//! promtool, which checks metrics and alert rules: brought from Debian's package of Prometheus, which is not installed. On a machine with systemd that would start a
//! server.
//!
//! Where it is on the path, that one is used. Where there is neither, metrics are not checked by it, which is said and is no failure.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{packages, root};

/// Debian's package with promtool.
const PACKAGE: &str = "prometheus";

/// Brings it into `target/`, if it is nowhere.
pub(crate) fn install() -> Result<()> {
    if packages::on_path("promtool") {
        println!("all there: promtool");
        return Ok(());
    }
    let program = folder().join("usr/bin/promtool");
    if program.is_file() {
        println!("all there: promtool in {}", folder().display());
        return Ok(());
    }
    if !packages::on_path("apt-get") || !packages::on_path("dpkg-deb") {
        println!("metrics and alert rules are not checked: there is no promtool, and no apt-get to bring it");
        return Ok(());
    }
    println!("missing: promtool; unpacking Debian's {PACKAGE} into {}", folder().display());
    std::fs::create_dir_all(folder()).context("cannot make the folder of promtool")?;
    // Without root the list of packages is as it is.
    if packages::is_root() {
        _ = Command::new("apt-get").args(["update", "-qq"]).status();
    }
    let unpack = format!(
        "apt-get download -qq {PACKAGE} && dpkg-deb --fsys-tarfile {PACKAGE}_*.deb | tar -x ./usr/bin/promtool; rm -f {PACKAGE}_*.deb"
    );
    let done = Command::new("sh").args(["-c", &unpack]).current_dir(folder()).status();
    if !program.is_file() {
        println!("metrics and alert rules are not checked: promtool could not be brought: {done:?}");
    }
    Ok(())
}

/// Where tests look for it (`crates/cli/tests/watch.rs`).
fn folder() -> PathBuf {
    root().join("target").join("promtool")
}
