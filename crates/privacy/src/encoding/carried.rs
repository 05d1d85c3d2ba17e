//! An encoding serialized for another process or machine, as its parts. Reading rebuilds it with the same checks, and refuses it if the
//! result differs from the encoding that was written.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{
    Encoding, EncodingError, EncodingId, VectorPlan, check_plan, id_of, layout::Layout, rotation_of, segments_of,
};
use crate::units::ClipNorm;

/// The largest parameter of noise that is drawn.
const MOST_SIGMA: u64 = 1 << 57;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Carried {
    plan: VectorPlan,
    clip: ClipNorm,
    /// The parameter of each segment's noise.
    sigmas: Vec<u64>,
    id: EncodingId,
    /// How many coordinates are in a report, where it is not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    few: Option<usize>,
}

impl Serialize for Encoding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sigmas = self.layout.segments.iter().map(|s| s.sigma).collect();
        Carried { plan: self.plan.clone(), clip: self.clip, sigmas, id: self.id, few: self.few }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Carried::deserialize(deserializer)?.made_anew().map_err(D::Error::custom)
    }
}

impl Carried {
    fn made_anew(self) -> Result<Encoding, EncodingError> {
        let Self { plan, clip, sigmas, id, few } = self;
        check_plan(&plan)?;
        let rotation = rotation_of(&plan)?;
        let mut segments = segments_of(&plan, rotation.as_ref());
        if sigmas.len() != segments.len() {
            return Err(EncodingError::Other);
        }
        for (segment, sigma) in segments.iter_mut().zip(sigmas) {
            if sigma > MOST_SIGMA {
                return Err(EncodingError::TooMuchNoise { sigma: sigma as f64 });
            }
            segment.sigma = sigma;
        }
        let layout = Layout { segments };
        if id_of(&plan, clip, &layout) != id {
            return Err(EncodingError::Other);
        }
        let encoding = Encoding { plan, clip, rotation, layout, id, few: None };
        match few {
            Some(count) => encoding.with_few(count),
            None => Ok(encoding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        encoding::{Counts, NoisePlan},
        event::Adjacency,
        units::NoiseMultiplier,
    };

    fn encoding(rotation_seed: Option<[u8; 32]>) -> Encoding {
        let counts = Some(Counts { len: 2, cap: 9 });
        let plan = VectorPlan { rotation_seed, clip_bit: true, weight: true, counts, ..VectorPlan::of_update(700, 18) };
        let z = NoiseMultiplier::new(1.3).unwrap();
        let much = NoiseMultiplier::new(9.0).ok();
        let noise = NoisePlan { multiplier: z, clip_count_stddev: Some(20.0), weight: much, counts: much };
        Encoding::new(plan, ClipNorm::new(0.1).unwrap(), Some(&noise), Adjacency::ReplaceOne).unwrap()
    }

    #[test]
    fn an_encoding_arrives_as_it_left() {
        for seed in [None, Some([9; 32])] {
            let few = seed.is_none().then(|| encoding(None).with_few(9).unwrap());
            for sent in [encoding(seed), encoding(seed).with_clip(ClipNorm::new(0.3).unwrap())].into_iter().chain(few) {
                let got: Encoding = serde_json::from_slice(&serde_json::to_vec(&sent).unwrap()).unwrap();
                assert_eq!((got.id(), got.layout(), got.clip()), (sent.id(), sent.layout(), sent.clip()));
                assert_eq!((got.plan, got.rotation, got.few), (sent.plan, sent.rotation, sent.few));
            }
        }
    }

    #[test]
    fn what_was_changed_on_the_way_is_refused() {
        let sent = serde_json::to_value(encoding(None)).unwrap();
        for (field, value) in [
            ("clip", serde_json::json!(0.2)),
            ("sigmas", serde_json::json!([1, 2, 3, 4])),
            ("sigmas", serde_json::json!([1])),
            ("sigmas", serde_json::json!([u64::MAX, 2, 3, 4])),
        ] {
            let mut changed = sent.clone();
            changed[field] = value;
            assert!(serde_json::from_value::<Encoding>(changed).is_err(), "{field}");
        }
        for (seed, few) in [(None, 0), (None, 701), (Some([9; 32]), 9)] {
            let mut changed = serde_json::to_value(encoding(seed)).unwrap();
            changed["few"] = few.into();
            assert!(serde_json::from_value::<Encoding>(changed).unwrap_err().to_string().contains("few"), "{few}");
        }
        let mut empty = sent;
        empty["plan"]["dimension"] = 0.into();
        assert!(serde_json::from_value::<Encoding>(empty).unwrap_err().to_string().contains("dimension"));
    }
}
