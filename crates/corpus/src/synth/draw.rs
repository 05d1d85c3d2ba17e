//! Reproducible random draws: a ChaCha20 stream for each purpose and position, integers only.

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};

use super::{Dialect, SynthPlan};

/// What a stream is for; streams of different purposes are independent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// The profile of a user.
    Person = 1,
    /// What somebody types; one stream a user and post.
    Post = 2,
    /// The words of a canary.
    Canary = 3,
    /// Who holds a canary.
    Holders = 4,
    /// Where in a user's posts a canary stands.
    Planting = 5,
    /// The rarer words of the language.
    Lexicon = 6,
}

const BLOCK: usize = 256;

/// A stream of draws.
pub(super) struct Draws {
    cipher: ChaCha20,
    block: [u8; BLOCK],
    at: usize,
}

impl Draws {
    /// The stream of a purpose at a position.
    pub(super) fn new(seed: u64, purpose: Purpose, position: u64) -> Self {
        Self::keyed(seed, [purpose as u8, 0], position, 0)
    }

    /// The stream of a purpose for a user of a crowd, and a place within. Crowds of the two dialects have nobody in common,
    /// whatever their seeds: the one can be public text while the other is private.
    pub(super) fn of_user(plan: &SynthPlan, purpose: Purpose, user: u64, place: u32) -> Self {
        let dialect = match plan.dialect {
            Dialect::General => 1,
            Dialect::Informal => 2,
        };
        Self::keyed(plan.seed, [purpose as u8, dialect], user, place)
    }

    fn keyed(seed: u64, purpose: [u8; 2], position: u64, place: u32) -> Self {
        let mut key = *b"keyhush crowd 1         seed....";
        key[16..18].copy_from_slice(&purpose);
        key[20..24].copy_from_slice(&place.to_le_bytes());
        key[24..].copy_from_slice(&seed.to_le_bytes());
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&position.to_le_bytes());
        Self { cipher: ChaCha20::new(&key.into(), &nonce.into()), block: [0; BLOCK], at: BLOCK }
    }

    pub(super) fn word(&mut self) -> u32 {
        if self.at == BLOCK {
            self.block = [0; BLOCK];
            self.cipher.apply_keystream(&mut self.block);
            self.at = 0;
        }
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.block[self.at..self.at + 4]);
        self.at += 4;
        u32::from_le_bytes(bytes)
    }

    /// A number below `n`, or 0 for 0; its bias of at most n / 2^32 does not matter to a crowd.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.word()) * u64::from(n)) >> 32) as u32
    }

    /// A number below `n`, for populations that 32 bits do not count.
    pub(super) fn below_wide(&mut self, n: u64) -> u64 {
        let word = (u64::from(self.word()) << 32) | u64::from(self.word());
        ((u128::from(word) * u128::from(n)) >> 64) as u64
    }

    /// True this many times in a thousand.
    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille
    }

    /// One of several; the slice is never empty where this is called.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *self.one_of(from)
    }

    /// The same for what is not copied.
    pub(super) fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u32) as usize]
    }
}

/// Ranks with frequencies proportional to 1 / (rank + 2.7)^exponent (Mandelbrot's form of Zipf's law).
#[derive(Debug)]
pub(super) struct Zipf {
    cumulative: Vec<u32>,
}

impl Zipf {
    pub(super) fn new(ranks: usize, exponent: f64) -> Self {
        let weight = |rank: usize| (libm::pow(rank as f64 + 2.7, -exponent) * f64::from(1 << 22)) as u32 + 1;
        let mut sum = 0;
        let cumulative = (0..ranks).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self { cumulative: cumulative.collect() }
    }

    /// A rank, the first the likeliest.
    pub(super) fn draw(&self, draws: &mut Draws) -> usize {
        let point = draws.below(self.cumulative.last().copied().unwrap_or(0));
        self.cumulative.partition_point(|sum| *sum <= point)
    }
}
