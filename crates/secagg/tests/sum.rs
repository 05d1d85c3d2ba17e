//! The sum is exact: bit-identical to the plain sum of the survivors, wherever clients vanish.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::story::{POINTS, Vanishes, plain_sum, promising_nothing, round, survivors, terms};
use keyhush_secagg::{
    ClientId,
    parameters::{Adversary, Assumptions, Parameters},
    server::{Connect, RoundFailure},
    session::{Inputs, Terms},
};
use proptest::prelude::*;

fn assert_exact(terms: Terms, connect: Connect, vanishes: &[Vanishes], seed: u64) {
    let outcome = round(terms, connect, vanishes, seed).unwrap();
    assert_eq!(outcome.survivors, survivors(vanishes).map(ClientId).collect::<Vec<_>>());
    assert_eq!(*outcome.sum, plain_sum(&terms, survivors(vanishes)));
    assert!(outcome.wrong_shares.is_empty() && outcome.complaints.is_empty());
}

#[test]
fn the_sum_of_everybody_is_the_plain_sum() {
    for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
        for clients in [20, 40, 130] {
            assert_exact(terms(clients, adversary), Connect::Found, &vec![Vanishes::Never; clients as usize], 1);
        }
    }
}

/// Every way in which at most two of seven can vanish, at each of the four points, in a complete graph.
#[test]
fn every_pattern_of_drop_outs_in_a_complete_graph() {
    let connect = Connect::Insecure { degree: 6, threshold: 4 };
    let mut patterns = 0;
    for (a, b) in (0..7).flat_map(|a| (a..7).map(move |b| (a, b))) {
        for (at_a, at_b) in POINTS.iter().flat_map(|a| POINTS.iter().map(move |b| (*a, *b))) {
            let mut vanishes = [Vanishes::Never; 7];
            (vanishes[a], vanishes[b]) = (at_a, at_b);
            // A directory of fewer than seven is connected as it can be.
            let there = vanishes.iter().filter(|v| **v > Vanishes::BeforeKeys).count() as u32;
            let connect = if there == 7 { connect } else { Connect::Insecure { degree: there - 1, threshold: 4 } };
            if there - 1 < 4 {
                continue;
            }
            assert_exact(terms(7, Adversary::Curious), connect, &vanishes, patterns);
            patterns += 1;
        }
    }
    assert_eq!(patterns, 28 * 16);
}

