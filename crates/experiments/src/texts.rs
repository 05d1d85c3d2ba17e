//! The texts of experiments about forgetting, where these are not of the synthetic crowd: a general model, what it was trained on, and two
//! test sets.

use std::path::{Path, PathBuf};

use lm::{
    stream::{self, Line},
    tokenizer::Tokenizer,
    vocabulary::Vocabulary,
};
use serde::Deserialize;

use crate::error::ExperimentError;

/// The model.
pub(crate) const MODEL: &str = "general";
/// Its text, a post a line: rehearsed, counted for n-grams, and read by who learns from an ensemble.
pub(crate) const GENERAL: &str = "general.txt";
/// Standard English to measure on; an empty line ends what one person wrote.
const STANDARD: &str = "standard.test.txt";
/// Users to measure on, a post a line with `user` and `text`, grouped by user.
const USERS: &str = "users.test.jsonl";

/// A folder with such texts.
#[derive(Debug)]
pub(crate) struct Texts {
    folder: PathBuf,
    /// What each person wrote.
    standard: Vec<String>,
    users: Vec<String>,
}

#[derive(Deserialize)]
struct Post {
    user: String,
    text: String,
}

impl Texts {
    /// Reads the test sets, and finds the rest.
    pub(crate) fn open(folder: &Path) -> Result<Self, ExperimentError> {
        let wrong = |name: &str, problem: String| ExperimentError::Texts { path: folder.join(name), problem };
        let read = |name: &str| corpus::text::read(&folder.join(name)).map_err(|e| wrong(name, e.to_string()));
        let users = by_user(&read(USERS)?).map_err(|problem| wrong(USERS, problem))?;
        let standard: Vec<String> = read(STANDARD)?.split("\n\n").map(str::to_owned).collect();
        if !folder.join(GENERAL).is_file() {
            return Err(wrong(GENERAL, "there is no such file".to_owned()));
        }
        Ok(Self { folder: folder.to_owned(), standard, users })
    }

    /// The general model.
    pub(crate) fn model(&self) -> PathBuf {
        self.folder.join(MODEL)
    }

    /// What it was trained on.
    pub(crate) fn general(&self) -> PathBuf {
        self.folder.join(GENERAL)
    }

    /// The lines of both test sets, by person.
    pub(crate) fn lines(&self, tokenizer: Tokenizer, vocabulary: &Vocabulary) -> [Vec<Vec<Line>>; 2] {
        [&self.standard, &self.users].map(|people| {
            people
                .iter()
                .map(|text| stream::lines(text, tokenizer, vocabulary))
                .filter(|lines| !lines.is_empty())
                .collect()
        })
    }
}

/// What each user wrote, a post a line.
fn by_user(jsonl: &str) -> Result<Vec<String>, String> {
    let (mut users, mut last) = (Vec::new(), None);
    for (number, line) in jsonl.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let Post { user, text } = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", number + 1))?;
        if last.as_ref() != Some(&user) {
            users.push(String::new());
            last = Some(user);
        }
        if let Some(written) = users.last_mut() {
            written.extend(text.split_whitespace().flat_map(|word| [word, " "]));
            written.push('\n');
        }
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_lines_by_user() {
        let jsonl = "{\"user\":\"a\",\"text\":\"one\\ntwo\"}\n\n{\"user\":\"a\",\"text\":\"three\"}\n{\"user\":\"b\",\"text\":\"four\"}\n";
        assert_eq!(by_user(jsonl).unwrap(), ["one two \nthree \n", "four \n"]);
        assert!(by_user("{}").unwrap_err().starts_with("line 1: "));
    }
}
