//! Reads settings from TOML, strictly. Errors name the key, the allowed values, and the nearest match.

use std::fmt;

use serde::{
    Deserializer,
    de::{self, DeserializeOwned, Expected, IntoDeserializer, Unexpected, Visitor, value::SeqDeserializer},
    forward_to_deserialize_any,
};
use toml_edit::{Item, TableLike, Value};

use super::{
    ConfigError,
    keys::{ByKind, Head, Key, Leaf, Listing, Section, Usual, Visit},
    nearest::{did_you_mean, listed, one_of},
};

/// Reads a section of a document.
///
/// # Errors
/// The first key that is unknown; or else the first that is missing or has an invalid value.
pub(super) fn read<S: Section>(path: &str, table: &dyn TableLike, mut section: S) -> Result<S, ConfigError> {
    let mut reader =
        Reader { path, table, asked: Vec::new(), problems: Vec::new(), elsewhere: Vec::new(), choice: None };
    section.keys(&mut reader);
    reader.end().map(|()| section)
}

/// Which kind of a section was chosen, and what the others have.
struct Choice {
    /// The key that decides it.
    key: &'static str,
    /// Its value; none if it is missing or invalid.
    kind: Option<&'static str>,
    /// The kinds, each with its keys.
    kinds: Vec<(&'static str, Vec<String>)>,
}

struct Reader<'a> {
    /// The path of the section, with a dot at the end; empty at the top.
    path: &'a str,
    table: &'a dyn TableLike,
    /// The keys of this section.
    asked: Vec<&'static str>,
    /// Keys that exist with other settings, and with which.
    elsewhere: Vec<(&'static str, String)>,
    /// In the order of the keys.
    problems: Vec<ConfigError>,
    choice: Option<Choice>,
}

impl<'a> Reader<'a> {
    fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    fn refuse(&mut self, name: &str, problem: impl fmt::Display) {
        self.problems.push(ConfigError::new(self.path_of(name), problem));
    }

    /// The item of a key.
    fn said(&mut self, name: &'static str) -> Option<&'a Item> {
        self.asked.push(name);
        self.table.get(name)
    }

    /// The value of a key.
    fn value<T: Leaf>(&mut self, name: &'static str) -> Option<T> {
        match leaf(self.said(name)?) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.refuse(name, problem);
                None
            }
        }
    }

    /// Unknown keys are reported first: they explain why another is missing. Keys of another kind are reported last, because the kind may be
    /// what is wrong.
    fn end(mut self) -> Result<(), ConfigError> {
        let wrong = |(name, problem): (&str, String)| Err(ConfigError::new(self.path_of(name), problem));
        let unasked: Vec<(&str, &Item)> = self.table.iter().filter(|(name, _)| !self.asked.contains(name)).collect();
        let (elsewhere, nowhere): (Vec<_>, Vec<_>) =
            unasked.into_iter().partition(|(name, _)| self.elsewhere(name).is_some());
        if let Some((name, item)) = nowhere.first() {
            return wrong((name, self.no_such(name, item)));
        }
        let misplaced = elsewhere.into_iter().find(|(_, item)| !says_nothing(item));
        match (self.problems.is_empty(), misplaced) {
            (false, _) => Err(self.problems.remove(0)),
            (true, Some((name, _))) => wrong((name, self.only_with(&self.elsewhere(name).unwrap_or_default()))),
            (true, None) => Ok(()),
        }
    }

