//! What a network does to a round: inputs come in pieces and many at a time, servers fall over and go on, questions come twice.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeMap,
    io::{Read, Seek, SeekFrom, Write},
};

use crate::story::{self, Devices, advertise, agree, honestly, input, mask, plain_sum, share, shared, terms, unmask};
use keyhush_secagg::{
    ClientId,
    client::{ClientError, Reply},
    directory::Everybody,
    entropy::SimulatedEntropy,
    message::{MaskedInput, Opened, UnmaskResponse},
    parameters::{Adversary, Assumptions},
    server::{
        Accumulator, CollectAgreement, CollectKeys, CollectMasked, CollectShares, Connect, Refusal, RoundFailure,
        Serial, Spool, SpoolError,
    },
    session::Terms,
    wire::WireError,
};
use proptest::prelude::*;

const SEVEN: Connect = Connect::Insecure { degree: 6, threshold: 4 };

fn seven() -> Terms {
    terms(7, Adversary::Curious)
}

/// A spool on disk, as a server has them.
struct File(std::fs::File);

impl File {
    fn new() -> Self {
        Self(tempfile::tempfile().unwrap())
    }
}

impl Spool for File {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        self.0.write_all(bytes).map_err(|e| SpoolError(e.to_string()))
    }

    fn read(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), SpoolError> {
        let read = self.0.seek(SeekFrom::Start(from as u64)).and_then(|_| self.0.read_exact(buffer));
        read.map_err(|e| SpoolError(e.to_string()))
    }
}

/// A spool that breaks after so many reads, and then for so many.
struct Breaking {
    bytes: Vec<u8>,
    good: usize,
    bad: usize,
}

impl Spool for Breaking {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        self.bytes.put(bytes)
    }

    fn read(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), SpoolError> {
        match (self.good, self.bad) {
            (0, 1..) => {
                self.bad -= 1;
                Err(SpoolError("the disk is gone".to_owned()))
            }
            _ => {
                self.good = self.good.saturating_sub(1);
                self.bytes.read(from, buffer)
            }
        }
    }
}

/// A round in which everybody has masked its input, and nobody has sent it.
fn masked(terms: Terms, seed: u64) -> (CollectMasked, Devices, BTreeMap<ClientId, Vec<u8>>) {
    let (server, mut devices) = shared(terms, SEVEN, seed);
    let server = server.close().unwrap();
    let mut inputs = BTreeMap::new();
    for (id, device) in &mut devices {
        assert_eq!(device.receive(&server.delivery(*id).unwrap()), Ok(Reply::Ready));
        inputs.insert(*id, device.client.mask(&input(&terms, id.0)).unwrap());
    }
    (server, devices, inputs)
}

