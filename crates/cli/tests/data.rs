//! `keyhush data` as a user calls it: files to stores and back, vocabularies, and what the ledger says of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::{path::Path, process::Output};

use assert_cmd::Command;
use serde_json::Value;

/// Runs a command in a folder.
fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::cargo_bin("keyhush").unwrap();
    command.args(line.split_whitespace()).current_dir(folder).output().unwrap()
}

/// What a command that succeeds prints.
fn out(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&out(folder, &format!("{line} --json"))).unwrap()
}

/// How a command that fails ends, and what it says.
fn error(folder: &Path, line: &str) -> (Option<i32>, String) {
    let output = run(folder, line);
    assert!(!output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn posts(folder: &Path) {
    let lines = "{\"who\":\"ann\",\"what\":\"Hello, world!\"}\n{\"who\":\"bob\",\"what\":\"private words here\"}\n\
                 {\"who\":\"ann\",\"what\":\"hello again\"}\nbroken\n";
    std::fs::write(folder.join("posts.jsonl"), lines).unwrap();
    std::fs::write(folder.join("list.txt"), "hello\nworld\n,\n!\nagain\n").unwrap();
}

#[test]
fn posts_go_in_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    posts(folder);
    out(folder, "data vocab --from-list list.txt --out words.vocab");
    let line = "data import posts.jsonl --user-key who --text-key what --most-bad-lines 0.3 --vocab words.vocab --out posts.store";
    let report = json(folder, line);
    assert_eq!((&report["users"], &report["posts"], &report["bad_lines"]), (&2.into(), &3.into(), &1.into()));
    assert_eq!(report["first_bad_lines"][0]["line"], 4);
    assert_eq!(out(folder, "data show posts.store --user ann"), "hello, world!\nhello again\n");
    assert_eq!(out(folder, "data show posts.store --user bob"), "<unk> <unk> <unk>\n");
    let stats = json(folder, "data stats posts.store --verify --vocab words.vocab --split 100:100");
    assert_eq!((&stats["users"], &stats["tokens"], &stats["unknown"]), (&2.into(), &9.into(), &3.into()));
    assert_eq!(stats["id_bits"], 16);
    assert_eq!(stats["meta"]["rules"], "words-1");
    let (code, message) = error(folder, line);
    assert!(code == Some(2) && message.contains("posts.store already exists"), "{message}");
    out(folder, &format!("{line} --replace"));
    let stops = "data import posts.jsonl --user-key who --text-key what --out other.store --on-bad-line stop";
    let (code, message) = error(folder, stops);
    assert!(code == Some(1) && message.contains("posts.jsonl:4: not a JSON object"), "{message}");
    assert!(!folder.join("other.store").exists());
}

#[test]
fn a_store_with_another_vocabulary_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    posts(folder);
    out(folder, "data vocab --from-list list.txt --out five.vocab --size 8");
    out(folder, "data vocab --from-list list.txt --out two.vocab --size 5");
    out(
        folder,
        "data import posts.jsonl --user-key who --text-key what --most-bad-lines 0.3 --vocab five.vocab --out s.store",
    );
    let (code, message) = error(folder, "data stats s.store --vocab two.vocab");
    assert!(code == Some(2) && message.contains("made with a different vocabulary"), "{message}");
    assert!(message.contains("words-1 with 8 entries") && message.contains("words-1 with 5 entries"), "{message}");
}

