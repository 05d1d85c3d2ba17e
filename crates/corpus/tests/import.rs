//! Files become stores: every format, bad lines, order, truncation, and what is left when an import fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use keyhush_corpus::{
    import::{self, BadLineReason, Format, ImportError, ImportPlan, Input, OnBadLine, Summary},
    origin::{KnownVocabulary, Origin, SourceFile},
    store::Store,
    synth::{Crowd, Dialect, SynthPlan},
};
use lm::{tokenizer::Rules, vocabulary::Vocabulary};

const JSONL: &str = "{\"user\":\"ann\",\"text\":\"Hello, world!\"}\n{\"user\":\"bob\",\"text\":\"world\"}\n\n\
                     {\"text\":\"hello again\",\"id\":[1],\"user\":\"ann\"}\n";

fn plan(folder: &Path, files: &[(&str, &[u8])]) -> ImportPlan {
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    paths.iter().zip(files).for_each(|(path, (_, bytes))| std::fs::write(path, bytes).unwrap());
    let vocabulary = Vocabulary::new(["hello", ",", "world", "!", "again"]).unwrap();
    ImportPlan {
        input: Input::Files { paths, format: None, user_key: "user".into(), text_key: "text".into() },
        out: folder.join("out.store"),
        replace: false,
        vocabulary: KnownVocabulary { vocabulary, rules: Rules::Words1, origin: Origin::BuiltIn },
        tokens_per_user: None,
        keep_keys: true,
        on_bad_line: OnBadLine::Skip,
        threads: 2,
    }
}

fn run(plan: &ImportPlan) -> Result<Summary, ImportError> {
    import::run(plan, &mut |_| true)
}

fn text_of(store: &Store, user: &str) -> Vec<String> {
    let user = store.user(store.find(user).unwrap().unwrap()).unwrap();
    user.posts().map(|post| store.vocabulary().decode(store.tokenizer(), post.iter())).collect()
}

/// A file that another program wrote; `testdata/parquet.json` says which and how.
#[cfg(feature = "parquet")]
fn parquet(name: &str) -> Vec<u8> {
    let all: serde_json::Value = serde_json::from_str(include_str!("../testdata/parquet.json")).unwrap();
    let digits = all["files"][name].as_str().unwrap();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_of_another_program_are_read() {
    for name in ["none", "snappy", "gzip", "zstd"] {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), &[("a.parquet", &parquet(name))]);
        let summary = run(&plan).unwrap();
        assert_eq!((summary.users, summary.posts, summary.tokens, summary.bad_lines), (2, 3, 7, 1), "{name}");
        assert_eq!((summary.first_bad_lines[0].line, &summary.first_bad_lines[0].reason), (4, &BadLineReason::NoUser));
        assert_eq!(text_of(&Store::open(&plan.out).unwrap(), "ann"), ["hello, world!", "hello again"], "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let summary = run(&plan(folder.path(), &[("a.parquet", &parquet("numbers"))])).unwrap();
    assert_eq!((summary.users, summary.first_bad_lines[0].reason.clone()), (1, BadLineReason::NotUtf8));
    assert_eq!(text_of(&Store::open(&folder.path().join("out.store")).unwrap(), "7"), ["hello"]);
}

#[cfg(feature = "parquet")]
#[test]
fn damaged_parquet_files_give_errors_and_no_panic() {
    let whole = parquet("snappy");
    for at in (0..whole.len()).step_by(3) {
        let folder = tempfile::tempdir().unwrap();
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        let _ = run(&plan(folder.path(), &[("a.parquet", &changed)]));
        if at % 15 == 0 {
            let cut = run(&plan(folder.path(), &[("cut.parquet", &whole[..at])]));
            assert!(
                matches!(cut, Err(ImportError::Malformed { format: "Parquet", .. } | ImportError::Store(_))),
                "{at}"
            );
        }
    }
}

#[test]
fn rows_that_are_not_like_the_header_are_bad_lines() {
    let folder = tempfile::tempdir().unwrap();
    let text = b"user,text\nann,hello\nbob\ncy,a,b\n\"\xff\",hello\n,hello\nann,\"world\nagain\"\n";
    let plan = plan(folder.path(), &[("a.csv", text)]);
    let summary = run(&plan).unwrap();
    assert_eq!((summary.users, summary.posts, summary.bad_lines), (1, 2, 4));
    let shown: Vec<String> = summary.first_bad_lines.iter().map(ToString::to_string).collect();
    let expected = [
        "a.csv:3: it has 1 fields and the header 2",
        "a.csv:4: it has 3 fields and the header 2",
        "a.csv:5: it is not UTF-8",
        "a.csv:6: its user is empty",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn absurd_lengths_are_bad_lines() {
    let folder = tempfile::tempdir().unwrap();
    let text = |length: usize| format!("{{\"user\":\"ann\",\"text\":\"{}\"}}\n", "a".repeat(length));
    let lines = [text(5 << 20), text(17 << 20), text(3)].concat();
    let summary = run(&plan(folder.path(), &[("a.jsonl", lines.as_bytes())])).unwrap();
    let shown: Vec<String> = summary.first_bad_lines.iter().map(ToString::to_string).collect();
    let expected =
        ["a.jsonl:1: its text has more than 4194304 bytes", "a.jsonl:2: its line has more than 16777216 bytes"];
    assert_eq!((summary.posts, &shown[..]), (1, &expected.map(String::from)[..]));
}

#[test]
fn a_vocabulary_of_the_same_text_is_not_public() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(folder.path(), &[("copy.jsonl", JSONL.as_bytes()), ("posts.jsonl", JSONL.as_bytes())]);
    plan.vocabulary.origin =
        Origin::PublicText { files: vec![SourceFile::of(&folder.path().join("copy.jsonl")).unwrap()] };
    let error = run(&plan).unwrap_err();
    assert!(matches!(&error, ImportError::NotPublic(path) if path.ends_with("copy.jsonl")), "{error}");
    assert_no_store(folder.path(), 2);
}

/// Nothing but what was there before.
fn assert_no_store(folder: &Path, files: usize) {
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), files);
}

