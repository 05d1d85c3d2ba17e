//! `keyhush data synth`.

use std::{
    io::Write,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use corpus::{
    import::{ImportError, Input, KnownLabels, OnBadLine},
    origin::Origin,
    partial::Partial,
    synth::{self, Canaries, Crowd, Dialect, LineFields, SynthPlan},
};
use federated::numbers::counted;
use serde::Serialize;

use super::{import::MakingArgs, progress::Watch, taken};
use crate::failure::BadInput;

/// What crowd, and where it goes.
#[derive(Args)]
pub(crate) struct SynthArgs {
    /// Store to create, or file of JSON lines with --jsonl (`-` for standard output)
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// Write JSON lines with `user` and `text` instead of a store
    #[arg(long)]
    jsonl: bool,
    /// Number of users
    #[arg(long, value_name = "N", default_value_t = 1000)]
    users: u64,
    /// Seed; the same seed gives the same users
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Style of the text
    #[arg(long, value_enum, default_value_t = DialectName::Informal)]
    dialect: DialectName,
    /// Mean number of posts per user
    #[arg(long, value_name = "N", default_value_t = 40)]
    posts_per_user: u32,
    /// Mean number of words per post
    #[arg(long, value_name = "N", default_value_t = 12)]
    words_per_post: u32,
    /// Insert COUNT canaries, each into USERS users, REPEATS times per user
    #[arg(long, value_name = "COUNT:USERS:REPEATS")]
    canaries: Option<CanaryCounts>,
    /// File for the canaries and the users that have them, as JSON lines
    #[arg(long, value_name = "FILE", requires = "canaries")]
    canaries_out: Option<PathBuf>,
    /// Label each post with its topic and with whether it is a question
    #[arg(long)]
    labels: bool,
    /// Add features of each user: how often they use slang, emoji, make typos, and so on
    #[arg(long)]
    features: bool,
    #[command(flatten)]
    making: MakingArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DialectName {
    /// Full sentences
    General,
    /// Chat messages
    Informal,
}

#[derive(Clone, Copy)]
struct CanaryCounts(Canaries);

/// Words of a canary, as in the paper.
const CANARY_WORDS: u32 = 5;

impl FromStr for CanaryCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<u32> =
            text.split(':').map(|n| n.parse().map_err(|e| format!("{n:?}: {e}"))).collect::<Result<_, _>>()?;
        match numbers[..] {
            [count, users, repeats] => Ok(Self(Canaries { count, users, repeats, words: CANARY_WORDS })),
            _ => Err("expected three numbers COUNT:USERS:REPEATS, such as 10:4:14".to_owned()),
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
    if args.jsonl
        && let Some(field) = args.making.about_a_store()
    {
        return Err(BadInput::out_of_place(field, "--jsonl").into());
    }
    if let Some(path) = &args.canaries_out {
        write_canaries(&crowd, path, args.making.replaces())?;
    }
    if args.jsonl {
        return lines(args, &crowd);
    }
    let labels = args.labels.then(|| KnownLabels { labels: synth::labels(), origin: Origin::BuiltIn });
    let input = Input::Crowd { crowd, features: args.features };
    args.making.make(input, labels, args.out.clone(), (OnBadLine::Stop, 0.0), "users")
}

fn write_canaries(crowd: &Crowd, path: &Path, replace: bool) -> anyhow::Result<()> {
    let mut file = begin(path, replace)?;
    crowd.write_canaries(&mut file)?;
    Ok(file.finish()?)
}

fn begin(path: &Path, replace: bool) -> anyhow::Result<Partial> {
    Partial::create(path, replace).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => taken(path).into(),
        _ => BadInput::wrong("out", format!("{}: {error}", path.display())).into(),
    })
}

/// Writes JSON lines: to standard output, or to a file that gets its name when it is whole.
fn lines(args: &SynthArgs, crowd: &Crowd) -> anyhow::Result<()> {
    if args.out == Path::new("-") {
        write_lines(args, crowd, &mut std::io::stdout().lock())?;
        return Ok(());
    }
    let mut file = begin(&args.out, args.making.replaces())?;
    let posts = write_lines(args, crowd, &mut file)?;
    file.finish()?;
    let (path, users) = (args.out.display().to_string(), crowd.plan().users);
    let mut out = std::io::stdout().lock();
    if args.making.json() {
        writeln!(out, "{}", serde_json::to_string(&Written { file: path, users, posts })?)?;
    } else {
        writeln!(out, "{path}: {} by {}", counted(posts, "post"), counted(users, "user"))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Written {
    file: String,
    users: u64,
    posts: u64,
}

fn write_lines(args: &SynthArgs, crowd: &Crowd, to: &mut dyn Write) -> anyhow::Result<u64> {
    let mut watch = Watch::new(args.making.quiet(), "users")?;
    let fields = LineFields { labels: args.labels, features: args.features };
    let posts = crowd.write_posts(fields, to, &mut |progress| watch.tick(progress))?;
    watch.finish();
    posts.ok_or_else(|| ImportError::Interrupted.into())
}
