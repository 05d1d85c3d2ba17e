//! The text of a configuration: read strictly, changed by `--set`, and asked for the line of a key.

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::{Config, ConfigError};

/// A text, and what was set beside it.
#[derive(Debug, Clone)]
pub struct Document {
    /// As it was written.
    text: String,
    /// With what was set.
    changed: String,
}

impl Document {
    /// A text and `key=value` pairs, with dots between section and key; a value is TOML, or else a string.
    ///
    /// # Errors
    /// When the text is not TOML, or a pair is not of this form.
    pub fn new(text: &str, set: &[String]) -> Result<Self, ConfigError> {
        let mut document: DocumentMut = text.parse().map_err(|e| of_toml(&e, text))?;
        set.iter().try_for_each(|pair| apply(&mut document, pair))?;
        let changed = if set.is_empty() { text.to_owned() } else { document.to_string() };
        Ok(Self { text: text.to_owned(), changed })
    }

    /// The configuration.
    ///
    /// # Errors
    /// The first key that is unknown, missing or not of its kind, with its line.
    pub fn config(&self) -> Result<Config, ConfigError> {
        toml::from_str(&self.changed).map_err(|error| {
            let line = error.span().map(|span| line_at(&self.changed, span.start));
            let problem = error.message().to_owned();
            ConfigError { key: String::new(), line: line.and_then(|line| self.original_line(line)), problem }
        })
    }

    /// The same error, with the line of its key.
    #[must_use]
    pub fn locate(&self, error: ConfigError) -> ConfigError {
        let line = error.line.or_else(|| self.line_of(&error.key));
        ConfigError { line, ..error }
    }

    /// The line of a key, or of its section where the key is not there.
    fn line_of(&self, key: &str) -> Option<usize> {
        let document = toml_edit::Document::parse(self.text.as_str()).ok()?;
        let mut table: &dyn TableLike = document.as_table();
        let mut line = None;
        for part in key.split('.') {
            let Some((found, item)) = table.get_key_value(part) else { break };
            let span = found.span().or_else(|| item.span());
            line = span.map(|span| line_at(&self.text, span.start)).or(line);
            match item {
                Item::ArrayOfTables(tables) => {
                    // `schedule.1.from` names a table of the array.
                    let number = key.split('.').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
                    let named = tables.get(number)?;
                    let span = key.split('.').nth(2).and_then(|k| named.key(k)).and_then(|k| k.span()).or(named.span());
                    return span.map(|span| line_at(&self.text, span.start));
                }
                _ => match item.as_table_like() {
                    Some(inner) => table = inner,
                    None => break,
                },
            }
        }
        line
    }

    /// Where a line of the changed text stands in the original one; nowhere if it was set.
    fn original_line(&self, line: usize) -> Option<usize> {
        let wanted = self.changed.lines().nth(line - 1)?;
        if self.text.lines().nth(line - 1) == Some(wanted) {
            return Some(line);
        }
        self.text.lines().position(|l| l == wanted).map(|place| place + 1)
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

fn of_toml(error: &toml_edit::TomlError, text: &str) -> ConfigError {
    let line = error.span().map(|span| line_at(text, span.start));
    ConfigError { key: String::new(), line, problem: error.message().to_owned() }
}

/// Sets one key.
fn apply(document: &mut DocumentMut, pair: &str) -> Result<(), ConfigError> {
    let wrong = |problem: &str| ConfigError::new("", format!("--set {pair}: {problem}"));
    let (path, value) = pair.split_once('=').ok_or_else(|| wrong("must be key=value"))?;
    let path: Vec<&str> = path.trim().split('.').map(str::trim).collect();
    let Some((key, sections)) = path.split_last().filter(|(key, _)| !key.is_empty()) else {
        return Err(wrong("the key is missing"));
    };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for section in sections {
        let item = table.entry(section).or_insert_with(toml_edit::table);
        table = item.as_table_like_mut().ok_or_else(|| wrong("its section is no section"))?;
    }
    if value.trim().is_empty() {
        table.remove(key);
        return Ok(());
    }
    let value: Value = value.trim().parse().unwrap_or_else(|_| Value::from(value.trim()));
    match table.get_mut(key) {
        Some(item) => *item = Item::Value(value),
        None => _ = table.insert(key, Item::Value(value)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"rounds = 3

[data]
kind = "synthetic"

[model]
preset = "tiny"

[local]
batch = 8
unroll = 10
learning_rate = 0.5

[participation]
kind = "poisson"
population = 1000
cohort = 10

[clip]
kind = "flat"
norm = 0.8

[privacy]
mechanism = "gaussian"
noise_multiplier = 1.0
delta = 1e-7

[server]
optimizer = "sgd"
learning_rate = 1.0

[[schedule]]
from = 1
clip_norm = 0.4
"#;

    fn refused(text: &str, set: &[&str]) -> ConfigError {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        Document::new(text, &set).and_then(|d| d.config()).unwrap_err()
    }

    #[test]
    fn a_config_survives_being_written_and_read() {
        let config = Document::new(TEXT, &[]).unwrap().config().unwrap();
        let again = Document::new(&config.to_toml().unwrap(), &[]).unwrap().config().unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn unknown_and_missing_keys_are_refused_with_their_line() {
        let unknown = refused(&TEXT.replace("norm = 0.8", "nrom = 0.8"), &[]);
        assert_eq!(unknown.line, Some(21), "{unknown}");
        assert!(unknown.problem.contains("unknown field `nrom`"), "{unknown}");
        let missing = refused(&TEXT.replace("cohort = 10\n", ""), &[]);
        assert!(missing.line.is_some() && missing.problem.contains("missing field `cohort`"), "{missing}");
        let kind = refused(&TEXT.replace("\"flat\"", "\"flattened\""), &[]);
        assert_eq!(kind.line, Some(20), "{kind}");
        assert_eq!(refused("rounds = = 3", &[]).line, Some(1));
    }

    #[test]
    fn keys_are_set_added_and_taken_away() {
        let set = ["clip.norm=0.5".to_owned(), "noise_seed=7".to_owned(), "clip.greedy = true".to_owned()];
        let config = Document::new(TEXT, &set).unwrap().config().unwrap();
        assert_eq!((config.clip.norm, config.noise_seed, config.clip.greedy), (Some(0.5), Some(7), true));
        let set = ["clip.norm=".to_owned(), "model.preset=gboard".to_owned(), "evaluation.every=2".to_owned()];
        let config = Document::new(TEXT, &set).unwrap().config().unwrap();
        assert_eq!((config.clip.norm, config.evaluation.every), (None, 2));
        assert_eq!(config.model.preset.as_deref(), Some("gboard"));
        assert!(refused(TEXT, &["clip.nrom=1"]).problem.contains("nrom"));
        assert!(refused(TEXT, &["clip"]).problem.contains("key=value"));
        assert!(refused(TEXT, &["rounds.x=1"]).problem.contains("no section"));
    }

    #[test]
    fn a_key_has_its_line_or_that_of_its_section() {
        let document = Document::new(TEXT, &[]).unwrap();
        let line = |key: &str| document.locate(ConfigError::new(key, "wrong")).line;
        assert_eq!(line("rounds"), Some(1));
        assert_eq!(line("privacy.delta"), Some(26));
        assert_eq!(line("clip.quantile"), Some(19));
        assert_eq!(line("schedule.0.clip_norm"), Some(34));
        assert_eq!(line("nothing"), None);
    }
}
