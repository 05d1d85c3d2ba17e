//! The import pipeline: one thread reads, all cores parse and tokenize.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use lm::{tokenizer::Tokenizer, vocabulary::Vocabulary};

use super::{
    BadLine, BadLineReason, Columns, FileLines, Format, ImportError, ImportPlan, Input, OnBadLine, Progress,
    SHOWN_BAD_LINES, Summary,
    block::{Block, Cut, LONGEST_KEY, LONGEST_LABEL, LONGEST_LINE, LONGEST_TEXT, Lines, RawPost},
    group, json,
    labels::Tags,
    leaf,
    source::{self, Files},
    spill::{Record, Shape, Spill, SpillWriter},
    table::{Row, Rows},
};
use crate::{
    origin,
    store::{Labels, UserTag},
    synth::{self, Crowd},
};

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
        labels: plan.labels.as_ref().map(|known| &known.labels),
        shape: group::shape(plan),
        writer: spill.writer(),
        ids: Vec::new(),
        label_ids: Vec::new(),
        unknown_labels: 0,
    };
    let stop = plan.on_bad_line == OnBadLine::Stop;
    let (takers, mut summary) =
        drive(&plan.input, plan.threads, stop, make, progress).map_err(|error| error.with_spill(&plan.out))?;
    for taker in takers {
        summary.unknown_labels += taker.unknown_labels;
        taker.writer.finish().map_err(|error| ImportError::Spill { path: plan.out.clone(), error })?;
    }
    Ok(summary)
}

/// A post, and what is known of it and its user.
pub(super) struct Found<'a> {
    pub(super) user: &'a str,
    pub(super) text: &'a str,
    pub(super) labels: &'a [&'a str],
    pub(super) features: &'a [f32],
}

/// What becomes of posts.
pub(super) trait Take: Send {
    /// Takes a post; says whether it had a token.
    fn post(&mut self, post: &Found<'_>, place: u64) -> io::Result<bool>;
}

struct Spilling<'a> {
    vocabulary: &'a Vocabulary,
    tokenizer: Tokenizer,
    labels: Option<&'a Labels>,
    shape: Shape,
    writer: SpillWriter<'a>,
    ids: Vec<u32>,
    label_ids: Vec<u32>,
    unknown_labels: u64,
}

impl Spilling<'_> {
    /// The ids of those labels that have one; without labels there is nothing to know.
    fn encode(&mut self, names: &[&str]) {
        self.label_ids.clear();
        let Some(labels) = self.labels else { return };
        self.label_ids.extend(names.iter().filter_map(|name| labels.id(name)));
        self.unknown_labels += (names.len() - self.label_ids.len()) as u64;
    }
}

impl Take for Spilling<'_> {
    fn post(&mut self, post: &Found<'_>, place: u64) -> io::Result<bool> {
        self.ids.clear();
        self.vocabulary.encode(self.tokenizer, post.text, &mut self.ids);
        if self.ids.is_empty() {
            return Ok(false);
        }
        self.encode(post.labels);
        let (tag, ids, labels) = (UserTag::of(post.user), &self.ids, &self.label_ids);
        let record = Record { tag, place, key: post.user, ids, labels, features: post.features };
        self.writer.post(&record, self.shape)?;
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
    /// The format of each file, and its columns.
    files: Vec<(Format, Columns)>,
    stop_on_bad: bool,
    stop: AtomicBool,
    /// For each file what was read of it; of a crowd there is one.
    read: Vec<Read>,
    empty: AtomicU64,
    text_bytes: AtomicU64,
    error: Mutex<Option<io::Error>>,
}

/// What was read of a file.
#[derive(Default)]
struct Read {
    lines: AtomicU64,
    bad: AtomicU64,
    first_bad: Mutex<Vec<BadLine>>,
}

impl Read {
    fn into_lines(self) -> FileLines {
        let first_bad = self.first_bad.into_inner().unwrap_or_else(PoisonError::into_inner);
        FileLines { lines: self.lines.into_inner(), bad: self.bad.into_inner(), first_bad }
    }
}