/// The rest of a round; gives the sum.
fn finish(server: CollectMasked, mut devices: Devices) -> Vec<u32> {
    let mut server = server.close().unwrap();
    agree(&mut server, &mut devices, honestly);
    let mut server = server.close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    server.close(&Serial).unwrap().sum.to_vec()
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no temporary files")]
fn pieces_of_any_size_make_the_same_sum() {
    for size in [1, 7, 38, 39, 40, 1000, 1 << 20] {
        let (mut server, devices, inputs) = masked(seven(), 1);
        for (id, bytes) in &inputs {
            let (mut upload, mut spool) = (server.upload(*id).unwrap(), File::new());
            assert_eq!(upload.expected(), bytes.len());
            for piece in bytes.chunks(size) {
                assert!(matches!(server.claim(server.upload(*id).unwrap()), Err(Refusal::Length { .. })), "not whole");
                upload.push(piece, &mut spool).unwrap();
            }
            assert_eq!(upload.received(), bytes.len());
            server.commit(upload, &mut spool).unwrap();
            assert_eq!(server.upload(*id).unwrap_err(), Refusal::Repeated(*id));
            assert_eq!(server.receive(*id, bytes), Err(Refusal::Repeated(*id)));
        }
        assert_eq!(finish(server, devices), plain_sum(&seven(), 0..7));
    }
}

/// Inputs that begin together and end in any order, added on different threads into sums of their own.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no temporary files")]
fn many_uploads_at_once_are_one_vector_a_thread() {
    let (mut server, devices, inputs) = masked(seven(), 2);
    let mut uploads: Vec<_> = inputs.keys().rev().map(|id| (*id, server.upload(*id).unwrap(), File::new())).collect();
    for piece in 0.. {
        let mut more = false;
        for (id, upload, spool) in &mut uploads {
            if let Some(bytes) = inputs[id].chunks(500).nth(piece) {
                upload.push(bytes, spool).unwrap();
                more = true;
            }
        }
        if !more {
            break;
        }
    }
    let claimed: Vec<_> =
        uploads.into_iter().map(|(_, upload, spool)| (server.claim(upload).unwrap(), spool)).collect();
    let mut sums = [server.accumulator(), server.accumulator(), server.accumulator()];
    for (at, (claim, mut spool)) in claimed.into_iter().enumerate() {
        sums[at % 3].add(claim, &mut spool).unwrap();
    }
    assert_eq!((server.arrived(), sums.each_ref().map(Accumulator::len)), (0, [3, 2, 2]), "nothing has arrived yet");
    assert!(matches!(server.can_close(), Err(RoundFailure::TooFew { got: 0, .. })));
    let [mut first, second, third] = sums;
    first.merge(third).unwrap();
    server.merge(first).unwrap();
    server.merge(second).unwrap();
    assert_eq!(server.arrived(), 7);
    assert_eq!(finish(server, devices), plain_sum(&seven(), 0..7));
}

#[test]
fn an_input_is_in_the_sum_once_however_often_it_comes() {
    let (mut server, devices, inputs) = masked(seven(), 3);
    let whole = |server: &CollectMasked, id: u64| {
        let (mut upload, mut spool) = (server.upload(ClientId(id)).unwrap(), Vec::new());
        upload.push(&inputs[&ClientId(id)], &mut spool).unwrap();
        (upload, spool)
    };
    let (one, mut spool) = whole(&server, 0);
    let (two, _) = whole(&server, 0);
    let claim = server.claim(one).unwrap();
    assert_eq!(server.claim(two).unwrap_err(), Refusal::Repeated(ClientId(0)), "the first one counts");
    assert_eq!(server.receive(ClientId(0), &inputs[&ClientId(0)]), Err(Refusal::Repeated(ClientId(0))));
    let mut sum = server.accumulator();
    sum.add(claim, &mut spool).unwrap();
    let copy = Accumulator::restore(&sum.save().unwrap()).unwrap();
    server.merge(sum).unwrap();
    assert_eq!(server.merge(copy).unwrap_err(), Refusal::Merged { position: 0 });
    // What another round let in is not let in here.
    let (mut other, ..) = masked(seven(), 3);
    let mut sum = other.accumulator();
    let (upload, mut spool) = whole(&other, 1);
    sum.add(other.claim(upload).unwrap(), &mut spool).unwrap();
    assert_eq!(server.merge(sum).unwrap_err(), Refusal::Unclaimed { position: 1 }, "the same session, and no claim");
    let (foreign, ..) = masked(seven(), 4);
    assert_eq!(server.merge(foreign.accumulator()).unwrap_err(), Refusal::OtherSession);
    inputs.iter().filter(|(id, _)| id.0 > 0).for_each(|(id, bytes)| server.receive(*id, bytes).unwrap());
    assert_eq!(finish(server, devices), plain_sum(&seven(), 0..7));
}

/// Many chunks, of which the disk gives some.
#[test]
fn a_vector_that_cannot_be_read_to_its_end_leaves_no_trace() {
    let terms = Terms { dimension: 600_000, ..seven() };
    let (mut server, devices, inputs) = masked(terms, 5);
    let zero = ClientId(0);
    for good in 0..4 {
        let mut spool = Breaking { bytes: Vec::new(), good, bad: 1 };
        let mut upload = server.upload(zero).unwrap();
        upload.push(&inputs[&zero], &mut spool).unwrap();
        let refused = server.commit(upload, &mut spool).unwrap_err();
        assert!(matches!(refused, Refusal::Spool(_)), "{refused}");
        assert_eq!(server.arrived(), 0);
    }
    // An accumulator with others in it takes the half out again, or is spoiled if that fails too.
    let mut sum = server.accumulator();
    let claimed = |server: &mut CollectMasked, id: ClientId, spool: &mut dyn Spool| {
        let mut upload = server.upload(id).unwrap();
        upload.push(&inputs[&id], spool).unwrap();
        server.claim(upload).unwrap()
    };
    let mut spool = Vec::new();
    sum.add(claimed(&mut server, ClientId(1), &mut spool), &mut spool).unwrap();
    let mut spool = Breaking { bytes: Vec::new(), good: 2, bad: 1 };
    let claim = claimed(&mut server, zero, &mut spool);
    let not_added = sum.add(claim, &mut spool).unwrap_err();
    server.give_back(not_added.claim).unwrap();
    let mut spoiled = Accumulator::restore(&sum.save().unwrap()).unwrap();
    server.merge(sum).unwrap();
    server.receive(zero, &inputs[&zero]).unwrap();
    let mut spool = Breaking { bytes: Vec::new(), good: 2, bad: 9 };
    let claim = claimed(&mut server, ClientId(2), &mut spool);
    let not_added = spoiled.add(claim, &mut spool).unwrap_err();
    assert_eq!(spoiled.save().unwrap_err(), Refusal::Spoiled);
    let mut good = server.accumulator();
    let twin = Accumulator::restore(&good.save().unwrap()).unwrap();
    assert_eq!(good.merge(spoiled).unwrap_err(), Refusal::Spoiled);
    assert_eq!(server.merge(twin), Ok(()), "nothing is nothing");
    server.give_back(not_added.claim).unwrap();
    inputs.iter().filter(|(id, _)| id.0 > 1).for_each(|(id, bytes)| server.receive(*id, bytes).unwrap());
    assert_eq!(finish(server, devices), plain_sum(&terms, 0..7));
}

/// A disk that fails takes a partial sum with it, and no input: the round takes them back, and they are let in again.
#[test]
fn what_was_in_a_spoiled_sum_is_let_in_again() {
    let terms = Terms { dimension: 600_000, ..seven() };
    let (mut server, devices, inputs) = masked(terms, 12);
    let mut sum = server.accumulator();
    for (id, bad) in [(0, 0), (1, 0), (2, 9)] {
        let mut spool = Breaking { bytes: Vec::new(), good: 2, bad };
        let mut upload = server.upload(ClientId(id)).unwrap();
        upload.push(&inputs[&ClientId(id)], &mut spool).unwrap();
        let claim = server.claim(upload).unwrap();
        if let Err(not_added) = sum.add(claim, &mut spool) {
            server.give_back(not_added.claim).unwrap();
        }
    }
    assert_eq!((sum.len(), sum.save().unwrap_err()), (2, Refusal::Spoiled));
    assert_eq!(server.upload(ClientId(0)).unwrap_err(), Refusal::Repeated(ClientId(0)));
    server.discard(sum).unwrap();
    inputs.iter().for_each(|(id, bytes)| server.receive(*id, bytes).unwrap());
    assert_eq!(finish(server, devices), plain_sum(&terms, 0..7));
}

/// A server that was restored has the same session as the one that fell over; what the one let in is not the other's.
#[test]
fn claims_of_another_life_count_nothing_twice() {
    let (mut server, devices, inputs) = masked(seven(), 13);
    let mut twin = CollectMasked::restore(&server.save()).unwrap();
    let zero = ClientId(0);
    let whole = |server: &mut CollectMasked, spool: &mut Vec<u8>| {
        let mut upload = server.upload(zero).unwrap();
        upload.push(&inputs[&zero], spool).unwrap();
        server.claim(upload).unwrap()
    };
    let (mut spool, mut other_spool) = (Vec::new(), Vec::new());
    let (theirs, ours) = (whole(&mut twin, &mut spool), whole(&mut server, &mut other_spool));
    let mut sum = server.accumulator();
    sum.add(ours, &mut other_spool).unwrap();
    let not_added = sum.add(theirs, &mut spool).unwrap_err();
    assert_eq!(not_added.why, Refusal::Merged { position: 0 });
    server.merge(sum).unwrap();
    assert_eq!(server.give_back(not_added.claim).unwrap_err(), Refusal::Merged { position: 0 });
    assert_eq!(server.receive(zero, &inputs[&zero]), Err(Refusal::Repeated(zero)));
    // Nor is anything of another round.
    let (mut foreign, ..) = masked(seven(), 14);
    let (mut upload, mut spool) = (foreign.upload(zero).unwrap(), Vec::new());
    let bytes = masked(seven(), 14).2.remove(&zero).unwrap();
    upload.push(&bytes, &mut spool).unwrap();
    let claim = foreign.claim(upload).unwrap();
    let not_added = server.accumulator().add(claim, &mut spool).unwrap_err();
    assert_eq!(not_added.why, Refusal::OtherSession);
    assert_eq!(server.give_back(not_added.claim).unwrap_err(), Refusal::OtherSession);
    assert_eq!(server.accumulator().merge(foreign.accumulator()).unwrap_err(), Refusal::OtherSession);
    assert_eq!(server.discard(foreign.accumulator()).unwrap_err(), Refusal::OtherSession);
    inputs.iter().filter(|(id, _)| id.0 > 0).for_each(|(id, bytes)| server.receive(*id, bytes).unwrap());
    assert_eq!(finish(server, devices), plain_sum(&seven(), 0..7));
}

/// One wrong share among just enough makes a secret that does not check. Whoever asks first can wait for more shares, with which
/// the wrong one is told.
#[test]
fn a_wrong_share_among_just_enough_is_waited_out() {
    let terms = terms(60, Adversary::Curious);
    let (mut server, mut devices) = shared(terms, Connect::Found, 15);
    let neighbours = story::neighbours(&server);
    assert!(neighbours.len() == 60);
    server = CollectShares::restore(&server.save()).unwrap();
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, honestly);
    let mut server = server.close().unwrap().close().unwrap();
    let mut refused = 0;
    for (id, device) in &mut devices {
        let mut response = UnmaskResponse::decode(&device.answer(&server.request(*id).unwrap()).unwrap()).unwrap();
        if id.0 == 0 {
            response.opened.iter_mut().for_each(|opened| {
                if let Opened::SelfSeed(share) = opened {
                    share[4] ^= 1;
                }
            });
        }
        server.receive(*id, &response.encode()).unwrap();
        if server.can_close().is_ok() && server.check_secrets(&Serial).is_err() {
            refused += 1;
        }
    }
    assert!(refused > 0, "there was a moment at which closing would have lost the round");
    assert_eq!(server.check_secrets(&Serial), Ok(()));
    let outcome = server.close(&Serial).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&terms, 0..60));
}

