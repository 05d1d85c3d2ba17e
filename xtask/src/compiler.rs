//! The compiler of `cargo xtask test`: the code, the lints and the documentation of a crate in one go.
//!
//! Cargo calls this program in place of rustc for every crate of the workspace (`RUSTC_WORKSPACE_WRAPPER`). It calls clippy's driver,
//! which is rustc with more lints and makes the same code, and then rustdoc on the same crate. `cargo clippy` and `cargo doc` beside
//! `cargo build` would each compile, once more and only to read it, everything that we depend on: four minutes of two cores.
//!
//! Tests, benches and examples are not optimised, however much their package is: what they call is, and lies in its library. Unit tests
//! contain their library once more; they are optimised where that takes less time than it saves, and so are the few other tests that
//! compute much themselves.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result};

use crate::root;

/// What a copy of this program is called when it is to be a compiler.
const NAME: &str = "keyhush-compiler";
/// The variable by which cargo is told of it.
pub(crate) const VARIABLE: &str = "RUSTC_WORKSPACE_WRAPPER";
/// The folders of a package whose code is not optimised.
const NOT_OPTIMISED: [&str; 3] = ["tests", "benches", "examples"];
/// The crates whose unit tests are.
const OPTIMISED_TESTS: [&str; 3] = ["keyhush_corpus", "keyhush_privacy", "keyhush_secagg"];
/// The binaries of tests that are, as what they simulate is computed in themselves.
const OPTIMISED_BINARIES: [&str; 1] = ["crates/federated/tests/faults.rs"];

/// Puts a copy of this program where cargo finds it: cargo compiles this program too, and replaces the one that is running.
pub(crate) fn install() -> Result<()> {
    let to = path();
    let folder = to.parent().context("the compiler has no folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let new = folder.join(format!("{NAME}.{}", std::process::id()));
    std::fs::copy(std::env::current_exe()?, &new).with_context(|| format!("cannot write {}", new.display()))?;
    std::fs::rename(&new, &to).with_context(|| format!("cannot write {}", to.display()))
}

/// Where the copy lies.
pub(crate) fn path() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("xtask").join(NAME)
}

/// Whether this process is such a copy.
pub(crate) fn is_this() -> bool {
    std::env::current_exe().is_ok_and(|exe| exe.file_name().is_some_and(|name| name == NAME))
}

/// What cargo asked for: `keyhush-compiler rustc ARGUMENTS`.
pub(crate) fn run() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(rustc) = words.next() else {
        eprintln!("{NAME} is called by cargo, as rustc would be; see xtask/src/compiler.rs");
        return ExitCode::from(2);
    };
    let call = Call { words: words.collect() };
    match compile(Path::new(&rustc), &call) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{NAME}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The first exit code that is not 0.
fn compile(rustc: &Path, call: &Call) -> Result<u8> {
    let compiled = status(Command::new(sibling(rustc, "clippy-driver")).arg(rustc).args(call.to_compile()))?;
    if compiled != 0 {
        return Ok(compiled);
    }
    // Cargo's variables are those of the crate; what was documented lies beside this program.
    let exe = std::env::current_exe()?;
    match call.to_document(exe.parent().context("the compiler has no folder")?) {
        Some(words) => status(Command::new(sibling(rustc, "rustdoc")).args(words)),
        None => Ok(0),
    }
}

