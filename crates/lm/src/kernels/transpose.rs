//! Transposes matrices.
//!
//! Whole blocks of 16 x 16 are turned in registers where there are 512-bit vectors: of the eight bits that say where a number
//! lies in the block (four of the row, four of the column), merging row i with row i + 8 moves the first to the end; four
//! times, and rows are columns. Elsewhere, and at the edges, numbers are moved one at a time.

use super::KernelPath;

const BLOCK: usize = 16;

/// Writes the transpose of a `rows x columns` matrix; rows are `from_row` and `to_row` numbers apart.
pub(crate) fn transpose(
    path: KernelPath,
    from: &[f32],
    from_row: usize,
    [rows, columns]: [usize; 2],
    to: &mut [f32],
    to_row: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if let (KernelPath::Avx512, Some(simd)) = (path, pulp::x86::V4::try_new()) {
        simd.vectorize(registers::Turn { simd, from, from_row, size: [rows, columns], to, to_row });
        return;
    }
    let _ = path;
    turn(from, from_row, [0..rows, 0..columns], to, to_row);
}

/// Numbers one at a time, in blocks that stay in the cache.
fn turn(from: &[f32], from_row: usize, [rows, columns]: [std::ops::Range<usize>; 2], to: &mut [f32], to_row: usize) {
    for row in rows.clone().step_by(BLOCK) {
        for column in columns.clone().step_by(BLOCK) {
            for r in row..(row + BLOCK).min(rows.end) {
                let line = &from[r * from_row + column..r * from_row + (column + BLOCK).min(columns.end)];
                for (c, v) in line.iter().enumerate() {
                    to[(column + c) * to_row + r] = *v;
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::__m512;

    use pulp::{NullaryFnOnce, cast, x86::V4};

    use super::{BLOCK, turn};

    /// The first eight numbers of two vectors merged, and the last eight.
    const MERGE: [[u32; BLOCK]; 2] = [
        [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23],
        [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31],
    ];

    pub(super) struct Turn<'a> {
        pub(super) simd: V4,
        pub(super) from: &'a [f32],
        pub(super) from_row: usize,
        pub(super) size: [usize; 2],
        pub(super) to: &'a mut [f32],
        pub(super) to_row: usize,
    }

    impl NullaryFnOnce for Turn<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Self { simd, from, from_row, size: [rows, columns], to, to_row } = self;
            let [whole_rows, whole_columns] = [rows, columns].map(|n| n / BLOCK * BLOCK);
            for row in (0..whole_rows).step_by(BLOCK) {
                for column in (0..whole_columns).step_by(BLOCK) {
                    block(simd, &from[row * from_row + column..], from_row, &mut to[column * to_row + row..], to_row);
                }
            }
            turn(from, from_row, [0..rows, whole_columns..columns], to, to_row);
            turn(from, from_row, [whole_rows..rows, 0..whole_columns], to, to_row);
        }
    }

    #[inline(always)]
    fn block(simd: V4, from: &[f32], from_row: usize, to: &mut [f32], to_row: usize) {
        let zeros = cast!([0.0f32; BLOCK]);
        let mut rows: [__m512; BLOCK] = [zeros; BLOCK];
        for (row, line) in rows.iter_mut().zip(from.chunks(from_row)) {
            let Some(line) = line.first_chunk::<BLOCK>() else { return };
            *row = cast!(*line);
        }
        let rows = merged(simd, merged(simd, merged(simd, merged(simd, rows))));
        for (row, line) in rows.iter().zip(to.chunks_mut(to_row)) {
            let Some(line) = line.first_chunk_mut::<BLOCK>() else { return };
            *line = cast!(*row);
        }
    }

    #[inline(always)]
    fn merged(simd: V4, rows: [__m512; BLOCK]) -> [__m512; BLOCK] {
        let [first, last] = MERGE.map(|order| cast!(order));
        let mut out = rows;
        for n in 0..BLOCK / 2 {
            out[2 * n] = simd.avx512f._mm512_permutex2var_ps(rows[n], first, rows[n + BLOCK / 2]);
            out[2 * n + 1] = simd.avx512f._mm512_permutex2var_ps(rows[n], last, rows[n + BLOCK / 2]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transpose_is_one_on_every_path() {
        for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
            for (rows, columns) in [(37, 21), (16, 16), (48, 32), (15, 40), (64, 17)] {
                let from: Vec<f32> = (0..rows * (columns + 3)).map(|i| i as f32).collect();
                let mut to = vec![-1.0; columns * (rows + 2)];
                transpose(path, &from, columns + 3, [rows, columns], &mut to, rows + 2);
                for (i, value) in to.iter().enumerate() {
                    let (c, r) = (i / (rows + 2), i % (rows + 2));
                    let expected = if r < rows { from[r * (columns + 3) + c] } else { -1.0 };
                    assert_eq!(*value, expected, "{path:?} {rows} x {columns} at {r}, {c}");
                }
            }
        }
    }
}