#[test]
fn a_neighbourhood_of_another_attempt_is_ignored() {
    let (old, _) = shared(seven(), SEVEN, 16);
    let late = old.neighbourhood(ClientId(2)).unwrap();
    let new = CollectKeys::open(seven(), &mut SimulatedEntropy::from_seed(17)).unwrap();
    let (mut device, _) = story::Device::begin(*new.offer(), ClientId(2), 17);
    assert_eq!(device.receive(&late), Ok(Reply::Ignored(ClientError::OtherSession)));
}

/// Whoever is to sign and is gone is noticed when inputs are in, before anybody is asked.
#[test]
fn a_committee_without_a_quorum_ends_the_round_early() {
    let terms = terms(12, Adversary::SemiMalicious);
    let (server, mut devices) = shared(terms, Connect::Insecure { degree: 11, threshold: 7 }, 18);
    let mut server = server.close().unwrap();
    // Of twelve, two corrupted, eight must sign; seven are there. A quorum is all that is out of reach.
    mask(&mut server, &mut devices, &terms, |id: ClientId, bytes| (id.0 < 7).then_some(bytes));
    assert!(matches!(server.can_close(), Err(RoundFailure::OutOfReach { .. } | RoundFailure::NotAgreed { .. })));
    let (server, mut devices) = shared(terms, Connect::Insecure { degree: 11, threshold: 7 }, 18);
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, |id: ClientId, bytes| (id.0 < 8).then_some(bytes));
    assert_eq!(server.can_close(), Ok(()), "eight");
}

