//! Stores that are whole read back as they were written; stores that are not give errors and never a panic.
#![allow(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

use keyhush_corpus::{
    origin::Origin,
    store::{Labels, Meta, Store, StoreError, StoreWriter, UserRecord, UserTag},
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
        labels: None,
        features: Vec::new(),
    }
}

/// A user without labels and features.
fn plain<'a>(tag: UserTag, key: &'a str, tokens: &'a [u32], ends: &'a [u32]) -> UserRecord<'a> {
    UserRecord { tag, key, tokens, ends, labels: &[], label_ends: &[], features: &[] }
}

/// Where each of these ends when they stand one after the other.
fn ends<T>(lists: &[Vec<T>]) -> Vec<u32> {
    let mut end = 0;
    lists
        .iter()
        .map(|list| {
            end += list.len() as u32;
            end
        })
        .collect()
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
        writer.user(&plain(tag, key, &posts.concat(), &ends(posts))).unwrap();
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

/// Labels and features as well, so that damage to them is tested wherever damage is.
fn write_sample(folder: &Path) -> PathBuf {
    let path = folder.join("s.store");
    let users = [
        ("ann", vec![vec![3, 4, 5], vec![6]], vec![vec![1, 0], vec![]], [0.5, -1.0]),
        ("bob", vec![vec![2, 2]], vec![vec![2]], [0.0, 7.0]),
        ("cy", vec![vec![7; 40], vec![3]], vec![vec![], vec![0, 1, 2]], [1e-3, 1e9]),
    ];
    write_known(&path, &users);
    path
}

type KnownUser<'a> = (&'a str, Vec<Vec<u32>>, Vec<Vec<u32>>, [f32; 2]);

/// A store with three labels and two features.
fn write_known(path: &Path, users: &[KnownUser<'_>]) {
    let meta = Meta { labels: Some(Origin::BuiltIn), features: vec!["age".into(), "height".into()], ..meta() };
    let mut users: Vec<_> = users.iter().map(|user| (UserTag::of(user.0), user)).collect();
    users.sort_by_key(|(tag, _)| *tag);
    let writer = StoreWriter::create(path, false, true, &meta, &vocabulary(10)).unwrap();
    let mut writer = writer.with_labels(&labels());
    for (tag, (key, posts, labels, features)) in users {
        let (tokens, ends_of_posts, all, label_ends) = (posts.concat(), ends(posts), labels.concat(), ends(labels));
        let (tokens, ends, labels, label_ends) = (&tokens, &ends_of_posts, &all, &label_ends);
        writer.user(&UserRecord { tag, key, tokens, ends, labels, label_ends, features }).unwrap();
    }
    writer.finish().unwrap();
}

fn labels() -> Labels {
    Labels::new(["rust", "c#", "a\nb"].map(str::to_owned).to_vec()).unwrap()
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
        let posts: Vec<Vec<u32>> = ann.posts().map(|post| post.tokens().iter().collect()).collect();
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
    assert_eq!(store.find("ann").unwrap(), Some(0));
    assert_eq!(store.user(0).unwrap().key(), None);
}

#[test]
fn an_unfinished_store_leaves_nothing_and_a_finished_one_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.store");
    let mut writer = StoreWriter::create(&path, false, true, &meta(), &vocabulary(10)).unwrap();
    writer.user(&plain(UserTag::of("ann"), "ann", &[3], &[1])).unwrap();
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
    assert!(other.contains("a different vocabulary (words-1 with 10 entries"), "{other}");
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
    tags.iter().for_each(|tag| writer.user(&plain(*tag, "", &[3, 4, 5], &[2, 3])).unwrap());
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

/// What somebody has in a store: posts, their labels, features.
fn read(store: &Store, key: &str) -> (Vec<Vec<u32>>, Vec<Vec<u32>>, Vec<f32>) {
    let user = store.user(store.find(key).unwrap().unwrap()).unwrap();
    let posts = user.posts().map(|post| post.tokens().iter().collect()).collect();
    let copied = |post: keyhush_corpus::store::Post<'_>| {
        let mut ids = Vec::new();
        post.labels().copy_into(&mut ids);
        ids
    };
    (posts, user.posts().map(copied).collect(), user.features().iter().collect())
}

