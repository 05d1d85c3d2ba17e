//! Encodes trained weights on the card: clip, round, check, and add up integers.
//!
//! The arithmetic is that of `privacy::stages` and `privacy::encoding`, coordinate by coordinate; only the order in which squares are
//! added up is another, which the bound on the norm allows for. Stochastic rounding draws the words of each user's own stream; what
//! rounding to nearest takes beyond the bound is rounded towards zero. A user whose integers keep every bound, checked exactly, is
//! accepted and added to the sum; the few others are left to the host.

use privacy::{
    encoding::{Encoding, GridRule},
    stages::ClipRule,
    workers::Workers,
};
use zeroize::Zeroizing;

use crate::{
    card::{Address, Arg, Card, Grid, Memory, Pinned},
    error::CudaError,
    held::{self, Held},
    network::Network,
    shape::Shape,
    source::{ENCODE, kernels},
};

/// Coordinates that a block adds up.
const TILE: usize = 4096;
/// How often stochastic rounding is drawn on the card before it is left to the host, which draws on. Of users at the clip norm three in
/// ten are drawn again each time, so the host, which takes as long for one as the card for all, sees one in a million.
const ATTEMPTS: u32 = 12;
/// To the nearest, and then towards zero.
const ATTEMPTS_TO_NEAREST: u32 = 2;
/// After so many attempts few users are left, and fewer threads do: most would only find that there is nothing to do.
const ATTEMPTS_OF_MANY: u32 = 3;
/// How many blocks a thread then has one after the other.
const BLOCKS_IN_TURN: usize = 16;

kernels! {
    /// The kernels from weights to integers.
    pub(crate) struct Kernels:
        place_model, broadcast, tile_norms, factors, project, round_coordinates, accept, again, add_integers,
        join_sums, differences
}

/// The parts of an update that have a bound each: all of it, or its layers.
struct Parts {
    lens: Vec<usize>,
    /// Tiles as `(start, len, part)`.
    tiles: Memory<u32>,
    count: usize,
    /// The end of each segment.
    ends: Memory<u32>,
    lengths: Memory<f64>,
    bounds: Memory<f64>,
    /// `[user][tile]`.
    norms: Memory<f64>,
    /// `[user][part]`.
    squared: Memory<f64>,
    factors: Memory<f64>,
}

impl Parts {
    fn new(card: &Card, lens: Vec<usize>, users: usize) -> Result<Self, CudaError> {
        let (mut tiles, mut ends, mut start) = (Vec::new(), Vec::new(), 0);
        for (part, len) in lens.iter().enumerate() {
            for at in (0..*len).step_by(TILE) {
                tiles.extend([(start + at) as u32, TILE.min(len - at) as u32, part as u32]);
            }
            start += len;
            ends.push(start as u32);
        }
        let count = tiles.len() / 3;
        let lengths: Vec<f64> = lens.iter().map(|len| *len as f64).collect();
        Ok(Self {
            tiles: card.copy_of(&tiles)?,
            count,
            ends: card.copy_of(&ends)?,
            lengths: card.copy_of(&lengths)?,
            bounds: card.zeros(lens.len())?,
            norms: card.zeros(users * count)?,
            squared: card.zeros(users * lens.len())?,
            factors: card.zeros(users * lens.len())?,
            lens,
        })
    }
}

/// What the card found out about a user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    /// The squared norm of the difference; not finite where training diverged.
    pub(crate) norm_squared: f64,
    /// The exact squared norm of the integers, where they keep every bound and are in the sum.
    pub(crate) accepted: Option<u64>,
    /// Whether greedy clipping moved anything.
    pub(crate) projected: bool,
}

