//! Products of matrices on the card, and whether all that they read and write is memory.

use crate::error::CudaError;

/// An address on the card, and where the memory that it lies in ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) at: u64,
    pub(super) end: u64,
}

impl Address {
    /// No memory: where a kernel takes an optional argument.
    pub(crate) const NONE: Self = Self { at: 0, end: 0 };

    /// The address, advanced by this many 4-byte numbers.
    pub(crate) const fn plus(self, numbers: usize) -> Self {
        Self { at: self.at + 4 * numbers as u64, end: self.end }
    }

    /// Whether so many bytes from here on are memory.
    fn has(self, bytes: Option<usize>) -> bool {
        let end = bytes.and_then(|bytes| self.at.checked_add(bytes as u64));
        self.at != 0 && end.is_some_and(|end| end <= self.end)
    }
}

/// A matrix of every user, row by row: rows are `row` numbers apart, users `user`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) at: Address,
    pub(crate) row: usize,
    pub(crate) user: usize,
    pub(crate) transposed: bool,
}

impl Matrix {
    /// A matrix as stored, not transposed.
    pub(crate) const fn new(at: Address, row: usize, user: usize) -> Self {
        Self { at, row, user, transposed: false }
    }

    /// Its transpose.
    pub(crate) const fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// The same, beginning some rows further.
    pub(crate) const fn down(self, row: usize) -> Self {
        Self { at: self.at.plus(row * self.row), ..self }
    }

    /// The same, beginning some columns further.
    pub(crate) const fn right(self, column: usize) -> Self {
        Self { at: self.at.plus(column), ..self }
    }

    /// Whether so many rows and columns of so many users, of numbers of so many bytes, end within the memory that it lies in.
    fn is_within(&self, users: usize, [rows, columns]: [usize; 2], bytes: usize) -> bool {
        let [rows, columns] = if self.transposed { [columns, rows] } else { [rows, columns] };
        let (others, above) = (users.saturating_sub(1), rows.saturating_sub(1));
        let end = others.checked_mul(self.user).zip(above.checked_mul(self.row));
        let end = end.and_then(|(others, above)| others.checked_add(above)?.checked_add(columns)?.checked_mul(bytes));
        columns <= self.row && self.at.has(end)
    }
}

/// `c = alpha a b + beta c` for every user, c of `m` rows and `n` columns, `k` in between. The factors lie on the card.
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Matrix,
    pub(crate) alpha: Address,
    pub(crate) beta: Address,
}

impl Product {
    /// Whether all that it reads and writes is memory.
    pub(super) fn check(&self, users: usize, operands: Operands) -> Result<(), CudaError> {
        let Self { m, n, k, a, b, c, alpha, beta } = self;
        let bytes = if operands == Operands::F16 { 2 } else { 4 };
        let factors = [a.is_within(users, [*m, *k], bytes), b.is_within(users, [*k, *n], bytes)];
        let all = [factors[0], factors[1], c.is_within(users, [*m, *n], 4), alpha.has(Some(4)), beta.has(Some(4))];
        if !c.transposed && all.iter().all(|within| *within) {
            return Ok(());
        }
        let problem = format!("a product of {m} x {k} and {k} x {n} for {users} users reaches beyond its memory");
        Err(CudaError::Refused(problem))
    }
}

/// What the operands of a product are; sums are float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// Float32, multiplied as such.
    F32,
    /// Float32, multiplied with mantissas of 10 bits.
    Tf32,
    /// Half precision in memory.
    F16,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four users of 6 x 8 numbers, 60 numbers apart.
    #[test]
    fn products_that_reach_beyond_their_memory_are_refused() {
        let memory = |numbers: u64| Address { at: 4096, end: 4096 + 4 * numbers };
        let matrix = |at| Matrix::new(at, 8, 60);
        let fits = |matrix: Matrix, size| matrix.is_within(4, size, 4);
        assert!(fits(matrix(memory(228)), [6, 8]) && !fits(matrix(memory(227)), [6, 8]));
        assert!(fits(matrix(memory(228)).transposed(), [8, 6]) && !fits(matrix(memory(228)).transposed(), [6, 8]));
        assert!(!fits(matrix(memory(228)).down(1), [6, 8]) && fits(matrix(memory(228)).down(1), [5, 8]));
        assert!(!fits(matrix(memory(228)).right(1), [6, 8]) && fits(matrix(memory(228)).right(1), [6, 7]));
        assert!(!fits(matrix(memory(10_000)), [6, 9]), "wider than its rows are apart");
        assert!(!fits(matrix(Address::NONE), [1, 1]) && !fits(Matrix::new(memory(9), 8, usize::MAX), [1, 1]));
        assert!(matrix(memory(114)).is_within(4, [6, 8], 2), "halves");
        let [a, b, c] = [matrix(memory(228)), matrix(memory(228)).transposed(), Matrix::new(memory(228), 6, 60)];
        let product = Product { m: 6, n: 6, k: 8, a, b, c, alpha: memory(1), beta: memory(1) };
        assert!(product.check(4, Operands::F32).is_ok() && product.check(5, Operands::F32).is_err());
        assert!(Product { alpha: Address::NONE, ..product }.check(4, Operands::F32).is_err());
    }
}
