//! What a device keeps: its text, for as long as it may, and who it is.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use device::{
    days::CLOCK_IS_SET,
    guard::{MemoryStore, Store, StoreError, file::FileStore},
    protocol::task::TextPost,
};
use keyhush_agent::{
    AgentError,
    eligibility::{CommandSays, Eligibility, FileSays},
    identity::Identity,
    many::Disk,
    text::{Keep, TakenIn, TextFolder, TextSource, TextStore, today},
};

fn post(text: &str) -> TextPost {
    TextPost { text: text.to_owned(), labels: vec![] }
}

fn texts(source: &dyn TextSource) -> Vec<String> {
    source.text().unwrap().posts.into_iter().map(|post| post.text).collect()
}

#[test]
fn the_disk_of_a_made_up_device_keeps_the_contract_of_stores() {
    let disk = Disk::default();
    device::contract::store(&|| disk.clone());
}

#[test]
fn text_has_a_cap_and_an_age_and_the_oldest_goes_first() {
    let keep = Keep { bytes: 10, days: 3 };
    let store = TextStore::open(MemoryStore::default(), keep, 100).unwrap();
    for (text, day) in [("aaaa", 100), ("bbbb", 101), ("cc", 102)] {
        store.add(post(text), day).unwrap();
    }
    assert_eq!(texts(&store), ["aaaa", "bbbb", "cc"]);
    store.add(post("d"), 102).unwrap();
    assert_eq!((texts(&store), store.bytes()), (vec!["bbbb".into(), "cc".into(), "d".into()], 7));
    store.add(post("e"), 104).unwrap();
    assert_eq!(texts(&store), ["cc", "d", "e"], "the one of day 101 is too old");
    // A clock that is not set stands still.
    store.add(post("f"), 90).unwrap();
    assert_eq!(texts(&store), ["cc", "d", "e", "f"]);
    store.add(post("longer than all that may be kept"), 104).unwrap();
    assert_eq!(store.bytes(), 0);
}

/// A day of a clock that is set.
const NOW: u32 = CLOCK_IS_SET + 100;

/// What was added while the clock was ten years ahead stayed for ten years.
#[test]
fn a_clock_that_was_wrong_keeps_no_text_longer() {
    let (ahead, keep) = (NOW + 3650, Keep { bytes: 100, days: 30 });
    for is_restarted in [false, true] {
        let disk = FullDisk::default();
        let mut store = TextStore::open(disk.clone(), keep, ahead).unwrap();
        store.add(post("ahead"), ahead).unwrap();
        store.take_in(vec![post("line")], ahead).unwrap();
        store.let_go_of_what_is_too_old(ahead + 10).unwrap();
        if is_restarted {
            drop(store);
            store = TextStore::open(disk.clone(), keep, NOW).unwrap();
        }
        store.let_go_of_what_is_too_old(NOW).unwrap();
        assert!(store.page().contains("the oldest from 10 days ago"), "{}", store.page());
        store.let_go_of_what_is_too_old(NOW + 19).unwrap();
        assert_eq!(texts(&store), ["ahead", "line"]);
        store.let_go_of_what_is_too_old(NOW + 20).unwrap();
        assert!(texts(&store).is_empty() && !disk.0.lock().unwrap().0.bytes.as_ref().unwrap().ends_with(b"ahead"));
        // The digest of the line goes in the same number of days.
        store.take_in(vec![], NOW + 20).unwrap();
        store.take_in(vec![post("line")], NOW + 20).unwrap();
        assert_eq!(texts(&store), ["line"]);
    }
}

/// One look at the folder with a clock that was ahead, and every new line was dropped as too old, and known for ever.
#[test]
fn what_comes_after_a_clock_was_set_back_is_kept() {
    let store = TextStore::open(MemoryStore::default(), Keep { bytes: 100, days: 30 }, NOW).unwrap();
    store.take_in(vec![post("one")], NOW).unwrap();
    store.used().unwrap();
    store.take_in(vec![post("one")], NOW + 40).unwrap();
    store.take_in(vec![post("one"), post("two")], NOW).unwrap();
    store.add(post("three"), NOW).unwrap();
    assert_eq!(texts(&store), ["two", "three"]);
    store.let_go_of_what_is_too_old(NOW + 29).unwrap();
    assert_eq!(texts(&store), ["two", "three"]);
    store.let_go_of_what_is_too_old(NOW + 30).unwrap();
    assert!(texts(&store).is_empty());
}

