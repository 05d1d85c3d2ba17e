//! What the fuzzer begins with: inputs that the target takes and inputs that it refuses.

use device::{guard::Store, protocol::task::TextPost};
use keyhush_agent::{many::Disk, text::TextStore};

use super::{KEEP, TODAY};

/// The seeds of a target by their names. Those whose names begin with `taken` are taken, the others refused.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    assert_eq!(target, "agent_text", "the target {target} has no seeds: add them here");
    let first = br#"{"format":1,"keep":{"bytes":9,"days":3},"next":2,"learned":1,"posts":[{"id":1,"day":19999,"text":"two"}],"taken":["0f"]}"#;
    let taken = [kept(&[]), kept(&["w1 w2", "", "w1"]), first.to_vec()];
    // Numbers that nothing can be added to, and posts of one number.
    let full =
        br#"{"format":2,"keep":{"bytes":9,"days":3},"next":18446744073709551615,"learned":0,"posts":[],"taken":{}}"#;
    let twice = br#"{"format":2,"keep":{"bytes":9,"days":3},"next":2,"learned":0,"posts":[{"id":1,"day":1,"text":"a"},{"id":1,"day":1,"text":"b"}],"taken":{}}"#;
    let cut = kept(&["w1 w2"])[..60].to_vec();
    let refused = [cut, b"".to_vec(), b"{\"format\":3}".to_vec(), full.to_vec(), twice.to_vec()];
    let name = |kind, all: Vec<Vec<u8>>| (1..).zip(all).map(move |(i, bytes)| (format!("{kind}-{i}"), bytes));
    name("taken", taken.to_vec()).chain(name("refused", refused.to_vec())).collect()
}

/// The bytes of a store with these posts.
fn kept(texts: &[&str]) -> Vec<u8> {
    let mut disk = Disk::default();
    let store = TextStore::open(disk.clone(), KEEP, TODAY).unwrap();
    let post = |text: &&str| TextPost { text: (*text).to_owned(), labels: vec!["t1".to_owned()] };
    store.take_in(texts.iter().map(post).collect(), TODAY).unwrap();
    // A change is there either way.
    store.add(TextPost { text: "w3".to_owned(), labels: vec![] }, TODAY).unwrap();
    disk.load().unwrap().unwrap()
}
