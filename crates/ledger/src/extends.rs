//! Whether a cumulative event (a run up to a step) extends the previous one, so that only the later one counts.

use privacy::event::{PrivacyEvent, Segment};

/// Says what differs, if `after` does not contain all that `before` stands for and more.
pub(crate) fn extends(before: &PrivacyEvent, after: &PrivacyEvent) -> Result<(), String> {
    if contains(before, after)? { Ok(()) } else { Err("it has no step more".into()) }
}

/// Whether `after` is more than `before`; an error if it is something else, or less.
fn contains(before: &PrivacyEvent, after: &PrivacyEvent) -> Result<bool, String> {
    use PrivacyEvent::{Compose, CorrelatedGaussian, LimitedRounds, Repeat};
    match (before, after) {
        (
            CorrelatedGaussian { adjacency: a, matrix, segments, participation, noise },
            CorrelatedGaussian { adjacency: b, matrix: matrix_b, segments: more, participation: who, noise: noise_b },
        ) => {
            all_same(&[
                (a == b, "another adjacency"),
                (matrix == matrix_b, "another matrix"),
                (participation == who, "another participation"),
                (noise == noise_b, "another noise"),
            ])?;
            grown(segments, more)
        }
        (
            LimitedRounds { rounds, participation, event },
            LimitedRounds { rounds: more, participation: who, event: after },
        ) => {
            all_same(&[(participation == who, "another participation"), (event == after, "another event of a round")])?;
            match more >= rounds {
                true => Ok(more > rounds),
                false => Err(format!("{more} rounds after {rounds}")),
            }
        }
        (Compose { events }, Compose { events: more }) => {
            if more.len() < events.len() {
                return Err(format!("{} parts after {}", more.len(), events.len()));
            }
            let parts = events.iter().zip(more).map(|(before, after)| contains(before, after));
            let any_grew = parts.collect::<Result<Vec<bool>, String>>()?.contains(&true);
            Ok(any_grew || more.len() > events.len())
        }
        (Repeat { times, event }, Repeat { times: more, event: after }) if event == after => match more >= times {
            true => Ok(more > times),
            false => Err(format!("{more} times after {times}")),
        },
        (once, Repeat { times, event }) if **event == *once && *times >= 1 => Ok(*times > 1),
        (before, after) if before == after => Ok(false),
        (before, after) => Err(format!("{} after {}", after.name(), before.name())),
    }
}

/// Says the first thing that differs.
fn all_same(parts: &[(bool, &str)]) -> Result<(), String> {
    parts.iter().find(|(equal, _)| !equal).map_or(Ok(()), |(_, what)| Err((*what).into()))
}

/// Whether segments became longer or more. Those before the last that was open may not change.
fn grown(before: &[Segment], after: &[Segment]) -> Result<bool, String> {
    let Some((open, closed)) = before.split_last() else { return Ok(!after.is_empty()) };
    let Some(same) = after.get(closed.len()) else {
        return Err(format!("{} segments after {}", after.len(), before.len()));
    };
    if closed != &after[..closed.len()] {
        return Err("a finished segment changed".into());
    }
    let size = |segment: &Segment| segment.completed_to.unwrap_or(segment.rounds);
    if same.rounds < open.rounds || size(same) < size(open) {
        return Err(format!("a segment of {} rounds after one of {}", same.rounds, open.rounds));
    }
    Ok(after.len() > before.len() || same != open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use privacy::{
        event::{Adjacency, NoiseMatrix},
        participation::Participation,
        units::NoiseMultiplier,
    };

    fn tree(z: f64, segments: &[Segment]) -> PrivacyEvent {
        PrivacyEvent::CorrelatedGaussian {
            adjacency: Adjacency::ZeroOut,
            matrix: NoiseMatrix::Tree,
            segments: segments.to_vec(),
            participation: Participation::Once,
            noise: NoiseMultiplier::new(z).unwrap().into(),
        }
    }

    #[test]
    fn a_run_goes_on_by_steps_and_by_segments() {
        let of = |sizes: &[u64]| tree(7.0, &sizes.iter().map(|n| Segment::of(*n)).collect::<Vec<_>>());
        for (before, after) in [(&[1][..], &[2][..]), (&[4], &[4, 1]), (&[4, 1], &[4, 2]), (&[4], &[6, 1])] {
            assert_eq!(extends(&of(before), &of(after)), Ok(()), "{before:?} {after:?}");
        }
        for (before, after) in
            [(&[2][..], &[1][..]), (&[2], &[2]), (&[4, 1], &[5]), (&[4, 1], &[5, 1]), (&[4, 2], &[4])]
        {
            assert!(extends(&of(before), &of(after)).is_err(), "{before:?} {after:?}");
        }
    }

    #[test]
    fn p7_completing_a_tree_is_more_and_undoing_it_is_less() {
        let (open, completed) = (tree(7.0, &[Segment::of(5)]), tree(7.0, &[Segment::completed(5)]));
        assert_eq!(extends(&open, &completed), Ok(()));
        assert!(extends(&completed, &open).is_err());
        assert!(extends(&completed, &tree(7.0, &[Segment::of(6)])).is_err());
    }

    #[test]
    fn less_noise_is_no_continuation() {
        assert_eq!(extends(&tree(7.0, &[Segment::of(1)]), &tree(6.0, &[Segment::of(2)])), Err("another noise".into()));
    }

    #[test]
    fn parts_beside_correlated_noise_may_not_shrink() {
        let gaussian = PrivacyEvent::gaussian(Adjacency::ZeroOut, NoiseMultiplier::new(20.0).unwrap());
        let run = |steps, clips: u64| PrivacyEvent::Compose {
            events: vec![tree(7.0, &[Segment::of(steps)]), gaussian.clone().times(clips)],
        };
        assert_eq!(extends(&run(1, 1), &run(2, 2)), Ok(()));
        assert!(extends(&run(2, 2), &run(3, 1)).is_err());
        assert!(extends(&run(2, 2), &tree(7.0, &[Segment::of(3)])).is_err());
    }
}
