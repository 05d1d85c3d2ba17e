//! `cargo xtask dist`: the files of a release, made from a commit; `docs/RELEASING.md` says how they are made and tried out.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::packages::{self, Needed};

mod again;
mod building;
mod commit;
mod crates;
mod deb;
mod digest;
mod elf;
mod files;
mod installed;
mod machine;
mod notice;
mod package;
mod sbom;

use commit::Commit;
use files::Files;
use machine::{MACHINES, Machine};
use package::{Parts, VERSION};
use sbom::BuiltBy;

/// What the words after `dist` ask for.
pub(crate) struct Asked {
    machines: Vec<&'static Machine>,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// The files of a release.
    Files,
    /// The files, and once more in another folder, and whether they are the same.
    Again,
    /// Whether the files that were made install and run.
    Test,
    /// Whether the program that the tests have can be packed.
    Pack,
}

impl Asked {
    /// Nothing where the words have no meaning.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (mut machines, mut what) = (Vec::new(), What::Files);
        for word in words {
            match *word {
                "--check-reproducible" if what == What::Files => what = What::Again,
                "--test" if what == What::Files => what = What::Test,
                "--pack" if words.len() == 1 => what = What::Pack,
                name => machines.push(
                    Machine::named(name).filter(|new| !machines.iter().any(|old: &&Machine| old.name == new.name))?,
                ),
            }
        }
        if machines.is_empty() {
            machines = MACHINES.iter().collect();
        }
        Some(Self { machines, what })
    }
}

pub(crate) fn run(asked: &Asked) -> Result<()> {
    match asked.what {
        What::Files => make(&asked.machines),
        What::Again => again::check(&asked.machines),
        What::Test => installed::test(&asked.machines),
        What::Pack => try_out(),
    }
}

/// Where the files of a release are. (`target/dist` is cargo's, for what is built with that profile.)
fn folder() -> PathBuf {
    building::target_folder().join("packages")
}

/// Builds and packs for each machine, and says what came out.
fn make(machines: &[&'static Machine]) -> Result<()> {
    let commit = Commit::checked_out()?;
    let mut packed = Files::default();
    for machine in machines {
        println!("\n=== {}, from commit {} ===", machine.triple, commit.id);
        let versions = building::prepare(machine)?;
        let program = building::build(machine, &commit)?;
        let by = BuiltBy { rust: &versions.rust, zig: &versions.zig };
        packed.take(
            Parts::gather(machine, &program, &commit, &by, &building::target_folder().join("dist-scratch"))?.pack()?,
        );
    }
    let folder = folder();
    package::release(&packed, &folder)?;
    println!("\nin {}:", folder.display());
    for (name, file) in packed.iter() {
        println!("{:>12} bytes  {name}", file.bytes.len());
    }
    print!("{}", package::sums(&packed));
    Ok(())
}

/// With every test: everything but the compiler's part, with the program that the tests have. What is packed is read again by tar and dpkg.
pub(crate) fn try_out() -> Result<()> {
    packages::install_missing(&[Needed::command("git", &["git"]), Needed::command("tar", &["tar"])])?;
    let Some(machine) = Machine::named(std::env::consts::ARCH) else {
        println!("not tried: there are no releases for {}", std::env::consts::ARCH);
        return Ok(());
    };
    let target = building::target_folder();
    let (program, scratch) = (target.join("ci").join("keyhush"), target.join("dist-scratch"));
    if !program.is_file() {
        bail!("there is no {}: the step \"build\" makes it", program.display());
    }
    let here = machine.itself();
    let by = BuiltBy { rust: "0.0.0", zig: "0.0.0" };
    let packed = Parts::gather(&here, &program, &Commit::of_head()?, &by, &scratch)?.pack()?;
    let to = scratch.join("packages");
    package::release(&packed, &to)?;
    let names: Vec<&str> = packed.iter().map(|(name, _)| name).collect();
    installed::sums_match(&to)?;
    installed::unpacked(&here, &to)?;
    println!("packed and read again: {}", names.join(", "));
    Ok(())
}

/// The files of a release for a machine in a folder: archive, package of Debian, list of contents.
fn names(machine: &Machine) -> [String; 3] {
    let start = format!("keyhush-{VERSION}-{}-linux", machine.name);
    [format!("{start}.tar.gz"), format!("keyhush_{VERSION}_{}.deb", machine.debian), format!("{start}.cdx.json")]
}

/// Reads one of them.
fn read(folder: &Path, name: &str) -> Result<Vec<u8>> {
    let path = folder.join(name);
    std::fs::read(&path).with_context(|| format!("cannot read {}: make it with `cargo xtask dist`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Option<(Vec<&'static str>, What)> {
        Asked::parse(words).map(|asked| (asked.machines.iter().map(|machine| machine.name).collect(), asked.what))
    }

    #[test]
    fn words_ask_for_machines_and_for_one_thing() {
        assert_eq!(parsed(&[]), Some((vec!["x86_64", "aarch64"], What::Files)));
        assert_eq!(parsed(&["aarch64"]), Some((vec!["aarch64"], What::Files)));
        assert_eq!(parsed(&["--check-reproducible", "x86_64"]), Some((vec!["x86_64"], What::Again)));
        assert_eq!(parsed(&["--test"]), Some((vec!["x86_64", "aarch64"], What::Test)));
        assert_eq!(parsed(&["--pack"]).map(|(_, what)| what), Some(What::Pack));
        for evil in [
            &["--tests"][..],
            &["--pack", "aarch64"],
            &["riscv"],
            &["--test", "--check-reproducible"],
            &["x86_64", "x86_64"],
        ] {
            assert_eq!(parsed(evil), None, "{evil:?}");
        }
    }
}
