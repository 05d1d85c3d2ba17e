//! Builds the program for a machine, so that the same commit gives the same bytes in whatever folder it lies.
//!
//! zig links it: its compiler of C brings the symbols of every version of glibc and the C library's headers of every machine, so that no
//! old system is needed to build for one. Paths of the source, of the crates and of the target folder are renamed in all that the compilers
//! write down. `docs/RELEASING.md` says why the program is not linked statically.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::commit::Commit;
use super::crates::FEATURES;
use super::elf;
use super::machine::Machine;
use crate::packages::{self, Needed};
use crate::root;
use crate::step::cargo;

/// Python's pip brings the linker. The rest is needed to build anything.
const NEEDED: [Needed; 4] = [
    Needed::command("cc", &["gcc", "libc6-dev"]),
    Needed::command("git", &["git"]),
    Needed::command("python3", &["python3", "python3-pip"]),
    Needed::command("readelf", &["binutils"]),
];

/// The packages of Python, with their checksums.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// What the compilers write instead of the folders of this machine.
const SOURCE: &str = "/keyhush";
const CRATES: &str = "/crates";
const TARGET: &str = "/target";

/// Where things are on this machine.
struct Places {
    /// What cargo builds into.
    target: PathBuf,
    /// Where cargo keeps itself and the sources of crates.
    cargo_home: PathBuf,
    /// Where pip put zig and cargo-zigbuild.
    tools: PathBuf,
}

/// What cargo builds into.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Where cargo keeps crates.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let found = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
    found.context("neither CARGO_HOME nor HOME says where cargo keeps crates")
}

impl Places {
    fn find() -> Result<Self> {
        let target = target_folder();
        Ok(Self { tools: target.join("dist-tools"), target, cargo_home: cargo_home()? })
    }

    fn zig(&self) -> PathBuf {
        self.tools.join("ziglang").join("zig")
    }

    /// Folders, and what is written in their place. Of several that begin a path, compilers take the last.
    fn renamed(&self) -> Result<Vec<(PathBuf, &'static str)>> {
        let mut renamed = vec![(root(), SOURCE)];
        let sources = self.cargo_home.join("registry").join("src");
        let registries = std::fs::read_dir(&sources).with_context(|| format!("no crates in {}", sources.display()))?;
        renamed.extend(registries.flatten().map(|registry| (registry.path(), CRATES)));
        renamed.push((self.target.clone(), TARGET));
        Ok(renamed)
    }
}

/// The versions of what builds.
pub(crate) struct Versions {
    pub(crate) rust: String,
    pub(crate) zig: String,
}

/// Makes sure that all is there that builds for the machine; gives the versions of it.
pub(crate) fn prepare(machine: &Machine) -> Result<Versions> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "releases are built on x86-64 Linux: the linker is pinned for it, and its programs are run before they are shipped"
        );
    }
    packages::install_missing(&NEEDED)?;
    machine.prepare()?;
    if !crate::portable::has_or_gets(machine.triple) {
        bail!("the toolchain lacks {0}, and `rustup target add {0}` did not bring it", machine.triple);
    }
    let places = Places::find()?;
    install_linker(&places)?;
    // Their sources must lie where the compiler is told that they do.
    run(cargo().args(["fetch", "--locked", "--target", machine.triple]))?;
    Ok(Versions {
        rust: version_of(&mut Command::new("rustc"), 1)?,
        zig: version_of(Command::new(places.zig()).arg("version"), 0)?,
    })
}

fn install_linker(places: &Places) -> Result<()> {
    let wanted = places.tools.join("requirements.txt");
    if std::fs::read_to_string(&wanted).is_ok_and(|installed| installed == REQUIREMENTS) {
        println!("all there: zig, cargo-zigbuild");
        return Ok(());
    }
    println!("missing: zig, cargo-zigbuild; installing them into {}", places.tools.display());
    let _ = std::fs::remove_dir_all(&places.tools);
    std::fs::create_dir_all(&places.tools).with_context(|| format!("cannot create {}", places.tools.display()))?;
    let asked = places.tools.join("asked.txt");
    std::fs::write(&asked, REQUIREMENTS)?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--target",
    ]);
    run(pip.arg(&places.tools).arg("--requirement").arg(&asked))?;
    // Only now is it complete.
    std::fs::rename(&asked, &wanted).context("what was installed cannot be noted")
}

/// Builds the program; gives its path.
pub(crate) fn build(machine: &Machine, commit: &Commit) -> Result<PathBuf> {
    let places = Places::find()?;
    run(&mut command(machine, commit, &places)?)?;
    let program = places.target.join(machine.triple).join("dist").join("keyhush");
    elf::check(&program, &[&root(), &places.target, &places.cargo_home])?;
    Ok(program)
}