/// A clock that was set back while the device was off made text as young as the last line that came.
#[test]
fn days_that_passed_before_a_restart_have_passed() {
    let (disk, keep) = (FullDisk::default(), Keep { bytes: 100, days: 30 });
    let store = TextStore::open(disk.clone(), keep, NOW).unwrap();
    store.let_go_of_what_is_too_old(NOW + 1).unwrap();
    assert_eq!(disk.0.lock().unwrap().0.bytes, None, "there is nothing whose days count");
    store.add(post("one"), NOW + 1).unwrap();
    for day in NOW + 1..=NOW + 26 {
        store.let_go_of_what_is_too_old(day).unwrap();
    }
    drop(store);
    let store = TextStore::open(disk, keep, NOW + 1).unwrap();
    store.let_go_of_what_is_too_old(NOW + 5).unwrap();
    assert_eq!(texts(&store), ["one"]);
    store.let_go_of_what_is_too_old(NOW + 6).unwrap();
    assert!(texts(&store).is_empty());
}

/// The owner was told that their text is damaged, and it stayed.
#[test]
fn text_that_cannot_be_read_can_be_deleted() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("text");
    let forget = || TextStore::forget(&mut FileStore::lock(&path).unwrap(), today()).unwrap();
    assert!(forget() && !path.exists(), "there was nothing");
    for unread in ["what I typed", r#"{"format":99,"posts":"what I typed"}"#, r#"{"format":3,"what I typed":0}"#] {
        fs::write(&path, unread).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(TextStore::found_in(&path, today()).is_err());
        assert!(!forget(), "{unread}");
        assert!(!fs::read_to_string(&path).unwrap().contains("typed"));
        assert!(texts(&TextStore::in_file(&path, Keep::default(), today()).unwrap()).is_empty());
    }
}

#[test]
fn what_is_too_old_goes_while_a_device_waits() {
    let long_ago = today() - 40;
    let store = TextStore::open(MemoryStore::default(), Keep::default(), long_ago).unwrap();
    store.add(post("old"), long_ago).unwrap();
    store.let_go_of_old().unwrap();
    assert_eq!(store.bytes(), 0);
}

#[test]
fn text_is_used_once_and_what_comes_meanwhile_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    let store = TextStore::in_file(&path, Keep::default(), 100).unwrap();
    store.add(post("first"), 100).unwrap();
    store.add(post("second"), 100).unwrap();
    assert_eq!(texts(&store).len(), 2);
    // Typed between training and the tick.
    store.add(post("third"), 100).unwrap();
    store.used().unwrap();
    assert_eq!((texts(&store), store.bytes()), (vec!["third".to_owned()], 5));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&path).unwrap();
    assert!(!written.contains("first") && !written.contains("second"), "what was used is gone from the file too");
    drop(store);
    let store = TextStore::in_file(&path, Keep::default(), 129).unwrap();
    assert_eq!(texts(&store), ["third"]);
    drop(store);
    let store = TextStore::in_file(&path, Keep::default(), 130).unwrap();
    assert!(texts(&store).is_empty());
    assert!(!fs::read_to_string(&path).unwrap().contains("third"), "what is too old is gone from the file too");
}

#[test]
fn exactly_what_was_read_of_what_was_given_last_is_used() {
    let store = TextStore::open(MemoryStore::default(), Keep { bytes: 12, ..Keep::default() }, 100).unwrap();
    for text in ["aaaa", "bbbb", "cccc"] {
        store.add(post(text), 100).unwrap();
    }
    // Training that came to nothing: everything is given again.
    assert_eq!(texts(&store), ["aaaa", "bbbb", "cccc"]);
    assert_eq!(texts(&store), ["aaaa", "bbbb", "cccc"]);
    store.read(2);
    // The first of those that were read makes room for another, which was not given.
    store.add(post("dddd"), 100).unwrap();
    store.used().unwrap();
    store.used().unwrap();
    assert_eq!(texts(&store), ["cccc", "dddd"]);
    store.add(post("eeee"), 100).unwrap();
    store.used().unwrap();
    assert_eq!(texts(&store), ["eeee"]);
}

