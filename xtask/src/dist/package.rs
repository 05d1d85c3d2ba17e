//! The files of a release for one machine: an archive for any Linux, a package for Debian and its kin, and the list of what is in the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::commit::Commit;
use super::deb::{MAINTAINER, Package};
use super::digest::sha256;
use super::files::{Files, gzip};
use super::machine::Machine;
use super::sbom::BuiltBy;
use super::{crates, elf, notice, sbom};
use crate::root;

/// The version that is released.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where each shell looks for completions, in Debian and in the archive.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/keyhush", "keyhush.bash"),
    ("zsh", "usr/share/zsh/vendor-completions/_keyhush", "_keyhush"),
    ("fish", "usr/share/fish/vendor_completions.d/keyhush.fish", "keyhush.fish"),
];

/// What dpkg runs.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("debian/postinst")),
    ("prerm", include_str!("debian/prerm")),
    ("postrm", include_str!("debian/postrm")),
];

/// Where systemd looks for what packages bring.
const UNITS: &str = "usr/lib/systemd/system";

/// What the service reads, and its administrator writes.
const CONFIGURATION: &str = "etc/keyhush/serve.conf";

/// All that a release for one machine is made of.
pub(crate) struct Parts<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) commit: &'a Commit,
    program: Vec<u8>,
    /// `keyhush.1` and so on.
    man: Files,
    /// For each of [`SHELLS`].
    completions: [Vec<u8>; 3],
    third_party: String,
    sbom: String,
}

impl<'a> Parts<'a> {
    /// Asks the program itself for its pages and completions, and the sources for the rest. `scratch` is a folder that may be written.
    pub(crate) fn gather(
        machine: &'a Machine,
        program: &Path,
        commit: &'a Commit,
        by: &BuiltBy<'_>,
        scratch: &Path,
    ) -> Result<Self> {
        let crates = crates::of(machine.triple)?;
        let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let asked = |words: &[&str]| said_by(machine.command(program).args(words));
        let said = String::from_utf8(asked(&["--version"])?)?;
        if !said.contains(VERSION) {
            bail!("{} says it is `{}`, and this is {VERSION}", program.display(), said.trim_end());
        }
        Ok(Self {
            sbom: sbom::write(machine, &bytes, &crates, commit, by)?,
            third_party: notice::write(&crates, by.rust)?,
            man: man_pages(machine, program, scratch)?,
            completions: [
                asked(&["generate", "completions", SHELLS[0].0])?,
                asked(&["generate", "completions", SHELLS[1].0])?,
                asked(&["generate", "completions", SHELLS[2].0])?,
            ],
            program: bytes,
            machine,
            commit,
        })
    }

    /// All files of the release for this machine, by their names.
    pub(crate) fn pack(&self) -> Result<Files> {
        let seconds = self.commit.seconds;
        let name = format!("keyhush-{VERSION}-{}-linux", self.machine.name);
        let mut packed = Files::default();
        packed.add(&format!("{name}.tar.gz"), self.archive()?.below(&name).tar_gz("", seconds)?);
        packed.add(&format!("{name}.cdx.json"), self.sbom.as_str());
        let libc = format!("{}.{}", elf::GLIBC.0, elf::GLIBC.1);
        let package = Package {
            version: VERSION,
            architecture: self.machine.debian,
            libc: &libc,
            files: self.debian()?,
            conffiles: &[CONFIGURATION],
            scripts: &SCRIPTS,
        };
        packed.add(&format!("keyhush_{VERSION}_{}.deb", self.machine.debian), package.write(seconds)?);
        Ok(packed)
    }

