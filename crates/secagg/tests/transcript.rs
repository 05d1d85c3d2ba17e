//! Everything that is said in a round, to the byte; what sessions are bound to; and neighbours that show who they are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use ed25519_dalek::{Signature, Signer, SigningKey};
use keyhush_secagg::{
    ClientId, Pseudonym,
    client::{Client, ClientError, Reply},
    directory::{Admission, Everybody, Member, NoEvidence, statement},
    entropy::SimulatedEntropy,
    message::{AdvertiseKeys, Delivery, Neighbourhood, ShareKeys},
    parameters::{Adversary, Committee, Floor, Parameters},
    server::{CollectKeys, Connect, Refusal, Serial},
    session::{Coin, Inputs, Offer, SessionId, Terms},
};
use story::{Device, advertise, agree, hostile, mask, plain_sum, promising_nothing, share, terms, unmask};

const CONNECT: Connect = Connect::Insecure { degree: 6, threshold: 4 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The first bytes of the digest of what was said, under a name.
fn line(what: &str, message: &[u8]) -> String {
    format!("{what} {} {}", message.len(), &hex(&hostile::sha256(&[message]))[..16])
}

/// A round of nine on a ring, with a server that is not taken at its word. Client 8 does not share, client 7 sends no input.
fn transcript() -> String {
    let inputs = Inputs::Bounded { largest: 14 };
    let terms = Terms { dimension: 10, bits: 7, inputs, ..promising_nothing(9, Adversary::SemiMalicious) };
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(42)).unwrap();
    let mut said = vec![line("offer", &server.offer().encode())];
    said.extend((0..9).map(|id| line(&format!("{id} keys"), &Device::begin(*server.offer(), ClientId(id), 42).1)));
    let mut devices = advertise(&mut server, 0..9, 42);
    let mut server = server.close(CONNECT).unwrap();
    said.extend((0..9).map(|id| line(&format!("{id} neighbours"), &server.neighbourhood(ClientId(id)).unwrap())));
    share(&mut server, &mut devices, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} shares", id.0), &message));
        (id.0 != 8).then_some(message)
    });
    let mut server = server.close().unwrap();
    let SessionId(session) = Delivery::decode(&server.delivery(ClientId(0)).unwrap()).unwrap().session;
    said.push(format!("session {}", hex(&session)));
    said.extend((0..8).map(|id| line(&format!("{id} delivery"), &server.delivery(ClientId(id)).unwrap())));
    mask(&mut server, &mut devices, &terms, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} input", id.0), &message));
        (id.0 != 7).then_some(message)
    });
    let mut server = server.close().unwrap();
    said.push(line("view", &server.view(ClientId(0)).unwrap()));
    agree(&mut server, &mut devices, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} signature", id.0), &message));
        Some(message)
    });
    let mut server = server.close().unwrap();
    said.extend((0..7).map(|id| line(&format!("{id} request"), &server.request(ClientId(id)).unwrap())));
    unmask(&mut server, &mut devices, |id: ClientId, message: Vec<u8>| {
        said.push(line(&format!("{} opened", id.0), &message));
        Some(message)
    });
    let outcome = server.close(&Serial).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&terms, 0..7));
    said.push(format!("sum {:?}", *outcome.sum));
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
    let mut entropy = Device::entropy(9, ClientId(0));
    let (mut client, keys) = Client::begin(offer, Floor::none(), &Everybody, &mut entropy).unwrap();
    let own = AdvertiseKeys::decode(&keys).unwrap().member;
    let puppet = |id| hostile::Puppet::new(id).member();
    let members: Vec<Member> = [own].into_iter().chain((members..members + 4).map(puppet)).collect();
    let message = hostile::neighbourhood(&offer, connect, &members, 0).encode();
    let Ok(Reply::Send(shares)) = client.receive(&message, &Everybody, &mut entropy) else { panic!("no shares") };
    ShareKeys::decode(&shares).unwrap().session
}