/// A store on a disk that can be full, and what is on the disk.
#[derive(Clone, Default)]
struct FullDisk(Arc<Mutex<(MemoryStore, bool)>>);

impl Store for FullDisk {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.lock().unwrap().0.load()
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let (disk, is_full) = &mut *self.0.lock().unwrap();
        match is_full {
            true => Err(StoreError::Failed { doing: "write", place: "it".into(), problem: "full".into() }),
            false => disk.save(bytes),
        }
    }
}

#[test]
fn what_cannot_be_kept_is_an_error_and_nothing_is_lost() {
    let disk = FullDisk::default();
    let store = TextStore::open(disk.clone(), Keep::default(), 100).unwrap();
    store.add(post("first"), 100).unwrap();
    assert_eq!(texts(&store), ["first"]);
    disk.0.lock().unwrap().1 = true;
    assert!(store.used().is_err() && store.add(post("second"), 100).is_err());
    assert!(TextStore::forget(&mut disk.clone(), 100).is_err());
    // In memory and after a crash there is what was there.
    assert_eq!(texts(&store), ["first"]);
    assert_eq!(texts(&TextStore::open(disk.clone(), Keep::default(), 100).unwrap()), ["first"]);
    disk.0.lock().unwrap().1 = false;
    store.used().unwrap();
    assert!(texts(&TextStore::open(disk, Keep::default(), 100).unwrap()).is_empty());
    for damaged in [
        &b""[..],
        b"[]",
        b"{}",
        br#"{"format":2,"keep":{"bytes":1,"days":1},"next":0,"learned":0,"posts":[],"taken":[]}"#,
        br#"{"format":4,"keep":{"bytes":1,"days":1},"next":0,"learned":0,"posts":[],"taken":{}}"#,
    ] {
        let store = MemoryStore { bytes: Some(damaged.to_vec()) };
        assert!(TextStore::open(store, Keep::default(), 100).is_err(), "{damaged:?}");
    }
}

#[test]
fn lines_of_a_folder_are_taken_in_once_and_its_files_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let typed = folder.path().join("typed.txt");
    fs::write(&typed, "ok\none\nok\n").unwrap();
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("text");
    let open = || {
        let store = TextStore::in_file(&path, Keep { bytes: 16, days: 30 }, today()).unwrap();
        TakenIn::new(TextFolder::new(folder.path()), store).unwrap()
    };
    let source = open();
    assert_eq!(texts(&source), ["ok", "one", "ok"]);
    source.used().unwrap();
    assert!(texts(&source).is_empty());
    drop(source);
    // Neither another name nor another order makes them new; a line that stands there once more is.
    fs::rename(&typed, folder.path().join("a.txt")).unwrap();
    fs::write(folder.path().join("b.txt"), "two\none\n").unwrap();
    let source = open();
    assert_eq!(texts(&source), ["two", "one"]);
    // What does not fit waits where it is, and what can never fit is not waited for.
    fs::write(folder.path().join("c.txt"), "this line is longer than all\n0123456789\nx\n").unwrap();
    assert_eq!(texts(&source), ["two", "one", "0123456789"]);
    source.used().unwrap();
    assert_eq!(texts(&source), ["x"]);
    drop(source);
    let found = TextStore::found_in(&path, today()).unwrap().unwrap();
    let page = found.page();
    for words in ["1 post, 1 byte, the oldest from today", "deleted here: 6.", "at most 16 bytes", "30 days"] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    drop(found);
    assert!(TextStore::forget(&mut FileStore::lock(&path).unwrap(), today()).unwrap());
    assert!(texts(&open()).is_empty(), "what was cleared is not taken in again");
    assert_eq!(fs::read_to_string(folder.path().join("a.txt")).unwrap(), "ok\none\nok\n");
    assert!(TextStore::found_in(&state.path().join("none"), 0).unwrap().is_none());
}

/// Somebody whose power went while text was first saved was told that it is deleted, and all of it stayed beside.
#[test]
fn text_that_was_being_saved_when_the_power_went_goes_too() {
    let state = tempfile::tempdir().unwrap();
    let (path, new) = (state.path().join("typed"), state.path().join("typed.new"));
    fs::write(&new, "what I typed").unwrap();
    assert!(TextStore::found_in(&path, today()).unwrap().is_none() && !new.exists());
    fs::write(&new, "what I typed").unwrap();
    drop(TextStore::in_file(&path, Keep::default(), today()).unwrap());
    assert!(!new.exists());
}

