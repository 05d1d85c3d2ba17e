//! `cargo xtask dist --test`: the files of a release, as those who get them find them.
//!
//! Archive and package are unpacked, and the program in them trains and serves: here, or under the emulator of its machine. The package for
//! this machine is installed into clean Debian systems, an old one and the newest, and removed again. What is shorter than that runs with
//! every test, on the program that the tests have.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::building::{run, target_folder};
use super::digest::sha256;
use super::machine::Machine;
use super::package::{VERSION, said_by};
use super::{folder, names, read};
use crate::packages::{self, Needed};

/// What makes Debian systems; they are made as root.
const NEEDED: [Needed; 3] = [
    Needed::command("mmdebstrap", &["mmdebstrap"]),
    Needed::command("unshare", &["util-linux"]),
    Needed::command("dpkg-deb", &["dpkg"]),
];

/// The oldest that mirrors have, and the newest that is stable.
const SUITES: [&str; 2] = ["bullseye", "trixie"];

/// What the checks need beside the package, which brings what it needs: a service manager, and what shows manuals.
const INCLUDE: &str = "--include=adduser,man-db,systemd";

const TRY: &str = include_str!("try.sh");
const CLEAN: &str = include_str!("clean.sh");

/// Tries the files of each machine.
pub(crate) fn test(machines: &[&'static Machine]) -> Result<()> {
    packages::install_missing(&NEEDED)?;
    sums_match(&folder())?;
    for machine in machines {
        println!("\n=== {} ===", machine.triple);
        machine.prepare()?;
        let program = unpacked(machine, &folder())?;
        trains_and_serves(machine, &program)?;
    }
    for machine in machines.iter().filter(|machine| machine.name == std::env::consts::ARCH) {
        for suite in SUITES {
            println!("\n=== Debian {suite} ===");
            in_clean_system(machine, suite)?;
        }
    }
    println!("\nall of it holds");
    Ok(())
}

/// Each file has the checksum that `SHA256SUMS` says, and none is without.
pub(crate) fn sums_match(folder: &Path) -> Result<()> {
    let sums = String::from_utf8(read(folder, "SHA256SUMS")?).context("SHA256SUMS")?;
    let mut listed = Vec::new();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").with_context(|| format!("SHA256SUMS has a line `{line}`"))?;
        if sha256(&read(folder, name)?) != sum {
            bail!("{name} is not the file that SHA256SUMS was written for");
        }
        listed.push(name);
    }
    for entry in std::fs::read_dir(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "SHA256SUMS" && !listed.contains(&name.as_str()) {
            bail!("{name} has no checksum in SHA256SUMS");
        }
    }
    Ok(())
}

/// Unpacks archive and package with the tools of those who get them; both must have the program that the list of contents is about. Gives
/// that of the archive.
pub(crate) fn unpacked(machine: &Machine, folder: &Path) -> Result<PathBuf> {
    let [archive, package, list] = names(machine).map(|name| folder.join(name));
    let to = scratch(&format!("unpacked-{}", machine.name))?;
    run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&to))?;
    let top = to.join(format!("keyhush-{VERSION}-{}-linux", machine.name));
    let program = top.join("keyhush");
    let bytes = std::fs::read(&program).with_context(|| format!("{} has no program", archive.display()))?;
    let contents: Value = serde_json::from_slice(&std::fs::read(&list)?).with_context(|| list.display().to_string())?;
    let listed = contents["metadata"]["component"]["hashes"][0]["content"].as_str().unwrap_or_default();
    if listed != sha256(&bytes) {
        bail!("{} is about another program than that of {}", list.display(), archive.display());
    }
    for name in [
        "README.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "THIRD-PARTY.txt",
        "man/man1/keyhush-serve.1",
        "completions/_keyhush",
    ] {
        if std::fs::metadata(top.join(name)).map_or(0, |file| file.len()) == 0 {
            bail!("{} has no {name}, or an empty one", archive.display());
        }
    }
    said_by(machine.command(&program).arg("--version"))?;
    let debian = to.join("debian");
    match Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&debian).status() {
        Ok(status) if status.success() => {}
        Ok(status) => bail!("dpkg-deb --extract {}: {status}", package.display()),
        Err(error) => {
            println!("{} was not unpacked: there is no dpkg-deb: {error}", package.display());
            return Ok(program);
        }
    }
    if std::fs::read(debian.join("usr/bin/keyhush"))? != bytes {
        bail!("{} has another program than {}", package.display(), archive.display());
    }
    Ok(program)
}