#[test]
fn an_upload_that_is_too_long_cut_or_anothers_is_refused() {
    let (mut server, _, inputs) = masked(seven(), 6);
    let (zero, one) = (ClientId(0), ClientId(1));
    assert_eq!(server.upload(ClientId(9)).unwrap_err(), Refusal::Stranger(ClientId(9)));
    let bytes = &inputs[&zero];
    let mut upload = server.upload(zero).unwrap();
    let mut spool = Vec::new();
    let long = upload.push(&[&bytes[..], &[0]].concat(), &mut spool).unwrap_err();
    assert!(matches!(long, Refusal::Length { .. }) && spool.is_empty());
    let mut upload = server.upload(zero).unwrap();
    upload.push(&bytes[..bytes.len() - 1], &mut spool).unwrap();
    let (expected, got) = (bytes.len(), bytes.len() - 1);
    assert_eq!(server.commit(upload, &mut spool).unwrap_err(), Refusal::Length { expected, got });
    let mut other = bytes.clone();
    other[5] ^= 1;
    let (mut upload, mut spool) = (server.upload(one).unwrap(), Vec::new());
    upload.push(&other, &mut spool).unwrap();
    assert_eq!(server.commit(upload, &mut spool).unwrap_err(), Refusal::OtherSession);
    assert_eq!(server.arrived(), 0);
}

