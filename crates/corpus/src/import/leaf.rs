//! The JSON files of the LEAF benchmark (Caldas et al. 2018, arXiv:1812.01097).
//!
//! A file is one object; `user_data` maps each user to samples `x` and labels `y`. A sample may be a string (a post) or a
//! list of words, also nested (Reddit), in which `<BOS>`, `<EOS>` and `<PAD>` are left out. Shakespeare's samples are
//! windows that advance by one character; they are put together again. One user is in memory at a time.

use std::{fmt, io::Read};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Takes a user and a post; returns whether to continue.
pub(super) type Emit<'e> = dyn FnMut(&str, &str) -> bool + 'e;

/// What is said when the one who takes the posts has had enough.
pub(super) const STOPPED: &str = "stopped";

/// Hands every post of the file on.
pub(super) fn read(from: impl Read, emit: &mut Emit<'_>) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_reader(from);
    let found = File(emit).deserialize(&mut json)?;
    json.end()?;
    if found { Ok(()) } else { Err(serde::de::Error::custom("no object \"user_data\"")) }
}

struct File<'f, 'e>(&'f mut Emit<'e>);

impl<'a> DeserializeSeed<'a> for File<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for File<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"user_data\"")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "user_data" {
                found = true;
                map.next_value_seed(Users(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

struct Users<'f, 'e>(&'f mut Emit<'e>);

impl<'a> DeserializeSeed<'a> for Users<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Users<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of users")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((user, data)) = map.next_entry::<String, Value>()? {
            for post in posts(&data) {
                if !(self.0)(&user, &post) {
                    return Err(serde::de::Error::custom(STOPPED));
                }
            }
        }
        Ok(())
    }
}

fn posts(data: &Value) -> Vec<String> {
    let samples = data.get("x").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let labels = data.get("y").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut posts: Vec<String> = Vec::new();
    let mut window: Option<&str> = None;
    for (i, sample) in samples.iter().enumerate() {
        let label = labels.get(i).and_then(Value::as_str).filter(|label| label.chars().count() == 1);
        match (sample.as_str(), label) {
            (Some(text), Some(label)) => {
                match posts.last_mut().filter(|_| window.is_some_and(|before| advances(before, text))) {
                    Some(post) => post.push_str(label),
                    None => posts.push(format!("{text}{label}")),
                }
                window = Some(text);
            }
            (Some(text), None) => posts.push(text.to_owned()),
            (None, _) => posts.extend(sentence(sample)),
        }
    }
    posts
}

/// Whether a window is the one before, one character on.
fn advances(before: &str, text: &str) -> bool {
    let (mut tail, mut head) = (before.chars(), text.chars());
    tail.next();
    head.next_back();
    tail.as_str() == head.as_str()
}

fn sentence(sample: &Value) -> Option<String> {
    let mut words = Vec::new();
    collect(sample, &mut words);
    (!words.is_empty()).then(|| words.join(" "))
}

fn collect<'a>(value: &'a Value, words: &mut Vec<&'a str>) {
    match value {
        Value::String(word) if matches!(word.as_str(), "<BOS>" | "<EOS>" | "<PAD>") => {}
        Value::String(word) => words.push(word),
        Value::Array(values) => values.iter().for_each(|value| collect(value, words)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<(String, String)>, String> {
        let mut found = Vec::new();
        let mut emit = |user: &str, post: &str| {
            found.push((user.to_owned(), post.to_owned()));
            true
        };
        read(text.as_bytes(), &mut emit).map_err(|error| error.to_string())?;
        Ok(found)
    }

    #[test]
    fn strings_words_and_windows() {
        let text = r#"{"users":["a"],"num_samples":[2],"user_data":{
            "a":{"x":["hello there","again"],"y":[0,1]},
            "b":{"x":[[["<BOS>","hi","you"],["<EOS>","<PAD>"]]],"y":[[]]},
            "c":{"x":["abc","bcd","xyz"],"y":["d","e","!"]}}}"#;
        let found = all(text).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, [("a", "hello there"), ("a", "again"), ("b", "hi you"), ("c", "abcde"), ("c", "xyz!")]);
    }

    #[test]
    fn other_json_is_refused() {
        for text in ["[]", "{}", r#"{"user_data":7}"#, r#"{"user_data":{"a":{"x":["#, ""] {
            assert!(all(text).is_err(), "{text}");
        }
    }
}
