//! What the fuzzer begins with: for each target, inputs that it takes and inputs that it refuses.

use keyhush_secagg::{
    entropy::SimulatedEntropy,
    parameters::{Adversary, Assumptions, Parameters},
    shamir::deal,
};

use super::recorded::{FUZZED, RECORDED, offer};

/// The seeds of a target by their names. Those whose names begin with [`TAKEN`] are taken, the others refused.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let (taken, refused) = match target {
        "packing" => (vec![packed(1, 1), packed(5, 2)], vec![vec![33, 1, 0, 0]]),
        "parameters" => {
            let found = |clients, adversary| floor_and_parameters(clients, adversary, 0);
            let taken = vec![
                found(100, Adversary::Curious),
                found(10_000, Adversary::Curious),
                found(100, Adversary::SemiMalicious),
                found(1000, Adversary::SemiMalicious),
            ];
            // Where two stories could be signed.
            (taken, vec![vec![255; 45], floor_and_parameters(1000, Adversary::SemiMalicious, 1)])
        }
        "share" => (vec![shares(1, 1)[5..].to_vec()], vec![vec![255; 40]]),
        "shares_any" => (vec![shares(1, 1), shares(2, 4)], vec![shares(2, 1)]),
        "shares_dealt" => (vec![vec![2, 0], changed(2, 5, 2)], vec![changed(2, 5, 3)]),
        _ => {
            let message = message(target);
            let (cut, long) = (message[..message.len() * 2 / 3].to_vec(), [&message[..], &[0]].concat());
            // The vector of a masked input is the rest of its message, however long, until somebody knows its length.
            let refused = if target == "masked_input" { vec![cut[..35].to_vec()] } else { vec![cut, long] };
            (vec![message], refused)
        }
    };
    let name = |kind, all: Vec<Vec<u8>>| (1..).zip(all).map(move |(i, bytes)| (format!("{kind}-{i}"), bytes));
    name(TAKEN, taken).chain(name("refused", refused)).collect()
}

/// How the names of seeds that are taken begin.
pub(crate) const TAKEN: &str = "taken";

/// The message of the recorded round that a target decodes, or that its state waits for.
fn message(target: &str) -> Vec<u8> {
    let messages = match target {
        "offer" => return offer().encode(),
        "advertise_keys" | "server_keys" => &RECORDED.keys,
        "neighbourhood" | "client_neighbourhood" => &RECORDED.neighbourhoods,
        "share_keys" | "server_shares" => &RECORDED.shares,
        "delivery" | "client_delivery" => &RECORDED.deliveries,
        "masked_input" | "server_masked" => &RECORDED.masked,
        "view" | "client_view" => &RECORDED.views,
        "agreement" | "server_agreement" => &RECORDED.agreements,
        "unmask_request" | "client_unmask" => &RECORDED.requests,
        "unmask_response" | "server_unmask" => &RECORDED.responses,
        _ => panic!("the target {target} has no seeds: add them here"),
    };
    messages[&FUZZED].clone()
}

fn packed(bits: u8, blocks: u8) -> Vec<u8> {
    let len = 128 * usize::from(bits) * usize::from(blocks);
    [bits, blocks, 0].into_iter().chain((0..len).map(|i| (i * 37) as u8)).collect()
}

/// As the target reads them: what is found for so many clients, a quorum smaller by so many, and the floor that it meets.
fn floor_and_parameters(clients: u32, adversary: Adversary, fewer: u32) -> Vec<u8> {
    let assumptions = Assumptions::new(0.05, 0.1, adversary);
    let Assumptions { dropout, corrupted, security_bits, .. } = assumptions;
    let found = Parameters::find(clients, &assumptions).unwrap();
    let (size, quorum) = found.committee().map_or((0, 0), |c| (c.size, c.quorum - fewer));
    let numbers = [found.clients(), found.degree(), found.threshold(), size, quorum, clients];
    let fractions = [corrupted, dropout].map(f64::to_le_bytes).concat();
    let adversary = u8::from(adversary == Adversary::SemiMalicious);
    [&numbers.map(u32::to_le_bytes).concat()[..], &fractions, &security_bits.to_le_bytes(), &[adversary]].concat()
}

/// A threshold, and the shares of so many holders.
fn shares(threshold: u8, holders: u32) -> Vec<u8> {
    let most = usize::from(threshold).max(holders as usize);
    let dealt = deal(&[9; 32], threshold.into(), most, &mut SimulatedEntropy::from_seed(2)).unwrap();
    let numbered = (1..=holders).zip(&dealt);
    [threshold]
        .into_iter()
        .chain(numbered.flat_map(|(x, s)| [&x.to_le_bytes()[..], &s.to_bytes()[..]].concat()))
        .collect()
}

/// A threshold less one, how many more there are, and changes to the shares of the first few.
fn changed(threshold: u8, more: u8, holders: u8) -> Vec<u8> {
    let change = |holder: u8| [&[holder, holder][..], &1234u64.to_le_bytes()].concat();
    [threshold, more].into_iter().chain((0..holders).flat_map(change)).collect()
}
