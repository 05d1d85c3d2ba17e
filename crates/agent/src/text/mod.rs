//! The text a device learns from: what its owner typed, kept for as short a time as possible.
//!
//! [`TextStore`] is a device's own: text beyond a cap in bytes or an age in days is gone, and what was learned from is deleted (Popov et
//! al. 2018 train on text once and then let it go). [`TextFolder`] reads files that are somebody else's and writes none; [`TakenIn`] takes
//! its lines into a store. [`Synthetic`] is a synthetic user. Models are measured on text that is not learned from yet, and it stays
//! until it is: so a device that has learned from all of its text has nothing to measure on, and gives zeros.

mod store;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use corpus::synth::{Crowd, labels};
use device::protocol::task::{Text, TextPost};
use serde::Deserialize;

pub use self::store::{Keep, TakenIn, TextStore, today};
use crate::AgentError;

/// The most bytes of a folder's text that are read.
const MOST_FOLDER_BYTES: usize = 16 << 20;

/// A source of text to train on.
pub trait TextSource: Send + Sync {
    /// What there is to learn from, the oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    fn text(&self) -> Result<Text, AgentError>;

    /// Of what [`TextSource::text`] gave last, so many posts are read, from the oldest on: the task needs no more.
    fn read(&self, _posts: usize) {}

    /// What was read was learned from, and the update is about to leave: it is not to be given again. Durable when this returns.
    ///
    /// # Errors
    /// When that cannot be kept: then the update may not leave.
    fn used(&self) -> Result<(), AgentError> {
        Ok(())
    }

    /// Time passes: what is too old goes.
    ///
    /// # Errors
    /// When that cannot be kept.
    fn let_go_of_old(&self) -> Result<(), AgentError> {
        Ok(())
    }
}

/// The owner's files: `.txt`, one post per line, and `.jsonl`, `{"text": ..., "labels": [...]}` per line. They are read each time, in
/// the order of their names, and never written.
#[derive(Debug, Clone)]
pub struct TextFolder(PathBuf);

#[derive(Deserialize)]
struct Line {
    text: String,
    #[serde(default)]
    labels: Vec<String>,
}

impl TextFolder {
    /// Opens a folder of text files.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn read_file(path: &Path, posts: &mut Vec<TextPost>) -> Result<usize, AgentError> {
        let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_owned();
        if kind != "txt" && kind != "jsonl" {
            return Ok(0);
        }
        // A file that is still empty is no mistake.
        if fs::metadata(path).map_err(|e| unread(path, &e))?.len() == 0 {
            return Ok(0);
        }
        let text = corpus::text::read(path).map_err(|e| unread(path, &e))?;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            posts.push(match kind.as_str() {
                "txt" => TextPost { text: line.to_owned(), labels: Vec::new() },
                _ => {
                    let wrong = |e| unread(path, &format!("line {number}: {e}"));
                    let Line { text, labels } = serde_json::from_str(line).map_err(|e: serde_json::Error| wrong(e))?;
                    TextPost { text, labels }
                }
            });
        }
        Ok(text.len())
    }
}

fn unread(path: &Path, problem: &dyn std::fmt::Display) -> AgentError {
    AgentError::Text { path: path.to_owned(), problem: problem.to_string() }
}

impl TextSource for TextFolder {
    fn text(&self) -> Result<Text, AgentError> {
        let entries = fs::read_dir(&self.0).map_err(|e| unread(&self.0, &e))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let (mut posts, mut bytes) = (Vec::new(), 0);
        for path in paths.iter().filter(|path| path.is_file()) {
            bytes += Self::read_file(path, &mut posts)?;
            if bytes > MOST_FOLDER_BYTES {
                return Err(unread(&self.0, &format!("contains more than {MOST_FOLDER_BYTES} bytes of text")));
            }
        }
        Ok(Text { posts, features: Vec::new() })
    }
}

/// A synthetic user.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// The synthetic users that the text comes from.
    pub crowd: Arc<Crowd>,
    /// The number of the synthetic user.
    pub user: u64,
}

impl TextSource for Synthetic {
    fn text(&self) -> Result<Text, AgentError> {
        let names = labels();
        let post = |post: corpus::synth::Post| {
            let labels = post.labels().iter().filter_map(|id| names.names().get(*id as usize).cloned()).collect();
            TextPost { text: post.text, labels }
        };
        let posts = self.crowd.labelled_posts(self.user).into_iter().map(post).collect();
        Ok(Text { posts, features: self.crowd.features(self.user).to_vec() })
    }
}