/// A round in which the server is saved, thrown away and restored between any two messages.
fn restarted(terms: Terms, connect: Connect, clients: u64) -> Vec<u32> {
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(7)).unwrap();
    let mut devices = Devices::new();
    for id in 0..clients {
        devices.extend(advertise(&mut server, id..id + 1, 7));
        server = CollectKeys::restore(&server.save()).unwrap();
    }
    let mut server = CollectShares::restore(&server.close(connect).unwrap().save()).unwrap();
    let mut some = |from: u64, to: u64, f: &mut dyn FnMut(&mut Devices)| {
        let mut part: Devices = devices.extract_if(ClientId(from)..ClientId(to), |_, _| true).collect();
        f(&mut part);
        devices.extend(part);
    };
    for id in 0..clients {
        some(id, id + 1, &mut |device| share(&mut server, device, honestly));
        server = CollectShares::restore(&server.save()).unwrap();
    }
    let mut server = CollectMasked::restore(&server.close().unwrap().save()).unwrap();
    for id in 0..clients - 1 {
        some(id, id + 1, &mut |device| mask(&mut server, device, &terms, honestly));
        server = CollectMasked::restore(&server.save()).unwrap();
    }
    let mut server = CollectAgreement::restore(&server.close().unwrap().save()).unwrap();
    for id in 0..clients - 1 {
        some(id, id + 1, &mut |device| agree(&mut server, device, honestly));
        server = CollectAgreement::restore(&server.save()).unwrap();
    }
    let mut server = server.close().unwrap();
    some(0, clients - 1, &mut |rest| unmask(&mut server, rest, honestly));
    server.close(&Serial).unwrap().sum.to_vec()
}

#[test]
fn a_server_that_falls_over_goes_on_with_its_round() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        let terms = terms(12, adversary);
        let connect = Connect::Insecure { degree: 11, threshold: 8 };
        assert_eq!(restarted(terms, connect, 12), plain_sum(&terms, 0..11), "{adversary}");
    }
}

/// All states of a round, as they are saved.
fn saved() -> Vec<Vec<u8>> {
    let terms = terms(7, Adversary::SemiMalicious);
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(8)).unwrap();
    let mut devices = advertise(&mut server, 0..7, 8);
    let mut all = vec![server.save()];
    let mut server = server.close(SEVEN).unwrap();
    share(&mut server, &mut devices, honestly);
    all.push(server.save());
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, |id: ClientId, bytes| (id.0 != 6).then_some(bytes));
    all.push(server.save());
    all.push(server.accumulator().save().unwrap());
    let mut server = server.close().unwrap();
    agree(&mut server, &mut devices, honestly);
    all.push(server.save());
    all
}

