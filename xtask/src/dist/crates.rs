//! The crates that a program is made of, and what their sources say of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata};

use crate::root;
use crate::step::cargo;

/// The features of what is shipped.
pub(crate) const FEATURES: &str = "keyhush/full";

/// A crate of the program.
#[derive(Debug, Clone)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: String,
    /// SHA-256 of the package, as the registry has it; crates of this project have none.
    pub(crate) checksum: Option<String>,
    /// Where its source lies.
    pub(crate) folder: PathBuf,
    /// The crates that it uses, as name and version.
    pub(crate) uses: BTreeSet<(String, String)>,
}

/// C code that a crate brings along: the crate, the name, its licence, the header with its version and the words before its parts.
const C_CODE: [(&str, &str, &str, &str, &[&str]); 2] = [
    ("libsqlite3-sys", "sqlite", "blessing", "sqlite3/sqlite3.h", &["#define SQLITE_VERSION "]),
    (
        "zstd-sys",
        "zstd",
        "BSD-3-Clause",
        "zstd/lib/zstd.h",
        &["#define ZSTD_VERSION_MAJOR ", "#define ZSTD_VERSION_MINOR ", "#define ZSTD_VERSION_RELEASE "],
    ),
];

/// C code in a crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CCode {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) license: &'static str,
}

/// The crates of the program `keyhush` for one kind of machine, sorted by name and version. `cargo tree` says which they are: `cargo
/// metadata`, which knows them best, also has what only tests use.
pub(crate) fn of(triple: &str) -> Result<Vec<Crate>> {
    let chosen = ["--locked", "--features", FEATURES];
    let mut tree = cargo();
    tree.args(["tree", "--package=keyhush", "--edges=normal,no-proc-macro", "--prefix=none", "--format={p}"]);
    let tree = output(tree.args(["--target", triple]).args(chosen))?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--filter-platform", triple]).args(chosen);
    let metadata = cargo_metadata::MetadataCommand::parse(output(&mut metadata)?).context("cargo metadata")?;
    described(&named_in(&tree), &metadata, &checksums(&lock)?)
}

