//! Which tests took longest: read off the lines that nextest prints while it runs, and shown after the table of seconds, so that
//! a test that grows slow is seen by whoever made it so.

use std::io::{BufRead, BufReader, Read, Write};

/// How many are shown.
const SHOWN: usize = 10;

/// A test and its seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed {
    seconds: f64,
    name: String,
}

/// Passes on what nextest prints, line by line, and gives the tests that it timed.
pub(crate) fn read(from: impl Read, mut to: impl Write) -> std::io::Result<Vec<Timed>> {
    let mut timed = Vec::new();
    for line in BufReader::new(from).split(b'\n') {
        let line = line?;
        to.write_all(&line)?;
        to.write_all(b"\n")?;
        timed.extend(test(&String::from_utf8_lossy(&line)));
    }
    Ok(timed)
}

/// `PASS [   0.126s] ( 12/1188) package::binary test` as nextest has it, with or without the count.
fn test(line: &str) -> Option<Timed> {
    let rest = line.trim_start().strip_prefix("PASS [")?;
    let (seconds, rest) = rest.split_once("s]")?;
    let rest = rest.trim_start();
    let name = rest.strip_prefix('(').and_then(|counted| counted.split_once(')')).map_or(rest, |(_, name)| name);
    Some(Timed { seconds: seconds.trim().parse().ok()?, name: name.trim().to_owned() })
}

/// The slowest of them, as they are shown.
pub(crate) fn table(mut timed: Vec<Timed>) -> String {
    timed.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let row = |one: &Timed| format!("{:>9.1}  {}\n", one.seconds, one.name);
    let rows: String = timed.iter().take(SHOWN).map(row).collect();
    format!("  seconds  the slowest of {} tests\n{rows}", timed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_off_and_everything_is_passed_on() {
        let printed = "    Starting 3 tests\n        PASS [   0.126s] (1159/1188) xtask::tidy tree::a\n        FAIL [   9.000s] b c\n\
                       \n        PASS [  59.518s] xtask::docs every_command\n        SLOW [> 60.000s] d e\n";
        let mut passed_on = Vec::new();
        let timed = read(printed.as_bytes(), &mut passed_on).unwrap();
        assert_eq!(String::from_utf8(passed_on).unwrap(), printed);
        let shown = table(timed);
        assert_eq!(
            shown,
            "  seconds  the slowest of 2 tests\n     59.5  xtask::docs every_command\n      0.1  xtask::tidy tree::a\n"
        );
    }

    #[test]
    fn no_more_than_some_are_shown() {
        let many = (0..30).map(|n| Timed { seconds: f64::from(n), name: n.to_string() }).collect();
        assert_eq!(table(many).lines().count(), 1 + SHOWN);
    }
}