/// What [`TRY`] does, with the program of a machine; an emulator's is behind a script of its name.
fn trains_and_serves(machine: &Machine, program: &Path) -> Result<()> {
    let to = scratch(&format!("tried-{}", machine.name))?;
    let (bin, work, script) = (to.join("bin"), to.join("work"), to.join("try.sh"));
    std::fs::create_dir_all(&bin)?;
    std::fs::create_dir_all(&work)?;
    std::fs::write(&script, TRY)?;
    let words = machine.runner.iter().map(|word| format!("{word} ")).collect::<String>();
    let behind = bin.join("keyhush");
    std::fs::write(&behind, format!("#!/bin/sh\nexec {words}'{}' \"$@\"\n", program.display()))?;
    std::fs::set_permissions(&behind, std::fs::Permissions::from_mode(0o755))?;
    let mut path = vec![bin];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    run(Command::new("sh").arg(&script).arg(&work).env("PATH", std::env::join_paths(path)?).env("HOME", &work))
}

/// Makes a clean Debian system and runs [`CLEAN`] in it.
fn in_clean_system(machine: &Machine, suite: &str) -> Result<()> {
    if said_by(Command::new("id").arg("-u"))?.trim_ascii() != b"0" {
        bail!(
            "the package is tried in a clean Debian system, which only root can make and enter: run\n    sudo -E cargo xtask dist --test"
        );
    }
    let to = scratch(&format!("debian-{suite}"))?;
    let system = to.join("root");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", INCLUDE, suite]).arg(&system).args(mirror());
    run(&mut make)?;
    std::fs::write(system.join("keyhush.deb"), read(&folder(), &names(machine)[1])?)?;
    std::fs::write(system.join("try.sh"), TRY)?;
    std::fs::write(system.join("clean.sh"), CLEAN)?;
    // As installers write it; without it nothing is called localhost.
    std::fs::write(system.join("etc").join("hosts"), "127.0.0.1 localhost\n")?;
    // Its processes are its own, and end with it.
    let enter = "mount -t proc proc \"$1/proc\" && exec chroot \"$1\" sh /clean.sh";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "sh"]).arg(&system);
    inside.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8").env_remove("HOME");
    inside.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    run(&mut inside)?;
    std::fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))
}

/// The mirror that this machine takes its own packages from, if it is a Debian.
fn mirror() -> Option<String> {
    let asked = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian"];
    let out = Command::new("apt-get").args(asked).output().ok().filter(|out| out.status.success())?;
    String::from_utf8(out.stdout).ok()?.lines().next().map(str::to_owned)
}

/// An empty folder in the target folder.
fn scratch(name: &str) -> Result<PathBuf> {
    let folder = target_folder().join("dist-scratch").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::files::Files;
    use crate::dist::package::release;

    #[test]
    fn a_file_that_was_changed_or_has_no_checksum_is_found() {
        let folder = std::env::temp_dir().join(format!("keyhush-sums-{}", std::process::id()));
        let mut files = Files::default();
        files.add("a.deb", "one");
        files.add("b.deb", "two");
        release(&files, &folder).unwrap();
        let good = sums_match(&folder);
        std::fs::write(folder.join("c.deb"), "three").unwrap();
        let unlisted = sums_match(&folder).map_err(|error| error.to_string());
        std::fs::remove_file(folder.join("c.deb")).unwrap();
        std::fs::write(folder.join("b.deb"), "Two").unwrap();
        let changed = sums_match(&folder).map_err(|error| error.to_string());
        std::fs::remove_dir_all(&folder).unwrap();
        good.unwrap();
        assert!(unlisted.unwrap_err().starts_with("c.deb has no checksum"));
        assert!(changed.unwrap_err().starts_with("b.deb is not the file"));
    }

    /// Shell accepts the scripts that are run on systems of others.
    #[test]
    fn scripts_are_shell() {
        let scripts =
            [TRY, CLEAN, include_str!("debian/postinst"), include_str!("debian/prerm"), include_str!("debian/postrm")];
        for script in scripts {
            assert!(script.starts_with("#!/bin/sh\n") && script.contains("\nset -e"), "{script}");
            let checked = Command::new("sh").args(["-n", "-c", script]).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
        assert!(!Command::new("sh").args(["-n", "-c", "if true"]).output().unwrap().status.success());
    }
}
