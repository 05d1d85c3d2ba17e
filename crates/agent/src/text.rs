//! What a device learns from: what its owner typed, kept as shortly as can be.
//!
//! [`TextStore`] is a keyboard's own: text beyond a cap in bytes or an age in days is gone, and what was learned from is marked, so that it is
//! not used again and can be deleted (Popov et al. 2018 train on text once and then let it go). [`TextFolder`] reads files that are
//! somebody else's and writes none. [`Synthetic`] is a made-up person.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use corpus::synth::{Crowd, labels};
use device::{
    guard::{Store, file::FileStore},
    protocol::task::{Text, TextPost},
};
use serde::{Deserialize, Serialize};

use crate::AgentError;

/// The most bytes of a folder's text that are read.
const MOST_FOLDER_BYTES: usize = 16 << 20;

/// Where text comes from.
pub trait TextSource: Send + Sync {
    /// What there is to learn from, the oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    fn text(&self) -> Result<Text, AgentError>;

    /// What [`TextSource::text`] gave last was learned from, and the update has left.
    ///
    /// # Errors
    /// When that cannot be kept.
    fn used(&self) -> Result<(), AgentError> {
        Ok(())
    }
}

/// How long text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Bytes of all text together.
    pub bytes: usize,
    /// Days; the day on which it was typed is the first.
    pub days: u32,
    /// Whether text is deleted as soon as it was learned from. Otherwise it is only not used again.
    pub delete_used: bool,
}

impl Default for Keep {
    fn default() -> Self {
        Self { bytes: 1 << 20, days: 30, delete_used: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    day: u32,
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(default)]
    used: bool,
}

/// A keyboard's own store of text, in one file (0600), or wherever a [`Store`] keeps bytes.
#[derive(Debug)]
pub struct TextStore<S> {
    inside: Mutex<Inside<S>>,
    keep: Keep,
}

#[derive(Debug)]
struct Inside<S> {
    store: S,
    posts: Vec<Kept>,
    /// How many of the unused were given out last.
    given: usize,
    today: u32,
}

impl TextStore<FileStore> {
    /// The store in a file, made if it is not there. Days are counted from 1970.
    ///
    /// # Errors
    /// When it is locked, open to others, or cannot be read.
    pub fn in_file(path: &Path, keep: Keep, today: u32) -> Result<Self, AgentError> {
        Self::open(FileStore::lock(path)?, keep, today).map_err(|e| match e {
            AgentError::Text { problem, .. } => AgentError::Text { path: path.to_owned(), problem },
            other => other,
        })
    }
}

impl<S: Store> TextStore<S> {
    /// What is in a store; what is too old is gone when this returns.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(mut store: S, keep: Keep, today: u32) -> Result<Self, AgentError> {
        let wrong = |e: serde_json::Error| AgentError::Text { path: PathBuf::new(), problem: e.to_string() };
        let posts = match store.load()? {
            None => Vec::new(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(wrong)?,
        };
        let opened = Self { inside: Mutex::new(Inside { store, posts, given: 0, today }), keep };
        opened.change(today, |_| {})?;
        Ok(opened)
    }

    /// Somebody typed something. It is durable when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&self, post: TextPost, today: u32) -> Result<(), AgentError> {
        let TextPost { text, labels } = post;
        self.change(today, |posts| posts.push(Kept { day: today, text, labels, used: false }))
    }

    /// Deletes everything.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn clear(&self) -> Result<(), AgentError> {
        self.change(0, Vec::clear)
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().posts.iter().map(|post| post.text.len()).sum()
    }

    fn change(&self, today: u32, change: impl FnOnce(&mut Vec<Kept>)) -> Result<(), AgentError> {
        let mut inside = self.lock();
        inside.today = inside.today.max(today);
        let today = inside.today;
        let mut posts = inside.posts.clone();
        change(&mut posts);
        posts.retain(|post| today.saturating_sub(post.day) < self.keep.days);
        let mut bytes: usize = posts.iter().map(|post| post.text.len()).sum();
        let mut too_many = 0;
        while bytes > self.keep.bytes {
            bytes -= posts[too_many].text.len();
            too_many += 1;
        }
        posts.drain(..too_many);
        if posts != inside.posts {
            inside.store.save(&serde_json::to_vec(&posts).unwrap_or_default())?;
            (inside.posts, inside.given) = (posts, 0);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inside<S>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store + Send> TextSource for TextStore<S> {
    /// What was not learned from yet.
    fn text(&self) -> Result<Text, AgentError> {
        let mut inside = self.lock();
        let posts: Vec<TextPost> = inside
            .posts
            .iter()
            .filter(|post| !post.used)
            .map(|post| TextPost { text: post.text.clone(), labels: post.labels.clone() })
            .collect();
        inside.given = posts.len();
        Ok(Text { posts, features: Vec::new() })
    }

    fn used(&self) -> Result<(), AgentError> {
        let given = self.lock().given;
        let delete = self.keep.delete_used;
        self.change(0, |posts| {
            posts.iter_mut().filter(|post| !post.used).take(given).for_each(|post| post.used = true);
            if delete {
                posts.retain(|post| !post.used);
            }
        })
    }
}

/// Files that are somebody else's: `.txt`, a post a line, and `.jsonl`, `{"text": ..., "labels": [...]}` a line. They are read each time, in
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
    /// A folder.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn read(path: &Path, posts: &mut Vec<TextPost>) -> Result<usize, AgentError> {
        let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_owned();
        if kind != "txt" && kind != "jsonl" {
            return Ok(0);
        }
        let text = fs::read_to_string(path).map_err(|e| unread(path, &e))?;
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
            bytes += Self::read(path, &mut posts)?;
            if bytes > MOST_FOLDER_BYTES {
                return Err(unread(&self.0, &format!("there are more than {MOST_FOLDER_BYTES} bytes of text in it")));
            }
        }
        Ok(Text { posts, features: Vec::new() })
    }
}

/// A made-up person.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// The crowd.
    pub crowd: Arc<Crowd>,
    /// Which of it.
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
