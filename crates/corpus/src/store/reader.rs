//! Reads a store: opens in milliseconds, finds a user in constant time.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use lm::{
    tokenizer::{Rules, Tokenizer},
    vocabulary::{UNK, Vocabulary},
};
use memmap2::Mmap;

use super::{
    Features, LabelIds, Labels, Meta, StoreError, UserTag,
    features::{self, FEATURE_BYTES},
    format::{Header, HeaderProblem, LABEL_BYTES, SECTIONS, Section, VERSION, u32_at, u64_at},
    map,
};
use crate::origin::fingerprint;

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    map: Mmap,
    header: Header,
    meta: Meta,
    vocabulary: Vocabulary,
    labels: Labels,
}

impl Store {
    /// Opens a store and checks its header, the table of users, its description, its vocabulary and the names of its
    /// labels.
    ///
    /// # Errors
    /// When it cannot be read, is something else, has another version or is damaged.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let map = map::map(path).map_err(|error| StoreError::Io { path: path.to_owned(), error })?;
        let header = Header::read(&map).map_err(|problem| match problem {
            HeaderProblem::NotAStore => StoreError::NotAStore(path.to_owned()),
            HeaderProblem::Version(got) => StoreError::Version { path: path.to_owned(), got, known: VERSION },
            HeaderProblem::Damaged(what) => StoreError::Damaged { path: path.to_owned(), what },
        })?;
        for section in [Section::Users, Section::Meta, Section::Vocabulary, Section::LabelNames] {
            check(path, &map, &header, section)?;
        }
        let damaged = |what| StoreError::Damaged { path: path.to_owned(), what };
        let text = |section| bytes(&map, &header, section);
        let meta =
            serde_json::from_slice(text(Section::Meta)).map_err(|_| damaged("its description cannot be read"))?;
        let words =
            std::str::from_utf8(text(Section::Vocabulary)).map_err(|_| damaged("its vocabulary is not UTF-8"))?;
        let vocabulary =
            Vocabulary::parse(words).map_err(|error| StoreError::Vocabulary { path: path.to_owned(), error })?;
        let labels = label_names(text(Section::LabelNames)).ok_or_else(|| damaged("its label names are not valid"))?;
        let store = Self { path: path.to_owned(), map, header, meta, vocabulary, labels };
        store.check_optional().map_err(damaged)?;
        Ok(store)
    }

    /// Labels and features are as many as their names say.
    fn check_optional(&self) -> Result<(), &'static str> {
        if self.labels.is_empty() != (self.header.section(Section::LabelEnds).length == 0) && self.header.posts > 0 {
            return Err("it has labels without names, or names without labels");
        }
        features::check_names(&self.meta.features).map_err(|_| "its features cannot be named so")?;
        let wanted = u128::from(self.header.users) * (self.meta.features.len() * FEATURE_BYTES) as u128;
        if u128::from(self.header.section(Section::Features).length) != wanted {
            return Err("the number of features differs from the number of their names");
        }
        Ok(())
    }

    /// How many users there are.
    #[must_use]
    pub const fn users(&self) -> u64 {
        self.header.users
    }

    /// How many posts there are.
    #[must_use]
    pub const fn posts(&self) -> u64 {
        self.header.posts
    }

    /// How many tokens there are, BOS and EOS not counted.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.header.tokens
    }

    /// Bits of an id.
    #[must_use]
    pub const fn id_bits(&self) -> u32 {
        self.header.id_bytes * 8
    }

    /// The vocabulary, origin and import settings.
    #[must_use]
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Its vocabulary.
    #[must_use]
    pub const fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The labels of its posts; none if posts have no labels.
    #[must_use]
    pub const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The names of the users' features, in the order of their numbers; none if users have no features.
    #[must_use]
    pub fn feature_names(&self) -> &[String] {
        &self.meta.features
    }

    /// The tokenizer by whose rules it was made.
    #[must_use]
    pub const fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(self.meta.rules)
    }

    /// The fingerprint of its rules and vocabulary.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.meta.rules, &self.vocabulary)
    }

    /// Refuses rules or a vocabulary, such as a model's, that are not those of the store: its ids would mean other words.
    ///
    /// # Errors
    /// When they are not.
    pub fn require_vocabulary(&self, rules: Rules, vocabulary: &Vocabulary) -> Result<(), StoreError> {
        if self.meta.rules == rules && self.vocabulary == *vocabulary {
            return Ok(());
        }
        let words = |rules: Rules, vocabulary: &Vocabulary| {
            format!("{rules} with {} entries, {}", vocabulary.len(), fingerprint(rules, vocabulary))
        };
        Err(StoreError::OtherVocabulary {
            path: self.path.clone(),
            own: words(self.meta.rules, &self.vocabulary),
            given: words(rules, vocabulary),
        })
    }

    /// All that it holds, in pieces: who digests them can tell this store from any other.
    pub fn content(&self) -> impl Iterator<Item = &[u8]> {
        SECTIONS.iter().map(|(section, _)| self.bytes(*section))
    }

    /// The checksums of its sections, as its header has them: of stores that differ, they do.
    #[must_use]
    pub fn checksums(&self) -> Vec<u32> {
        SECTIONS.iter().map(|(section, _)| self.header.section(*section).crc).collect()
    }

    /// The users' tags in order, in pieces, to compare stores.
    pub fn roll(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.bytes(Section::Tags))
    }

    /// A user, in constant time.
    ///
    /// # Errors
    /// When there is no such user, or the tables contradict each other.
    pub fn user(&self, index: u64) -> Result<User<'_>, StoreError> {
        if index >= self.header.users {
            return Err(StoreError::NoUser { index, users: self.header.users });
        }
        self.read_user(index).ok_or_else(|| self.damaged("the table of users points outside"))
    }

    fn read_user(&self, index: u64) -> Option<User<'_>> {
        let index = usize::try_from(index).ok()?;
        let users = self.bytes(Section::Users);
        let number = |at: usize| u64_at(users, at).and_then(|n| usize::try_from(n).ok());
        let tokens = number(index * 16)?..number(index * 16 + 16)?;
        let posts = number(index * 16 + 8)?..number(index * 16 + 24)?;
        let ids = Ids::new(self.bytes(Section::Tokens), self.header.id_bytes).slice(tokens)?;
        let limit = self.vocabulary.len() as u32;
        let ends = self.bytes(Section::Posts).get(posts.start.checked_mul(4)?..posts.end.checked_mul(4)?)?;
        let tokens = Tokens { ids, limit };
        let (labels, features) = (self.labels_of(posts)?, self.features(index)?);
        Some(User { tag: self.tag(index)?, key: self.key(index), tokens, ends, labels, features })
    }

    /// The labels of a range of posts.
    fn labels_of(&self, posts: Range<usize>) -> Option<Labelled<'_>> {
        if self.labels.is_empty() {
            return Some(Labelled::default());
        }
        let table = self.bytes(Section::LabelEnds);
        let start = if posts.start == 0 { 0 } else { u64_at(table, (posts.start - 1).checked_mul(8)?)? };
        let ends = table.get(posts.start.checked_mul(8)?..posts.end.checked_mul(8)?)?;
        Some(Labelled { start, ends, ids: self.bytes(Section::Labels), limit: self.labels.len() as u32 })
    }

    fn features(&self, index: usize) -> Option<Features<'_>> {
        let width = self.meta.features.len() * FEATURE_BYTES;
        let start = index.checked_mul(width)?;
        self.bytes(Section::Features).get(start..start.checked_add(width)?).map(Features::new)
    }

    fn tag(&self, index: usize) -> Option<UserTag> {
        let bytes = self.bytes(Section::Tags).get(index * 16..)?.first_chunk()?;
        Some(UserTag(u128::from_be_bytes(*bytes)))
    }

    fn key(&self, index: usize) -> Option<&str> {
        let ends = self.bytes(Section::KeyEnds);
        let end = |i: usize| u64_at(ends, i * 8).and_then(|n| usize::try_from(n).ok());
        let start = if index == 0 { 0 } else { end(index - 1)? };
        std::str::from_utf8(self.bytes(Section::Keys).get(start..end(index)?)?).ok()
    }

    /// The number of the user with a key, by binary search.
    ///
    /// # Errors
    /// When the table of tags is damaged.
    pub fn find(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let wanted = UserTag::of(key);
        let (mut low, mut high) = (0, self.header.users as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            let tag = self.tag(middle).ok_or_else(|| self.damaged("the table of tags ends early"))?;
            match tag.cmp(&wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(Some(middle as u64)),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Checks every byte: all checksums, the order of the tags, the ends of the posts, the range of the ids, labels and
    /// features.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self) -> Result<(), StoreError> {
        for (section, _) in SECTIONS {
            check(&self.path, &self.map, &self.header, section)?;
        }
        let (mut before, mut labelled) = (None, 0);
        for index in 0..self.users() {
            let user = self.user(index)?;
            if before.is_some_and(|tag| tag >= user.tag) {
                return Err(self.damaged("its users are not in order"));
            }
            before = Some(user.tag);
            self.verify_user(&user).map_err(|what| self.damaged(what))?;
            labelled = user.labels.last().unwrap_or(labelled);
        }
        if labelled.checked_mul(LABEL_BYTES) != Some(self.header.section(Section::Labels).length) {
            return Err(self.damaged("it has labels of no post"));
        }
        Ok(())
    }

    fn verify_user(&self, user: &User<'_>) -> Result<(), &'static str> {
        let ends = user.ends();
        if !ends.clone().is_sorted() || ends.last().unwrap_or(0) as usize != user.tokens.len() {
            return Err("a post does not end where it should");
        }
        if user.tokens.ids.iter().any(|id| id >= user.tokens.limit) {
            return Err("an id is not in the vocabulary");
        }
        if !user.labels.are_in_order() {
            return Err("the labels of a post do not end where they should");
        }
        if !user.posts().all(|post| post.labels.are_named()) {
            return Err("a label has no name");
        }
        if !user.features.are_finite() {
            return Err("a feature is not a finite number");
        }
        Ok(())
    }

    fn bytes(&self, section: Section) -> &[u8] {
        bytes(&self.map, &self.header, section)
    }

    fn damaged(&self, what: &'static str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), what }
    }
}

/// A section; the header was checked against the file, so this is empty for a section that is.
fn bytes<'a>(map: &'a Mmap, header: &Header, section: Section) -> &'a [u8] {
    let extent = header.section(section);
    map.get(extent.offset as usize..(extent.offset + extent.length) as usize).unwrap_or_default()
}

