//! Matrices as the kernels like them: rows padded with zeros.

use crate::kernels::{KernelPath, matrix::padded, rows::NormaliseRows};

/// A matrix with padded rows.
#[derive(Debug, Clone)]
pub(super) struct Table {
    rows: usize,
    columns: usize,
    pub(super) width: usize,
    pub(super) values: Vec<f32>,
}

impl Table {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        let width = padded(columns);
        Self { rows, columns, width, values: vec![0.0; rows * width] }
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

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// One row, without its padding.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..row * self.width + self.columns]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..row * self.width + self.columns]
    }

    /// Scales every row that is not zero to norm 1.
    pub(super) fn normalise_rows(&mut self, path: KernelPath) {
        path.run(NormaliseRows { values: &mut self.values, width: self.width });
    }
}