/// In a sparse graph, every pair of neighbours and strangers, at each of the four points.
#[test]
fn every_pair_of_drop_outs_in_a_sparse_graph() {
    let connect = Connect::Insecure { degree: 6, threshold: 3 };
    for b in 1..12 {
        for (at_a, at_b) in POINTS[1..].iter().flat_map(|a| POINTS[1..].iter().map(move |b| (*a, *b))) {
            let mut vanishes = [Vanishes::Never; 12];
            (vanishes[0], vanishes[b]) = (at_a, at_b);
            assert_exact(promising_nothing(12, Adversary::Curious), connect, &vanishes, b as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// With parameters as they are found, as many drop-outs as were planned for, anywhere.
    #[test]
    fn drop_outs_within_the_plan_do_not_matter(
        clients in 30u32..100, seed in any::<u32>(), semi in any::<bool>(),
        points in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4), 15),
    ) {
        let adversary = if semi { Adversary::SemiMalicious } else { Adversary::Curious };
        let mut vanishes = vec![Vanishes::Never; clients as usize];
        for (who, point) in points.iter().take(clients as usize / 10) {
            vanishes[who.index(clients as usize)] = POINTS[*point];
        }
        assert_exact(terms(clients, adversary), Connect::Found, &vanishes, seed.into());
    }
}

#[test]
fn below_the_least_number_no_sum_is_opened() {
    let terms = Terms { least_survivors: 28, ..terms(30, Adversary::Curious) };
    for (point, gone) in POINTS[..3].iter().flat_map(|p| [(*p, 2), (*p, 3)]) {
        let mut vanishes = vec![Vanishes::Never; 30];
        vanishes[..gone].fill(point);
        let outcome = round(terms, Connect::Found, &vanishes, 5);
        match gone {
            2 => assert_eq!(*outcome.unwrap().sum, plain_sum(&terms, survivors(&vanishes))),
            _ => assert_eq!(outcome.unwrap_err(), RoundFailure::TooFew { got: 27, needed: 28 }, "{point:?}"),
        }
    }
}

/// Exactly the threshold of answers is enough, one fewer is not; in a complete graph everybody holds a share of everybody.
#[test]
fn exactly_a_threshold_of_answers_is_enough() {
    let connect = Connect::Insecure { degree: 9, threshold: 5 };
    for (silent, enough) in [(4, true), (5, false)] {
        let mut vanishes = [Vanishes::Never; 10];
        vanishes[..silent].fill(Vanishes::BeforeUnmask);
        let outcome = round(terms(10, Adversary::Curious), connect, &vanishes, 6);
        // A survivor that answers holds no share of its own secret: it needs five others.
        match (enough, outcome) {
            (true, Ok(outcome)) => assert_eq!(outcome.survivors.len(), 10),
            (false, Err(RoundFailure::OutOfReach { got: 4, needed: 5, .. })) => {}
            (_, other) => panic!("{silent} silent: {other:?}"),
        }
    }
}

/// Drop-outs before their input that leave a secret out of reach are noticed before any share is asked for.
#[test]
fn a_secret_out_of_reach_fails_the_round_before_shares_are_opened() {
    let connect = Connect::Insecure { degree: 9, threshold: 8 };
    let mut vanishes = [Vanishes::Never; 10];
    vanishes[..2].fill(Vanishes::BeforeInput);
    let failure = round(terms(10, Adversary::Curious), connect, &vanishes, 7).unwrap_err();
    assert!(matches!(failure, RoundFailure::OutOfReach { got: 7, needed: 8, .. }), "{failure}");
}

/// The boundary of the modulus: all inputs at their largest.
#[test]
fn the_largest_sum_does_not_wrap() {
    for bits in [5, 19, 32] {
        let largest = ((1u64 << bits) / 31 - u64::from((1u64 << bits).is_multiple_of(31))) as u32;
        let inputs = Inputs::Bounded { largest };
        let terms = Terms { bits, inputs, dimension: 3, ..terms(31, Adversary::Curious) };
        assert!(terms.check().is_ok() && u64::from(largest) * 31 < 1 << bits);
        assert!(Terms { inputs: Inputs::Bounded { largest: largest + 1 }, ..terms }.check().is_err(), "{bits}");
        let outcome = round(terms, Connect::Found, &[Vanishes::Never; 31], 8).unwrap();
        assert_eq!(*outcome.sum, plain_sum(&terms, 0..31));
    }
}

/// One in eleven vanishes, at each of the four points.
fn one_in_eleven(clients: usize) -> Vec<Vanishes> {
    (0..clients).map(|i| if i.is_multiple_of(11) { POINTS[i / 11 % 4] } else { Vanishes::Never }).collect()
}

/// Hundreds of clients on a sparse ring; a thousand are in `scale.rs`.
#[test]
fn hundreds_of_clients() {
    let vanishes = one_in_eleven(500);
    assert_exact(terms(500, Adversary::Curious), Connect::Found, &vanishes, 9);
}

/// Above three hundred a committee signs for everybody: not all are asked to sign, and the sum is of all.
#[test]
fn hundreds_of_clients_with_a_committee() {
    let terms = Terms {
        assumptions: Assumptions::new(0.1, 0.05, Adversary::SemiMalicious),
        ..terms(320, Adversary::SemiMalicious)
    };
    let found = Parameters::find(320, &terms.assumptions).unwrap();
    let committee = found.committee().unwrap();
    assert!(!found.is_complete() && committee.size < 320 && committee.quorum < committee.size, "{found:?}");
    assert_exact(terms, Connect::Found, &one_in_eleven(320), 10);
}