/// Posts may come from another program.
#[test]
fn standard_input_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    posts(folder);
    let keys = ["--user-key", "who", "--text-key", "what", "--most-bad-lines", "0.3", "--format", "jsonl"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_keyhush"));
    command.current_dir(folder).args(["data", "import", "-", "--out", "s.store", "-q"]).args(keys);
    let output = command.stdin(std::fs::File::open(folder.join("posts.jsonl")).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stats = json(folder, "data stats s.store");
    assert_eq!((&stats["users"], &stats["meta"]["sources"][0]), (&2.into(), &"standard input".into()));
}

/// A bare list of words made every comma unknown, and nothing was said of it.
#[test]
fn a_list_of_words_gets_punctuation_and_little_coverage_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("posts.jsonl"), "{\"user\":\"ann\",\"text\":\"Hello, world! (Again?)\"}\n").unwrap();
    std::fs::write(folder.join("list.txt"), "hello\nworld\nagain\n").unwrap();
    let coverage = |flags: &str| {
        out(folder, &format!("data vocab --from-list list.txt {flags} --out words.vocab --replace"));
        let made = run(folder, "data import posts.jsonl --vocab words.vocab --out s.store --replace");
        (String::from_utf8(made.stdout).unwrap(), String::from_utf8(made.stderr).unwrap())
    };
    let (said, warned) = coverage("");
    assert!(said.contains("covered      100.00 %") && !warned.contains("warning"), "{said}{warned}");
    let (said, warned) = coverage("--no-punctuation");
    assert!(said.contains("covered      37.50 %"), "{said}");
    assert!(warned.contains("warning: this vocabulary covers only 37.50 % of the text"), "{warned}");
}

#[test]
fn parquet_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let all: Value = serde_json::from_str(include_str!("../../corpus/testdata/parquet.json")).unwrap();
    let digits = all["files"]["zstd"].as_str().unwrap();
    let bytes: Vec<u8> =
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect();
    std::fs::write(folder.join("posts.parquet"), bytes).unwrap();
    let report = json(folder, "data import posts.parquet --characters --most-bad-lines 0.3 --out p.store");
    assert_eq!((&report["users"], &report["posts"], &report["bad_lines"]), (&2.into(), &3.into(), &1.into()));
    assert_eq!(out(folder, "data show p.store --user bob --posts 1"), "world\n");
}

#[test]
fn words_of_users_are_refused_unless_asked_for_and_then_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    posts(folder);
    let keys = "--user-key who --text-key what --most-bad-lines 0.3";
    // Called public, and then imported: the same text.
    out(folder, &format!("data vocab --from-public-text posts.jsonl {keys} --out claimed.vocab"));
    let (code, message) = error(folder, &format!("data import posts.jsonl {keys} --vocab claimed.vocab --out s.store"));
    assert!(code == Some(2) && message.contains("use --from-users-non-privately"), "{message}");
    // By its name it is possible, but not without a ledger, nor without a declared population for a new one.
    let line = format!("data vocab --from-users-non-privately posts.jsonl {keys} --out own.vocab");
    let (code, message) = error(folder, &line);
    assert!(code == Some(2) && message.contains("--ledger"), "{message}");
    let (code, message) = error(folder, &format!("{line} --ledger words.jsonl"));
    assert!(code == Some(2) && message.contains("--population is missing"), "{message}");
    assert!(!folder.join("own.vocab").exists() && !folder.join("words.jsonl").exists());
    let made = json(folder, &format!("{line} --ledger words.jsonl --population 1000"));
    let event = "the vocabulary was counted from the users' own text (posts.jsonl) without noise";
    assert_eq!(made["non_private"], event);
    // The ledger verifies against the head that was printed, and its statement promises nothing.
    let head = made["ledger_head"].as_str().unwrap();
    let verified = json(folder, &format!("privacy verify --ledger words.jsonl --head {head}"));
    assert_eq!((&verified["verified"], &verified["holds"]), (&true.into(), &false.into()));
    let statement = out(folder, "privacy statement --ledger words.jsonl");
    assert!(statement.contains("**No guarantee:** epsilon is infinite."), "{statement}");
    assert!(statement.contains(&format!("Released **without privacy**: {event}.")), "{statement}");
    // The same words again are no second release; other words are.
    let again = json(folder, &format!("{line} --ledger words.jsonl --replace"));
    assert_eq!(again["ledger_head"], head);
    let other = json(folder, &format!("{line} --ledger words.jsonl --size 5 --replace"));
    assert_ne!(other["ledger_head"], head);
    // What was done stays with every store that is made with it.
    out(folder, &format!("data import posts.jsonl {keys} --vocab own.vocab --out s.store"));
    let stats = json(folder, "data stats s.store");
    assert_eq!(stats["meta"]["non_private"][0], event);
    assert!(out(folder, "data stats s.store").contains("not private"));
}

