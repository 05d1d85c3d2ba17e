//! Files become stores: every format, bad lines, order, truncation, and what is left when an import fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use keyhush_corpus::{
    import::{
        self, BadLineReason, Columns, Format, ImportError, ImportPlan, Input, KnownLabels, LabelColumn, OnBadLine,
        Summary,
    },
    origin::{KnownVocabulary, Origin, SourceFile},
    store::Store,
    synth::{self, Crowd, Dialect, SynthPlan},
    words::{Texts, Words},
};
use lm::{
    tokenizer::{Rules, Tokenizer},
    vocabulary::Vocabulary,
};

const JSONL: &str = "{\"user\":\"ann\",\"text\":\"Hello, world!\"}\n{\"user\":\"bob\",\"text\":\"world\"}\n\n\
                     {\"text\":\"hello again\",\"id\":[1],\"user\":\"ann\"}\n";

fn plan(folder: &Path, files: &[(&str, &[u8])]) -> ImportPlan {
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    paths.iter().zip(files).for_each(|(path, (_, bytes))| std::fs::write(path, bytes).unwrap());
    let vocabulary = Vocabulary::new(["hello", ",", "world", "!", "again"]).unwrap();
    ImportPlan {
        input: Input::Files { paths, format: None, columns: Columns::new("user", "text") },
        out: folder.join("out.store"),
        replace: false,
        vocabulary: KnownVocabulary { vocabulary, rules: Rules::Words1, origin: Origin::BuiltIn },
        labels: None,
        tokens_per_user: None,
        keep_keys: true,
        on_bad_line: OnBadLine::Skip,
        most_bad_share: 1.0,
        threads: 2,
    }
}

fn run(plan: &ImportPlan) -> Result<Summary, ImportError> {
    import::run(plan, &mut |_| true)
}

fn text_of(store: &Store, user: &str) -> Vec<String> {
    let user = store.user(store.find(user).unwrap().unwrap()).unwrap();
    user.posts().map(|post| store.vocabulary().decode(store.tokenizer(), post.tokens().iter())).collect()
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
    damages_parquet_files(11);
}

#[cfg(feature = "parquet")]
#[test]
#[ignore = "long: every byte of a file is changed"]
fn parquet_files_damaged_anywhere_do_too() {
    damages_parquet_files(1);
}

