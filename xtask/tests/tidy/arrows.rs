//! The picture of dependencies: which crate may know which, and which must build for wasm.
//!
//! `cargo metadata --no-deps` says what each member declares; it needs nothing but the manifests. The closure of a wasm
//! crate comes from `cargo tree`, which resolves the features and the target of that crate alone, where the graph of
//! `cargo metadata` mixes in what the rest of the workspace turns on.

use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand};

use super::tree::{Violation, root};

/// From left to right, as in `docs/ARCHITECTURE.md`: a crate may depend on every crate further right, and on no other
/// of the workspace, its neighbours in the same column included. Columns may name crates that do not exist yet.
const PICTURE: [&[&str]; 11] = [
    &["cli"],
    &["bench", "demo"],
    &["console"],
    &["experiments", "pretraining", "server", "agent", "tracking"],
    &["board", "listen"],
    &["report", "cluster", "cuda"],
    &["federated"],
    &["corpus", "device"],
    &["ledger"],
    &["privacy", "secagg", "lm", "durable"],
    &["fourier"],
];

/// Stands beside the picture: depends on no crate of it, and none depends on it.
const BESIDE: &str = "xtask";

/// The crates that also run in a browser.
pub(crate) const WASM: [&str; 5] = ["privacy", "secagg", "lm", "ledger", "device"];

/// Crates that need threads, files, sockets or a clock; a trailing `*` stands for any rest.
const NOT_IN_WASM: &str = "async-std axum* crossbeam* fs2 hyper* keyhush-durable memmap* mio mpi* native-tls notify num_cpus \
    object_store polling rayon* redb reqwest rusqlite rustix signal-hook* smol socket2 sqlx* tempfile tokio*";

/// A member of the workspace with the packages that it declares, dev-dependencies left out.
struct Member {
    package: String,
    /// The folder's path under the root.
    folder: String,
    dependencies: Vec<String>,
}

pub(crate) fn workspace() -> Vec<Violation> {
    judge(&members())
}

fn members() -> Vec<Member> {
    let mut command = MetadataCommand::new();
    command
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--locked".to_owned(), "--offline".to_owned()]);
    let metadata = command.exec().expect("cargo metadata reads the workspace");
    let counts = |d: &&cargo_metadata::Dependency| d.kind != DependencyKind::Development;
    let members = metadata.packages.iter().map(|package| Member {
        package: package.name.to_string(),
        folder: package
            .manifest_path
            .parent()
            .and_then(|p| p.strip_prefix(&metadata.workspace_root).ok())
            .map(ToString::to_string)
            .unwrap_or_default(),
        dependencies: package.dependencies.iter().filter(counts).map(|d| d.name.clone()).collect(),
    });
    members.collect()
}

fn judge(members: &[Member]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for member in members {
        let manifest = format!("{}/Cargo.toml", member.folder);
        let mut flag = |what: String| violations.push(Violation::new(&manifest, 1, what));
        let from = name(&member.package);
        let Some(column_of_from) = column(from) else {
            flag(format!("give `{from}` a place in docs/ARCHITECTURE.md and in xtask/tests/tidy/arrows.rs"));
            continue;
        };
        let expected = if from == BESIDE { BESIDE.to_owned() } else { format!("crates/{from}") };
        if member.folder != expected {
            flag(format!("the package `{}` belongs in {expected}", member.package));
        }
        for dependency in member.dependencies.iter().filter(|d| members.iter().any(|m| m.package == **d)) {
            let to = name(dependency);
            if to == BESIDE || column(to) <= Some(column_of_from) {
                flag(format!("`{from}` may not depend on `{to}`: the arrows go from left to right only"));
            }
        }
    }
    violations
}

/// The name in the picture of a package.
fn name(package: &str) -> &str {
    if package == "keyhush" { "cli" } else { package.strip_prefix("keyhush-").unwrap_or(package) }
}

/// Where a crate stands; what stands beside the picture is in a column after the last.
fn column(name: &str) -> Option<usize> {
    if name == BESIDE { Some(PICTURE.len()) } else { PICTURE.iter().position(|column| column.contains(&name)) }
}