fn check(path: &Path, map: &Mmap, header: &Header, section: Section) -> Result<(), StoreError> {
    if crc32fast::hash(bytes(map, header, section)) == header.section(section).crc {
        return Ok(());
    }
    let what = SECTIONS[section as usize].1;
    Err(StoreError::Damaged { path: path.to_owned(), what })
}

/// The names of labels as the file has them.
fn label_names(bytes: &[u8]) -> Option<Labels> {
    if bytes.is_empty() {
        return Some(Labels::default());
    }
    let names: Vec<String> = serde_json::from_slice(bytes).ok()?;
    Labels::new(names).ok().filter(|labels| !labels.is_empty())
}

/// One user of a store.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    tag: UserTag,
    key: Option<&'a str>,
    tokens: Tokens<'a>,
    ends: &'a [u8],
    labels: Labelled<'a>,
    features: Features<'a>,
}

impl<'a> User<'a> {
    /// The user's tag.
    #[must_use]
    pub const fn tag(&self) -> UserTag {
        self.tag
    }

    /// The key, if keys were kept.
    #[must_use]
    pub const fn key(&self) -> Option<&'a str> {
        self.key
    }

    /// The tokens of all posts, one after the other.
    #[must_use]
    pub const fn tokens(&self) -> Tokens<'a> {
        self.tokens
    }

    /// The user's features.
    #[must_use]
    pub const fn features(&self) -> Features<'a> {
        self.features
    }

    fn ends(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        let ends = self.ends;
        (0..ends.len() / 4).filter_map(move |i| u32_at(ends, i * 4))
    }

    /// The posts, oldest first. In a damaged store a post may be empty.
    pub fn posts(&self) -> impl Iterator<Item = Post<'a>> + use<'a> {
        let (tokens, labels, mut start) = (self.tokens, self.labels, 0);
        self.ends().enumerate().map(move |(i, end)| {
            let post = tokens.slice(start..end as usize);
            start = end as usize;
            Post { tokens: post.unwrap_or_default(), labels: labels.of(i).unwrap_or_default() }
        })
    }
}