#[test]
fn every_format_gives_the_same_store() {
    let gz = || {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(JSONL.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let csv = "id,user,text\n1,ann,\"Hello, world!\"\n2,bob,world\n3,ann,hello again\n";
    let leaf =
        r#"{"users":[],"user_data":{"ann":{"x":["Hello, world!",["<BOS>","hello","again"]]},"bob":{"x":["world"]}}}"#;
    let reddit = "{\"author\":\"ann\",\"body\":\"Hello, world!\"}\n{\"author\":\"[deleted]\",\"body\":\"x\"}\n\
                  {\"author\":\"bob\",\"body\":\"world\"}\n{\"author\":\"bob\",\"body\":\"[removed]\"}\n\
                  {\"author\":\"ann\",\"body\":\"hello again\"}";
    let files: [(&str, Vec<u8>, Option<Format>); 7] = [
        ("a.jsonl", JSONL.into(), None),
        ("a.jsonl.gz", gz(), None),
        ("a.jsonl.zst", zstd::encode_all(JSONL.as_bytes(), 3).unwrap(), None),
        ("a.csv", csv.into(), None),
        ("a.tsv", csv.replace("\"Hello, world!\"", "Hello; world!").replace(',', "\t").replace(';', ",").into(), None),
        ("a.json", leaf.into(), Some(Format::Leaf)),
        ("RC_2012-01", reddit.into(), None),
    ];
    for (name, bytes, format) in files {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = plan(folder.path(), &[(name, &bytes)]);
        if let Input::Files { format: as_said, user_key, text_key, .. } = &mut plan.input {
            *as_said = format;
            if name.starts_with("RC") {
                (*user_key, *text_key) = ("author".into(), "body".into());
            }
        }
        let summary = run(&plan).unwrap();
        assert_eq!((summary.users, summary.posts, summary.tokens, summary.bad_lines), (2, 3, 7, 0), "{name}");
        let store = Store::open(&plan.out).unwrap();
        store.verify().unwrap();
        assert_eq!(text_of(&store, "ann"), ["hello, world!", "hello again"], "{name}");
        assert_eq!(store.meta().sources, [name]);
    }
}

#[test]
fn bad_lines_are_counted_shown_and_skipped_or_fatal() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{{\"user\":\"{}\",\"text\":\"hello\"}}\n", "u".repeat(600));
    let lines = [
        &b"{\"user\":\"ann\",\"text\":\"hello\"}\nnot json\n{\"user\":\"b\"}\n{\"user\":\"\xff\"}\n"[..],
        long.as_bytes(),
    ]
    .concat();
    let mut plan = plan(folder.path(), &[("ok.jsonl", JSONL.as_bytes()), ("bad.jsonl", &lines)]);
    let summary = run(&plan).unwrap();
    assert_eq!((summary.users, summary.bad_lines), (2, 4));
    let shown: Vec<(&str, u64)> = summary.first_bad_lines.iter().map(|bad| (bad.file.as_str(), bad.line)).collect();
    assert_eq!(shown, [("bad.jsonl", 2), ("bad.jsonl", 3), ("bad.jsonl", 4), ("bad.jsonl", 5)]);
    assert_eq!(summary.first_bad_lines[2].reason, BadLineReason::NotUtf8);
    std::fs::remove_file(&plan.out).unwrap();
    plan.on_bad_line = OnBadLine::Stop;
    let error = run(&plan).unwrap_err();
    assert!(matches!(&error, ImportError::BadLine(bad) if bad.line == 2), "{error}");
    assert_no_store(folder.path(), 2);
}

#[test]
fn users_are_cut_and_dropped_as_mcmahan_et_al_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(folder.path(), &[("a.jsonl", JSONL.as_bytes())]);
    plan.tokens_per_user = Some(5);
    let summary = run(&plan).unwrap();
    assert_eq!((summary.users, summary.dropped_users, summary.tokens), (1, 1, 5));
    assert_eq!(text_of(&Store::open(&plan.out).unwrap(), "ann"), ["hello, world!", "hello"]);
    std::fs::remove_file(&plan.out).unwrap();
    plan.tokens_per_user = Some(50);
    assert!(matches!(run(&plan), Err(ImportError::NobodyLongEnough { users: 2, tokens: 50 })));
    assert_no_store(folder.path(), 1);
}

#[test]
fn a_failed_or_interrupted_import_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), &[("a.jsonl", JSONL.as_bytes())]);
    let mut calls = 0;
    let mut third = |_| {
        calls += 1;
        calls < 3
    };
    assert!(matches!(import::run(&plan, &mut third), Err(ImportError::Interrupted)));
    assert_no_store(folder.path(), 1);
    let cut = zstd::encode_all(JSONL.repeat(1000).as_bytes(), 3).unwrap();
    let plan = self::plan(folder.path(), &[("cut.jsonl.zst", &cut[..cut.len() - 9])]);
    assert!(matches!(run(&plan), Err(ImportError::Read { .. })));
    assert_no_store(folder.path(), 2);
}

