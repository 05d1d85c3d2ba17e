//! Every command in the README and the docs runs here, and prints what the page says it prints.
//!
//! A command is a line of an `sh` block, or a line that begins with `$ ` in a `console` block, in a block without a
//! language or outside blocks. A command of `keyhush` runs through `sh` with the binary of this build first on the path, so
//! pipes and redirections work; the commands of one page run in one fresh folder, in the order of the page. It must end
//! with 0 within five minutes, or with the number that the line `? N` after it says. Lines of output shown below a `$ `
//! command must come out; a line `...` stands for any lines and `[..]` for anything within a line. What is compared is
//! stdout, and stderr after it where `? N` announces an error.
//!
//! trycmd reads such pages too, but it skips `sh` blocks, knows no pipes and lets an unknown command pass.
//!
//! The binary is the one beside this test in the target folder. It is built if it is not there; it is not rebuilt if it
//! is old, since a build of the whole workspace comes first in `cargo xtask test`.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Words with which a line to run may begin: our program, and what makes or shows the files it reads and writes.
const RUN: [&str; 4] = ["keyhush", "echo", "printf", "cat"];

/// How the pages call our program from a checkout.
const FROM_CHECKOUT: &str = "cargo run --release -- ";

/// What the pages may say and this test does not run.
const NOT_RUN: [(&str, &str); 5] = [
    ("cargo xtask test", "runs this test: it would never end"),
    ("cargo xtask bench", "takes minutes and makes a Python environment; benches are never run in tests"),
    ("cargo xtask dist", "builds all of the program, optimised, for two machines"),
    ("git clone", "needs the network, and what it would fetch is already here"),
    ("cargo install", "builds the release once more and writes outside the project"),
];

/// The README's first command, and what of it runs with every test: whole it trains for a minute or two on two cores, which are then no one
/// else's. All of it is [`the_first_command_runs_to_its_end`].
const FIRST: (&str, &str) = ("keyhush train", "keyhush train --set rounds=3");

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(300);

/// A command as a page has it.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    command: String,
    /// The lines shown below it.
    output: Vec<String>,
    /// How it should end.
    code: i32,
}

#[test]
fn every_command_in_the_docs_runs() {
    let binary = binary();
    let mut failures = Vec::new();
    let mut ran = 0;
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).expect("a page can be read");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs").join(page.replace('/', "-"));
        let _ = std::fs::remove_dir_all(&folder);
        // Where a page has a server's folder of secrets, the server was started before.
        std::fs::create_dir_all(&folder).expect("the target folder can be written");
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(folder.join("SECRETS"))
            .expect("the folder of a page can be written");
        for shown in commands(&text) {
            let outcome = match fate(&shown.command) {
                Fate::Run(command) => {
                    ran += 1;
                    let start = Instant::now();
                    let ended = run(&command, &folder, &binary);
                    println!("{:>6.1} s  {page}:{}  {command}", start.elapsed().as_secs_f64(), shown.line);
                    ended.and_then(|ended| judge(&shown, &ended))
                }
                Fate::Skip => Ok(()),
                Fate::Unknown => {
                    Err("unknown command in the docs: run it in xtask/tests/docs.rs or say there why not".into())
                }
            };
            failures.extend(outcome.err().map(|why| format!("{page}:{}: {}\n{why}", shown.line, shown.command)));
        }
    }
    assert!(failures.is_empty(), "\n{} of the docs:\n\n{}\n", failures.len(), failures.join("\n\n"));
    assert!(ran > 0, "no command of the docs was run: the pages or this test are wrong");
}

#[test]
#[ignore = "a minute or two of all cores"]
fn the_first_command_runs_to_its_end() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs").join("first");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let ended = run(FIRST.0, &folder, &binary()).expect("it ends");
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stdout.contains("of the next words of held-out users") && ended.stdout.contains("report.html"));
}