/// Clips, rounds and adds up a chunk.
pub(crate) struct Encoder {
    kernels: Kernels,
    shape: Shape,
    parameters: usize,
    place: Memory<u32>,
    model: Memory<f32>,
    parts: Option<Parts>,
    /// A user's number and the bits of their scale.
    drawings: Memory<u64>,
    key: Memory<u32>,
    present: Memory<u8>,
    integers: Memory<i32>,
    low: Memory<u64>,
    high: Memory<u64>,
    largest: Memory<u32>,
    accepted: Memory<i32>,
    projected: Memory<i32>,
    sum: Memory<i64>,
    difference: Memory<f32>,
    /// Attempts at most; none leave everybody to the host.
    attempts: u32,
}

/// What a user's integers are drawn by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawing {
    pub(crate) user: u64,
    /// From the units of the model to grid steps, the weight in it.
    pub(crate) scale: f64,
    /// Whether there was anything to learn from.
    pub(crate) present: bool,
}

impl Encoder {
    pub(crate) fn new(card: &Card, network: &Network, architecture: &str) -> Result<Self, CudaError> {
        let (shape, placement) = (*network.shape(), network.placement());
        let (users, parameters) = (shape.users, placement.place.len());
        let kernels = Kernels::load(card, ENCODE, &shape.defines(placement.length, parameters), architecture)?;
        Ok(Self {
            kernels,
            shape,
            parameters,
            place: card.copy_of(&placement.place)?,
            model: card.zeros(parameters)?,
            parts: None,
            drawings: card.zeros(2 * users)?,
            key: card.zeros(8)?,
            present: card.zeros(users)?,
            integers: card.zeros(users * parameters)?,
            low: card.zeros(users)?,
            high: card.zeros(users)?,
            largest: card.zeros(users)?,
            accepted: card.zeros(users)?,
            projected: card.zeros(users)?,
            sum: card.zeros(parameters)?,
            difference: card.zeros(parameters)?,
            attempts: u32::MAX,
        })
    }

    /// Everybody is left to the host from now on: for tests.
    pub(crate) const fn leave_all_to_host(&mut self) {
        self.attempts = 0;
    }

    /// A round begins: its model, its bounds, the key of its users' streams. Returns whether earlier graphs can no longer be used.
    pub(crate) fn begin(
        &mut self,
        card: &Card,
        network: &Network,
        model: &Pinned<f32>,
        rule: &ClipRule,
        key: &[u8; 32],
    ) -> Result<bool, CudaError> {
        card.upload_pinned(model, &mut self.model)?;
        let args = [Arg::At(self.model.address()), Arg::At(self.place.address()), Arg::At(network.start.address())];
        card.launch(&self.kernels.place_model, Grid::each(self.parameters), &args)?;
        card.clear(&mut self.sum)?;
        let words = key.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        card.upload(&Zeroizing::<Vec<u32>>::new(words), &mut self.key)?;
        let (lens, bounds) = bounded(rule, self.parameters)?;
        let stale = self.parts.as_ref().is_none_or(|parts| parts.lens != lens);
        if stale {
            self.parts = Some(Parts::new(card, lens, self.shape.users)?);
        }
        card.upload(&bounds, &mut self.parts_mut()?.bounds)?;
        Ok(stale)
    }

    fn parts_mut(&mut self) -> Result<&mut Parts, CudaError> {
        self.parts.as_mut().ok_or_else(|| CudaError::Refused("the round has not begun".to_owned()))
    }

    fn parts(&self) -> Result<&Parts, CudaError> {
        self.parts.as_ref().ok_or_else(|| CudaError::Refused("the round has not begun".to_owned()))
    }

