//! Reading on one thread, parsing and tokenising on all cores.

use std::{
    io,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use lm::{tokenizer::Tokenizer, vocabulary::Vocabulary};

use super::{
    BadLine, BadLineReason, Format, ImportError, ImportPlan, Input, OnBadLine, Progress, SHOWN_BAD_LINES, Summary,
    block::{Block, Cut, LONGEST_KEY, LONGEST_LINE, LONGEST_TEXT, Lines, RawPost},
    group, json, leaf,
    source::{self, Files},
    spill::{Spill, SpillWriter},
    table::{Row, Rows},
};
use crate::store::UserTag;

/// Bytes of text in a block of posts.
const POSTS_BLOCK: usize = 1 << 20;
/// Tokens of a crowd in a block.
const CROWD_BLOCK: u64 = 100_000;

/// Reads the plan's input into the spill files.
pub(super) fn read_all(
    plan: &ImportPlan,
    spill: &Spill,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Summary, ImportError> {
    let known = &plan.vocabulary;
    let make = || Spilling {
        vocabulary: &known.vocabulary,
        tokenizer: known.tokenizer(),
        width: group::width(plan),
        writer: spill.writer(),
        ids: Vec::new(),
    };
    let stop = plan.on_bad_line == OnBadLine::Stop;
    let (takers, summary) =
        drive(&plan.input, plan.threads, stop, make, progress).map_err(|error| error.with_spill(&plan.out))?;
    for taker in takers {
        taker.writer.finish().map_err(|error| ImportError::Spill { path: plan.out.clone(), error })?;
    }
    Ok(summary)
}

/// What becomes of posts.
pub(super) trait Take: Send {
    /// Takes a post; says whether it had a token.
    fn post(&mut self, user: &str, text: &str, place: u64) -> io::Result<bool>;
}

struct Spilling<'a> {
    vocabulary: &'a Vocabulary,
    tokenizer: Tokenizer,
    width: usize,
    writer: SpillWriter<'a>,
    ids: Vec<u32>,
}

impl Take for Spilling<'_> {
    fn post(&mut self, user: &str, text: &str, place: u64) -> io::Result<bool> {
        self.ids.clear();
        self.vocabulary.encode(self.tokenizer, text, &mut self.ids);
        if self.ids.is_empty() {
            return Ok(false);
        }
        self.writer.post(UserTag::of(user), place, user, &self.ids, self.width)?;
        Ok(true)
    }
}

/// Why reading ended early.
pub(super) enum Failure {
    Import(ImportError),
    Spill(io::Error),
}

impl Failure {
    pub(super) fn with_spill(self, out: &Path) -> ImportError {
        match self {
            Self::Import(error) => error,
            Self::Spill(error) => ImportError::Spill { path: out.to_owned(), error },
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}

/// What all threads know.
struct Shared<'a> {
    input: &'a Input,
    stop_on_bad: bool,
    stop: AtomicBool,
    bad: AtomicU64,
    empty: AtomicU64,
    text_bytes: AtomicU64,
    first_bad: Mutex<Vec<BadLine>>,
    error: Mutex<Option<io::Error>>,
}

/// Reads on this thread and hands posts to takers on others.
pub(super) fn drive<T: Take>(
    input: &Input,
    threads: usize,
    stop_on_bad: bool,
    make: impl Fn() -> T,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(Vec<T>, Summary), Failure> {
    let shared = Shared {
        input,
        stop_on_bad,
        stop: AtomicBool::new(false),
        bad: AtomicU64::new(0),
        empty: AtomicU64::new(0),
        text_bytes: AtomicU64::new(0),
        first_bad: Mutex::new(Vec::new()),
        error: Mutex::new(None),
    };
    let threads = threads.max(1);
    let (sender, receiver) = sync_channel(threads * 2);
    let receiver = Mutex::new(receiver);
    let mut takers: Vec<T> = (0..threads).map(|_| make()).collect();
    let fed = std::thread::scope(|scope| {
        for taker in &mut takers {
            scope.spawn(|| shared.work(taker, &receiver));
        }
        let feed = Feed { shared: &shared, sender };
        feed.all(progress)
    });
    if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(Failure::Spill(error));
    }
    fed?;
    let summary = Summary {
        empty_posts: shared.empty.into_inner(),
        text_bytes: shared.text_bytes.into_inner(),
        bad_lines: shared.bad.into_inner(),
        first_bad_lines: shared.first_bad.into_inner().unwrap_or_else(PoisonError::into_inner),
        ..Summary::default()
    };
    Ok((takers, summary))
}

impl Shared<'_> {
    /// Takes blocks until there are no more. Blocks that were sent before a bad one are still read, so that the first bad
    /// line is the first.
    fn work<T: Take>(&self, taker: &mut T, receiver: &Mutex<Receiver<Block>>) {
        loop {
            let block = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(block) = block else { return };
            if let Err(error) = self.block(taker, block) {
                self.stop.store(true, Ordering::Relaxed);
                self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                // Keep taking blocks, so that the reading thread never waits for a worker that is gone.
            }
        }
    }

