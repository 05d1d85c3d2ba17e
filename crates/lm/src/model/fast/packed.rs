//! Matrices in the layout of the kernels: rows padded with zeros, large weights in panels.

use crate::kernels::{
    KernelPath,
    matrix::{Into, Left, Product, padded},
    rows::NormaliseRows,
    transpose::transpose,
};

/// A matrix with padded rows.
#[derive(Debug, Clone)]
pub(super) struct Table {
    columns: usize,
    pub(super) width: usize,
    pub(super) values: Vec<f32>,
}

impl Table {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        let width = padded(columns);
        Self { columns, width, values: vec![0.0; rows * width] }
    }

    /// Takes a matrix without padding.
    pub(super) fn load(&mut self, from: &[f32]) {
        for (row, from) in self.values.chunks_exact_mut(self.width).zip(from.chunks_exact(self.columns)) {
            row[..self.columns].copy_from_slice(from);
        }
    }

    /// Gives it back.
    pub(super) fn store(&self, to: &mut [f32]) {
        for (row, to) in self.values.chunks_exact(self.width).zip(to.chunks_exact_mut(self.columns)) {
            to.copy_from_slice(&row[..self.columns]);
        }
    }

    /// One row, without its padding.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..row * self.width + self.columns]
    }

    /// One row, with its padding.
    pub(super) fn padded_row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..(row + 1) * self.width]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..row * self.width + self.columns]
    }

    /// Scales every row that is not zero to norm 1.
    pub(super) fn normalise_rows(&mut self, path: KernelPath) {
        path.run(NormaliseRows { values: &mut self.values, width: self.width });
    }
}

/// Columns of a panel: three of the widest vectors.
const PANEL: usize = 48;

/// A matrix cut into panels of columns, each panel row after row: a product reads it from one end to the other.
#[derive(Debug, Clone)]
pub(super) struct Panels {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

/// The numbers of a panel, its first column, and its width.
struct Place {
    values: std::ops::Range<usize>,
    column: usize,
    width: usize,
}

impl Panels {
    /// Zeros; both sizes are padded already.
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let (rows, columns) = (self.rows, self.columns);
        (0..columns).step_by(PANEL).map(move |column| {
            let width = PANEL.min(columns - column);
            Place { values: column * rows..(column + width) * rows, column, width }
        })
    }

    /// The parts of a row that lie in one piece, from `column` on, for `len` columns: where each is, and how long.
    fn pieces(&self, row: usize, column: usize, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let within = move |place: &Place| place.column < column + len && column < place.column + place.width;
        self.places().filter(within).map(move |place| {
            let from = column.max(place.column) - place.column;
            let to = (column + len).min(place.column + place.width) - place.column;
            let start = place.values.start + row * place.width;
            start + from..start + to
        })
    }

    /// Takes a part of a row.
    pub(super) fn set(&mut self, row: usize, column: usize, mut from: &[f32]) {
        for piece in self.pieces(row, column, from.len()) {
            let (now, later) = from.split_at(piece.len());
            self.values[piece].copy_from_slice(now);
            from = later;
        }
    }

    /// Gives a part of a row.
    pub(super) fn get(&self, row: usize, column: usize, mut to: &mut [f32]) {
        for piece in self.pieces(row, column, to.len()) {
            let (now, later) = to.split_at_mut(piece.len());
            now.copy_from_slice(&self.values[piece]);
            to = later;
        }
    }

    /// `c = a W` or `c += a W`, for `m` rows of `a` and `c`; rows of `c` are `c_row` numbers apart.
    pub(super) fn multiply(&self, path: KernelPath, m: usize, a: Left<'_>, c: &mut [f32], c_row: usize, into: Into) {
        for Place { values, column, width } in self.places() {
            let (b, c) = (&self.values[values], &mut c[column..]);
            path.compute(Product { m, n: width, k: self.rows, a, b, b_row: width, c, c_row, into });
        }
    }

    /// `W += factor * a b`, with `k` rows in `b` that are `b_row` numbers apart.
    pub(super) fn add_product(
        &mut self,
        path: KernelPath,
        k: usize,
        a: Left<'_>,
        b: &[f32],
        b_row: usize,
        factor: f32,
    ) {
        let into = Into::AddScaled(factor);
        for Place { values, column, width } in self.places() {
            let (b, c) = (&b[column..], &mut self.values[values]);
            path.compute(Product { m: self.rows, n: width, k, a, b, b_row, c, c_row: width, into });
        }
    }

    /// Becomes the transpose of another.
    pub(super) fn set_transposed(&mut self, path: KernelPath, other: &Self) {
        for from in other.places() {
            for to in self.places() {
                let source = &other.values[from.values.clone()][to.column * from.width..];
                let target = &mut self.values[to.values.clone()][from.column * to.width..];
                transpose(path, source, from.width, [to.width, from.width], target, to.width);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panels(rows: usize, columns: usize) -> (Panels, Vec<f32>) {
        let dense: Vec<f32> = (0..rows * columns).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
        let mut panels = Panels::new(rows, columns);
        for (row, values) in dense.chunks_exact(columns).enumerate() {
            panels.set(row, 0, &values[..5]);
            panels.set(row, 5, &values[5..]);
        }
        (panels, dense)
    }

    #[test]
    fn panels_hold_multiply_and_turn_as_the_matrix_does() {
        for (rows, columns) in [(16, 16), (32, 48), (48, 112), (96, 160)] {
            let (weights, dense) = panels(rows, columns);
            let mut row = vec![0.0; columns - 3];
            weights.get(rows - 1, 3, &mut row);
            assert_eq!(row, dense[(rows - 1) * columns + 3..]);
            let mut turned = Panels::new(columns, rows);
            turned.set_transposed(KernelPath::best(), &weights);
            let a: Vec<f32> = (0..3 * rows).map(|i| (i % 5) as f32).collect();
            let mut c = vec![1.0; 3 * columns];
            let left = Left { values: &a, row: rows, column: 1 };
            weights.multiply(KernelPath::best(), 3, left, &mut c, columns, Into::Add);
            for column in 0..columns {
                let mut values = vec![0.0; rows];
                turned.get(column, 0, &mut values);
                assert!((0..rows).all(|r| values[r] == dense[r * columns + column]));
                let sum = |m: usize| 1.0 + (0..rows).map(|r| a[m * rows + r] * values[r]).sum::<f32>();
                assert!((0..3).all(|m| c[m * columns + column] == sum(m)), "{rows} x {columns}");
            }
        }
    }

    #[test]
    fn panels_take_a_product() {
        let (mut weights, dense) = panels(32, 80);
        let a: Vec<f32> = (0..2 * 32).map(|i| (i % 3) as f32).collect();
        let b: Vec<f32> = (0..2 * 80).map(|i| (i % 7) as f32).collect();
        weights.add_product(KernelPath::best(), 2, Left { values: &a, row: 1, column: 32 }, &b, 80, -0.5);
        for (row, old) in dense.chunks_exact(80).enumerate() {
            let mut new = vec![0.0; 80];
            weights.get(row, 0, &mut new);
            let moved = |j: usize| old[j] - 0.5 * (0..2).map(|k| a[k * 32 + row] * b[k * 80 + j]).sum::<f32>();
            assert!((0..80).all(|j| new[j] == moved(j)));
        }
    }
}
