//! Features of users besides their text: named numeric columns with one value per user.

use thiserror::Error;

use crate::labels::first_twice;

/// The most columns.
pub const MOST_FEATURES: usize = 4096;
pub(super) const FEATURE_BYTES: usize = 4;

/// Why names cannot be those of columns.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FeatureNamesError {
    /// More features than are supported.
    #[error("there are {got} features; at most {MOST_FEATURES} are supported")]
    TooMany {
        /// The number found.
        got: usize,
    },
    /// A column without a name.
    #[error("feature {index}, counted from 0, has no name")]
    Empty {
        /// Its index, from 0.
        index: usize,
    },
    /// A name that stands twice.
    #[error("the feature {name:?} appears twice")]
    Twice {
        /// The name.
        name: String,
    },
}

/// Whether columns can have these names.
pub(super) fn check_names(names: &[String]) -> Result<(), FeatureNamesError> {
    if names.len() > MOST_FEATURES {
        return Err(FeatureNamesError::TooMany { got: names.len() });
    }
    if let Some(index) = names.iter().position(String::is_empty) {
        return Err(FeatureNamesError::Empty { index });
    }
    first_twice(names).map_or(Ok(()), |name| Err(FeatureNamesError::Twice { name: name.to_owned() }))
}

/// The numbers of one user, in the order of [`super::Store::feature_names`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Features<'a>(&'a [[u8; FEATURE_BYTES]]);

impl<'a> Features<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.as_chunks().0)
    }

    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers, all of them finite: what is not, in a damaged store, reads as 0.
    pub fn iter(&self) -> impl Iterator<Item = f32> + use<'a> {
        self.all().map(|number| if number.is_finite() { number } else { 0.0 })
    }

    /// Appends the numbers.
    pub fn copy_into(&self, out: &mut Vec<f32>) {
        out.extend(self.iter());
    }

    fn all(&self) -> impl Iterator<Item = f32> + use<'a> {
        self.0.iter().map(|number| f32::from_le_bytes(*number))
    }

    /// Whether every number is one.
    pub(super) fn are_finite(&self) -> bool {
        self.all().all(f32::is_finite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_are_refused() {
        let check = |names: &[&str]| check_names(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(check(&["age", "height"]), Ok(()));
        assert_eq!(check(&["age", "age"]), Err(FeatureNamesError::Twice { name: "age".into() }));
        assert_eq!(check(&[""]), Err(FeatureNamesError::Empty { index: 0 }));
        let many: Vec<String> = (0..=MOST_FEATURES).map(|i| i.to_string()).collect();
        assert_eq!(check_names(&many), Err(FeatureNamesError::TooMany { got: MOST_FEATURES + 1 }));
        assert_eq!(check_names(&many[1..]), Ok(()));
    }

    #[test]
    fn what_is_not_a_number_reads_as_nothing() {
        let bytes: Vec<u8> = [1.5, f32::NAN, -2.0].iter().flat_map(|n: &f32| n.to_le_bytes()).collect();
        let features = Features::new(&bytes);
        assert_eq!((features.iter().collect::<Vec<_>>(), features.are_finite()), (vec![1.5, 0.0, -2.0], false));
    }
}