/// One post of a user.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    tokens: Tokens<'a>,
    labels: LabelIds<'a>,
}

impl<'a> Post<'a> {
    /// The post's tokens.
    #[must_use]
    pub const fn tokens(&self) -> Tokens<'a> {
        self.tokens
    }

    /// The post's labels.
    #[must_use]
    pub const fn labels(&self) -> LabelIds<'a> {
        self.labels
    }
}

/// The labels of a user's posts.
#[derive(Debug, Clone, Copy, Default)]
struct Labelled<'a> {
    /// Where those of the first post begin among all labels of the store.
    start: u64,
    /// Where those of each post end.
    ends: &'a [u8],
    ids: &'a [u8],
    limit: u32,
}

impl<'a> Labelled<'a> {
    /// Those of a post; nothing where the table points outside.
    fn of(&self, post: usize) -> Option<LabelIds<'a>> {
        let start = if post == 0 { self.start } else { u64_at(self.ends, (post - 1) * 8)? };
        let byte = |end: u64| usize::try_from(end.checked_mul(LABEL_BYTES)?).ok();
        let bytes = self.ids.get(byte(start)?..byte(u64_at(self.ends, post * 8)?)?)?;
        Some(LabelIds::new(bytes, self.limit))
    }

    fn last(&self) -> Option<u64> {
        u64_at(self.ends, self.ends.len().checked_sub(8)?)
    }

    fn are_in_order(&self) -> bool {
        (0..self.ends.len() / 8).all(|post| self.of(post).is_some())
    }
}

