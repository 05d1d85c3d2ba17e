//! Reads selected fields of a JSON object without building the rest of it.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::{Columns, block::BadLineReason, labels::Tags};

/// Who and what, and what is known of both.
pub(super) struct Fields<'a> {
    pub(super) user: Cow<'a, str>,
    pub(super) text: Cow<'a, str>,
    pub(super) labels: Tags<Cow<'a, str>>,
    pub(super) features: Vec<f32>,
}

/// Reads the fields of a line.
pub(super) fn fields<'a>(line: &'a [u8], columns: &Columns) -> Result<Fields<'a>, BadLineReason> {
    let line = std::str::from_utf8(line).map_err(|_| BadLineReason::NotUtf8)?;
    let mut json = serde_json::Deserializer::from_str(line);
    let found = Wanted(columns).deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    found.map_err(|error| BadLineReason::NotJson { column: error.column() as u64 })?.complete(columns)
}

/// The columns to look for.
struct Wanted<'k>(&'k Columns);

/// What was found of them.
struct Found<'a> {
    user: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    /// Nothing if they are neither a list nor a string; a post without any has an empty list.
    labels: Option<Tags<Cow<'a, str>>>,
    features: Vec<Option<f32>>,
}

impl<'a> Found<'a> {
    fn complete(self, columns: &Columns) -> Result<Fields<'a>, BadLineReason> {
        let missing = |key: &str| BadLineReason::NoKey { key: key.to_owned() };
        let user = self.user.ok_or_else(|| missing(columns.user()))?;
        let text = self.text.ok_or_else(|| missing(columns.text()))?;
        let key = || columns.labels.as_ref().map(|column| column.key.clone()).unwrap_or_default();
        let labels = self.labels.ok_or_else(|| BadLineReason::NotLabels { key: key() })?;
        let numbers = self.features.into_iter().zip(&columns.features);
        let features = numbers.map(|(number, key)| number.ok_or_else(|| BadLineReason::NoNumber { key: key.clone() }));
        Ok(Fields { user, text, labels, features: features.collect::<Result<_, _>>()? })
    }
}

impl<'a> DeserializeSeed<'a> for Wanted<'_> {
    type Value = Found<'a>;

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Wanted<'_> {
    type Value = Found<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let columns = self.0;
        let features = vec![None; columns.features.len()];
        let mut found = Found { user: None, text: None, labels: Some(Tags::default()), features };
        while let Some(Key(key)) = map.next_key()? {
            if key == columns.user() {
                found.user = map.next_value_seed(Text { numbers: true })?;
            } else if key == columns.text() {
                found.text = map.next_value_seed(Text { numbers: false })?;
            } else if columns.labels.as_ref().is_some_and(|column| column.key == key) {
                found.labels = labels(map.next_value()?);
            } else if let Some(at) = columns.features.iter().position(|name| *name == key) {
                found.features[at] = number(&map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'a> serde::Deserialize<'a> for Key<'a> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        Text { numbers: false }.deserialize(from).map(|key| Self(key.unwrap_or_default()))
    }
}

/// A string, borrowed where it has no escapes; a user may also be a whole number. Anything else is nothing.
struct Text {
    numbers: bool,
}

impl<'a> DeserializeSeed<'a> for Text {
    type Value = Option<Cow<'a, str>>;

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Text {
    type Value = Option<Cow<'a, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.numbers.then(|| Cow::Owned(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.numbers.then(|| Cow::Owned(number.to_string())))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: serde::de::SeqAccess<'a>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// Labels as a list of strings or as one string; null is a list of none, and anything else nothing.
fn labels<'a>(value: Value) -> Option<Tags<Cow<'a, str>>> {
    let text = |value| match value {
        Value::String(text) => Some(Cow::Owned(text)),
        _ => None,
    };
    match value {
        Value::Null => Some(Tags::default()),
        Value::Array(list) => list.into_iter().map(text).collect::<Option<_>>().map(Tags::Listed),
        value => text(value).map(Tags::Joined),
    }
}

/// A number that is finite in 32 bits.
fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|number| number as f32).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{super::LabelColumn, *};

    fn read(line: &str) -> Result<(String, String), BadLineReason> {
        fields(line.as_bytes(), &Columns::new("u", "t")).map(|found| (found.user.into_owned(), found.text.into_owned()))
    }

    #[test]
    fn two_fields_are_found_among_others() {
        let line = r#"{"x":{"u":[1,{}]},"t":"a\nb \ud83d\udc4d","u":"ann","y":[null,true]}"#;
        assert_eq!(read(line).unwrap(), ("ann".into(), "a\nb 👍".into()));
        assert_eq!(read(r#"{"u":17,"t":""}"#).unwrap(), ("17".into(), String::new()));
    }

    #[test]
    fn bad_lines_say_why() {
        let no = |key: &str| BadLineReason::NoKey { key: key.into() };
        assert_eq!(read(r#"{"u":"ann"}"#), Err(no("t")));
        assert_eq!(read(r#"{"u":null,"t":"a"}"#), Err(no("u")));
        assert_eq!(read(r#"{"u":"ann","t":["a"]}"#), Err(no("t")));
        assert_eq!(read(r#"{"u":"ann","t":7}"#), Err(no("t")));
        for line in ["", "[]", "{", "17", r#"{"u":"a","t":"b"} x"#, r#"{"u":"a","t":"\ud83d"}"#] {
            assert!(matches!(read(line), Err(BadLineReason::NotJson { .. })), "{line}");
        }
        assert_eq!(fields(b"{\"u\":\"\xff\"}", &Columns::new("u", "t")).err(), Some(BadLineReason::NotUtf8));
        let deep = "[".repeat(100_000);
        assert!(read(&format!(r#"{{"x":{deep}"#)).is_err());
    }

    #[test]
    fn labels_and_numbers_are_read_where_they_are_wanted() {
        let column = LabelColumn { key: "l".into(), separator: "|".into() };
        let features = vec!["a".to_owned(), "b".to_owned()];
        let columns = Columns { labels: Some(column.clone()), features, ..Columns::new("u", "t") };
        let read = |rest: &str| {
            let line = format!(r#"{{"u":"ann","t":"x",{rest}}}"#);
            let found = fields(line.as_bytes(), &columns)?;
            let names = found.labels.names(Some(&column)).into_iter().map(str::to_owned).collect::<Vec<_>>();
            Ok((names.join(" "), found.features))
        };
        let ok = |names: &str, features: [f32; 2]| Ok((names.to_owned(), features.to_vec()));
        assert_eq!(read(r#""l":["p","q|r"],"b":-2,"a":0.5"#), ok("p q|r", [0.5, -2.0]));
        assert_eq!(read(r#""l":"p|q","a":1e3,"b":0"#), ok("p q", [1000.0, 0.0]));
        assert_eq!(read(r#""l":null,"a":1,"b":1"#), ok("", [1.0, 1.0]));
        assert_eq!(read(r#""a":1,"b":1"#), ok("", [1.0, 1.0]));
        let no = |key: &str| Err(BadLineReason::NoNumber { key: key.into() });
        assert_eq!(read(r#""a":1"#), no("b"));
        assert_eq!(read(r#""a":"1","b":1"#), no("a"));
        assert_eq!(read(r#""a":1,"b":1e300"#), no("b"));
        for labels in ["7", "[1]", "{}", "[[]]"] {
            let bad = read(&format!(r#""l":{labels},"a":1,"b":1"#));
            assert_eq!(bad, Err(BadLineReason::NotLabels { key: "l".into() }), "{labels}");
        }
    }
}