    /// The settings with which a key exists that does not exist here.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let said = self.elsewhere.iter().find(|(other, _)| *other == name).map(|(_, with)| with.clone());
        said.or_else(|| self.with_other_kinds(name))
    }

    /// The kinds that have such a key.
    fn with_other_kinds(&self, name: &str) -> Option<String> {
        let Choice { key, kinds, .. } = self.choice.as_ref()?;
        let having = kinds.iter().filter(|(_, keys)| keys.iter().any(|key| key == name));
        let having: Vec<String> = having.map(|(kind, _)| format!("{kind:?}")).collect();
        (!having.is_empty()).then(|| format!("{key} = {}", one_of(&having)))
    }

    fn only_with(&self, with: &str) -> String {
        match self.allowed() {
            Some(allowed) => format!("only valid with {with}; {allowed}"),
            None => format!("only valid with {with}"),
        }
    }

    fn no_such(&self, name: &str, item: &Item) -> String {
        let what = if item.is_value() { "key" } else { "section" };
        let here: Vec<&str> = self.known_here();
        let meant = did_you_mean(name, &here).or_else(|| meant_elsewhere(name)).unwrap_or_default();
        let allowed = self.allowed().unwrap_or_else(|| format!("valid keys: {}", listed(&self.asked)));
        format!("there is no such {what}{meant}; {allowed}")
    }

    /// The keys here, of this kind or of another.
    fn known_here(&self) -> Vec<&str> {
        let of_kinds = self.choice.iter().flat_map(|choice| &choice.kinds).flat_map(|(_, keys)| keys);
        let elsewhere = self.elsewhere.iter().map(|(name, _)| *name);
        self.asked.iter().copied().chain(of_kinds.map(String::as_str)).chain(elsewhere).collect()
    }

    /// The keys of the chosen kind.
    fn allowed(&self) -> Option<String> {
        let Choice { key, kind, .. } = self.choice.as_ref().filter(|_| !self.path.is_empty())?;
        let idle = |name: &str| self.elsewhere.iter().any(|(other, _)| *other == name);
        let others: Vec<&str> = self.asked.iter().copied().filter(|asked| asked != key && !idle(asked)).collect();
        let kind = (*kind)?;
        Some(match others[..] {
            [] => format!("{key} = {kind:?} has no other keys"),
            _ => format!("valid keys with {key} = {kind:?}: {}", listed(&others)),
        })
    }
}

/// A question about a key or a section of this very name elsewhere.
pub(super) fn meant_elsewhere(name: &str) -> Option<String> {
    let all = Listing::all::<super::Config>();
    let found: Vec<String> = all.into_iter().filter(|path| path.rsplit('.').next() == Some(name)).collect();
    (!found.is_empty()).then(|| format!(" (did you mean {}?)", one_of(&found)))
}

/// Whether a value means the same as no value.
fn says_nothing(item: &Item) -> bool {
    item.as_bool() == Some(false) || item.as_array().is_some_and(toml_edit::Array::is_empty)
}

impl Visit for Reader<'_> {
    fn says(&self, name: &str) -> bool {
        self.table.get(name).is_some()
    }

    fn need<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T) {
        if !self.says(key.name) {
            self.asked.push(key.name);
            self.refuse(key.name, format!("is missing: {}", key.reason()));
        } else if let Some(value) = self.value(key.name) {
            *to = value;
        }
    }

    fn may<T: Leaf>(&mut self, key: &Key<'_>, to: &mut Option<T>) {
        *to = self.value(key.name);
    }

    fn or<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T) {
        *to = self.value(key.name).unwrap_or(usual);
    }

    fn rare<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T) {
        self.or(key, to, usual);
    }

    fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, usual: Usual) {
        let names = S::kinds();
        let with_keys = names.iter().map(|kind| {
            let mut other = to.clone();
            other.turn(kind);
            (*kind, Listing::of(&other))
        });
        let kinds = with_keys.collect();
        let said = self.said(key.name);
        let kind = match (said.map(Item::as_str), usual.kind()) {
            (None, Some(usual)) => names.iter().find(|kind| **kind == usual),
            (None, None) => {
                let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                self.refuse(key.name, format!("is missing: {}", one_of(&quoted)));
                None
            }
            (Some(Some(said)), _) => {
                let found = names.iter().find(|kind| **kind == said);
                if found.is_none() {
                    self.refuse(key.name, no_such_value(said, &names));
                }
                found
            }
            (Some(None), _) => {
                let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                self.refuse(key.name, format!("must be {}, as text in quotes", one_of(&quoted)));
                None
            }
        };
        if let Some(kind) = kind {
            to.turn(kind);
        }
        self.choice = Some(Choice { key: key.name, kind: kind.copied(), kinds });
    }

    fn idle<T: Leaf>(&mut self, key: &Key<'_>, only: T, with: &str) {
        if self.value::<T>(key.name).is_some_and(|said| said != only) {
            self.refuse(key.name, format!("only valid with {with}"));
        }
        self.elsewhere.push((key.name, with.to_owned()));
    }

    fn unavailable(&mut self, key: &Key<'_>, with: &str) {
        self.elsewhere.push((key.name, with.to_owned()));
    }

    fn section<S: Section>(&mut self, head: &Head, to: &mut S, needed: bool) {
        match self.said(head.name) {
            None if needed => {
                let why = format!(
                    "the section is missing: write [{}], and its keys below it, as in the output of `keyhush init`",
                    head.name
                );
                self.refuse(head.name, why);
            }
            None => {}
            Some(item) => match table(item) {
                None => self.refuse(head.name, not_a_section(head.name, item)),
                Some(table) => match read(&self.path_of(&format!("{}.", head.name)), table, to.clone()) {
                    Ok(section) => *to = section,
                    Err(error) => self.problems.push(error),
                },
            },
        }
    }

    fn maybe<S: Section>(&mut self, head: &Head, to: Option<&mut Option<S>>, with: &str) {
        let Some(to) = to else { return self.elsewhere.push((head.name, with.to_owned())) };
        if self.says(head.name) {
            let mut section = S::unsaid();
            self.section(head, &mut section, false);
            *to = Some(section);
        } else {
            self.asked.push(head.name);
        }
    }

    fn tables<S: Section>(&mut self, head: &Head, to: &mut Vec<S>) {
        let Some(item) = self.said(head.name) else { return };
        let tables: Option<Vec<&dyn TableLike>> = match item {
            Item::ArrayOfTables(tables) => Some(tables.iter().map(|table| table as &dyn TableLike).collect()),
            Item::Value(Value::Array(array)) => array.iter().map(inline).collect(),
            _ => None,
        };
        let Some(tables) = tables else {
            return self.refuse(head.name, format!("must be written as [[{}]], each with its own keys", head.name));
        };
        for (number, table) in tables.into_iter().enumerate() {
            match read(&self.path_of(&format!("{}.{number}.", head.name)), table, S::unsaid()) {
                Ok(section) => to.push(section),
                Err(error) => self.problems.push(error),
            }
        }
    }
}

