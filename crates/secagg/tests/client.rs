//! A client among liars: whatever the server says, it goes on as it should, complains, or leaves.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::story::{
    Device, Drawing,
    hostile::{self, Puppet, bad_signing_keys, pseudonym, puppets, sent, zero},
    input,
    recorded::{ME, Recorded, SEED, STATES, finish, name},
    terms,
};
use keyhush_secagg::{
    client::{Client, ClientError, Reply},
    directory::{Everybody, Member, Proof},
    entropy::{Entropy, NoRandomness, OsEntropy, SimulatedEntropy},
    message::{Delivery, Kind, MaskedInput, Neighbourhood, Opened, ShareKeys, Survivors, UnmaskResponse},
    parameters::{Adversary, Assumptions, Committee, Floor, ParameterError, Parameters},
    session::{Inputs, Terms},
    wire::{Bits, SUITE, VERSION, WireError},
};

/// The numbers of the messages that each state takes.
const TAKES: [&[u8]; 5] = [&[2], &[4], &[], &[6, 8], &[]];

#[test]
fn a_message_that_no_state_waits_for_changes_nothing() {
    let recorded = Recorded::new();
    let whole = finish(&recorded, &mut recorded.device(STATES[0]));
    for (state, takes) in STATES.iter().zip(TAKES) {
        for (kind, message) in (1..).zip(&recorded.messages) {
            let mut device = recorded.device(state);
            if *state == "Done" {
                assert_eq!(device.receive(message), Err(ClientError::Over("done")));
            } else if !takes.contains(&kind) {
                let Ok(Reply::Ignored(ClientError::NotNow(ignored))) = device.receive(message) else {
                    panic!("{state} takes {kind}");
                };
                assert_eq!(ignored as u8, kind);
            }
            if *state != "Ready" {
                assert!(matches!(device.client.mask(&[]), Err(ClientError::Over(_))), "{state}");
            }
            assert_eq!(name(&device.client), *state);
            assert!(whole.ends_with(&finish(&recorded, &mut device)));
            assert_eq!(name(&device.client), "Done");
        }
    }
}

/// Every message, with the bytes before its number changed, or its session: it is not for this client, whatever its state.
#[test]
fn what_is_of_another_protocol_or_session_changes_nothing() {
    let recorded = Recorded::new();
    let whole = finish(&recorded, &mut recorded.device(STATES[0]));
    let changed = |message: &[u8], at: usize, to: u8| {
        let mut message = message.to_vec();
        message[at] = to;
        message
    };
    for (state, takes) in STATES.iter().zip(TAKES).take(4) {
        let ignored = |message: &[u8]| {
            let mut device = recorded.device(state);
            let Ok(Reply::Ignored(why)) = device.receive(message) else { panic!("{state} takes it") };
            assert_eq!(name(&device.client), *state);
            assert!(whole.ends_with(&finish(&recorded, &mut device)));
            why
        };
        for (kind, message) in (1..).zip(&recorded.messages) {
            for got in [0, 1, 3, 255] {
                let refused = WireError::Version { got, ours: VERSION };
                assert_eq!(ignored(&changed(message, 0, got)), ClientError::Wire(refused));
            }
            for got in [0, 2, 255] {
                let refused = WireError::Suite { got, ours: SUITE };
                assert_eq!(ignored(&changed(message, 1, got)), ClientError::Wire(refused));
            }
            for number in [0, 10, 255] {
                assert!(matches!(ignored(&changed(message, 2, number)), ClientError::Wire(WireError::Value { .. })));
            }
            // A neighbourhood has no session yet.
            if takes.contains(&kind) && kind != 2 {
                assert_eq!(ignored(&changed(message, 3, message[3] ^ 1)), ClientError::OtherSession, "{state}, {kind}");
                assert_eq!(ignored(&changed(message, 34, message[34] ^ 1)), ClientError::OtherSession);
            }
        }
        for short in [&[][..], &[VERSION], &[VERSION, SUITE]] {
            assert_eq!(ignored(short), ClientError::Wire(WireError::Short));
        }
        assert!(matches!(ignored(b"neither here nor there"), ClientError::Wire(WireError::Version { .. })));
    }
}