#[test]
fn a_damaged_store_is_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    out(folder, "data synth --users 20 --out s.store");
    let whole = std::fs::read(folder.join("s.store")).unwrap();
    for (name, bytes) in [("cut", whole[..whole.len() / 2].to_vec()), ("head", whole[..100].to_vec())] {
        std::fs::write(folder.join(name), bytes).unwrap();
        for command in ["stats", "show --index 0"] {
            let (command, rest) = command.split_once(' ').unwrap_or((command, ""));
            let (code, message) = error(folder, &format!("data {command} {name} {rest}"));
            assert!(code == Some(1) && message.contains(&format!("{name} is damaged")), "{message}");
        }
    }
    let mut changed = whole.clone();
    changed[600] ^= 1; // among the tokens
    std::fs::write(folder.join("changed"), changed).unwrap();
    let (code, message) = error(folder, "data stats changed --verify");
    assert!(code == Some(1) && message.contains("the checksum of its tokens is wrong"), "{message}");
}

#[test]
fn a_crowd_is_the_same_as_a_store_and_as_lines() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let crowd = "data synth --users 30 --seed 5 --canaries 2:3:4 --dialect general";
    out(folder, &format!("{crowd} --out direct.store"));
    out(folder, &format!("{crowd} --out lines.jsonl --jsonl --canaries-out canaries.jsonl"));
    out(folder, "data import lines.jsonl --out imported.store");
    let show = |store: &str| out(folder, &format!("data show {store} --user synth-000000000007"));
    assert_eq!(show("direct.store"), show("imported.store"));
    let planted = std::fs::read_to_string(folder.join("canaries.jsonl")).unwrap();
    assert_eq!(planted.lines().count(), 2);
    let lines = std::fs::read_to_string(folder.join("lines.jsonl")).unwrap();
    for canary in planted.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let holders = canary["users"].as_array().unwrap();
        assert_eq!(holders.len(), 3);
        let text = format!("\"text\":{}", canary["text"]);
        let copies: Vec<&str> = lines.lines().filter(|line| line.contains(&text)).collect();
        assert_eq!(copies.len(), 12);
        assert!(copies.iter().all(|line| holders.iter().any(|user| line.contains(user.as_str().unwrap()))));
    }
    let (code, message) = error(folder, &format!("{crowd} --out x --jsonl --tokens-per-user 16"));
    assert!(code == Some(2) && message.contains("--tokens-per-user cannot be used with --jsonl"), "{message}");
}

#[test]
fn users_are_cut_to_the_same_length() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let report = json(folder, "data synth --users 60 --posts-per-user 200 --tokens-per-user 1600 --out s.store");
    let (users, dropped) = (report["users"].as_u64().unwrap(), report["dropped_users"].as_u64().unwrap());
    assert!(users > 5 && dropped > 5 && users + dropped == 60);
    assert_eq!(report["tokens"], users * 1600);
    let stats = json(folder, "data stats s.store");
    assert_eq!((&stats["tokens_per_user"]["least"], &stats["tokens_per_user"]["most"]), (&1600.into(), &1600.into()));
}

/// Questions with tags by people of whom something is known.
fn questions(folder: &Path) {
    let lines = "{\"user\":\"ann\",\"text\":\"hello\",\"tags\":[\"rust\",\"c#\"],\"age\":0.5,\"posts\":3}\n\
                 {\"user\":\"bob\",\"text\":\"dog\",\"tags\":\"<rust><perl>\",\"age\":-1,\"posts\":0}\n\
                 {\"user\":\"ann\",\"text\":\"again\",\"age\":0.5,\"posts\":3}\n";
    std::fs::write(folder.join("questions.jsonl"), lines).unwrap();
    // As some editors save it: the byte order mark was part of the first name.
    std::fs::write(folder.join("tags.txt"), "\u{feff}c#\nrust\t17\n").unwrap();
}