#[test]
fn another_task_model_round_parameter_attempt_or_directory_is_another_session() {
    let connect =
        |threshold, quorum| Parameters::from_parts(5, 4, threshold, Some(Committee { size: 5, quorum })).unwrap();
    let inputs = Inputs::Bounded { largest: 2 };
    let offer = hostile::offer(Terms { inputs, ..terms(5, Adversary::Curious) });
    let changed = |change: fn(&mut Offer)| {
        let mut offer = offer;
        change(&mut offer);
        session(offer, connect(3, 4), 1)
    };
    let sessions = [
        changed(|_| ()),
        session(offer, connect(2, 4), 1),
        session(offer, connect(3, 5), 1),
        session(offer, Parameters::from_parts(5, 4, 3, None).unwrap(), 1),
        session(offer, connect(3, 4), 2),
        changed(|o| o.nonce[31] ^= 1),
        changed(|o| o.terms.task[31] ^= 1),
        changed(|o| o.terms.model[31] ^= 1),
        changed(|o| o.terms.round += 1),
        changed(|o| o.terms.most_clients += 1),
        changed(|o| o.terms.least_survivors += 1),
        changed(|o| o.terms.dimension += 1),
        changed(|o| o.terms.bits += 1),
        changed(|o| o.terms.most_evidence += 1),
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

/// An issuer that signs what devices say of their keys, and does not tell the server who they are.
struct Issuer(SigningKey);

fn issuer(number: u8) -> Issuer {
    Issuer(SigningKey::from_bytes(&hostile::sha256(&[b"issuer", &[number]])))
}

impl Admission for Issuer {
    fn attest(&self, statement: &[u8]) -> Result<Vec<u8>, NoEvidence> {
        Ok(self.0.sign(statement).to_bytes().to_vec())
    }

    fn admits(&self, statement: &[u8], evidence: &[u8]) -> bool {
        Signature::from_slice(evidence).is_ok_and(|s| self.0.verifying_key().verify_strict(statement, &s).is_ok())
    }
}

/// Terms of five that allow so much evidence.
fn with_evidence(most_evidence: u32) -> Terms {
    Terms { most_evidence, ..terms(5, Adversary::Curious) }
}

#[test]
fn a_server_takes_only_keys_that_are_signed_for_this_offer() {
    let open = |seed| CollectKeys::open(with_evidence(64), &mut SimulatedEntropy::from_seed(seed)).unwrap();
    let (mut server, other) = (open(1), open(2));
    let begin = |offer: &Offer, id: u64, by: u8| {
        let mut entropy = Device::entropy(1, ClientId(id));
        let (_, keys) = Client::begin(*offer, Floor::none(), &issuer(by), &mut entropy).unwrap();
        AdvertiseKeys::decode(&keys).unwrap()
    };
    let offer = *server.offer();
    let good = begin(&offer, 1, 0);
    let mut taken = |change: &dyn Fn(&mut AdvertiseKeys)| {
        let mut message = good.clone();
        change(&mut message);
        server.receive(ClientId(1), &message.encode(), &issuer(0))
    };
    let evidence = Err(Refusal::Evidence(ClientId(1)));
    assert_eq!(taken(&|m| *m = begin(&offer, 1, 1)), evidence, "signed by another");
    assert_eq!(taken(&|m| m.member.evidence = begin(&offer, 2, 0).member.evidence), evidence, "signed for another");
    assert_eq!(taken(&|m| m.member = begin(other.offer(), 1, 0).member), evidence, "signed in another round");
    assert_eq!(taken(&|m| m.member.pseudonym = Pseudonym([9; 16])), evidence, "another pseudonym");
    let other = begin(&offer, 2, 0).member.keys;
    assert_eq!(taken(&|m| m.member.keys.sealing = other.sealing), evidence, "another key");
    assert_eq!(taken(&|m| m.member.keys.masking = other.masking), evidence, "another key");
    assert_eq!(taken(&|m| m.member.keys.signing = other.signing), evidence, "another key");
    assert_eq!(taken(&|m| m.member.evidence.clear()), evidence, "not signed");
    assert_eq!(taken(&|m| m.member.evidence.push(0)), evidence, "longer than the offer allows");
    assert_eq!(taken(&|_| ()), Ok(()));
    assert_eq!(server.arrived(), 1);
}

/// What a client says to a directory of puppets, of whom anything may be wrong; all are attested before.
fn surrounded(
    offer: Offer,
    admission: &dyn Admission,
    change: impl FnOnce(&mut Vec<Member>),
) -> Result<(), ClientError> {
    let mut entropy = Device::entropy(3, ClientId(0));
    let (mut client, keys) = Client::begin(offer, Floor::none(), admission, &mut entropy)?;
    let mut members = vec![AdvertiseKeys::decode(&keys).unwrap().member];
    members.extend((1..5).map(|id| {
        let mut member = hostile::Puppet::new(id).member();
        member.evidence = admission.attest(&statement(&offer.hash(), &member.pseudonym, &member.keys)).unwrap();
        member
    }));
    change(&mut members);
    let parameters = Parameters::from_parts(5, 4, 3, None).unwrap();
    let message = hostile::neighbourhood(&offer, parameters, &members, 0).encode();
    client.receive(&message, admission, &mut entropy).map(|reply| assert!(matches!(reply, Reply::Send(_))))
}

/// What a server that ignores signatures can put around a client: the client looks for itself.
#[test]
fn a_neighbour_that_nobody_signed_for_is_refused_by_the_client() {
    let offer = hostile::offer(with_evidence(64));
    let surrounded = |change: &dyn Fn(&mut Vec<Member>)| surrounded(offer, &issuer(0), change);
    assert_eq!(surrounded(&|_| ()), Ok(()));
    let refused = Err(ClientError::Evidence { slot: 2 });
    assert_eq!(surrounded(&|m| m[3].evidence.clear()), refused);
    assert_eq!(surrounded(&|m| m[3].evidence[0] ^= 1), refused);
    assert_eq!(surrounded(&|m| m[3].evidence = m[2].evidence.clone()), refused);
    assert_eq!(surrounded(&|m| m[3].keys = hostile::Puppet::new(77).member().keys), refused, "keys of the server's");
    // The last one may have any pseudonym beyond the others': the directory is in order.
    let renamed = surrounded(&|m| m[4].pseudonym = hostile::pseudonym(77));
    assert_eq!(renamed, Err(ClientError::Evidence { slot: 3 }), "a pseudonym of the server's");
}

/// Whoever is not attested does not take part.
#[test]
fn a_device_without_evidence_says_nothing() {
    struct Nobody;
    impl Admission for Nobody {
        fn attest(&self, _: &[u8]) -> Result<Vec<u8>, NoEvidence> {
            Err(NoEvidence("the battery of the key is empty".into()))
        }
        fn admits(&self, _: &[u8], _: &[u8]) -> bool {
            false
        }
    }
    let begun =
        Client::begin(hostile::offer(with_evidence(64)), Floor::none(), &Nobody, &mut Device::entropy(1, ClientId(0)));
    assert!(matches!(begun, Err(ClientError::NoEvidence(NoEvidence(why))) if why.contains("battery")));
}

/// Evidence of so many bytes, all of which follow from what it is for and count.
#[derive(Clone, Copy)]
struct Long(usize);

impl Admission for Long {
    fn attest(&self, statement: &[u8]) -> Result<Vec<u8>, NoEvidence> {
        let block = |i: u32| hostile::sha256(&[statement, &i.to_le_bytes()]);
        Ok((0..).flat_map(block).take(self.0).collect())
    }

    /// Of any length: what is too long is not this one's to refuse.
    fn admits(&self, statement: &[u8], evidence: &[u8]) -> bool {
        Self(evidence.len()).attest(statement).is_ok_and(|e| e == evidence)
    }
}

#[test]
fn evidence_of_any_length_that_the_offer_allows_goes_through_whole() {
    for length in [0, 64, 300, 5000] {
        let mut server = CollectKeys::open(with_evidence(length), &mut SimulatedEntropy::from_seed(1)).unwrap();
        let admission = Long(length as usize);
        let mut devices = Vec::new();
        for id in (0..5).map(ClientId) {
            let mut entropy = Device::entropy(1, id);
            let (client, keys) = Client::begin(*server.offer(), Floor::none(), &admission, &mut entropy).unwrap();
            server.receive(id, &keys, &admission).unwrap();
            devices.push((id, client, entropy, AdvertiseKeys::decode(&keys).unwrap().member));
        }
        let members: Vec<Member> = devices.iter().map(|(.., member)| member.clone()).collect();
        assert!(members.iter().all(|m| m.evidence.len() == length as usize));
        let mut server = server.close(Connect::Insecure { degree: 4, threshold: 3 }).unwrap();
        for (id, client, entropy, _) in &mut devices {
            let message = server.neighbourhood(*id).unwrap();
            let mut shown = Neighbourhood::decode(&message).unwrap().members;
            shown.insert(id.0 as usize, members[id.0 as usize].clone());
            assert_eq!(shown, members, "to the byte");
            let Ok(Reply::Send(shares)) = client.receive(&message, &admission, entropy) else { panic!("{length}") };
            server.receive(*id, &shares).unwrap();
        }
        assert_eq!(server.arrived(), 5);
    }
}

/// The device finds it out before it says anything; whoever says it all the same is refused by the server, and by neighbours
/// where the server does not.
#[test]
fn a_byte_of_evidence_more_than_the_offer_allows_is_refused_by_everybody() {
    for most in [0, 64, 300, 5000] {
        let (terms, longer) = (with_evidence(most), Long(most as usize + 1));
        let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(1)).unwrap();
        let offer = *server.offer();
        let begun = Client::begin(offer, Floor::none(), &longer, &mut Device::entropy(1, ClientId(0)));
        let too_long = ClientError::LongEvidence { got: most as usize + 1, most: most as usize };
        assert_eq!(begun.map(|_| ()).unwrap_err(), too_long);

        let admission = Long(most as usize);
        let (_, keys) = Client::begin(offer, Floor::none(), &admission, &mut Device::entropy(1, ClientId(0))).unwrap();
        let mut keys = AdvertiseKeys::decode(&keys).unwrap();
        let lengthen = |member: &mut Member, offer: &Offer| {
            member.evidence = longer.attest(&statement(&offer.hash(), &member.pseudonym, &member.keys)).unwrap();
        };
        let good = keys.encode();
        lengthen(&mut keys.member, &offer);
        assert_eq!(server.receive(ClientId(0), &keys.encode(), &admission), Err(Refusal::Evidence(ClientId(0))));
        assert_eq!(server.receive(ClientId(0), &good, &admission), Ok(()));

        let offer = hostile::offer(terms);
        assert_eq!(surrounded(offer, &admission, |_| ()), Ok(()));
        let refused = surrounded(offer, &admission, |m| lengthen(&mut m[3], &offer));
        assert_eq!(refused, Err(ClientError::Evidence { slot: 2 }));
    }
}
