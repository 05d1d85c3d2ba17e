//! The tests that every home must pass.

use std::io::{self, Read};

use ledger::{BegunAttempt, Ledger, LedgerStore};

use crate::home::{Home, Log, Paper, Records};

const PAPERS: [Paper; 5] = [Paper::Settings, Paper::Statement, Paper::StatementJson, Paper::PartOfASweep, Paper::Audit];
const LOGS: [Log; 4] = [Log::Metrics, Log::Timing, Log::Diagnostics, Log::Samples];

/// The suite, for a home in which there is nothing. `make` reopens the same one, as a restart does.
pub fn home<H: Home + Records>(make: &dyn Fn() -> H) {
    assert!(!make().name().is_empty());
    assert!(!make().has_model().expect("it can be looked for"));
    logs(make);
    papers(make);
    states(make);
    records(make);
}

fn papers<H: Home>(make: &dyn Fn() -> H) {
    for paper in PAPERS {
        let read = |paper| make().paper(paper).expect("it can be read");
        assert_eq!(read(paper), None);
        make().remove_paper(paper).expect("nothing is there, and that is no failure");
        for text in ["rounds = 3\n", "", "one line\nanother, without an end"] {
            make().write_paper(paper, text).unwrap();
            assert_eq!(read(paper).as_deref(), Some(text), "{paper:?}");
            let other = PAPERS.into_iter().find(|other| *other != paper && read(*other).is_some());
            assert_eq!(other, None, "{paper:?} is another paper too");
        }
        make().remove_paper(paper).unwrap();
        assert_eq!(read(paper), None, "{paper:?}");
    }
}

fn states<H: Home>(make: &dyn Fn() -> H) {
    let write = |round: u64, bytes: &[u8]| make().write_state(round, Some(86_400), &mut |out| out.write_all(bytes));
    let read = |round: u64| {
        let mut bytes = Vec::new();
        make().read_state(round).map(|mut from| from.read_to_end(&mut bytes).unwrap()).ok().map(|_| bytes)
    };
    assert!(make().states().unwrap().is_empty());
    assert_eq!(read(3), None);
    for (round, bytes) in [(3, &b"three"[..]), (12, &[0; 5000]), (2_000_000_000, b"far"), (0, b"")] {
        write(round, bytes).unwrap();
        assert_eq!(read(round).as_deref(), Some(bytes), "the state after {round}");
        assert!(!make().state_name(round).is_empty());
    }
    assert_eq!(make().states().unwrap(), [2_000_000_000, 12, 3, 0], "the newest first");
    write(3, b"another").unwrap();
    assert_eq!(read(3).as_deref(), Some(&b"another"[..]));
    let mut torn = |out: &mut dyn io::Write| {
        out.write_all(b"half of it")?;
        Err(io::Error::other("the power is gone"))
    };
    make().write_state(3, None, &mut torn).expect_err("a state that is not whole");
    make().write_state(4, None, &mut torn).expect_err("a state that is not whole");
    assert_eq!(read(3).as_deref(), Some(&b"another"[..]), "a state is there whole or as it was");
    assert_eq!(make().states().unwrap(), [2_000_000_000, 12, 3, 0], "half a state is none");
    for round in [12, 0] {
        make().remove_state(round).unwrap();
        assert_eq!(read(round), None);
    }
    assert_eq!(make().states().unwrap(), [2_000_000_000, 3]);
    for round in [3, 2_000_000_000] {
        make().remove_state(round).unwrap();
    }
}

fn logs<H: Home>(make: &dyn Fn() -> H) {
    let lines = |log| make().lines(log).expect("it can be read");
    for log in LOGS {
        assert!(lines(log).is_empty());
        let mut writer = make().open_log(log, &|_| true).unwrap();
        for line in ["{\"round\":0}", "{\"round\":1}", "{\"round\":2}"] {
            writer.append(line).unwrap();
        }
        writer.sync().unwrap();
        assert_eq!(lines(log), ["{\"round\":0}", "{\"round\":1}", "{\"round\":2}"], "{log:?}");
        drop(writer);
        let mut writer = make().open_log(log, &|line| !line.contains('1')).unwrap();
        assert_eq!(lines(log), ["{\"round\":0}", "{\"round\":2}"], "{log:?}: what nobody wants goes");
        writer.append("{\"round\":3}").unwrap();
        drop(writer);
        drop(make().open_log(log, &|_| true).unwrap());
        assert_eq!(lines(log), ["{\"round\":0}", "{\"round\":2}", "{\"round\":3}"], "{log:?}: the rest stays");
    }
    for log in LOGS {
        drop(make().open_log(log, &|_| false).unwrap());
        assert!(lines(log).is_empty());
    }
}

/// That a ledger is begun once, has one writer, and reads the same for all readers; the store itself is `ledger::contract`'s.
fn records<H: Records>(make: &dyn Fn() -> H) {
    assert!(!make().is_begun().unwrap());
    assert!(make().open_store().is_err() && make().read_store().is_err(), "there is no ledger yet");
    let plan = ledger::contract::plan();
    let store = make().create_store().unwrap();
    assert!(make().create_store().is_err(), "two begin at once");
    let (ledger, _) = make().secrets().begin_ledger(store, plan, 1).unwrap();
    let head = ledger.head();
    assert!(make().is_begun().unwrap());
    assert!(make().create_store().is_err(), "a second ledger");
    assert!(make().open_store().is_err(), "a second writer");
    assert_eq!(make().read_store().unwrap().head().unwrap(), head, "a reader does not wait for the writer");
    drop(ledger);
    assert!(make().create_store().is_err(), "a second ledger, after the first writer");
    let (ledger, key) = make().secrets().open_ledger(make().open_store().unwrap(), &[head]).unwrap();
    assert_eq!(ledger.head(), head);
    assert!(key.is_some());
    let heads = make().shown_heads().unwrap();
    heads.iter().for_each(|head| ledger.check_head(head).unwrap());
    let mut read = Ledger::open(make().read_store().unwrap(), None, &heads).unwrap();
    assert!(read.record_data_changed("nothing", 2).is_err(), "a reader writes");
    let mut reader = make().read_store().unwrap();
    let begun = BegunAttempt { stream: "model".into(), step: 0, attempt: 0, declared: 10 };
    assert!(reader.begin_attempt(&begun).is_err(), "a reader begins an attempt");
    assert!(reader.forget_attempt().is_err(), "a reader forgets an attempt");
    assert!(reader.discard_released(1).is_err(), "a reader lets go of vectors");
}