fn output(command: &mut std::process::Command) -> Result<String> {
    let out = command.output().context("cannot start cargo")?;
    if !out.status.success() {
        bail!("{command:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    String::from_utf8(out.stdout).context("cargo prints text")
}

/// Names and versions in lines such as `tar v0.4.46 (*)`.
fn named_in(tree: &str) -> BTreeSet<(String, String)> {
    let words = tree.lines().filter_map(|line| line.split_once(' '));
    let named = words.filter_map(|(name, rest)| {
        let version = rest.split(' ').next()?.strip_prefix('v')?;
        Some((name.to_owned(), version.to_owned()))
    });
    named.collect()
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let checksum = |package: &toml::Value| {
        let text = |key: &str| package.get(key)?.as_str().map(str::to_owned);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(checksum).collect())
}

fn described(
    names: &BTreeSet<(String, String)>,
    metadata: &Metadata,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Vec<Crate>> {
    let key = |package: &cargo_metadata::Package| (package.name.to_string(), package.version.to_string());
    let by_id: BTreeMap<_, _> = metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let nodes = &metadata.resolve.as_ref().context("cargo metadata resolves nothing")?.nodes;
    let mut found = Vec::new();
    for package in metadata.packages.iter().filter(|package| names.contains(&key(package))) {
        let node = nodes.iter().find(|node| node.id == package.id).context("a crate that is not resolved")?;
        let used =
            node.deps.iter().filter(|used| used.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        let uses =
            used.filter_map(|used| by_id.get(&used.pkg)).map(|used| key(used)).filter(|used| names.contains(used));
        let (name, version) = key(package);
        let license = package.license.as_deref().with_context(|| format!("{name} {version} declares no licence"))?;
        let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
        if package.source.is_some() && checksum.is_none() {
            bail!(
                "{name} {version} comes from elsewhere and Cargo.lock has no checksum of it: take it from a registry"
            );
        }
        found.push(Crate {
            license: license.replace('/', " OR "),
            checksum,
            folder: package.manifest_path.parent().context("a manifest lies in a folder")?.into(),
            uses: uses.collect(),
            name,
            version,
        });
    }
    if found.len() != names.len() {
        bail!("cargo tree names {} crates, and cargo metadata knows {} of them", names.len(), found.len());
    }
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(found)
}

impl Crate {
    pub(crate) fn is_ours(&self) -> bool {
        self.checksum.is_none()
    }

    /// The C code in it, if it has any that has a version of its own.
    pub(crate) fn c_code(&self) -> Result<Option<CCode>> {
        let Some((_, name, license, header, words)) = C_CODE.iter().find(|(of, ..)| *of == self.name) else {
            return Ok(None);
        };
        let path = self.folder.join(header);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let version = version_in(&text, words).with_context(|| format!("{} has no version", path.display()))?;
        Ok(Some(CCode { name, version, license }))
    }
}

/// What follows the words in a header of C, joined by dots.
fn version_in(header: &str, words: &[&str]) -> Option<String> {
    let part = |word: &&str| {
        let rest = header.lines().find_map(|line| line.strip_prefix(word))?;
        Some(rest.trim().trim_matches('"').to_owned())
    };
    Some(words.iter().map(part).collect::<Option<Vec<String>>>()?.join("."))
}

/// The licence texts in a crate's folder and in those of its C code, by file name.
pub(crate) fn license_texts(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for of in [folder.to_path_buf(), folder.join("zstd")] {
        for entry in std::fs::read_dir(&of).into_iter().flatten().flatten().filter(|entry| entry.path().is_file()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let upper = name.to_uppercase();
            if ["LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"].iter().any(|word| upper.starts_with(word)) {
                let bytes =
                    std::fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
                texts.insert(name, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_from_a_tree() {
        let named = named_in("keyhush v0.1.0 (/some/where)\ntar v0.4.46\ntar v0.4.46 (*)\n\n");
        let expected =
            [("keyhush", "0.1.0"), ("tar", "0.4.46")].map(|(name, version)| (name.to_owned(), version.to_owned()));
        assert_eq!(named, expected.into());
    }

    #[test]
    fn versions_of_c_code_are_read_from_its_headers() {
        assert_eq!(version_in("#define SQLITE_VERSION        \"3.51.0\"\n", C_CODE[0].4).as_deref(), Some("3.51.0"));
        let zstd =
            "#define ZSTD_VERSION_MAJOR    1\n#define ZSTD_VERSION_MINOR    5\n#define ZSTD_VERSION_RELEASE  7\n";
        assert_eq!(version_in(zstd, C_CODE[1].4).as_deref(), Some("1.5.7"));
        assert_eq!(version_in("#define ZSTD_VERSION_MAJOR 1\n", C_CODE[1].4), None);
    }

    /// The program itself: what it is known to use is there, with its source and its checksum, and what only tests use is not.
    #[test]
    fn the_crates_of_the_program_are_those_that_it_is_made_of() {
        let crates = of("x86_64-unknown-linux-gnu").unwrap();
        let find = |name: &str| crates.iter().find(|one| one.name == name);
        let ring = find("ring").unwrap();
        assert!(ring.checksum.as_ref().is_some_and(|sum| sum.len() == 64) && ring.license.contains("ISC"));
        assert!(find("rustls").unwrap().uses.iter().any(|(name, _)| name == "ring"));
        assert!(find("keyhush-privacy").unwrap().is_ours());
        for absent in ["criterion", "proptest", "trycmd", "serde_derive", "mpi", "xtask"] {
            assert!(find(absent).is_none(), "{absent} is in no program that is shipped");
        }
        let c: Vec<CCode> = crates.iter().filter_map(|one| one.c_code().unwrap()).collect();
        assert_eq!(c.iter().map(|c| c.name).collect::<Vec<_>>(), ["sqlite", "zstd"]);
        assert!(
            c.iter()
                .all(|c| c.version.split('.').count() == 3
                    && c.version.starts_with(|digit: char| digit.is_ascii_digit())),
            "{c:?}"
        );
    }
}
