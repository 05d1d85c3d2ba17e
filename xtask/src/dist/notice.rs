//! `THIRD-PARTY.txt`: who wrote what is in the program, under which licence, and the text of each.
//!
//! A licence that nobody here has agreed to, or a crate without its text, stops the release.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Result, bail};

use super::crates::{Crate, license_texts};

/// What may be in a program that is given away under MIT or Apache 2.0.
const AGREED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates whose packages lack their licence, and the crate of the same authors and repository that has it.
const SAME_AS: [(&str, &str); 1] = [("pulp-wasm-simd-flag", "pulp")];

/// The whole file.
pub(crate) fn write(crates: &[Crate], rust: &str) -> Result<String> {
    let others: Vec<&Crate> = crates.iter().filter(|one| !one.is_ours()).collect();
    let mut missing = Vec::new();
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in &others {
        if !is_agreed(&one.license) {
            bail!(
                "{} {} is under {}: ask whether it may be shipped, and add it to AGREED, or do without",
                one.name,
                one.version,
                one.license
            );
        }
        let texts = texts(one, crates)?;
        if texts.is_empty() {
            missing.push(format!("{} {}", one.name, one.version));
        }
        for text in texts {
            users.entry(text).or_default().insert(format!("{} {}", one.name, one.version));
        }
    }
    if !missing.is_empty() {
        bail!("no licence text in the source of {}: add the crate that has it to SAME_AS", missing.join(", "));
    }
    page(&others, &users, rust)
}

fn page(others: &[&Crate], users: &BTreeMap<String, BTreeSet<String>>, rust: &str) -> Result<String> {
    let mut page = format!(
        "Keyhush contains the work of others, under their licences. First the list, then the texts.\n\n\
         the Rust standard library of {rust}: MIT OR Apache-2.0\n\
         LLVM's runtime and libunwind, from the compiler that linked it: Apache-2.0 WITH LLVM-exception\n"
    );
    for one in others {
        write!(page, "{} {}: {}", one.name, one.version, one.license)?;
        match one.c_code()? {
            Some(c) => writeln!(page, "; it contains {} {}: {}", c.name, c.version, c.license)?,
            None => writeln!(page)?,
        }
    }
    let mut sorted: Vec<(&String, &BTreeSet<String>)> = users.iter().collect();
    sorted.sort_by_key(|(_, names)| *names);
    for (text, names) in sorted {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        write!(page, "\n{}\n{}\n\n{text}\n", "=".repeat(72), names.join(", "))?;
    }
    Ok(page)
}

/// The licence texts of a crate, with ends of lines as they are here.
fn texts(one: &Crate, crates: &[Crate]) -> Result<BTreeSet<String>> {
    let same = SAME_AS.iter().find(|(name, _)| *name == one.name).map(|(_, other)| *other);
    let from = crates.iter().find(|known| same.is_some_and(|same| known.name == same)).unwrap_or(one);
    let texts = license_texts(&from.folder)?.into_values();
    Ok(texts
        .map(|text| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned())
        .collect())
}

/// Whether an SPDX expression can be met with agreed licences alone: all of those joined by AND, one of those joined by OR.
fn is_agreed(expression: &str) -> bool {
    let expression = expression.trim();
    let inner = expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
        .filter(|inner| !inner.contains(['(', ')']));
    if let Some(inner) = inner {
        return is_agreed(inner);
    }
    if let Some(parts) = split(expression, " OR ") {
        return parts.iter().any(|part| is_agreed(part));
    }
    if let Some(parts) = split(expression, " AND ") {
        return parts.iter().all(|part| is_agreed(part));
    }
    AGREED.contains(&expression)
}

/// The parts between words that stand outside parentheses; none where there is no such word.
fn split<'a>(expression: &'a str, word: &str) -> Option<Vec<&'a str>> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, letter) in expression.char_indices() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if depth == 0 && at >= start && expression[at..].starts_with(word) {
            parts.push(&expression[start..at]);
            start = at + word.len();
        }
    }
    parts.push(&expression[start..]);
    (parts.len() > 1).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_agreed_if_a_choice_of_it_is() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "GPL-3.0 OR MIT",
            "Apache-2.0 AND ISC",
            "(GPL-2.0 OR MIT) AND BSD-3-Clause",
            "(MIT)",
        ] {
            assert!(is_agreed(good), "{good}");
        }
        for evil in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND AGPL-3.0", "GPL-2.0 OR LGPL-2.1", ""] {
            assert!(!is_agreed(evil), "{evil}");
        }
    }

    fn in_folder(name: &str, license: &str, texts: &[(&str, &str)]) -> Crate {
        let folder = std::env::temp_dir().join(format!("keyhush-notice-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        texts.iter().for_each(|(file, text)| std::fs::write(folder.join(file), text).unwrap());
        let (name, version, license) = (name.to_owned(), "1.0.0".to_owned(), license.to_owned());
        Crate { name, version, license, checksum: Some("0".repeat(64)), folder, uses: BTreeSet::new() }
    }

    #[test]
    fn every_text_is_there_once_with_all_who_use_it() {
        let crates = [
            in_folder("a", "MIT", &[("LICENSE", "be kind\r\n")]),
            in_folder(
                "b",
                "MIT OR Apache-2.0",
                &[("LICENSE-MIT", "be kind\n"), ("COPYING", "be fair\n"), ("lib.rs", "code")],
            ),
        ];
        let page = write(&crates, "1.95.0");
        crates.iter().for_each(|one| std::fs::remove_dir_all(&one.folder).unwrap());
        let page = page.unwrap();
        assert_eq!(page.matches("be kind").count(), 1, "{page}");
        assert!(page.contains("\na 1.0.0, b 1.0.0\n\nbe kind\n") && page.contains("\nb 1.0.0\n\nbe fair\n"), "{page}");
        assert!(page.contains("b 1.0.0: MIT OR Apache-2.0\n") && !page.contains("code"), "{page}");
    }

    #[test]
    fn a_licence_nobody_agreed_to_and_a_text_that_is_missing_stop_the_release() {
        let refused = |one: Crate| {
            let error = write(std::slice::from_ref(&one), "1.95.0").unwrap_err().to_string();
            std::fs::remove_dir_all(&one.folder).unwrap();
            error
        };
        assert!(refused(in_folder("c", "AGPL-3.0", &[("LICENSE", "share\n")])).contains("AGPL-3.0"));
        assert!(
            refused(in_folder("d", "MIT", &[("README", "MIT\n")])).contains("no licence text in the source of d 1.0.0")
        );
    }
}
