//! Fourier transforms of real signals, by `realfft`.
//!
//! A separate crate because `realfft` is generic: every crate that names a number type compiles all its butterflies, for every vector
//! unit. They were two fifths of the machine code of `privacy`, compiled for its library and again for its tests. Nothing here is
//! generic, so they are compiled once.

use std::cell::RefCell;

use realfft::RealFftPlanner;
pub use realfft::num_complex::Complex;

thread_local! {
    /// Plans hold twiddle factors that are worth keeping between calls.
    static PLANNER: RefCell<RealFftPlanner<f64>> = RefCell::new(RealFftPlanner::new());
}

/// The transform of a real signal of even length: the coefficients of frequencies 0 to half the length, the first and the last of
/// them real. The signal is used up.
#[must_use]
pub fn forward(signal: &mut [f64]) -> Vec<Complex<f64>> {
    let plan = PLANNER.with_borrow_mut(|p| p.plan_fft_forward(signal.len()));
    let mut spectrum = plan.make_output_vec();
    plan.process(signal, &mut spectrum).expect("the buffers have the lengths of the plan");
    spectrum
}

/// The signal of even length whose transform this is, times the length. The coefficients are used up; of the first and the last
/// only the real part counts.
#[must_use]
pub fn inverse(spectrum: &mut [Complex<f64>]) -> Vec<f64> {
    let last = spectrum.len().saturating_sub(1);
    let plan = PLANNER.with_borrow_mut(|p| p.plan_fft_inverse(2 * last));
    let mut signal = plan.make_output_vec();
    // Of a real signal of even length these two are real.
    spectrum[0].im = 0.0;
    spectrum[last].im = 0.0;
    plan.process(spectrum, &mut signal).expect("the buffers have the lengths of the plan");
    signal
}