#[test]
fn labels_and_features_go_in_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder);
    let line = "data import questions.jsonl --labels tags --label-names tags.txt --features age,posts --out q.store";
    let report = json(folder, line);
    assert_eq!(
        (&report["labels"], &report["unknown_labels"], &report["label_names"]),
        (&3.into(), &1.into(), &2.into())
    );
    assert_eq!(report["features"], serde_json::json!(["age", "posts"]));
    let shown = out(folder, "data show q.store --user ann");
    assert_eq!(shown, "features: age 0.5, posts 3\n[rust, c#] hello\n[] again\n");
    let bob = json(folder, "data show q.store --user bob");
    assert_eq!((&bob["labels"], &bob["features"]["age"]), (&serde_json::json!([["rust"]]), &(-1.0).into()));
    let stats = json(folder, "data stats q.store --verify");
    let top = serde_json::json!([{"entry":"rust","count":2}, {"entry":"c#","count":1}]);
    assert_eq!(stats["labels"], serde_json::json!({"names":2,"total":3,"posts_without":1,"top":top}));
    assert_eq!(stats["features"][1], serde_json::json!({"name":"posts","least":0.0,"most":3.0,"mean":1.5}));
    assert_eq!(stats["meta"]["labels"]["name"], "tags.txt");
    assert_eq!(stats["meta"]["non_private"], serde_json::json!([]));
}

#[test]
fn labels_counted_from_the_posts_are_said_to_be_not_private() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder);
    let made = run(folder, "data import questions.jsonl --labels tags --most-labels 1 --out q.store");
    let event = "the labels were counted from the users' own posts (questions.jsonl) without noise";
    let warning = String::from_utf8(made.stderr).unwrap();
    assert!(
        made.status.success() && warning.contains(&format!("warning: {event}; every run on this store")),
        "{warning}"
    );
    assert_eq!(json(folder, "data stats q.store")["meta"]["non_private"][0], event);
    assert!(out(folder, "data stats q.store").contains(&format!("not private  {event}")));
    assert_eq!(out(folder, "data show q.store --user bob"), "[rust] dog\n");
}

#[test]
fn a_crowd_has_the_same_labels_and_features_as_a_store_and_as_lines() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let crowd = "data synth --users 30 --seed 5 --canaries 2:3:4 --labels --features";
    out(folder, &format!("{crowd} --out direct.store"));
    out(folder, &format!("{crowd} --out lines.jsonl --jsonl"));
    let stats = json(folder, "data stats direct.store --top 100");
    let top = stats["labels"]["top"].as_array().unwrap();
    let names: Vec<&str> = top.iter().map(|top| top["entry"].as_str().unwrap()).collect();
    assert_eq!((names.len(), &stats["labels"]["posts_without"]), (25, &24.into()));
    std::fs::write(folder.join("names.txt"), names.join("\n")).unwrap();
    let features: Vec<&str> =
        stats["features"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    let columns = format!("--labels labels --label-names names.txt --features {}", features.join(","));
    out(folder, &format!("data import lines.jsonl {columns} --out imported.store"));
    for user in 0..30 {
        let show = |store: &str| out(folder, &format!("data show {store} --user synth-{user:012}"));
        assert_eq!(show("direct.store"), show("imported.store"));
    }
    let plain = out(folder, "data synth --users 30 --seed 5 --canaries 2:3:4 --jsonl --out -");
    let lines = std::fs::read_to_string(folder.join("lines.jsonl")).unwrap();
    for (plain, line) in plain.lines().zip(lines.lines()) {
        assert!(line.starts_with(plain.strip_suffix('}').unwrap()), "labels change what is typed: {line}");
    }
}
