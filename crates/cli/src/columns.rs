//! Aligned tables for the terminal.

use std::io::Write;

/// Where the cells of columns stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// All to the left: words.
    Left,
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
            Align::Left => format!("{cell:<width$}"),
            Align::Numbers if column == 0 => format!("{cell:<width$}"),
            Align::Numbers | Align::Right => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        writeln!(out, "  {}", cells.join("  ").trim_end())?;
    }
    Ok(())
}
