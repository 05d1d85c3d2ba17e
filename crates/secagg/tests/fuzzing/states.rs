//! A client and a server of the recorded round, in each state, get arbitrary bytes where a message should come.

use std::cell::Cell;

use keyhush_secagg::{
    client::{Client, ClientError, Reply},
    directory::Everybody,
    message::{Agreement, Delivery, MaskedInput, ShareKeys, Survivors, UnmaskRequest, UnmaskResponse},
    server::{CollectAgreement, CollectKeys, CollectMasked, CollectShares, CollectUnmask, RoundFailure, Serial},
};

use super::recorded::{
    Device, FUZZED, RECORDED, begin, collect_agreement, collect_keys, collect_masked, collect_shares, collect_unmask,
    input, plain_sum, receive, survivors, take,
};

/// Bytes for a client that waits for its neighbourhood.
pub(crate) fn client_neighbourhood(bytes: &[u8]) -> bool {
    let (mut device, _) = begin(FUZZED);
    let reply = feed(&mut device, bytes);
    if let Some(reply) = &reply {
        assert!(ShareKeys::decode(sent(reply)).is_ok());
        assert!(matches!(device.client, Client::AwaitDelivery(_)));
    }
    reply.is_some()
}

/// Bytes for a client that waits for shares. Where it takes them it can mask.
pub(crate) fn client_delivery(bytes: &[u8]) -> bool {
    let mut device = await_delivery();
    let reply = feed(&mut device, bytes);
    if let Some(reply) = &reply {
        assert_eq!(*reply, Reply::Ready);
        assert!(matches!(device.client, Client::Ready(_)));
        assert_eq!(feed(&mut device, bytes), None, "once");
        let masked = device.client.mask(&input(FUZZED)).expect("a client that is ready masks");
        assert!(MaskedInput::decode(&masked).is_ok());
    }
    reply.is_some()
}

/// Bytes for a client that may be shown who dropped out. It signs one view, and again only that.
pub(crate) fn client_view(bytes: &[u8]) -> bool {
    let mut device = await_unmask();
    let signature = feed(&mut device, bytes).filter(|_| matches!(device.client, Client::AwaitUnmask(_)));
    if let Some(signature) = &signature {
        assert!(Agreement::decode(sent(signature)).is_ok());
        assert_eq!(feed(&mut device, bytes).as_ref(), Some(signature), "the same again");
        let recorded = device.client.receive(&RECORDED.views[&FUZZED], &Everybody, &mut device.entropy);
        if bytes == RECORDED.views[&FUZZED] {
            assert_eq!(recorded.as_ref(), Ok(signature));
        } else {
            assert_eq!(recorded, Err(ClientError::SecondView));
            assert_nothing_is_expected(&mut device, bytes);
        }
    }
    signature.is_some()
}

/// Bytes for a client that waits for the question who is alive, and has signed a view. It answers once, and to that view.
pub(crate) fn client_unmask(bytes: &[u8]) -> bool {
    let mut device = await_unmask();
    receive(&mut device, &RECORDED.views[&FUZZED]);
    let shares = feed(&mut device, bytes).filter(|_| matches!(device.client, Client::Done));
    if let Some(shares) = &shares {
        assert!(UnmaskResponse::decode(sent(shares)).is_ok());
        let request = UnmaskRequest::decode(bytes).expect("what was answered was a request");
        let Survivors::Agreed { view, .. } = request.survivors else { panic!("the server was taken at its word") };
        assert_eq!(view.encode(), RECORDED.views[&FUZZED]);
        assert_nothing_is_expected(&mut device, bytes);
    }
    shares.is_some()
}

fn sent(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Send(bytes) => bytes,
        other => panic!("no answer: {other:?}"),
    }
}

fn await_delivery() -> Device {
    let (mut device, _) = begin(FUZZED);
    receive(&mut device, &RECORDED.neighbourhoods[&FUZZED]);
    device
}

fn await_unmask() -> Device {
    let mut device = await_delivery();
    receive(&mut device, &RECORDED.deliveries[&FUZZED]);
    device.client.mask(&input(FUZZED)).expect("a client that is ready masks");
    device
}

/// What a client that takes the bytes does. One that does not has given up, unless they are none of its business.
fn feed(device: &mut Device, bytes: &[u8]) -> Option<Reply> {
    let before = std::mem::discriminant(&device.client);
    match device.client.receive(bytes, &Everybody, &mut device.entropy) {
        Ok(Reply::Ignored(_)) => {
            assert_eq!(std::mem::discriminant(&device.client), before, "what is ignored changes nothing");
            None
        }
        Ok(reply) => Some(reply),
        Err(_) => {
            assert!(matches!(device.client, Client::Aborted));
            assert_nothing_is_expected(device, bytes);
            None
        }
    }
}

fn assert_nothing_is_expected(device: &mut Device, bytes: &[u8]) {
    let answer = device.client.receive(bytes, &Everybody, &mut device.entropy);
    assert!(matches!(answer, Err(ClientError::Over(_))), "{answer:?}");
}