#[test]
fn whoever_has_left_does_not_come_back() {
    let recorded = Recorded::new();
    for (state, kind) in [(0, Kind::Neighbourhood), (1, Kind::Delivery), (3, Kind::View), (3, Kind::UnmaskRequest)] {
        let mut device = recorded.device(STATES[state]);
        let message = recorded.message(kind);
        assert!(device.receive(&message[..message.len() - 1]).is_err());
        assert_eq!(name(&device.client), "Aborted");
        for message in recorded.messages.iter().map(Vec::as_slice).chain([&[][..]]) {
            assert_eq!(device.receive(message), Err(ClientError::Over("aborted")));
        }
        assert!(device.client.mask(&input(&recorded.terms, 2)).is_err());
    }
}

/// What a client says to a neighbourhood that a server changed.
fn told(recorded: &Recorded, change: impl FnOnce(&mut Neighbourhood)) -> Result<ShareKeys, ClientError> {
    let mut message = recorded.neighbourhood();
    change(&mut message);
    let mut device = recorded.device("AwaitNeighbourhood");
    let answer = device.answer(&message.encode());
    assert_eq!(name(&device.client), if answer.is_ok() { "AwaitDelivery" } else { "Aborted" });
    answer.map(|shares| ShareKeys::decode(&shares).unwrap())
}

/// Of five, of whom all sign.
fn five(threshold: u32, quorum: u32) -> Parameters {
    Parameters::from_parts(5, 4, threshold, Some(Committee { size: 5, quorum })).unwrap()
}

#[test]
fn a_neighbourhood_that_is_not_the_directorys_is_refused() {
    let recorded = Recorded::new();
    assert_eq!(recorded.neighbourhood().parameters, five(3, 4));
    let refused = |change: fn(&mut Neighbourhood)| told(&recorded, change).unwrap_err();
    assert_eq!(refused(|m| m.members.truncate(3)), ClientError::Count { expected: 4, got: 3 });
    assert_eq!(refused(|m| m.members.push(m.members[0].clone())), ClientError::Count { expected: 4, got: 5 });
    assert_eq!(refused(|m| m.coin.0[0] ^= 1), ClientError::Coin);
    // Of four clients there are three others, and of five nobody is the sixth.
    let four = |m: &mut Neighbourhood| {
        m.parameters = Parameters::from_parts(4, 3, 3, Some(Committee { size: 4, quorum: 3 })).unwrap();
    };
    assert_eq!(refused(four), ClientError::Count { expected: 3, got: 4 });
    assert_eq!(refused(|m| m.position = 5), ClientError::Count { expected: 5, got: 4 });
    for not_proved in [
        |m: &mut Neighbourhood| m.position = 1,
        |m: &mut Neighbourhood| {
            (m.position, m.members) = (5, [&m.members[..2], &m.members[1..]].concat());
        },
        |m: &mut Neighbourhood| {
            (m.position, m.members) = (u32::MAX, [&m.members[..2], &m.members[1..]].concat());
        },
        |m: &mut Neighbourhood| m.root[0] ^= 1,
        |m: &mut Neighbourhood| m.proof = Proof::Beside(vec![[0; 32]]),
        |m: &mut Neighbourhood| m.members[1].keys.sealing[3] ^= 1,
        |m: &mut Neighbourhood| m.members[1].keys.masking[3] ^= 1,
        |m: &mut Neighbourhood| m.members[1].keys.signing[3] ^= 1,
        |m: &mut Neighbourhood| m.members[1].pseudonym.0[15] ^= 64,
        |m: &mut Neighbourhood| m.members[1].evidence.push(1),
        |m: &mut Neighbourhood| m.members[1] = m.members[0].clone(),
        |m: &mut Neighbourhood| m.members.swap(1, 2),
    ] {
        assert_eq!(refused(not_proved), ClientError::NotProved);
    }
    let most = |m: &mut Neighbourhood| m.parameters = Parameters::from_parts(6, 4, 3, None).unwrap();
    assert_eq!(refused(most), ClientError::TooManyClients { got: 6, most: 5 });
    let nobody_signs = |m: &mut Neighbourhood| m.parameters = Parameters::from_parts(5, 4, 3, None).unwrap();
    assert_eq!(refused(nobody_signs), ClientError::Parameters(ParameterError::NoCommittee));
}

