//! The number of threads a command uses (`--threads`).

use crate::failure::BadInput;

/// More threads than any machine has cores; each has memory of its own for a model.
const MOST: usize = 1024;

/// So many threads; one for each core by default.
pub(crate) fn chosen(said: Option<usize>) -> Result<usize, BadInput> {
    match said {
        Some(threads) if (1..=MOST).contains(&threads) => Ok(threads),
        Some(threads) => Err(BadInput::wrong("threads", format!("must be from 1 to {MOST}, got {threads}"))),
        None => Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--threads 100000` was taken, and ended in a panic when the threads could not be had.
    #[test]
    fn absurd_numbers_of_threads_are_refused() {
        assert_eq!(chosen(Some(3)), Ok(3));
        assert!(chosen(None).unwrap() >= 1);
        for absurd in [0, 1025, 100_000, usize::MAX] {
            let said = chosen(Some(absurd)).unwrap_err().to_string();
            assert!(said.contains("threads") && said.contains("from 1 to 1024"), "{said}");
        }
    }
}