/// One byte in so many is changed, and the file cut at one in five of those.
#[cfg(feature = "parquet")]
fn damages_parquet_files(one_in: usize) {
    let whole = parquet("snappy");
    for at in (0..whole.len()).step_by(one_in) {
        let folder = tempfile::tempdir().unwrap();
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        let _ = run(&plan(folder.path(), &[("a.parquet", &changed)]));
        if at.is_multiple_of(5) {
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
        "a.csv:3: has 1 field, but the header has 2",
        "a.csv:4: has 3 fields, but the header has 2",
        "a.csv:5: not valid UTF-8",
        "a.csv:6: the user is empty",
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
    let expected = ["a.jsonl:1: text has more than 4194304 bytes", "a.jsonl:2: line has more than 16777216 bytes"];
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
        if let Input::Files { format: as_said, columns, .. } = &mut plan.input {
            *as_said = format;
            *columns = Columns::default();
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
    assert!(no_column.contains("no column \"user\"; its columns are: who, what"), "{no_column}");
    assert!(matches!(run(&plan("a.doc", "")), Err(ImportError::UnknownFormat(_))));
    assert!(matches!(run(&plan("a.jsonl", "{\"x\":1}\n")), Err(ImportError::Nothing { bad: 1, .. })));
    let empty = run(&plan("b.jsonl", "")).unwrap_err().to_string();
    assert!(empty.ends_with("b.jsonl: the file is empty"), "{empty}");
    let mut missing = plan("c.jsonl", JSONL);
    missing.input = Input::Files {
        paths: vec![folder.path().join("nowhere.jsonl")],
        format: None,
        columns: Columns::new("user", "text"),
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
        plan.input = Input::Crowd { crowd: crowd.clone(), features: true };
        plan.labels = Some(KnownLabels { labels: synth::labels(), origin: Origin::BuiltIn });
        plan.vocabulary = KnownVocabulary::built_in(5000).unwrap();
        plan.threads = threads;
        let summary = run(&plan).unwrap();
        assert_eq!(summary.users, 300);
        stores.push(std::fs::read(&plan.out).unwrap());
        let store = Store::open(&plan.out).unwrap();
        let posts = text_of(&store, &crowd.key(17));
        assert_eq!(posts.len(), crowd.posts(17).len());
        let user = store.user(store.find(&crowd.key(17)).unwrap().unwrap()).unwrap();
        assert_eq!(user.features().iter().collect::<Vec<_>>(), crowd.features(17));
        for (i, post) in (0..).zip(user.posts()) {
            assert_eq!(post.labels().iter().collect::<Vec<_>>(), crowd.labelled_post(17, i).unwrap().labels());
        }
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

/// The plan with a column of labels and two of features; `rust` and `c#` are known.
fn known(plan: ImportPlan) -> ImportPlan {
    let Input::Files { paths, format, columns } = plan.input else { unreachable!("the plan is of files") };
    let labels = Some(LabelColumn { key: "tags".into(), separator: "|".into() });
    let columns = Columns { labels, features: vec!["age".into(), "height".into()], ..columns };
    let labels = Some(KnownLabels::from_list("rust\nc#\n", Path::new("tags.txt")).unwrap());
    ImportPlan { input: Input::Files { paths, format, columns }, labels, ..plan }
}

/// The names of the labels of each post, and the features.
fn known_of(store: &Store, user: &str) -> (Vec<String>, Vec<f32>) {
    let user = store.user(store.find(user).unwrap().unwrap()).unwrap();
    let names = |id| store.labels().name(id).unwrap();
    let labels = user.posts().map(|post| post.labels().iter().map(names).collect::<Vec<_>>().join(" "));
    (labels.collect(), user.features().iter().collect())
}

const KNOWN: &str = r#"{"user":"ann","text":"hello","tags":["c#","rust","perl"],"age":0.5,"height":-2}
{"user":"bob","text":"world","tags":null,"age":1e3,"height":0}
{"user":"ann","text":"again","tags":"rust | rust","age":0.5,"height":-2.0}
"#;

fn assert_known(plan: &ImportPlan, name: &str) {
    let summary = run(plan).unwrap();
    let counts = (summary.users, summary.posts, summary.labels, summary.unknown_labels, summary.bad_lines);
    assert_eq!(counts, (2, 3, 3, 1, 0), "{name}");
    let store = Store::open(&plan.out).unwrap();
    store.verify().unwrap();
    assert_eq!((store.labels().names().len(), store.feature_names()), (2, &["age".into(), "height".into()][..]));
    assert_eq!(known_of(&store, "ann"), (vec!["c# rust".into(), "rust".into()], vec![0.5, -2.0]), "{name}");
    assert_eq!(known_of(&store, "bob"), (vec![String::new()], vec![1000.0, 0.0]), "{name}");
    assert_eq!(store.meta().labels, Some(Origin::PublicList { name: "tags.txt".into() }));
    assert!(store.meta().non_private.is_empty());
}

#[test]
fn every_format_has_labels_and_features() {
    let csv = "age,tags,user,text,height\n0.5,<c#><rust><perl>,ann,hello,-2\n1e3,,bob,world,0\n\
               0.50,rust|,ann,again,-2.0\n";
    let files = [("a.jsonl", KNOWN.to_owned()), ("a.csv", csv.to_owned()), ("a.tsv", csv.replace(',', "\t"))];
    for (name, text) in files {
        let folder = tempfile::tempdir().unwrap();
        assert_known(&known(plan(folder.path(), &[(name, text.as_bytes())])), name);
    }
}

/// Parquet with these rows; labels as a list if `listed`, as one string otherwise.
#[cfg(feature = "parquet")]
fn known_parquet(listed: bool) -> Vec<u8> {
    use parquet::{
        data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };
    let tags = if listed {
        "optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }"
    } else {
        "optional binary tags (UTF8);"
    };
    let text = "required binary user (UTF8); required binary text (UTF8);";
    let message = format!("message m {{ {text} {tags} optional double age; required int32 height; }}");
    let schema = std::sync::Arc::new(parse_message_type(&message).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, WriterProperties::builder().build().into()).unwrap();
    let strings = |texts: &[&str]| texts.iter().map(|text| ByteArray::from(*text)).collect::<Vec<_>>();
    let mut group = writer.next_row_group().unwrap();
    for texts in [["ann", "bob", "ann"], ["hello", "world", "again"]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&strings(&texts), None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    let typed = column.typed::<ByteArrayType>();
    if listed {
        let values = strings(&["c#", "rust", "perl", "rust"]);
        typed.write_batch(&values, Some(&[3, 3, 3, 0, 3]), Some(&[0, 1, 1, 0, 0])).unwrap();
    } else {
        typed.write_batch(&strings(&["<c#><rust><perl>", "rust"]), Some(&[1, 0, 1]), None).unwrap();
    }
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[0.5, 1e3, 0.5], Some(&[1, 1, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[-2, 0, -2], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_has_labels_and_features() {
    for listed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        assert_known(&known(plan(folder.path(), &[("a.parquet", &known_parquet(listed))])), "parquet");
    }
}

#[test]
fn rows_of_a_user_that_contradict_each_other_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let other = KNOWN.replace("-2.0", "-2.5");
    let error = run(&known(plan(folder.path(), &[("a.jsonl", other.as_bytes())]))).unwrap_err().to_string();
    let expected = "a.jsonl:3: \"height\" differs from the first row of the same user; nothing was imported";
    assert_eq!(error, expected);
    assert_no_store(folder.path(), 1);
}

/// Also where the user has as many tokens as are kept before the row comes.
#[test]
fn a_row_that_is_cut_off_contradicts_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = known(plan(folder.path(), &[("a.jsonl", KNOWN.replace("-2.0", "7").as_bytes())]));
    plan.tokens_per_user = Some(1);
    assert!(matches!(run(&plan), Err(ImportError::Contradiction { line: 3, .. })));
}

#[test]
fn numbers_that_are_missing_and_labels_that_cannot_be_are_bad_lines() {
    let folder = tempfile::tempdir().unwrap();
    let csv = "age,tags,user,text,height\n1,,ann,hello,1\n,,bob,hello,1\n1,,cy,hello,tall\n1,,dy,hello,inf\n";
    let long =
        format!("{{\"user\":\"a\",\"text\":\"hello\",\"age\":1,\"height\":1,\"tags\":\"{}\"}}\n", "x".repeat(513));
    let lines = format!("{{\"user\":\"a\",\"text\":\"hello\",\"age\":1,\"height\":1,\"tags\":7}}\n{long}");
    let plan = known(plan(folder.path(), &[("a.csv", csv.as_bytes()), ("b.jsonl", lines.as_bytes())]));
    let summary = run(&plan).unwrap();
    let shown: Vec<String> = summary.first_bad_lines.iter().map(ToString::to_string).collect();
    let expected = [
        "a.csv:3: no finite number \"age\"",
        "a.csv:4: no finite number \"height\"",
        "a.csv:5: no finite number \"height\"",
        "b.jsonl:1: \"tags\" is neither a list of strings nor a string",
        "b.jsonl:2: label has more than 512 bytes",
    ];
    assert_eq!((summary.users, &shown[..]), (1, &expected.map(String::from)[..]));
}

#[test]
fn columns_that_are_not_there_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |name: &str, text: &str| known(plan(folder.path(), &[(name, text.as_bytes())]));
    let error = |plan: &ImportPlan| run(plan).unwrap_err().to_string();
    let tags = error(&plan("a.csv", "user,text\nann,hello\n"));
    assert!(tags.contains("no column \"tags\"; its columns are: user, text"), "{tags}");
    let age = error(&plan("b.csv", "user,text,tags\nann,hello,\n"));
    assert!(age.contains("no column \"age\""), "{age}");
    let mut leaf = plan("a.json", r#"{"user_data":{"ann":{"x":["hello"]}}}"#);
    if let Input::Files { format, .. } = &mut leaf.input {
        *format = Some(Format::Leaf);
    }
    assert!(error(&leaf).contains("no column \"tags\""), "{}", error(&leaf));
    let mut twice = plan("c.jsonl", KNOWN);
    if let Input::Files { columns, .. } = &mut twice.input {
        columns.features[1] = "age".into();
    }
    assert_eq!(error(&twice), "the feature \"age\" appears twice");
}

#[test]
fn labels_that_were_counted_are_not_private() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = known(plan(folder.path(), &[("a.jsonl", KNOWN.as_bytes())]));
    let (counts, summary) = import::count_labels(&plan.input, &mut |_| true).unwrap();
    assert_eq!((counts.most_frequent(2).unwrap().names(), summary.bad_lines), (&["rust".into(), "c#".into()][..], 0));
    let origin = Origin::UsersNonPrivately { name: "a.jsonl".into() };
    plan.labels = Some(KnownLabels { labels: counts.most_frequent(1).unwrap(), origin });
    let summary = run(&plan).unwrap();
    assert_eq!((summary.labels, summary.unknown_labels), (2, 2));
    let event = "the labels were counted from the users' own posts (a.jsonl) without noise";
    assert_eq!(Store::open(&plan.out).unwrap().meta().non_private, [event]);
}

/// A dump of Reddit beside JSON lines: the columns of one were looked for in the other, and 20,000 bad lines were an exit code of 0.
#[test]
fn files_of_two_formats_are_each_read_as_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let reddit = "{\"author\":\"cat\",\"body\":\"hello again\"}\n{\"author\":\"[deleted]\",\"body\":\"[deleted]\"}\n";
    let csv = "user,text\ndan,hello world\n";
    let files: [(&str, &[u8]); 3] =
        [("RC_2012-01", reddit.as_bytes()), ("a.jsonl", JSONL.as_bytes()), ("a.csv", csv.as_bytes())];
    let mut plan = plan(folder.path(), &files);
    let Input::Files { paths, .. } = &plan.input else { unreachable!("the plan is of files") };
    plan.input = Input::files(paths, None, None, None);
    let summary = run(&plan).unwrap();
    assert_eq!((summary.users, summary.posts, summary.bad_lines, summary.empty_posts), (4, 5, 0, 1));
    let store = Store::open(&plan.out).unwrap();
    assert_eq!(
        (text_of(&store, "cat"), text_of(&store, "dan")),
        (vec!["hello again".into()], vec!["hello world".into()])
    );
}

#[test]
fn more_bad_lines_than_are_allowed_are_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let text = JSONL.replace("\n\n", "\nnot json\n");
    let mut plan = plan(folder.path(), &[("a.jsonl", text.as_bytes())]);
    plan.most_bad_share = 0.2;
    let said = run(&plan).unwrap_err().to_string();
    assert!(
        said.starts_with("1 of 4 lines of a.jsonl could not be read, more than 20 %, so nothing was written"),
        "{said}"
    );
    assert!(said.contains("The first: a.jsonl:3"), "{said}");
    assert!(!plan.out.exists());
    plan.most_bad_share = 0.25;
    assert_eq!(run(&plan).unwrap().bad_lines, 1);
}

/// A small file of another kind passed beside a large good one: together they had few bad lines.
#[test]
fn a_small_file_that_is_all_bad_is_not_hidden_by_a_large_one() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (JSONL.repeat(50), "not json\n".repeat(3));
    let mut plan = plan(folder.path(), &[("good.jsonl", good.as_bytes()), ("bad.jsonl", bad.as_bytes())]);
    plan.most_bad_share = 0.05;
    let said = run(&plan).unwrap_err().to_string();
    assert!(said.starts_with("3 of 3 lines of bad.jsonl could not be read, more than 5 %"), "{said}");
    assert!(said.contains("The first: bad.jsonl:1") && !plan.out.exists(), "{said}");
}

/// However many lines were bad, a vocabulary of public posts only printed a note.
#[test]
fn a_vocabulary_is_not_made_of_what_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let good = write("good.jsonl", &JSONL.repeat(50));
    let bad = write("bad.jsonl", &JSONL.replace("\n\n", "\nnot json\n"));
    let texts = |most_bad_share| Texts { paths: vec![good.clone(), bad.clone()], most_bad_share, ..Texts::default() };
    let made = |words: Words| words.vocabulary(Tokenizer::words(), 6, &mut |_| true);
    for words in [Words::Public(texts(0.2)), Words::Users(texts(0.2))] {
        let said = made(words).unwrap_err().to_string();
        assert!(said.starts_with("1 of 4 lines of bad.jsonl could not be read, more than 20 %"), "{said}");
    }
    assert_eq!(made(Words::Public(texts(0.25))).unwrap().1.bad_lines, 1);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    for (name, text) in [("a.jsonl", JSONL.to_owned()), ("a.csv", "user,text\nann,hello\n".to_owned())] {
        let folder = tempfile::tempdir().unwrap();
        let marked = [b"\xEF\xBB\xBF", text.as_bytes()].concat();
        let summary = run(&plan(folder.path(), &[(name, &marked)])).unwrap();
        assert_eq!(summary.bad_lines, 0, "{name}");
    }
}