fn restores(bytes: &[u8]) -> [Result<(), WireError>; 5] {
    [
        CollectKeys::restore(bytes).map(drop),
        CollectShares::restore(bytes).map(drop),
        CollectMasked::restore(bytes).map(drop),
        Accumulator::restore(bytes).map(drop),
        CollectAgreement::restore(bytes).map(drop),
    ]
}

#[test]
fn what_was_saved_is_restored_as_what_it_was_and_as_nothing_else() {
    for (at, bytes) in saved().iter().enumerate() {
        for (as_what, restored) in restores(bytes).into_iter().enumerate() {
            match restored {
                Ok(()) => assert_eq!(as_what, at),
                Err(refused) => assert!(as_what != at && matches!(refused, WireError::Kind { .. }), "{refused}"),
            }
        }
    }
}

#[test]
fn what_was_cut_or_changed_is_not_restored() {
    for (at, bytes) in saved().iter().enumerate() {
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
            assert!(restores(&bytes[..end])[at].is_err(), "{at} cut at {end}");
        }
        for flipped in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
            let mut changed = bytes.clone();
            changed[flipped] ^= 1;
            assert!(restores(&changed)[at].is_err(), "{at} changed at {flipped}");
        }
    }
}

/// What `can_close` says is what `close` does, in every state.
#[test]
fn a_round_says_whether_it_can_go_on() {
    let terms = Terms { least_survivors: 5, ..terms(7, Adversary::SemiMalicious) };
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(9)).unwrap();
    let mut devices = advertise(&mut server, 0..4, 9);
    assert_eq!(server.can_close(), Err(RoundFailure::TooFew { got: 4, needed: 5 }));
    devices.extend(advertise(&mut server, 4..7, 9));
    assert_eq!(server.can_close(), Ok(()));
    let mut server = server.close(SEVEN).unwrap();
    let mut last = devices.split_off(&ClientId(4));
    share(&mut server, &mut devices, honestly);
    assert_eq!(
        server.can_close(),
        Err(RoundFailure::TooFew { got: 0, needed: 5 }),
        "three neighbours each are too few"
    );
    share(&mut server, &mut last, honestly);
    assert_eq!(server.can_close(), Ok(()));
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, honestly);
    assert_eq!(server.can_close(), Err(RoundFailure::TooFew { got: 4, needed: 5 }));
    mask(&mut server, &mut last, &terms, honestly);
    assert_eq!(server.can_close(), Ok(()));
    let mut server = server.close().unwrap();
    agree(&mut server, &mut devices, honestly);
    assert_eq!(server.can_close(), Err(RoundFailure::NotAgreed { got: 4, needed: 5 }));
    agree(&mut server, &mut last, honestly);
    assert_eq!(server.can_close(), Ok(()));
    let mut server = server.close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    assert!(matches!(server.can_close(), Err(RoundFailure::OutOfReach { got: 3, needed: 4, .. })));
    unmask(&mut server, &mut last, honestly);
    assert_eq!(server.can_close(), Ok(()));
    assert_eq!(*server.close(&Serial).unwrap().sum, plain_sum(&terms, 0..7));
}

