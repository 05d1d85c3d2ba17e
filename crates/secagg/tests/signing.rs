//! Signed views: what a client believes, signs and opens where it does not take the server's word on who dropped out.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::story::{
    Device,
    hostile::{self, Puppet, bad_signing_keys, puppets, sent, sha256, zero},
    input, promising_nothing,
    recorded::{ME, Recorded, SEED, name},
    terms,
};
use keyhush_secagg::{
    ClientId, Signature,
    client::{Client, ClientError, Reply},
    directory::{Admission, Everybody, Member, Name, NoEvidence, Proof},
    entropy::{Entropy, OsEntropy},
    graph::{self, Graph},
    message::{Agreement, Delivery, Kind, Neighbourhood, ShareKeys, Survivors, UnmaskRequest, View},
    parameters::{Adversary, Committee, Floor, Parameters},
    session::{Offer, SessionId, Terms},
    wire::Bits,
};

/// A view in which other things became of everybody.
fn changed_view(view: &View, change: impl FnOnce(&mut Vec<bool>, &mut Vec<bool>)) -> View {
    let (mut present, mut alive) = (view.present.iter().collect(), view.alive.iter().collect());
    change(&mut present, &mut alive);
    View { session: view.session, present: Bits::new(present), alive: Bits::new(alive) }
}

/// What a client says to a view that a server changed.
fn shown(recorded: &Recorded, change: impl FnOnce(&mut Vec<bool>, &mut Vec<bool>)) -> Result<(), ClientError> {
    let mut device = recorded.device("AwaitUnmask");
    let answer = device.answer(&changed_view(&recorded.view(), change).encode());
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
}

#[test]
fn below_the_offers_least_no_view_is_agreed_to() {
    // Client 2 knows that the offer said 4 at least, and is shown 3 besides those who vanished.
    let recorded = Recorded::with(Terms { least_survivors: 4, ..terms(5, Adversary::SemiMalicious) }, 3);
    let few = |_: &mut Vec<bool>, alive: &mut Vec<bool>| alive[3] = false;
    assert_eq!(shown(&recorded, few), Err(ClientError::TooFew { got: 3, needed: 4 }));
}

/// The answer may have been lost: the same view again is the same signature. Then the client goes on.
#[test]
fn the_same_view_twice_is_signed_with_the_same_bytes() {
    let recorded = Recorded::new();
    let mut device = recorded.device("AwaitUnmask");
    let signed = device.answer(recorded.message(Kind::View)).unwrap();
    assert_eq!(signed, recorded.message(Kind::Agreement));
    for _ in 0..3 {
        assert_eq!(device.answer(recorded.message(Kind::View)).unwrap(), signed);
    }
    assert_eq!(device.answer(recorded.message(Kind::UnmaskRequest)).unwrap(), recorded.message(Kind::UnmaskResponse));
    let signature = Agreement::decode(&signed).unwrap().signature;
    assert_eq!(signature, hostile::signature(signing_secret(ME), &recorded.view()), "of the view's digest");
}

/// What a device of the recorded round signs with: the third that it draws.
fn signing_secret(id: ClientId) -> [u8; 32] {
    let (mut entropy, mut secret) = (Device::entropy(SEED, id), [0; 32]);
    (0..3).for_each(|_| entropy.fill(&mut secret).unwrap());
    secret
}

/// The recorded request for another view, which everybody has signed whom the server owns, and it owns them all but client 2.
fn request_for(recorded: &Recorded, view: View) -> UnmaskRequest {
    let sign = |id| (id != ME).then(|| hostile::signature(signing_secret(id), &view));
    let signatures = (0..5).map(ClientId).map(sign).collect();
    UnmaskRequest { survivors: Survivors::Agreed { view, signatures }, ..recorded.request() }
}

#[test]
fn one_view_is_signed_and_no_other_is_opened() {
    let recorded = Recorded::new();
    let other = changed_view(&recorded.view(), |_, alive| alive[1] = true);
    let good = request_for(&recorded, recorded.view());
    // Whoever has signed nothing goes by the quorum.
    for view in [recorded.view(), other.clone()] {
        assert!(recorded.device("AwaitUnmask").answer(&request_for(&recorded, view).encode()).is_ok());
    }
    for second in [other.encode(), request_for(&recorded, other.clone()).encode()] {
        let mut device = recorded.device("AwaitUnmask");
        device.answer(&recorded.view().encode()).unwrap();
        assert_eq!(device.receive(&second), Err(ClientError::SecondView));
        for message in [recorded.view().encode(), good.encode()] {
            assert_eq!(device.receive(&message), Err(ClientError::Over("aborted")), "it opens nothing any more");
        }
    }
}

