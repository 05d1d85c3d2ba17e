//! The number of threads a command uses (`--threads`).

/// More threads than any machine has cores; each has memory of its own for a model.
const MOST: usize = 1024;

/// What may stand behind `--threads`. Every command that has the flag reads it with this; a test looks at all of them.
pub(crate) fn number(said: &str) -> Result<usize, String> {
    match said.parse() {
        Ok(threads) if (1..=MOST).contains(&threads) => Ok(threads),
        _ => Err(format!("must be from 1 to {MOST}, got {said}")),
    }
}

/// So many threads; one for each core by default.
pub(crate) fn chosen(said: Option<usize>) -> usize {
    said.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--threads 100000` was taken, and ended in a panic when the threads could not be had.
    #[test]
    fn absurd_numbers_of_threads_are_refused() {
        assert_eq!(number("3"), Ok(3));
        assert!(chosen(None) >= 1);
        for absurd in ["0", "1025", "100000", "-1", "many", "99999999999999999999999"] {
            let said = number(absurd).unwrap_err();
            assert!(said.contains("from 1 to 1024"), "{said}");
        }
    }
}
