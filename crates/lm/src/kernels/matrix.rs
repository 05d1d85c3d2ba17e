//! Products of small matrices, in the shapes recurrent models need.
//!
//! One kernel: a tile of C stays in registers while it runs along k, a row of B is loaded as vectors and multiplied by
//! broadcast numbers of A. A may lie in any order, so that products with a transposed A need no copy. Sums start at zero
//! and are added to C once: starting from C would round every term at C's magnitude.
//!
//! Rows of B and C are multiples of [`LANES`] numbers long; what is padded is zero.

use pulp::{Simd, WithSimd};

use super::prefetch::prefetch;

/// Every row is padded to a multiple of so many numbers: the widest vector.
pub(crate) const LANES: usize = 16;

/// The length of a padded row.
pub(crate) const fn padded(len: usize) -> usize {
    len.div_ceil(LANES) * LANES
}

/// The left factor: number (m, k) is `values[m * row + k * column]`; one of the two is 1.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// How the product is written to C.
#[derive(Clone, Copy)]
pub(crate) enum Into {
    /// C = A B.
    Set,
    /// C += A B.
    Add,
    /// C += factor * A B.
    AddScaled(f32),
}

/// C (m x n), A (m x k), B (k x n): rows of B and C are `b_row` and `c_row` numbers apart.
pub(crate) struct Product<'a> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Left<'a>,
    pub(crate) b: &'a [f32],
    pub(crate) b_row: usize,
    pub(crate) c: &'a mut [f32],
    pub(crate) c_row: usize,
    pub(crate) into: Into,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let lanes = S::F32_LANES;
        debug_assert!([self.n, self.b_row, self.c_row].iter().all(|len| len.is_multiple_of(lanes)));
        let (b, _) = S::as_simd_f32s(self.b);
        let (c, _) = S::as_mut_simd_f32s(self.c);
        let mut work = Tiles {
            simd,
            k: self.k,
            a: self.a,
            b,
            b_row: self.b_row / lanes,
            c,
            c_row: self.c_row / lanes,
            into: self.into,
        };
        let vectors = self.n / lanes;
        let mut at = 0;
        while at < vectors {
            at += work.columns(self.m, at, vectors - at);
        }
    }
}

struct Tiles<'a, S: Simd> {
    simd: S,
    k: usize,
    a: Left<'a>,
    b: &'a [S::f32s],
    b_row: usize,
    c: &'a mut [S::f32s],
    c_row: usize,
    into: Into,
}

impl<S: Simd> Tiles<'_, S> {
    /// All rows of the next columns of C; returns how many vectors wide they are.
    ///
    /// A tile has some 24 sums with 32 registers and 12 with 16, so that multiplications do not wait for one another; wide
    /// tiles read A once, which pays where it lies in rows.
    #[inline(always)]
    fn columns(&mut self, m: usize, at: usize, left: usize) -> usize {
        let in_rows = self.a.column == 1;
        match (S::REGISTER_COUNT >= 32, left) {
            (true, 6) if in_rows => self.column::<4, 6>(m, at),
            (true, 5) => self.column::<5, 5>(m, at),
            (true, 4) => self.column::<6, 4>(m, at),
            (true, 3 | 6..) => self.column::<8, 3>(m, at),
            (true, 2) => self.column::<8, 2>(m, at),
            (true, _) => self.column::<8, 1>(m, at),
            (false, 3..) => self.column::<4, 3>(m, at),
            (false, 2) => self.column::<4, 2>(m, at),
            (false, _) => self.column::<4, 1>(m, at),
        }
    }

    /// All rows of C, NV vectors wide.
    #[inline(always)]
    fn column<const MR: usize, const NV: usize>(&mut self, m: usize, at: usize) -> usize {
        let mut row = 0;
        while row + MR <= m {
            self.tile::<MR, NV>(row, at);
            row += MR;
        }
        if MR > 4 && row + 4 <= m {
            self.tile::<4, NV>(row, at);
            row += 4;
        }
        while row < m {
            self.tile::<1, NV>(row, at);
            row += 1;
        }
        NV
    }

    #[inline(always)]
    fn tile<const MR: usize, const NV: usize>(&mut self, row: usize, at: usize) {
        self.prefetch_c::<MR, NV>(row, at);
        let sums = if self.a.column == 1 { self.sums_of_rows::<MR, NV>(row, at) } else { self.sums::<MR, NV>(row, at) };
        let simd = self.simd;
        for (r, sums) in sums.iter().enumerate() {
            let c = &mut self.c[(row + r) * self.c_row + at..][..NV];
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = match self.into {
                    Into::Set => *sum,
                    Into::Add => simd.add_f32s(*c, *sum),
                    Into::AddScaled(factor) => simd.mul_add_e_f32s(simd.splat_f32s(factor), *sum, *c),
                };
            }
        }
    }

    /// What a tile is added to can come while its sums are computed.
    #[inline(always)]
    fn prefetch_c<const MR: usize, const NV: usize>(&self, row: usize, at: usize) {
        if !matches!(self.into, Into::Set) {
            self.c[row * self.c_row..].chunks(self.c_row).take(MR).for_each(|c| prefetch(&c[at..][..NV]));
        }
    }

    /// A tile of A B where the rows of A lie in one piece each.
    #[inline(always)]
    fn sums_of_rows<const MR: usize, const NV: usize>(&self, row: usize, at: usize) -> [[S::f32s; NV]; MR] {
        let Left { values, row: a_row, .. } = self.a;
        let a: [&[f32]; MR] = std::array::from_fn(|r| &values[(row + r) * a_row..][..self.k]);
        let next = values.get((row + MR) * a_row..).unwrap_or_default();
        next.chunks(a_row).take(MR).for_each(|a| prefetch(&a[..self.k.min(a.len())]));
        let b = Rows::<_, NV>::of(&self.b[at..], self.b_row, self.k);
        let mut sums = [[self.simd.splat_f32s(0.0); NV]; MR];
        for k in 0..self.k {
            let b = b.row(k);
            for (a, sums) in a.iter().zip(&mut sums) {
                self.multiply_add(a[k], b, sums);
            }
        }
        sums
    }

    /// A tile of A B where A lies column by column: `MR` numbers lie side by side.
    #[inline(always)]
    fn sums<const MR: usize, const NV: usize>(&self, row: usize, at: usize) -> [[S::f32s; NV]; MR] {
        let Left { values, row: a_row, column } = self.a;
        debug_assert_eq!(a_row, 1, "A lies row by row or column by column");
        let a = Rows::<_, MR>::of(&values[row..], column, self.k);
        let b = Rows::<_, NV>::of(&self.b[at..], self.b_row, self.k);
        let mut sums = [[self.simd.splat_f32s(0.0); NV]; MR];
        for k in 0..self.k {
            let (a, b) = (a.row(k), b.row(k));
            for (a, sums) in a.iter().zip(&mut sums) {
                self.multiply_add(*a, b, sums);
            }
        }
        sums
    }

    #[inline(always)]
    fn multiply_add<const NV: usize>(&self, a: f32, b: &[S::f32s; NV], sums: &mut [S::f32s; NV]) {
        let a = self.simd.splat_f32s(a);
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum = self.simd.mul_add_e_f32s(a, *b, *sum);
        }
    }
}

