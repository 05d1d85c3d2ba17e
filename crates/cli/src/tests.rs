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

/// An error named `--run`, which is no flag: a field that is given to [`crate::failure::BadInput`] is printed as a flag.
#[test]
fn errors_name_flags_that_there_are() {
    let flags: Vec<String> = commands()
        .iter()
        .flat_map(|(_, command)| {
            arguments(command).filter_map(|arg| arg.get_long().map(str::to_owned)).collect::<Vec<_>>()
        })
        .collect();
    let mut wrong = Vec::new();
    let mut found = 0;
    for (file, text) in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        for field in fields(&text) {
            found += 1;
            if !flags.contains(&field.replace('_', "-")) {
                wrong.push(format!("{file}: --{}", field.replace('_', "-")));
            }
        }
    }
    assert!(found > 50 && wrong.is_empty(), "no command has these flags: {wrong:#?}");
}

/// Names that are written where a field of bad input is asked for.
fn fields(text: &str) -> Vec<&str> {
    let makers = ["BadInput::wrong(", "BadInput::missing(", "BadInput::out_of_place(", "BadInput::illegal("];
    let after = |maker| text.split(maker).skip(1);
    let named = |rest: &'_ str| rest.trim_start().strip_prefix('"').is_some();
    makers.into_iter().flat_map(after).filter(|rest| named(rest)).filter_map(|rest| rest.split('"').nth(1)).collect()
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
