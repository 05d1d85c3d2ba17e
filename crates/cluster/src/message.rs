//! What rank 0 tells the others: the round, or that there are no more.
//!
//! Settings travel as text, which is read back to the bit and checked again on the way in; vectors travel as they are.

use device::round::Task;
use federated::fleet::RoundTask;
use privacy::{encoding::Encoding, rng::StreamKey, stages::Clipping};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::facts::Compared;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The run has ended.
    End,
    /// Rank 0's facts, to be compared.
    Facts,
    /// A round to be trained.
    Round,
}

impl Kind {
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::End => 0,
            Self::Facts => 1,
            Self::Round => 2,
        }
    }

    /// Ranks compare their programs before the first round, so there is no other number.
    pub(crate) const fn of(number: u64) -> Self {
        match number {
            1 => Self::Facts,
            2 => Self::Round,
            _ => Self::End,
        }
    }
}

/// One message, in the parts that are broadcast.
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) text: Vec<u8>,
    pub(crate) users: Zeroizing<[u8; 32]>,
    pub(crate) cohort: Vec<u64>,
    pub(crate) model: Vec<f32>,
}

/// What a message says of a round beside its vectors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    round: u64,
    clipping: Clipping,
    encoding: Encoding,
    full_weight_tokens: Option<f64>,
    learning_rate: f32,
}

impl Message {
    /// The run has ended.
    pub(crate) fn end() -> Self {
        let users = Zeroizing::new([0; 32]);
        Self { kind: Kind::End, text: Vec::new(), users, cohort: Vec::new(), model: Vec::new() }
    }

    /// Rank 0's facts.
    pub(crate) fn facts(facts: &Compared) -> Result<Self, serde_json::Error> {
        Ok(Self { kind: Kind::Facts, text: serde_json::to_vec(facts)?, ..Self::end() })
    }

    /// A round.
    pub(crate) fn round(round: &RoundTask<'_>) -> Result<Self, serde_json::Error> {
        let RoundTask { round, task, cohort, users } = *round;
        let Task { model, clipping, encoding, full_weight_tokens, learning_rate } = task;
        let (clipping, encoding) = (clipping.clone(), encoding.clone());
        let settings = Settings { round, clipping, encoding, full_weight_tokens, learning_rate };
        Ok(Self {
            kind: Kind::Round,
            text: serde_json::to_vec(&settings)?,
            users: users.secret_bytes(),
            cohort: cohort.to_vec(),
            model: model.to_vec(),
        })
    }

    /// The facts that a message holds.
    pub(crate) fn read_facts(&self) -> Result<Compared, serde_json::Error> {
        serde_json::from_slice(&self.text)
    }

    /// The round that a message holds, for one of so many ranks: what `train` makes of it.
    pub(crate) fn with_round<T>(
        &self,
        share: Share,
        train: impl FnOnce(&RoundTask<'_>) -> T,
    ) -> Result<T, serde_json::Error> {
        let settings: Settings = serde_json::from_slice(&self.text)?;
        let Settings { round, clipping, encoding, full_weight_tokens, learning_rate } = &settings;
        let task = Task {
            model: &self.model,
            clipping,
            encoding,
            full_weight_tokens: *full_weight_tokens,
            learning_rate: *learning_rate,
        };
        let (cohort, users) = (share.of(&self.cohort), StreamKey::from_secret_bytes(self.users.clone()));
        Ok(train(&RoundTask { round: *round, task, cohort: &cohort, users: &users }))
    }
}

/// Which users of a cohort are one rank's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

impl Share {
    /// Every R-th user from the rank's number on.
    pub(crate) fn of(self, cohort: &[u64]) -> Vec<u64> {
        cohort.iter().skip(self.rank).step_by(self.ranks).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use privacy::{
        Adjacency, ClipNorm,
        encoding::VectorPlan,
        rng::{NoiseSource, SimulationKey},
        stages::{ClipBit, ClipRule},
    };

    use super::*;

    #[test]
    fn a_round_is_heard_as_it_was_told() {
        let clip = ClipNorm::new(0.1).unwrap();
        let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::NormAtMost(ClipNorm::new(0.3).unwrap())).unwrap();
        let plan = VectorPlan { clip_bit: true, rotation_seed: Some([3; 32]), ..VectorPlan::of_update(3, 16) };
        let encoding = Encoding::new(plan, clip, None, Adjacency::ZeroOut).unwrap();
        let model = [0.1, -2.5e-30, f32::MAX];
        let task = Task {
            model: &model,
            clipping: &clipping,
            encoding: &encoding,
            full_weight_tokens: Some(0.1 + 0.2),
            learning_rate: 0.3,
        };
        let users = federated::fleet::users_key(&NoiseSource::from(SimulationKey::new(1)), &[7]);
        let round = RoundTask { round: 7, task, cohort: &[9, 8, 7, 6, 5], users: &users };
        let told = Message::round(&round).unwrap();
        let heard = told.with_round(Share { rank: 1, ranks: 2 }, |heard| {
            assert_eq!((heard.round, heard.cohort), (7, [8, 6].as_slice()));
            assert_eq!(heard.users.secret_bytes(), users.secret_bytes());
            assert_eq!((heard.task.model, heard.task.clipping), (model.as_slice(), &clipping));
            assert_eq!(heard.task.encoding.id(), encoding.id());
            assert_eq!(heard.task.full_weight_tokens.map(f64::to_bits), Some((0.1f64 + 0.2).to_bits()));
            assert_eq!(heard.task.learning_rate.to_bits(), 0.3f32.to_bits());
        });
        heard.unwrap();
    }

    #[test]
    fn every_user_is_one_ranks() {
        for (users, ranks) in [(0, 3), (1, 3), (7, 3), (8, 1), (2, 5)] {
            let cohort: Vec<u64> = (0..users).collect();
            let mut all: Vec<u64> = (0..ranks).flat_map(|rank| Share { rank, ranks }.of(&cohort)).collect();
            all.sort_unstable();
            assert_eq!(all, cohort);
        }
    }
}
