//! Rule P1 for every segment of the vector: where users are replaced, each segment moves by twice one user's part, and the
//! noise of the whole release is counted by that.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_privacy::{
    Adjacency, ClipNorm, NoiseMultiplier, Participation, SamplingRate, Segment,
    encoding::{Counts, Encoding, NoisePlan, VectorPlan, VectorSegment, layout::HALF_BIT},
    mechanism::{Correlation, MechanismPlan},
};
use serde_json::Value;

const Z: f64 = 1.5;

fn z(multiplier: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(multiplier).unwrap()
}

/// An update, a clip bit, a weight and counts.
fn encoding(adjacency: Adjacency) -> Encoding {
    let counts = Some(Counts { len: 3, cap: 5 });
    let plan = VectorPlan { clip_bit: true, weight: true, counts, ..VectorPlan::of_update(40, 12) };
    let (weight, counts) = (Some(z(20.0)), Some(z(20.0)));
    let noise = NoisePlan { multiplier: z(Z), clip_count_stddev: Some(6.0), weight, counts };
    Encoding::new(plan, ClipNorm::new(1.0).unwrap(), Some(&noise), adjacency).unwrap()
}

/// How far one user moves each segment, from the values that a user may send: a half bit, a whole weight, the cap in each
/// count.
fn moves(encoding: &Encoding, adjacency: Adjacency) -> Vec<f64> {
    let one = |kind| match kind {
        VectorSegment::Update => (encoding.layout().segments()[0].norm_squared as f64).sqrt(),
        VectorSegment::ClipBit => f64::from(HALF_BIT),
        VectorSegment::Weight => f64::from(1 << 15),
        VectorSegment::Counts => 5.0 * 3.0f64.sqrt(),
        VectorSegment::Quotient => unreachable!("there is none"),
    };
    let times = if adjacency == Adjacency::ReplaceOne { 2.0 } else { 1.0 };
    encoding.layout().segments().iter().map(|segment| times * one(segment.kind)).collect()
}

/// Parameter and sensitivity of each segment, as the event of one release says them.
fn accounted(encoding: &Encoding, adjacency: Adjacency) -> Vec<(f64, f64)> {
    let participation = match adjacency {
        Adjacency::ReplaceOne => Participation::FixedSize { population: 1000, cohort: 10 },
        _ => Participation::Poisson { rate: SamplingRate::new(0.01).unwrap() },
    };
    let segments = vec![Segment::of(1)];
    let correlation = Correlation::Independent;
    let plan = MechanismPlan { stream: 0, adjacency, participation, correlation, segments, distributed: None };
    let event = serde_json::to_value(plan.event(1, encoding.layout()).unwrap()).unwrap();
    let mut parts = Vec::new();
    collect(&event, &mut parts);
    parts
}

fn collect(value: &Value, parts: &mut Vec<(f64, f64)>) {
    match value {
        Value::Object(fields) => match (fields.get("sigma"), fields.get("sensitivity")) {
            (Some(sigma), Some(sensitivity)) => parts.push((sigma.as_f64().unwrap(), sensitivity.as_f64().unwrap())),
            _ => fields.values().for_each(|field| collect(field, parts)),
        },
        Value::Array(items) => items.iter().for_each(|item| collect(item, parts)),
        _ => {}
    }
}

#[test]
fn p1_every_segment_moves_by_twice_one_users_part_where_users_are_replaced() {
    for adjacency in [Adjacency::AddOrRemove, Adjacency::ReplaceOne] {
        let encoding = encoding(adjacency);
        let (moves, accounted) = (moves(&encoding, adjacency), accounted(&encoding, adjacency));
        assert_eq!(accounted.len(), 4, "{accounted:?}");
        for ((segment, moves), (sigma, sensitivity)) in encoding.layout().segments().iter().zip(&moves).zip(&accounted)
        {
            let kind = segment.kind;
            assert_eq!(segment.sigma as f64, *sigma, "{kind:?}");
            let ratio = sensitivity / moves;
            assert!((1.0..1.0 + 1e-12).contains(&ratio), "{adjacency:?}, {kind:?}: {sensitivity} instead of {moves}");
        }
        // What is left for the update is what the others leave, by the true sensitivities: not less noise than was asked for.
        let spent: f64 = moves.iter().zip(&accounted).map(|(d, (sigma, _))| d * d / (sigma * sigma - 9.0)).sum();
        let joint = 1.0 / spent.sqrt();
        assert!((1.0 - 1e-12..1.01).contains(&(joint / Z)), "{adjacency:?}: {joint} instead of {Z}");
    }
}
