//! A device's own store of text: limited in size and age; each post in it is trained on at most once.
//!
//! What was learned from is deleted, durably, before the first byte of the update leaves ([`crate::one`]). A crash in between loses text and
//! never uses it twice; a crash before loses nothing. What comes while a device trains is not of that update and stays.
//!
//! Lines of a folder are known by digests, so that they are taken in once ([`TextStore::take_in`]). As long as a line stands in the folder its
//! digest tells nobody anything; it goes when the folder is looked at and the line has not been there for as many days as text is kept.
//! Until then anyone with the file can check whether a guessed line was imported.
//!
//! **Clocks are wrong at times** ([`device::days`]). The latest day that the store was told is in the file; a clock that is set back makes neither text nor digests younger,
//! also over restarts, and what comes after that is as young as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use device::{
    days::Told,
    guard::{Store, file::FileStore},
    protocol::task::{Text, TextPost},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{TextFolder, TextSource};
use crate::AgentError;

const FORMAT: u32 = 3;

/// The one before had no latest day.
const WITHOUT_LATEST_DAY: u32 = 2;

/// `1 post`, `2 posts`.
fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// How much text is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Bytes of all text together.
    pub bytes: usize,
    /// Days; the day on which it came is the first.
    pub days: u32,
}

impl Default for Keep {
    fn default() -> Self {
        Self { bytes: 1 << 20, days: 30 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    id: u64,
    day: u32,
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
}

/// Everything that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kit {
    format: u32,
    keep: Keep,
    /// The id of the next post.
    next: u64,
    /// Posts that were learned from, and are gone.
    learned: u64,
    /// The oldest first.
    posts: Vec<Kept>,
    /// Digests of lines that were taken in, and the day on which each was last seen in the folder.
    taken: BTreeMap<String, u32>,
    /// The latest day that it was told, by the clock as it is now.
    #[serde(default)]
    seen: u32,
}

impl Kit {
    const fn new(keep: Keep) -> Self {
        Self { format: FORMAT, keep, next: 0, learned: 0, posts: Vec::new(), taken: BTreeMap::new(), seen: 0 }
    }

    /// The latest day of all that is recorded.
    fn latest(&self) -> u32 {
        self.posts.iter().map(|post| post.day).chain(self.taken.values().copied()).fold(self.seen, u32::max)
    }

    /// The same with the days of today's clock; none says that it is not looked at.
    fn on(mut self, clock: Option<u32>) -> Self {
        let latest = self.latest();
        let told = Told::new(clock.unwrap_or(latest), latest);
        self.posts.iter_mut().for_each(|post| post.day = told.recorded(post.day));
        self.taken.values_mut().for_each(|day| *day = told.recorded(*day));
        self.seen = told.today;
        self
    }

    /// Whether it says the same. Where nothing has a day, the latest says nothing.
    fn says_the_same(&self, other: &Self) -> bool {
        let has_days = !self.posts.is_empty() || !self.taken.is_empty();
        let seen = if has_days { self.seen } else { other.seen };
        Self { seen, ..self.clone() } == *other
    }

    /// Whether each post has a number of its own, in their order, and more can be added for ever.
    fn is_numbered(&self) -> bool {
        let ids = || self.posts.iter().map(|post| post.id).chain([self.next]);
        ids().is_sorted_by(|before, after| before < after) && self.next.max(self.learned) < u64::MAX / 2
    }

    fn bytes(&self) -> usize {
        self.posts.iter().map(|post| post.text.len()).sum()
    }

    /// Adds a post of today.
    fn push(&mut self, TextPost { text, labels }: TextPost) {
        self.posts.push(Kept { id: self.next, day: self.seen, text, labels });
        self.next += 1;
    }

    const fn is_too_old(&self, post: &Kept) -> bool {
        self.seen.saturating_sub(post.day) >= self.keep.days
    }

    /// Drops what is too old, and then the oldest until the rest fits.
    fn keep_to_limits(&mut self) {
        let posts = std::mem::take(&mut self.posts);
        self.posts = posts.into_iter().filter(|post| !self.is_too_old(post)).collect();
        let mut bytes = self.bytes();
        let too_many = self.posts.iter().take_while(|post| {
            let is_over = bytes > self.keep.bytes;
            bytes -= if is_over { post.text.len() } else { 0 };
            is_over
        });
        let too_many = too_many.count();
        self.posts.drain(..too_many);
    }
}

/// A store of text in one file (0600), or wherever a [`Store`] keeps bytes.
#[derive(Debug)]
pub struct TextStore<S>(Mutex<Inside<S>>);

#[derive(Debug)]
struct Inside<S> {
    store: S,
    kit: Kit,
    /// The posts that were given out last, or as many of them as were read.
    given: Vec<u64>,
}

impl TextStore<FileStore> {
    /// The store in a file, made if it is not there. Days are counted from 1970.
    ///
    /// # Errors
    /// When it is locked, open to others, or cannot be read.
    pub fn in_file(path: &Path, keep: Keep, today: u32) -> Result<Self, AgentError> {
        Self::open(FileStore::lock(path)?, keep, today).map_err(|error| at(path, error))
    }

