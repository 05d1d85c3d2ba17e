//! What a device keeps: its text, for as long as it may, and who it is.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use device::{guard::MemoryStore, protocol::task::TextPost};
use keyhush_agent::{
    AgentError,
    eligibility::{CommandSays, Eligibility, FileSays},
    identity::Identity,
    text::{Keep, TextFolder, TextSource, TextStore},
};

fn post(text: &str) -> TextPost {
    TextPost { text: text.to_owned(), labels: vec![] }
}

fn texts(source: &dyn TextSource) -> Vec<String> {
    source.text().unwrap().posts.into_iter().map(|post| post.text).collect()
}

#[test]
fn text_has_a_cap_and_an_age_and_the_oldest_goes_first() {
    let keep = Keep { bytes: 10, days: 3, delete_used: false };
    let store = TextStore::open(MemoryStore::default(), keep, 100).unwrap();
    for (text, day) in [("aaaa", 100), ("bbbb", 101), ("cc", 102)] {
        store.add(post(text), day).unwrap();
    }
    assert_eq!(texts(&store), ["aaaa", "bbbb", "cc"]);
    store.add(post("d"), 102).unwrap();
    assert_eq!((texts(&store), store.bytes()), (vec!["bbbb".into(), "cc".into(), "d".into()], 7));
    store.add(post("e"), 104).unwrap();
    assert_eq!(texts(&store), ["cc", "d", "e"], "the one of day 101 is too old");
    // A clock that is set back brings nothing back, and keeps nothing longer.
    store.add(post("f"), 90).unwrap();
    assert!(!texts(&store).contains(&"f".to_owned()));
    store.add(post("longer than all that may be kept"), 104).unwrap();
    assert_eq!(store.bytes(), 0);
}

#[test]
fn text_is_used_once_and_what_comes_meanwhile_is_kept() {
    for delete_used in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let keep = Keep { delete_used, ..Keep::default() };
        let store = TextStore::in_file(&path, keep, 100).unwrap();
        store.add(post("first"), 100).unwrap();
        store.add(post("second"), 100).unwrap();
        assert_eq!(texts(&store).len(), 2);
        store.used().unwrap();
        store.add(post("third"), 100).unwrap();
        assert_eq!(texts(&store), ["third"]);
        assert_eq!(store.bytes(), if delete_used { 5 } else { 16 });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(store);
        let store = TextStore::in_file(&path, keep, 129).unwrap();
        assert_eq!(texts(&store), ["third"]);
        drop(store);
        let store = TextStore::in_file(&path, keep, 130).unwrap();
        assert!(texts(&store).is_empty());
        assert!(!fs::read_to_string(&path).unwrap().contains("third"), "what is too old is gone from the file too");
    }
}

#[test]
fn a_folder_is_read_and_never_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.txt"), "one\n\ntwo\n").unwrap();
    fs::write(folder.path().join("a.jsonl"), "{\"text\": \"three\", \"labels\": [\"x\"]}\n").unwrap();
    fs::write(folder.path().join("c.png"), [0xff]).unwrap();
    let source = TextFolder::new(folder.path());
    assert_eq!(texts(&source), ["three", "one", "two"]);
    assert_eq!(source.text().unwrap().posts[0].labels, ["x"]);
    source.used().unwrap();
    assert_eq!(texts(&source).len(), 3);
    fs::write(folder.path().join("d.jsonl"), "{\"text\"").unwrap();
    assert!(source.text().unwrap_err().to_string().contains("d.jsonl: line 1"));
    assert!(TextFolder::new("/there/is/no/such/folder").text().is_err());
}

#[test]
fn p24_a_key_without_its_guard_is_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let key = Identity::open_or_make(folder.path()).unwrap().key;
    for file in ["key", "guard"] {
        assert_eq!(fs::metadata(folder.path().join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    assert_eq!(Identity::open_or_make(folder.path()).unwrap().key, key);
    let held = Identity::open_or_make(folder.path()).unwrap();
    assert!(Identity::open_or_make(folder.path()).is_err(), "another process has it");
    drop(held);
    fs::remove_file(folder.path().join("guard")).unwrap();
    assert!(matches!(Identity::open_or_make(folder.path()), Err(AgentError::Guard(_))));
    fs::remove_file(folder.path().join("key")).unwrap();
    assert_ne!(Identity::open_or_make(folder.path()).unwrap().key, key);
    fs::write(folder.path().join("key"), [1; 31]).unwrap();
    assert!(matches!(Identity::open_or_make(folder.path()), Err(AgentError::Key { got: 31, .. })));
}

#[test]
fn the_host_says_whether_a_device_may_take_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("may");
    let says = FileSays(path.clone());
    assert!(!says.eligible());
    fs::write(&path, "yes\n").unwrap();
    assert!(says.eligible());
    fs::write(&path, "no\n").unwrap();
    assert!(!says.eligible());
    let command = |program: &str| CommandSays { program: PathBuf::from(program), arguments: vec![] };
    assert!(command("true").eligible() && !command("false").eligible() && !command("/there/is/none").eligible());
}
