//! The graph of neighbours: a random ring where each client is next to k/2 on either side, or the complete graph; and the choice of the
//! committee.
//!
//! The ring (a Harary graph) follows from a seed, and everybody who knows the seed can draw it: the keystream of
//! AES-256 in counter mode (64 bits, little-endian, from zero) with the seed as the key, read as little-endian 32-bit
//! words, decides a Fisher-Yates shuffle from the last place to the second. A committee of m are the first m places of
//! such a shuffle with a seed of its own.

use aes::Aes256;
use ctr::cipher::{KeyIvInit, StreamCipher};

use crate::parameters::Parameters;

/// The graph of a round. Clients are known by their position, from 0 to n - 1.
#[derive(Debug, Clone)]
pub struct Graph {
    clients: u32,
    degree: u32,
    /// Nothing when everybody is everybody's neighbour.
    ring: Option<Ring>,
}

/// The positions of a committee of so many of the clients, in ascending order.
#[must_use]
pub fn committee(clients: u32, size: u32, seed: &[u8; 32]) -> Vec<u32> {
    let mut members = if size < clients { shuffled(clients, seed) } else { (0..clients).collect() };
    members.truncate(size as usize);
    members.sort_unstable();
    members
}

/// All positions, in an order that follows from a seed.
fn shuffled(clients: u32, seed: &[u8; 32]) -> Vec<u32> {
    let mut words = Words::new(seed);
    let mut positions: Vec<u32> = (0..clients).collect();
    for last in (1..positions.len()).rev() {
        // No place is beyond the largest u32: there are so many clients at most.
        let other = words.below(last as u32 + 1);
        positions.swap(last, other as usize);
    }
    positions
}

/// A permutation and its inverse.
#[derive(Debug, Clone)]
struct Ring {
    /// Who sits at each place.
    positions: Vec<u32>,
    /// The position of each client.
    places: Vec<u32>,
}

impl Graph {
    /// The graph that follows from a seed.
    #[must_use]
    pub fn new(parameters: &Parameters, permutation_seed: &[u8; 32]) -> Self {
        let clients = parameters.clients();
        let ring = (!parameters.is_complete()).then(|| Ring::new(clients, permutation_seed));
        Self { clients, degree: parameters.degree(), ring }
    }

    /// n: clients.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// k: neighbours of each client.
    #[must_use]
    pub fn degree(&self) -> u32 {
        self.degree
    }

    /// The neighbours of a client in ascending order. Who is not in the round has none.
    #[must_use]
    pub fn neighbours(&self, position: u32) -> Vec<u32> {
        let mut neighbours: Vec<u32> = self.around(position).collect();
        neighbours.sort_unstable();
        neighbours
    }

    /// Which of the neighbours of `of`, in ascending order and from 0, `neighbour` is; nothing if it is none.
    #[must_use]
    pub fn slot(&self, of: u32, neighbour: u32) -> Option<usize> {
        self.are_neighbours(of, neighbour).then(|| self.around(of).filter(|&other| other < neighbour).count())
    }

    /// Who sits where on the ring; a complete graph has no order, and any will do.
    #[cfg(test)]
    pub(crate) fn order(&self) -> Vec<u32> {
        self.ring.as_ref().map_or_else(|| (0..self.clients).collect(), |ring| ring.positions.clone())
    }

    /// Whether two clients are neighbours. Nobody is its own, and who is not in the round is nobody's.
    #[must_use]
    pub fn are_neighbours(&self, one: u32, other: u32) -> bool {
        if one == other || one >= self.clients || other >= self.clients {
            return false;
        }
        self.ring.as_ref().is_none_or(|ring| {
            let distance = ring.places[one as usize].abs_diff(ring.places[other as usize]);
            distance.min(self.clients - distance) <= self.degree / 2
        })
    }

    /// The neighbours of a client in any order: to count them costs nothing more.
    pub(crate) fn around(&self, position: u32) -> impl Iterator<Item = u32> {
        let known = position < self.clients;
        let others = self.ring.is_none() && known;
        let everybody = (0..if others { self.clients } else { 0 }).filter(move |other| *other != position);
        let ring = self.ring.as_ref().filter(|_| known);
        everybody.chain(ring.into_iter().flat_map(move |ring| ring.around(position, self.degree / 2)))
    }
}

impl Ring {
    fn new(clients: u32, seed: &[u8; 32]) -> Self {
        let positions = shuffled(clients, seed);
        let mut places = vec![0; positions.len()];
        for (place, position) in (0..).zip(&positions) {
            places[*position as usize] = place;
        }
        Self { positions, places }
    }