#[test]
fn labels_and_features_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&sample(folder.path())).unwrap();
    store.verify().unwrap();
    assert_eq!((store.labels(), store.feature_names()), (&labels(), &["age".to_owned(), "height".to_owned()][..]));
    assert_eq!(store.meta().labels, Some(Origin::BuiltIn));
    let ann = (vec![vec![3, 4, 5], vec![6]], vec![vec![1, 0], vec![]], vec![0.5, -1.0]);
    assert_eq!(read(&store, "ann"), ann);
    assert_eq!(read(&store, "bob").1, [vec![2]]);
    assert_eq!(read(&store, "cy").1, [vec![], vec![0, 1, 2]]);
    assert_eq!(read(&store, "cy").2, [1e-3, 1e9]);
}

#[test]
fn a_store_without_labels_and_features_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.store");
    write(&path, &vocabulary(10), true, &[("ann", vec![vec![3], vec![4]])]);
    let store = Store::open(&path).unwrap();
    store.verify().unwrap();
    assert!(store.labels().is_empty() && store.feature_names().is_empty());
    assert_eq!(read(&store, "ann"), (vec![vec![3], vec![4]], vec![vec![], vec![]], vec![]));
}

#[test]
fn users_whose_labels_or_features_are_not_the_stores_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let create = |name: &str, features: &[&str]| {
        let meta = Meta { features: features.iter().map(ToString::to_string).collect(), ..meta() };
        StoreWriter::create(&folder.path().join(name), false, true, &meta, &vocabulary(10))
    };
    let user = plain(UserTag::of("ann"), "ann", &[3, 4], &[1, 2]);
    let mut with = create("a", &["age"]).unwrap().with_labels(&labels());
    let right = UserRecord { labels: &[2, 0], label_ends: &[2, 2], features: &[1.0], ..user };
    with.user(&right).unwrap();
    let wrong_labels = [
        UserRecord { labels: &[3, 0], ..right },
        UserRecord { label_ends: &[2], ..right },
        UserRecord { label_ends: &[2, 1], ..right },
        UserRecord { label_ends: &[1, 1], ..right },
        UserRecord { labels: &[], label_ends: &[], ..right },
    ];
    for user in &wrong_labels {
        assert!(matches!(with.user(user), Err(StoreError::UserLabels { labels: 3 })), "{user:?}");
    }
    for features in [&[][..], &[1.0, 2.0], &[f32::NAN], &[f32::INFINITY]] {
        let user = UserRecord { features, ..right };
        assert!(matches!(with.user(&user), Err(StoreError::UserFeatures { features: 1 })), "{user:?}");
    }
    let mut without = create("b", &[]).unwrap();
    assert!(matches!(without.user(&UserRecord { label_ends: &[0, 0], ..user }), Err(StoreError::UserLabels { .. })));
    assert!(matches!(without.user(&UserRecord { features: &[1.0], ..user }), Err(StoreError::UserFeatures { .. })));
    without.user(&user).unwrap();
    assert!(matches!(create("c", &["age", "age"]), Err(StoreError::FeatureNames(_))));
}

/// A store as the program wrote it before there were labels and features, with the header of version 1. What tells stores
/// apart is the same for both versions, so that a run that began on the one goes on with the other.
#[test]
fn a_store_of_the_version_before_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old");
    std::fs::write(&old, version_1()).unwrap();
    let store = Store::open(&old).unwrap();
    store.verify().unwrap();
    assert_eq!(read(&store, "ann"), (vec![vec![3, 4, 5], vec![6]], vec![vec![], vec![]], vec![]));
    assert!(store.labels().is_empty() && store.feature_names().is_empty());
    let path = folder.path().join("new");
    let vocabulary_origin = Origin::PublicList { name: "words.txt".into() };
    let meta = Meta { vocabulary: vocabulary_origin, sources: vec!["posts.jsonl".into()], ..meta() };
    let mut writer = StoreWriter::create(&path, false, true, &meta, &vocabulary(10)).unwrap();
    writer.user(&plain(UserTag::of("ann"), "ann", &[3, 4, 5, 6], &[3, 4])).unwrap();
    writer.user(&plain(UserTag::of("bob"), "bob", &[2, 2], &[2])).unwrap();
    writer.finish().unwrap();
    let new = Store::open(&path).unwrap();
    assert_eq!(store.content().collect::<Vec<_>>().concat(), new.content().collect::<Vec<_>>().concat());
    assert_eq!(store.roll().collect::<Vec<_>>(), new.roll().collect::<Vec<_>>());
}

