//! Secrets shared and put together: from any shares, from wrong ones, from too few; against a slow, obvious way.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{hint::black_box, time::Instant};

use keyhush_secagg::{
    entropy::{Entropy, NoRandomness, OsEntropy, SimulatedEntropy},
    shamir::{ShamirError, Share, correct, deal, reconstruct},
};
use proptest::{prelude::*, sample::subsequence};

const PRIME: u64 = (1 << 61) - 1;
const ZEROS: [u8; 32] = [0; 32];
const ONES: [u8; 32] = [0xff; 32];

/// The same byte for ever.
struct Constant(u8);

impl Entropy for Constant {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        buffer.fill(self.0);
        Ok(())
    }
}

fn dealt(secret: &[u8; 32], threshold: usize, holders: usize, seed: u64) -> Vec<Share> {
    deal(secret, threshold, holders, &mut SimulatedEntropy::from_seed(seed)).unwrap()
}

fn all(shares: &[Share]) -> Vec<(u32, &Share)> {
    (1..).zip(shares).collect()
}

fn numbers(share: &Share) -> [u64; 5] {
    let bytes = share.to_bytes();
    std::array::from_fn(|i| u64::from_le_bytes(bytes[i * 8..][..8].try_into().unwrap()))
}

fn share_of(numbers: [u64; 5]) -> Share {
    Share::from_bytes(&numbers.map(u64::to_le_bytes).concat()).unwrap()
}

/// The share with another number in one of its limbs.
fn tampered(share: &Share, limb: usize, by: u64) -> Share {
    let mut numbers = numbers(share);
    numbers[limb] = (numbers[limb] + by) % PRIME;
    share_of(numbers)
}

fn times(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

fn power(base: u64, exponent: u64) -> u64 {
    (0..61).rev().fold(1, |p, bit| times(times(p, p), if exponent >> bit & 1 == 1 { base } else { 1 }))
}

/// The limbs of the secret: Lagrange's formula at 0, word for word.
fn lagrange(shares: &[(u32, &Share)]) -> [u64; 5] {
    std::array::from_fn(|limb| {
        shares.iter().fold(0, |sum, &(x, share)| {
            let others = shares.iter().map(|&(other, _)| u64::from(other)).filter(|&other| other != x.into());
            let terms = others.map(|other| times(other, power((other + PRIME - u64::from(x)) % PRIME, PRIME - 2)));
            (sum + terms.fold(numbers(share)[limb], times)) % PRIME
        })
    })
}

/// The limbs of a secret, bit by bit.
fn limbs_of(secret: &[u8; 32]) -> [u64; 5] {
    let bit = |i: usize| u64::from(secret.get(i / 8).map_or(0, |byte| byte >> (i % 8) & 1));
    std::array::from_fn(|limb| (0..52).map(|i| bit(limb * 52 + i) << i).sum())
}

/// A threshold, the holders who answer, and the number of all holders.
fn answers() -> impl Strategy<Value = (usize, Vec<u32>, usize)> {
    (1..60usize).prop_flat_map(|holders| (1..=holders, Just(holders))).prop_flat_map(|(threshold, holders)| {
        let who: Vec<u32> = (1..=holders as u32).collect();
        (Just(threshold), subsequence(who, threshold..=holders).prop_shuffle(), Just(holders))
    })
}

proptest! {
    #[test]
    fn any_shares_from_the_threshold_on_give_the_secret(
        secret in any::<[u8; 32]>(), seed in any::<u64>(), (threshold, who, holders) in answers()
    ) {
        let shares = dealt(&secret, threshold, holders, seed);
        let given: Vec<_> = who.iter().map(|&x| (x, &shares[x as usize - 1])).collect();
        prop_assert_eq!(*reconstruct(&given, threshold).unwrap(), secret);
        prop_assert_eq!(lagrange(&given[..threshold]), limbs_of(&secret));
        let decoded = correct(&given, threshold).unwrap();
        prop_assert_eq!((*decoded.secret, decoded.wrong), (secret, vec![]));
    }

    #[test]
    fn wrong_shares_are_named_and_corrected_and_too_many_of_them_refused(
        secret in any::<[u8; 32]>(), seed in any::<u64>(), (threshold, who, holders) in answers(),
        changes in prop::collection::vec((0..5usize, 1..PRIME), 60),
    ) {
        let shares = dealt(&secret, threshold, holders, seed);
        let correctable = (who.len() - threshold) / 2;
        // Beyond half the surplus, up to all of it: with more, the right shares alone no longer determine anything.
        for count in 0..=who.len() - threshold {
            let changed: Vec<Share> = who.iter().zip(&changes).enumerate().map(|(i, (&x, &(limb, by)))| {
                let share = &shares[x as usize - 1];
                if i < count { tampered(share, limb, by) } else { share.clone() }
            }).collect();
            let given: Vec<_> = who.iter().copied().zip(&changed).collect();
            let result = correct(&given, threshold);
            if count <= correctable {
                let decoded = result.unwrap();
                prop_assert_eq!((&*decoded.secret, &decoded.wrong[..]), (&secret, &who[..count]));
            } else {
                let error = ShamirError::TooManyWrong { shares: who.len(), correctable };
                prop_assert_eq!(result.unwrap_err(), error);
            }
        }
    }

    #[test]
    fn bytes_are_a_share_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
        let numbers = bytes.chunks_exact(8).map(|n| u64::from_le_bytes(n.try_into().unwrap()));
        match Share::from_bytes(&bytes) {
            Ok(share) => prop_assert_eq!(&share.to_bytes()[..], &bytes[..]),
            Err(ShamirError::ShareLength(length)) => prop_assert!(length == bytes.len() && length != Share::SIZE),
            Err(error) => prop_assert!(error == ShamirError::OutsideField && numbers.max().unwrap() >= PRIME),
        }
    }
}

