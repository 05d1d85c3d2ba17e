//! Bytes from anywhere: decoders and states read them or refuse them, and what is read has one encoding. And whatever a server
//! says in whatever order, no client opens both shares of a neighbour.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeSet, sync::LazyLock};

use crate::story::{
    Device, advertise, hostile, input, plain_sum,
    recorded::{Recorded, SEED, STATES, name},
    terms,
};
use keyhush_secagg::{
    ClientId,
    client::Reply,
    directory::Everybody,
    entropy::{Entropy, SimulatedEntropy},
    message::{
        AdvertiseKeys, Agreement, Delivery, Kind, MaskedInput, Neighbourhood, Opened, ShareKeys, Survivors,
        UnmaskRequest, UnmaskResponse, View,
    },
    parameters::Adversary,
    server::{CollectKeys, Connect, Serial},
    session::{Offer, SessionId},
    wire::{Bits, SUITE, VERSION, WireError},
};
use proptest::{collection::vec, prelude::*, sample::Index};

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
                assert_eq!(message.encode()[..], *bytes);
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

/// What an older or a newer version says, or other algorithms, is refused by every decoder, and told from nonsense.
#[test]
fn other_versions_and_suites_are_refused() {
    macro_rules! refusals {
        ($bytes:expr, $($message:ty),*) => {[$(<$message>::decode($bytes).map(|_| ()).unwrap_err()),*]};
    }
    for message in samples() {
        for (at, values) in [(0, [0, 1, 3, 255]), (1, [0, 2, 3, 255])] {
            for got in values {
                let mut other = message.clone();
                other[at] = got;
                let refusals = refusals!(
                    &other,
                    AdvertiseKeys,
                    Neighbourhood,
                    ShareKeys,
                    Delivery,
                    MaskedInput<'_>,
                    View,
                    Agreement,
                    UnmaskRequest,
                    UnmaskResponse,
                    Offer
                );
                let expected = match at {
                    0 => WireError::Version { got, ours: VERSION },
                    _ => WireError::Suite { got, ours: SUITE },
                };
                assert!(refusals.iter().all(|refused| *refused == expected), "{refusals:?}");
            }
        }
    }
    assert_eq!((VERSION, SUITE), (2, 1));
}

/// A request says in one byte how survivors are known: as the server says, or as a view that was signed.
#[test]
fn a_request_is_of_one_of_two_kinds() {
    let session = RECORDED.delivery().session;
    let bits = Bits::new(vec![true; 3]);
    let view = View { session, present: bits.clone(), alive: bits.clone() };
    for survivors in [Survivors::Said(bits), Survivors::Agreed { view, signatures: vec![None, Some([7; 64]), None] }] {
        let request = UnmaskRequest { session, survivors };
        let mut bytes = request.encode();
        assert_eq!(UnmaskRequest::decode(&bytes), Ok(request));
        bytes[35] ^= 1;
        assert!(UnmaskRequest::decode(&bytes).is_err(), "the one is not the other");
        bytes[35] = 2;
        assert!(matches!(UnmaskRequest::decode(&bytes), Err(WireError::Value { .. })));
    }
}

/// A short message that speaks of many neighbours makes nobody reserve room for them.
#[test]
fn a_count_beyond_every_round_is_refused() {
    let most = 1 << 20;
    let mut message = [VERSION, SUITE, Kind::Delivery as u8].to_vec();
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
        decode_all(&[&[VERSION, SUITE, kind][..], &bytes].concat());
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
    /// Any alive set of neighbours, of this session or another, on the server's word.
    Said(Vec<bool>, bool),
    /// Any alive set of everybody, signed by so many of the committee as the server has the keys of.
    Agreed(Vec<bool>, usize),
    /// Not a word: the device masks its input.
    Mask,
    Noise(Vec<u8>),
}

/// Who of so many is alive; now and then of another number.
fn alive(of: usize) -> impl Strategy<Value = Vec<bool>> {
    prop_oneof![4 => vec(prop::bool::weighted(0.8), of), 1 => vec(any::<bool>(), 0..9)]
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        4 => (0..9_usize).prop_map(Word::Recorded),
        2 => (0..9_usize, vec(damage(), 1..3)).prop_map(|(which, damages)| Word::Damaged(which, damages)),
        1 => prop::array::uniform4(prop::option::weighted(0.9, 0..4_usize)).prop_map(Word::Delivery),
        4 => (alive(4), prop::bool::weighted(0.95)).prop_map(|(alive, ours)| Word::Said(alive, ours)),
        4 => (alive(5), 0..6_usize).prop_map(|(alive, signers)| Word::Agreed(alive, signers)),
        3 => vec(prop::bool::weighted(0.8), 5).prop_map(Word::View),
        3 => Just(Word::Mask),
        1 => vec(any::<u8>(), 0..60).prop_map(Word::Noise),
    ]
}

/// What a device of the recorded round signs with: the third that it draws.
fn signing_secret(id: u64) -> [u8; 32] {
    let (mut entropy, mut secret) = (Device::entropy(SEED, ClientId(id)), [0; 32]);
    (0..3).for_each(|_| entropy.fill(&mut secret).unwrap());
    secret
}