fn table(item: &Item) -> Option<&dyn TableLike> {
    item.as_table_like()
}

fn inline(value: &Value) -> Option<&dyn TableLike> {
    value.as_inline_table().map(|table| table as &dyn TableLike)
}

fn not_a_section(name: &str, item: &Item) -> String {
    match item {
        Item::ArrayOfTables(_) => format!("must be a single section: write [{name}] once"),
        _ => format!("must be a section: write [{name}] and its keys below it"),
    }
}

fn no_such_value(said: &str, names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let meant = did_you_mean(said, names).unwrap_or_default();
    format!("must be {}, got {said:?}{meant}", one_of(&quoted))
}

/// Reads a value, or says what it must be.
pub(super) fn leaf<T: DeserializeOwned>(item: &Item) -> Result<T, String> {
    let Some(value) = item.as_value() else { return Err("must be a value, not a section".to_owned()) };
    if value.as_str().is_some_and(|text| text.trim().is_empty()) {
        return Err("is empty: give it a value, or leave it out".to_owned());
    }
    T::deserialize(Said(value)).map_err(|Refusal(problem)| problem)
}

/// Why a value is not valid.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self(problem.to_string())
    }

    fn invalid_type(got: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self(format!("must be {}, got {}", in_words(&wanted.to_string()), shown(got)))
    }

    fn invalid_value(got: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(got, wanted)
    }

    fn unknown_variant(said: &str, names: &'static [&'static str]) -> Self {
        Self(no_such_value(said, names))
    }
}

/// serde's name of a type, in words.
fn in_words(wanted: &str) -> &str {
    match wanted {
        "u64" | "usize" => "a whole number, 0 or more",
        "u32" => "a whole number from 0 to 4294967295",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" => "text in quotes",
        "a sequence" => "a list, such as [10, 20]",
        other => other,
    }
}

fn shown(got: Unexpected<'_>) -> String {
    match got {
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Bool(said) => said.to_string(),
        Unexpected::Seq => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// A value of a document.
struct Said<'de>(&'de Value);

impl<'de> IntoDeserializer<'de, Refusal> for Said<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Said<'de> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::String(text) => visitor.visit_str(text.value()),
            Value::Integer(number) => visitor.visit_i64(*number.value()),
            Value::Float(number) => visitor.visit_f64(*number.value()),
            Value::Boolean(said) => visitor.visit_bool(*said.value()),
            Value::Array(all) => visitor.visit_seq(SeqDeserializer::new(all.iter().map(Said))),
            Value::Datetime(_) => Err(de::Error::invalid_type(Unexpected::Other("a date"), &visitor)),
            Value::InlineTable(_) => Err(de::Error::invalid_type(Unexpected::Other("a table"), &visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.0.as_str() {
            Some(said) if names.contains(&said) => visitor.visit_enum(said.into_deserializer()),
            Some(said) => Err(de::Error::unknown_variant(said, names)),
            None => Err(Refusal(no_such_value(self.0.to_string().trim(), names))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
