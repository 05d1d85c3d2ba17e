//! Bytes that become a value or a reason.

use std::sync::LazyLock;

use keyhush_device::{
    guard::{Guard, MemoryStore, Store, TaskDigest},
    protocol::{
        blob::{BlobError, Download, Wanted},
        diary::Diary,
        message::{Answer, Hello, Signed},
        task::{Bounds, Model, Task},
    },
    unsent::{Keep, Unsent},
};
use privacy::{
    encoding::Encoding,
    stages::{Arriving, Encoded, SealingKey, Sum},
};
use prost::Message;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::participating::{REALM, step_terms};

/// A task of at most a few hundred kilobytes, so that what is read shows and not what is made room for.
const BOUNDS: Bounds = Bounds {
    task_bytes: 1 << 16,
    model_bytes: 1 << 18,
    words: 1 << 12,
    epochs: 10,
    batch: 16,
    unroll: 16,
    training_bytes: 1 << 20,
    unsent_bytes: 1 << 20,
};

const BOUND_TO: &[u8] = b"an attempt";

pub(super) fn encoding() -> Encoding {
    step_terms(20).encoding
}

/// What a device says.
pub(super) fn signed(bytes: &[u8]) -> bool {
    Signed::open(bytes, &REALM).is_ok()
}

/// What a server says.
pub(super) fn answer(bytes: &[u8]) -> bool {
    _ = Hello::decode(bytes);
    let Ok(answer) = Answer::decode(bytes) else { return false };
    assert_eq!(Answer::decode(&answer.encode_to_vec()[..]).unwrap(), answer, "what is read is written as it was read");
    answer.says.is_some()
}

/// A task and a model of a server.
pub(super) fn task(bytes: &[u8]) -> bool {
    _ = Model::read(bytes);
    Task::read(bytes, &BOUNDS).is_ok()
}

/// A download: how many bytes are declared, then packed bytes, in pieces.
pub(super) fn blob(bytes: &[u8]) -> bool {
    let Some((declared, packed)) = bytes.split_first_chunk() else { return false };
    let declared = u64::from(u16::from_le_bytes(*declared));
    // The digest of nothing else than so many zeros.
    let digest = Sha256::digest(vec![0; declared as usize]).into();
    let mut download = Download::new(Wanted { digest, bytes: declared });
    for piece in packed.chunks(7) {
        if download.take(piece).is_err() {
            return false;
        }
    }
    match download.finish() {
        Ok(bytes) => {
            assert!(bytes.len() as u64 == declared && bytes.iter().all(|byte| *byte == 0), "other bytes were taken");
            true
        }
        Err(BlobError::Other | BlobError::Short { .. }) => false,
        Err(other) => panic!("said at the end, and known before: {other}"),
    }
}

/// The encoding that a byte stands for: of all coordinates, or of so many that are sent with their places.
pub(super) fn encoding_of(few: u8) -> Encoding {
    let encoding = encoding();
    match usize::from(few) {
        0 => encoding,
        few => encoding.with_few(few).unwrap(),
    }
}

/// The whole report of a device, at the server: what kind of report is expected, and its bytes. It comes at once, or in pieces of any length.
pub(super) fn report(bytes: &[u8]) -> bool {
    let Some(([few], bytes)) = bytes.split_first_chunk() else { return false };
    // A report has no more coordinates than the model.
    let encoding = encoding_of(few % 21);
    let taken = Encoded::check(bytes, &encoding);
    let mut arriving = Arriving::new(&encoding);
    let in_pieces = bytes.chunks(1 + usize::from(few / 21)).try_for_each(|piece| arriving.take(piece));
    assert_eq!(in_pieces.and_then(|()| arriving.finish()).is_ok(), taken.is_ok(), "in pieces and at once");
    let Ok(encoded) = taken else { return false };
    let sent = encoded.to_bytes();
    assert!(sent == bytes || encoding.few().is_some(), "another report than was sent");
    // Which zeros stand among the coordinates is the device's choice: what counts is what is added.
    assert_eq!(Encoded::check(&sent, &encoding).unwrap().values(), encoded.values(), "another report than was sent");
    Sum::zero(&encoding).add(&encoded).unwrap();
    true
}

/// A sealed sum that was changed: these bytes are what is changed in it. It opens where nothing is.
pub(super) fn sealed_sum(bytes: &[u8]) -> bool {
    static SEALED: LazyLock<(Encoding, Vec<u8>)> = LazyLock::new(|| {
        let encoding = encoding();
        let sealed = Sum::zero(&encoding).seal(&key(), BOUND_TO).unwrap();
        (encoding, sealed)
    });
    let (encoding, sealed) = &*SEALED;
    assert!(Sum::unseal(bytes, &key(), BOUND_TO, encoding).is_err(), "nobody can make one without the key");
    let mut changed = sealed.clone();
    changed.resize(sealed.len().max(bytes.len()), 0);
    changed.iter_mut().zip(bytes).for_each(|(to, by)| *to ^= by);
    let is_open = Sum::unseal(&changed, &key(), BOUND_TO, encoding).is_ok();
    assert_eq!(is_open, changed == *sealed, "it opens where nothing was changed, and nowhere else");
    is_open
}

fn key() -> SealingKey {
    SealingKey::from_secret_bytes(Zeroizing::new([7; 32]))
}

/// What a device finds of its guard on its disk.
pub(super) fn guard(bytes: &[u8]) -> bool {
    Guard::open(kept(bytes)).is_ok()
}

/// Whatever is found is kept.
const KEEP: Keep = Keep { days: u32::MAX, bytes: u64::MAX };

/// What it finds of what it learned and has not sent. The checksum is put right: whoever can write the file can do that too.
pub(super) fn unsent(bytes: &[u8]) -> bool {
    let whole = [bytes, &Sha256::digest(bytes)].concat();
    let opened = Unsent::open(kept(&whole), KEEP, 0);
    let damaged = Unsent::open(kept(bytes), KEEP, 0);
    assert!(damaged.is_err(), "bytes without their checksum are taken");
    let Ok(unsent) = opened else { return false };
    _ = unsent.page(1);
    let task = TaskDigest(whole.get(22..).and_then(|from| from.first_chunk()).copied().unwrap_or_default());
    if let Some(rest) = unsent.of(&task, 3) {
        assert!(rest.vectors().iter().all(|vector| vector.is_empty() || vector.len() == 3));
    }
    assert!(Unsent::open(unsent.into_store(), KEEP, 1).is_ok(), "what is kept can be read again");
    true
}

/// What it finds of its diary.
pub(super) fn diary(bytes: &[u8]) -> bool {
    Diary::open(kept(bytes)).is_ok()
}

fn kept(bytes: &[u8]) -> MemoryStore {
    let mut store = MemoryStore::default();
    store.save(bytes).unwrap();
    store
}
