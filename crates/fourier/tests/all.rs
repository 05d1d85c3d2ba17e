//! Transforms there and back. Not a unit test: the library is generic code that takes long to compile, and is compiled once.

use keyhush_fourier::{forward, inverse};

#[test]
fn there_and_back_is_the_signal_times_its_length() {
    let signal: Vec<f64> = (0..40).map(|i| f64::from(i * i % 17) - 3.0).collect();
    let mut spectrum = forward(&mut signal.clone());
    assert_eq!(spectrum.len(), 21);
    assert!((spectrum[0].re - signal.iter().sum::<f64>()).abs() < 1e-9 && spectrum[0].im == 0.0);
    let back = inverse(&mut spectrum);
    assert!(signal.iter().zip(&back).all(|(a, b)| (40.0 * a - b).abs() < 1e-9), "{back:?}");
}
