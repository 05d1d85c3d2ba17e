//! What the fuzzer begins with: for each target, inputs that it takes and inputs that it refuses.

use device::protocol::message::{Answer, CheckIn, Next, Request, Says, SecureMessage, Wants};
use ledger::PseudonymKey;
use prost::Message;
use secagg::{
    client::Client,
    directory::Everybody,
    parameters::{Adversary, Floor},
    session::Offer,
};

use super::{
    conversation::{Coins, DEVICES, DIMENSION, SAYS, SENDS, WAITS, begun, key, ticket},
    uploads::encoding,
};

/// A device that asks for nothing.
const FLOOR: Floor =
    Floor { clients: 0, survivors: 0, corrupted: 0.0, dropout: 0.0, security_bits: 0, adversary: Adversary::Curious };

/// How the names of seeds that are taken begin.
pub(crate) const TAKEN: &str = "taken";

/// The seeds of a target by their names. Those whose names begin with [`TAKEN`] are taken, the others refused.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let (taken, refused) = match target {
        "serve_request" => (requests(), bad_requests()),
        "serve_forwarded" => (
            texts(&["198.51.100.1", "203.0.113.9, 198.51.100.1:80, 10.9.9.9", "[2001:db9::5]:443\n127.0.0.1"]),
            texts(&["", "unknown", "127.0.0.1", "198.51.100.1, _hidden", "10.0.0.1, 10.0.0.2"]),
        ),
        // The first byte says which report is expected.
        "serve_upload" => (
            vec![
                vec![0, 4, 0, 4, 0],
                vec![0, 4 | 2 << 6, 0, 0, 0, 4 | 1 << 6, 0, 4, 0],
                vec![2, 4, 0],
                vec![2, 4 | 1 << 3, 0, 0, 0, 0x30, 0],
                vec![255, 4, 0, 4, 0, 4, 0],
            ],
            // Too long, too short, of another place, beyond every bound, and once too short and then right.
            // And all coordinates at the same place.
            vec![
                vec![0, 1, 0],
                vec![0, 2, 0],
                [&[0, 4 | 3 << 6, 0][..], &[0xff; 8]].concat(),
                vec![0, 36, 0x7f, 36, 0x7f],
                vec![0, 3 | 1 << 6, 9, 5, 0, 0, 0, 4 | 1 << 6, 0, 0, 0, 4, 0, 4, 0],
                vec![2, 4 | 32, 0],
                vec![200, 4 | 32, 0, 4, 0],
            ],
        ),
        "serve_conversation" => (vec![plain_round()], vec![secure_beginning(), vec![0], odd_tickets()]),
        "serve_attempt" => (
            vec![vec![0, 2, 0, 1, 2], vec![1, 3, 1, 1, 2, 3, 2]],
            vec![
                vec![2, 1, 0, 1, 9, 9],
                vec![3, 1, 0, 1, 0, 0, 1],
                vec![0, 4, 4, 1, 2, 3, 4, 1, 2, 3, 4],
                vec![],
                vec![5, 3, 1, 1, 2, 3, 2],
            ],
        ),
        "serve_database" => (vec![vec![0], vec![1]], vec![vec![2], edit(0, b"no database"), edit(100, &[0xff; 300])]),
        "serve_line" => lines(),
        "serve_secrets" => (
            texts(&["\x001 REALM\n", "\x000 REALM\n", "\x01thirty-two bytes that are a key.", "\x02HEAD\n"]),
            texts(&["\x002 REALM\n", "\x001 REALM", "\x001 0000\n", "\x01short", "\x02HEAD", "\x029:ab\n", "\x00"]),
        ),
        "serve_task" => (
            vec![include_bytes!("../../../bench/src/network/task.toml").to_vec()],
            texts(&["rounds = ", "rounds = -1", "rounds = 1\nunits = 3\n", "[a.b]\na=1\n[a]\n", "x=[[[[[[[[[[[["]),
        ),
        _ => panic!("the target {target} has no seeds: add them here"),
    };
    let name = |kind, all: Vec<Vec<u8>>| (1..).zip(all).map(move |(i, bytes)| (format!("{kind}-{i}"), bytes));
    name(TAKEN, taken).chain(name("refused", refused)).collect()
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn requests() -> Vec<Vec<u8>> {
    let (blob, ticket) = (format!("/v1/blob/01{}", "00".repeat(31)), "ab".repeat(32));
    let of = |text: String| text.into_bytes();
    vec![
        of("GET /v1/hello\n\n".into()),
        of("GET /healthz\n".into()),
        of(format!("GET {blob}\nRange:bytes=3-9\n\n")),
        of(format!("GET {blob}\nrange:bytes=-4\nif-range:\"x\"\n\n")),
        of(format!("HEAD {blob}\nIf-None-Match:W/\"a\", \"b\"\n\n")),
        of("POST /v1/say\ncontent-type:application/x-protobuf\n\nbody".into()),
        of(format!("PUT /v1/report/{ticket}/18446744073709551615\ncontent-type:application/octet-stream\n\nchunk")),
    ]
}

