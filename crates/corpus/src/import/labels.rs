//! Reads the labels of posts from a column, selects those to keep, and counts which are frequent.

use std::{collections::BTreeMap, io, path::Path};

use super::{
    ImportError, Input, Progress, Summary,
    work::{self, Found, Take},
};
use crate::{
    origin::Origin,
    store::{Labels, LabelsError},
};

/// Different labels after which rare ones are forgotten.
const MOST_COUNTED: usize = 1_000_000;

/// The column that has the labels of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelColumn {
    /// Its name.
    pub key: String,
    /// What stands between two labels where the column is not a list but one string. Labels in angle brackets, as
    /// StackOverflow writes them (`<rust><linker>`), are known by themselves.
    pub separator: String,
}

/// Names of labels with all that one must know of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLabels {
    /// The names.
    pub labels: Labels,
    /// The origin of the list.
    pub origin: Origin,
}

impl KnownLabels {
    /// The public list that a file has, one name a line; what follows a tab is not read.
    ///
    /// # Errors
    /// When there are too many names, or one stands twice.
    pub fn from_list(list: &str, path: &Path) -> Result<Self, LabelsError> {
        let names = list.lines().map(|line| line.split('\t').next().unwrap_or_default().trim());
        let labels = Labels::new(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())?;
        Ok(Self { labels, origin: Origin::public_list(path) })
    }
}

/// The labels of a post as a column has them.
pub(super) enum Tags<T> {
    /// All labels in one string.
    Joined(T),
    /// A list.
    Listed(Vec<T>),
}

impl<T> Default for Tags<T> {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl<T: AsRef<str>> Tags<T> {
    /// Each label once, in the order of the column, without the space around it.
    pub(super) fn names(&self, column: Option<&LabelColumn>) -> Vec<&str> {
        let mut names = Vec::new();
        match (self, column) {
            (_, None) => {}
            (Self::Listed(list), Some(_)) => list.iter().for_each(|name| add(name.as_ref(), &mut names)),
            (Self::Joined(text), Some(column)) => split(text.as_ref(), &column.separator, &mut names),
        }
        names
    }
}

impl Tags<Vec<u8>> {
    pub(super) fn to_text(&self) -> Result<Tags<&str>, std::str::Utf8Error> {
        Ok(match self {
            Self::Joined(text) => Tags::Joined(str::from_utf8(text)?),
            Self::Listed(list) => Tags::Listed(list.iter().map(|name| str::from_utf8(name)).collect::<Result<_, _>>()?),
        })
    }
}

fn split<'a>(text: &'a str, separator: &str, names: &mut Vec<&'a str>) {
    let text = text.trim();
    match text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        Some(inner) => inner.split("><").for_each(|name| add(name, names)),
        None if separator.is_empty() => add(text, names),
        None => text.split(separator).for_each(|name| add(name, names)),
    }
}

fn add<'a>(name: &'a str, names: &mut Vec<&'a str>) {
    let name = name.trim();
    if !name.is_empty() && !names.contains(&name) {
        names.push(name);
    }
}

/// The number of posts with each label.
#[derive(Debug, Clone, Default)]
pub struct LabelCounts {
    counts: BTreeMap<String, u64>,
    /// Labels of fewer posts are forgotten when there are too many.
    least: u64,
}

impl LabelCounts {
    fn add(&mut self, label: &str) {
        match self.counts.get_mut(label) {
            Some(count) => *count += 1,
            None => _ = self.counts.insert(label.to_owned(), 1),
        }
        if self.counts.len() > MOST_COUNTED {
            self.least += 1;
            let least = self.least;
            self.counts.retain(|_, count| *count > least);
        }
    }

    /// The most frequent ones, at most so many; of those that are as frequent the first by their letters.
    ///
    /// # Errors
    /// When they are too many for a store.
    pub fn most_frequent(&self, most: usize) -> Result<Labels, LabelsError> {
        let mut ranked: Vec<(&String, u64)> = self.counts.iter().map(|(name, count)| (name, *count)).collect();
        ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Labels::new(ranked.into_iter().take(most).map(|(name, _)| name.clone()).collect())
    }
}

impl Take for LabelCounts {
    fn post(&mut self, post: &Found<'_>, _: u64) -> io::Result<bool> {
        post.labels.iter().for_each(|label| self.add(label));
        Ok(true)
    }
}

/// Counts the labels of posts. Bad lines are skipped and counted.
///
/// # Errors
/// When something cannot be read, or it was told to stop.
pub fn count_labels(
    input: &Input,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(LabelCounts, Summary), ImportError> {
    let counting = work::drive(input, 1, false, LabelCounts::default, progress);
    let (mut takers, summary) = counting.map_err(|error| error.with_spill(Path::new("")))?;
    Ok((takers.pop().unwrap_or_default(), summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, separator: &str) -> Vec<String> {
        let column = LabelColumn { key: "tags".into(), separator: separator.into() };
        Tags::Joined(text).names(Some(&column)).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_string_is_split_as_it_was_joined() {
        assert_eq!(names("a|b c| a |", "|"), ["a", "b c"]);
        assert_eq!(names("|a|b|", "|"), ["a", "b"]);
        assert_eq!(names("<c#><.net-3.5>", "|"), ["c#", ".net-3.5"]);
        assert_eq!(names("a, b", ","), ["a", "b"]);
        assert_eq!(names("a|b", ""), ["a|b"]);
        assert_eq!(names(" ", "|"), [""; 0]);
        assert_eq!(names("<>", "|"), [""; 0]);
    }

    #[test]
    fn a_list_is_taken_as_it_is() {
        let column = LabelColumn { key: "tags".into(), separator: "|".into() };
        let tags = Tags::Listed(vec!["a|b", " c ", "", "c"]);
        assert_eq!(tags.names(Some(&column)), ["a|b", "c"]);
        assert!(tags.names(None).is_empty());
    }

    #[test]
    fn the_most_frequent_come_first() {
        let mut counts = LabelCounts::default();
        ["b", "c", "a", "b", "c", "d"].iter().for_each(|label| counts.add(label));
        assert_eq!(counts.most_frequent(3).unwrap().names(), ["b", "c", "a"]);
        assert_eq!(counts.most_frequent(9).unwrap().len(), 4);
    }

    #[test]
    fn a_public_list_has_a_name_a_line() {
        let known = KnownLabels::from_list("rust\t9\n\n c# \n", Path::new("lists/tags.txt")).unwrap();
        assert_eq!(known.labels.names(), ["rust", "c#"]);
        assert_eq!(known.origin, Origin::PublicList { name: "tags.txt".into() });
        assert!(KnownLabels::from_list("a\na\n", Path::new("tags.txt")).is_err());
    }
}