/// Made by version 1 of the format; `testdata/store.json` says how.
fn version_1() -> Vec<u8> {
    let all: serde_json::Value = serde_json::from_str(include_str!("../testdata/store.json")).unwrap();
    let digits = all["version_1"].as_str().unwrap();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn stores_that_differ_in_labels_or_features_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let content = |name: &str, labels: Vec<u32>, features| {
        let path = folder.path().join(name);
        write_known(&path, &[("ann", vec![vec![3], vec![4]], vec![labels, vec![0]], features)]);
        let store = Store::open(&path).unwrap();
        store.content().collect::<Vec<_>>().concat()
    };
    let first = content("a", vec![1], [1.0, 2.0]);
    assert_eq!(first, content("b", vec![1], [1.0, 2.0]));
    assert_ne!(first, content("c", vec![2], [1.0, 2.0]));
    assert_ne!(first, content("d", vec![], [1.0, 2.0]));
    assert_ne!(first, content("e", vec![1], [1.0, 2.5]));
}

/// Reads all there is; what matters is that it returns.
fn read_all(path: &Path) -> Result<(), StoreError> {
    let store = Store::open(path)?;
    for index in 0..store.users() {
        let user = store.user(index)?;
        let ids: usize = user.posts().map(|post| post.tokens().iter().filter(|id| *id < 10).count()).sum();
        assert!(ids <= user.tokens().len().max(ids));
        let named = |id| store.labels().name(id).is_some();
        assert!(user.posts().all(|post| post.labels().iter().all(named)));
        assert_eq!(user.features().len(), store.feature_names().len());
        assert!(user.features().iter().all(f32::is_finite));
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

/// Bytes of the header that its checksum is of.
const CHECKED: usize = 280;

/// Makes the checksum of a header right again, as somebody who wants to do harm would.
fn with_right_header(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes[..CHECKED]);
    bytes[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Writes to a section of a store, and makes its checksum right again.
fn with_right_section(mut file: Vec<u8>, section: usize, write: impl Fn(&mut [u8])) -> Vec<u8> {
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (offset, length) = (number(40 + 16 * section), number(48 + 16 * section));
    write(&mut file[offset..offset + length]);
    let crc = crc32fast::hash(&file[offset..offset + length]);
    file[232 + 4 * section..236 + 4 * section].copy_from_slice(&crc.to_le_bytes());
    with_right_header(file)
}

/// What is wrong with a store after a section was written to.
fn damage(section: usize, write: impl Fn(&mut [u8])) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::read(sample(folder.path())).unwrap();
    let path = folder.path().join("hostile");
    std::fs::write(&path, with_right_section(file, section, write)).unwrap();
    read_all(&path).unwrap_err().to_string()
}

const LABEL_ENDS: usize = 8;
const LABELS: usize = 9;
const LABEL_NAMES: usize = 10;
const FEATURES: usize = 11;

#[test]
fn labels_and_features_that_cannot_be_are_noticed() {
    let says = |found: String, what: &str| assert!(found.contains(what), "{found}");
    says(damage(LABELS, |bytes| bytes[0] = 3), "a label has no name");
    says(damage(LABEL_ENDS, |bytes| bytes[0] = 200), "the labels of a post do not end where they should");
    says(damage(LABEL_ENDS, |bytes| bytes[4 * 8] = 5), "it has labels of no post");
    says(
        damage(FEATURES, |bytes| bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes())),
        "a feature is not a finite number",
    );
    says(damage(LABEL_NAMES, |bytes| bytes[0] = b'{'), "its label names are not valid");
}

/// Lengths of the optional sections that do not fit the counts and the names.
#[test]
fn sections_of_another_length_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(sample(folder.path())).unwrap();
    let path = folder.path().join("hostile");
    for section in [LABEL_ENDS, LABELS, LABEL_NAMES, FEATURES] {
        for length in [0_u64, 1, 2, 8, 16, u64::MAX] {
            let mut file = whole.clone();
            let at = 48 + 16 * section;
            if file[at..at + 8] == length.to_le_bytes() {
                continue;
            }
            file[at..at + 8].copy_from_slice(&length.to_le_bytes());
            std::fs::write(&path, with_right_header(file)).unwrap();
            assert!(read_all(&path).is_err(), "section {section} with {length} bytes");
        }
    }
}

