//! Stores that are whole read back as they were written; stores that are not give errors and never a panic.
#![allow(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

use keyhush_corpus::{
    origin::Origin,
    store::{Meta, Store, StoreError, StoreWriter, UserTag},
};
use lm::{tokenizer::Rules, vocabulary::Vocabulary};
use proptest::prelude::*;

fn meta() -> Meta {
    Meta {
        rules: Rules::Words1,
        vocabulary: Origin::BuiltIn,
        non_private: Vec::new(),
        tokens_per_user: None,
        sources: vec!["test".into()],
        crowd: None,
    }
}

fn vocabulary(size: u32) -> Vocabulary {
    Vocabulary::new((3..size).map(|i| format!("w{i}"))).unwrap()
}

/// Users with their posts, in the order of their tags.
fn write(path: &Path, vocabulary: &Vocabulary, keep_keys: bool, users: &[(&str, Vec<Vec<u32>>)]) {
    let mut users: Vec<_> = users.iter().map(|(key, posts)| (UserTag::of(key), key, posts)).collect();
    users.sort_by_key(|(tag, ..)| *tag);
    let mut writer = StoreWriter::create(path, false, keep_keys, &meta(), vocabulary).unwrap();
    for (tag, key, posts) in users {
        let tokens: Vec<u32> = posts.concat();
        let ends = posts.iter().scan(0, |end, post| {
            *end += post.len() as u32;
            Some(*end)
        });
        writer.user(tag, key, &tokens, &ends.collect::<Vec<_>>()).unwrap();
    }
    writer.finish().unwrap();
}

/// A small store; written once, because making it durable takes its time.
fn sample(folder: &Path) -> PathBuf {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::read(write_sample(folder.path())).unwrap()
    });
    let path = folder.join("s.store");
    std::fs::write(&path, &*BYTES).unwrap();
    path
}

fn write_sample(folder: &Path) -> PathBuf {
    let path = folder.join("s.store");
    let users = [("ann", vec![vec![3, 4, 5], vec![6]]), ("bob", vec![vec![2, 2]]), ("cy", vec![vec![7; 40], vec![3]])];
    write(&path, &vocabulary(10), true, &users);
    path
}

#[test]
fn what_was_written_is_read_with_narrow_and_wide_ids() {
    for (size, bits) in [(10, 16), (70_000, 32)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.store");
        write(&path, &vocabulary(size), true, &[("ann", vec![vec![3, size - 1], vec![5]]), ("bob", vec![vec![4]])]);
        let store = Store::open(&path).unwrap();
        store.verify().unwrap();
        assert_eq!((store.users(), store.posts(), store.tokens(), store.id_bits()), (2, 3, 4, bits));
        let ann = store.user(store.find("ann").unwrap().unwrap()).unwrap();
        assert_eq!(ann.key(), Some("ann"));
        let posts: Vec<Vec<u32>> = ann.posts().map(|post| post.iter().collect()).collect();
        assert_eq!(posts, [vec![3, size - 1], vec![5]]);
        assert_eq!(ann.tokens().len(), 3);
        assert_eq!(store.find("nobody").unwrap(), None);
        assert!(matches!(store.user(2), Err(StoreError::NoUser { index: 2, users: 2 })));
    }
}

#[test]
fn keys_are_forgotten_if_asked_and_users_still_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.store");
    write(&path, &vocabulary(10), false, &[("ann", vec![vec![3]])]);
    assert!(!std::fs::read(&path).unwrap().windows(3).any(|bytes| bytes == b"ann"));
    let store = Store::open(&path).unwrap();
    assert!(!store.has_keys());
    assert_eq!(store.find("ann").unwrap(), Some(0));
    assert_eq!(store.user(0).unwrap().key(), None);
}

#[test]
fn an_unfinished_store_leaves_nothing_and_a_finished_one_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.store");
    let mut writer = StoreWriter::create(&path, false, true, &meta(), &vocabulary(10)).unwrap();
    writer.user(UserTag::of("ann"), "ann", &[3], &[1]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    sample(folder.path());
    let again = StoreWriter::create(&path, false, true, &meta(), &vocabulary(10));
    assert!(matches!(again, Err(StoreError::Exists(_))));
}

#[test]
fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    assert!(matches!(Store::open(&path), Err(StoreError::Io { .. })));
    for other in [&b""[..], b"hello", b"KEYHUSHC"] {
        std::fs::write(&path, other).unwrap();
        assert!(Store::open(&path).is_err(), "{other:?}");
    }
    let mut bytes = std::fs::read(sample(folder.path())).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Version { got: 9, .. })));
}

