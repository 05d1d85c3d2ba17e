//! Two fields of a JSON object, without building the rest of it.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::block::BadLineReason;

/// Who and what.
pub(super) struct Fields<'a> {
    pub(super) user: Cow<'a, str>,
    pub(super) text: Cow<'a, str>,
}

/// Reads the two fields of a line.
pub(super) fn fields<'a>(line: &'a [u8], user_key: &str, text_key: &str) -> Result<Fields<'a>, BadLineReason> {
    let line = std::str::from_utf8(line).map_err(|_| BadLineReason::NotUtf8)?;
    let mut json = serde_json::Deserializer::from_str(line);
    let found = Wanted { user_key, text_key }.deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    let (user, text) = found.map_err(|error| BadLineReason::NotJson { column: error.column() as u64 })?;
    let missing = |key: &str| BadLineReason::NoKey { key: key.to_owned() };
    Ok(Fields { user: user.ok_or_else(|| missing(user_key))?, text: text.ok_or_else(|| missing(text_key))? })
}

struct Wanted<'k> {
    user_key: &'k str,
    text_key: &'k str,
}

type Found<'a> = (Option<Cow<'a, str>>, Option<Cow<'a, str>>);

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
        let (mut user, mut text) = (None, None);
        while let Some(Key(key)) = map.next_key()? {
            if key == self.user_key {
                user = map.next_value_seed(Text { numbers: true })?;
            } else if key == self.text_key {
                text = map.next_value_seed(Text { numbers: false })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok((user, text))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, String), BadLineReason> {
        fields(line.as_bytes(), "u", "t").map(|found| (found.user.into_owned(), found.text.into_owned()))
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
        assert_eq!(fields(b"{\"u\":\"\xff\"}", "u", "t").err(), Some(BadLineReason::NotUtf8));
        let deep = "[".repeat(100_000);
        assert!(read(&format!(r#"{{"x":{deep}"#)).is_err());
    }
}