fn bad_requests() -> Vec<Vec<u8>> {
    texts(&[
        "",
        "GET /v2/hello\n\n",
        "PATCH /v1/say\n\n",
        "GET /v1/blob/00\n\n",
        "POST /v1/say\ncontent-type:application/x-protobuf\ncontent-encoding:gzip\n\nbody",
        "POST /v1/say\n\nbody",
        "POST /v1/say\ncontent-type:application/x-protobuf\n\n",
        "PUT /v1/report/ab/99999999999999999999\ncontent-type:application/octet-stream\n\nchunk",
        "GET /v1/blob/%00%ff/../..?x=#\n\n",
    ])
}

fn event(kind: u8, who: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, who][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

fn says(who: u8, wants: Wants) -> Vec<u8> {
    event(SAYS, who, &Request { time_s: 0, number: 0, wants: Some(wants) }.encode_to_vec())
}

fn check_ins() -> Vec<Vec<u8>> {
    (0..DEVICES).map(|who| says(who, Wants::CheckIn(CheckIn { patience_ms: 900, resting: Vec::new() }))).collect()
}

/// Devices check in, send their reports, and ask how these stand.
fn plain_round() -> Vec<u8> {
    let sends = (0..DEVICES).map(|who| event(SENDS, who, &vec![0; encoding(DIMENSION).packing().bytes()]));
    let next = |who| says(who, Wants::Next(Next { ticket: ticket(&key(who)).0.to_vec(), patience_ms: 1 }));
    let events = check_ins().into_iter().chain([event(WAITS, 0, &[1])]).chain(sends).chain((0..DEVICES).map(next));
    [vec![0], events.collect::<Vec<_>>().concat()].concat()
}

/// Devices check in and say their keys; then time runs out.
fn secure_beginning() -> Vec<u8> {
    let mut coordinator = begun(true);
    for who in 0..DEVICES {
        let wants = Wants::CheckIn(CheckIn { patience_ms: 900, resting: Vec::new() });
        coordinator.said(who.into(), key(who), &wants, 0).unwrap();
    }
    coordinator.tick(100).unwrap();
    let offer = coordinator.flush().unwrap().into_iter().find_map(|(_, Answer { says })| match says {
        Some(Says::Assignment(assignment)) => Some(assignment.offer),
        _ => None,
    });
    let offer = Offer::decode(&offer.unwrap()).unwrap();
    let keys = |who: u8| {
        let (_, message) = Client::begin(offer, FLOOR, &Everybody, &mut Coins(who.into())).unwrap();
        says(who, Wants::Secure(SecureMessage { ticket: ticket(&key(who)).0.to_vec(), message }))
    };
    let events = check_ins().into_iter().chain([event(WAITS, 0, &[1])]).chain((0..DEVICES).map(keys));
    [vec![1], events.collect::<Vec<_>>().concat(), event(WAITS, 0, &[255; 9])].concat()
}

fn odd_tickets() -> Vec<u8> {
    let tickets = [vec![], vec![1; 31], vec![1; 33], ticket(&key(1)).0.to_vec()];
    let next = |ticket: Vec<u8>| {
        let secure = Wants::Secure(SecureMessage { ticket: ticket.clone(), message: vec![0x0b; 30] });
        [says(0, Wants::Next(Next { ticket, patience_ms: 1 })), says(0, secure)].concat()
    };
    [vec![0], check_ins().concat(), tickets.map(next).concat()].concat()
}

/// A change of a database.
fn edit(place: usize, bytes: &[u8]) -> Vec<u8> {
    let place = (place as u32).to_le_bytes();
    [&[0][..], &place[..3], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

/// Lines of a ledger that is kept, so that the seeds repeat: a new one has a name of its own each time.
fn lines() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let entries = include_str!("../../../cli/tests/cmd/ledger.in/ledger.jsonl");
    let head = include_str!("../../../cli/tests/cmd/ledger.in/ledger.jsonl.head");
    let entries: Vec<&str> = entries.lines().take(3).collect();
    let users = [b"ada".as_slice(), b"bob"];
    let record = PseudonymKey::from_bytes(&[1; 32]).record("model", 3, 0, users).unwrap();
    let note = r#"{"digest":"ab","obeys":"pause","served":true,"broken":null}"#;
    let begun = r#"{"stream":"model","step":1,"attempt":0,"declared":4}"#;
    let taken = texts(&[&entries[..], &[record.line(), head.trim_end(), note, begun]].concat());
    let cut = [&entries[0][..entries[0].len() / 2], &record.line()[1..], "{}", "3:zz"];
    (taken, texts(&cut).into_iter().chain([vec![0xff; 9]]).collect())
}