thread_local! {
    // What is refused changes nothing: a server that refused is there for the next bytes, since it takes long to build.
    static KEYS: Cell<Option<CollectKeys>> = const { Cell::new(None) };
    static SHARES: Cell<Option<CollectShares>> = const { Cell::new(None) };
    static MASKED: Cell<Option<CollectMasked>> = const { Cell::new(None) };
    static AGREEMENT: Cell<Option<CollectAgreement>> = const { Cell::new(None) };
    static UNMASK: Cell<Option<CollectUnmask>> = const { Cell::new(None) };
}

/// Bytes for a server that collects keys.
pub(crate) fn server_keys(bytes: &[u8]) -> bool {
    let mut server = KEYS.take().unwrap_or_else(|| collect_keys(&RECORDED, Some(FUZZED)));
    let before = server.arrived();
    let taken = server.receive(FUZZED, bytes, &Everybody).is_ok();
    assert_eq!(server.arrived(), before + usize::from(taken));
    if taken {
        assert!(server.receive(FUZZED, bytes, &Everybody).is_err(), "keys are taken once");
    } else {
        KEYS.set(Some(server));
    }
    taken
}

/// Bytes for a server that collects shares. It passes on whatever is sealed in them.
pub(crate) fn server_shares(bytes: &[u8]) -> bool {
    let mut server = SHARES.take().unwrap_or_else(|| collect_shares(&RECORDED, Some(FUZZED)));
    let before = server.arrived();
    let taken = server.receive(FUZZED, bytes).is_ok();
    assert_eq!(server.arrived(), before + usize::from(taken));
    if taken {
        assert!(server.receive(FUZZED, bytes).is_err(), "shares are taken once");
        let server = server.close().expect("enough have shared");
        for client in server.clients() {
            let delivery = server.delivery(client).expect("who shared gets what others shared");
            assert!(Delivery::decode(&delivery).is_ok());
        }
    } else {
        SHARES.set(Some(server));
    }
    taken
}

/// Bytes for a server that adds up masked inputs. The round ends with a sum of all who survived, or with none.
pub(crate) fn server_masked(bytes: &[u8]) -> bool {
    let mut server = MASKED.take().unwrap_or_else(|| collect_masked(&RECORDED, Some(FUZZED)));
    let before = server.arrived();
    let taken = server.receive(FUZZED, bytes).is_ok();
    assert_eq!(server.arrived(), before + usize::from(taken));
    if taken {
        assert!(server.receive(FUZZED, bytes).is_err(), "an input is taken once");
        let mut server = server.close().expect("shares of everybody are within reach");
        take(&RECORDED.agreements, Some(FUZZED), |id, signature| {
            server.receive(id, signature).expect("it was asked for")
        });
        let mut server = server.close().expect("a quorum has signed");
        take(&RECORDED.responses, Some(FUZZED), |id, response| server.receive(id, response).expect("it was asked for"));
        match server.close(&Serial) {
            Ok(outcome) => assert!(outcome.survivors.into_iter().eq(survivors())),
            Err(failure) => assert_eq!(failure, RoundFailure::NotCancelled),
        }
    } else {
        MASKED.set(Some(server));
    }
    taken
}

/// Bytes for a server that collects signatures. What it takes is signed; what it does not is as good as silence, and a
/// quorum of others is enough.
pub(crate) fn server_agreement(bytes: &[u8]) -> bool {
    let mut server = AGREEMENT.take().unwrap_or_else(|| collect_agreement(&RECORDED, Some(FUZZED)));
    let before = server.arrived();
    let taken = server.receive(FUZZED, bytes).is_ok();
    assert_eq!(server.arrived(), before + usize::from(taken));
    if taken {
        assert_eq!(bytes, RECORDED.agreements[&FUZZED], "there is one signature of a view");
        assert!(server.receive(FUZZED, bytes).is_err(), "signatures are taken once");
        let mut server = server.close().expect("a quorum has signed");
        for client in survivors() {
            let request = server.request(client).expect("survivors are asked");
            assert!(UnmaskRequest::decode(&request).is_ok());
        }
        take(&RECORDED.responses, None, |id, response| server.receive(id, response).expect("it was asked for"));
        assert_eq!(server.close(&Serial).map(|outcome| outcome.sum.to_vec()), Ok(plain_sum()));
    } else {
        assert_eq!(server.can_close(), Ok(()));
        AGREEMENT.set(Some(server));
    }
    taken
}

/// Bytes for a server that puts secrets together. Whatever shares one client sends, the sum is right, and nobody else
/// is blamed.
pub(crate) fn server_unmask(bytes: &[u8]) -> bool {
    let mut server = UNMASK.take().unwrap_or_else(|| collect_unmask(&RECORDED));
    let taken = server.receive(FUZZED, bytes).is_ok();
    assert_eq!(server.arrived(), usize::from(taken));
    if taken {
        assert!(server.receive(FUZZED, bytes).is_err(), "shares are taken once");
        take(&RECORDED.responses, Some(FUZZED), |id, response| server.receive(id, response).expect("it was asked for"));
        let outcome = server.close(&Serial).expect("one client's wrong shares are corrected");
        assert_eq!(*outcome.sum, plain_sum());
        assert!(outcome.wrong_shares.iter().all(|wrong| wrong.holder == FUZZED));
    } else {
        UNMASK.set(Some(server));
    }
    taken
}