    /// Those at most so far away on either side.
    fn around(&self, position: u32, reach: u32) -> impl Iterator<Item = u32> {
        let (size, place) = (self.positions.len(), self.places[position as usize] as usize);
        let at = move |place: usize| self.positions[place % size];
        (1..=reach as usize).flat_map(move |distance| [at(place + distance), at(place + size - distance)])
    }
}

/// The words of a keystream.
struct Words {
    keystream: ctr::Ctr64LE<Aes256>,
    block: [u8; 256],
    used: usize,
}

impl Words {
    fn new(seed: &[u8; 32]) -> Self {
        Self { keystream: ctr::Ctr64LE::new(seed.into(), &[0; 16].into()), block: [0; 256], used: 256 }
    }

    fn next(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.keystream.write_keystream(&mut self.block);
            self.used = 0;
        }
        let word = self.block[self.used..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        self.used += 4;
        word
    }

    /// A number below `bound`, all with the same chance.
    fn below(&mut self, bound: u32) -> u32 {
        loop {
            if let Some(number) = fair(self.next(), bound) {
                return number;
            }
        }
    }
}

/// A word as a number below `bound`; the few largest words, which would make small numbers likelier, are none.
fn fair(word: u32, bound: u32) -> Option<u32> {
    let most = u64::from(u32::MAX) + 1;
    let whole = most - most % u64::from(bound);
    (u64::from(word) < whole).then(|| word % bound)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::parameters::{Adversary, Assumptions};

    fn graph(clients: u32, degree: u32, seed: u8) -> Graph {
        Graph::new(&Parameters::insecure(clients, degree, 2).unwrap(), &[seed; 32])
    }

    /// Sizes and degrees: rings, rings with all but one, complete graphs with odd and even degree.
    const SHAPES: [(u32, u32); 12] =
        [(3, 2), (4, 2), (4, 3), (5, 2), (5, 4), (6, 4), (6, 5), (7, 6), (64, 62), (64, 63), (65, 64), (1000, 78)];

    #[test]
    fn everybody_has_the_degree_and_is_a_neighbour_of_its_neighbours() {
        for (n, k) in SHAPES {
            let graph = graph(n, k, 1);
            assert_eq!((graph.clients(), graph.degree()), (n, k));
            for i in 0..n {
                let neighbours = graph.neighbours(i);
                assert_eq!(neighbours.len(), k as usize, "{n} {k}");
                assert!(neighbours.is_sorted_by(|a, b| a < b) && neighbours.iter().all(|j| *j < n && *j != i));
                for j in 0..n {
                    let slot = neighbours.binary_search(&j).ok();
                    assert_eq!(graph.slot(i, j), slot, "{n} {k}: {i} {j}");
                    assert_eq!(graph.are_neighbours(i, j), slot.is_some());
                    assert_eq!(graph.are_neighbours(j, i), slot.is_some());
                }
            }
        }
    }

    #[test]
    fn who_is_not_in_the_round_has_no_neighbours() {
        for (n, k) in SHAPES {
            let graph = graph(n, k, 1);
            for stranger in [n, n + 1, u32::MAX] {
                assert!(graph.neighbours(stranger).is_empty());
                for known in [0, n - 1] {
                    assert_eq!((graph.slot(stranger, known), graph.slot(known, stranger)), (None, None));
                    assert!(!graph.are_neighbours(stranger, known) && !graph.are_neighbours(known, stranger));
                }
                assert!(!graph.are_neighbours(stranger, stranger));
            }
        }
    }

    #[test]
    fn the_graph_is_connected() {
        for (n, k) in SHAPES {
            let graph = graph(n, k, 9);
            let mut reached = BTreeSet::from([0]);
            let mut waiting = vec![0];
            while let Some(i) = waiting.pop() {
                waiting.extend(graph.neighbours(i).into_iter().filter(|j| reached.insert(*j)));
            }
            assert_eq!(reached.len(), n as usize);
        }
    }

    #[test]
    fn the_ring_is_a_permutation_and_its_inverse() {
        for n in [2, 3, 10, 63, 64, 65, 6500] {
            let ring = Ring::new(n, &[5; 32]);
            let mut sorted = ring.positions.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..n));
            assert!((0..n).all(|i| ring.positions[ring.places[i as usize] as usize] == i));
        }
    }

    #[test]
    fn a_seed_gives_one_ring_for_ever() {
        // Made by another program, from AES-256 on blocks that it counted itself: see the head of this module.
        let seed: [u8; 32] = std::array::from_fn(|i| i as u8);
        assert_eq!(Ring::new(20, &seed).positions, GOLDEN_20);
        let sum = |ring: &Ring| (1..).zip(&ring.positions).map(|(i, p): (u64, _)| i * u64::from(*p)).sum::<u64>();
        assert_eq!(sum(&Ring::new(1000, &seed)), GOLDEN_1000);
    }

    const GOLDEN_20: [u32; 20] = [19, 11, 2, 8, 9, 15, 16, 0, 12, 17, 10, 13, 1, 14, 6, 7, 4, 3, 5, 18];
    const GOLDEN_1000: u64 = 248_200_728;

    #[test]
    fn other_seeds_give_other_rings() {
        let rings: BTreeSet<Vec<u32>> = (0..200).map(|seed| Ring::new(50, &[seed; 32]).positions).collect();
        assert_eq!(rings.len(), 200);
        let mut last = [0; 32];
        last[31] = 1;
        assert_ne!(Ring::new(50, &[0; 32]).positions, Ring::new(50, &last).positions);
        let neighbours = |seed| graph(1000, 78, seed).neighbours(0);
        assert_ne!(neighbours(0), neighbours(1));
    }

    #[test]
    fn every_client_is_as_likely_at_every_place() {
        const N: usize = 16;
        let rounds = 32_000_u32;
        let mut counts = [[0_u32; N]; N];
        for round in 0..rounds {
            let mut seed = [0; 32];
            seed[..4].copy_from_slice(&round.to_le_bytes());
            for (position, place) in Ring::new(N as u32, &seed).places.into_iter().enumerate() {
                counts[position][place as usize] += 1;
            }
        }
        let expected = f64::from(rounds) / N as f64;
        for places in counts {
            let chi_square: f64 = places.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
            // 15 degrees of freedom: above 52 once in 200,000, and below 1 as rarely.
            assert!((1.0..52.0).contains(&chi_square), "{chi_square}");
        }
    }

    #[test]
    fn every_order_is_as_likely() {
        let rounds = 24_000_u32;
        let mut counts = std::collections::BTreeMap::new();
        for round in 0..rounds {
            let mut seed = [1; 32];
            seed[..4].copy_from_slice(&round.to_le_bytes());
            *counts.entry(Ring::new(4, &seed).positions).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        let chi_square: f64 = counts.values().map(|c| (f64::from(*c) - 1000.0).powi(2) / 1000.0).sum();
        // 23 degrees of freedom: above 66 once in 200,000.
        assert!((3.0..66.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn a_committee_is_so_many_of_the_clients_and_all_are_as_likely() {
        assert_eq!(committee(5, 5, &[1; 32]), [0, 1, 2, 3, 4]);
        let mut times = [0_u32; 20];
        for round in 0..4_000_u32 {
            let mut seed = [2; 32];
            seed[..4].copy_from_slice(&round.to_le_bytes());
            let members = committee(20, 7, &seed);
            assert!(members.len() == 7 && members.is_sorted_by(|a, b| a < b) && members[6] < 20);
            members.into_iter().for_each(|m| times[m as usize] += 1);
        }
        // 1,400 each, with a standard deviation of 30.
        assert!(times.iter().all(|t| (1_240..1_560).contains(t)), "{times:?}");
    }

    #[test]
    fn words_that_would_favour_small_numbers_are_passed_over() {
        assert_eq!(fair(u32::MAX, 3), None);
        assert_eq!(fair(u32::MAX - 1, 3), Some(2));
        assert_eq!(fair(u32::MAX, 1 << 16), Some(0xffff));
        assert_eq!(fair(u32::MAX, 1), Some(0));
        // Of the words, 2^32 - 1 = 4294967295 = 1000 * 4294967 + 295: the last 296 are none.
        assert_eq!(fair(4_294_966_999, 1000), Some(999));
        assert_eq!(fair(4_294_967_000, 1000), None);
        assert_eq!(fair(0xbfff_ffff, 0xc000_0000), Some(0xbfff_ffff));
        assert_eq!(fair(0xc000_0000, 0xc000_0000), None);
    }

    #[test]
    fn found_parameters_make_a_graph() {
        for n in [3, 10, 65, 300] {
            for adversary in [Adversary::Curious, Adversary::SemiMalicious] {
                let parameters = Parameters::find(n, &Assumptions::new(0.05, 0.1, adversary)).unwrap();
                let graph = Graph::new(&parameters, &[2; 32]);
                assert!((0..n).all(|i| graph.neighbours(i).len() == parameters.degree() as usize));
            }
        }
    }

    proptest! {
        #[test]
        fn slots_are_the_neighbours_in_order(
            n in 4_u32..300,
            half in 1_u32..150,
            seed in any::<[u8; 32]>(),
            of in any::<u32>(),
        ) {
            let degree = (2 * half).min(n - 1);
            let graph = Graph::new(&Parameters::insecure(n, degree, 2).unwrap(), &seed);
            let of = of % n;
            for (slot, neighbour) in graph.neighbours(of).into_iter().enumerate() {
                prop_assert_eq!(graph.slot(of, neighbour), Some(slot));
                prop_assert!(graph.slot(neighbour, of).is_some());
            }
        }
    }
}