    /// What any Linux gets.
    fn archive(&self) -> Result<Files> {
        let mut files = Files::default();
        files.add_program("keyhush", self.program.as_slice());
        files.add("THIRD-PARTY.txt", self.third_party.as_str());
        for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            files.add(name, in_tree(name)?);
        }
        documents(|name, text| files.add(&format!("docs/{name}"), text))?;
        deployment(|name, text| files.add(&format!("deploy/{name}"), text))?;
        for (path, page) in self.man.iter() {
            files.add(&format!("man/man1/{path}"), page.bytes.as_slice());
        }
        for ((.., name), script) in SHELLS.iter().zip(&self.completions) {
            files.add(&format!("completions/{name}"), script.as_slice());
        }
        Ok(files)
    }

    /// In the form that Debian's tools read; people read ours.
    fn changelog(&self) -> String {
        let time = &self.commit.mail_time;
        format!("keyhush ({VERSION}) stable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {MAINTAINER}  {time}\n")
    }

    /// What Debian installs, where Debian wants it.
    fn debian(&self) -> Result<Files> {
        let documentation = "usr/share/doc/keyhush";
        let examples = format!("{documentation}/examples");
        let mut files = Files::default();
        files.add_program("usr/bin/keyhush", self.program.as_slice());
        files.add(CONFIGURATION, include_str!("debian/serve.conf"));
        files.add(&format!("{documentation}/copyright"), include_str!("debian/copyright"));
        files.add(&format!("{documentation}/changelog.gz"), gzip(self.changelog().as_bytes())?);
        files.add(&format!("{documentation}/CHANGELOG.md.gz"), gzip(&in_tree("CHANGELOG.md")?)?);
        files.add(&format!("{documentation}/README.md"), in_tree("README.md")?);
        files.add(&format!("{documentation}/THIRD-PARTY.txt.gz"), gzip(self.third_party.as_bytes())?);
        documents(|name, text| files.add(&format!("{documentation}/docs/{name}"), text))?;
        deployment(|name, text| {
            let is_unit = name.ends_with(".service") || name.ends_with(".timer");
            let folder = if is_unit { UNITS } else { &examples };
            files.add(&format!("{folder}/{name}"), text);
        })?;
        for (path, page) in self.man.iter() {
            files.add(&format!("usr/share/man/man1/{path}.gz"), gzip(&page.bytes)?);
        }
        for ((_, path, _), script) in SHELLS.iter().zip(&self.completions) {
            files.add(path, script.as_slice());
        }
        Ok(files)
    }
}

/// The pages of the program and of each of its commands.
fn man_pages(machine: &Machine, program: &Path, scratch: &Path) -> Result<Files> {
    let folder = scratch.join("man");
    let _ = std::fs::remove_dir_all(&folder);
    said_by(machine.command(program).args(["generate", "man"]).arg(&folder))?;
    let mut pages = Files::default();
    for path in listed(&folder)? {
        pages.add(&name_of(&path)?, std::fs::read(&path)?);
    }
    Ok(pages)
}

/// The pages of `docs/`, by name.
fn documents(mut each: impl FnMut(&str, Vec<u8>)) -> Result<()> {
    for path in listed(&root().join("docs"))? {
        let name = name_of(&path)?;
        if name.ends_with(".md") {
            each(&name, std::fs::read(&path)?);
        }
    }
    Ok(())
}

/// What `deploy/` has, by path, with its folders.
fn deployment(mut each: impl FnMut(&str, Vec<u8>)) -> Result<()> {
    let top = root().join("deploy");
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for path in listed(&folder)? {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&top).ok().and_then(Path::to_str);
            each(name.context("the names in deploy/ are text")?, std::fs::read(&path)?);
        }
    }
    Ok(())
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path()).collect())
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).with_context(|| format!("{} has no name that is text", path.display()))
}

fn in_tree(path: &str) -> Result<Vec<u8>> {
    std::fs::read(root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// What a command prints; it must end well.
pub(crate) fn said_by(command: &mut Command) -> Result<Vec<u8>> {
    let out = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !out.status.success() {
        bail!("{command:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(out.stdout)
}

/// Writes the files of a release into a folder, which has nothing else then, with their checksums.
pub(crate) fn release(packed: &Files, folder: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, file) in packed.iter().map(|(name, file)| (name, file.bytes.as_slice())) {
        std::fs::write(folder.join(name), file).with_context(|| format!("cannot write {name}"))?;
    }
    std::fs::write(folder.join("SHA256SUMS"), sums(packed)).context("cannot write SHA256SUMS")
}

/// As `sha256sum` prints and checks them.
pub(crate) fn sums(packed: &Files) -> String {
    packed.iter().map(|(name, file)| format!("{}  {name}\n", sha256(&file.bytes))).collect()
}