/// Whoever steals the file can try lines that they guess, as long as digests are there: no longer than text would be kept.
#[test]
fn digests_of_lines_go_when_the_lines_have_been_gone_for_as_long_as_text_is_kept() {
    let disk = FullDisk::default();
    let on_disk = || disk.0.lock().unwrap().0.bytes.as_ref().map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    let digests = || {
        let text = on_disk().unwrap();
        text.rsplit_once("taken").unwrap().1.split('}').next().unwrap().matches("\":1").count()
    };
    let store = TextStore::open(disk.clone(), Keep { bytes: 100, days: 3 }, 100).unwrap();
    let (one, two) = (|| post("one"), || post("two"));
    store.take_in(vec![one(), two()], 100).unwrap();
    assert_eq!(texts(&store), ["one", "two"]);
    store.used().unwrap();
    // One line leaves the folder; the other is still there, and so is what is known of both.
    for day in [101, 102] {
        store.take_in(vec![two()], day).unwrap();
        assert_eq!((texts(&store).len(), digests()), (0, 2), "day {day}");
    }
    store.take_in(vec![two(), one()], 102).unwrap();
    assert!(texts(&store).is_empty(), "what was away for a while is not learned from again");
    for day in 103..=110 {
        store.take_in(vec![two()], day).unwrap();
        assert_eq!(digests(), if day < 105 { 2 } else { 1 }, "day {day}");
    }
    assert!(texts(&store).is_empty());
    // A device that was off for longer has not seen that anything left.
    drop(store);
    let store = TextStore::open(disk.clone(), Keep { bytes: 100, days: 3 }, 150).unwrap();
    store.take_in(vec![two()], 150).unwrap();
    assert!(texts(&store).is_empty());
    // What waits for room is not forgotten meanwhile.
    let long = "0123456789".repeat(10);
    store.take_in(vec![two(), post(&long), post("x")], 150).unwrap();
    store.take_in(vec![post(&long), post("x"), two()], 150).unwrap();
    assert_eq!((texts(&store), digests()), (vec![long], 2));
}

/// The second format knew no latest day.
#[test]
fn a_text_store_of_the_second_format_is_read() {
    let old =
        br#"{"format":2,"keep":{"bytes":9,"days":3},"next":2,"learned":1,"posts":[{"id":1,"day":100,"text":"two"}],
                   "taken":{"0f":101}}"#;
    let store = TextStore::open(MemoryStore { bytes: Some(old.to_vec()) }, Keep { bytes: 9, days: 3 }, 102).unwrap();
    assert_eq!(texts(&store), ["two"]);
    store.let_go_of_what_is_too_old(103).unwrap();
    assert!(texts(&store).is_empty());
}

/// A store of the version before is read, and its digests have as long as new ones.
#[test]
fn a_text_store_of_the_first_format_is_read() {
    let old =
        br#"{"format":1,"keep":{"bytes":9,"days":3},"next":2,"learned":1,"posts":[{"id":1,"day":100,"text":"two"}],
                   "taken":["0f","1f"]}"#;
    let disk = FullDisk::default();
    disk.0.lock().unwrap().0.save(old).unwrap();
    let store = TextStore::open(disk.clone(), Keep { bytes: 9, days: 3 }, 101).unwrap();
    assert_eq!(texts(&store), ["two"]);
    store.take_in(vec![], 103).unwrap();
    let kept =
        |digest: &str| String::from_utf8(disk.0.lock().unwrap().0.bytes.clone().unwrap()).unwrap().contains(digest);
    assert!(kept("0f"), "{}", store.page());
    store.take_in(vec![], 104).unwrap();
    assert!(!kept("0f"));
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
    // A byte order mark was part of the first line, and no JSON; a file that is still empty is none that is wrong.
    fs::write(folder.path().join("a.jsonl"), "\u{feff}{\"text\": \"three\"}\n").unwrap();
    fs::write(folder.path().join("b.txt"), "\u{feff}one\n").unwrap();
    fs::write(folder.path().join("c.txt"), "").unwrap();
    assert_eq!(texts(&source), ["three", "one"]);
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
