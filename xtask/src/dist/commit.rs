//! The commit that a release is made of: its time is the time of every file in it.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// What is checked out.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    /// Its name in full.
    pub(crate) id: String,
    /// Its time, in seconds since 1970.
    pub(crate) seconds: u64,
    /// The same time, as ISO 8601 writes it, in UTC.
    pub(crate) time: String,
    /// The same time, as mails and Debian write it.
    pub(crate) mail_time: String,
}

impl Commit {
    /// The commit of this checkout. One with changes is refused: nobody else could build the same.
    pub(crate) fn checked_out() -> Result<Self> {
        let changed = git(&["status", "--porcelain"])?;
        if !changed.is_empty() {
            bail!(
                "a release is made of a commit, and this checkout differs from it; commit, ignore or remove\n{changed}"
            );
        }
        Self::of_head()
    }

    /// The commit that is checked out, whatever was changed since.
    pub(crate) fn of_head() -> Result<Self> {
        let shown = git(&["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%H|%ct|%cd|%cD"])?;
        let words: Vec<&str> = shown.split('|').collect();
        let [id, seconds, time, mail_time] = words[..] else {
            bail!("git log shows `{shown}`, not a commit and its time")
        };
        let seconds = seconds.parse().with_context(|| format!("git log shows `{seconds}` for a time"))?;
        Ok(Self { id: id.to_owned(), seconds, time: time.to_owned(), mail_time: mail_time.to_owned() })
    }
}

fn git(arguments: &[&str]) -> Result<String> {
    let out = Command::new("git").args(arguments).current_dir(root()).env("TZ", "UTC").output();
    let out = out.context("cannot start git: install it; a release names its commit")?;
    if !out.status.success() {
        bail!("git {}: {}\n{}", arguments.join(" "), out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_has_a_name_and_the_same_time_twice() {
        let commit = Commit::of_head().unwrap();
        assert_eq!(commit.id.len(), 40);
        assert!(commit.seconds > 1_700_000_000 && commit.time.ends_with('Z') && commit.time.len() == 20, "{commit:?}");
    }
}