/// Another threshold or quorum is another session, so that clients who were told different ones share no masks.
#[test]
fn a_threshold_or_quorum_for_one_client_alone_is_a_session_of_its_own() {
    let recorded = Recorded::new();
    let ours = ShareKeys::decode(recorded.message(Kind::ShareKeys)).unwrap().session;
    assert_eq!(told(&recorded, |m| m.parameters = five(3, 4)).unwrap().session, ours);
    for other in [five(4, 4), five(3, 5)] {
        assert_ne!(told(&recorded, |m| m.parameters = other).unwrap().session, ours);
    }
}

/// A directory of a server's making around one client: what the client says to it.
fn surrounded(
    terms: Terms,
    floor: Floor,
    parameters: Parameters,
    members: impl FnOnce(Member) -> Vec<Member>,
) -> Result<(Client, ShareKeys), ClientError> {
    let offer = hostile::offer(terms);
    let (mut client, mut entropy, own) = zero(offer, floor, &Everybody)?;
    let message = hostile::neighbourhood(&offer, parameters, &members(own), 0).encode();
    let shares = sent(client.receive(&message, &Everybody, &mut entropy)?);
    Ok((client, ShareKeys::decode(&shares).unwrap()))
}

/// Among four puppets, the second of them changed.
fn with_a_puppet(change: impl FnOnce(&mut Member, &[Member])) -> Result<(Client, ShareKeys), ClientError> {
    let parameters = Parameters::from_parts(5, 4, 3, None).unwrap();
    surrounded(terms(5, Adversary::Curious), Floor::none(), parameters, |own| {
        let mut members: Vec<Member> = [own].into_iter().chain(puppets(1..5)).collect();
        let all = members.clone();
        change(&mut members[2], &all);
        members
    })
}

#[test]
fn keys_that_are_weak_or_used_twice_are_refused() {
    assert!(with_a_puppet(|_, _| ()).is_ok());
    let refused = |change: fn(&mut Member, &[Member])| with_a_puppet(change).map(|_| ()).unwrap_err();
    for twice in [
        |m: &mut Member, all: &[Member]| m.keys = all[0].keys,
        |m: &mut Member, all: &[Member]| m.keys.masking = all[0].keys.sealing,
        |m: &mut Member, all: &[Member]| m.keys.signing = all[0].keys.signing,
        |m: &mut Member, all: &[Member]| m.keys.sealing = all[0].keys.signing,
        |m: &mut Member, all: &[Member]| m.keys = all[1].keys,
        |m: &mut Member, all: &[Member]| m.keys.sealing = all[1].keys.masking,
        |m: &mut Member, all: &[Member]| m.keys.signing = all[1].keys.signing,
        |m: &mut Member, all: &[Member]| m.keys.masking = all[1].keys.signing,
        |m: &mut Member, _: &[Member]| m.keys.sealing = m.keys.masking,
        |m: &mut Member, _: &[Member]| m.keys.sealing = m.keys.signing,
        |m: &mut Member, _: &[Member]| m.keys.masking = m.keys.signing,
        |m: &mut Member, _: &[Member]| m.keys.sealing = [0; 32],
        |m: &mut Member, _: &[Member]| m.keys.signing = bad_signing_keys()[0],
        |m: &mut Member, _: &[Member]| m.keys.signing = bad_signing_keys()[1],
    ] {
        assert_eq!(refused(twice), ClientError::Key { slot: 1 });
    }
}