    /// The store in a file as it is, to be looked at or cleared; none where there is none. What somebody who died was writing is gone when this returns, also
    /// where it would have been the first.
    ///
    /// # Errors
    /// When it is locked, open to others, or cannot be read.
    pub fn found_in(path: &Path, today: u32) -> Result<Option<Self>, AgentError> {
        let mut store = FileStore::lock(path)?;
        let kit = load(&mut store, today).map_err(|error| at(path, error))?;
        Ok(kit.map(|kit| Self::of(store, kit.on(Some(today)))))
    }
}

impl<S: Store> TextStore<S> {
    /// Opens a store, and deletes what is too old before it returns.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(mut store: S, keep: Keep, today: u32) -> Result<Self, AgentError> {
        let kit = load(&mut store, today)?.unwrap_or_else(|| Kit::new(keep));
        let opened = Self::of(store, kit);
        opened.change(Some(today), |kit| kit.keep = keep)?;
        Ok(opened)
    }

    const fn of(store: S, kit: Kit) -> Self {
        Self(Mutex::new(Inside { store, kit, given: Vec::new() }))
    }

    /// Deletes all text in a store, also what this program cannot read. What it can read keeps the digests of lines that were taken in; where they are lost
    /// with the rest, this returns false, and lines that still stand in a folder are taken in again.
    ///
    /// # Errors
    /// When it cannot be read from where it is kept, or not be written.
    pub fn forget(store: &mut S, today: u32) -> Result<bool, AgentError> {
        let (kit, is_read) = match load(store, today) {
            Ok(None) => return Ok(true),
            Ok(Some(kit)) => (Kit { posts: Vec::new(), ..kit.on(Some(today)) }, true),
            Err(AgentError::Text { .. }) => (Kit::new(Keep::default()), false),
            Err(error) => return Err(error),
        };
        store.save(&serde_json::to_vec(&kit).map_err(AgentError::Unwritten)?)?;
        Ok(is_read)
    }

