//! The numbers of one evaluation, under their names in a line of `metrics.jsonl`.

use std::{fmt, sync::LazyLock};

use lm::metrics::Counts;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};

use super::registry::{Absent, MEASURES, METRICS, Measures, Metric, Source};

/// The metrics of an evaluation. Values that are not finite are written as null.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    measures: &'static Measures,
    /// In the order of `measures.metrics`.
    values: Vec<f64>,
}

/// The names of all numbers that evaluations measure.
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let measured = METRICS.iter().filter(|metric| matches!(metric.source, Source::Evaluation(_)));
    measured.map(|metric| metric.name).collect()
});

impl Measured {
    /// Computes the metrics from counts.
    #[must_use]
    pub fn of(measures: &'static Measures, counts: &Counts) -> Self {
        Self::new(measures, |metric| metric.of_counts(counts))
    }

    /// Each number as `value` says it.
    pub fn new(measures: &'static Measures, value: impl Fn(&Metric) -> Option<f64>) -> Self {
        let missing = |metric: &Metric| if metric.absent == Absent::Zero { 0.0 } else { f64::INFINITY };
        let values = measures.metrics.iter().map(|metric| value(metric).unwrap_or_else(|| missing(metric)));
        Self { measures, values: values.collect() }
    }

    /// The learner's metrics.
    #[must_use]
    pub const fn measures(&self) -> &'static Measures {
        self.measures
    }

    /// One of them; none where this learner does not have it.
    #[must_use]
    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.iter().find(|(known, _)| *known == metric).map(|(_, value)| value)
    }

    /// The one that models are chosen by.
    #[must_use]
    pub fn headline(&self) -> f64 {
        self.get(self.measures.headline).unwrap_or(f64::NAN)
    }

    fn iter(&self) -> impl Iterator<Item = (&'static Metric, f64)> {
        self.measures.metrics.iter().copied().zip(self.values.iter().copied())
    }
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.values.len()))?;
        for (metric, value) in self.iter() {
            map.serialize_entry(metric.name, &Some(value).filter(|value| value.is_finite()))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Measured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As a struct: a line that holds it takes these names out, and refuses what is left.
        deserializer.deserialize_struct("Measured", &NAMES, Numbers)
    }
}

/// Reads the numbers, and finds out whose they are.
struct Numbers;

type Found = Vec<(&'static Metric, Option<f64>)>;

impl<'de> Visitor<'de> for Numbers {
    type Value = Measured;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what an evaluation measured")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Measured, A::Error> {
        let mut found = Found::new();
        while let Some(name) = map.next_key::<String>()? {
            let metric = Metric::find(&name).ok_or_else(|| A::Error::unknown_field(&name, &NAMES))?;
            if found.iter().any(|(known, _)| *known == metric) {
                return Err(A::Error::duplicate_field(metric.name));
            }
            let value = if metric.absent == Absent::Zero { Some(map.next_value::<f64>()?) } else { map.next_value()? };
            found.push((metric, value));
        }
        let value = |metric: &Metric| found.iter().find(|(known, _)| *known == metric)?.1;
        Ok(Measured::new(owner(&found)?, value))
    }
}

/// The learner that these are the numbers of. Those that may be infinite may be missing.
fn owner<E: Error>(found: &Found) -> Result<&'static Measures, E> {
    let has = |metric: &Metric| found.iter().any(|(known, _)| *known == metric);
    let missing = |measures: &Measures| {
        measures.metrics.iter().find(|metric| metric.absent == Absent::Zero && !has(metric)).map(|metric| metric.name)
    };
    let fits = |measures: &&&'static Measures| {
        missing(measures).is_none() && found.iter().all(|(metric, _)| measures.metrics.contains(metric))
    };
    if let Some(measures) = MEASURES.iter().find(fits) {
        return Ok(measures);
    }
    // What is wrong is said of the one that most of the numbers are of; of the first, where that is no help.
    let theirs = |measures: &&&Measures| found.iter().filter(|(metric, _)| measures.metrics.contains(metric)).count();
    let nearest = MEASURES.iter().rev().max_by_key(theirs).unwrap_or(&MEASURES[0]);
    let other = found.iter().find(|(metric, _)| !nearest.metrics.contains(metric));
    Err(match (missing(nearest), other) {
        (None, Some((other, _))) => E::unknown_field(other.name, &NAMES),
        (name, _) => E::missing_field(name.unwrap_or_default()),
    })
}