#[test]
fn every_threshold_works_for_every_number_of_holders() {
    for (secret, holders) in [ZEROS, ONES].into_iter().flat_map(|s| (1..=25).map(move |holders| (s, holders))) {
        for threshold in 1..=holders {
            let shares = dealt(&secret, threshold, holders, threshold as u64);
            assert_eq!(*reconstruct(&all(&shares), threshold).unwrap(), secret);
            assert_eq!(*reconstruct(&all(&shares)[holders - threshold..], threshold).unwrap(), secret);
        }
    }
}

#[test]
fn secrets_of_one_bit_come_back() {
    for bit in 0..256 {
        let mut secret = ZEROS;
        secret[bit / 8] = 1 << (bit % 8);
        assert_eq!(*reconstruct(&all(&dealt(&secret, 3, 5, 1)), 3).unwrap(), secret);
    }
}

/// Liars may spread over the limbs: each limb alone could be corrected, all together are too many.
#[test]
fn wrong_shares_are_counted_over_all_limbs_together() {
    let mut shares = dealt(&ONES, 5, 11, 1);
    for (limb, share) in shares[..4].iter_mut().enumerate() {
        *share = tampered(share, limb, 1);
    }
    let error = ShamirError::TooManyWrong { shares: 11, correctable: 3 };
    assert_eq!(correct(&all(&shares), 5).unwrap_err(), error);
    assert_eq!(correct(&all(&shares)[1..], 5).unwrap_err(), ShamirError::TooManyWrong { shares: 10, correctable: 2 });
    assert_eq!(correct(&all(&shares)[2..], 5).unwrap().wrong, [3, 4]);
}

/// Why the secret is to be compared with a commitment: holders 3 and 4 know share 1, and add `1 - x` to the line through it.
#[test]
fn liars_beyond_the_bound_who_know_other_shares_can_blame_the_honest() {
    let mut shares = dealt(&ZEROS, 2, 4, 1);
    shares[2] = tampered(&shares[2], 0, PRIME - 2);
    shares[3] = tampered(&shares[3], 0, PRIME - 3);
    let decoded = correct(&all(&shares), 2).unwrap();
    assert_eq!((decoded.secret[0], decoded.wrong), (1, vec![2]));
}