#[test]
fn errors_say_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |name: &str, text: &str| plan(folder.path(), &[(name, text.as_bytes())]);
    let no_column = run(&plan("a.csv", "who,what\n1,2\n")).unwrap_err().to_string();
    assert!(no_column.contains("no column \"user\"; there are: who, what"), "{no_column}");
    assert!(matches!(run(&plan("a.doc", "")), Err(ImportError::UnknownFormat(_))));
    assert!(matches!(run(&plan("a.jsonl", "{\"x\":1}\n")), Err(ImportError::Nothing { bad: 1, .. })));
    assert!(matches!(run(&plan("b.jsonl", "")), Err(ImportError::Nothing { bad: 0, .. })));
    let mut missing = plan("c.jsonl", JSONL);
    missing.input = Input::Files {
        paths: vec![folder.path().join("nowhere.jsonl")],
        format: None,
        user_key: "user".into(),
        text_key: "text".into(),
    };
    assert!(matches!(run(&missing), Err(ImportError::Read { .. })));
    assert_no_store(folder.path(), 5);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let crowd = Crowd::new(SynthPlan { posts_per_user: 5, ..SynthPlan::new(3, 300, Dialect::Informal) }).unwrap();
    let mut stores = Vec::new();
    for threads in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = plan(folder.path(), &[]);
        plan.input = Input::Crowd(crowd.clone());
        plan.vocabulary = KnownVocabulary::built_in(5000).unwrap();
        plan.threads = threads;
        let summary = run(&plan).unwrap();
        assert_eq!(summary.users, 300);
        stores.push(std::fs::read(&plan.out).unwrap());
        let store = Store::open(&plan.out).unwrap();
        let posts = text_of(&store, &crowd.key(17));
        assert_eq!(posts.len(), crowd.posts(17).len());
    }
    assert!(stores[0] == stores[1]);
}

#[test]
fn hostile_lines_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes: Vec<u8> = Vec::new();
    let mut state = 1_u64;
    for i in 0..200_000_u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i);
        bytes.push(b"{}[]\":,\\\n\xff ut0a\xf0\x9f"[(state >> 60) as usize]);
    }
    bytes.extend(b"\n{\"user\":\"a\",\"text\":\"hello\"}");
    let plan = plan(folder.path(), &[("a.jsonl", &bytes)]);
    let summary = run(&plan).unwrap();
    assert_eq!((summary.users, summary.first_bad_lines.len()), (1, 5));
}