/// What a client says to a request that a server changed; whatever it is, there is no second question.
fn asked(recorded: &Recorded, change: impl FnOnce(&mut UnmaskRequest)) -> Result<(), ClientError> {
    let mut request = recorded.request();
    change(&mut request);
    let mut device = recorded.device("AwaitUnmask");
    let answer = device.answer(&request.encode());
    let over = if answer.is_ok() { "done" } else { "aborted" };
    assert_eq!(
        device.receive(recorded.message(Kind::UnmaskRequest)),
        Err(ClientError::Over(over)),
        "no second question"
    );
    answer.map(|_| ())
}

/// The view and the signatures of a request.
fn agreed(request: &mut UnmaskRequest) -> (&mut View, &mut Vec<Option<Signature>>) {
    match &mut request.survivors {
        Survivors::Agreed { view, signatures } => (view, signatures),
        Survivors::Said(_) => panic!("nothing is signed"),
    }
}

#[test]
fn a_request_of_another_neighbourhood_is_refused_and_opens_nothing() {
    let recorded = Recorded::new();
    let refused = |change: fn(&mut View, &mut Vec<Option<Signature>>)| {
        let change = |request: &mut UnmaskRequest| {
            let (view, signatures) = agreed(request);
            change(view, signatures);
        };
        asked(&recorded, change).unwrap_err()
    };
    assert_eq!(asked(&recorded, |_| ()), Ok(()));
    assert!(matches!(refused(|v, _| v.alive = Bits::new(vec![true; 4])), ClientError::View(_)));
    assert!(matches!(refused(|v, _| v.present = Bits::new(vec![true; 6])), ClientError::View(_)));
    assert!(matches!(refused(|v, _| v.alive = Bits::new(vec![false; 5])), ClientError::View(_)));
    let hidden = |v: &mut View, _: &mut Vec<Option<Signature>>| v.present = v.alive.clone();
    assert_eq!(refused(hidden), ClientError::OtherView { slot: 1 });
    assert_eq!(refused(|v, _| v.alive = Bits::new(vec![true; 5])), ClientError::NotAgreed { got: 0, needed: 4 });
    assert_eq!(refused(|_, s| s.truncate(4)), ClientError::Count { expected: 5, got: 4 });
    assert_eq!(refused(|_, s| s.push(None)), ClientError::Count { expected: 5, got: 6 });
    assert_eq!(refused(|_, s| s.clear()), ClientError::Count { expected: 5, got: 0 });
    assert_eq!(refused(|_, s| s.fill(None)), ClientError::NotAgreed { got: 0, needed: 4 });
}

/// Four of five have signed, and four are needed. Our own is one of them, or it would not be the server's to choose.
#[test]
fn a_signature_that_is_missing_wrong_or_somebody_elses_is_none() {
    let recorded = Recorded::new();
    let other_session = View { session: SessionId([7; 32]), ..recorded.view() };
    let other_view = changed_view(&recorded.view(), |_, alive| alive[1] = true);
    let not_agreed = Err(ClientError::NotAgreed { got: 3, needed: 4 });
    let [first, stranger] = [signing_secret(ClientId(0)), signing_secret(ClientId(77))];
    let by = |secret, view| move |s: &mut Vec<Option<Signature>>| s[0] = Some(hostile::signature(secret, view));
    let changed = |change: &dyn Fn(&mut Vec<Option<Signature>>)| asked(&recorded, |r| change(agreed(r).1));
    let view = recorded.view();
    assert_eq!(changed(&by(first, &view)), Ok(()), "as it was");
    assert_eq!(changed(&|s| s[0] = None), not_agreed, "missing");
    for bit in [0, 255, 256, 511] {
        assert_eq!(changed(&|s| s[0].as_mut().unwrap()[bit / 8] ^= 1 << (bit % 8)), not_agreed, "wrong");
    }
    assert_eq!(changed(&|s| s[0] = Some([0; 64])), not_agreed, "nobody's");
    assert_eq!(changed(&|s| s[0] = s[3]), not_agreed, "somebody else's, twice");
    assert_eq!(changed(&|s| (s[0], s[1]) = (None, s[0])), not_agreed, "in another's place");
    assert_eq!(changed(&|s| s.swap(0, 1)), not_agreed, "in another's place");
    assert_eq!(changed(&by(stranger, &view)), not_agreed, "of somebody who takes no part");
    assert_eq!(changed(&by(first, &other_view)), not_agreed, "of another view");
    assert_eq!(changed(&by(first, &other_session)), not_agreed, "of another session");
    let two = |s: &mut Vec<Option<Signature>>| (s[0], s[4]) = (None, None);
    assert_eq!(changed(&two), Err(ClientError::NotAgreed { got: 2, needed: 4 }));
}