/// Positions are in the order of pseudonyms: nobody has two, and no server seats people as it likes.
#[test]
fn a_directory_that_is_out_of_order_is_refused() {
    let refused = |change: fn(&mut Member, &[Member])| with_a_puppet(change).map(|_| ()).unwrap_err();
    assert_eq!(refused(|m, all| m.pseudonym = all[0].pseudonym), ClientError::Order, "our own");
    assert_eq!(refused(|m, all| m.pseudonym = all[1].pseudonym), ClientError::Order, "the one before");
    assert_eq!(refused(|m, all| m.pseudonym = all[3].pseudonym), ClientError::Order, "the one after");
    assert_eq!(refused(|m, _| m.pseudonym = pseudonym(77)), ClientError::Order, "beyond them all");
    let swapped = |first: usize, second: usize| {
        let parameters = Parameters::from_parts(5, 4, 3, None).unwrap();
        surrounded(terms(5, Adversary::Curious), Floor::none(), parameters, |own| {
            let mut members: Vec<Member> = [own].into_iter().chain(puppets(1..5)).collect();
            let pseudonyms = [members[first].pseudonym, members[second].pseudonym];
            [members[second].pseudonym, members[first].pseudonym] = pseudonyms;
            members
        })
    };
    assert!(swapped(1, 1).is_ok());
    assert_eq!(swapped(1, 2).map(|_| ()), Err(ClientError::Order));
    assert_eq!(swapped(3, 4).map(|_| ()), Err(ClientError::Order));
}

/// A key for masks of low order would make a mask that everybody knows: whoever has one is not even shared with.
#[test]
fn no_mask_is_made_with_a_weak_key() {
    for weak in [[0; 32], [[1].as_slice(), &[0; 31]].concat().try_into().unwrap()] {
        let refused = with_a_puppet(|m, _| m.keys.masking = weak).map(|_| ());
        assert_eq!(refused, Err(ClientError::Key { slot: 1 }));
    }
}

#[test]
fn parameters_below_the_floor_are_refused_whatever_the_server_says() {
    let proposed = |clients, degree, threshold| {
        let terms = Terms { least_survivors: 100, ..terms(200, Adversary::Curious) };
        let parameters = Parameters::from_parts(clients, degree, threshold, None).unwrap();
        let members = |own| [own].into_iter().chain(puppets(1..clients.into())).collect();
        match surrounded(terms, Floor::default(), parameters, members) {
            Err(ClientError::Parameters(refused)) => Err(refused),
            other => Ok(other.unwrap()),
        }
    };
    assert!(matches!(proposed(3, 2, 2), Err(ParameterError::FewClients { clients: 3, floor: 100 })));
    assert!(matches!(proposed(99, 98, 90), Err(ParameterError::FewClients { .. })));
    assert!(matches!(proposed(120, 2, 2), Err(ParameterError::Disconnected { .. })));
    assert!(matches!(proposed(120, 40, 2), Err(ParameterError::Exposed { .. })));
    let found = Parameters::find(120, &terms(120, Adversary::Curious).assumptions).unwrap();
    assert!(proposed(120, found.degree(), found.threshold()).is_ok());
}

/// A device that asks for nothing holds the server to what the offer says.
#[test]
fn parameters_below_the_servers_own_words_are_refused() {
    let proposed = |adversary, parameters: Parameters| {
        let members = |own| [own].into_iter().chain(puppets(1..parameters.clients().into())).collect();
        surrounded(terms(60, adversary), Floor::none(), parameters, members).map(|_| ())
    };
    let found = |corrupted, adversary| Parameters::find(60, &Assumptions::new(0.1, corrupted, adversary)).unwrap();
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        assert_eq!(proposed(adversary, found(0.2, adversary)), Ok(()));
        let Err(ClientError::Parameters(weaker)) = proposed(adversary, found(0.1, adversary)) else { panic!() };
        let below = matches!(weaker, ParameterError::Exposed { .. } | ParameterError::Disconnected { .. });
        assert!(below, "{adversary}: {weaker}");
    }
    let semi = found(0.2, Adversary::SemiMalicious);
    let with = |committee| Parameters::from_parts(60, semi.degree(), semi.threshold(), committee).unwrap();
    let proposed = |committee| proposed(Adversary::SemiMalicious, with(committee));
    let Committee { size, quorum } = semi.committee().unwrap();
    assert_eq!((size, quorum), (60, 37));
    assert_eq!(proposed(None), Err(ClientError::Parameters(ParameterError::NoCommittee)));
    for (size, quorum) in [(60, 36), (10, 10), (59, 35)] {
        let refused = proposed(Some(Committee { size, quorum }));
        assert!(matches!(refused, Err(ClientError::Parameters(ParameterError::TwoViews { .. }))), "{size}, {quorum}");
    }
}

