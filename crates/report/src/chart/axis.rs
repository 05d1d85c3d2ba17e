//! Chart axes: their range and ticks.
//!
//! Logarithmic axes are straight axes over the logarithm. The ticks are ours: those of `plotters` leave a logarithmic axis
//! of less than a decade almost without any.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Larger values are left out: their differences would not be numbers.
const LARGEST: f64 = 1e300;

/// What an axis spans. A *place* is a value, or its logarithm on a logarithmic axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    log: bool,
    places: Range<f64>,
    ticks: Vec<f64>,
}

/// Where a value stands on an axis; none for a value that cannot stand there.
pub(super) fn place(value: f64, log: bool) -> Option<f64> {
    let fits = value.abs() < LARGEST && (!log || value > 0.0); // NaN is not
    fits.then(|| if log { libm::log10(value) } else { value })
}

impl Axis {
    /// An axis that holds all the places, with a margin at both ends (a part of the span) and about so many ticks; none
    /// without any place.
    pub(super) fn around(places: impl Iterator<Item = f64>, log: bool, margin: f64, ticks: f64) -> Option<Self> {
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p), h.max(p)));
        if low > high {
            return None;
        }
        let places = widened(low, high, log, margin);
        let ticks = if log { log_ticks(&places, ticks) } else { even_ticks(&places, ticks) };
        Some(Self { log, places, ticks })
    }

    /// What stands at the ticks.
    pub(super) fn labels(&self) -> impl Iterator<Item = String> + '_ {
        self.ticks.iter().map(|tick| self.format_ext(tick))
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (start, end): (i32, i32)) -> i32 {
        let part = (place - self.places.start) / (self.places.end - self.places.start);
        start + libm::round(part * f64::from(end - start)) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.places.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(place: &f64) -> String {
        number(*place)
    }

    fn format_ext(&self, place: &f64) -> String {
        number(if self.log { libm::pow(10.0, *place) } else { *place })
    }
}

/// The span of the axis: from zero where the values are not far from it; never empty.
fn widened(low: f64, high: f64, log: bool, margin: f64) -> Range<f64> {
    let span = high - low;
    let size = if log { 1.0 } else { low.abs().max(high.abs()) };
    if span <= size * 1e-9 {
        let half = if log { 0.5 } else { size * 0.1 };
        return if size == 0.0 { 0.0..1.0 } else { low - half..high + half };
    }
    let from_zero = !log && low >= 0.0 && low < high / 2.0;
    let start = if from_zero { 0.0 } else { low - span * margin };
    start..high + span * margin
}

/// The step of 1, 2 or 5 times a power of ten that makes at most about so many ticks.
fn step(span: f64, ticks: f64) -> f64 {
    let least = span / ticks.max(1.0);
    let power = libm::pow(10.0, libm::floor(libm::log10(least)));
    [1.0, 2.0, 5.0].map(|m| m * power).into_iter().find(|s| *s >= least * 0.999).unwrap_or(10.0 * power)
}

fn even_ticks(span: &Range<f64>, ticks: f64) -> Vec<f64> {
    let step = step(span.end - span.start, ticks);
    let first = libm::ceil(span.start / step - 1e-9);
    (0..100).map(|i| (first + f64::from(i)) * step).take_while(|t| *t <= span.end + step * 1e-9).collect()
}

/// Powers of ten, with 2 and 5 times them where there is room; even ticks where the axis is too short for those.
fn log_ticks(span: &Range<f64>, ticks: f64) -> Vec<f64> {
    let inside = |places: &[f64], every: i32| -> Vec<f64> {
        let (first, last) = (libm::floor(span.start) as i32, libm::ceil(span.end) as i32);
        (first..=last)
            .filter(|decade| decade % every == 0)
            .flat_map(|decade| places.iter().map(move |p| f64::from(decade) + p))
            .filter(|p| *p >= span.start - 1e-9 && *p <= span.end + 1e-9)
            .collect()
    };
    let one_two_five = inside(&[0.0, libm::log10(2.0), libm::log10(5.0)], 1);
    if one_two_five.len() < 3 {
        let values = libm::pow(10.0, span.start)..libm::pow(10.0, span.end);
        return even_ticks(&values, ticks).into_iter().filter_map(|v| place(v, true)).collect();
    }
    if one_two_five.len() as f64 <= ticks * 1.2 {
        return one_two_five;
    }
    let every = libm::ceil((span.end - span.start) / ticks.max(1.0)).max(1.0) as i32;
    inside(&[0.0], every)
}