fn bytes_of(recorded: &Recorded, word: &Word) -> Vec<u8> {
    let session = recorded.delivery().session;
    let view_of = |alive: &[bool]| View { session, alive: Bits::new(alive.to_vec()), ..RECORDED.view() };
    match word {
        Word::Recorded(which) => recorded.messages[*which].clone(),
        Word::Damaged(which, damages) => damaged(&recorded.messages[*which], damages),
        Word::Delivery(from) => {
            let sealed = recorded.delivery().sealed;
            Delivery { session, sealed: from.map(|slot| slot.and_then(|s| sealed[s])).to_vec() }.encode()
        }
        Word::View(alive) => view_of(alive).encode(),
        Word::Said(alive, ours) => {
            let session = if *ours { session } else { SessionId([3; 32]) };
            UnmaskRequest { session, survivors: Survivors::Said(Bits::new(alive.clone())) }.encode()
        }
        Word::Agreed(alive, signers) => {
            let view = view_of(alive);
            let sign = |id| (id < *signers as u64).then(|| hostile::signature(signing_secret(id), &view));
            let signatures = (0..5).map(sign).collect();
            UnmaskRequest { session, survivors: Survivors::Agreed { view, signatures } }.encode()
        }
        Word::Mask => Vec::new(),
        Word::Noise(bytes) => bytes.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The one thing that a client must never do. And what it signs is one view, whatever it is shown.
    #[test]
    fn nobody_ever_gets_both_shares_of_a_neighbour(
        trusted in any::<bool>(), begins in 0..4_usize, words in vec(word(), 1..12),
    ) {
        let recorded: &Recorded = if trusted { &TRUSTED } else { &RECORDED };
        let mut device = recorded.device(STATES[begins]);
        let (mut responses, mut seeds, mut keys) = (0, [0; 4], [0; 4]);
        let mut signed = BTreeSet::new();
        for word in &words {
            let answer = match word {
                Word::Mask => device.client.mask(&input(&recorded.terms, 2)).ok(),
                word => match device.receive(&bytes_of(recorded, word)) {
                    Ok(Reply::Send(bytes)) => Some(bytes.to_vec()),
                    Ok(Reply::Ready | Reply::Ignored(_)) => None,
                    Err(_) => {
                        prop_assert!(matches!(name(&device.client), "Aborted" | "Done"));
                        None
                    }
                },
            };
            signed.extend(answer.as_ref().filter(|a| Agreement::decode(a).is_ok()).cloned());
            let Some(response) = answer.and_then(|a| UnmaskResponse::decode(&a).ok()) else { continue };
            responses += 1;
            prop_assert_eq!(response.opened.len(), 4);
            for (slot, opened) in response.opened.iter().enumerate() {
                seeds[slot] += usize::from(matches!(opened, Opened::SelfSeed(_)));
                keys[slot] += usize::from(matches!(opened, Opened::MaskKey(_)));
            }
        }
        prop_assert!(responses <= 1);
        prop_assert!(signed.len() <= usize::from(!trusted));
        prop_assert!((0..4).all(|slot| seeds[slot] + keys[slot] <= 1), "{:?} {:?}", seeds, keys);
    }
}

/// The test above would not notice a client that opens nothing, or signs nothing.
#[test]
fn what_is_said_rightly_is_answered() {
    let all = vec![true; 5];
    for (recorded, word) in [
        (&*TRUSTED, Word::Said(vec![true; 4], true)),
        (&*RECORDED, Word::Agreed(all.clone(), 4)),
        (&*RECORDED, Word::Agreed(all.clone(), 5)),
    ] {
        let answer = recorded.device("AwaitUnmask").answer(&bytes_of(recorded, &word)).unwrap();
        assert_eq!(UnmaskResponse::decode(&answer).unwrap().opened.len(), 4);
    }
    let too_few = bytes_of(&RECORDED, &Word::Agreed(all.clone(), 3));
    assert!(RECORDED.device("AwaitUnmask").receive(&too_few).is_err());
    let signed = RECORDED.device("AwaitUnmask").answer(&bytes_of(&RECORDED, &Word::View(all))).unwrap();
    assert!(Agreement::decode(&signed).is_ok());
}

/// A round of ten for damaged messages: those of clients 0 and 1 arrive damaged, and then as they are. Of eight others seven
/// must sign.
fn round_with(damages: &[Vec<Damage>; 5]) {
    let terms = terms(10, Adversary::SemiMalicious);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(3)).unwrap();
    // What is refused changes nothing; what is taken for the client's word, damage and all, was its word.
    for id in [90, 91].map(ClientId) {
        let _ = server.receive(id, &damaged(&RECORDED.messages[0], &damages[0]), &Everybody);
    }
    assert_eq!(server.arrived(), 0, "the offer is another");
    let mut devices = advertise(&mut server, 0..10, 3);
    let mut server = server.close(Connect::Insecure { degree: 9, threshold: 6 }).unwrap();
    let mut taken = 0;
    let mut noisy = |id: ClientId, damages: &[Damage], message: &[u8], receive: &mut dyn FnMut(&[u8]) -> bool| {
        let hurt = damaged(message, damages);
        let took = id.0 < 2 && receive(&hurt);
        taken += usize::from(took && hurt != message);
        took || receive(message)
    };
    devices.retain(|id, device| {
        let shares = device.answer(&server.neighbourhood(*id).unwrap()).unwrap();
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
        let signature = device.answer(&server.view(*id).unwrap()).unwrap();
        let before = server.arrived();
        let took = noisy(*id, &damages[3], &signature, &mut |m| server.receive(*id, m).is_ok());
        assert_eq!(server.arrived(), before + 1, "no damaged signature holds, and the good one is taken");
        took
    });
    let mut server = server.close().unwrap();
    devices.retain(|id, device| {
        let shares = device.answer(&server.request(*id).unwrap()).unwrap();
        noisy(*id, &damages[4], &shares, &mut |m| server.receive(*id, m).is_ok())
    });
    let outcome = server.close(&Serial);
    if taken == 0 {
        assert_eq!(*outcome.unwrap().sum, plain_sum(&terms, 0..10));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

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