/// Client 1 vanished, and belongs to the server: with its key anybody can sign as it would have. A signature is a signature:
/// the quorum is of the committee, alive or not, and large enough for as many corrupted members as were planned for.
#[test]
fn a_dead_members_true_signature_counts() {
    let recorded = Recorded::new();
    assert!(!recorded.view().alive.get(1));
    let dead = hostile::signature(signing_secret(ClientId(1)), &recorded.view());
    let with = |first: bool, second| {
        asked(&recorded, |r| {
            let signatures = agreed(r).1;
            (signatures[0], signatures[1]) = (signatures[0].filter(|_| first), second);
        })
    };
    assert_eq!(with(false, None), Err(ClientError::NotAgreed { got: 3, needed: 4 }));
    assert_eq!(with(false, Some(dead)), Ok(()));
    assert_eq!(with(true, Some(dead)), Ok(()));
}

/// Where signatures are needed the server's word is nothing, and the other way about.
#[test]
fn each_client_asks_for_what_its_offer_says() {
    let (signed, trusted) = (Recorded::new(), Recorded::with(terms(5, Adversary::Curious), 3));
    let said = trusted.request().survivors;
    assert_eq!(said, Survivors::Said(Bits::new(vec![true, false, true, true])));
    let not_agreed = ClientError::NotAgreed { got: 0, needed: 4 };
    assert_eq!(asked(&signed, |r| r.survivors = said), Err(not_agreed));
    let mut agreed = signed.request().survivors;
    if let Survivors::Agreed { view, .. } = &mut agreed {
        view.session = trusted.request().session;
    }
    assert!(matches!(asked(&trusted, |r| r.survivors = agreed), Err(ClientError::View(_))));
    // Nor does it sign.
    let view = View { session: trusted.request().session, ..signed.view() };
    let mut device = trusted.device("AwaitUnmask");
    assert_eq!(device.receive(&view.encode()), Err(ClientError::NotInCommittee));
    assert_eq!(name(&device.client), "Aborted");
}

const RING: u32 = 14;

/// Fourteen on a ring, of whom five sign and three decide.
fn ring() -> Parameters {
    Parameters::from_parts(RING, 6, 4, Some(Committee { size: 5, quorum: 3 })).unwrap()
}

fn ring_terms() -> Terms {
    promising_nothing(RING, Adversary::SemiMalicious)
}

/// A client on a ring of puppets that has masked its input, and who signs.
struct Lured {
    client: Client,
    committee: Vec<u32>,
    /// Everybody shared, and everybody is there.
    view: View,
}

impl Lured {
    /// In the committee or not, as the nonce has it.
    fn new(nonce: u8) -> Self {
        let offer = Offer { nonce: [nonce; 32], ..hostile::offer(ring_terms()) };
        let (mut client, mut entropy, own) = zero(offer, Floor::none(), &Everybody).unwrap();
        let members: Vec<Member> = [own].into_iter().chain(puppets(1..RING.into())).collect();
        let message = hostile::neighbourhood(&offer, ring(), &members, 0).encode();
        let shares = sent(client.receive(&message, &Everybody, &mut entropy).unwrap());
        let session = ShareKeys::decode(&shares).unwrap().session;
        // They share nothing that is any good, which is no reason to leave.
        let delivery = Delivery { session, sealed: vec![Some([0; _]); 6] }.encode();
        assert_eq!(client.receive(&delivery, &Everybody, &mut entropy), Ok(Reply::Ready));
        client.mask(&input(&ring_terms(), 0)).unwrap();
        let committee = graph::committee(RING, 5, &sha256(&[b"keyhush secagg committee v2", &session.0]));
        let all = Bits::new(vec![true; RING as usize]);
        Self { client, committee, view: View { session, present: all.clone(), alive: all } }
    }

