//! Every version is kept once, in the `[workspace.dependencies]` of the root; members say `workspace = true`. And nothing that
//! people install turns on the feature `insecure`.

use super::tree::{File, Violation};

pub(crate) fn dependencies(file: &File) -> Vec<Violation> {
    let ask = |line, name: &str| {
        file.violation(line, format!("put the version of `{name}` into the root's [workspace.dependencies] and write `{name}.workspace = true`"))
    };
    let mut violations = Vec::new();
    let mut section = Section::Other;
    for (i, line) in file.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            violations.extend(section.unfinished().map(|(at, name)| ask(at, &name)));
            section = Section::of(line.trim_matches(['[', ']']), i + 1);
        } else if line.replace(' ', "").contains("workspace=true") {
            if let Section::One { inherits, .. } = &mut section {
                *inherits = true;
            }
        } else if let (Section::List, Some((name, _))) = (&section, line.split_once('=')) {
            violations.push(ask(i + 1, name.trim()));
        }
    }
    violations.extend(section.unfinished().map(|(at, name)| ask(at, &name)));
    violations
}

/// The feature `insecure` is for tests and for comparisons that somebody asks for: a dependency, or a feature of another name,
/// that turns it on would bring it to users.
pub(crate) fn insecure(file: &File) -> Vec<Violation> {
    let mut heading = "";
    let mut violations = Vec::new();
    for (i, line) in file.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            heading = line.trim_matches(['[', ']']);
            continue;
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        let for_users = heading.contains("dependencies") && !heading.contains("dev-dependencies");
        let turns_on = line.contains("insecure") && (for_users || (heading == "features" && key != "insecure"));
        if turns_on {
            let why =
                "this brings the feature `insecure` to users: only [dev-dependencies] and features of that name may";
            violations.push(file.violation(i + 1, why.to_owned()));
        }
    }
    violations
}

enum Section {
    /// `[dependencies]` and its kin: a dependency on each line.
    List,
    /// `[dependencies.name]`: one dependency, a key on each line.
    One {
        name: String,
        line: usize,
        inherits: bool,
    },
    Other,
}

impl Section {
    fn of(heading: &str, line: usize) -> Self {
        let is_list = |h: &str| h.ends_with("dependencies");
        match heading.rsplit_once('.') {
            _ if is_list(heading) => Self::List,
            Some((table, name)) if is_list(table) => Self::One { name: name.to_owned(), line, inherits: false },
            _ => Self::Other,
        }
    }

    /// A dependency in a table of its own that did not say `workspace = true`.
    fn unfinished(self) -> Option<(usize, String)> {
        match self {
            Self::One { name, line, inherits: false } => Some((line, name)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        dependencies(&File { path: "crates/x/Cargo.toml".to_owned(), text: text.to_owned() }).len()
    }

    #[test]
    fn a_version_in_a_member_is_flagged() {
        for evil in [
            "[dependencies]\nserde = \"1\"\n",
            "[dev-dependencies]\nserde = { version = \"1\", features = [\"derive\"] }\n",
            "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\" # workspace = true\n",
            "[dependencies.serde]\nversion = \"1\"\n",
            "[build-dependencies.cc]\nversion = \"1\"\n\n[lints]\nworkspace = true\n",
        ] {
            assert_eq!(count(evil), 1, "{evil}");
        }
    }

    #[test]
    fn insecure_features_stay_with_tests() {
        let count =
            |text: &str| insecure(&File { path: "crates/x/Cargo.toml".to_owned(), text: text.to_owned() }).len();
        for evil in [
            "[dependencies]\nsecagg = { workspace = true, features = [\"insecure\"] }\n",
            "[dependencies.secagg]\nworkspace = true\nfeatures = [\"insecure\"]\n",
            "[workspace.dependencies]\nsecagg = { path = \"x\", features = [\"insecure\"] }\n",
            "[features]\ndefault = [\"insecure\"]\n",
            "[features]\nfast = [\"secagg/insecure\"]\n",
        ] {
            assert_eq!(count(evil), 1, "{evil}");
        }
        let good = "[features]\ninsecure = [\"secagg/insecure\"]\n[dev-dependencies]\n\
                    secagg = { workspace = true, features = [\"insecure\"] }\n[dependencies]\nsecagg.workspace = true # insecure\n";
        assert_eq!(count(good), 0);
    }

    #[test]
    fn what_comes_from_the_workspace_is_not() {
        let good = "[package]\nname = \"x\"\nversion = \"1\"\n\n[dependencies]\nanyhow.workspace = true\n\
                    serde = { workspace = true, optional = true }\n\n[dependencies.clap]\nworkspace = true\n";
        assert_eq!(count(good), 0);
    }
}