/// Reads on this thread and hands posts to takers on others.
pub(super) fn drive<T: Take>(
    input: &Input,
    threads: usize,
    stop_on_bad: bool,
    make: impl Fn() -> T,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(Vec<T>, Summary), Failure> {
    let files = formats(input)?;
    let shared = Shared {
        input,
        read: (0..files.len().max(1)).map(|_| Read::default()).collect(),
        files,
        stop_on_bad,
        stop: AtomicBool::new(false),
        empty: AtomicU64::new(0),
        text_bytes: AtomicU64::new(0),
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
    let files: Vec<FileLines> = shared.read.into_iter().map(Read::into_lines).collect();
    let summary = Summary {
        empty_posts: shared.empty.into_inner(),
        text_bytes: shared.text_bytes.into_inner(),
        lines: files.iter().map(|file| file.lines).sum(),
        bad_lines: files.iter().map(|file| file.bad).sum(),
        first_bad_lines: files.iter().flat_map(|file| &file.first_bad).take(SHOWN_BAD_LINES).cloned().collect(),
        files,
        ..Summary::default()
    };
    Ok((takers, summary))
}

/// What each file is, and which columns of it are read, before the first of them is opened.
fn formats(input: &Input) -> Result<Vec<(Format, Columns)>, ImportError> {
    let Input::Files { paths, format, columns } = input else { return Ok(Vec::new()) };
    // What is not there, or no file, is said first.
    Files::new(paths)?;
    let of_file = |path: &PathBuf| {
        let format = format.map_or_else(|| Format::of(path), Ok)?;
        Ok((format, columns.of(format)))
    };
    paths.iter().map(of_file).collect()
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
            (Block::Users(users), Input::Crowd { crowd, features }) => {
                let labels = synth::labels();
                users.into_iter().try_for_each(|user| self.person(taker, crowd, *features, &labels, user))
            }
            (Block::Lines { file, first_line, bytes }, Input::Files { .. }) => {
                let columns = &self.files[file].1;
                let lines = (first_line..).zip(bytes.split(|byte| *byte == b'\n'));
                let mut lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
                lines.try_for_each(|(number, line)| self.line(taker, columns, file, number, line))
            }
            (Block::Posts { file, posts }, Input::Files { .. }) => {
                let columns = &self.files[file].1;
                posts.iter().try_for_each(|post| self.row(taker, columns, file, post))
            }
            _ => Ok(()),
        }
    }

    /// Everything that somebody of a crowd typed.
    fn person<T: Take>(
        &self,
        taker: &mut T,
        crowd: &Crowd,
        features: bool,
        labels: &Labels,
        user: u64,
    ) -> io::Result<()> {
        let (key, numbers) = (crowd.key(user), crowd.features(user));
        let features = if features { &numbers[..] } else { &[] };
        for (place, post) in (0..).zip(crowd.labelled_posts(user)) {
            let names: Vec<&str> = post.labels().iter().filter_map(|id| labels.name(*id)).collect();
            self.post(taker, 0, &Found { user: &key, text: &post.text, labels: &names, features }, place)?;
        }
        Ok(())
    }

    fn line<T: Take>(&self, taker: &mut T, columns: &Columns, file: usize, number: u64, line: &[u8]) -> io::Result<()> {
        match json::fields(line, columns) {
            Ok(fields) => {
                let labels = fields.labels.names(columns.labels.as_ref());
                let features = &fields.features;
                let post = Found { user: &fields.user, text: &fields.text, labels: &labels, features };
                self.checked(taker, file, number, &post)
            }
            Err(reason) => {
                self.bad(file, number, reason);
                Ok(())
            }
        }
    }

    fn row<T: Take>(&self, taker: &mut T, columns: &Columns, file: usize, raw: &RawPost) -> io::Result<()> {
        let (Ok(user), Ok(text), Ok(tags)) =
            (str::from_utf8(&raw.user), str::from_utf8(&raw.text), raw.labels.to_text())
        else {
            self.bad(file, raw.line, BadLineReason::NotUtf8);
            return Ok(());
        };
        match raw.numbers(columns) {
            Ok(features) => {
                let labels = tags.names(columns.labels.as_ref());
                self.checked(taker, file, raw.line, &Found { user, text, labels: &labels, features: &features })
            }
            Err(reason) => {
                self.bad(file, raw.line, reason);
                Ok(())
            }
        }
    }

    /// A post whose lengths are not sure yet.
    fn checked<T: Take>(&self, taker: &mut T, file: usize, line: u64, post: &Found<'_>) -> io::Result<()> {
        let too_long = |what, most: usize| BadLineReason::TooLong { what, most: most as u64 };
        let reason = if post.user.is_empty() {
            BadLineReason::NoUser
        } else if post.user.len() > LONGEST_KEY {
            too_long("user", LONGEST_KEY)
        } else if post.text.len() > LONGEST_TEXT {
            too_long("text", LONGEST_TEXT)
        } else if post.labels.iter().any(|label| label.len() > LONGEST_LABEL) {
            too_long("label", LONGEST_LABEL)
        } else if self.is_deleted(file, post) {
            self.read[file].lines.fetch_add(1, Ordering::Relaxed);
            self.empty.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        } else {
            return self.post(taker, file, post, source::place(file, line));
        };
        self.bad(file, line, reason);
        Ok(())
    }

    /// What Reddit writes in place of comments that are gone.
    fn is_deleted(&self, file: usize, post: &Found<'_>) -> bool {
        self.files.get(file).is_some_and(|(_, columns)| columns.text() == "body")
            && (post.user == "[deleted]" || matches!(post.text, "[deleted]" | "[removed]"))
    }

    fn post<T: Take>(&self, taker: &mut T, file: usize, post: &Found<'_>, place: u64) -> io::Result<()> {
        self.read[file].lines.fetch_add(1, Ordering::Relaxed);
        self.text_bytes.fetch_add(post.text.len() as u64, Ordering::Relaxed);
        if !taker.post(post, place)? {
            self.empty.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn bad(&self, file_index: usize, line: u64, reason: BadLineReason) {
        let read = &self.read[file_index];
        read.bad.fetch_add(1, Ordering::Relaxed);
        read.lines.fetch_add(1, Ordering::Relaxed);
        let file = match self.input {
            Input::Files { paths, .. } => paths.get(file_index).map(|path| origin::name(path)).unwrap_or_default(),
            Input::Crowd { .. } => String::new(),
        };
        let mut first = read.first_bad.lock().unwrap_or_else(PoisonError::into_inner);
        first.push(BadLine { file, line, reason });
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
            Input::Crowd { crowd, .. } => {
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
            Input::Files { paths, .. } => {
                let files = Files::new(paths)?;
                for (index, (format, columns)) in self.shared.files.iter().enumerate() {
                    if !self.file(&files, index, *format, columns, progress)? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Sends a block; returns whether to continue.
    fn send(
        &self,
        block: Block,
        (done, total): (u64, u64),
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<bool, ImportError> {
        let bad = self.shared.read.iter().map(|file| file.bad.load(Ordering::Relaxed)).sum();
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
        columns: &Columns,
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
                self.table(from, path, index, delimiter, columns, &mut batch)?;
                batch.finish()
            }
            Format::Leaf => {
                refuse_columns(path, columns)?;
                let mut batch = Batch::new(index, &mut send);
                let mut number = 0;
                let mut emit = |user: &str, text: &str| {
                    number += 1;
                    batch.post(RawPost::new(number, user.as_bytes(), text.as_bytes()))
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
                super::parquet::read(path, columns, &mut |post| batch.post(post))?;
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
        columns: &Columns,
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
        let (user, text) = (column(columns.user())?, column(columns.text())?);
        let labels = columns.labels.as_ref().map(|labels| column(&labels.key)).transpose()?;
        let features = columns.features.iter().map(|key| column(key)).collect::<Result<Vec<_>, _>>()?;
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
                        continue;
                    }
                    let labels = labels.map(|at| Tags::Joined(rows.field(at).to_vec())).unwrap_or_default();
                    let features = features.iter().map(|at| rows.field(*at).to_vec()).collect();
                    if !batch.post(RawPost {
                        labels,
                        features,
                        ..RawPost::new(line, rows.field(user), rows.field(text))
                    }) {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// LEAF's files have users and samples and no columns besides.
fn refuse_columns(path: &Path, columns: &Columns) -> Result<(), ImportError> {
    let labels = columns.labels.iter().map(|column| &column.key);
    labels.chain(&columns.features).next().map_or(Ok(()), |key| {
        let (path, columns) = (path.to_owned(), vec!["the samples x of user_data".to_owned()]);
        Err(ImportError::NoColumn { path, key: key.clone(), columns })
    })
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

    /// Takes a post; returns whether to continue.
    fn post(&mut self, post: RawPost) -> bool {
        self.bytes += post.bytes();
        self.posts.push(post);
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