    /// The first of its kind.
    fn find(is_member: bool) -> Self {
        (0..).map(Self::new).find(|lured| lured.committee.contains(&0) == is_member).unwrap()
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), ClientError> {
        self.client.receive(message, &Everybody, &mut OsEntropy).map(|reply| drop(sent(reply)))
    }

    /// Asks with what somebody signed for each of the committee.
    fn asked(mut self, sign: impl Fn(usize, u32) -> Option<Signature>) -> Result<(), ClientError> {
        let signatures = self.committee.iter().enumerate().map(|(slot, at)| sign(slot, *at)).collect();
        let survivors = Survivors::Agreed { view: self.view.clone(), signatures };
        self.receive(&UnmaskRequest { session: self.view.session, survivors }.encode())
    }
}

fn puppet_signature(at: u32, view: &View) -> Option<Signature> {
    Some(Puppet::new(at.into()).sign(view))
}

#[test]
fn who_is_not_in_the_committee_signs_nothing() {
    let mut member = Lured::find(true);
    member.receive(&member.view.encode()).unwrap();
    let mut other = Lured::find(false);
    assert_eq!(other.receive(&other.view.encode()), Err(ClientError::NotInCommittee));
    assert_eq!(other.receive(&other.view.encode()), Err(ClientError::Over("aborted")));
}

/// It has no part in the signing, and believes the committee alone.
#[test]
fn who_is_not_in_the_committee_opens_what_a_quorum_of_it_signed() {
    let lured = || Lured::find(false);
    let (view, committee) = (lured().view, lured().committee);
    for signers in 0..=5 {
        let answer = lured().asked(|slot, at| if slot < signers { puppet_signature(at, &view) } else { None });
        match signers {
            3.. => assert_eq!(answer, Ok(())),
            got => assert_eq!(answer, Err(ClientError::NotAgreed { got, needed: 3 })),
        }
    }
    // Two of the committee, and everybody else who has a key.
    let outside: Vec<u32> = (1..RING).filter(|at| !committee.contains(at)).collect();
    let two = |slot, at, otherwise: &dyn Fn() -> Option<Signature>| {
        if slot < 2 { puppet_signature(at, &view) } else { otherwise() }
    };
    let not_agreed = Err(ClientError::NotAgreed { got: 2, needed: 3 });
    let strangers = lured().asked(|slot, at| two(slot, at, &|| puppet_signature(outside[slot], &view)));
    assert_eq!(strangers, not_agreed);
    let repeated = lured().asked(|slot, at| two(slot, at, &|| puppet_signature(committee[0], &view)));
    assert_eq!(repeated, not_agreed);
    let other = changed_view(&view, |_, alive| alive[1] = false);
    assert_eq!(lured().asked(|slot, at| two(slot, at, &|| puppet_signature(at, &other))), not_agreed);
    // Dead or not.
    let mut lured = lured();
    let dead = committee[0] as usize;
    lured.view = changed_view(&view, |_, alive| alive[dead] = false);
    let view = lured.view.clone();
    assert_eq!(lured.asked(|slot, at| if slot < 3 { puppet_signature(at, &view) } else { None }), Ok(()));
}

/// What is done to a member, given another.
type Change<'a> = &'a dyn Fn(&mut Member, &Member);

/// What a client on the ring says to a directory with one member changed, whom it is shown only because that one signs.
fn with_a_signer(admission: &dyn Admission, change: &dyn Fn(&mut Member, &Member)) -> (Result<(), ClientError>, usize) {
    for (at, nonce) in (1..RING as usize).flat_map(|at| (0..10).map(move |nonce| (at, nonce))) {
        let offer = Offer { nonce: [nonce; 32], ..hostile::offer(Terms { most_evidence: 64, ..ring_terms() }) };
        let (mut client, mut entropy, own) = zero(offer, Floor::none(), admission).unwrap();
        let mut members: Vec<Member> = [own.clone()].into_iter().chain(puppets(1..RING.into())).collect();
        members[1..].iter_mut().for_each(|m| m.evidence = own.evidence.clone());
        change(&mut members[at], &own);
        let message = hostile::neighbourhood(&offer, ring(), &members, 0);
        let graph = Graph::new(&ring(), &sha256(&[b"keyhush secagg graph v2", &message.coin.0, &message.root]));
        let slot = message.members.iter().position(|m| *m == members[at]);
        if let Some(slot) = slot.filter(|_| !graph.neighbours(0).contains(&(at as u32))) {
            return (client.receive(&message.encode(), admission, &mut entropy).map(|reply| drop(sent(reply))), slot);
        }
    }
    panic!("nobody signs who is no neighbour")
}

