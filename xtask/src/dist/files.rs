//! The files of a package, and the archives that are made of them: the same files give the same bytes, whoever packs them, where and when.
//!
//! Entries are sorted, belong to root and have the time of the commit. The compressor is the one in `Cargo.lock`, so that the bytes do not
//! depend on this machine's tar and gzip.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};

/// Files by their path, with `/` between folders and none before the first.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files(BTreeMap<String, File>);

#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    /// Whether it is a program.
    pub(crate) runs: bool,
}

impl Files {
    pub(crate) fn add(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.0.insert(path.to_owned(), File { bytes: bytes.into(), runs: false });
    }

    pub(crate) fn add_program(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.0.insert(path.to_owned(), File { bytes: bytes.into(), runs: true });
    }

    /// The files of another as well.
    pub(crate) fn take(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The same files in a folder.
    pub(crate) fn below(self, folder: &str) -> Self {
        Self(self.0.into_iter().map(|(path, file)| (format!("{folder}/{path}"), file)).collect())
    }

    /// All folders that the files lie in, each before those in it.
    pub(crate) fn folders(&self) -> BTreeSet<&str> {
        let parents = |path| std::iter::successors(parent(path), |path| parent(path));
        self.0.keys().flat_map(|path| parents(path)).collect()
    }

    /// A compressed tar. Paths begin with `prefix`, which Debian wants to be `./`.
    pub(crate) fn tar_gz(&self, prefix: &str, seconds: u64) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut all: BTreeMap<&str, Option<&File>> = self.folders().into_iter().map(|path| (path, None)).collect();
        all.extend(self.0.iter().map(|(path, file)| (path.as_str(), Some(file))));
        if !prefix.is_empty() {
            append(&mut tar, prefix, None, seconds)?;
        }
        for (path, file) in all {
            append(&mut tar, &format!("{prefix}{path}"), file, seconds)?;
        }
        gzip(&tar.into_inner().context("an archive cannot be finished")?)
    }
}

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, file: Option<&File>, seconds: u64) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    let (kind, mode, size) = match file {
        None => (tar::EntryType::Directory, 0o755, 0),
        Some(file) => (tar::EntryType::Regular, if file.runs { 0o755 } else { 0o644 }, file.bytes.len()),
    };
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(seconds);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    let path = if file.is_none() && !path.ends_with('/') { format!("{path}/") } else { path.to_owned() };
    let bytes = file.map_or(&[][..], |file| &file.bytes);
    // The builder's own way to set a path drops the `./` that Debian's archives have.
    let Some(field) = header.as_gnu_mut().and_then(|gnu| gnu.name.get_mut(..path.len())) else {
        bail!("{path} is longer than the 100 bytes that the header of an archive holds: give it a shorter name");
    };
    field.copy_from_slice(path.as_bytes());
    header.set_cksum();
    tar.append(&header, bytes).with_context(|| format!("{path} cannot be packed"))
}

/// Compressed as `gzip -9n` does: no name and no time in it.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gz = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gz.write_all(bytes).and_then(|()| gz.finish()).context("cannot be compressed")
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use super::*;

    /// A small package, added in this order or backwards.
    pub(crate) fn some(backwards: bool) -> Files {
        let mut all = vec![("usr/bin/x", "program"), ("usr/share/doc/x/README.md", "text"), ("etc/x.toml", "a = 1\n")];
        if backwards {
            all.reverse();
        }
        let mut files = Files::default();
        for (path, text) in all {
            if path.contains("bin") { files.add_program(path, text) } else { files.add(path, text) }
        }
        files
    }

    /// What another program reads from the archive: path, mode, owner, time and text.
    pub(crate) fn read(tar_gz: &[u8]) -> Vec<(String, u32, u64, u64, String)> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tar_gz));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let header = entry.header();
            (path, header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap(), text)
        });
        entries.collect()
    }

    #[test]
    fn the_same_files_give_the_same_bytes_in_whatever_order_they_come() {
        let bytes = some(false).tar_gz("./", 7).unwrap();
        assert_eq!(bytes, some(true).tar_gz("./", 7).unwrap());
        let mut other = some(false);
        other.add("etc/x.toml", "a = 2\n");
        assert_ne!(bytes, other.tar_gz("./", 7).unwrap());
        assert_eq!(bytes[3], 0, "no name is in the header of gzip");
        assert_eq!(bytes[4..8], [0; 4], "and no time");
    }

    #[test]
    fn a_reader_finds_folders_before_their_files_with_modes_owner_and_time() {
        let read = read(&some(false).tar_gz("./", 7).unwrap());
        let of = |path: &str, mode, text: &str| (path.to_owned(), mode, 0, 7, text.to_owned());
        let expected = [
            of("./", 0o755, ""),
            of("./etc/", 0o755, ""),
            of("./etc/x.toml", 0o644, "a = 1\n"),
            of("./usr/", 0o755, ""),
            of("./usr/bin/", 0o755, ""),
            of("./usr/bin/x", 0o755, "program"),
            of("./usr/share/", 0o755, ""),
            of("./usr/share/doc/", 0o755, ""),
            of("./usr/share/doc/x/", 0o755, ""),
            of("./usr/share/doc/x/README.md", 0o644, "text"),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_path_that_is_too_long_for_a_header_is_refused_and_not_cut() {
        let mut files = Files::default();
        files.add(&"x".repeat(100), "text");
        assert_eq!(read(&files.tar_gz("", 7).unwrap()).len(), 1);
        files.add(&"y".repeat(101), "text");
        assert!(files.tar_gz("", 7).unwrap_err().to_string().contains("shorter name"));
    }
}
