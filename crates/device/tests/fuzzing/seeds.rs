//! What the fuzzer begins with: for each target, inputs that it takes and inputs that it refuses.

use ed25519_dalek::SigningKey;
use keyhush_device::{
    guard::{Asked, Day, Guard, Limits, MemoryStore, ModelDigest, Now, Store, TaskDigest, Timer},
    protocol::{
        diary::{Diary, Given},
        message::{Answer, CheckIn, Enrol, Next, Realm, Reason, Request, Says, SecureMessage, Wants},
        terms::Purpose,
    },
    unsent::{Keep, Unsent},
    upload::Rest,
};
use privacy::stages::Encoded;
use prost::Message;

use super::{
    decoders::{encoding, encoding_of},
    participating::{Kept, Log, NO_LIMITS, Offered, REALM, later, packed, refused, wait},
};

/// How the names of seeds that are taken begin.
pub(crate) const TAKEN: &str = "taken";

/// The seeds of a target by their names. Those whose names begin with [`TAKEN`] are taken, the others refused.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let (taken, refused) = match target {
        "device_signed" => (requests(), forged()),
        "device_answer" => (answers(), vec![vec![], groups()]),
        "device_task" => (vec![Offered::new(2).task()], vec![cut(&Offered::new(2).task()), b"{}".to_vec()]),
        "device_blob" => {
            (vec![download(1000, &[0; 1000])], vec![download(1000, &[0; 60_000]), download(9, &[0; 9])[..12].to_vec()])
        }
        "device_report" => {
            let bytes = encoding().packing().bytes();
            let taken = vec![vec![0; 1 + bytes], few(7, &[(0, 1), (3, -2), (15, 5)]), few(22, &[(19, 1)])];
            let unordered = [few(2, &[(5, 1), (6, 1)]), few(3, &[(19, 1)])].map(reversed);
            (
                taken,
                [vec![[vec![0], vec![0x7f; bytes]].concat(), vec![0; bytes], vec![3, 0]], unordered.to_vec()].concat(),
            )
        }
        "device_unsent" => (vec![unsent(0), unsent(3)], vec![cut(&unsent(3)), vec![], [unsent(0), vec![0]].concat()]),
        "device_sealed_sum" => (vec![vec![]], vec![vec![0, 0, 1], [vec![0; 80], vec![1]].concat()]),
        "device_guard" => {
            (vec![guard(NO_LIMITS), guard(RESTS)], vec![cut(&guard(NO_LIMITS)), vec![], cut(&guard(RESTS))])
        }
        "device_diary" => (vec![diary()], vec![cut(&diary()), b"{}".to_vec()]),
        "device_hears_idle" => (vec![said(later(5)), assignment()], vec![groups(), vec![0xff; 40]]),
        "device_hears_busy" => (vec![said(wait(5)), said(later(5))], vec![groups(), assignment()]),
        "device_step_terms" => (vec![step()], vec![cut(&step()), b"{}".to_vec(), large_step()]),
        _ => panic!("the target {target} has no seeds: add them here"),
    };
    let name = |kind, all: Vec<Vec<u8>>| (1..).zip(all).map(move |(i, bytes)| (format!("{kind}-{i}"), bytes));
    name(TAKEN, taken).chain(name("refused", refused)).collect()
}

fn cut(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() * 2 / 3].to_vec()
}

/// Groups in groups: who reads them by calls runs out of stack.
fn groups() -> Vec<u8> {
    vec![0x0b; 4000]
}

fn said(says: Says) -> Vec<u8> {
    Answer::new(says).encode_to_vec()
}

fn requests() -> Vec<Vec<u8>> {
    let key = SigningKey::from_bytes(&[1; 32]);
    let wants = [
        Wants::Enrol(Enrol { token: b"token".to_vec(), attestation: vec![1; 40] }),
        Wants::CheckIn(CheckIn { patience_ms: 20_000, resting: vec![vec![7; 32]] }),
        Wants::Next(Next { ticket: vec![9; 32], patience_ms: 1 }),
        Wants::Secure(SecureMessage { ticket: vec![9; 32], message: vec![2; 70] }),
    ];
    let request =
        |wants| Request { time_s: 1_800_000_000, number: 1, wants: Some(wants) }.sign(&key, &REALM).encode_to_vec();
    wants.map(request).to_vec()
}