/// The first `N` numbers of each row of a matrix, checked once for all rows.
///
/// With a check in each step a tile takes 19 whole-number instructions for 24 multiply-adds, and on a core with two units for these
/// they compete for the same ports.
struct Rows<'a, T, const N: usize> {
    values: &'a [T],
    /// How far rows are apart.
    row: usize,
    rows: usize,
}

impl<'a, T, const N: usize> Rows<'a, T, N> {
    #[inline(always)]
    fn of(values: &'a [T], row: usize, rows: usize) -> Self {
        assert!(rows == 0 || (rows - 1) * row + N <= values.len(), "the matrix has {rows} rows");
        Self { values, row, rows }
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "the inner loop of all training; `of` has checked every row")]
    fn row(&self, n: usize) -> &'a [T; N] {
        debug_assert!(n < self.rows);
        // SAFETY: row `n` begins at `n * row` and `of` found that `N` values from there on are part of the slice for every n < rows,
        // which is what both callers count to; arrays have the alignment of their values.
        unsafe { &*self.values.as_ptr().add(n * self.row).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelPath;

    /// Small integers: every order of summing gives the same bits.
    fn numbers(len: usize, seed: u32) -> Vec<f32> {
        (0..len as u32).map(|i| ((i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 20) % 17) as f32 - 8.0).collect()
    }

    #[test]
    fn products_equal_the_definition_on_every_path() {
        for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
            for (m, n, k) in [(1, 16, 1), (3, 32, 7), (8, 48, 5), (13, 80, 96), (21, 112, 10), (4, 256, 33)] {
                for transposed in [false, true] {
                    let a = numbers(m * k, 1);
                    let (row, column) = if transposed { (1, m) } else { (k, 1) };
                    let (b, start) = (numbers(k * n, 2), numbers(m * n, 3));
                    for (into, old, scale) in
                        [(Into::Set, 0.0, 1.0), (Into::Add, 1.0, 1.0), (Into::AddScaled(-0.5), 1.0, -0.5)]
                    {
                        let mut c = start.clone();
                        let left = Left { values: &a, row, column };
                        let product = Product { m, n, k, a: left, b: &b, b_row: n, c: &mut c, c_row: n, into };
                        path.run(product).unwrap();
                        for i in 0..m {
                            for j in 0..n {
                                let sum: f32 = (0..k).map(|k| a[i * row + k * column] * b[k * n + j]).sum();
                                assert_eq!(c[i * n + j], old * start[i * n + j] + scale * sum, "{path:?} {m} {n} {k}");
                            }
                        }
                    }
                }
            }
        }
    }
}
