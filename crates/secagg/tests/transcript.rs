//! Everything that is said in a round, to the byte; what sessions are bound to; and neighbours that show who they are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use keyhush_secagg::{
    ClientId,
    client::{Client, ClientError},
    directory::{Admission, Everybody, Member, statement},
    entropy::SimulatedEntropy,
    message::{AdvertiseKeys, ShareKeys},
    parameters::{Adversary, Floor, Parameters},
    server::{CollectKeys, Connect, Refusal, Serial},
    session::{Coin, Inputs, Offer, SessionId, Terms},
};
use story::{Device, advertise, agree, hostile, mask, plain_sum, share, terms, unmask};

const CONNECT: Connect = Connect::Insecure { degree: 4, threshold: 2 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The first bytes of the digest of what was said, under a name.
fn line(what: &str, message: &[u8]) -> String {
    format!("{what} {} {}", message.len(), &hex(&hostile::sha256(&[message]))[..16])
}

/// A round of seven on a ring, with a server that is not taken at its word. Client 6 does not share, client 5 sends no input.
fn transcript() -> String {
    let terms =
        Terms { dimension: 10, bits: 7, inputs: Inputs::Bounded { largest: 18 }, ..terms(7, Adversary::SemiMalicious) };
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(42)).unwrap();
    let mut said = vec![line("offer", &server.offer().encode())];
    said.extend((0..7).map(|id| line(&format!("{id} keys"), &Device::begin(*server.offer(), ClientId(id), 42).1)));
    let mut devices = advertise(&mut server, 0..7, 42);
    let mut server = server.close(CONNECT).unwrap();
    said.extend((0..7).map(|id| line(&format!("{id} neighbours"), &server.neighbourhood(ClientId(id)).unwrap())));
    share(&mut server, &mut devices, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} shares", id.0), &message));
        (id.0 != 6).then_some(message)
    });
    let mut server = server.close().unwrap();
    said.extend((0..6).map(|id| line(&format!("{id} delivery"), &server.delivery(ClientId(id)).unwrap())));
    mask(&mut server, &mut devices, &terms, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} input", id.0), &message));
        (id.0 != 5).then_some(message)
    });
    let mut server = server.close().unwrap();
    said.push(line("view", &server.view(ClientId(0)).unwrap()));
    agree(&mut server, &mut devices, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} vouchers", id.0), &message));
        Some(message)
    });
    let mut server = server.close().unwrap();
    said.extend((0..5).map(|id| line(&format!("{id} request"), &server.request(ClientId(id)).unwrap())));
    unmask(&mut server, &mut devices, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} opened", id.0), &message));
        Some(message)
    });
    let outcome = server.close(&Serial).unwrap();
    assert_eq!(outcome.sum, plain_sum(&terms, 0..5));
    said.push(format!("sum {:?}", outcome.sum));
    said.join("\n") + "\n"
}

/// A change of this file is a change of the protocol, and calls for another version.
#[test]
fn a_round_is_said_to_the_byte_as_it_always_was() {
    let golden = include_str!("../testdata/transcript.txt");
    let (_, golden) = golden.split_once('\n').unwrap(); // where it comes from
    let said = transcript();
    assert!(said == golden, "the round is now:\n{said}");
}

/// The session that a client finds itself in.
fn session(offer: Offer, connect: Parameters, members: u64) -> SessionId {
    let mut entropy = SimulatedEntropy::from_seed(9);
    let (mut client, keys) = Client::begin(offer, ClientId(0), Floor::none(), &Everybody, &mut entropy).unwrap();
    let keys = AdvertiseKeys::decode(&keys).unwrap().keys;
    let own = Member { client: ClientId(0), keys, evidence: Vec::new() };
    let puppet = |id| hostile::Puppet::new(id).member();
    let members: Vec<Member> = [own].into_iter().chain((members..members + 4).map(puppet)).collect();
    let message = hostile::neighbourhood(connect, &members, 0).encode();
    let shares = client.receive(&message, &Everybody, &mut entropy).unwrap().unwrap();
    ShareKeys::decode(&shares).unwrap().session
}

#[test]
fn another_task_model_round_parameter_attempt_or_directory_is_another_session() {
    let connect = |threshold| Parameters::from_parts(5, 4, threshold).unwrap();
    let inputs = Inputs::Bounded { largest: 2 };
    let offer = hostile::offer(Terms { inputs, ..terms(5, Adversary::Curious) });
    let changed = |change: fn(&mut Offer)| {
        let mut offer = offer;
        change(&mut offer);
        session(offer, connect(3), 1)
    };
    let sessions = [
        changed(|_| ()),
        session(offer, connect(2), 1),
        session(offer, connect(3), 2),
        changed(|o| o.nonce[31] ^= 1),
        changed(|o| o.terms.task[31] ^= 1),
        changed(|o| o.terms.model[31] ^= 1),
        changed(|o| o.terms.round += 1),
        changed(|o| o.terms.most_clients += 1),
        changed(|o| o.terms.least_survivors += 1),
        changed(|o| o.terms.dimension += 1),
        changed(|o| o.terms.bits += 1),
        changed(|o| o.terms.inputs = Inputs::Bounded { largest: 1 }),
        changed(|o| o.terms.inputs = Inputs::Noised),
        changed(|o| o.terms.assumptions.dropout += 0.01),
        changed(|o| o.terms.assumptions.corrupted += 0.01),
        changed(|o| o.terms.assumptions.security_bits += 1),
        changed(|o| o.terms.assumptions.failure_bits += 1),
        changed(|o| o.terms.assumptions.adversary = Adversary::SemiMalicious),
    ];
    for (i, one) in sessions.iter().enumerate() {
        assert!(sessions[..i].iter().all(|other| one != other), "{i}");
    }
    assert_eq!(sessions[0], changed(|_| ()), "and the same is the same");
    assert_ne!(Coin([0; 32]).commitment(), Coin([1; 32]).commitment());
}