fn forged() -> Vec<Vec<u8>> {
    let key = SigningKey::from_bytes(&[1; 32]);
    let elsewhere = Request { time_s: 1, number: 0, wants: None }.sign(&key, &Realm([0; 32])).encode_to_vec();
    vec![elsewhere, cut(&requests()[0]), groups()]
}

fn answers() -> Vec<Vec<u8>> {
    let secure = Says::Secure(SecureMessage { ticket: vec![9; 32], message: vec![2; 70] });
    [later(3), wait(9), refused(Reason::Clock, 5), secure].map(said).into_iter().chain([assignment()]).collect()
}

fn assignment() -> Vec<u8> {
    said(Says::Assignment(Offered::new(1).assignment(7)))
}

/// So many zeros that are declared, and what comes.
fn download(declared: u16, bytes: &[u8]) -> Vec<u8> {
    [&declared.to_le_bytes()[..], &packed(bytes)].concat()
}

/// A report of so many coordinates with their places.
fn few(count: u8, coordinates: &[(usize, i32)]) -> Vec<u8> {
    let encoding = encoding_of(count % 21);
    let mut values = vec![0; encoding.layout().len()];
    coordinates.iter().for_each(|(at, value)| values[*at] = *value);
    [vec![count], Encoded::of(values, &encoding).unwrap().to_bytes()].concat()
}

/// The same bytes of the report backwards: its places are in no order, or beyond the update.
fn reversed(report: Vec<u8>) -> Vec<u8> {
    let (first, bytes) = report.split_at(1);
    first.iter().chain(bytes.iter().rev()).copied().collect()
}

/// What is kept of so many tasks, without its checksum.
fn unsent(tasks: u8) -> Vec<u8> {
    let mut unsent = Unsent::open(MemoryStore::default(), Keep::default(), 100).unwrap();
    // Something is kept, and then nothing: that is on the disk too.
    for task in (1..=tasks).chain([9]) {
        let asked = Asked { task: TaskDigest([task; 32]), step: 0, model: ModelDigest::of(&[f32::from(task)]) };
        unsent.learned(asked, Some(Rest::new(vec![1.0, 0.0, f32::from(task)], vec![])));
        unsent.left(0, 100).unwrap();
    }
    unsent.learned(Asked { task: TaskDigest([9; 32]), step: 1, model: ModelDigest::of(&[9.5]) }, None);
    unsent.left(1, 100).unwrap();
    let bytes = unsent.into_store().load().unwrap().unwrap();
    bytes[..bytes.len() - 32].to_vec()
}

const RESTS: Limits = Limits { timer: Timer { own_s: 3600, task_s: 86_400 }, ..NO_LIMITS };

fn guard(limits: Limits) -> Vec<u8> {
    let mut store = Kept::new("guard", &Log::default());
    let mut guard = Guard::begin(store.clone()).unwrap();
    for step in 3..5u64 {
        let model = ModelDigest::of(&[step as f32]);
        let now = Now { up_ms: 0, clock_s: 1_800_000_000 + 100_000 * step };
        let _gone = guard.allow(Asked { task: TaskDigest([1; 32]), step, model }, &limits, now).unwrap();
    }
    store.load().unwrap().unwrap()
}

fn diary() -> Vec<u8> {
    let mut diary = Diary::open(MemoryStore::default()).unwrap();
    let day = Day::at(1_800_000_000);
    diary.enrolled(&REALM, day).unwrap();
    let given = Given {
        day: day.number(),
        task: "tags of posts".into(),
        digest: "01".repeat(32),
        realm: "5e".repeat(32),
        step: 3,
        purpose: Purpose::Training,
        secure: false,
        thanked: false,
    };
    diary.gives(given).unwrap();
    diary.thanked(&TaskDigest([1; 32]), 3, 5).unwrap();
    diary.refuses(&REALM, "why not", day).unwrap();
    diary.into_store().load().unwrap().unwrap()
}

fn step() -> Vec<u8> {
    serde_json::to_vec(&Offered::new(1).step).unwrap()
}

/// A step whose vector fills the memory.
fn large_step() -> Vec<u8> {
    let text = String::from_utf8(step()).unwrap();
    let dimension = format!("\"dimension\":{}", 101);
    assert!(text.contains(&dimension), "{text}");
    text.replace(&dimension, "\"dimension\":99999999999").into_bytes()
}
