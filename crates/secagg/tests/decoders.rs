//! Bytes from anywhere: decoders and states read them or refuse them, and what is read has one encoding. And whatever a server
//! says in whatever order, no client opens both shares of a neighbour.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use std::sync::LazyLock;

use keyhush_secagg::{
    ClientId,
    directory::Everybody,
    entropy::SimulatedEntropy,
    message::{
        AdvertiseKeys, Agreement, Delivery, Kind, MaskedInput, Neighbourhood, Opened, ShareKeys, UnmaskRequest,
        UnmaskResponse, View,
    },
    parameters::Adversary,
    server::{CollectKeys, Connect, Serial},
    session::{Offer, SessionId},
    wire::Bits,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use story::{
    advertise, input, plain_sum,
    recorded::{Recorded, STATES},
    terms,
};

static RECORDED: LazyLock<Recorded> = LazyLock::new(Recorded::new);

/// The same round, with a server that is taken at its word.
static TRUSTED: LazyLock<Recorded> = LazyLock::new(|| Recorded::with(terms(5, Adversary::Curious), 3));

/// The nine messages and the offer.
fn samples() -> Vec<Vec<u8>> {
    [&RECORDED.messages[..], &[RECORDED.offer.encode()]].concat()
}

/// What is done to bytes on their way.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Add(Vec<u8>),
    /// Four bytes anywhere, as a length would be.
    Number(Index, u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), 1..=255_u8).prop_map(|(at, by)| Damage::Flip(at, by)),
        1 => any::<Index>().prop_map(Damage::Cut),
        1 => vec(any::<u8>(), 1..200).prop_map(Damage::Add),
        2 => (any::<Index>(), prop_oneof![any::<u32>(), 0..20_u32, Just(u32::MAX)])
            .prop_map(|(at, number)| Damage::Number(at, number)),
    ]
}

