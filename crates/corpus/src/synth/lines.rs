//! A crowd as JSON lines: its posts, and its canaries with those who hold them.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::Crowd;
use crate::import::Progress;

#[derive(Serialize)]
struct Post<'a> {
    user: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct Planted {
    text: String,
    users: Vec<String>,
}

impl Crowd {
    /// Writes every post, a line each with `user` and `text`; says how many there are. `progress` says whether to go on;
    /// where it did not, there is no number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_posts(
        &self,
        to: &mut dyn Write,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> io::Result<Option<u64>> {
        let mut out = BufWriter::with_capacity(1 << 18, to);
        let (total, mut posts) = (self.plan().users, 0);
        for user in 0..total {
            if !progress(Progress::Reading { done: user, total, bad: 0 }) {
                return Ok(None);
            }
            let key = self.key(user);
            for text in self.posts(user) {
                line(&mut out, &Post { user: &key, text: &text })?;
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
