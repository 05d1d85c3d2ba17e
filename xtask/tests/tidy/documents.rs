//! Rules about all text: links lead somewhere, and no file names a machine's paths or a registry's hosts.

use super::tree::{File, Violation, root};

/// A link to a file of the project must find it. Links to the web are not followed.
pub(crate) fn links(file: &File) -> Vec<Violation> {
    let here = root().join(&file.path);
    let folder = here.parent().expect("a file lies in a folder");
    let missing = targets(&file.text).into_iter().filter(|(_, target)| !folder.join(target).exists());
    missing.map(|(line, target)| file.violation(line, format!("the link to `{target}` leads nowhere"))).collect()
}

/// The files that links point to, as `[text](target)` or `[name]: target`, outside code.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let defined = prose.strip_prefix('[').and_then(|rest| rest.split_once("]:")).map(|(_, target)| target);
            found.extend(inline.chain(defined).filter_map(path).map(|target| (i + 1, target)));
        }
    }
    found
}

/// The path of a link, without title and fragment; none for the web and for places on the same page.
fn path(link: &str) -> Option<String> {
    let link = link.split_whitespace().next()?.trim_matches(['<', '>']);
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    link.split('#').next().filter(|path| !path.is_empty()).map(str::to_owned)
}

/// A path or host that is true on one machine only does not belong in a file of the project.
pub(crate) fn places(file: &File) -> Vec<Violation> {
    let lines = file.text.lines().enumerate();
    let found = lines.filter_map(|(i, line)| place(line).map(|place| (i + 1, place)));
    found
        .map(|(line, place)| file.violation(line, format!("`{place}` is true on some machine only: leave it out")))
        .collect()
}

/// The first path or host in the line that belongs to a machine. Joined here, so that this file has none of them.
fn place(line: &str) -> Option<String> {
    let hosts = [
        ["index.cra", "tes.io"],
        ["static.cra", "tes.io"],
        ["sparse+", "http"],
        ["pypi", ".org"],
        ["npm", "js.org"],
        ["files.python", "hosted.org"],
    ];
    let folders = [["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"], ["/wo", "rk/"], ["../sha", "red"]];
    let starts = |folder: &str| {
        let before = |at: usize| line[..at].chars().next_back();
        line.match_indices(folder)
            .any(|(at, _)| !before(at).is_some_and(|c| c.is_alphanumeric() || "_-.)}*]".contains(c)))
    };
    let host = hosts.iter().map(|parts| parts.concat()).find(|host| line.contains(host));
    host.or_else(|| folders.iter().map(|parts| parts.concat()).find(|folder| starts(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_flagged() {
        let count = |text: &str| links(&File { path: "docs/X.md".to_owned(), text: text.to_owned() }).len();
        for evil in [
            "[a](nothing.md)",
            "see [a](../Cargo.toml) and [b](nothing.md#part)",
            "[a]: nothing.md",
            "[a](<no.md> \"t\")",
        ] {
            assert_eq!(count(evil), 1, "{evil}");
        }
        for good in [
            "[a](../Cargo.toml#L3)",
            "[a](#here)",
            "[a](https://example.org/x)",
            "`[a](nothing.md)`",
            "```text\n[a](nothing.md)\n```",
        ] {
            assert_eq!(count(good), 0, "{good}");
        }
    }

    #[test]
    fn a_machine_or_a_registry_is_flagged() {
        for parts in [
            ["url = \"https://index.cra", "tes.io/\""],
            ["pip install -i https://pypi", ".org/simple x"],
            ["cd /ro", "ot/keyhush"],
            ["see `/wo", "rk/main`"],
            ["read ../sha", "red/notes.md"],
        ] {
            assert!(place(&parts.concat()).is_some(), "{parts:?}");
        }
        for good in ["cargo install keyhush", "crates/home/", "the root/of", "a/work/b", "https://example.org/home/x"] {
            assert!(place(good).is_none(), "{good}");
        }
    }
}
