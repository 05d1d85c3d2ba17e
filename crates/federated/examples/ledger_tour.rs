//! Writes a small ledger with every kind of entry into an empty folder, as a run would, and prints its statement.
//!
//! `cargo run -p keyhush-federated --example ledger_tour -- FOLDER`. The ledgers that the tests of the
//! commands read (`crates/cli/tests/cmd/ledger.in`) were written by it. With `simulated` as a second argument the noise
//! is that of a seed.
//!
//! For the tests: into two folders, `ledger.jsonl*` of the one as it is and `ledger.jsonl` of the other, simulated, as
//! `simulated.jsonl`; `cut.jsonl` is the first six lines of the one, `damaged.jsonl` has another `"step"` in entry 3,
//! `doubled.jsonl` has the last line twice and beside it the head of the one, as `doubled.jsonl.head`.

#![allow(clippy::print_stdout, reason = "printing is what this program does")]

use std::{borrow::Cow, collections::BTreeMap, error::Error, path::Path};

use keyhush_federated::ledger_file::Place;
use ledger::{
    Aggregation, Attempt, Budget, DataSource, Ended, FailureReason, ImportKind, Ledger, LedgerStore, NoiseDestroyed,
    Phase, Plan, PublicData, Publication, SigningKey, Start, Unit, statement::Statement,
};
use privacy::{
    AccountantKind, Adjacency, Delta, Epsilon, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation,
    PrivacyEvent, Segment, rng::Randomness,
};

type Fallible<T> = Result<T, Box<dyn Error>>;

fn main() -> Fallible<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let randomness = match arguments.next().as_deref() {
        Some("simulated") => Randomness::Simulated { seed: 7 },
        _ => Randomness::Secret,
    };
    let place = Place::new(Path::new(&folder).join("ledger.jsonl"));
    let (mut ledger, key) = place.create(plan(randomness)?, 1_735_689_600)?;

    // Another run of the same sweep, in memory here.
    let mut sibling = Ledger::create(Default::default(), plan(randomness)?, SigningKey::generate()?, 1_735_689_600)?;
    release::<ledger::MemoryStore>(&mut sibling, 0, None)?;
    let import = sibling.as_import(ImportKind::SweepRun, "the same with a learning rate of 0.1", true);
    let _ = ledger.record_import(import, 1_735_689_601)?;

    for step in 0..4u64 {
        if step == 2 {
            let record = key.record("model", step, 0, [b"ada".as_slice()])?;
            let failed = Attempt { participations: Some(&record), ..attempt(0, step) };
            let _ = ledger.record_failed(step, FailureReason::BelowGoal, failed)?;
        }
        let record = key.record("model", step, 1, [[b"ada", b"bob", b"cyd", b"dan"][step as usize].as_slice()])?;
        release(&mut ledger, step, Some(&record))?;
    }
    let _ = ledger.record_data_changed("the owner of a device asked to be erased", 1_735_690_000)?;
    let _ = ledger.close(
        Ended::ByHand,
        place.secrets().destroy_pseudonym_key()?,
        NoiseDestroyed::assertion(),
        1_735_700_000,
    )?;
    println!("{}", Statement::of(&ledger)?.to_markdown());
    Ok(())
}

fn release<S: LedgerStore>(
    ledger: &mut Ledger<S>,
    step: u64,
    record: Option<&ledger::ParticipationRecord>,
) -> Fallible<()> {
    let event = tree(step + 1)?;
    let bytes: Vec<u8> = [3i64, -1, 4, 1].iter().flat_map(|v| (v + step as i64).to_le_bytes()).collect();
    let randomness = ledger.plan().randomness;
    let publication = Publication { event: &event, randomness, step, bytes: Cow::Owned(bytes) };
    let _ = ledger.publish(&publication, Attempt { participations: record, ..attempt(1, step) })?;
    Ok(())
}

fn attempt(number: u32, step: u64) -> Attempt<'static> {
    let time = 1_735_689_660 + 60 * step;
    Attempt { stream: "model", number, declared: 1000, participations: None, time }
}

fn tree(rounds: u64) -> Fallible<PrivacyEvent> {
    Ok(PrivacyEvent::CorrelatedGaussian {
        adjacency: Adjacency::ZeroOut,
        matrix: NoiseMatrix::Tree,
        segments: vec![Segment::of(rounds)],
        participation: limits()?,
        noise: NoiseMultiplier::new(7.0)?.into(),
    })
}

fn limits() -> Fallible<Participation> {
    let separation = MinSeparation::rounds_between(290)?;
    Ok(Participation::MinSeparation { separation, max_participations: 4 })
}

fn plan(randomness: Randomness) -> Fallible<Plan> {
    Ok(Plan {
        software: concat!("keyhush ", env!("CARGO_PKG_VERSION"), ", example of the ledger").into(),
        data: DataSource::Users { what: "what is typed on the devices".into() },
        unit: Unit::Device,
        adjacency: Adjacency::ZeroOut,
        population: 3_000_000,
        delta: Delta::new(1e-10)?,
        phases: vec![Phase {
            stream: "model".into(),
            mechanism: "sums of clipped updates with binary-tree noise of multiplier 7".into(),
            parameters: BTreeMap::from([("clip_norm".into(), "0.1".into())]),
            participation: limits()?,
            rounds: 1300,
            event: tree(1300)?,
        }],
        participation_kept_by: "the server".into(),
        accountant: AccountantKind::Best,
        group: 1,
        budget: Some(Budget::Fixed { max_epsilon: Epsilon::new(8.0)? }),
        start: Start::Public(PublicData {
            what: "a model trained on a public web crawl".into(),
            why: "the crawl is published by its makers".into(),
        }),
        after: Vec::new(),
        public_data: Vec::new(),
        randomness,
        aggregation: Aggregation::Secure {
            protocol: "pairwise masks; a third of the devices may collude with the server".into(),
            sees_updates: None,
            sees_sum: Some("the server".into()),
        },
    })
}
