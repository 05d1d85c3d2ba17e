//! What is fuzzed is what is shipped: the lock of `fuzz/` has the versions of the project's own.

use super::tree::{File, Violation};

/// Flags each package that both locks have, and the other one in a version that the project's has not.
pub(crate) fn other_versions(project: &File, other: &File) -> Vec<Violation> {
    let ours: Vec<Package<'_>> = packages(&project.text);
    let mut violations = Vec::new();
    for package in packages(&other.text) {
        let mut versions = ours.iter().filter(|p| p.name == package.name).map(|p| p.version).peekable();
        let Some(first) = versions.peek().copied() else { continue };
        if !versions.any(|version| version == package.version) {
            let (name, manifest) = (package.name, other.path.replace(".lock", ".toml"));
            let what = format!(
                "the project's {name} is {first}; run `cargo update --manifest-path {manifest} {name} --precise {first}`"
            );
            violations.push(other.violation(package.line, what));
        }
    }
    violations
}

struct Package<'a> {
    line: usize,
    name: &'a str,
    version: &'a str,
}

/// A lock has the version of a package on the line after its name.
fn packages(lock: &str) -> Vec<Package<'_>> {
    let lines: Vec<&str> = lock.lines().collect();
    let value = |line: usize, key: &str| lines[line].strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"');
    let package =
        |at: usize| Some(Package { line: at + 1, name: value(at, "name")?, version: value(at + 1, "version")? });
    (0..lines.len().saturating_sub(1)).filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_flagged_and_another_package_is_not() {
        let lock = |path: &str, packages: &[(&str, &str)]| File {
            path: path.to_owned(),
            text: packages.iter().map(|(n, v)| format!("[[package]]\nname = \"{n}\"\nversion = \"{v}\"\n\n")).collect(),
        };
        let project = lock("Cargo.lock", &[("aes", "0.9.4"), ("rand", "0.9.0"), ("rand", "0.8.5")]);
        let count = |packages| other_versions(&project, &lock("fuzz/Cargo.lock", packages)).len();
        assert_eq!(count(&[("aes", "0.9.4"), ("rand", "0.8.5"), ("libfuzzer-sys", "0.4.13")]), 0);
        assert_eq!(count(&[("aes", "0.9.5"), ("rand", "0.8.6")]), 2);
    }
}