#[test]
fn an_offer_below_the_floor_is_not_taken_up() {
    let adversary = Adversary::Curious;
    let floor = Floor { clients: 50, survivors: 45, corrupted: 0.2, dropout: 0.1, security_bits: 40, adversary };
    let good = Terms { least_survivors: 45, ..terms(50, adversary) };
    let begin = |terms, floor| {
        let mut entropy = SimulatedEntropy::from_seed(1);
        Client::begin(hostile::offer(terms), floor, &Everybody, &mut entropy).map(|_| ())
    };
    assert_eq!(begin(good, floor), Ok(()));
    let stricter = Floor { adversary: Adversary::SemiMalicious, ..floor };
    assert_eq!(begin(good, stricter), Err(ClientError::BelowFloor("adversary")));
    let semi_malicious = Terms { least_survivors: 45, ..terms(50, Adversary::SemiMalicious) };
    assert_eq!(begin(semi_malicious, stricter), Ok(()));
    let assuming = |change: fn(&mut Terms)| {
        let mut terms = good;
        change(&mut terms);
        begin(terms, floor).unwrap_err()
    };
    assert_eq!(assuming(|t| t.assumptions.corrupted = 0.19), ClientError::BelowFloor("corrupted"));
    assert_eq!(assuming(|t| t.assumptions.dropout = 0.09), ClientError::BelowFloor("dropout"));
    assert_eq!(assuming(|t| t.assumptions.security_bits = 39), ClientError::BelowFloor("security_bits"));
    let no_number = Floor { corrupted: f64::NAN, ..floor };
    assert!(matches!(begin(good, no_number), Err(ClientError::Parameters(_))), "a floor that is no number is no floor");
    assert_eq!(assuming(|t| t.most_clients = 49), ClientError::BelowFloor("most_clients"));
    assert_eq!(assuming(|t| t.least_survivors = 44), ClientError::BelowFloor("least_survivors"));
    for (what, change) in [
        ("bits", (|t| t.inputs = Inputs::Bounded { largest: (1 << 20) / 50 + 1 }) as fn(&mut Terms)),
        ("bits", |t| t.bits = 0),
        ("bits", |t| t.bits = 33),
        ("dimension", |t| t.dimension = 0),
        ("dimension", |t| t.dimension = u32::MAX),
        ("least_survivors", |t| t.least_survivors = 1),
        ("least_survivors", |t| t.least_survivors = 51),
        ("assumptions", |t| t.assumptions.corrupted = f64::NAN),
        ("assumptions", |t| t.assumptions.dropout = -0.0 - f64::MIN_POSITIVE),
        ("assumptions", |t| t.assumptions.security_bits = u32::MAX),
        ("most_evidence", |t| t.most_evidence = (1 << 16) + 1),
    ] {
        assert!(matches!(assuming(change), ClientError::Terms(e) if e.field == what), "{what}");
    }
}

#[test]
fn a_delivery_of_another_neighbourhood_is_refused() {
    let recorded = Recorded::new();
    let refused = |change: fn(&mut Delivery)| {
        let mut message = recorded.delivery();
        change(&mut message);
        recorded.device("AwaitDelivery").receive(&message.encode()).unwrap_err()
    };
    assert_eq!(refused(|m| m.sealed.truncate(3)), ClientError::Count { expected: 4, got: 3 });
    assert_eq!(refused(|m| m.sealed.push(None)), ClientError::Count { expected: 4, got: 5 });
    assert_eq!(refused(|m| m.sealed[..2].fill(None)), ClientError::TooFew { got: 2, needed: 3 });
}

