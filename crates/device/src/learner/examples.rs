//! A user's data as a learner sees it: examples in columns, and features of the user.
//!
//! The columns are concrete ([`Kind`]), so nothing that carries examples from a store to a learner is generic, and a learner
//! that reads images needs no other loop than one that reads text. A [`Schema`] says which columns a learner's examples have.

/// The kind of value that examples have in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A single id.
    Id,
    /// Any number of ids.
    Ids,
    /// A fixed number of floats.
    Numbers(usize),
}

/// The columns of a learner's examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Their columns, by name.
    pub columns: Vec<(&'static str, Kind)>,
    /// How many numbers are known of the person: a model's `user_context`.
    pub features: usize,
}

/// The value of one example in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A value of kind [`Kind::Id`].
    Id(u32),
    /// A value of kind [`Kind::Ids`].
    Ids(&'a [u32]),
    /// A value of kind [`Kind::Numbers`].
    Numbers(&'a [f32]),
}

/// A column of examples.
#[derive(Debug, Clone, PartialEq)]
enum Column {
    Id(Vec<u32>),
    Ids { ids: Vec<u32>, ends: Vec<usize> },
    Numbers { width: usize, values: Vec<f32> },
}

impl Column {
    const fn new(kind: Kind) -> Self {
        match kind {
            Kind::Id => Self::Id(Vec::new()),
            Kind::Ids => Self::Ids { ids: Vec::new(), ends: Vec::new() },
            Kind::Numbers(width) => Self::Numbers { width, values: Vec::new() },
        }
    }

    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Id(ids), Value::Id(id)) => ids.push(id),
            (Self::Ids { ids, ends }, Value::Ids(more)) => {
                ids.extend_from_slice(more);
                ends.push(ids.len());
            }
            (Self::Numbers { width, values }, Value::Numbers(more)) if more.len() == *width => {
                values.extend_from_slice(more);
            }
            _ => panic!("an example does not have the columns of its schema"),
        }
    }

    fn extend_from(&mut self, other: &Self, range: std::ops::Range<usize>) {
        match (self, other) {
            (Self::Id(own), Self::Id(other)) => own.extend_from_slice(&other[range]),
            (Self::Ids { ids: own, ends: own_ends }, Self::Ids { ids, ends }) => {
                let mut start = if range.start == 0 { 0 } else { ends[range.start - 1] };
                for end in &ends[range] {
                    own.extend_from_slice(&ids[start..*end]);
                    own_ends.push(own.len());
                    start = *end;
                }
            }
            (Self::Numbers { width: own_width, values: own }, Self::Numbers { width, values })
                if own_width == width =>
            {
                own.extend_from_slice(&values[range.start * *width..range.end * *width]);
            }
            _ => panic!("these examples have other columns"),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Id(ids) => ids.truncate(len),
            Self::Ids { ids, ends } => {
                ends.truncate(len);
                ids.truncate(ends.last().copied().unwrap_or(0));
            }
            Self::Numbers { width, values } => values.truncate(len.saturating_mul(*width)),
        }
    }
}

/// A user's examples in order, and the user's features.
#[derive(Debug, Clone, PartialEq)]
pub struct Examples {
    columns: Vec<Column>,
    len: usize,
    features: Vec<f32>,
}

