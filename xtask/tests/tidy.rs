//! Keeps the house tidy: small rules of the project that no compiler checks.
//!
//! Each test reads the tree and lists every violation as `file:line: what to do`. The functions that judge a text are
//! beside their own tests, which feed them an evil example that must be flagged; a rule that cannot fail is no rule.

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/binaries.rs"]
mod binaries;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/locks.rs"]
mod locks;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/testdata.rs"]
mod testdata;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use tree::{File, Violation, files, report};

/// The rules that keep epsilon true and that the crates `privacy` and `ledger` implement and test by name.
const PRIVACY_RULES: [u32; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17];

fn judge(wanted: impl Fn(&File) -> bool, rule: impl Fn(&File) -> Vec<Violation>) {
    let files: Vec<File> = files().into_iter().filter(wanted).collect();
    assert!(!files.is_empty(), "no file was judged: the selection of this test is wrong");
    report(files.iter().flat_map(rule).collect());
}

#[test]
fn every_module_opens_with_its_purpose() {
    judge(File::is_rust, source::header);
}

#[test]
fn no_file_is_too_long_to_read() {
    judge(File::is_rust, source::length);
}

#[test]
fn no_module_or_crate_has_a_name_that_says_nothing() {
    judge(File::is_rust, source::empty_names);
}

#[test]
fn crates_that_build_for_wasm_use_nothing_that_cannot() {
    judge(
        |f| f.is_rust() && arrows::WASM.iter().any(|c| f.path.starts_with(&format!("crates/{c}/src/"))),
        source::not_for_wasm,
    );
}

#[test]
fn crates_that_build_for_wasm_depend_on_nothing_that_cannot() {
    report(arrows::wasm_closures());
}

#[test]
fn dependency_arrows_are_those_of_the_picture() {
    report(arrows::workspace());
}

#[test]
fn no_module_of_a_crate_knows_itself_through_others() {
    let files: Vec<File> = files().into_iter().filter(modules::is_source).collect();
    assert!(!files.is_empty(), "no file was judged: the selection of this test is wrong");
    report(modules::circles(&files));
}

#[test]
fn every_version_is_kept_in_the_workspace() {
    // What lies in these folders is no member.
    let member = |f: &File| !["bench/", "fuzz/"].iter().any(|folder| f.path.starts_with(folder));
    judge(|f| f.path.ends_with("/Cargo.toml") && member(f), manifests::dependencies);
}

#[test]
fn every_file_of_tests_is_in_one_of_few_binaries() {
    report(binaries::unlisted(&files()));
}

#[test]
fn nothing_that_people_install_is_insecure() {
    judge(|f| f.path.ends_with("Cargo.toml") && !f.path.starts_with("fuzz/"), manifests::insecure);
}

#[test]
fn what_is_fuzzed_has_the_versions_that_are_shipped() {
    let files = files();
    let lock = |path: &str| files.iter().find(|f| f.path == path).expect("there is a lock");
    report(locks::other_versions(lock("Cargo.lock"), lock("fuzz/Cargo.lock")));
}

#[test]
fn every_file_of_testdata_names_its_source() {
    // Not `judge`: a tree without test data is tidy too.
    report(files().iter().filter(|f| testdata::is_testdata(&f.path)).flat_map(testdata::source).collect());
}

#[test]
fn words_are_plain() {
    judge(words::is_read, words::odd);
}

#[test]
fn one_is_not_counted_as_several() {
    judge(words::is_printed, words::counts);
}

#[test]
fn no_link_leads_nowhere() {
    judge(|f| f.path.ends_with(".md"), documents::links);
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let files = files();
    let pages: Vec<&File> = files.iter().filter(|f| f.path == "docs/THREATS.md").collect();
    assert!(!pages.is_empty(), "there is no page of threats");
    report(pages.into_iter().flat_map(|page| documents::tests_named(page, &files)).collect());
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    judge(|f| f.path != "Cargo.lock", documents::places);
}

#[test]
fn every_rule_of_privacy_and_ledger_has_a_test_that_names_it() {
    let of_both = |f: &File| ["crates/privacy/", "crates/ledger/"].iter().any(|folder| f.path.starts_with(folder));
    let files: Vec<File> = files().into_iter().filter(|f| f.is_rust() && of_both(f)).collect();
    let named: Vec<u32> = files.iter().flat_map(source::rules_tested).collect();
    let missing = PRIVACY_RULES.iter().filter(|rule| !named.contains(rule));
    let ask =
        |rule: &u32| Violation::new("crates/privacy", 1, format!("rule P{rule} has no test: name one `p{rule}_...`"));
    report(missing.map(ask).collect());
}
