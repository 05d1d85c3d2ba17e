//! The settings of a run for display: every value under its full name, without local paths.

use std::collections::BTreeMap;

use federated::config::PATHS;
use toml::{Table, Value};

/// Settings key by key, such as `privacy.delta`. Of a path only the last part is kept.
///
/// # Errors
/// When the text is not TOML.
pub fn flat(text: &str) -> Result<BTreeMap<String, String>, toml::de::Error> {
    let mut flat = BTreeMap::new();
    flatten("", &Value::Table(text.parse::<Table>()?), &mut flat);
    Ok(flat)
}

/// Settings as they are written, but with the last part of each path only.
#[must_use]
pub fn without_paths(text: &str) -> String {
    let Ok(table) = text.parse::<Table>() else { return String::new() };
    let all = Value::Table(table);
    let values = PATHS.iter().filter_map(|key| key.split('.').try_fold(&all, |value, part| value.get(part)));
    let paths = values.flat_map(|value| match value {
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        one => Vec::from_iter(one.as_str()),
    });
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    paths.fold(text.to_owned(), |text, path| text.replace(&quoted(path), &quoted(last_part(path))))
}

fn flatten(key: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    let shown = match value {
        Value::Table(table) => {
            for (inner, value) in table {
                let key = if key.is_empty() { inner.clone() } else { format!("{key}.{inner}") };
                flatten(&key, value, into);
            }
            return;
        }
        Value::String(text) if is_path(key, text) => last_part(text).to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(several) if several.iter().filter_map(Value::as_str).any(|text| is_path(key, text)) => {
            let short =
                |value: &Value| value.as_str().map_or(value.clone(), |text| Value::String(last_part(text).to_owned()));
            Value::Array(several.iter().map(short).collect()).to_string()
        }
        // As people write it: 1e-9, not 0.000000001.
        Value::Float(number) => format!("{number:?}"),
        other => other.to_string(),
    };
    into.insert(key.to_owned(), shown);
}

/// Also what looks like one, whatever its key.
fn is_path(key: &str, text: &str) -> bool {
    PATHS.contains(&key) || text.starts_with(['/', '~']) || text.contains(":\\")
}

fn last_part(path: &str) -> &str {
    path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relative path was shown in full: `../../ann/chats.store` names a person.
    #[test]
    fn settings_are_flat_and_without_paths() {
        let text = "rounds = 3\n[data]\nkind = \"store\"\npath = \"../../ann/chats/\"\npublic_text = \"C:\\\\ann\\\\public.txt\"\n\
                    [devices]\nafter = [\"ann/words\", \"/srv/ann/more/\"]\n\
                    [model]\nfrom = \"/data/ann/m\"\npublic = \"~ann/why.txt\"\n[privacy]\ndelta = 1e-9\n\
                    [[schedule]]\nfrom = 2\nclip_norm = 0.5\n";
        let expected = [
            ("data.kind", "store"),
            ("data.path", "chats"),
            ("data.public_text", "public.txt"),
            ("devices.after", "[\"words\", \"more\"]"),
            ("model.from", "m"),
            ("model.public", "why.txt"),
            ("privacy.delta", "1e-9"),
            ("rounds", "3"),
            ("schedule", "[{ clip_norm = 0.5, from = 2 }]"),
        ];
        let flat = flat(text).unwrap();
        assert_eq!(flat.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(), expected);
        assert!(!format!("{flat:?}").contains("ann"));
        assert!(super::flat("rounds = [").is_err());
        let written = without_paths(
            "[data]\npath = \"/data/ann/chats\"\n[model]\nfrom = \"../ann/m\"\nhidden = 3\n[devices]\nafter = [\"/ann/w\"]\n",
        );
        assert_eq!(
            written,
            "[data]\npath = \"chats\"\n[model]\nfrom = \"m\"\nhidden = 3\n[devices]\nafter = [\"w\"]\n"
        );
        assert_eq!(without_paths("rounds = ["), "", "what cannot be read is not shown");
    }
}
