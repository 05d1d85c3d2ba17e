//! The 512-byte, little-endian header of a store.
//!
//! | bytes    | what                                                                |
//! |----------|---------------------------------------------------------------------|
//! | 0..8     | `KEYHUSHC`                                                          |
//! | 8..12    | version                                                             |
//! | 12..16   | bytes of an id: 2 or 4                                              |
//! | 16..40   | users, posts, tokens                                                |
//! | 40..232  | offset and length of the twelve sections                            |
//! | 232..280 | their CRC-32                                                        |
//! | 280..284 | the CRC-32 of bytes 0..280                                          |
//! | 284..512 | zero                                                                |
//!
//! Version 1 had the first eight sections, one after the other in the same way, in a header of 256 bytes. It is still read:
//! the sections that it does not have are empty.

pub(super) const MAGIC: [u8; 8] = *b"KEYHUSHC";
pub(super) const VERSION: u32 = 2;
pub(super) const HEADER: usize = 512;
/// Where the sections are said to be.
const EXTENTS: usize = 40;
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
    LabelEnds,
    Labels,
    LabelNames,
    Features,
}

/// Every section, and what is said when its checksum is wrong.
pub(super) const SECTIONS: [(Section, &str); 12] = [
    (Section::Tokens, "the checksum of its tokens is wrong"),
    (Section::Posts, "the checksum of its posts is wrong"),
    (Section::Users, "the checksum of its users is wrong"),
    (Section::Tags, "the checksum of its tags is wrong"),
    (Section::KeyEnds, "the checksum of its keys is wrong"),
    (Section::Keys, "the checksum of its keys is wrong"),
    (Section::Meta, "the checksum of its description is wrong"),
    (Section::Vocabulary, "the checksum of its vocabulary is wrong"),
    (Section::LabelEnds, "the checksum of its table of labels is wrong"),
    (Section::Labels, "the checksum of its labels is wrong"),
    (Section::LabelNames, "the checksum of the names of its labels is wrong"),
    (Section::Features, "the checksum of its features is wrong"),
];

/// How a version lays its header out.
struct Layout {
    header: usize,
    sections: usize,
}

impl Layout {
    const fn of(version: u32) -> Option<Self> {
        match version {
            1 => Some(Self { header: 256, sections: 8 }),
            VERSION => Some(Self { header: HEADER, sections: SECTIONS.len() }),
            _ => None,
        }
    }

    const fn checksums(&self) -> usize {
        EXTENTS + 16 * self.sections
    }

    /// Where the checksum of the header stands; it is that of all before.
    const fn checked(&self) -> usize {
        EXTENTS + 20 * self.sections
    }

    /// What a header says of a section; one that this version does not have is empty, and so is its checksum.
    fn extent(&self, header: &[u8], section: usize) -> Extent {
        let four = |at: usize| u32_at(header, at).unwrap_or_default();
        let eight = |at: usize| u64_at(header, at).unwrap_or_default();
        if section >= self.sections {
            return Extent::default();
        }
        let at = EXTENTS + 16 * section;
        Extent { offset: eight(at), length: eight(at + 8), crc: four(self.checksums() + 4 * section) }
    }
}

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
    pub(super) sections: [Extent; SECTIONS.len()],
}

/// Bytes of the id of a label.
pub(super) const LABEL_BYTES: u64 = 2;
const CUT: &str = "it ends within its header";

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
        let version = u32_at(file, 8).ok_or(HeaderProblem::Damaged(CUT))?;
        let layout = Layout::of(version).ok_or(HeaderProblem::Version(version))?;
        let bytes = file.get(..layout.header).ok_or(HeaderProblem::Damaged(CUT))?;
        let four = |at: usize| u32_at(bytes, at).unwrap_or_default();
        let eight = |at: usize| u64_at(bytes, at).unwrap_or_default();
        if crc32fast::hash(&bytes[..layout.checked()]) != four(layout.checked()) {
            return Err(HeaderProblem::Damaged("the checksum of its header is wrong"));
        }
        let header = Self {
            id_bytes: four(12),
            users: eight(16),
            posts: eight(24),
            tokens: eight(32),
            sections: std::array::from_fn(|section| layout.extent(bytes, section)),
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
        let absent_or = |section, length: u128| self.section(section).length == 0 || fits(&(section, length));
        let optional = absent_or(Section::KeyEnds, users * 8)
            && absent_or(Section::LabelEnds, u128::from(self.posts) * 8)
            && self.section(Section::Labels).length.is_multiple_of(LABEL_BYTES);
        if !lengths.iter().all(fits) || !optional {
            return Err("the length of a table is not what the header says");
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