    /// A chunk begins: everybody has the model of the round.
    pub(crate) fn begin_chunk(
        &mut self,
        card: &Card,
        network: &Network,
        drawings: &[Drawing],
    ) -> Result<(), CudaError> {
        let length = network.placement().length;
        let grid = Grid::blocks((length / 4).div_ceil(256), self.shape.users.min(8), 256);
        card.launch(
            &self.kernels.broadcast,
            grid,
            &[Arg::At(network.start.address()), Arg::At(network.weights.address())],
        )?;
        let words: Vec<u64> = drawings.iter().flat_map(|d| [d.user, d.scale.to_bits()]).collect();
        card.upload(&words, &mut self.drawings)?;
        let mut present: Vec<u8> = drawings.iter().map(|d| u8::from(d.present)).collect();
        present.resize(self.shape.users, 0);
        card.upload(&present, &mut self.present)?;
        for memory in [&mut self.low, &mut self.high] {
            card.clear(memory)?;
        }
        card.clear(&mut self.largest)?;
        card.clear(&mut self.accepted)?;
        card.clear(&mut self.projected)
    }

    fn model_places(&self, network: &Network) -> [Arg; 3] {
        [network.weights.address(), network.start.address(), self.place.address()].map(Arg::At)
    }

    /// The norm of every part of every difference, and what would bring it within its bound.
    fn measure(&self, card: &Card, network: &Network) -> Result<(), CudaError> {
        let parts = self.parts()?;
        let [weights, start, place] = self.model_places(network);
        let (tiles, norms) = (Arg::At(parts.tiles.address()), Arg::At(parts.norms.address()));
        let grid = Grid::blocks(parts.count, self.shape.users, 256);
        card.launch(&self.kernels.tile_norms, grid, &[weights, start, place, tiles, norms])?;
        let args = [
            norms,
            tiles,
            Arg::Int(parts.count as i32),
            Arg::At(parts.bounds.address()),
            Arg::At(parts.lengths.address()),
            Arg::Int(parts.lens.len() as i32),
            Arg::At(parts.squared.address()),
            Arg::At(parts.factors.address()),
        ];
        card.launch(&self.kernels.factors, Grid::blocks(self.shape.users, 1, 256), &args)
    }

    /// Greedy clipping: brings every difference within its bound, during training.
    pub(crate) fn project(&self, card: &Card, network: &Network) -> Result<(), CudaError> {
        self.measure(card, network)?;
        let parts = self.parts()?;
        let [weights, start, place] = self.model_places(network);
        let args = [
            Arg::At(network.reading.step.address()),
            Arg::At(network.reading.flags.address()),
            Arg::At(parts.squared.address()),
            Arg::At(parts.factors.address()),
            Arg::Int(parts.lens.len() as i32),
            Arg::At(parts.tiles.address()),
            place,
            start,
            weights,
            Arg::At(self.projected.address()),
        ];
        card.launch(&self.kernels.project, Grid::blocks(parts.count, self.shape.users, 256), &args)
    }

    /// Rounds what was trained, checks it and adds it to the sum.
    pub(crate) fn encode(&self, card: &Card, network: &Network, rule: &GridRule) -> Result<(), CudaError> {
        self.measure(card, network)?;
        for attempt in 0..self.attempts.min(attempts(rule)) {
            self.round(card, network, rule, attempt)?;
        }
        let args = [self.integers.address(), self.accepted.address(), self.sum.address()].map(Arg::At);
        card.launch(&self.kernels.add_integers, Grid::each(self.parameters), &args)
    }