impl Examples {
    /// None yet, of somebody of whom nothing is known: every feature is 0.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let columns = schema.columns.iter().map(|(_, kind)| Column::new(*kind)).collect();
        Self { columns, len: 0, features: vec![0.0; schema.features] }
    }

    /// Adds an example: a value for each column.
    ///
    /// # Panics
    /// When the values are not those of the schema.
    pub fn push(&mut self, values: &[Value<'_>]) {
        assert_eq!(values.len(), self.columns.len(), "an example does not have the columns of its schema");
        self.columns.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
        self.len += 1;
    }

    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all after so many (McMahan et al. 2018: 1,600 tokens per user).
    pub fn truncate(&mut self, len: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(len));
        self.len = self.len.min(len);
    }

    /// Adds some of another's examples, which have the same columns.
    ///
    /// # Panics
    /// When the columns are others, or there are not as many examples.
    pub fn extend_from(&mut self, other: &Self, range: std::ops::Range<usize>) {
        assert_eq!(self.columns.len(), other.columns.len(), "these examples have other columns");
        self.len += range.len();
        for (own, other) in self.columns.iter_mut().zip(&other.columns) {
            own.extend_from(other, range.clone());
        }
    }

    /// Forgets all, and what is known of the person; keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.features.fill(0.0);
    }

    /// The ids of a column of [`Kind::Id`], one an example.
    ///
    /// # Panics
    /// When the column is of another kind.
    #[must_use]
    pub fn ids(&self, column: usize) -> &[u32] {
        match &self.columns[column] {
            Column::Id(ids) => ids,
            _ => panic!("column {column} does not have one id an example"),
        }
    }

    /// The ids that one example has in a column of [`Kind::Ids`].
    ///
    /// # Panics
    /// When the column is of another kind, or there is no such example.
    #[must_use]
    pub fn ids_of(&self, column: usize, example: usize) -> &[u32] {
        match &self.columns[column] {
            Column::Ids { ids, ends } => &ids[if example == 0 { 0 } else { ends[example - 1] }..ends[example]],
            _ => panic!("column {column} does not have lists of ids"),
        }
    }

    /// The user's features.
    #[must_use]
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// Takes down what is known of the person: as many numbers as the schema has; what is more is not looked at, what is
    /// missing is 0.
    pub fn set_features(&mut self, known: &[f32]) {
        self.features.fill(0.0);
        self.features.iter_mut().zip(known).for_each(|(feature, known)| *feature = *known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema { columns: vec![("a", Kind::Id), ("b", Kind::Ids), ("c", Kind::Numbers(2))], features: 2 }
    }

    fn examples() -> Examples {
        let mut examples = Examples::new(&schema());
        for (id, list) in [(7, &[1, 2, 3][..]), (8, &[]), (9, &[4])] {
            examples.push(&[Value::Id(id), Value::Ids(list), Value::Numbers(&[id as f32, 0.5])]);
        }
        examples
    }

    #[test]
    fn what_was_added_is_there_by_column_and_example() {
        let examples = examples();
        assert_eq!((examples.len(), examples.ids(0)), (3, &[7, 8, 9][..]));
        assert_eq!([0, 1, 2].map(|e| examples.ids_of(1, e)), [&[1, 2, 3][..], &[], &[4]]);
        assert!(matches!(&examples.columns[2], Column::Numbers { width: 2, values } if values[4..] == [9.0, 0.5]));
    }

    #[test]
    fn all_columns_are_cut_together() {
        let mut cut = examples();
        cut.truncate(9);
        assert_eq!(cut, examples());
        cut.truncate(2);
        assert_eq!((cut.len(), cut.ids(0), cut.ids_of(1, 1)), (2, &[7, 8][..], &[][..]));
        cut.push(&[Value::Id(9), Value::Ids(&[4]), Value::Numbers(&[9.0, 0.5])]);
        assert_eq!(cut, examples());
        cut.set_features(&[1.0]);
        cut.clear();
        assert_eq!(cut, Examples::new(&schema()));
    }

    #[test]
    fn examples_of_others_are_added_by_column() {
        let mut some = Examples::new(&schema());
        some.extend_from(&examples(), 1..3);
        some.extend_from(&examples(), 0..1);
        some.extend_from(&examples(), 2..2);
        assert_eq!((some.len(), some.ids(0)), (3, &[8, 9, 7][..]));
        assert_eq!([0, 1, 2].map(|e| some.ids_of(1, e)), [&[][..], &[4], &[1, 2, 3]]);
        assert!(
            matches!(&some.columns[2], Column::Numbers { values, .. } if *values == [8.0, 0.5, 9.0, 0.5, 7.0, 0.5])
        );
    }

    #[test]
    fn features_are_as_many_as_the_schema_has() {
        let mut examples = examples();
        assert_eq!(examples.features(), [0.0, 0.0]);
        for (known, want) in [(&[1.0][..], [1.0, 0.0]), (&[2.0, 3.0, 4.0], [2.0, 3.0]), (&[], [0.0, 0.0])] {
            examples.set_features(known);
            assert_eq!(examples.features(), want);
        }
    }

    #[test]
    #[should_panic(expected = "columns of its schema")]
    fn an_example_of_another_schema_is_refused() {
        examples().push(&[Value::Id(1), Value::Ids(&[]), Value::Numbers(&[1.0])]);
    }
}
