//! The card's measured peak rates, to compare timings with.

use std::time::Instant;

use crate::{
    card::{Card, Matrix, Operands, Product},
    error::CudaError,
};

/// Numbers of a side of the matrices that are multiplied.
const SIDE: usize = 8192;
/// Numbers that are copied.
const COPIED: usize = 1 << 29;
/// How often each is done; the best counts.
const TIMES: usize = 6;

/// The card's measured peak rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// Bytes per second of a copy on the card, read and written.
    pub copy_bytes_per_s: f64,
    /// Operations per second of a large product in float32.
    pub f32_flops: f64,
    /// With operands of 10-bit mantissas.
    pub tf32_flops: f64,
    /// Operations per second of a product with half-precision operands.
    pub f16_flops: f64,
}

/// Measures a card.
///
/// # Errors
/// When there is none.
pub fn peaks() -> Result<Peaks, CudaError> {
    let card = Card::open(0)?;
    let (from, mut to) = (card.zeros::<f32>(COPIED)?, card.zeros::<f32>(COPIED)?);
    let copied = best(&card, || card.copy(&from, &mut to))?;
    let values: Vec<f32> =
        (0..SIDE * SIDE).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 8) as u16 as f32 / 65536.0 - 0.5).collect();
    // Read as halves, the bits of these numbers are finite.
    let (a, b, c) = (card.copy_of(&values)?, card.copy_of(&values)?, card.zeros::<f32>(SIDE * SIDE)?);
    let factors = card.copy_of(&[0.0f32, 1.0])?;
    let of = |operands: Operands| {
        let matrix = |at| Matrix::new(at, SIDE, 0);
        let product = Product {
            m: SIDE,
            n: SIDE,
            k: SIDE,
            a: matrix(a.address()),
            b: matrix(b.address()),
            c: matrix(c.address()),
            alpha: factors.address().plus(1),
            beta: factors.address(),
        };
        best(&card, || card.product(1, &product, operands)).map(|seconds| 2.0 * (SIDE as f64).powi(3) / seconds)
    };
    Ok(Peaks {
        copy_bytes_per_s: 8.0 * COPIED as f64 / copied,
        f32_flops: of(Operands::F32)?,
        tf32_flops: of(Operands::Tf32)?,
        f16_flops: of(Operands::F16)?,
    })
}

/// Seconds of the fastest of several times, after one to warm up.
fn best(card: &Card, mut work: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    work()?;
    card.wait()?;
    let mut best = f64::INFINITY;
    for _ in 0..TIMES {
        let began = Instant::now();
        work()?;
        card.wait()?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(best)
}
