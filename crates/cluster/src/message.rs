//! The messages of rank 0 to the other ranks: which users to train on which model, or that the run has ended.
//!
//! Settings travel as text, which is read back to the bit and checked again on the way in; vectors travel as they are.

use device::{evaluation::EvaluationPlan, round::Task, upload::Upload};
use federated::engine::Users;
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
    /// Users to be trained.
    Users,
}

impl Kind {
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::End => 0,
            Self::Facts => 1,
            Self::Users => 2,
        }
    }

    /// Ranks compare their programs before the first round, so there is no other number.
    pub(crate) const fn of(number: u64) -> Self {
        match number {
            1 => Self::Facts,
            2 => Self::Users,
            _ => Self::End,
        }
    }
}

/// One message, in the parts that are broadcast.
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) text: Vec<u8>,
    pub(crate) key: Zeroizing<[u8; 32]>,
    pub(crate) users: Vec<u64>,
    pub(crate) model: Vec<f32>,
}

/// What a message says of a task beside its vectors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    clipping: Clipping,
    encoding: Encoding,
    full_weight_tokens: Option<f64>,
    learning_rate: f32,
    epochs: Option<u32>,
    evaluation: Option<EvaluationPlan>,
}

impl Message {
    /// The run has ended.
    pub(crate) fn end() -> Self {
        let key = Zeroizing::new([0; 32]);
        Self { kind: Kind::End, text: Vec::new(), key, users: Vec::new(), model: Vec::new() }
    }

    /// Rank 0's facts.
    pub(crate) fn facts(facts: &Compared) -> Result<Self, serde_json::Error> {
        Ok(Self { kind: Kind::Facts, text: serde_json::to_vec(facts)?, ..Self::end() })
    }

    /// Users, and what they are told.
    pub(crate) fn users(task: &Task<'_>, users: &Users<'_>) -> Result<Self, serde_json::Error> {
        // What leaves in parts is refused by `MpiEngine`.
        let Task { model, clipping, encoding, full_weight_tokens, learning_rate, epochs, evaluation, .. } = *task;
        let (clipping, encoding) = (clipping.clone(), encoding.clone());
        let settings = Settings { clipping, encoding, full_weight_tokens, learning_rate, epochs, evaluation };
        Ok(Self {
            kind: Kind::Users,
            text: serde_json::to_vec(&settings)?,
            key: users.key.secret_bytes(),
            users: users.numbers.to_vec(),
            model: model.to_vec(),
        })
    }

    /// The facts that a message holds.
    pub(crate) fn read_facts(&self) -> Result<Compared, serde_json::Error> {
        serde_json::from_slice(&self.text)
    }

    /// The task that a message holds, and the users of one of so many ranks: what `train` makes of them.
    pub(crate) fn with_users<T>(
        &self,
        share: Share,
        train: impl FnOnce(&Task<'_>, &[u64], &StreamKey) -> T,
    ) -> Result<T, serde_json::Error> {
        let settings: Settings = serde_json::from_slice(&self.text)?;
        let Settings { clipping, encoding, full_weight_tokens, learning_rate, epochs, evaluation } = &settings;
        let task = Task {
            model: &self.model,
            clipping,
            encoding,
            full_weight_tokens: *full_weight_tokens,
            learning_rate: *learning_rate,
            epochs: *epochs,
            upload: Upload::Whole,
            evaluation: *evaluation,
        };
        Ok(train(&task, &share.of(&self.users), &StreamKey::from_secret_bytes(self.key.clone())))
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

    use corpus::store::StoreError;
    use device::learner::examples::Examples;
    use federated::{engine::users_key, population::Population};

    use super::*;

    struct Nobody;

    impl Population for Nobody {
        fn users(&self) -> u64 {
            0
        }

        fn read(&self, _user: u64, _examples: &mut Examples) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn a_task_is_heard_as_it_was_told() {
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
            epochs: Some(7),
            upload: Upload::Whole,
            evaluation: None,
        };
        let key = users_key(&NoiseSource::from(SimulationKey::new(1)), &[7]);
        let users = Users { population: &Nobody, numbers: &[9, 8, 7, 6, 5], key: &key };
        let told = Message::users(&task, &users).unwrap();
        let heard = told.with_users(Share { rank: 1, ranks: 2 }, |heard, numbers, heard_key| {
            assert_eq!(numbers, [8, 6]);
            assert_eq!(heard_key.secret_bytes(), key.secret_bytes());
            assert_eq!((heard.model, heard.clipping), (model.as_slice(), &clipping));
            assert_eq!(heard.encoding.id(), encoding.id());
            assert_eq!(heard.full_weight_tokens.map(f64::to_bits), Some((0.1f64 + 0.2).to_bits()));
            assert_eq!(heard.learning_rate.to_bits(), 0.3f32.to_bits());
            assert_eq!(heard.epochs, Some(7));
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