/// Devices with a word that everybody knows.
struct Word;

impl Admission for Word {
    fn attest(&self, _: &[u8]) -> Result<Vec<u8>, NoEvidence> {
        Ok(b"open sesame".to_vec())
    }

    fn admits(&self, _: &[u8], evidence: &[u8]) -> bool {
        evidence.starts_with(b"open sesame")
    }
}

/// A signer of the server's making is as bad as a neighbour of its making.
#[test]
fn members_of_the_committee_are_looked_at_like_neighbours() {
    assert_eq!(with_a_signer(&Word, &|_, _| ()).0, Ok(()));
    let bad_keys: [Change<'_>; 7] = [
        &|m, own| m.keys = own.keys,
        &|m, own| m.keys.signing = own.keys.signing,
        &|m, own| m.keys.masking = own.keys.sealing,
        &|m, _| m.keys.signing = m.keys.sealing,
        &|m, _| m.keys.masking = [0; 32],
        &|m, _| m.keys.signing = bad_signing_keys()[0],
        &|m, _| m.keys.signing = bad_signing_keys()[1],
    ];
    for change in bad_keys {
        let (refused, slot) = with_a_signer(&Word, change);
        assert_eq!(refused, Err(ClientError::Key { slot }));
    }
    let bad_evidence: [Change<'_>; 3] =
        [&|m, _| m.evidence.clear(), &|m, _| m.evidence = b"open, please".to_vec(), &|m, _| m.evidence.resize(65, 0)];
    for change in bad_evidence {
        let (refused, slot) = with_a_signer(&Word, change);
        assert_eq!(refused, Err(ClientError::Evidence { slot }));
    }
    assert_eq!(with_a_signer(&Word, &|m, _| m.evidence.resize(64, 0)).0, Ok(()), "as long as it may be");
    assert_eq!(with_a_signer(&Word, &|m, own| m.pseudonym = own.pseudonym).0, Err(ClientError::NotProved));
}

/// What a client on a ring says to a neighbourhood that somebody changed.
fn told_on_a_ring(adversary: Adversary, change: &dyn Fn(&mut Neighbourhood)) -> Result<(), ClientError> {
    let parameters = match adversary {
        Adversary::Curious => Parameters::from_parts(RING, 6, 4, None).unwrap(),
        Adversary::SemiMalicious => ring(),
    };
    let offer = hostile::offer(promising_nothing(RING, adversary));
    let (mut client, mut entropy, own) = zero(offer, Floor::none(), &Everybody).unwrap();
    let members: Vec<Member> = [own].into_iter().chain(puppets(1..RING.into())).collect();
    let mut message = hostile::neighbourhood(&offer, parameters, &members, 0);
    change(&mut message);
    client.receive(&message.encode(), &Everybody, &mut entropy).map(|reply| drop(sent(reply)))
}

fn hashes(message: &mut Neighbourhood) -> &mut Vec<[u8; 32]> {
    let Proof::Beside(hashes) = &mut message.proof else { panic!("the hashes beside") };
    hashes
}

fn names(message: &mut Neighbourhood) -> &mut Vec<Name> {
    let Proof::Whole(names) = &mut message.proof else { panic!("all names") };
    names
}

/// What is done to a message.
type ChangeOf<'a> = &'a dyn Fn(&mut Neighbourhood);

/// On a ring most of the directory is not shown. What is shown is proved by the hashes beside it, or by the names of all.
#[test]
fn a_proof_that_is_not_the_directorys_is_refused() {
    use Adversary::{Curious, SemiMalicious};
    assert_eq!(told_on_a_ring(Curious, &|m| assert!(hashes(m).len() > 1 && m.members.len() == 6)), Ok(()));
    assert_eq!(told_on_a_ring(SemiMalicious, &|m| assert!(names(m).len() == RING as usize)), Ok(()));
    let of_hashes: [ChangeOf<'_>; 6] = [
        &|m| hashes(m)[0][0] ^= 1,
        &|m| hashes(m).last_mut().unwrap()[31] ^= 1,
        &|m| hashes(m).clear(),
        &|m| _ = hashes(m).pop(),
        &|m| hashes(m).push([0; 32]),
        &|m| hashes(m).reverse(),
    ];
    let of_names: [ChangeOf<'_>; 7] = [
        &|m| names(m)[0].rest[0] ^= 1,
        &|m| names(m)[7].pseudonym.0[15] ^= 1,
        &|m| names(m).clear(),
        &|m| _ = names(m).pop(),
        &|m| {
            let last = names(m)[RING as usize - 1];
            names(m).push(last);
        },
        &|m| names(m).swap(3, 4),
        // The proof that a trusting client would take.
        &|m| m.proof = Proof::Beside(Vec::new()),
    ];
    let of_both: [ChangeOf<'_>; 2] = [&|m| m.members.swap(0, 1), &|m| m.members[2].evidence.push(0)];
    for (adversary, changes) in [(Curious, &of_hashes[..]), (SemiMalicious, &of_names)] {
        for change in changes.iter().chain(&of_both) {
            assert_eq!(told_on_a_ring(adversary, change), Err(ClientError::NotProved));
        }
        assert!(matches!(told_on_a_ring(adversary, &|m| drop(m.members.pop())), Err(ClientError::Count { .. })));
        // Who sits elsewhere has other neighbours; who sits nowhere has none.
        for position in [1, 5, RING - 1, RING, u32::MAX] {
            let refused = told_on_a_ring(adversary, &|m| m.position = position).unwrap_err();
            assert!(matches!(refused, ClientError::NotProved | ClientError::Count { .. }), "{position}: {refused}");
        }
    }
    let larger = Parameters::from_parts(RING, 6, 4, Some(Committee { size: 6, quorum: 4 })).unwrap();
    assert!(told_on_a_ring(SemiMalicious, &|m| m.parameters = larger).is_err(), "the proof is for another committee");
    assert_eq!(told_on_a_ring(Curious, &|m| m.proof = Proof::Whole(Vec::new())), Err(ClientError::NotProved));
}

/// One of the server's clients at many positions, with evidence for all of them. Who is shown two of them would notice; nobody
/// need be, so everybody sees the names of all.
#[test]
fn nobody_is_seated_twice() {
    let offer = hostile::offer(ring_terms());
    let mut unseen = 0;
    for twice in 1..RING - 1 {
        let (mut client, mut entropy, own) = zero(offer, Floor::none(), &Everybody).unwrap();
        let mut members: Vec<Member> = [own].into_iter().chain(puppets(1..RING.into())).collect();
        members[twice as usize + 1] = members[twice as usize].clone();
        let message = hostile::neighbourhood(&offer, ring(), &members, 0);
        let copies = message.members.iter().filter(|m| m.pseudonym == members[twice as usize].pseudonym).count();
        unseen += u32::from(copies < 2);
        let refused = client.receive(&message.encode(), &Everybody, &mut entropy).unwrap_err();
        assert_eq!(refused, ClientError::NotProved, "{twice}");
    }
    assert!(unseen > RING / 2, "{unseen}: most of them would not have been noticed among those who are shown");
}

/// Where the server is taken at its word, it must still leave a threshold alive.
#[test]
fn a_client_that_trusts_the_servers_word_asks_for_a_threshold() {
    let recorded = Recorded::with(terms(5, Adversary::Curious), 3);
    let refused = |alive: &[bool]| asked(&recorded, |r| r.survivors = Survivors::Said(Bits::new(alive.to_vec())));
    assert_eq!(refused(&[true, true, false, false]), Err(ClientError::TooFew { got: 2, needed: 3 }));
    assert_eq!(refused(&[false; 4]), Err(ClientError::TooFew { got: 0, needed: 3 }));
    assert_eq!(refused(&[true; 3]), Err(ClientError::Count { expected: 4, got: 3 }));
    assert_eq!(refused(&[true; 5]), Err(ClientError::Count { expected: 4, got: 5 }));
    assert_eq!(refused(&[true, true, true, false]), Ok(()));
}
