//! Labels of posts, such as the tags of questions: names and ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use thiserror::Error;

/// The most labels that a store names; an id has 16 bits.
pub const MOST_LABELS: usize = 65_535;

/// The names of labels; a label's id is its place among them. No name is empty and none stands twice. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Arc<Named>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    names: Vec<String>,
    ids: BTreeMap<String, u32>,
}

/// Why names cannot be those of labels.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LabelsError {
    /// More than ids can tell apart.
    #[error("there are {got} labels; at most {MOST_LABELS} are supported")]
    TooMany {
        /// The number found.
        got: usize,
    },
    /// A label without a name.
    #[error("label {index}, counted from 0, has no name")]
    Empty {
        /// Its index, from 0.
        index: usize,
    },
    /// A name that stands twice.
    #[error("the label {name:?} appears twice")]
    Twice {
        /// The name.
        name: String,
    },
}

impl Labels {
    /// Labels with these names, in this order.
    ///
    /// # Errors
    /// When there are more than [`MOST_LABELS`], or a name is empty or stands twice.
    pub fn new(names: Vec<String>) -> Result<Self, LabelsError> {
        if names.len() > MOST_LABELS {
            return Err(LabelsError::TooMany { got: names.len() });
        }
        if let Some(index) = names.iter().position(String::is_empty) {
            return Err(LabelsError::Empty { index });
        }
        if let Some(name) = first_twice(&names) {
            return Err(LabelsError::Twice { name: name.to_owned() });
        }
        let ids = names.iter().cloned().zip(0..).collect();
        Ok(Self(Arc::new(Named { names, ids })))
    }

    /// The names, in the order of their ids.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.names.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.names.is_empty()
    }

    /// The id of a name.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<u32> {
        self.0.ids.get(name).copied()
    }

    /// The name of an id.
    #[must_use]
    pub fn name(&self, id: u32) -> Option<&str> {
        self.0.names.get(id as usize).map(String::as_str)
    }
}

/// The first name that stood before.
pub(crate) fn first_twice(names: &[String]) -> Option<&str> {
    let mut before = BTreeSet::new();
    names.iter().map(String::as_str).find(|name| !before.insert(*name))
}

/// The labels of one post of a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct LabelIds<'a> {
    ids: &'a [[u8; 2]],
    /// Ids from here on have no name and are left out.
    limit: u32,
}

impl<'a> LabelIds<'a> {
    pub(crate) const fn new(bytes: &'a [u8], limit: u32) -> Self {
        Self { ids: bytes.as_chunks().0, limit }
    }

    /// The ids, each with a name in the store.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let limit = self.limit;
        self.all().filter(move |id| *id < limit)
    }

    /// Appends the ids.
    pub fn copy_into(&self, out: &mut Vec<u32>) {
        out.extend(self.iter());
    }

    fn all(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ids.iter().map(|id| u16::from_le_bytes(*id).into())
    }

    /// Whether every id has a name.
    pub(crate) fn are_named(&self) -> bool {
        self.all().all(|id| id < self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Result<Labels, LabelsError> {
        Labels::new(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn names_and_ids_belong_together() {
        let labels = labels(&["rust", "c#", "a b"]).unwrap();
        assert_eq!((labels.len(), labels.id("c#"), labels.id("c")), (3, Some(1), None));
        assert_eq!((labels.name(2), labels.name(3)), (Some("a b"), None));
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        assert_eq!(labels(&["a", ""]), Err(LabelsError::Empty { index: 1 }));
        assert_eq!(labels(&["a", "b", "a"]), Err(LabelsError::Twice { name: "a".into() }));
        let many = |n: usize| Labels::new((0..n).map(|i| i.to_string()).collect());
        assert_eq!(many(MOST_LABELS + 1), Err(LabelsError::TooMany { got: MOST_LABELS + 1 }));
        assert!(many(MOST_LABELS).is_ok());
    }

    #[test]
    fn ids_without_a_name_are_left_out() {
        let ids = LabelIds::new(&[1, 0, 3, 0, 2, 0], 3);
        let mut out = vec![9];
        ids.copy_into(&mut out);
        assert_eq!((out, ids.are_named()), (vec![9, 1, 2], false));
    }
}