fn status(command: &mut Command) -> Result<u8> {
    let status: ExitStatus =
        command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A program of the same toolchain: rustup finds it by its bare name, as it found rustc.
fn sibling(rustc: &Path, name: &str) -> PathBuf {
    rustc.with_file_name(name)
}

/// What rustc is asked to do.
struct Call {
    words: Vec<OsString>,
}

impl Call {
    /// The file that a crate begins with; none where cargo only asks about the compiler.
    fn source(&self) -> Option<&Path> {
        self.words.iter().map(Path::new).find(|word| word.extension().is_some_and(|end| end == "rs"))
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// A test, bench or example: code that only calls what is measured or tested.
    fn only_calls(&self) -> bool {
        let named = |part: Component<'_>| NOT_OPTIMISED.iter().any(|name| part.as_os_str() == *name);
        self.source().is_some_and(|source| source.components().any(named))
    }

    /// Unit tests that are quicker slow than compiled.
    fn is_small_test(&self) -> bool {
        self.has("--test")
            && !self.value("--crate-name").is_some_and(|name| OPTIMISED_TESTS.iter().any(|one| name == *one))
    }

    /// A test that computes much itself.
    fn is_large_test(&self) -> bool {
        self.source().is_some_and(|source| OPTIMISED_BINARIES.iter().any(|one| source.ends_with(one)))
    }

    fn to_compile(&self) -> Vec<OsString> {
        let mut words = match (self.only_calls() || self.is_small_test()) && !self.is_large_test() {
            true => without_option(&self.words, "-C", &|value| value.starts_with("opt-level=")),
            false => self.words.clone(),
        };
        if self.source().is_some() {
            words.extend(["-D", "warnings"].map(OsString::from));
        }
        words
    }

    /// The words for rustdoc: of libraries and programs, once each, and so neither of their tests nor of build scripts.
    fn to_document(&self, beside: &Path) -> Option<Vec<OsString>> {
        let name = self.value("--crate-name")?;
        let source = self.source()?;
        if self.has("--test") || self.only_calls() || source.file_name()? == "build.rs" {
            return None;
        }
        let mut words = self.words.clone();
        for (option, of) in FOR_RUSTC_ALONE {
            words = without_option(&words, option, &|value| value.starts_with(of));
        }
        words.retain(|word| !word.to_string_lossy().starts_with("--emit="));
        if self.value("--crate-type").is_some_and(|kind| kind == "bin") {
            words.push("--document-private-items".into());
        }
        words.extend(["-D", "warnings", "--out-dir"].map(OsString::from));
        words.push(beside.join("doc").join(name).into());
        Some(words)
    }

    fn value(&self, option: &str) -> Option<&OsString> {
        let at = self.words.iter().position(|word| word == option)?;
        self.words.get(at + 1)
    }
}

/// Options with a value after them that rustdoc does not have, or that say where code goes; "" stands for any value.
const FOR_RUSTC_ALONE: [(&str, &str); 2] = [("--out-dir", ""), ("-C", "")];

/// The words without an option whose value, the word after it, is such.
fn without_option(words: &[OsString], option: &str, such: &dyn Fn(&str) -> bool) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(words.len());
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        match rest.peek() {
            Some(value) if word == option && such(&value.to_string_lossy()) => drop(rest.next()),
            _ => kept.push(word.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        Call { words: line.split_whitespace().map(OsString::from).collect() }
    }

    fn line(words: &[OsString]) -> String {
        words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    }

    const LIBRARY: &str = "--crate-name privacy --edition=2024 crates/privacy/src/lib.rs --error-format=json --crate-type lib \
                           --emit=dep-info,metadata,link -C opt-level=3 -C metadata=1f --out-dir target/ci/deps \
                           -L dependency=target/ci/deps --extern serde=libserde.rmeta";

    #[test]
    fn a_library_is_optimised_as_its_package_says_and_a_warning_is_an_error() {
        assert_eq!(line(&call(LIBRARY).to_compile()), format!("{LIBRARY} -D warnings"));
    }

    #[test]
    fn tests_benches_and_examples_are_not_optimised() {
        for source in ["crates/privacy/tests/all.rs", "crates/privacy/benches/x.rs", "crates/privacy/examples/x.rs"] {
            let words = call(&format!("--crate-name x {source} -C opt-level=3 -C metadata=1f")).to_compile();
            assert_eq!(line(&words), format!("--crate-name x {source} -C metadata=1f -D warnings"));
        }
    }

    #[test]
    fn tests_that_compute_much_themselves_are_optimised() {
        for source in OPTIMISED_BINARIES {
            let words = format!("--crate-name x {source} -C opt-level=1 --test");
            assert_eq!(line(&call(&words).to_compile()), format!("{words} -D warnings"));
            assert!(root().join(source).is_file(), "{source} is optimised, and is not there");
        }
    }

    #[test]
    fn unit_tests_are_optimised_where_that_saves_time() {
        let opt = |name: &str| {
            let words = call(&format!("--crate-name {name} crates/x/src/lib.rs -C opt-level=3 --test")).to_compile();
            line(&words).contains("opt-level")
        };
        assert_eq!(["keyhush_privacy", "keyhush_secagg", "keyhush_lm"].map(opt), [true, true, false]);
    }

    #[test]
    fn questions_about_the_compiler_are_passed_on_as_they_are() {
        assert_eq!(line(&call("-vV").to_compile()), "-vV");
        assert!(call("-vV").to_document(Path::new("target")).is_none());
        let cfg = "- --crate-name ___ --print=file-names --crate-type bin";
        assert_eq!(line(&call(cfg).to_compile()), cfg);
        assert!(call(cfg).to_document(Path::new("target")).is_none());
    }

    #[test]
    fn a_library_is_documented_with_the_same_words_into_a_folder_of_its_own() {
        let words = call(LIBRARY).to_document(Path::new("target")).unwrap();
        assert_eq!(
            line(&words),
            "--crate-name privacy --edition=2024 crates/privacy/src/lib.rs --error-format=json --crate-type lib \
             -L dependency=target/ci/deps --extern serde=libserde.rmeta -D warnings --out-dir target/doc/privacy"
        );
    }

    #[test]
    fn a_program_is_documented_with_what_is_private_and_tests_and_build_scripts_are_not() {
        let document = |line: &str| call(line).to_document(Path::new("target"));
        let program = document("--crate-name keyhush crates/cli/src/main.rs --crate-type bin").unwrap();
        assert!(line(&program).contains("--document-private-items"));
        assert!(document("--crate-name privacy crates/privacy/src/lib.rs --test").is_none());
        assert!(document("--crate-name all crates/privacy/tests/all.rs --test").is_none());
        assert!(document("--crate-name tour crates/federated/examples/tour.rs --crate-type bin").is_none());
        assert!(document("--crate-name build_script_build crates/federated/build.rs --crate-type bin").is_none());
    }

    #[test]
    fn the_other_programs_are_those_of_the_toolchain_that_cargo_named() {
        assert_eq!(sibling(Path::new("rustc"), "rustdoc"), Path::new("rustdoc"));
        assert_eq!(sibling(Path::new("/t/bin/rustc"), "clippy-driver"), Path::new("/t/bin/clippy-driver"));
    }
}