/// A number as people write it: no more digits than it has, powers of ten where zeros would have to be counted.
fn number(value: f64) -> String {
    let without_noise = format!("{value:.9e}").parse().unwrap_or(value);
    let size = f64::abs(without_noise);
    let plain = size == 0.0 || (1e-3..1e5).contains(&size);
    if plain { format!("{without_noise}") } else { format!("{without_noise:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], log: bool, ticks: f64) -> Vec<String> {
        let places = values.iter().filter_map(|v| place(*v, log));
        let axis = Axis::around(places, log, 0.05, ticks).unwrap();
        assert!(axis.ticks.iter().all(|t| *t >= axis.places.start && *t <= axis.places.end), "{axis:?}");
        axis.labels().collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&[0.0, 200.0], false, 5.0), ["0", "50", "100", "150", "200"]);
        assert_eq!(labels(&[13.1, 15.9], false, 5.0), ["13", "14", "15", "16"]);
        assert_eq!(labels(&[-0.3, 0.3], false, 5.0), ["-0.2", "0", "0.2"]);
        assert_eq!(labels(&[1.0, 1e6], false, 4.0), ["0", "5e5", "1e6"]);
    }

    #[test]
    fn logarithmic_ticks_suit_the_span() {
        assert_eq!(labels(&[1.0, 1000.0], true, 5.0), ["1", "10", "100", "1000"]);
        assert_eq!(labels(&[3.0, 300.0], true, 6.0), ["5", "10", "20", "50", "100", "200"]);
        assert_eq!(log_ticks(&(0.0..4.0), 6.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        // Not one of 1, 2, 5 times a power of ten but 500 is here.
        assert_eq!(labels(&[410.0, 690.0], true, 5.0), ["400", "500", "600", "700"]);
        assert_eq!(labels(&[1e-9, 1e12], true, 5.0), ["1e-10", "1e-5", "1", "1e5", "1e10"]);
    }

    #[test]
    fn equal_values_are_given_room() {
        assert_eq!(labels(&[3.0], false, 4.0), ["2.8", "3", "3.2"]);
        assert_eq!(labels(&[0.0, 0.0], false, 4.0), ["0", "0.5", "1"]);
        assert_eq!(labels(&[100.0], true, 4.0), ["50", "100", "200"]);
    }

    #[test]
    fn what_cannot_be_placed_is_left_out() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e301] {
            assert_eq!(place(value, false), None);
            assert_eq!(place(value, true), None);
        }
        assert_eq!((place(0.0, true), place(-1.0, true), place(-1.0, false)), (None, None, Some(-1.0)));
        assert_eq!(Axis::around(std::iter::empty(), false, 0.05, 5.0), None);
    }

    #[test]
    fn the_ends_of_floating_point_are_drawn_too() {
        for values in [[-1e299, 1e299], [f64::MIN_POSITIVE, 1e299], [1.0, 1.0 + 1e-15], [5e-324, 1e-320]] {
            for log in [false, true] {
                let places: Vec<f64> = values.iter().filter_map(|v| place(*v, log)).collect();
                let axis = Axis::around(places.into_iter(), log, 0.05, 5.0).unwrap();
                assert!(axis.places.start < axis.places.end && axis.ticks.len() < 100, "{values:?} {axis:?}");
                assert!(axis.places.start.is_finite() && axis.places.end.is_finite());
            }
        }
    }
}