fn damaged(message: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    for damage in damages {
        match damage {
            Damage::Flip(at, by) if !bytes.is_empty() => {
                // Most of what decides is at the beginning.
                let at = at.index(bytes.len().min(200));
                bytes[at] ^= by;
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            Damage::Add(more) => bytes.extend(more),
            Damage::Number(at, number) if bytes.len() >= 4 => {
                let at = at.index((bytes.len() - 3).min(120));
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            _ => {}
        }
    }
    bytes
}

/// Every decoder refuses the bytes, or reads what is encoded as these bytes and no others.
fn decode_all(bytes: &[u8]) {
    macro_rules! decode {
        ($($message:ty),*) => {$(
            if let Ok(message) = <$message>::decode(bytes) {
                assert_eq!(message.encode(), bytes);
            }
        )*};
    }
    decode!(AdvertiseKeys, Neighbourhood, ShareKeys, Delivery, View, Agreement, UnmaskRequest, UnmaskResponse, Offer);
    if let Ok(message) = MaskedInput::decode(bytes) {
        assert!(bytes.ends_with(message.packed));
    }
}

#[test]
fn messages_decode_to_what_was_encoded_and_no_other_decoder_reads_them() {
    for (kind, message) in samples().iter().enumerate() {
        for decoder in 0..10 {
            assert_eq!(Recorded::decodes(decoder, message), decoder == kind, "{kind} read as {decoder}");
        }
    }
}

/// A vector has no length of its own in its message: the server knows it. Everything else ends where it says.
#[test]
fn what_is_cut_anywhere_is_refused() {
    for (kind, message) in samples().iter().enumerate().filter(|(kind, _)| *kind != 4) {
        for end in 0..message.len() {
            assert!(!Recorded::decodes(kind, &message[..end]), "{kind} cut at {end}");
        }
        assert!(!Recorded::decodes(kind, &[message, &[0][..]].concat()), "{kind} with a byte more");
    }
}

/// A short message that speaks of many neighbours makes nobody reserve room for them.
#[test]
fn a_count_beyond_every_round_is_refused() {
    let most = 1 << 20;
    let mut message = [1, Kind::Delivery as u8].to_vec();
    message.extend([0; 32]);
    for (count, read) in [(most, true), (most + 8, false)] {
        let mut message = [&message[..], &u32::to_le_bytes(count)].concat();
        message.resize(message.len() + count as usize / 8, 0);
        assert_eq!(Delivery::decode(&message).is_ok(), read, "{count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(kind in 0..11_u8, bytes in vec(any::<u8>(), 0..300)) {
        decode_all(&bytes);
        decode_all(&[&[1, kind][..], &bytes].concat());
    }

    #[test]
    fn damaged_messages_are_read_or_refused(which in 0..10_usize, damages in vec(damage(), 1..4)) {
        decode_all(&damaged(&samples()[which], &damages));
    }
}

/// What a server says to a client.
#[derive(Debug, Clone)]
enum Word {
    /// What it would say, or what anybody said.
    Recorded(usize),
    Damaged(usize, Vec<Damage>),
    /// Somebody else's shares, or nobody's.
    Delivery([Option<usize>; 4]),
    /// Anybody dead.
    View(Vec<bool>),
    /// Any alive set, of this session or another, with the vouchers that there are.
    Request(Vec<bool>, bool),
    /// Not a word: the device masks its input.
    Mask,
    Noise(Vec<u8>),
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        4 => (0..9_usize).prop_map(Word::Recorded),
        2 => (0..9_usize, vec(damage(), 1..3)).prop_map(|(which, damages)| Word::Damaged(which, damages)),
        1 => prop::array::uniform4(prop::option::weighted(0.9, 0..4_usize)).prop_map(Word::Delivery),
        6 => (prop_oneof![4 => vec(prop::bool::weighted(0.8), 4), 1 => vec(any::<bool>(), 0..9)], prop::bool::weighted(0.95))
            .prop_map(|(alive, ours)| Word::Request(alive, ours)),
        3 => vec(prop::bool::weighted(0.8), 5).prop_map(Word::View),
        3 => Just(Word::Mask),
        1 => vec(any::<u8>(), 0..60).prop_map(Word::Noise),
    ]
}

fn bytes_of(recorded: &Recorded, word: &Word) -> Vec<u8> {
    let session = recorded.delivery().session;
    match word {
        Word::Recorded(which) => recorded.messages[*which].clone(),
        Word::Damaged(which, damages) => damaged(&recorded.messages[*which], damages),
        Word::Delivery(from) => {
            let sealed = recorded.delivery().sealed;
            Delivery { session, sealed: from.map(|slot| slot.and_then(|s| sealed[s])).to_vec() }.encode()
        }
        Word::View(alive) => View { session, alive: Bits::new(alive.clone()), ..RECORDED.view() }.encode(),
        Word::Request(alive, ours) => {
            let session = if *ours { session } else { SessionId([3; 32]) };
            UnmaskRequest { session, alive: Bits::new(alive.clone()), ..recorded.request() }.encode()
        }
        Word::Mask => Vec::new(),
        Word::Noise(bytes) => bytes.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The one thing that a client must never do.
    #[test]
    fn nobody_ever_gets_both_shares_of_a_neighbour(
        trusted in any::<bool>(), begins in 0..5_usize, words in vec(word(), 1..12),
    ) {
        let recorded: &Recorded = if trusted { &TRUSTED } else { &RECORDED };
        // Who takes the server at its word waits for no view.
        let begins = if trusted && begins == 3 { 4 } else { begins };
        let mut device = recorded.device(STATES[begins]);
        let (mut responses, mut seeds, mut keys) = (0, [0; 4], [0; 4]);
        for word in &words {
            let answer = match word {
                Word::Mask => device.client.mask(&input(&recorded.terms, 2)).ok(),
                word => device.receive(&bytes_of(recorded, word)).ok().flatten(),
            };
            let Some(response) = answer.and_then(|a| UnmaskResponse::decode(&a).ok()) else { continue };
            responses += 1;
            prop_assert_eq!(response.opened.len(), 4);
            for (slot, opened) in response.opened.iter().enumerate() {
                seeds[slot] += usize::from(matches!(opened, Opened::SelfSeed(_)));
                keys[slot] += usize::from(matches!(opened, Opened::MaskKey(_)));
            }
        }
        prop_assert!(responses <= 1);
        prop_assert!((0..4).all(|slot| seeds[slot] + keys[slot] <= 1), "{:?} {:?}", seeds, keys);
    }
}

/// A round of five for damaged messages: those of clients 0 and 1 arrive damaged, and then as they are.
fn round_with(damages: &[Vec<Damage>; 5]) {
    let terms = terms(5, Adversary::SemiMalicious);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(3)).unwrap();
    // What is refused changes nothing; what is taken for the client's word, damage and all, was its word.
    for id in [90, 91].map(ClientId) {
        let _ = server.receive(id, &damaged(&RECORDED.messages[0], &damages[0]), &Everybody);
    }
    assert_eq!(server.arrived(), 0, "the offer is another");
    let mut devices = advertise(&mut server, 0..5, 3);
    let mut server = server.close(Connect::Insecure { degree: 4, threshold: 2 }).unwrap();
    let mut taken = 0;
    let mut noisy = |id: ClientId, damages: &[Damage], message: &[u8], receive: &mut dyn FnMut(&[u8]) -> bool| {
        let hurt = damaged(message, damages);
        let took = id.0 < 2 && receive(&hurt);
        taken += usize::from(took && hurt != message);
        took || receive(message)
    };
    devices.retain(|id, device| {
        let shares = device.receive(&server.neighbourhood(*id).unwrap()).unwrap().unwrap();
        noisy(*id, &damages[1], &shares, &mut |m| server.receive(*id, m).is_ok())
    });
    let mut server = server.close().unwrap();
    devices.retain(|id, device| {
        device.receive(&server.delivery(*id).unwrap()).unwrap();
        let masked = device.client.mask(&input(&terms, id.0)).unwrap();
        noisy(*id, &damages[2], &masked, &mut |m| server.receive(*id, m).is_ok())
    });
    let Ok(mut server) = server.close() else { return };
    devices.retain(|id, device| {
        let vouchers = device.receive(&server.view(*id).unwrap()).unwrap().unwrap();
        noisy(*id, &damages[3], &vouchers, &mut |m| server.receive(*id, m).is_ok())
    });
    let mut server = server.close().unwrap();
    devices.retain(|id, device| {
        // Who gets too few vouchers, since those of two were damaged, says nothing.
        let Ok(Some(shares)) = device.receive(&server.request(*id).unwrap()) else { return false };
        noisy(*id, &damages[4], &shares, &mut |m| server.receive(*id, m).is_ok())
    });
    let outcome = server.close(&Serial);
    if taken == 0 {
        assert_eq!(outcome.unwrap().sum, plain_sum(&terms, 0..5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_server_takes_or_refuses_anything(damages in prop::array::uniform5(vec(damage(), 1..4))) {
        round_with(&damages);
    }
}

/// The test above would not notice a server that takes nothing.
#[test]
fn what_is_not_damaged_is_taken() {
    round_with(&[const { Vec::new() }; 5]);
}
