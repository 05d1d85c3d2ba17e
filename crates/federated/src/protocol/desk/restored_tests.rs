//! Tests of restored sums: a sealed sum and the list of its reports are only accepted together.

use device::guard::TaskDigest;
use privacy::{Adjacency, ClipNorm, Participation, encoding::VectorPlan};
use zeroize::Zeroizing;

use super::*;

const AT: AttemptAt = AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 };
const DEVICES: u8 = 20;

fn encoding() -> Encoding {
    let clip = ClipNorm::new(1.0).unwrap();
    Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap()
}

fn opening(goal: u64) -> Opening {
    Opening {
        at: AT,
        step: 0,
        goal,
        limits: ParticipationLimits::try_from(&Participation::Once).unwrap(),
        windows: Windows { select_ms: 1, report_ms: 60_000, answer_ms: 1, tick_ms: 1 },
        task: Blob { digest: vec![1; 32], bytes: 1 },
        model: Blob { digest: vec![2; 32], bytes: 4 },
        terms: Vec::new(),
        key: RoundKey::new(Zeroizing::new([3; 32])),
        aggregation: Aggregation::Plain(encoding()),
    }
}

fn device(byte: u8) -> DeviceKey {
    DeviceKey([byte; 32])
}

fn reports(desk: &mut Desk, byte: u8) -> Taken {
    desk.report(&device(byte), &Encoded::of(vec![1], &encoding()).unwrap(), 2).unwrap()
}

/// What a store has after the reports of all but the last four devices were merged.
fn kept() -> OpenAttempt {
    let mut desk = Desk::open(opening(100), None, 0).unwrap();
    let assigned: Vec<DeviceKey> = (0..DEVICES).map(device).collect();
    desk.assign(&assigned, 1).unwrap();
    for byte in (0..DEVICES - 4).rev() {
        assert_eq!(reports(&mut desk, byte), Taken::Added);
    }
    let Some(Write::Merge { sealed, mut reports, .. }) = desk.merge(10_000).unwrap() else { panic!("no merge") };
    reports.sort_unstable();
    OpenAttempt { at: AT, assigned, merged: reports, sealed: Some(sealed) }
}

/// Sixteen were merged, and somebody wrote into the database that nobody was: all would send again, and be in the sum twice.
#[test]
fn p24_a_sum_is_gone_on_with_by_its_own_list_alone() {
    let kept = kept();
    let goes_on = |changed: &dyn Fn(&mut OpenAttempt)| {
        let mut kept = kept.clone();
        changed(&mut kept);
        let opens = opens(&kept, &opening(1).key, &encoding());
        assert_eq!(Desk::open(opening(100), Some(kept), 0).is_ok(), opens);
        opens
    };
    assert!(goes_on(&|_| {}), "as it was");
    assert!(goes_on(&|kept| kept.merged.reverse()), "in another order");
    assert!(!goes_on(&|kept| kept.merged.clear()), "nobody's");
    assert!(!goes_on(&|kept| _ = kept.merged.pop()), "of one fewer");
    assert!(!goes_on(&|kept| kept.merged.push(device(DEVICES - 1))), "of one more");
    assert!(!goes_on(&|kept| kept.merged[3] = device(DEVICES - 1)), "of as many, and of another one");
    assert!(!goes_on(&|kept| kept.sealed = None), "the list without its sum");
    assert!(!goes_on(&|kept| _ = kept.assigned.remove(3)), "of somebody who was not given the task");
    let all_forgotten = |kept: &mut OpenAttempt| {
        kept.merged.clear();
        kept.sealed = None;
    };
    assert!(goes_on(&all_forgotten), "both are gone: everybody sends again, and is in the sum once");
}

#[test]
fn p24_a_sum_is_not_released_where_somebody_is_in_it_twice() {
    let mut desk = Desk::open(opening(2), None, 0).unwrap();
    desk.assign(&[device(1), device(2)], 1).unwrap();
    assert_eq!(reports(&mut desk, 1), Taken::Added);
    // A bug, or a list that was changed: it stands there as one who has sent nothing.
    desk.places.get_mut(&device(1)).unwrap().progress = Progress::Working { until: 60_000 };
    reports(&mut desk, 1);
    let closed = desk.take_closed();
    assert!(matches!(&closed, Some(Closed::Failed(FailureReason::Interrupted, all)) if all.len() == 2), "{closed:?}");
}
