//! Files of tests are modules of few binaries. Each binary is linked with everything below it, which costs seconds of every build;
//! and with `autotests = false` a file that no binary names would never be run.

use super::tree::{File, Violation};

/// Files of `crates/*/tests` that are neither a binary nor a module of one, and crates whose files are a binary each.
pub(crate) fn unlisted(files: &[File]) -> Vec<Violation> {
    files
        .iter()
        .filter(|f| f.path.starts_with("crates/") && f.path.ends_with("/Cargo.toml"))
        .flat_map(|manifest| of_crate(manifest, files))
        .collect()
}

fn of_crate(manifest: &File, files: &[File]) -> Vec<Violation> {
    let folder = manifest.path.replace("Cargo.toml", "tests/");
    let name = |f: &File| f.path.strip_prefix(&folder)?.strip_suffix(".rs").map(str::to_owned);
    let tests: Vec<(String, &File)> =
        files.iter().filter_map(|f| Some((name(f)?, f))).filter(|(name, _)| !name.contains('/')).collect();
    if !manifest.text.lines().any(|line| line.trim() == "autotests = false") {
        let each = tests.iter().skip(1);
        return each
            .map(|(_, f)| {
                f.violation(
                    1,
                    format!(
                        "make it a module of one binary, as crates/ledger/tests are: `autotests = false` in {}",
                        manifest.path
                    ),
                )
            })
            .collect();
    }
    let binaries = binaries(&manifest.text);
    let is_module = |name: &str| {
        let line = format!("mod {name};");
        tests.iter().any(|(root, f)| binaries.contains(root) && f.text.lines().any(|l| l == line))
    };
    let lost = tests.iter().filter(|(name, _)| !binaries.contains(name) && !is_module(name));
    lost.map(|(name, f)| f.violation(1, format!("no test in it is run: write `mod {name};` into tests/all.rs")))
        .collect()
}

/// The names of a manifest's `[[test]]`.
fn binaries(manifest: &str) -> Vec<String> {
    let mut heading = "";
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            heading = line;
        } else if let ("[[test]]", Some(("name", name))) = (heading, line.split_once(" = ")) {
            names.push(name.trim_matches('"').to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(manifest: &str, files: &[(&str, &str)]) -> usize {
        let file = |(path, text): (&str, &str)| File { path: format!("crates/x/{path}"), text: text.to_owned() };
        let mut all = vec![file(("Cargo.toml", manifest))];
        all.extend(files.iter().map(|f| file(*f)));
        unlisted(&all).len()
    }

    const ONE: &str = "[package]\nautotests = false\n\n[[test]]\nname = \"all\"\n\n[[bench]]\nname = \"b\"\n";

    #[test]
    fn a_file_that_no_binary_names_is_flagged() {
        let all = ("tests/all.rs", "//! All.\n\nmod a;\nmod story;\n");
        let story = ("tests/story/mod.rs", "");
        assert_eq!(count(ONE, &[all, ("tests/a.rs", ""), story]), 0);
        assert_eq!(count(ONE, &[all, ("tests/a.rs", ""), ("tests/b.rs", "mod c;"), ("tests/c.rs", "")]), 2);
    }

    #[test]
    fn a_binary_for_each_of_many_files_is_flagged() {
        assert_eq!(count("[package]\n", &[("tests/a.rs", ""), ("src/lib.rs", "")]), 0);
        assert_eq!(count("[package]\n", &[("tests/a.rs", ""), ("tests/b.rs", "")]), 1);
    }
}