/// Devices whose makers signed for them: each has a key, and knows everybody else's.
struct Signed(SigningKey);

fn signing_key(id: u64) -> SigningKey {
    SigningKey::from_bytes(&hostile::sha256(&[b"device", &id.to_le_bytes()]))
}

impl Admission for Signed {
    fn attest(&self, statement: &[u8]) -> Vec<u8> {
        self.0.sign(statement).to_bytes().to_vec()
    }

    fn admits(&self, client: ClientId, statement: &[u8], evidence: &[u8]) -> bool {
        let key: VerifyingKey = signing_key(client.0).verifying_key();
        Signature::from_slice(evidence).is_ok_and(|s| key.verify_strict(statement, &s).is_ok())
    }
}

#[test]
fn a_server_takes_only_keys_that_are_signed_for_this_offer() {
    let mut server = CollectKeys::open(terms(5, Adversary::Curious), &mut SimulatedEntropy::from_seed(1)).unwrap();
    let other = CollectKeys::open(terms(5, Adversary::Curious), &mut SimulatedEntropy::from_seed(2)).unwrap();
    let begin = |offer: &Offer, id: u64, key: u64| {
        let (admission, mut entropy) = (Signed(signing_key(key)), SimulatedEntropy::from_seed(100 + id));
        Client::begin(*offer, ClientId(id), Floor::none(), &admission, &mut entropy).unwrap().1
    };
    let judge = Signed(signing_key(99));
    let offer = *server.offer();
    let evidence = Err(Refusal::Evidence(ClientId(1)));
    assert_eq!(server.receive(ClientId(1), &begin(&offer, 1, 2), &judge), evidence, "signed by another");
    assert_eq!(server.receive(ClientId(1), &begin(&offer, 2, 2), &judge), evidence, "signed for another");
    let mut replayed = AdvertiseKeys::decode(&begin(other.offer(), 1, 1)).unwrap();
    replayed.offer = offer.hash();
    assert_eq!(server.receive(ClientId(1), &replayed.encode(), &judge), evidence, "signed in another round");
    let mut unsigned = AdvertiseKeys::decode(&begin(&offer, 1, 1)).unwrap();
    unsigned.evidence.clear();
    assert_eq!(server.receive(ClientId(1), &unsigned.encode(), &judge), evidence, "not signed");
    assert_eq!(server.receive(ClientId(1), &begin(&offer, 1, 1), &judge), Ok(()));
    assert_eq!(server.arrived(), 1);
}

/// What a server that ignores signatures can put around a client: the client looks for itself.
#[test]
fn a_neighbour_that_nobody_signed_for_is_refused_by_the_client() {
    let offer = hostile::offer(terms(5, Adversary::Curious));
    let surrounded = |change: &dyn Fn(&mut Vec<Member>)| {
        let (admission, mut entropy) = (Signed(signing_key(0)), SimulatedEntropy::from_seed(3));
        let (mut client, keys) = Client::begin(offer, ClientId(0), Floor::none(), &admission, &mut entropy).unwrap();
        let AdvertiseKeys { keys, evidence, .. } = AdvertiseKeys::decode(&keys).unwrap();
        let mut members = vec![Member { client: ClientId(0), keys, evidence }];
        members.extend((1..5).map(|id| {
            let mut member = hostile::Puppet::new(id).member();
            member.evidence = Signed(signing_key(id)).attest(&statement(&offer.hash(), ClientId(id), &member.keys));
            member
        }));
        change(&mut members);
        let message = hostile::neighbourhood(Parameters::from_parts(5, 4, 3).unwrap(), &members, 0).encode();
        client.receive(&message, &admission, &mut entropy).map(|answer| answer.is_some())
    };
    assert_eq!(surrounded(&|_| ()), Ok(true));
    let refused = Err(ClientError::Evidence { slot: 2 });
    assert_eq!(surrounded(&|m| m[3].evidence.clear()), refused);
    assert_eq!(surrounded(&|m| m[3].evidence[0] ^= 1), refused);
    assert_eq!(surrounded(&|m| m[3].evidence = m[2].evidence.clone()), refused);
    assert_eq!(surrounded(&|m| m[3].keys = hostile::Puppet::new(77).member().keys), refused, "keys of the server's");
    assert_eq!(surrounded(&|m| m[3].client = ClientId(77)), refused, "an identity of the server's");
}
