//! What holds for every command.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{ffi::OsStr, fs, path::Path};

use clap::{Arg, Command, CommandFactory};

use crate::Cli;

/// Every command that runs, by its whole name.
fn commands() -> Vec<(String, Command)> {
    fn below(name: &str, command: &Command, all: &mut Vec<(String, Command)>) {
        let name = format!("{name} {}", command.get_name());
        command.get_subcommands().for_each(|command| below(&name, command, all));
        all.push((name, command.clone()));
    }
    let mut all = Vec::new();
    below("", &Cli::command(), &mut all);
    all
}

fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments()
}

/// `--threads 100000` was refused by some commands; by others it was taken, and ended in a panic.
#[test]
fn no_command_takes_an_absurd_number_of_threads() {
    let mut found = 0;
    for (name, command) in commands() {
        for threads in arguments(&command).filter(|arg| arg.get_id().as_str() == "threads") {
            found += 1;
            let parser = threads.get_value_parser().clone();
            let flag = Command::new("keyhush").arg(Arg::new("threads").long("threads").value_parser(parser));
            let parse = |number: &str| flag.clone().try_get_matches_from(["keyhush", &format!("--threads={number}")]);
            assert!(parse("3").is_ok(), "{name}");
            for absurd in ["0", "100000", "-1"] {
                assert!(parse(absurd).is_err(), "{name} --threads {absurd}");
            }
        }
    }
    assert!(found > 12, "{found} commands with --threads");
}

/// Errors named `--run` and `--model.vocabulary`, which are no flags: a field that is given to [`crate::failure::BadInput`] is printed as a
/// flag, also one that a library names.
#[test]
fn errors_name_flags_that_there_are() {
    let flags: Vec<String> = commands()
        .iter()
        .flat_map(|(_, command)| {
            arguments(command).filter_map(|arg| arg.get_long().map(str::to_owned)).collect::<Vec<_>>()
        })
        .collect();
    let mut wrong = Vec::new();
    let mut found = [0, 0];
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let own = sources(&root.join("cli/src")).into_iter().map(|source| (0, source, &OWN[..]));
    let libraries = LIBRARIES
        .into_iter()
        .flat_map(|(folder, makers)| sources(&root.join(folder)).into_iter().map(move |source| (1, source, makers)));
    for (whose, (file, text), makers) in own.chain(libraries) {
        for field in fields(&text, makers) {
            found[whose] += 1;
            // Lists of events come in batches only, whose errors name fields.
            if field != "events" && !flags.contains(&field.replace('_', "-")) {
                wrong.push(format!("{file}: --{}", field.replace('_', "-")));
            }
        }
    }
    assert!(wrong.is_empty(), "no command has these flags: {wrong:#?}");
    assert!(found[0] > 50 && found[1] > 50, "fields here and in libraries: {found:?}");
    let seen =
        fields("wrong(\n    \"one\", 3); at_least_one([(\"two\", 2), (\"three\", x)])?; (\"four\", 4)", &["wrong("]);
    assert_eq!(seen, ["one", "two", "three"]);
}

/// Where a field of bad input is asked for here.
const OWN: [&str; 6] = [
    "BadInput::wrong(",
    "BadInput::missing(",
    "BadInput::out_of_place(",
    "BadInput::out_of_range(",
    "BadInput::illegal(",
    "in_flags(",
];

/// Libraries whose errors name a field that becomes bad input (`failure.rs`, `audit`, `init`), and where they ask for it.
const LIBRARIES: [(&str, &[&str]); 5] = [
    ("bench/src", &["BenchError::wrong("]),
    ("pretraining/src", &["PretrainError::wrong("]),
    ("federated/src/audit", &["wrong(", "what: "]),
    ("federated/src/propose", &["refuse(", "unit(", "ProposeError::new("]),
    ("privacy/src/query", &["QueryError::wrong(", "QueryError::illegal(", "unit(", "field: "]),
];

/// Names that are written where a field is asked for, and those of counts that must not be 0.
fn fields<'a>(text: &'a str, makers: &[&str]) -> Vec<&'a str> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let named = |rest: &'a str| rest.trim_start().strip_prefix('"')?.split('"').next();
    let after = |maker: &&str| text.split(*maker).skip(1).filter_map(named).collect::<Vec<_>>();
    let counts = text.split("at_least_one([").skip(1).filter_map(|rest| rest.split("])").next());
    let in_counts = counts.flat_map(|list| list.split('(').skip(1).filter_map(named));
    makers.iter().flat_map(after).chain(in_counts).collect()
}

fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.file_name() != Some(OsStr::new("tests.rs")) {
            all.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    all
}