    fn block<T: Take>(&self, taker: &mut T, block: Block) -> io::Result<()> {
        match (block, self.input) {
            (Block::Users(users), Input::Crowd(crowd)) => {
                for user in users {
                    let key = crowd.key(user);
                    for (place, text) in crowd.posts(user).iter().enumerate() {
                        self.post(taker, &key, text, place as u64)?;
                    }
                }
            }
            (Block::Lines { file, first_line, bytes }, Input::Files { user_key, text_key, .. }) => {
                let lines = bytes.split(|byte| *byte == b'\n').enumerate();
                for (i, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
                    let number = first_line + i as u64;
                    match json::fields(line, user_key, text_key) {
                        Ok(fields) => self.checked(taker, file, number, &fields.user, &fields.text)?,
                        Err(reason) => self.bad(file, number, reason),
                    }
                }
            }
            (Block::Posts { file, posts }, _) => {
                for RawPost { line, user, text } in posts {
                    match (str::from_utf8(&user), str::from_utf8(&text)) {
                        (Ok(user), Ok(text)) => self.checked(taker, file, line, user, text)?,
                        _ => self.bad(file, line, BadLineReason::NotUtf8),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A post whose lengths are not sure yet.
    fn checked<T: Take>(&self, taker: &mut T, file: usize, line: u64, user: &str, text: &str) -> io::Result<()> {
        let too_long = |what, most: usize| BadLineReason::TooLong { what, most: most as u64 };
        let reason = if user.is_empty() {
            BadLineReason::NoUser
        } else if user.len() > LONGEST_KEY {
            too_long("user", LONGEST_KEY)
        } else if text.len() > LONGEST_TEXT {
            too_long("text", LONGEST_TEXT)
        } else if self.is_deleted(user, text) {
            self.empty.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        } else {
            return self.post(taker, user, text, (file as u64) << 40 | line);
        };
        self.bad(file, line, reason);
        Ok(())
    }

    /// What Reddit writes in place of comments that are gone.
    fn is_deleted(&self, user: &str, text: &str) -> bool {
        matches!(self.input, Input::Files { text_key, .. } if text_key == "body")
            && (user == "[deleted]" || matches!(text, "[deleted]" | "[removed]"))
    }

    fn post<T: Take>(&self, taker: &mut T, user: &str, text: &str, place: u64) -> io::Result<()> {
        self.text_bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        if !taker.post(user, text, place)? {
            self.empty.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn bad(&self, file_index: usize, line: u64, reason: BadLineReason) {
        self.bad.fetch_add(1, Ordering::Relaxed);
        let file = match self.input {
            Input::Files { paths, .. } => paths.get(file_index).map(|path| source::name(path)).unwrap_or_default(),
            Input::Crowd(_) => String::new(),
        };
        let mut first = self.first_bad.lock().unwrap_or_else(PoisonError::into_inner);
        first.push(BadLine { file_index, file, line, reason });
        first.sort();
        first.truncate(SHOWN_BAD_LINES);
        if self.stop_on_bad {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The reading thread.
struct Feed<'a> {
    shared: &'a Shared<'a>,
    sender: SyncSender<Block>,
}

impl Feed<'_> {
    fn all(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<(), ImportError> {
        match self.shared.input {
            Input::Crowd(crowd) => {
                let plan = crowd.plan();
                let size = u64::from(plan.posts_per_user) * u64::from(plan.words_per_post);
                let step = (CROWD_BLOCK / size).max(1);
                let mut from = 0;
                while from < plan.users {
                    let to = plan.users.min(from + step);
                    if !self.send(Block::Users(from..to), (to, plan.users), progress)? {
                        break;
                    }
                    from = to;
                }
                Ok(())
            }
            Input::Files { paths, format, user_key, text_key } => {
                let files = Files::new(paths)?;
                for (index, path) in files.paths.iter().enumerate() {
                    let format = format.map_or_else(|| Format::of(path), Ok)?;
                    let keys = (user_key.as_str(), text_key.as_str());
                    if !self.file(&files, index, format, keys, progress)? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Sends a block; says whether to go on.
    fn send(
        &self,
        block: Block,
        (done, total): (u64, u64),
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<bool, ImportError> {
        let bad = self.shared.bad.load(Ordering::Relaxed);
        if !progress(Progress::Reading { done, total, bad }) {
            return Err(ImportError::Interrupted);
        }
        Ok(self.sender.send(block).is_ok() && !self.shared.stop.load(Ordering::Relaxed))
    }

    fn file(
        &self,
        files: &Files<'_>,
        index: usize,
        format: Format,
        keys: (&str, &str),
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<bool, ImportError> {
        let path = &files.paths[index];
        let failed = |error| ImportError::Read { path: path.clone(), error };
        let mut send = |block| self.send(block, (files.read(), files.total), progress);
        match format {
            Format::Jsonl | Format::Reddit => {
                let mut lines = Lines::new(files.open(path).map_err(failed)?);
                loop {
                    match lines.next().map_err(failed)? {
                        Cut::End => return Ok(true),
                        Cut::TooLong { line } => {
                            let most = LONGEST_LINE as u64;
                            self.shared.bad(index, line, BadLineReason::TooLong { what: "line", most });
                        }
                        Cut::Block { first_line, bytes } => {
                            if !send(Block::Lines { file: index, first_line, bytes })? {
                                return Ok(false);
                            }
                        }
                    }
                }
            }
            Format::Csv | Format::Tsv => {
                let delimiter = if format == Format::Csv { b',' } else { b'\t' };
                let from = files.open(path).map_err(failed)?;
                let mut batch = Batch::new(index, &mut send);
                self.table(from, path, index, delimiter, keys, &mut batch)?;
                batch.finish()
            }
            Format::Leaf => {
                let mut batch = Batch::new(index, &mut send);
                let mut number = 0;
                let mut emit = |user: &str, text: &str| {
                    number += 1;
                    batch.post(number, user.as_bytes(), text.as_bytes())
                };
                let from = io::BufReader::with_capacity(1 << 18, files.open(path).map_err(failed)?);
                let outcome = leaf::read(from, &mut emit);
                let stopped = batch.stopped();
                let more = batch.finish()?;
                match outcome {
                    Err(error) if !stopped => Err(ImportError::Malformed {
                        path: path.clone(),
                        format: "LEAF JSON",
                        problem: error.to_string(),
                    }),
                    _ => Ok(more),
                }
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let mut batch = Batch::new(index, &mut send);
                super::parquet::read(path, keys, &mut |line, user, text| batch.post(line, user, text))?;
                batch.finish()
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(ImportError::NoParquet(path.clone())),
        }
    }

    fn table(
        &self,
        from: impl io::Read,
        path: &Path,
        index: usize,
        delimiter: u8,
        (user_key, text_key): (&str, &str),
        batch: &mut Batch<'_>,
    ) -> Result<(), ImportError> {
        let failed = |error| ImportError::Read { path: path.to_owned(), error };
        let mut rows = Rows::new(from, delimiter);
        let header = match rows.next().map_err(failed)? {
            Row::Fields { .. } => rows.fields().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            Row::TooLong { .. } | Row::End => Vec::new(),
        };
        let column = |key: &str| {
            header.iter().position(|name| name == key).ok_or_else(|| ImportError::NoColumn {
                path: path.to_owned(),
                key: key.to_owned(),
                columns: header.clone(),
            })
        };
        let (user, text) = (column(user_key)?, column(text_key)?);
        loop {
            match rows.next().map_err(failed)? {
                Row::End => return Ok(()),
                Row::TooLong { line } => {
                    let most = LONGEST_LINE as u64;
                    self.shared.bad(index, line, BadLineReason::TooLong { what: "row", most });
                }
                Row::Fields { line } => {
                    let (got, expected) = (rows.count(), header.len());
                    if got != expected {
                        self.shared.bad(index, line, BadLineReason::Fields { got, expected });
                    } else if !batch.post(line, rows.field(user), rows.field(text)) {
                        return Ok(());
                    }
                }
            }
        }
    }
}

type SendBlock<'a> = dyn FnMut(Block) -> Result<bool, ImportError> + 'a;

/// Collects posts to blocks.
struct Batch<'a> {
    file: usize,
    posts: Vec<RawPost>,
    bytes: usize,
    send: &'a mut SendBlock<'a>,
    outcome: Result<bool, ImportError>,
}

impl<'a> Batch<'a> {
    fn new(file: usize, send: &'a mut SendBlock<'a>) -> Self {
        Self { file, posts: Vec::new(), bytes: 0, send, outcome: Ok(true) }
    }

    /// Takes a post; says whether to go on.
    fn post(&mut self, line: u64, user: &[u8], text: &[u8]) -> bool {
        self.bytes += user.len() + text.len();
        self.posts.push(RawPost { line, user: user.to_vec(), text: text.to_vec() });
        if self.bytes >= POSTS_BLOCK {
            self.flush();
        }
        !self.stopped()
    }

    const fn stopped(&self) -> bool {
        !matches!(self.outcome, Ok(true))
    }

    fn flush(&mut self) {
        let posts = std::mem::take(&mut self.posts);
        self.bytes = 0;
        if !self.stopped() && !posts.is_empty() {
            self.outcome = (self.send)(Block::Posts { file: self.file, posts });
        }
    }

    fn finish(mut self) -> Result<bool, ImportError> {
        self.flush();
        self.outcome
    }
}
