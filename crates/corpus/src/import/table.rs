//! Reads comma- or tab-separated rows with a header, in bounded memory whatever the file contains.

use std::io::{self, Read};

use csv_core::ReadRecordResult;

use super::block::LONGEST_LINE;

/// More fields than this are absurd.
const MOST_FIELDS: usize = 1 << 16;

/// Reads rows.
pub(super) struct Rows<R> {
    from: R,
    core: csv_core::Reader,
    /// What was read and not looked at yet.
    input: Vec<u8>,
    at: usize,
    filled: usize,
    ended: bool,
    /// The fields of the row, one after the other, and where each ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

/// What [`Rows::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A row; its fields are there until the next one is read.
    Fields {
        line: u64,
    },
    /// Too much for a row: a quote that is never closed, or no rows at all.
    TooLong {
        line: u64,
    },
    End,
}

impl<R: Read> Rows<R> {
    /// Tabs need no quotes, and people who write them rarely mean them.
    pub(super) fn new(from: R, delimiter: u8) -> Self {
        let core = csv_core::ReaderBuilder::new().delimiter(delimiter).quoting(delimiter == b',').build();
        let (input, fields, ends) = (vec![0; 1 << 16], vec![0; 1 << 12], vec![0; 1 << 5]);
        Self { from, core, input, at: 0, filled: 0, ended: false, fields, ends, count: 0 }
    }

    pub(super) fn next(&mut self) -> io::Result<Row> {
        self.skip_empty_lines()?;
        let line = self.core.line();
        let mut written = 0;
        self.count = 0;
        loop {
            if self.at == self.filled && !self.ended {
                self.fill()?;
            }
            let input = &self.input[self.at..self.filled];
            let (result, read, wrote, ended) =
                self.core.read_record(input, &mut self.fields[written..], &mut self.ends[self.count..]);
            self.at += read;
            written += wrote;
            self.count += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::Record => return Ok(Row::Fields { line }),
                ReadRecordResult::End => return Ok(Row::End),
                ReadRecordResult::OutputFull if self.fields.len() < LONGEST_LINE => {
                    self.fields.resize(self.fields.len() * 2, 0);
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < MOST_FIELDS => {
                    self.ends.resize(self.ends.len() * 2, 0);
                }
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    self.skip_line()?;
                    return Ok(Row::TooLong { line });
                }
            }
        }
    }

    /// How many fields the row has that was read last.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// A field of it; nothing if it has fewer.
    pub(super) fn field(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends[..self.count].get(index).and_then(|end| self.fields.get(start..*end)).unwrap_or_default()
    }

    /// All fields of the row.
    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).map(|index| self.field(index))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.at = 0;
        self.filled = 0;
        self.filled = loop {
            match self.from.read(&mut self.input) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.ended = self.filled == 0;
        Ok(())
    }

    /// Goes to the first character of a row, so that its line is known.
    fn skip_empty_lines(&mut self) -> io::Result<()> {
        loop {
            if self.at == self.filled && !self.ended {
                self.fill()?;
            }
            match self.input[self.at..self.filled].first() {
                Some(b'\n') => self.core.set_line(self.core.line() + 1),
                Some(b'\r') => {}
                _ => return Ok(()),
            }
            self.at += 1;
        }
    }

    /// Continues behind the next line break, as if a row began there.
    fn skip_line(&mut self) -> io::Result<()> {
        let line = self.core.line();
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.input[self.at..self.filled]) {
                self.at += found + 1;
                break;
            }
            self.at = self.filled;
            if !self.ended {
                self.fill()?;
            }
            if self.ended {
                break;
            }
        }
        self.core.reset();
        self.core.set_line(line + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8], delimiter: u8) -> Vec<(Row, Vec<String>)> {
        let mut rows = Rows::new(text, delimiter);
        let mut found = Vec::new();
        loop {
            match rows.next().unwrap() {
                Row::End => return found,
                row @ Row::TooLong { .. } => found.push((row, Vec::new())),
                row => {
                    let fields = rows.fields().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
                    found.push((row, fields));
                }
            }
        }
    }

    fn fields(line: u64, fields: &[&str]) -> (Row, Vec<String>) {
        (Row::Fields { line }, fields.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn quotes_line_breaks_and_numbers_of_lines() {
        let text = b"\xef\xbb\xbfa,b\r\n1,\"x, \"\"y\"\"\nz\"\n\n2,3";
        let expected = [fields(1, &["a", "b"]), fields(2, &["1", "x, \"y\"\nz"]), fields(5, &["2", "3"])];
        assert_eq!(rows(text, b','), expected);
        assert_eq!(rows(b"a\t\"b\n", b'\t'), [fields(1, &["a", "\"b"])]);
        assert_eq!(rows(b"", b','), []);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_one_bad_row() {
        let mut text = b"a,b\n1,\"".to_vec();
        text.extend(b"x y z\n".repeat(LONGEST_LINE / 6 + 10));
        text.extend(b"7,8\n");
        let found = rows(&text, b',');
        assert_eq!(found[1].0, Row::TooLong { line: 2 });
        assert_eq!(found.last().unwrap().1, ["7", "8"]);
        let many = ",".repeat(2 * MOST_FIELDS) + "\n1,2\n";
        assert_eq!(rows(many.as_bytes(), b','), [(Row::TooLong { line: 1 }, vec![]), fields(2, &["1", "2"])]);
    }
}
