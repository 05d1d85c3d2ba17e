//! `keyhush data show`.

use std::{io::Write, path::PathBuf};

use clap::Args;
use serde::Serialize;

use super::open;
use crate::failure::BadInput;

/// Whose text.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("whose").required(true)))]
pub(crate) struct ShowArgs {
    /// The store
    store: PathBuf,
    /// The user's key, as it was imported
    #[arg(long, value_name = "KEY", group = "whose")]
    user: Option<String>,
    /// The user's number in the store, from 0
    #[arg(long, value_name = "N", group = "whose")]
    index: Option<u64>,
    /// Show at most this many posts
    #[arg(long, value_name = "N")]
    posts: Option<usize>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    index: u64,
    user: Option<&'a str>,
    tokens: usize,
    posts: Vec<String>,
}

/// Runs the command.
pub(super) fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let store = open(&args.store)?;
    let index = match (&args.user, args.index) {
        (Some(key), _) => store.find(key)?.ok_or_else(|| {
            let users = store.users();
            BadInput::wrong("user", format!("{key:?} is not one of the {users} users; see `--index 0` for the first"))
        })?,
        (None, index) => index.unwrap_or(0),
    };
    if index >= store.users() {
        let problem = format!("{index} is not below {}, the number of users", store.users());
        return Err(BadInput::wrong("index", problem).into());
    }
    let user = store.user(index)?;
    let posts = user.posts().take(args.posts.unwrap_or(usize::MAX));
    let posts: Vec<String> = posts.map(|post| store.vocabulary().decode(store.tokenizer(), post.iter())).collect();
    let mut out = std::io::stdout().lock();
    if args.json {
        let shown = Shown { index, user: user.key(), tokens: user.tokens().len(), posts };
        writeln!(out, "{}", serde_json::to_string(&shown)?)?;
    } else {
        posts.iter().try_for_each(|post| writeln!(out, "{post}"))?;
    }
    Ok(())
}