#[test]
fn another_vocabulary_is_refused_and_the_error_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&sample(folder.path())).unwrap();
    store.require_vocabulary(Rules::Words1, &vocabulary(10)).unwrap();
    let other = store.require_vocabulary(Rules::Words1, &vocabulary(11)).unwrap_err().to_string();
    assert!(other.contains("another vocabulary: its own is words-1 with 10 entries"), "{other}");
    assert!(store.require_vocabulary(Rules::Characters1, &vocabulary(10)).is_err());
    let swapped = Vocabulary::new((3..10).rev().map(|i| format!("w{i}"))).unwrap();
    assert!(store.require_vocabulary(Rules::Words1, &swapped).is_err());
}

/// A store of 200,000 users and 10,000 words; what is read of a user does not depend on how many there are.
#[test]
fn a_store_opens_in_milliseconds_and_a_user_in_constant_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.store");
    let mut tags: Vec<UserTag> = (0..200_000).map(|i| UserTag::of(&i.to_string())).collect();
    tags.sort();
    let mut writer = StoreWriter::create(&path, false, false, &meta(), &vocabulary(10_000)).unwrap();
    tags.iter().for_each(|tag| writer.user(*tag, "", &[3, 4, 5], &[2, 3]).unwrap());
    writer.finish().unwrap();
    let timed = |work: &dyn Fn()| {
        let once = || {
            let start = std::time::Instant::now();
            work();
            start.elapsed()
        };
        (0..10).map(|_| once()).min().unwrap().as_secs_f64()
    };
    // Some 2 ms with optimisation; the rest is for tests without, and for busy machines.
    let opening = timed(&|| drop(Store::open(&path).unwrap()));
    assert!(opening < 0.2, "{opening} s");
    let store = Store::open(&path).unwrap();
    let (first, last) = (timed(&|| drop(store.user(0))), timed(&|| drop(store.user(199_999))));
    assert!(first < 1e-4 && last < 1e-4, "{first} s and {last} s");
}

/// Reads all there is; what matters is that it returns.
fn read_all(path: &Path) -> Result<(), StoreError> {
    let store = Store::open(path)?;
    for index in 0..store.users() {
        let user = store.user(index)?;
        let ids: usize = user.posts().map(|post| post.iter().filter(|id| *id < 10).count()).sum();
        assert!(ids <= user.tokens().len().max(ids));
        let _ = (user.key(), user.tag());
    }
    store.find("ann")?;
    store.verify()
}

#[test]
fn a_store_cut_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(sample(folder.path())).unwrap();
    let path = folder.path().join("cut");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(read_all(&path).is_err(), "cut at {length}");
    }
}

/// Makes the checksum of a header right again, as somebody who wants to do harm would.
fn with_right_header(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes[..200]);
    bytes[200..204].copy_from_slice(&crc.to_le_bytes());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_changed_byte_is_noticed(at in 0_usize..10_000, value in 1_u8..=255) {
        let folder = tempfile::tempdir().unwrap();
        let path = sample(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at % bytes.len();
        let store = Store::open(&path).unwrap();
        drop(store);
        bytes[at] ^= value;
        let changed = folder.path().join("changed");
        std::fs::write(&changed, &bytes).unwrap();
        let outcome = read_all(&changed);
        // Padding and the unused end of the header mean nothing.
        if at < 204 { prop_assert!(outcome.is_err(), "byte {}", at); }
    }

    #[test]
    fn a_hostile_header_gives_an_error_and_no_panic(at in 12_usize..200, bytes in proptest::collection::vec(any::<u8>(), 1..16)) {
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::read(sample(folder.path())).unwrap();
        for (i, byte) in bytes.iter().enumerate() {
            if at + i < 200 { file[at + i] = *byte; }
        }
        let path = folder.path().join("hostile");
        std::fs::write(&path, with_right_header(file)).unwrap();
        let _ = read_all(&path);
    }

    #[test]
    fn hostile_tables_with_right_checksums_give_errors_and_no_panic(numbers in proptest::collection::vec(any::<u64>(), 8)) {
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::read(sample(folder.path())).unwrap();
        // The table of users: section 2 of the header.
        let offset = u64::from_le_bytes(file[72..80].try_into().unwrap()) as usize;
        for (i, number) in numbers.iter().enumerate() {
            file[offset + i * 8..offset + i * 8 + 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&file[offset..offset + 64]);
        file[176..180].copy_from_slice(&crc.to_le_bytes());
        let path = folder.path().join("hostile");
        std::fs::write(&path, with_right_header(file)).unwrap();
        prop_assert!(read_all(&path).is_err());
    }
}