/// What the wasm crates depend on, directly or not, when built for wasm, and must not.
pub(crate) fn wasm_closures() -> Vec<Violation> {
    let members = members();
    let mut violations = Vec::new();
    for member in members.iter().filter(|m| WASM.contains(&name(&m.package))) {
        for found in refused(&closure(&member.package)) {
            let what =
                format!("`{found}` cannot work in wasm; `cargo tree -e normal -i {found}` shows who asks for it");
            violations.push(Violation::new(&format!("{}/Cargo.toml", member.folder), 1, what));
        }
    }
    violations
}

fn closure(package: &str) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--locked", "--package", package, "--edges", "normal", "--target", "wasm32-unknown-unknown"]);
    tree.args(["--prefix", "none", "--format", "{p}"]).current_dir(root());
    let out = tree.output().expect("cargo starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("names are text");
    let mut names: Vec<String> = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn refused(names: &[String]) -> Vec<String> {
    let refuses = |name: &str| {
        NOT_IN_WASM
            .split_whitespace()
            .any(|bad| bad.strip_suffix('*').map_or(bad == name, |start| name.starts_with(start)))
    };
    names.iter().filter(|name| refuses(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(package: &str, folder: &str, dependencies: &[&str]) -> Member {
        let dependencies = dependencies.iter().map(ToString::to_string).collect();
        Member { package: package.to_owned(), folder: folder.to_owned(), dependencies }
    }

    #[test]
    fn an_arrow_that_is_not_in_the_picture_is_flagged() {
        let house = |from: &str, to: &str| {
            let all = [
                "privacy",
                "secagg",
                "lm",
                "durable",
                "ledger",
                "device",
                "corpus",
                "federated",
                "cluster",
                "server",
                "agent",
            ];
            let with = |n: &&str| if *n == from { vec![to.to_owned(), "serde".to_owned()] } else { Vec::new() };
            let crates = all.iter().map(|n| Member {
                package: format!("keyhush-{n}"),
                folder: format!("crates/{n}"),
                dependencies: with(n),
            });
            judge(
                &crates
                    .chain([member("keyhush", "crates/cli", &[]), member("xtask", "xtask", &[])])
                    .collect::<Vec<_>>(),
            )
            .len()
        };
        for (from, to) in [
            ("privacy", "keyhush-secagg"),
            ("privacy", "keyhush-device"),
            ("privacy", "keyhush-ledger"),
            ("ledger", "keyhush-device"),
            ("device", "keyhush-corpus"),
            ("federated", "keyhush-server"),
            ("federated", "keyhush-cluster"),
            ("server", "keyhush-agent"),
            ("lm", "keyhush"),
            ("privacy", "keyhush-durable"),
            ("privacy", "xtask"),
        ] {
            assert_eq!(house(from, to), 1, "{from} -> {to}");
        }
        for (from, to) in [
            ("cluster", "keyhush-federated"),
            ("federated", "keyhush-privacy"),
            ("device", "keyhush-lm"),
            ("device", "keyhush-durable"),
            ("ledger", "keyhush-privacy"),
            ("server", "keyhush-corpus"),
        ] {
            assert_eq!(house(from, to), 0, "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_without_a_place_is_flagged() {
        assert_eq!(judge(&[member("keyhush-attic", "crates/attic", &[])]).len(), 1);
        assert_eq!(judge(&[member("keyhush-privacy", "crates/private", &[])]).len(), 1);
        assert_eq!(judge(&[member("privacy", "crates/privacy", &[]), member("xtask", "xtask", &["privacy"])]).len(), 1);
    }

    #[test]
    fn a_dependency_that_needs_an_operating_system_is_flagged() {
        let names = ["serde", "tokio-util", "rayon-core", "mio", "miow", "libm"].map(str::to_owned);
        assert_eq!(refused(&names), ["tokio-util", "rayon-core", "mio"]);
    }

    #[test]
    fn the_closure_goes_past_direct_dependencies() {
        let names = closure("keyhush-privacy");
        for expected in ["keyhush-privacy", "realfft", "rustfft"] {
            assert!(names.iter().any(|n| n == expected), "{expected} is not in {names:?}");
        }
    }
}
