//! Writes a synthetic crowd as JSON lines: its posts, its canaries, and the users who have them.

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
};

use serde::Serialize;

use super::{Crowd, FEATURES, labels};
use crate::progress::Progress;

/// Fields of a post's line besides `user` and `text`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineFields {
    /// What the post is about: `labels`, a list of names.
    pub labels: bool,
    /// What is known of the user: each of [`FEATURES`] by its name.
    pub features: bool,
}

#[derive(Serialize)]
struct PostLine<'a> {
    user: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<&'a str>>,
    #[serde(flatten)]
    features: &'a BTreeMap<&'a str, f32>,
}

#[derive(Serialize)]
struct Planted {
    text: String,
    users: Vec<String>,
}

impl Crowd {
    /// Writes every post, a line each with `user`, `text` and other fields that are wanted; says how many there are.
    /// `progress` returns whether to continue; where it did not, there is no number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_posts(
        &self,
        fields: LineFields,
        to: &mut dyn Write,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> io::Result<Option<u64>> {
        let mut out = BufWriter::with_capacity(1 << 18, to);
        let (total, names, mut posts) = (self.plan().users, labels(), 0);
        for user in 0..total {
            if !progress(Progress::Reading { done: user, total, bad: 0 }) {
                return Ok(None);
            }
            let key = self.key(user);
            let known = FEATURES.into_iter().zip(self.features(user)).filter(|_| fields.features);
            let features = &known.collect();
            for post in self.labelled_posts(user) {
                let named = || post.labels().iter().filter_map(|id| names.name(*id)).collect();
                let labels = fields.labels.then(named);
                line(&mut out, &PostLine { user: &key, text: &post.text, labels, features })?;
                posts += 1;
            }
        }
        out.flush()?;
        Ok(Some(posts))
    }

    /// Writes every canary, a line each with its `text` and the `users` who hold it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_canaries(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut out = BufWriter::new(to);
        for canary in self.canaries() {
            let users = canary.holders.iter().map(|user| self.key(*user)).collect();
            line(&mut out, &Planted { text: canary.text, users })?;
        }
        out.flush()
    }
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
