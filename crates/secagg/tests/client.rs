//! A client among liars: whatever the server says, it goes on as it should, complains, or leaves.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use keyhush_secagg::{
    ClientId,
    client::{Client, ClientError},
    directory::{Everybody, Member},
    entropy::{Entropy, NoRandomness, OsEntropy, SimulatedEntropy},
    message::{
        AdvertiseKeys, Delivery, Kind, MaskedInput, Neighbourhood, Opened, ShareKeys, UnmaskRequest, UnmaskResponse,
    },
    parameters::{Adversary, Floor, ParameterError, Parameters},
    session::{Inputs, SessionId, Terms},
    wire::{Bits, WireError},
};
use story::{
    Device,
    hostile::{self, Puppet},
    input,
    recorded::{ME, Recorded, SEED, STATES, finish, name},
    terms,
};

#[test]
fn a_message_that_no_state_waits_for_changes_nothing() {
    let recorded = Recorded::new();
    let whole = finish(&recorded, &mut recorded.device(STATES[0]));
    for (state, waits_for) in STATES.iter().zip([Some(2), Some(4), None, Some(6), Some(8), None]) {
        for (kind, message) in (1..).zip(&recorded.messages) {
            let mut device = recorded.device(state);
            if waits_for != Some(kind) {
                let refused = device.receive(message).unwrap_err();
                let elsewhere = matches!(refused, ClientError::Wire(WireError::Kind { .. }) | ClientError::Over(_));
                assert!(elsewhere, "{state}, {kind}: {refused}");
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

#[test]
fn whoever_has_left_does_not_come_back() {
    let recorded = Recorded::new();
    for (state, kind) in [(0, Kind::Neighbourhood), (1, Kind::Delivery), (3, Kind::View), (4, Kind::UnmaskRequest)] {
        let mut device = recorded.device(STATES[state]);
        let message = recorded.message(kind);
        assert!(device.receive(&message[..message.len() - 1]).is_err());
        assert_eq!(name(&device.client), "Aborted");
        for message in &recorded.messages {
            assert_eq!(device.receive(message), Err(ClientError::Over("aborted")));
        }
        assert!(device.client.mask(&input(&recorded.terms, 2)).is_err());
    }
}

/// What a client says to a neighbourhood that a server changed.
fn told(recorded: &Recorded, change: impl FnOnce(&mut Neighbourhood)) -> Result<ShareKeys, ClientError> {
    let mut message = recorded.neighbourhood();
    change(&mut message);
    let answer = recorded.device("AwaitNeighbourhood").receive(&message.encode());
    answer.map(|shares| ShareKeys::decode(&shares.unwrap()).unwrap())
}

#[test]
fn a_neighbourhood_that_is_not_the_directorys_is_refused() {
    let recorded = Recorded::new();
    let refused = |change: fn(&mut Neighbourhood)| told(&recorded, change).unwrap_err();
    assert_eq!(refused(|m| m.neighbours.truncate(3)), ClientError::Count { expected: 4, got: 3 });
    assert_eq!(refused(|m| m.neighbours.push(m.neighbours[0].clone())), ClientError::Count { expected: 4, got: 5 });
    assert_eq!(refused(|m| m.coin.0[0] ^= 1), ClientError::Coin);
    for not_listed in [
        |m: &mut Neighbourhood| m.position = 1,
        |m: &mut Neighbourhood| m.position = 5,
        |m: &mut Neighbourhood| m.position = u32::MAX,
        |m: &mut Neighbourhood| m.root[0] ^= 1,
        |m: &mut Neighbourhood| m.own_proof[0] ^= 1,
        |m: &mut Neighbourhood| m.own_proof.clear(),
        |m: &mut Neighbourhood| m.own_proof.truncate(33),
        |m: &mut Neighbourhood| m.parameters = Parameters::from_parts(4, 3, 3).unwrap(),
    ] {
        assert_eq!(refused(not_listed), ClientError::NotListed);
    }
    for stranger in [
        |m: &mut Neighbourhood| m.neighbours[1].member.keys.sealing[3] ^= 1,
        |m: &mut Neighbourhood| m.neighbours[1].member.keys.masking[3] ^= 1,
        |m: &mut Neighbourhood| m.neighbours[1].member.client.0 += 100,
        |m: &mut Neighbourhood| m.neighbours[1].member.evidence.push(1),
        |m: &mut Neighbourhood| m.neighbours[1].proof[0] ^= 1,
        |m: &mut Neighbourhood| m.neighbours[1] = m.neighbours[0].clone(),
        |m: &mut Neighbourhood| m.neighbours.swap(1, 2),
    ] {
        assert_eq!(refused(stranger), ClientError::Neighbour { slot: 1 });
    }
    let most = |m: &mut Neighbourhood| m.parameters = Parameters::from_parts(6, 4, 3).unwrap();
    assert_eq!(refused(most), ClientError::TooManyClients { got: 6, most: 5 });
}

/// Another threshold is another session, so that clients who were told different ones share no masks.
#[test]
fn a_threshold_for_one_client_alone_is_a_session_of_its_own() {
    let recorded = Recorded::new();
    let lower = |m: &mut Neighbourhood| m.parameters = Parameters::from_parts(5, 4, 2).unwrap();
    let shares = told(&recorded, lower).unwrap();
    assert_ne!(shares.session, ShareKeys::decode(recorded.message(Kind::ShareKeys)).unwrap().session);
}

/// A directory of a server's making around one client: what the client says to it.
fn surrounded(
    terms: Terms,
    floor: Floor,
    parameters: Parameters,
    members: impl FnOnce(Member) -> Vec<Member>,
) -> Result<(Client, ShareKeys), ClientError> {
    let mut entropy = SimulatedEntropy::from_seed(5);
    let (mut client, keys) = Client::begin(hostile::offer(terms), ClientId(0), floor, &Everybody, &mut entropy)?;
    let keys = AdvertiseKeys::decode(&keys).unwrap().keys;
    let members = members(Member { client: ClientId(0), keys, evidence: Vec::new() });
    let message = hostile::neighbourhood(parameters, &members, 0).encode();
    let shares = client.receive(&message, &Everybody, &mut entropy)?.unwrap();
    Ok((client, ShareKeys::decode(&shares).unwrap()))
}

fn puppets(ids: std::ops::Range<u64>) -> impl Iterator<Item = Member> {
    ids.map(|id| Puppet::new(id).member())
}

/// Among four puppets, the second of them changed.
fn with_a_puppet(change: impl FnOnce(&mut Member, &[Member])) -> Result<(Client, ShareKeys), ClientError> {
    let parameters = Parameters::from_parts(5, 4, 3).unwrap();
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
        |m: &mut Member, all: &[Member]| m.keys = all[1].keys,
        |m: &mut Member, all: &[Member]| m.keys.sealing = all[1].keys.masking,
        |m: &mut Member, _: &[Member]| m.keys.sealing = m.keys.masking,
        |m: &mut Member, _: &[Member]| m.keys.sealing = [0; 32],
    ] {
        assert_eq!(refused(twice), ClientError::Key { slot: 1 });
    }
    assert_eq!(refused(|m, all| m.client = all[1].client), ClientError::Neighbour { slot: 1 });
    assert_eq!(refused(|m, all| m.client = all[0].client), ClientError::Neighbour { slot: 1 });
}

/// A key for masks is used when shares are delivered. One of low order would make a mask that everybody knows.
#[test]
fn no_mask_is_made_with_a_weak_key() {
    for weak in [[0; 32], [[1].as_slice(), &[0; 31]].concat().try_into().unwrap()] {
        let (mut client, shares) = with_a_puppet(|m, _| m.keys.masking = weak).unwrap();
        let delivery = Delivery { session: shares.session, sealed: vec![Some([0; _]); 4] };
        let refused = client.receive(&delivery.encode(), &Everybody, &mut OsEntropy).unwrap_err();
        assert_eq!(refused, ClientError::Key { slot: 1 });
    }
}

#[test]
fn parameters_below_the_floor_are_refused_whatever_the_server_says() {
    let proposed = |clients, degree, threshold| {
        let terms = Terms { least_survivors: 100, ..terms(200, Adversary::Curious) };
        let parameters = Parameters::from_parts(clients, degree, threshold).unwrap();
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

#[test]
fn an_offer_below_the_floor_is_not_taken_up() {
    let adversary = Adversary::Curious;
    let floor = Floor { clients: 50, survivors: 45, corrupted: 0.2, dropout: 0.1, security_bits: 40, adversary };
    let good = Terms { least_survivors: 45, ..terms(50, adversary) };
    let begin = |terms, floor| {
        let mut entropy = SimulatedEntropy::from_seed(1);
        Client::begin(hostile::offer(terms), ClientId(1), floor, &Everybody, &mut entropy).map(|_| ())
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
    assert_eq!(assuming(|t| t.assumptions.security_bits = 39), ClientError::BelowFloor("security_bits"));
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
    assert_eq!(refused(|m| m.session.0[0] ^= 1), ClientError::OtherSession);
    assert_eq!(refused(|m| m.sealed.truncate(3)), ClientError::Count { expected: 4, got: 3 });
    assert_eq!(refused(|m| m.sealed.push(None)), ClientError::Count { expected: 4, got: 5 });
    assert_eq!(refused(|m| m.sealed[..2].fill(None)), ClientError::TooFew { got: 2, needed: 3 });
}

/// Delivers, masks and opens as recorded: about whom a client complains, and what it opens of each.
fn complaints(recorded: &Recorded, delivery: &Delivery) -> (Vec<bool>, UnmaskResponse) {
    let mut device = recorded.device("AwaitDelivery");
    assert_eq!(device.receive(&delivery.encode()), Ok(None));
    let masked = device.client.mask(&input(&recorded.terms, 2)).unwrap();
    let complaints = MaskedInput::decode(&masked).unwrap().complaints.iter().collect();
    device.receive(recorded.message(Kind::View)).unwrap();
    let answer = device.receive(recorded.message(Kind::UnmaskRequest)).unwrap().unwrap();
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

/// What a client says to a view that a server changed.
fn shown(recorded: &Recorded, change: impl FnOnce(&mut Vec<bool>, &mut Vec<bool>)) -> Result<(), ClientError> {
    let mut view = recorded.view();
    let (mut present, mut alive) = (view.present.iter().collect(), view.alive.iter().collect());
    change(&mut present, &mut alive);
    (view.present, view.alive) = (Bits::new(present), Bits::new(alive));
    let mut device = recorded.device("AwaitView");
    let answer = device.receive(&view.encode());
    assert_eq!(name(&device.client), if answer.is_ok() { "AwaitUnmask" } else { "Aborted" });
    answer.map(|_| ())
}

#[test]
fn a_view_that_contradicts_what_a_client_knows_is_refused() {
    let recorded = Recorded::new();
    assert_eq!(recorded.view().alive.iter().collect::<Vec<_>>(), [true, false, true, true, true], "client 1 vanished");
    assert_eq!(shown(&recorded, |_, _| ()), Ok(()));
    assert_eq!(shown(&recorded, |_, alive| alive[1] = true), Ok(()));
    let refused = |change: fn(&mut Vec<bool>, &mut Vec<bool>)| shown(&recorded, change).unwrap_err();
    assert!(matches!(refused(|present, _| present.truncate(4)), ClientError::View(_)));
    assert!(matches!(refused(|_, alive| alive.push(true)), ClientError::View(_)));
    assert!(matches!(refused(|present, alive| (present[0], alive[0]) = (false, true)), ClientError::View(_)));
    assert!(matches!(refused(|_, alive| alive[2] = false), ClientError::View(_)), "it is alive itself");
    let hidden = refused(|present, alive| (present[3], alive[3]) = (false, false));
    assert_eq!(hidden, ClientError::OtherView { slot: 2 }, "who shared, shared");
    let few = refused(|_, alive| alive[3] = false);
    assert_eq!(few, ClientError::TooFew { got: 2, needed: 3 });
    let mut other = recorded.view();
    other.session.0[0] ^= 1;
    assert_eq!(recorded.device("AwaitView").receive(&other.encode()), Err(ClientError::OtherSession));
}

#[test]
fn below_the_offers_least_no_view_is_agreed_to() {
    // Client 2 knows that the offer said 4 at least, and is shown 3 besides those who vanished.
    let recorded = Recorded::with(Terms { least_survivors: 4, ..terms(5, Adversary::SemiMalicious) }, 2);
    let few = |_: &mut Vec<bool>, alive: &mut Vec<bool>| alive[3] = false;
    assert_eq!(shown(&recorded, few), Err(ClientError::TooFew { got: 3, needed: 4 }));
}

#[test]
fn a_request_of_another_neighbourhood_is_refused_and_opens_nothing() {
    let recorded = Recorded::new();
    let good = recorded.request();
    assert_eq!(good.alive.iter().collect::<Vec<_>>(), [true, false, true, true], "client 1 vanished");
    let refused = |change: fn(&mut UnmaskRequest)| {
        let mut request = good.clone();
        change(&mut request);
        let mut device = recorded.device("AwaitUnmask");
        let refused = device.receive(&request.encode()).unwrap_err();
        assert_eq!(device.receive(&good.encode()), Err(ClientError::Over("aborted")), "no second question");
        refused
    };
    assert_eq!(refused(|r| r.session = SessionId([0; 32])), ClientError::OtherSession);
    assert_eq!(refused(|r| r.alive = Bits::new(vec![true; 3])), ClientError::Count { expected: 4, got: 3 });
    assert_eq!(refused(|r| r.alive = Bits::new(vec![true; 5])), ClientError::Count { expected: 4, got: 5 });
    assert_eq!(refused(|r| r.alive = Bits::new(vec![true; 4])), ClientError::OtherView { slot: 1 });
    assert_eq!(refused(|r| r.alive = Bits::new(vec![false; 4])), ClientError::OtherView { slot: 0 });
    assert_eq!(refused(|r| r.vouchers.truncate(3)), ClientError::Count { expected: 4, got: 3 });
    assert_eq!(refused(|r| r.vouchers.clear()), ClientError::Count { expected: 4, got: 0 });
    let two = ClientError::NotAgreed { got: 2, needed: 3 };
    assert_eq!(refused(|r| r.vouchers[0] = None), two);
    assert_eq!(refused(|r| r.vouchers[0].as_mut().unwrap()[15] ^= 1), two);
    assert_eq!(refused(|r| r.vouchers[0] = r.vouchers[2]), two, "somebody else's voucher");
}

/// Client 1 vanished, and belongs to the server: with its keys anybody can make the voucher that it would have given. Who is
/// dead in the view vouches for nothing, or the server would need one honest neighbour less.
#[test]
fn a_dead_neighbours_true_voucher_does_not_count() {
    let recorded = Recorded::new();
    let (dead, position) = (ClientId(1), 1);
    let mut key = [0; 32];
    Device::entropy(SEED, dead).fill(&mut key).unwrap();
    let ours = AdvertiseKeys::decode(recorded.message(Kind::AdvertiseKeys)).unwrap().keys.sealing;
    let way = [position, recorded.neighbourhood().position];
    let good = recorded.request();
    let voucher = hostile::voucher(key, &ours, &good.session, way, &recorded.view());
    let asked = |change: &dyn Fn(&mut UnmaskRequest)| {
        let mut request = good.clone();
        change(&mut request);
        recorded.device("AwaitUnmask").receive(&request.encode()).map(|_| ())
    };
    let not_agreed = Err(ClientError::NotAgreed { got: 2, needed: 3 });
    assert_eq!(asked(&|r| r.vouchers[0] = None), not_agreed);
    assert_eq!(asked(&|r| (r.vouchers[0], r.vouchers[1]) = (None, Some(voucher))), not_agreed);
    // The same key vouches well for who is alive: it is the death that makes the difference.
    Device::entropy(SEED, ClientId(0)).fill(&mut key).unwrap();
    let living = hostile::voucher(key, &ours, &good.session, [0, way[1]], &recorded.view());
    assert_eq!(Some(living), good.vouchers[0]);
    assert_eq!(asked(&|r| r.vouchers[0] = Some(living)), Ok(()));
}

/// Where the server is taken at its word, it must still leave a threshold alive.
#[test]
fn a_client_that_trusts_the_servers_word_asks_for_a_threshold() {
    let recorded = Recorded::with(terms(5, Adversary::Curious), 3);
    for (alive, refused) in [
        ([true, true, false, false], Some(ClientError::TooFew { got: 2, needed: 3 })),
        ([false; 4], Some(ClientError::TooFew { got: 0, needed: 3 })),
        ([true, true, true, false], None),
    ] {
        let request = UnmaskRequest { alive: Bits::new(alive.to_vec()), ..recorded.request() };
        assert_eq!(recorded.device("AwaitUnmask").receive(&request.encode()).err(), refused);
    }
}

#[test]
fn nobody_rises_from_the_dead() {
    let recorded = Recorded::with(terms(5, Adversary::Curious), 3);
    let mut delivery = recorded.delivery();
    delivery.sealed[2] = None;
    let mut device = recorded.device("AwaitDelivery");
    device.receive(&delivery.encode()).unwrap();
    device.client.mask(&input(&recorded.terms, 2)).unwrap();
    let request = UnmaskRequest { alive: Bits::new(vec![true; 4]), ..recorded.request() };
    assert_eq!(device.receive(&request.encode()), Err(ClientError::Risen { slot: 2 }));
}

#[test]
fn a_question_is_answered_once() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let recorded = Recorded::with(terms(5, adversary), 3);
        let mut device = recorded.device("AwaitUnmask");
        assert!(device.receive(&recorded.request().encode()).unwrap().is_some());
        let other = UnmaskRequest { alive: Bits::new(vec![true; 4]), ..recorded.request() };
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
    assert_eq!(device.receive(recorded.message(Kind::Neighbourhood)), Err(ClientError::NotListed));
}

/// Randomness that remembers what it gave.
struct Remembered(SimulatedEntropy, Vec<u8>);

impl Entropy for Remembered {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        self.0.fill(buffer)?;
        self.1.extend_from_slice(buffer);
        Ok(())
    }
}

#[test]
fn no_state_shows_its_secrets() {
    let recorded = Recorded::new();
    let mut entropy = Remembered(Device::entropy(SEED, ME), Vec::new());
    let (mut client, keys) = Client::begin(recorded.offer, ME, Floor::none(), &Everybody, &mut entropy).unwrap();
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
    shown.push(format!("{:?}", UnmaskResponse::decode(recorded.message(Kind::UnmaskResponse)).unwrap()));
    let response = UnmaskResponse::decode(recorded.message(Kind::UnmaskResponse)).unwrap();
    let opened = response.opened.iter().flat_map(|o| match o {
        Opened::Nothing => Vec::new(),
        Opened::SelfSeed(share) | Opened::MaskKey(share) => share.to_vec(),
    });
    let secrets: Vec<u8> = entropy.1.iter().copied().chain(opened).collect();
    assert_eq!(secrets.len(), 3 * 32 + 2 * 2 * 40 + 4 * 12 + 4 * 40, "keys, seed, coefficients, nonces, opened shares");
    for window in secrets.windows(4).filter(|w| w.iter().any(|b| *b != 0)) {
        let listed = window.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let hex: String = window.iter().map(|b| format!("{b:02x}")).collect();
        assert!(shown.iter().all(|text| !text.contains(&listed) && !text.contains(&hex)), "{listed}");
    }
}