/// Ids in a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokens<'a> {
    ids: Ids<'a>,
    /// Ids from here on are not in the vocabulary and read as UNK.
    limit: u32,
}

impl<'a> Tokens<'a> {
    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.ids {
            Ids::Narrow(ids) => ids.len(),
            Ids::Wide(ids) => ids.len(),
        }
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of them; nothing if the range is not inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        Some(Self { ids: self.ids.slice(range)?, limit: self.limit })
    }

    /// The ids, each in the vocabulary.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let limit = self.limit;
        self.ids.iter().map(move |id| if id < limit { id } else { UNK })
    }

    /// Appends the ids.
    pub fn copy_into(&self, out: &mut Vec<u32>) {
        out.reserve(self.len());
        out.extend(self.iter());
    }
}

/// Ids as the file has them: read byte by byte, so neither alignment nor the order of bytes of the machine matters.
#[derive(Debug, Clone, Copy)]
enum Ids<'a> {
    Narrow(&'a [[u8; 2]]),
    Wide(&'a [[u8; 4]]),
}

impl Default for Ids<'_> {
    fn default() -> Self {
        Self::Narrow(&[])
    }
}

impl<'a> Ids<'a> {
    fn new(bytes: &'a [u8], id_bytes: u32) -> Self {
        if id_bytes == 2 { Self::Narrow(bytes.as_chunks().0) } else { Self::Wide(bytes.as_chunks().0) }
    }

    fn slice(self, range: Range<usize>) -> Option<Self> {
        Some(match self {
            Self::Narrow(ids) => Self::Narrow(ids.get(range)?),
            Self::Wide(ids) => Self::Wide(ids.get(range)?),
        })
    }

    fn iter(self) -> impl Iterator<Item = u32> + use<'a> {
        let (narrow, wide): (&[[u8; 2]], &[[u8; 4]]) = match self {
            Self::Narrow(ids) => (ids, &[]),
            Self::Wide(ids) => (&[], ids),
        };
        narrow.iter().map(|id| u32::from(u16::from_le_bytes(*id))).chain(wide.iter().map(|id| u32::from_le_bytes(*id)))
    }
}
