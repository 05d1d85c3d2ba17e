//! What is done with arbitrary bytes: a target for what a device of this crate reads from its own disk.
//!
//! Two programs run it: the tests of `fuzz.rs`, on every input that is kept in `fuzz/corpus`, and the fuzzer in `fuzz/`, which makes
//! inputs up. A target panics where the library does, or breaks its word. Otherwise it says whether the bytes were taken: seeds that
//! should be taken, and are not, fuzz nothing.
#![allow(dead_code, reason = "the fuzzer makes no seeds")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

pub(crate) mod seeds;

use device::{guard::Store, protocol::task::TextPost};
use keyhush_agent::{
    many::Disk,
    text::{Keep, TextSource, TextStore},
};

/// Takes arbitrary bytes, or refuses them.
pub(crate) type Target = fn(&[u8]) -> bool;

/// Every target by its name, which is that of its folder in `fuzz/corpus`.
pub(crate) const TARGETS: [(&str, Target); 1] = [("agent_text", text)];

/// The target of a name.
pub(crate) fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(own, _)| *own == name).map(|(_, target)| *target)
}

pub(crate) const TODAY: u32 = 20_000;
const KEEP: Keep = Keep { bytes: 64, days: 30 };

/// A device's store of text. It is taken where it opens; then it keeps its limits, and what is learned from is gone, here and on the disk.
fn text(bytes: &[u8]) -> bool {
    let mut disk = Disk::default();
    disk.save(bytes).unwrap();
    let open = || TextStore::open(disk.clone(), KEEP, TODAY);
    let Ok(store) = open() else { return false };
    _ = store.page();
    let posts = |store: &TextStore<Disk>| store.text().unwrap().posts;
    let before = posts(&store);
    assert!(store.bytes() <= KEEP.bytes, "more than may be kept");
    store.read(1);
    store.used().unwrap();
    assert_eq!(posts(&store), before[before.len().min(1)..], "the first was learned from, and no other");
    let typed = TextPost { text: "w1 w2".to_owned(), labels: vec![] };
    store.add(typed.clone(), TODAY).unwrap();
    assert_eq!(posts(&store).last(), Some(&typed));
    store.take_in(vec![typed.clone(), typed], TODAY).unwrap();
    let after = posts(&store);
    assert!(store.bytes() <= KEEP.bytes, "more than may be kept");
    drop(store);
    assert_eq!(posts(&open().unwrap()), after, "on the disk is what was in memory");
    true
}