#[test]
fn the_largest_neighbourhood_is_corrected() {
    let (threshold, holders) = (236, 302);
    let mut shares = dealt(&ONES, threshold, holders, 1);
    shares[100..133].iter_mut().for_each(|share| *share = tampered(share, 3, 7));
    let decoded = correct(&all(&shares), threshold).unwrap();
    assert_eq!((*decoded.secret, decoded.wrong), (ONES, (101..=133).collect()));
    shares[0] = tampered(&shares[0], 0, 1);
    assert_eq!(
        correct(&all(&shares), threshold).unwrap_err(),
        ShamirError::TooManyWrong { shares: holders, correctable: 33 }
    );
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    let shares = dealt(&ONES, 3, 5, 1);
    let all = all(&shares);
    for put_together in [reconstruct, |shares: &[(u32, &Share)], t| correct(shares, t).map(|d| d.secret)] {
        let refused = |shares: &[_], threshold| put_together(shares, threshold).unwrap_err();
        let too_few = |shares| ShamirError::TooFewShares { shares, threshold: 3 };
        assert_eq!(refused(&all[..2], 3), too_few(2));
        assert_eq!(refused(&[], 3), too_few(0));
        assert_eq!(refused(&all, 0), ShamirError::Threshold { threshold: 0, holders: 5 });
        assert_eq!(refused(&[all[0], all[1], all[2], all[1]], 3), ShamirError::DuplicateHolder(2));
        assert_eq!(refused(&[all[1], all[2], (0, all[0].1)], 3), ShamirError::HolderZero);
        assert!(put_together(&all, 3).is_ok());
    }
}

#[test]
fn limbs_too_large_for_a_secret_are_refused() {
    let at_most = [52, 52, 52, 52, 48].map(|bits| (1u64 << bits) - 1);
    assert_eq!(*reconstruct(&[(1, &share_of(at_most))], 1).unwrap(), ONES);
    for limb in 0..5 {
        let above = tampered(&share_of(at_most), limb, 1);
        assert_eq!(reconstruct(&[(1, &above)], 1).unwrap_err(), ShamirError::NotASecret);
        assert_eq!(correct(&[(1, &above), (2, &above)], 1).unwrap_err(), ShamirError::NotASecret);
    }
}

#[test]
fn numbers_outside_the_field_are_refused() {
    for (limb, number) in (0..5).flat_map(|limb| [PRIME, PRIME + 1, u64::MAX].map(|n| (limb, n))) {
        let mut bytes = share_of([PRIME - 1; 5]).to_bytes().to_vec();
        bytes[limb * 8..][..8].copy_from_slice(&number.to_le_bytes());
        assert_eq!(Share::from_bytes(&bytes).unwrap_err(), ShamirError::OutsideField);
    }
    for length in [0, 8, 39, 41, 48, 80] {
        assert_eq!(Share::from_bytes(&vec![0; length]).unwrap_err(), ShamirError::ShareLength(length));
    }
}

#[test]
fn thresholds_that_do_not_exist_are_refused() {
    // A machine of 32 bits has no number for so many holders.
    let too_many = usize::try_from(1_u64 << 32).map(|holders| (1, holders));
    for (threshold, holders) in [(0, 0), (0, 5), (6, 5)].into_iter().chain(too_many) {
        let error = deal(&ONES, threshold, holders, &mut OsEntropy).unwrap_err();
        assert_eq!(error, ShamirError::Threshold { threshold, holders });
    }
}

/// Leaving out zero would tell something about the secret.
#[test]
fn coefficients_may_be_zero() {
    let shares = deal(&ONES, 4, 6, &mut Constant(0)).unwrap();
    assert!(shares.iter().all(|share| numbers(share) == limbs_of(&ONES)));
    assert_eq!(*reconstruct(&all(&shares), 4).unwrap(), ONES);
}

#[test]
fn broken_randomness_is_refused() {
    assert_eq!(deal(&ONES, 4, 6, &mut Constant(0xff)).unwrap_err(), ShamirError::StuckRandomness);
}

