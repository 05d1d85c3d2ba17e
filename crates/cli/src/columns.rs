//! Aligned tables and folded sentences for the terminal.

use std::io::Write;

/// Columns of sentences, at most.
const COLUMNS: usize = 100;

/// Where the cells of columns stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// The first to the left, the others to the right: a name and numbers.
    Numbers,
    /// Right-aligned.
    Right,
}

/// Writes rows with their columns under one another.
pub(crate) fn write(out: &mut impl Write, rows: &[Vec<String>], align: Align) -> std::io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let cell = |(column, (cell, width)): (usize, (&String, &usize))| match align {
            Align::Numbers if column == 0 => format!("{cell:<width$}"),
            Align::Numbers | Align::Right => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        writeln!(out, "  {}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// A sentence over several lines, those after the first set in as far as the words before it.
pub(crate) fn folded(before: &str, sentence: &str) -> String {
    let indent = before.chars().count();
    let (mut text, mut line) = (before.to_owned(), indent);
    for word in sentence.split_whitespace() {
        let length = word.chars().count();
        if line > indent && line + 1 + length > COLUMNS {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            line = indent;
        } else if line > indent {
            text.push(' ');
            line += 1;
        }
        text.push_str(word);
        line += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_folded_between_words() {
        let text = folded("warning: ", &"word ".repeat(40));
        assert!(text.lines().all(|l| l.len() <= COLUMNS), "{text}");
        assert!(text.lines().skip(1).all(|l| l.starts_with("         word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 41);
        assert_eq!(folded("a ", ""), "a ");
    }
}