#[test]
fn the_readme_has_the_two_commands() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    let shown: Vec<String> = commands(&text).into_iter().map(|s| s.command).collect();
    for command in ["cargo run --release -- train", "cargo xtask test"] {
        assert!(shown.iter().any(|s| s == command), "the README does not show `{command}`: {shown:?}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// The pages that speak to users and contributors, relative to the root.
fn pages() -> Vec<String> {
    let mut found = Vec::new();
    for (folder, depth) in [("", 0), ("docs", 9), ("crates", 1), ("bench", 9), ("examples", 9), ("experiments", 9)] {
        markdown(&root().join(folder), depth, &mut found);
    }
    let relative =
        |path: PathBuf| path.strip_prefix(root()).expect("under the root").to_string_lossy().replace('\\', "/");
    let mut pages: Vec<String> = found.into_iter().map(relative).collect();
    pages.sort();
    pages
}

fn markdown(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if path.is_dir() && depth > 0 && !hidden {
            markdown(&path, depth - 1, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// The commands of a page, in order.
fn commands(text: &str) -> Vec<Shown> {
    let mut language: Option<String> = None;
    let mut shown: Vec<Shown> = Vec::new();
    let mut continued = false;
    let mut listening = false;
    for (i, line) in text.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let opened = info.split([',', ' ']).next().unwrap_or_default().to_owned();
            language = if language.is_none() { Some(opened) } else { None };
            (continued, listening) = (false, false);
            continue;
        }
        let written = match language.as_deref() {
            Some("sh" | "bash" | "shell") => {
                let line = line.trim();
                Some(line.strip_prefix("$ ").unwrap_or(line)).filter(|line| !line.is_empty() && !line.starts_with('#'))
            }
            Some("console" | "") | None => line.trim_start().strip_prefix("$ "),
            Some(_) => continue,
        };
        match (written, shown.last_mut()) {
            (_, Some(last)) if continued => {
                last.command.push_str(line.trim());
                continued = last.command.ends_with('\\');
            }
            (Some(command), _) => {
                continued = command.ends_with('\\');
                listening = matches!(language.as_deref(), Some("console" | ""));
                shown.push(Shown { line: i + 1, command: command.trim().to_owned(), output: Vec::new(), code: 0 });
            }
            (None, Some(last)) if listening => match line.strip_prefix("? ").and_then(|n| n.trim().parse().ok()) {
                Some(code) if last.output.is_empty() => last.code = code,
                _ => last.output.push(line.trim_end().to_owned()),
            },
            _ => {}
        }
        if let Some(last) = shown.last_mut().filter(|_| continued) {
            last.command.truncate(last.command.len() - 1);
        }
    }
    shown
}

#[derive(Debug, PartialEq)]
enum Fate {
    Run(String),
    Skip,
    Unknown,
}

fn fate(command: &str) -> Fate {
    let starts = |start: &str| command.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    if NOT_RUN.iter().any(|(start, _)| starts(start)) {
        return Fate::Skip;
    }
    let command = command.replace(FROM_CHECKOUT, "keyhush ");
    let command = if command == FIRST.0 { FIRST.1.to_owned() } else { command };
    let first = command.split(' ').next().unwrap_or_default();
    if RUN.contains(&first) { Fate::Run(command) } else { Fate::Unknown }
}

struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Runs the line through `sh`; its output goes to files, so that a full pipe cannot stop it.
fn run(command: &str, folder: &Path, binary: &Path) -> Result<Ended, String> {
    let bin = binary.parent().expect("a binary lies in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin.to_path_buf()).chain(std::env::split_paths(&path)));
    let captured = [".stdout", ".stderr"].map(|name| folder.join(name));
    let into = |file: &PathBuf| std::fs::File::create(file).expect("the folder can be written");
    let mut sh = Command::new("sh");
    sh.args(["-c", command]).current_dir(folder).env("PATH", path.expect("the path is one")).env("NO_COLOR", "1");
    sh.stdin(Stdio::null()).stdout(into(&captured[0])).stderr(into(&captured[1]));
    let child = sh.spawn().map_err(|error| format!("cannot start sh: {error}"))?;
    let status = wait(child)?;
    let [stdout, stderr] =
        captured.map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned());
    Ok(Ended { status, stdout, stderr })
}

fn wait(mut child: Child) -> Result<ExitStatus, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("still running after {} s", LIMIT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn judge(shown: &Shown, ended: &Ended) -> Result<(), String> {
    let Ended { status, stdout, stderr } = ended;
    if status.code() != Some(shown.code) {
        return Err(format!("ended with {status} instead of {}\n{stdout}{stderr}", shown.code));
    }
    let came = if shown.code == 0 { stdout.clone() } else { format!("{stdout}{stderr}") };
    let expected: Vec<&str> = shown.output.iter().map(String::as_str).collect();
    let lines: Vec<&str> = came.lines().map(str::trim_end).collect();
    if expected.iter().all(|line| line.is_empty()) || matches(trimmed(&expected), trimmed(&lines)) {
        return Ok(());
    }
    Err(format!("--- the page says\n{}\n--- the command says\n{came}", expected.join("\n")))
}

/// Without the empty lines at the end.
fn trimmed<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    &lines[..end]
}

/// Whether the lines are those expected, `...` standing for any number of lines.
fn matches(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skip| matches(rest, &lines[skip..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, more)| line_matches(first, line) && matches(rest, more))
        }
    }
}

/// Whether the line is the one expected, `[..]` standing for anything.
fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|tail| {
            let cuts = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            cuts.into_iter().any(|at| line_matches(rest, &tail[at..]))
        }),
    }
}