    /// Adds a post, durably. If there is no room, the oldest posts are deleted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&self, post: TextPost, today: u32) -> Result<(), AgentError> {
        self.change(Some(today), |kit| kit.push(post))
    }

    /// Takes in what is in a folder: each line once, ever, and as many times as it stands there. What does not fit stays in the folder until
    /// there is room.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn take_in(&self, found: Vec<TextPost>, today: u32) -> Result<(), AgentError> {
        self.change(Some(today), |kit| {
            kit.keep_to_limits();
            let today = kit.seen;
            let mut room = kit.keep.bytes.saturating_sub(kit.bytes());
            let most = kit.keep.bytes;
            let (mut seen, mut is_full) = (BTreeMap::new(), false);
            // What is longer than all that may be kept never fits.
            for post in found.into_iter().filter(|post| post.text.len() <= most) {
                let times: &mut u64 = seen.entry(post.text.clone()).or_default();
                let digest = digest(&post.text, *times);
                *times += 1;
                if let Some(day) = kit.taken.get_mut(&digest) {
                    *day = today;
                    continue;
                }
                // What comes after it waits too: the oldest is first.
                is_full |= post.text.len() > room;
                if !is_full {
                    room -= post.text.len();
                    kit.taken.insert(digest, today);
                    kit.push(post);
                }
            }
            // Only who has looked knows what is not there any more.
            let days = kit.keep.days;
            kit.taken.retain(|_, seen| today.saturating_sub(*seen) < days);
        })
    }

    /// Deletes what is too old. A store in which nothing has a day is not written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn let_go_of_what_is_too_old(&self, today: u32) -> Result<(), AgentError> {
        // It is looked at every few seconds, and all text is not copied for that.
        let seen = self.lock().kit.seen;
        if Told::new(today, seen).today == seen { Ok(()) } else { self.change(Some(today), |_| {}) }
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().kit.bytes()
    }

    /// Describes the kept text for its owner.
    #[must_use]
    pub fn page(&self) -> String {
        let inside = self.lock();
        let Kit { keep, learned, posts, seen, .. } = &inside.kit;
        let oldest = posts.first().map(|post| seen.saturating_sub(post.day));
        let waiting = match oldest {
            None => "nothing".to_owned(),
            Some(days) => {
                let (count, bytes) = (posts.len(), inside.kit.bytes());
                let came =
                    if days == 0 { "today".to_owned() } else { format!("{} ago", counted(u64::from(days), "day")) };
                format!("{}, {}, the oldest from {came}", counted(count as u64, "post"), counted(bytes as u64, "byte"))
            }
        };
        let (bytes, days) = (counted(keep.bytes as u64, "byte"), counted(u64::from(keep.days), "day"));
        format!(
            "Your text on this device\n========================\n\nNot trained on yet: {waiting}.\nPosts trained on (once each) and deleted here: {learned}.\nLimits: at most {bytes}, for at most {days}.\n"
        )
    }

    /// On this day, by a clock that may be wrong; none where nobody looked at it.
    fn change(&self, clock: Option<u32>, change: impl FnOnce(&mut Kit)) -> Result<(), AgentError> {
        let mut inside = self.lock();
        let mut kit = inside.kit.clone().on(clock);
        change(&mut kit);
        kit.keep_to_limits();
        if !kit.says_the_same(&inside.kit) {
            let bytes = serde_json::to_vec(&kit).map_err(AgentError::Unwritten)?;
            inside.store.save(&bytes)?;
        }
        inside.kit = kit;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inside<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store + Send> TextSource for TextStore<S> {
    fn text(&self) -> Result<Text, AgentError> {
        let mut inside = self.lock();
        inside.given = inside.kit.posts.iter().map(|post| post.id).collect();
        let post = |post: &Kept| TextPost { text: post.text.clone(), labels: post.labels.clone() };
        Ok(Text { posts: inside.kit.posts.iter().map(post).collect(), features: Vec::new() })
    }

    fn read(&self, posts: usize) {
        self.lock().given.truncate(posts);
    }

    /// Deletes it.
    fn used(&self) -> Result<(), AgentError> {
        let given: BTreeSet<u64> = self.lock().given.iter().copied().collect();
        self.change(None, |kit| {
            let before = kit.posts.len();
            kit.posts.retain(|post| !given.contains(&post.id));
            kit.learned += (before - kit.posts.len()) as u64;
        })
    }

    fn let_go_of_old(&self) -> Result<(), AgentError> {
        self.let_go_of_what_is_too_old(today())
    }
}

/// A folder whose lines are taken into a store, once each. Its files are read before each training, and never written.
#[derive(Debug)]
pub struct TakenIn<S> {
    folder: TextFolder,
    store: TextStore<S>,
}

impl<S: Store + Send> TakenIn<S> {
    /// Imports the current contents of a folder before it returns.
    ///
    /// # Errors
    /// When the folder cannot be read, or the store not written.
    pub fn new(folder: TextFolder, store: TextStore<S>) -> Result<Self, AgentError> {
        let taken = Self { folder, store };
        taken.look()?;
        Ok(taken)
    }

    fn look(&self) -> Result<(), AgentError> {
        self.store.take_in(self.folder.text()?.posts, today())
    }
}

impl<S: Store + Send> TextSource for TakenIn<S> {
    fn text(&self) -> Result<Text, AgentError> {
        self.look()?;
        self.store.text()
    }

    fn read(&self, posts: usize) {
        self.store.read(posts);
    }

    fn used(&self) -> Result<(), AgentError> {
        self.store.used()
    }

    fn let_go_of_old(&self) -> Result<(), AgentError> {
        self.store.let_go_of_old()
    }
}

/// The day, counted from 1970.
#[must_use]
pub fn today() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    u32::try_from(since / 86_400).unwrap_or(u32::MAX)
}

/// What every format has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// What the first format had: digests that stayed for ever.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KitOfFormat1 {
    #[serde(rename = "format")]
    _format: u32,
    keep: Keep,
    next: u64,
    learned: u64,
    posts: Vec<Kept>,
    taken: BTreeSet<String>,
}

impl KitOfFormat1 {
    /// Their days begin now.
    fn into_kit(self, today: u32) -> Kit {
        let Self { keep, next, learned, posts, taken, .. } = self;
        let kit = Kit { next, learned, posts, ..Kit::new(keep) }.on(Some(today));
        Kit { taken: taken.into_iter().map(|digest| (digest, kit.seen)).collect(), ..kit }
    }
}

fn load(store: &mut impl Store, today: u32) -> Result<Option<Kit>, AgentError> {
    let wrong = |problem: String| AgentError::Text { path: PathBuf::new(), problem };
    let Some(bytes) = store.load()? else { return Ok(None) };
    let Format { format } = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    let read = match format {
        1 => serde_json::from_slice(&bytes).map(|kit: KitOfFormat1| kit.into_kit(today)),
        WITHOUT_LATEST_DAY | FORMAT => serde_json::from_slice(&bytes).map(|kit: Kit| Kit { format: FORMAT, ..kit }),
        got => {
            let problem =
                format!("it has format {got}, but this program reads {FORMAT}; use the program that wrote it");
            return Err(wrong(problem));
        }
    };
    let kit = read.map_err(|e| wrong(e.to_string()))?;
    if !kit.is_numbered() {
        return Err(wrong("its posts are not numbered as this program does".to_owned()));
    }
    Ok(Some(kit))
}

fn at(path: &Path, error: AgentError) -> AgentError {
    match error {
        AgentError::Text { problem, .. } => AgentError::Text { path: path.to_owned(), problem },
        other => other,
    }
}

/// What a line is known by, when it stands in its folder for so many times before.
fn digest(text: &str, times: u64) -> String {
    let digest = Sha256::new().chain_update(times.to_le_bytes()).chain_update(text).finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