/// The first bytes make a number outside the field; those after them are good.
#[test]
fn numbers_outside_the_field_are_drawn_again() {
    struct OnceBad(bool);
    impl Entropy for OnceBad {
        fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
            let bad = std::mem::replace(&mut self.0, false);
            Constant(if bad { 0xff } else { 0 }).fill(buffer)
        }
    }
    let shares = deal(&ONES, 4, 6, &mut OnceBad(true)).unwrap();
    assert!(shares.iter().all(|share| numbers(share) == limbs_of(&ONES)));
}

#[test]
fn nothing_secret_is_shown() {
    let shares = dealt(&ONES, 2, 3, 1);
    assert_eq!(format!("{:?}", shares[0]), "Share");
    assert_eq!(format!("{:?}", correct(&all(&shares), 2).unwrap()), "Decoded { wrong: [], .. }");
}

/// How far the counts of two samples are apart: chi-square, and its degrees of freedom.
fn chi_square(a: &[u32], b: &[u32]) -> (f64, f64) {
    let cells = a.iter().zip(b).filter(|&(&a, &b)| a + b > 0);
    let terms: Vec<f64> = cells.map(|(&a, &b)| f64::from(a.abs_diff(b)).powi(2) / f64::from(a + b)).collect();
    (terms.iter().sum(), terms.len() as f64 - 1.0)
}

/// Deals two secrets many times and compares what the first holders see together: the low 3 bits of their shares of a limb.
fn secrets_look_different(threshold: usize, watchers: usize, limb: usize) -> bool {
    let seen = |secret, seed| {
        let mut entropy = SimulatedEntropy::from_seed(seed);
        let mut counts = vec![0; 1 << (3 * watchers)];
        for _ in 0..40_000 {
            let shares = deal(secret, threshold, threshold, &mut entropy).unwrap();
            let bits = shares[..watchers].iter().map(|share| (numbers(share)[limb] & 7) as usize);
            counts[bits.fold(0, |cell, bits| cell << 3 | bits)] += 1;
        }
        counts
    };
    let (statistic, degrees) = chi_square(&seen(&ZEROS, 1), &seen(&ONES, 2));
    statistic > degrees + 5.0 * (2.0 * degrees).sqrt()
}

#[test]
fn fewer_than_the_threshold_know_nothing() {
    for (threshold, limb) in (2..4).flat_map(|threshold| (0..5).map(move |limb| (threshold, limb))) {
        assert!(!secrets_look_different(threshold, threshold - 1, limb), "t = {threshold}, limb {limb}");
        assert!(secrets_look_different(threshold, threshold, limb), "this test sees nothing");
    }
}

/// What dealing and putting together cost; the numbers are printed:
/// `cargo test --release -p keyhush-secagg --test all shamir -- --ignored --nocapture`.
#[test]
#[ignore = "measures speed: meant for a release build"]
fn speed() {
    let microseconds = |work: &mut dyn FnMut()| {
        let once = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            (0..20).for_each(|_| work());
            start.elapsed().as_secs_f64() / 20.0 * 1e6
        };
        (0..20).map(|_| once(work)).fold(f64::INFINITY, f64::min)
    };
    for (threshold, holders) in [(29, 34), (60, 78), (70, 92), (87, 124), (143, 174), (236, 302)] {
        let shares = dealt(&ONES, threshold, holders, 1);
        let all = all(&shares);
        let mut bad = shares.clone();
        bad[..(holders - threshold) / 2].iter_mut().for_each(|share| *share = tampered(share, 2, 1));
        let bad: Vec<_> = (1..).zip(&bad).collect();
        let dealing = microseconds(&mut || drop(black_box(deal(&ONES, threshold, holders, &mut OsEntropy))));
        let joining = microseconds(&mut || drop(black_box(reconstruct(&all, threshold))));
        let correcting = microseconds(&mut || drop(black_box(correct(&bad, threshold))));
        println!(
            "t = {threshold}, k = {holders}: deal {dealing:.1} us, reconstruct {joining:.1} us, correct {correcting:.0} us"
        );
    }
}
