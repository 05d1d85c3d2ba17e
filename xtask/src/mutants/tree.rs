//! A copy of the working tree with the bugs in it; the tree itself stays as it is.
//!
//! A file whose text is the same is not written again, so that cargo finds what it built the last time.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::catalogue::{Bug, by_file, plant};

/// Brings the copy up to date, with all bugs in it.
pub(super) fn prepare(root: &Path, copy: &Path, bugs: &[Bug]) -> Result<()> {
    let files = listed(root)?;
    let mut planted = by_file(bugs);
    for file in &files {
        let (from, to) = (root.join(file), copy.join(file));
        // A file that was deleted and not yet committed is still listed.
        let Ok(mut bytes) = fs::read(&from) else { continue };
        if let Some(edits) = planted.remove(file.as_str()) {
            let text = String::from_utf8(bytes).with_context(|| format!("{file} is no text"))?;
            bytes = plant(&text, &edits)?.into_bytes();
        }
        write_if_new(&to, &bytes)?;
    }
    if let Some((file, edits)) = planted.first_key_value() {
        bail!("{}: there is no {file}", edits[0].0);
    }
    remove_others(copy, &files.iter().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect())
}

/// What git knows and what is new, but nothing that is ignored.
fn listed(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file's name is no text")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

fn write_if_new(to: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))
}

/// Removes what was copied once and is gone since: an old test would still be run.
fn remove_others(copy: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    let mut folders = vec![copy.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if !path.strip_prefix(copy).is_ok_and(|file| kept.contains(file)) {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_what_the_tree_has_and_the_bugs() {
        let both = std::env::temp_dir().join(format!("keyhush-mutants-{}", std::process::id()));
        let (root, copy) = (both.join("root"), both.join("copy"));
        fs::create_dir_all(root.join("src")).unwrap();
        fs::create_dir_all(&copy).unwrap();
        assert!(Command::new("git").args(["init", "--quiet"]).current_dir(&root).status().unwrap().success());
        for (file, text) in [("src/a.rs", "one"), ("b.txt", "two"), (".gitignore", "built\n"), ("built", "three")] {
            fs::write(root.join(file), text).unwrap();
        }
        fs::write(copy.join("old.rs"), "").unwrap();
        let bug = Bug {
            name: "a".into(),
            breaks: "It.".into(),
            file: "src/a.rs".into(),
            find: "one".into(),
            plant: "PLANTED".into(),
            package: "p".into(),
            tests: "lib".into(),
            also: Vec::new(),
        };
        prepare(&root, &copy, std::slice::from_ref(&bug)).unwrap();
        let written = || fs::metadata(copy.join("src/a.rs")).unwrap().modified().unwrap();
        let first = written();
        assert!(fs::read_to_string(copy.join("src/a.rs")).unwrap().contains("KEYHUSH_MUTANT"));
        assert_eq!(fs::read_to_string(copy.join("b.txt")).unwrap(), "two");
        assert!(!copy.join("built").exists() && !copy.join("old.rs").exists());
        prepare(&root, &copy, std::slice::from_ref(&bug)).unwrap();
        assert_eq!(first, written(), "what is the same is not written again");
        let nowhere = prepare(&root, &copy, &[Bug { file: "c.rs".into(), ..bug }]).unwrap_err();
        fs::remove_dir_all(&both).unwrap();
        assert!(nowhere.to_string().contains("there is no c.rs"), "{nowhere}");
    }
}