    fn round(&self, card: &Card, network: &Network, rule: &GridRule, attempt: u32) -> Result<(), CudaError> {
        let parts = self.parts()?;
        let count = Arg::Int(parts.lens.len() as i32);
        let at = |address: Address| Arg::At(address);
        let [weights, start, place] = self.model_places(network);
        let sizes = [at(self.low.address()), at(self.high.address()), at(self.largest.address())];
        let accepted = at(self.accepted.address());
        let each = Grid::each(self.shape.users);
        if attempt > 0 {
            card.launch(&self.kernels.again, each, &[accepted, sizes[0], sizes[1], sizes[2]])?;
        }
        let args = [
            weights,
            start,
            place,
            at(parts.factors.address()),
            count,
            at(parts.ends.address()),
            at(self.drawings.address()),
            at(self.key.address()),
            at(self.present.address()),
            at(parts.squared.address()),
            Arg::Float(rule.limit),
            Arg::Int(i32::from(rule.stochastic)),
            Arg::Word(attempt),
            accepted,
            at(self.integers.address()),
            sizes[0],
            sizes[1],
            sizes[2],
        ];
        // A thread has the words of one block of a stream; the first and the last block may be half of others'.
        let blocks = (self.parameters.div_ceil(8) + 1).div_ceil(256);
        let blocks = if attempt < ATTEMPTS_OF_MANY { blocks } else { blocks.div_ceil(BLOCKS_IN_TURN) };
        let grid = Grid::blocks(blocks, self.shape.users, 256);
        card.launch(&self.kernels.round_coordinates, grid, &args)?;
        let args = [
            at(parts.squared.address()),
            count,
            at(self.present.address()),
            Arg::Long(rule.norm_squared),
            Arg::Word(rule.largest),
            sizes[0],
            sizes[1],
            sizes[2],
            accepted,
        ];
        card.launch(&self.kernels.accept, each, &args)
    }

    /// What the card found out about the first so many users of the chunk; waits for it.
    pub(crate) fn found(&self, card: &Card, users: usize) -> Result<Vec<Found>, CudaError> {
        let parts = self.parts()?;
        let count = parts.lens.len();
        let mut squared = vec![0.0; users * count];
        let (mut low, mut high) = (vec![0; users], vec![0; users]);
        let (mut accepted, mut projected) = (vec![0; users], vec![0; users]);
        card.download(&parts.squared, &mut squared)?;
        card.download(&self.low, &mut low)?;
        card.download(&self.high, &mut high)?;
        card.download(&self.accepted, &mut accepted)?;
        card.download(&self.projected, &mut projected)?;
        let found = |user: usize| Found {
            norm_squared: squared[user * count..(user + 1) * count].iter().sum(),
            accepted: (accepted[user] != 0).then(|| (high[user] << 32) + low[user]),
            projected: projected[user] != 0,
        };
        Ok((0..users).map(found).collect())
    }

    /// One user's difference to the model of the round.
    pub(crate) fn difference(&self, card: &Card, network: &Network, user: usize) -> Result<Vec<f32>, CudaError> {
        let [weights, start, place] = self.model_places(network);
        let args = [weights, start, place, Arg::Int(user as i32), Arg::At(self.difference.address())];
        card.launch(&self.kernels.differences, Grid::each(self.parameters), &args)?;
        let mut difference = vec![0.0; self.parameters];
        card.download(&self.difference, &mut difference)?;
        Ok(difference)
    }

    /// One user's integers, with room for `rest` more.
    pub(crate) fn integers(&self, card: &Card, user: usize, rest: usize) -> Result<Vec<i32>, CudaError> {
        let mut integers = Vec::with_capacity(self.parameters + rest);
        integers.resize(self.parameters, 0);
        card.download_from(&self.integers, user * self.parameters, &mut integers)?;
        Ok(integers)
    }

    /// Adds a sum that lies on the same card, and is done.
    pub(crate) fn join(&self, card: &Card, other: &Self) -> Result<(), CudaError> {
        let args = [other.sum.address(), self.sum.address()].map(Arg::At);
        card.launch(&self.kernels.join_sums, Grid::each(self.parameters), &args)
    }

    /// The sum of all chunks of the round, with room for `rest` numbers behind it.
    pub(crate) fn sum(
        &self,
        card: &Card,
        by: &mut Pinned<i64>,
        rest: usize,
        workers: &dyn Workers,
    ) -> Result<Vec<i64>, CudaError> {
        card.download_by(&self.sum, by, rest, workers)
    }

