//! `keyhush data show`.

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use clap::Args;
use corpus::store::{Post, Store, StoreError};
use federated::numbers::counted;
use serde::Serialize;

use super::open;
use crate::failure::BadInput;

/// Arguments of `keyhush data show`.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("whose").required(true)))]
pub(crate) struct ShowArgs {
    /// Store to read
    store: PathBuf,
    /// Key of the user, as imported
    #[arg(long, value_name = "KEY", group = "whose")]
    user: Option<String>,
    /// Number of the user in the store, starting at 0
    #[arg(long, value_name = "N", group = "whose")]
    index: Option<u64>,
    /// Show at most this many posts
    #[arg(long, value_name = "N")]
    posts: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    index: u64,
    user: Option<&'a str>,
    tokens: usize,
    posts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<Vec<&'a str>>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    features: BTreeMap<&'a str, f32>,
}

/// Runs the command.
pub(super) fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let store = open(&args.store)?;
    let index = match (&args.user, args.index) {
        (Some(key), _) => store.find(key)?.ok_or_else(|| {
            let users = counted(store.users(), "user");
            BadInput::wrong(
                "user",
                format!("{key:?} is not in the store, which has {users}; `--index 0` shows the first"),
            )
        })?,
        (None, index) => index.unwrap_or(0),
    };
    if index >= store.users() {
        let problem = format!("must be below {}, the number of users; got {index}", store.users());
        return Err(BadInput::wrong("index", problem).into());
    }
    let shown = Shown::of(&store, index, args.posts.unwrap_or(usize::MAX))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&shown)?)?;
    } else {
        shown.print(&mut out)?;
    }
    Ok(())
}

impl<'a> Shown<'a> {
    fn of(store: &'a Store, index: u64, most: usize) -> Result<Self, StoreError> {
        let user = store.user(index)?;
        let text = |post: Post<'_>| store.vocabulary().decode(store.tokenizer(), post.tokens().iter());
        let names = |post: Post<'_>| post.labels().iter().filter_map(|id| store.labels().name(id)).collect();
        let labels = (!store.labels().is_empty()).then(|| user.posts().take(most).map(names).collect());
        Ok(Self {
            index,
            user: user.key(),
            tokens: user.tokens().len(),
            posts: user.posts().take(most).map(text).collect(),
            labels,
            features: store.feature_names().iter().map(String::as_str).zip(user.features().iter()).collect(),
        })
    }

    /// Features first, then one post per line, with its labels in brackets before it.
    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        if !self.features.is_empty() {
            let features: Vec<String> = self.features.iter().map(|(name, number)| format!("{name} {number}")).collect();
            writeln!(out, "features: {}", features.join(", "))?;
        }
        for (i, post) in self.posts.iter().enumerate() {
            match &self.labels {
                Some(labels) => writeln!(out, "[{}] {post}", labels[i].join(", "))?,
                None => writeln!(out, "{post}")?,
            }
        }
        Ok(())
    }
}