/// Delivers, masks and opens as recorded: about whom a client complains, and what it opens of each.
fn complaints(recorded: &Recorded, delivery: &Delivery) -> (Vec<bool>, UnmaskResponse) {
    let mut device = recorded.device("AwaitDelivery");
    assert_eq!(device.receive(&delivery.encode()), Ok(Reply::Ready));
    let masked = device.client.mask(&input(&recorded.terms, 2)).unwrap();
    let complaints = MaskedInput::decode(&masked).unwrap().complaints.iter().collect();
    let answer = device.answer(recorded.message(Kind::UnmaskRequest)).unwrap();
    (complaints, UnmaskResponse::decode(&answer).unwrap())
}

#[test]
fn what_does_not_open_is_complained_about_and_no_reason_to_leave() {
    let recorded = Recorded::new();
    for byte in [0, 11, 12, 50, 107] {
        let mut delivery = recorded.delivery();
        delivery.sealed[1].as_mut().unwrap()[byte] ^= 1;
        let (complained, response) = complaints(&recorded, &delivery);
        assert_eq!(complained, [false, true, false, false]);
        assert!(response.opened[1] == Opened::Nothing && matches!(response.opened[0], Opened::SelfSeed(_)));
    }
    // What one neighbour sealed, delivered as another's.
    let mut delivery = recorded.delivery();
    delivery.sealed.swap(0, 3);
    assert_eq!(complaints(&recorded, &delivery).0, [true, false, false, true]);
    // What this client sealed for a neighbour, sent back as the neighbour's.
    let mut delivery = recorded.delivery();
    delivery.sealed[0] = Some(ShareKeys::decode(recorded.message(Kind::ShareKeys)).unwrap().sealed[0]);
    assert_eq!(complaints(&recorded, &delivery).0, [true, false, false, false]);
}

/// A neighbour that seals well what is not two shares.
#[test]
fn what_opens_and_is_no_share_is_complained_about() {
    let mut own = None;
    let (mut client, shares) = with_a_puppet(|_, all| own = Some(all[0].keys)).unwrap();
    let good = [1; 80];
    let mut outside = good;
    outside[..8].copy_from_slice(&((1u64 << 61) - 1).to_le_bytes());
    let mut outside_too = good;
    outside_too[40..48].fill(0xff);
    let plains = [good, outside, outside_too, good];
    let sealed = |(from, plain): (u32, &[u8; 80])| {
        Some(Puppet::new(from.into()).seal(&shares.session, [from, 0], &own.unwrap().sealing, plain))
    };
    let delivery = Delivery { session: shares.session, sealed: (1..).zip(&plains).map(sealed).collect() };
    client.receive(&delivery.encode(), &Everybody, &mut OsEntropy).unwrap();
    let masked = client.mask(&input(&terms(5, Adversary::Curious), 0)).unwrap();
    let complaints: Vec<bool> = MaskedInput::decode(&masked).unwrap().complaints.iter().collect();
    assert_eq!(complaints, [false, true, true, false]);
}

#[test]
fn an_input_that_does_not_fit_the_offer_is_never_masked() {
    let recorded = Recorded::new();
    let Inputs::Bounded { largest } = recorded.terms.inputs else { unreachable!() };
    for (input, refused) in [
        (vec![0; 99], ClientError::Length { expected: 100, got: 99 }),
        (vec![0; 101], ClientError::Length { expected: 100, got: 101 }),
        (vec![largest + 1; 100], ClientError::Range { got: largest + 1, most: largest }),
    ] {
        let mut device = recorded.device("Ready");
        assert_eq!(device.client.mask(&input), Err(refused));
        assert_eq!(name(&device.client), "Aborted");
    }
    assert!(recorded.device("Ready").client.mask(&[largest; 100]).is_ok());
}

