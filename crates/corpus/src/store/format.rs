//! The header of a store: 256 bytes, little-endian.
//!
//! | bytes    | what                                                                |
//! |----------|---------------------------------------------------------------------|
//! | 0..8     | `KEYHUSHC`                                                          |
//! | 8..12    | version                                                             |
//! | 12..16   | bytes of an id: 2 or 4                                              |
//! | 16..40   | users, posts, tokens                                                |
//! | 40..168  | offset and length of the eight sections                             |
//! | 168..200 | their CRC-32                                                        |
//! | 200..204 | the CRC-32 of bytes 0..200                                          |
//! | 204..256 | zero                                                                |

pub(super) const MAGIC: [u8; 8] = *b"KEYHUSHC";
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER: usize = 256;
const CHECKED: usize = 200;
/// Sections begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 64;

/// The sections, in the order of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Tokens,
    Posts,
    Users,
    Tags,
    KeyEnds,
    Keys,
    Meta,
    Vocabulary,
}

pub(super) const SECTIONS: [(Section, &str); 8] = [
    (Section::Tokens, "the tokens"),
    (Section::Posts, "the table of posts"),
    (Section::Users, "the table of users"),
    (Section::Tags, "the tags"),
    (Section::KeyEnds, "the table of keys"),
    (Section::Keys, "the keys"),
    (Section::Meta, "the description"),
    (Section::Vocabulary, "the vocabulary"),
];

/// Where a section is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) crc: u32,
}

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id_bytes: u32,
    pub(super) users: u64,
    pub(super) posts: u64,
    pub(super) tokens: u64,
    pub(super) sections: [Extent; 8],
}

/// Why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderProblem {
    NotAStore,
    Version(u32),
    Damaged(&'static str),
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.id_bytes.to_le_bytes());
        [self.users, self.posts, self.tokens].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        self.sections.iter().for_each(|s| {
            bytes.extend(s.offset.to_le_bytes());
            bytes.extend(s.length.to_le_bytes());
        });
        self.sections.iter().for_each(|s| bytes.extend(s.crc.to_le_bytes()));
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.resize(HEADER, 0);
        let mut header = [0; HEADER];
        header.copy_from_slice(&bytes);
        header
    }

    /// Reads a header and checks it against the length of the file.
    pub(super) fn read(file: &[u8]) -> Result<Self, HeaderProblem> {
        if file.get(..8) != Some(&MAGIC[..]) {
            return Err(HeaderProblem::NotAStore);
        }
        let bytes = file.get(..HEADER).ok_or(HeaderProblem::Damaged("it ends within its header"))?;
        let four = |at: usize| u32_at(bytes, at).unwrap_or_default();
        let eight = |at: usize| u64_at(bytes, at).unwrap_or_default();
        if four(8) != VERSION {
            return Err(HeaderProblem::Version(four(8)));
        }
        if crc32fast::hash(&bytes[..CHECKED]) != four(CHECKED) {
            return Err(HeaderProblem::Damaged("the checksum of its header is wrong"));
        }
        let section =
            |i: usize| Extent { offset: eight(40 + 16 * i), length: eight(48 + 16 * i), crc: four(168 + 4 * i) };
        let header = Self {
            id_bytes: four(12),
            users: eight(16),
            posts: eight(24),
            tokens: eight(32),
            sections: std::array::from_fn(section),
        };
        header.check(file.len() as u64).map_err(HeaderProblem::Damaged)?;
        Ok(header)
    }

    /// Sections lie within the file, and tables are as long as the counts say.
    fn check(&self, file: u64) -> Result<(), &'static str> {
        if !matches!(self.id_bytes, 2 | 4) {
            return Err("ids have neither 16 nor 32 bits");
        }
        let inside = |s: &Extent| s.offset.checked_add(s.length).is_some_and(|end| end <= file);
        if !self.sections.iter().all(inside) {
            return Err("it is shorter than its header says");
        }
        let users = u128::from(self.users);
        let lengths = [
            (Section::Tokens, u128::from(self.tokens) * u128::from(self.id_bytes)),
            (Section::Posts, u128::from(self.posts) * 4),
            (Section::Users, (users + 1) * 16),
            (Section::Tags, users * 16),
        ];
        let fits = |(section, length): &(Section, u128)| u128::from(self.section(*section).length) == *length;
        let keys = u128::from(self.section(Section::KeyEnds).length);
        if !lengths.iter().all(fits) || (keys != 0 && keys != users * 8) {
            return Err("a table has not as many entries as its header says");
        }
        Ok(())
    }

    pub(super) const fn section(&self, section: Section) -> Extent {
        self.sections[section as usize]
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