/// Above 300 clients a committee signs, and whoever is not in it is never asked to.
#[test]
fn a_committee_signs_for_everybody() {
    const N: u32 = 320;
    let assumptions = Assumptions::new(0.05, 0.05, Adversary::SemiMalicious);
    let terms = Terms { assumptions, ..terms(N, Adversary::SemiMalicious) };
    let mut server = CollectKeys::open(terms, &mut SimulatedEntropy::from_seed(10)).unwrap();
    let mut devices = advertise(&mut server, 0..N.into(), 10);
    let mut server = server.close(Connect::Found).unwrap();
    let committee = server.parameters().committee().unwrap();
    assert!(committee.size < N, "{committee:?}");
    share(&mut server, &mut devices, honestly);
    let mut server = server.close().unwrap();
    mask(&mut server, &mut devices, &terms, |id: ClientId, bytes| (id.0 % 40 != 3).then_some(bytes));
    let mut server = server.close().unwrap();
    assert!(server.clients().count() <= committee.size as usize);
    let members: Vec<ClientId> = server.clients().collect();
    let outsider = *devices.keys().find(|id| !members.contains(id)).unwrap();
    assert!(server.view(outsider).is_none());
    let signature = devices.get_mut(&members[0]).unwrap().answer(&server.view(members[0]).unwrap()).unwrap();
    assert_eq!(server.receive(outsider, &signature), Err(Refusal::Stranger(outsider)));
    assert_eq!(server.receive(members[1], &signature), Err(Refusal::Signature(members[1])), "another's");
    assert_eq!(devices.get_mut(&members[0]).unwrap().answer(&server.view(members[0]).unwrap()), Ok(signature), "again");
    // A quorum is enough: the others are in the sum, and are asked like everybody.
    let mut left = committee.quorum;
    let mut signing: Devices = devices.extract_if(.., |id, _| members.contains(id)).collect();
    let mut silent = Devices::new();
    while let Some((id, device)) = signing.pop_first() {
        let mut one = Devices::from([(id, device)]);
        if left > 0 {
            agree(&mut server, &mut one, honestly);
            left -= 1;
        }
        silent.extend(one);
    }
    devices.extend(silent);
    let mut server = server.close().unwrap();
    unmask(&mut server, &mut devices, honestly);
    let outcome = server.close(&Serial).unwrap();
    assert_eq!(*outcome.sum, plain_sum(&terms, (0..N.into()).filter(|id| id % 40 != 3)));
}

/// What a client says before its vector tells nothing of the vector's length but what the offer says.
#[test]
fn every_masked_input_of_a_round_has_one_length() {
    let (_, _, inputs) = masked(seven(), 11);
    let lengths: Vec<usize> = inputs.values().map(Vec::len).collect();
    assert!(lengths.iter().all(|l| *l == lengths[0]));
    assert!(inputs.values().all(|bytes| MaskedInput::decode(bytes).is_ok()));
}

/// The transport's number of a client is nobody's business: no message has it, and no two rounds have a pseudonym in common.
#[test]
fn nobody_is_known_by_the_servers_number() {
    let number = 0x1122_3344_5566_7788_u64;
    let mut told = Vec::new();
    for round in 0..2 {
        let mut server =
            CollectKeys::open(Terms { round, ..seven() }, &mut SimulatedEntropy::from_seed(12 + round)).unwrap();
        let mut entropy = keyhush_secagg::entropy::OsEntropy;
        for id in 0..7 {
            let begun = keyhush_secagg::client::Client::begin(
                *server.offer(),
                keyhush_secagg::parameters::Floor::none(),
                &Everybody,
                &mut entropy,
            );
            server.receive(ClientId(number + id), &begun.unwrap().1, &Everybody).unwrap();
        }
        let server = server.close(SEVEN).unwrap();
        let message = server.neighbourhood(ClientId(number)).unwrap();
        assert!(!message.windows(6).any(|w| w == &number.to_le_bytes()[2..] || w == &number.to_be_bytes()[..6]));
        told.push(keyhush_secagg::message::Neighbourhood::decode(&message).unwrap());
    }
    let pseudonyms = |at: usize| told[at].members.iter().map(|m| m.pseudonym);
    assert!(pseudonyms(0).all(|one| pseudonyms(1).all(|other| one != other)));
    assert!(told.iter().all(|t| t.members.is_sorted_by(|a, b| a.pseudonym < b.pseudonym)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any bytes, with a digest that fits them, are restored or refused.
    #[test]
    fn any_state_that_somebody_made_up_is_restored_or_refused(
        which in 0..5_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..4),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let bytes = &SAVED[which];
        let mut body = bytes[..bytes.len() - 32].to_vec();
        for (at, number) in damage {
            let at = 3 + at.index((body.len() - 7).min(600));
            body[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        if cuts {
            body.truncate(3 + cut.index(body.len() - 3));
        }
        let digest = story::hostile::sha256(&[b"keyhush secagg saved v2", &body]);
        let _ = restores(&[&body[..], &digest].concat());
    }
}

static SAVED: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(saved);
