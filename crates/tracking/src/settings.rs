//! Settings as parameters: every value under its whole name, without paths of this machine.

use toml::{Table, Value};

use crate::{TrackError, mlflow::Named};

/// Settings that are paths: only their last part is told.
const PATHS: [&str; 3] = ["data.path", "data.public_text", "model.from"];

/// The parameters that the settings of a run come to, in their order by name.
pub(crate) fn params(settings: &str) -> Result<Vec<Named>, TrackError> {
    let table: Table = toml::from_str(settings)?;
    let mut params = Vec::new();
    flatten("", &Value::Table(table), &mut params);
    Ok(params.into_iter().map(|(key, value)| Named::param(&key, &value)).collect())
}

fn flatten(name: &str, value: &Value, params: &mut Vec<(String, String)>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                let whole = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&whole, value, params);
            }
        }
        Value::String(text) if PATHS.contains(&name) => params.push((name.to_owned(), last_part(text))),
        Value::String(text) => params.push((name.to_owned(), text.clone())),
        // As people write it: 1e-9, not 0.000000001.
        Value::Float(number) => params.push((name.to_owned(), format!("{number:?}"))),
        other => params.push((name.to_owned(), other.to_string())),
    }
}

fn last_part(path: &str) -> String {
    std::path::Path::new(path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_parameters_without_paths() {
        let text = "rounds = 3\n[data]\nkind = \"store\"\npath = \"/somewhere/of/mine/secret/store\"\n[model]\nfrom = \"/somewhere/of/mine/m\"\n\
                    [privacy]\ndelta = 1e-9\n[[schedule]]\nfrom = 2\nclip_norm = 0.5\n";
        let expected = [
            ("data.kind", "store"),
            ("data.path", "store"),
            ("model.from", "m"),
            ("privacy.delta", "1e-9"),
            ("rounds", "3"),
            ("schedule", "[{ clip_norm = 0.5, from = 2 }]"),
        ];
        let params = params(text).unwrap();
        assert_eq!(params, expected.map(|(key, value)| Named::param(key, value)));
        assert!(!format!("{params:?}").contains("ann"));
    }
}