/// The program under test: `keyhush` in the folder above this test's own.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("this test knows where it is");
    let profile_folder = test.ancestors().nth(2).expect("tests are built into <target>/<profile>/deps");
    let binary = profile_folder.join(format!("keyhush{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        let folder_name = profile_folder.file_name().expect("a profile has a folder").to_string_lossy();
        let profile = if folder_name == "debug" { "dev" } else { &*folder_name };
        let target = profile_folder.parent().expect("a profile's folder lies in the target folder");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build
            .args([
                "build",
                "--locked",
                "--package",
                "keyhush",
                "--features",
                "keyhush/full",
                "--profile",
                profile,
                "--target-dir",
            ])
            .arg(target);
        let status = build.current_dir(root()).status().expect("cargo starts");
        assert!(status.success() && binary.is_file(), "keyhush could not be built: {status}");
    }
    binary
}

mod tests {
    use super::*;

    fn shown(line: usize, command: &str, output: &[&str], code: i32) -> Shown {
        Shown { line, command: command.to_owned(), output: output.iter().map(ToString::to_string).collect(), code }
    }

    #[test]
    fn commands_are_found_and_other_blocks_are_not() {
        let page = "text\n```sh\n# why\nkeyhush a \\\n  --b\n\nkeyhush c\n```\n```toml\n$ no\n```\n```text\nkeyhush no\n```\n\
                    ```console\n$ keyhush d\none\n\ntwo\n$ keyhush e\n? 2\nerror: x\n```\n$ keyhush f\nprose\n";
        let expected = [
            shown(4, "keyhush a --b", &[], 0),
            shown(7, "keyhush c", &[], 0),
            shown(16, "keyhush d", &["one", "", "two"], 0),
            shown(20, "keyhush e", &["error: x"], 2),
            shown(24, "keyhush f", &[], 0),
        ];
        assert_eq!(commands(page), expected);
    }

    #[test]
    fn an_unknown_command_is_refused() {
        assert_eq!(fate("rm -rf /"), Fate::Unknown);
        assert_eq!(fate("keyhushed"), Fate::Unknown);
        assert_eq!(fate("cargo xtask tests"), Fate::Unknown);
        assert_eq!(fate("cargo xtask test --long"), Fate::Skip);
        assert_eq!(fate("echo x | cargo run --release -- privacy"), Fate::Run("echo x | keyhush privacy".to_owned()));
    }

    #[test]
    fn output_that_differs_is_refused() {
        assert!(matches(&["a", "...", "z"], &["a", "b", "c", "z"]) && matches(&["...", "z"], &["z"]));
        assert!(!matches(&["a", "...", "z"], &["a", "b"]) && !matches(&["a"], &["a", "b"]) && !matches(&["a"], &[]));
        assert!(line_matches("took [..] ms", "took 12 ms") && line_matches("[..]", ""));
        assert!(!line_matches("took [..] ms", "took 12 s"));
    }

    #[test]
    fn a_command_is_judged_by_its_end_and_its_output() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs-judge");
        std::fs::create_dir_all(&folder).unwrap();
        let end = |command: &str| run(command, &folder, Path::new("/bin/sh")).unwrap();
        let talks = end("echo one; echo two | cat; echo note >&2");
        assert!(judge(&shown(1, "", &["one", "two"], 0), &talks).is_ok());
        assert!(judge(&shown(1, "", &[], 0), &talks).is_ok());
        assert!(judge(&shown(1, "", &["one"], 0), &talks).is_err());
        let fails = end("echo bad >&2; exit 2");
        assert!(judge(&shown(1, "", &["bad"], 2), &fails).is_ok());
        assert!(judge(&shown(1, "", &[], 0), &fails).is_err());
    }
}
