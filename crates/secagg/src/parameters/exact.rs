//! The same computations by exact counting, slowly: the reference for tests.

use super::{Adversary, Assumptions, GROUND_BITS};

/// The number of ways to choose `k` of `n`, for n up to 80.
pub(crate) fn choose(n: u32, k: u32) -> u128 {
    if k > n {
        return 0;
    }
    (0..u128::from(k)).fold(1, |ways, i| ways * (u128::from(n) - i) / (i + 1))
}

/// The number of ways to draw `drawn` of a population with more than `x` marked among them.
pub(crate) fn ways_above(population: u32, marked: u32, drawn: u32, x: u32) -> u128 {
    (x + 1..=drawn).map(|y| choose(marked, y) * choose(population - marked, drawn - y)).sum()
}

/// Whether `times * ways / all` is below 2^-bits. Just that is not, since the fast way leaves something to spare.
fn is_rare(times: u32, ways: u128, all: u128, bits: u32) -> bool {
    if ways == 0 {
        return true;
    }
    // What does not fit is far more than all ways.
    let scaled = ways.checked_mul(u128::from(times)).and_then(|w| w.checked_mul(1_u128.checked_shl(bits)?));
    scaled.is_some_and(|scaled| scaled < all)
}

/// Degree and threshold as SecAgg+ defines them, the smallest degree first; nothing when there are none.
pub(crate) fn find(n: u32, assumptions: &Assumptions) -> Option<(u32, u32)> {
    let (corrupted, dropped) = (assumptions.most_corrupted(n), assumptions.most_dropped(n));
    if corrupted + dropped + 2 > n {
        return None;
    }
    // All sign, where there are so few.
    if assumptions.adversary == Adversary::SemiMalicious && n - dropped < (n + corrupted) / 2 + 1 {
        return None;
    }
    let rings = (2..n - 1).step_by(2).filter_map(|k| ring_threshold(n, k, corrupted, dropped, assumptions));
    rings.chain(complete_threshold(n, corrupted, dropped, assumptions.adversary)).next()
}

fn ring_threshold(n: u32, k: u32, corrupted: u32, dropped: u32, assumptions: &Assumptions) -> Option<(u32, u32)> {
    let Assumptions { security_bits, failure_bits, adversary, .. } = *assumptions;
    let all = choose(n, k);
    // Twice the number of pairs of places against one more bit: no half is lost.
    let (twice_pairs, ground) = (n * (n - k - 1), if adversary == Adversary::Curious { 0 } else { GROUND_BITS });
    if !is_rare(twice_pairs, choose(corrupted + dropped, k), all, security_bits + ground) {
        return None;
    }
    let is_secret = |c| match adversary {
        Adversary::Curious => is_rare(n, ways_above(n, corrupted, k, c), all, security_bits + 1),
        Adversary::SemiMalicious => is_rare(twice_pairs, ways_above(n, corrupted, k, c), all, security_bits + ground),
    };
    let is_left = |t| is_rare(n, ways_above(n, dropped, k, k - t), all, failure_bits);
    (2..=k).map(|t| (k, t)).find(|&(_, t)| {
        // The corrupted neighbours with which a client is safe, from the definition.
        let safe = (0..=k).rfind(|&c| match adversary {
            Adversary::Curious => c < t,
            Adversary::SemiMalicious => k - c + 2 * c < 2 * t,
        });
        safe.is_some_and(is_secret) && is_left(t)
    })
}

fn complete_threshold(n: u32, corrupted: u32, dropped: u32, adversary: Adversary) -> Option<(u32, u32)> {
    let honest = n - 1 - corrupted;
    (2..n).map(|t| (n - 1, t)).find(|&(_, t)| {
        let secret = match adversary {
            Adversary::Curious => corrupted < t,
            Adversary::SemiMalicious => honest + 2 * corrupted < 2 * t,
        };
        secret && n - 1 - dropped.min(n - 1) >= t
    })
}