/// Posts with their labels.
type Labelled = Vec<(Vec<u32>, Vec<u32>)>;

fn known_users() -> impl Strategy<Value = Vec<(Labelled, [f32; 2])>> {
    let post = (proptest::collection::vec(0_u32..10, 1..8), proptest::collection::vec(0_u32..3, 0..4));
    let features = [-1e30_f32..1e30, -1.0_f32..1.0];
    proptest::collection::vec((proptest::collection::vec(post, 0..6), features), 0..8)
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
        if at < CHECKED + 4 { prop_assert!(outcome.is_err(), "byte {}", at); }
    }

    #[test]
    fn a_hostile_header_gives_an_error_and_no_panic(at in 12_usize..CHECKED, bytes in proptest::collection::vec(any::<u8>(), 1..16)) {
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::read(sample(folder.path())).unwrap();
        for (i, byte) in bytes.iter().enumerate() {
            if at + i < CHECKED { file[at + i] = *byte; }
        }
        let path = folder.path().join("hostile");
        std::fs::write(&path, with_right_header(file)).unwrap();
        let _ = read_all(&path);
    }

    #[test]
    fn hostile_tables_with_right_checksums_give_errors_and_no_panic(numbers in proptest::collection::vec(any::<u64>(), 8)) {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::read(sample(folder.path())).unwrap();
        // The table of users: section 2 of the header.
        let write = |bytes: &mut [u8]| {
            for (i, number) in numbers.iter().enumerate() {
                bytes[i * 8..i * 8 + 8].copy_from_slice(&number.to_le_bytes());
            }
        };
        let path = folder.path().join("hostile");
        std::fs::write(&path, with_right_section(file, 2, write)).unwrap();
        prop_assert!(read_all(&path).is_err());
    }

    #[test]
    fn hostile_labels_with_right_checksums_give_no_panic(
        section in LABEL_ENDS..=FEATURES,
        at in 0_usize..100,
        bytes in proptest::collection::vec(any::<u8>(), 1..16),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::read(sample(folder.path())).unwrap();
        let write = |section: &mut [u8]| {
            let length = section.len();
            bytes.iter().enumerate().for_each(|(i, byte)| section[(at + i) % length] = *byte);
        };
        let path = folder.path().join("hostile");
        std::fs::write(&path, with_right_section(file, section, write)).unwrap();
        let _ = read_all(&path);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn labels_and_features_of_any_users_are_read_back(users in known_users()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.store");
        let keys: Vec<String> = (0..users.len()).map(|i| format!("user {i}")).collect();
        let split = |posts: &[(Vec<u32>, Vec<u32>)]| -> (Vec<Vec<u32>>, Vec<Vec<u32>>) { posts.iter().cloned().unzip() };
        let known: Vec<KnownUser<'_>> = keys.iter().zip(&users).map(|(key, (posts, features))| {
            let (posts, labels) = split(posts);
            (key.as_str(), posts, labels, *features)
        }).collect();
        write_known(&path, &known);
        let store = Store::open(&path).unwrap();
        store.verify().unwrap();
        for (key, posts, labels, features) in known {
            prop_assert_eq!(read(&store, key), (posts, labels, features.to_vec()));
        }
    }
}