#[test]
fn nobody_rises_from_the_dead() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let recorded = Recorded::with(terms(5, adversary), 3);
        let mut delivery = recorded.delivery();
        delivery.sealed[2] = None;
        let mut device = recorded.device("AwaitDelivery");
        device.receive(&delivery.encode()).unwrap();
        device.client.mask(&input(&recorded.terms, 2)).unwrap();
        let mut request = recorded.request();
        let risen = match &mut request.survivors {
            Survivors::Said(alive) => {
                *alive = Bits::new(vec![true; 4]);
                ClientError::Risen { slot: 2 }
            }
            Survivors::Agreed { .. } => ClientError::OtherView { slot: 2 },
        };
        assert_eq!(device.receive(&request.encode()), Err(risen));
    }
}

#[test]
fn a_question_is_answered_once() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let recorded = Recorded::with(terms(5, adversary), 3);
        let mut device = recorded.device("AwaitUnmask");
        device.answer(&recorded.request().encode()).unwrap();
        let mut other = recorded.request();
        match &mut other.survivors {
            Survivors::Said(alive) => *alive = Bits::new(vec![true; 4]),
            Survivors::Agreed { view, .. } => view.alive = Bits::new(vec![true; 5]),
        }
        for again in [recorded.request(), other] {
            assert_eq!(device.receive(&again.encode()), Err(ClientError::Over("done")));
        }
    }
}

/// A device that crashed comes back with other keys, and has no part in what was.
#[test]
fn a_device_that_comes_back_is_somebody_else() {
    let recorded = Recorded::new();
    let (mut device, keys) = Device::begin(recorded.offer, ME, 1234);
    assert_ne!(keys, recorded.message(Kind::AdvertiseKeys));
    assert_eq!(device.receive(recorded.message(Kind::Neighbourhood)), Err(ClientError::NotProved));
}

/// Randomness that remembers what it gave, but for pseudonyms, which are no secret.
struct Remembered(Drawing, Vec<u8>);

impl Entropy for Remembered {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        self.0.fill(buffer)?;
        if buffer.len() != 16 {
            self.1.extend_from_slice(buffer);
        }
        Ok(())
    }
}

#[test]
fn no_state_shows_its_secrets() {
    let recorded = Recorded::new();
    let mut entropy = Remembered(Device::entropy(SEED, ME), Vec::new());
    let (mut client, keys) = Client::begin(recorded.offer, Floor::none(), &Everybody, &mut entropy).unwrap();
    assert_eq!(keys, recorded.message(Kind::AdvertiseKeys), "the same client");
    let mut shown = Vec::new();
    for kind in [Kind::Neighbourhood, Kind::Delivery, Kind::View, Kind::UnmaskRequest] {
        shown.push(format!("{client:?}"));
        if kind == Kind::View {
            client.mask(&input(&recorded.terms, 2)).unwrap();
            shown.push(format!("{client:?}"));
        }
        client.receive(recorded.message(kind), &Everybody, &mut entropy).unwrap();
    }
    assert_eq!((shown.len(), name(&client)), (5, "Done"));
    let response = UnmaskResponse::decode(recorded.message(Kind::UnmaskResponse)).unwrap();
    shown.push(format!("{response:?}"));
    let opened = response.opened.iter().flat_map(|o| match o {
        Opened::Nothing => Vec::new(),
        Opened::SelfSeed(share) | Opened::MaskKey(share) => share.to_vec(),
    });
    let secrets: Vec<u8> = entropy.1.iter().copied().chain(opened).collect();
    assert_eq!(secrets.len(), 4 * 32 + 2 * 2 * 40 + 4 * 12 + 4 * 40, "keys, seed, coefficients, nonces, opened shares");
    for window in secrets.windows(4).filter(|w| w.iter().any(|b| *b != 0)) {
        let listed = window.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let hex: String = window.iter().map(|b| format!("{b:02x}")).collect();
        assert!(shown.iter().all(|text| !text.contains(&listed) && !text.contains(&hex)), "{listed}");
    }
}