    /// What it holds of people: their sum, their integers and norms, who they are and what their integers were drawn by.
    fn held(&mut self) -> Vec<Held<'_>> {
        let Self {
            sum,
            integers,
            difference,
            drawings,
            key,
            present,
            low,
            high,
            largest,
            accepted,
            projected,
            parts,
            // Of the run and of its model, which are public.
            kernels: _,
            shape: _,
            parameters: _,
            place: _,
            model: _,
            attempts: _,
        } = self;
        let mut all = vec![Held::I64(sum), Held::F32(difference), Held::U8(present)];
        all.extend([integers, accepted, projected].map(Held::I32));
        all.extend([drawings, low, high].map(Held::U64));
        all.extend([key, largest].map(Held::U32));
        if let Some(parts) = parts {
            let Parts { norms, squared, factors, lens: _, tiles: _, count: _, ends: _, lengths: _, bounds: _ } = parts;
            all.extend([norms, squared, factors].map(Held::F64));
        }
        all
    }

    /// A round is over: nothing of anybody stays on the card.
    pub(crate) fn forget(&mut self, card: &Card, network: &mut Network) -> Result<(), CudaError> {
        held::clear_all(self.held().into_iter().chain(network.held(true)), card)
    }

    /// Whether nothing of a round is left: for tests.
    pub(crate) fn is_forgotten(&mut self, card: &Card, network: &mut Network) -> Result<bool, CudaError> {
        let mut all = self.held().into_iter().chain(network.held(true));
        all.try_fold(true, |zero, held| Ok(zero && held.reads_zero(card)?))
    }
}

/// How often a vector is rounded at most.
const fn attempts(rule: &GridRule) -> u32 {
    match rule {
        GridRule { stochastic: true, .. } => ATTEMPTS,
        GridRule { truncates: true, .. } => ATTEMPTS_TO_NEAREST,
        _ => 1,
    }
}

/// The lengths and the bounds of the parts of an update. What is longer than the update would be read, and with greedy clipping written,
/// beyond a user's weights; what is left out would enter no norm.
fn bounded(rule: &ClipRule, parameters: usize) -> Result<(Vec<usize>, Vec<f64>), CudaError> {
    let (lens, bounds): (Vec<usize>, Vec<f64>) = match rule {
        ClipRule::Flat(bound) => (vec![parameters], vec![bound.get()]),
        ClipRule::PerLayer(layers) => layers.iter().map(|layer| (layer.len, layer.bound.get())).unzip(),
    };
    match lens.iter().try_fold(0, |all: usize, len| all.checked_add(*len)) {
        Some(all) if all == parameters => Ok((lens, bounds)),
        _ => Err(CudaError::Refused(format!("layers that are not those of a model of {parameters} parameters"))),
    }
}

/// Why updates are not rotated here.
pub(crate) const NO_ROTATION: &str = "privacy.rotation = true is for secure aggregation, which the GPU engine does not support; remove it, or use --engine threads";

/// How the card rounds for an encoding.
///
/// # Errors
/// Where it cannot: a rotation is for secure aggregation, which the card does not do.
pub(crate) fn grid_rule(encoding: &Encoding) -> Result<GridRule, CudaError> {
    encoding.grid_rule().ok_or_else(|| CudaError::Refused(NO_ROTATION.to_owned()))
}

#[cfg(test)]
mod tests {
    use privacy::{ClipNorm, stages::LayerClip};

    use super::*;

    /// Kernels look coordinates up by where the layers begin: beyond the last of them lies another user.
    #[test]
    fn layers_that_are_not_those_of_the_model_are_refused() {
        let bound = ClipNorm::new(0.5).unwrap();
        let of = |lens: &[usize]| ClipRule::PerLayer(lens.iter().map(|len| LayerClip { len: *len, bound }).collect());
        assert_eq!(bounded(&of(&[3, 7]), 10).unwrap(), (vec![3, 7], vec![0.5, 0.5]));
        assert_eq!(bounded(&ClipRule::Flat(bound), 10).unwrap(), (vec![10], vec![0.5]));
        for wrong in [&[3, 8][..], &[3, 6], &[], &[usize::MAX, 11]] {
            assert!(bounded(&of(wrong), 10).is_err(), "{wrong:?}");
        }
    }
}
