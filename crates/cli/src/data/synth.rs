//! `keyhush data synth`.

use std::{
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use corpus::{
    import::{ImportError, Input, OnBadLine, Progress},
    synth::{Canaries, Crowd, Dialect, SynthPlan},
};
use serde::Serialize;

use super::{grouped, import::MakingArgs, progress::Watch};
use crate::failure::BadInput;

/// What crowd, and where it goes.
#[derive(Args)]
pub(crate) struct SynthArgs {
    /// The store to make, or with --jsonl the file of JSON lines (`-` for standard output)
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// Write JSON lines with `user` and `text` instead of a store
    #[arg(long)]
    jsonl: bool,
    /// How many users
    #[arg(long, value_name = "N", default_value_t = 1000)]
    users: u64,
    /// From which everything follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How the crowd speaks
    #[arg(long, value_enum, default_value_t = DialectName::Informal)]
    dialect: DialectName,
    /// Posts of a user, on average
    #[arg(long, value_name = "N", default_value_t = 40)]
    posts_per_user: u32,
    /// Words of a post, on average
    #[arg(long, value_name = "N", default_value_t = 12)]
    words_per_post: u32,
    /// Plant COUNT canaries, each in USERS users, REPEATS times in each
    #[arg(long, value_name = "COUNT:USERS:REPEATS")]
    canaries: Option<CanaryCounts>,
    #[command(flatten)]
    making: MakingArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DialectName {
    /// Whole sentences
    General,
    /// Messages
    Informal,
}

#[derive(Clone, Copy)]
struct CanaryCounts(Canaries);

/// Words of a canary, as in the paper.
const CANARY_WORDS: u32 = 5;

impl FromStr for CanaryCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<u32> = text.split(':').map(|n| n.parse().map_err(|e| format!("{n:?}: {e}"))).collect::<Result<_, _>>()?;
        match numbers[..] {
            [count, users, repeats] => Ok(Self(Canaries { count, users, repeats, words: CANARY_WORDS })),
            _ => Err("three numbers are needed: COUNT:USERS:REPEATS, such as 10:4:14".to_owned()),
        }
    }
}

/// Runs the command.
pub(super) fn synth(args: &SynthArgs) -> anyhow::Result<()> {
    let dialect = match args.dialect {
        DialectName::General => Dialect::General,
        DialectName::Informal => Dialect::Informal,
    };
    let plan = SynthPlan {
        posts_per_user: args.posts_per_user,
        words_per_post: args.words_per_post,
        canaries: args.canaries.map(|canaries| canaries.0),
        ..SynthPlan::new(args.seed, args.users, dialect)
    };
    let crowd = Crowd::new(plan).map_err(|error| BadInput::Refused(error.to_string()))?;
    if args.jsonl {
        return lines(args, &crowd);
    }
    args.making.make(Input::Crowd(crowd), args.out.clone(), OnBadLine::Stop, "users")
}

#[derive(Serialize)]
struct Line<'a> {
    user: &'a str,
    text: &'a str,
}

/// Writes JSON lines: to standard output, or to a file that gets its name when it is whole.
fn lines(args: &SynthArgs, crowd: &Crowd) -> anyhow::Result<()> {
    if args.out == Path::new("-") {
        write_lines(crowd, args.making.quiet(), &mut std::io::stdout().lock())?;
        return Ok(());
    }
    if args.out.exists() && !args.making.replaces() {
        let taken = format!("{} exists already: choose another name, or say --replace", args.out.display());
        return Err(BadInput::Refused(taken).into());
    }
    let folder = args.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".keyhush-partial-").tempfile_in(folder)?;
    let posts = write_lines(crowd, args.making.quiet(), file.as_file_mut())?;
    file.persist(&args.out)?;
    if !args.making.quiet() {
        eprintln!("{}: {} posts by {} users", args.out.display(), grouped(posts), grouped(crowd.plan().users));
    }
    Ok(())
}

fn write_lines(crowd: &Crowd, quiet: bool, to: &mut dyn Write) -> anyhow::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 18, to);
    let mut watch = Watch::new(quiet, "users")?;
    let total = crowd.plan().users;
    let mut posts = 0;
    for user in 0..total {
        if !watch.tick(Progress::Reading { done: user, total, bad: 0 }) {
            return Err(ImportError::Interrupted.into());
        }
        let key = crowd.key(user);
        for text in crowd.posts(user) {
            serde_json::to_writer(&mut out, &Line { user: &key, text: &text }).map_err(std::io::Error::from)?;
            out.write_all(b"\n")?;
            posts += 1;
        }
    }
    out.flush()?;
    watch.finish();
    Ok(posts)
}