/// The call of cargo, with all that decides about bytes.
fn command(machine: &Machine, commit: &Commit, places: &Places) -> Result<Command> {
    let mut path = vec![places.tools.join("bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let renamed = places.renamed()?;
    let mut command = cargo();
    command
        .args(["zigbuild", "--locked", "--profile=dist", "--package=keyhush", "--bin=keyhush", "--features", FEATURES])
        .arg("--config=profile.dist.strip=\"symbols\"")
        .arg(format!("--target={}.{}.{}", machine.triple, elf::GLIBC.0, elf::GLIBC.1))
        .arg("--target-dir")
        .arg(&places.target)
        .env("PATH", std::env::join_paths(path).context("PATH")?)
        .env("PYTHONPATH", &places.tools)
        .env("CARGO_ZIGBUILD_ZIG_PATH", places.zig())
        .env("SOURCE_DATE_EPOCH", commit.seconds.to_string())
        .env("CARGO_ENCODED_RUSTFLAGS", joined("--remap-path-prefix=", &renamed).join("\u{1f}".as_ref()))
        .env(format!("CFLAGS_{}", machine.triple.replace('-', "_")), quoted(&joined("-ffile-prefix-map=", &renamed)))
        .env("CC_SHELL_ESCAPED_FLAGS", "1")
        // A person's own would take their place.
        .env_remove("RUSTFLAGS");
    Ok(command)
}

/// A flag for each folder that is renamed.
fn joined(flag: &str, renamed: &[(PathBuf, &str)]) -> Vec<OsString> {
    let one = |(folder, name): &(PathBuf, &str)| {
        let mut words = OsString::from(flag);
        words.extend([folder.as_os_str(), "=".as_ref(), name.as_ref()]);
        words
    };
    renamed.iter().map(one).collect()
}

/// As a shell reads them, in which folders may have spaces in their names.
fn quoted(flags: &[OsString]) -> OsString {
    let words = flags.iter().map(|flag| format!("'{}'", flag.to_string_lossy().replace('\'', r"'\''")));
    words.collect::<Vec<_>>().join(" ").into()
}

/// A word of what a compiler prints of its version.
fn version_of(command: &mut Command, word: usize) -> Result<String> {
    let asked = if word == 0 { command } else { command.arg("--version").current_dir(root()) };
    let out = asked.output().with_context(|| format!("cannot start {asked:?}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.split_whitespace().nth(word).map(str::to_owned).with_context(|| format!("{asked:?} says no version"))
}

/// Runs a command, and fails as it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("{} {}: {status}", Path::new(command.get_program()).display(), words.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::machine::MACHINES;

    #[test]
    fn cargo_is_told_the_oldest_glibc_and_other_names_for_this_machines_folders() {
        let places = Places {
            target: "/a/new target".into(),
            cargo_home: Places::find().unwrap().cargo_home,
            tools: "/a/tools".into(),
        };
        let commit = Commit { id: String::new(), seconds: 7, time: String::new(), mail_time: String::new() };
        let command = command(&MACHINES[1], &commit, &places).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(words.contains(&"--target=aarch64-unknown-linux-gnu.2.17".to_owned()), "{words:?}");
        assert!(words.contains(&"--locked".to_owned()) && words.contains(&"keyhush/full".to_owned()), "{words:?}");
        let env = |name: &str| {
            let found = command.get_envs().find(|(known, _)| *known == name);
            found.unwrap().1.unwrap().to_string_lossy().into_owned()
        };
        let flags = env("CARGO_ENCODED_RUSTFLAGS");
        assert!(flags.starts_with(&format!("--remap-path-prefix={}=/keyhush\u{1f}", root().display())), "{flags}");
        assert!(
            flags.ends_with("\u{1f}--remap-path-prefix=/a/new target=/target") && flags.contains("=/crates"),
            "{flags}"
        );
        assert!(env("CFLAGS_aarch64_unknown_linux_gnu").ends_with(" '-ffile-prefix-map=/a/new target=/target'"));
        assert_eq!(quoted(&["it's".into()]), r"'it'\''s'");
        assert_eq!(env("SOURCE_DATE_EPOCH"), "7");
    }

    #[test]
    fn a_command_that_fails_is_named_with_its_words() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(error.starts_with("sh -c exit 3: ") && error.ends_with('3'), "{error}");
    }

    #[test]
    fn what_pip_installs_is_pinned_by_version_and_checksum() {
        let lines: Vec<&str> = REQUIREMENTS.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.contains("==") && line.contains(" --hash=sha256:")), "{lines:?}");
    }
}
