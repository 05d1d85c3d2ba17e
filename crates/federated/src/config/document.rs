//! The text of the settings, with the changes of `--set`. It knows the line of each key.

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::{
    Config, ConfigError,
    keys::{Listing, Section},
    nearest::did_you_mean,
    read::{meant_elsewhere, read},
};

/// The text of settings, and the changes of `--set`.
#[derive(Debug, Clone)]
pub struct Document {
    /// The text as written; none if the reader of an error cannot see it.
    text: Option<String>,
    /// The settings with the changes of `--set`.
    changed: DocumentMut,
    /// The keys that were changed.
    set: Vec<String>,
}

impl Document {
    /// A text and `key=value` pairs, with dots between section and key; a value is TOML, or else a string. Without a value the key is
    /// removed.
    ///
    /// # Errors
    /// When the text is not TOML, or a pair is not of this form.
    pub fn new(text: &str, set: &[String]) -> Result<Self, ConfigError> {
        let mut changed: DocumentMut = text.parse().map_err(|e| of_toml(&e, text))?;
        let paths = set.iter().map(|pair| apply(&mut changed, pair)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { text: Some(text.to_owned()), changed, set: paths })
    }

    /// The same for a text that is built into the program: nobody can open it, so errors do not name its lines.
    ///
    /// # Errors
    /// When the text is not TOML, or a pair is not of this form.
    pub fn built_in(text: &str, set: &[String]) -> Result<Self, ConfigError> {
        Self::new(text, set).map(|document| Self { text: None, ..document })
    }

    /// The configuration.
    ///
    /// # Errors
    /// The first key that is unknown, missing or not of its kind, with its line.
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.check_taken_away()?;
        read("", self.changed.as_table(), Config::unsaid()).map_err(|error| self.locate(error))
    }

    /// The same error, with the line of its key.
    #[must_use]
    pub fn locate(&self, error: ConfigError) -> ConfigError {
        let line = error.line.or_else(|| self.line_of(&error.key));
        ConfigError { line, ..error }
    }

    /// Refuses to remove a key that does not exist.
    fn check_taken_away(&self) -> Result<(), ConfigError> {
        let gone = self.set.iter().filter(|path| !self.has(path));
        let mut gone = gone.peekable();
        if gone.peek().is_none() {
            return Ok(());
        }
        let known = Listing::all::<Config>();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        match gone.find(|path| !known.contains(&path.as_str())) {
            None => Ok(()),
            Some(path) => {
                let name = path.rsplit('.').next().unwrap_or(path);
                let meant = meant_elsewhere(name).or_else(|| did_you_mean(path, &known)).unwrap_or_default();
                Err(ConfigError::new(path, format!("there is no such key to remove{meant}")))
            }
        }
    }

    /// Whether a path exists, after the changes.
    fn has(&self, path: &str) -> bool {
        let mut item = self.changed.as_item();
        path.split('.').all(|part| match item.get(part) {
            Some(inner) => {
                item = inner;
                true
            }
            None => false,
        })
    }

    /// The line of a key, or of its section if the key is missing. What was changed by `--set` has none.
    fn line_of(&self, key: &str) -> Option<usize> {
        let text = self.text.as_deref()?;
        if self.set.iter().any(|path| path == key || key.starts_with(&format!("{path}."))) {
            return None;
        }
        let document = toml_edit::Document::parse(text).ok()?;
        let mut table: &dyn TableLike = document.as_table();
        let mut line = None;
        for part in key.split('.') {
            let Some((found, item)) = table.get_key_value(part) else { break };
            let span = found.span().or_else(|| item.span());
            line = span.map(|span| line_at(text, span.start)).or(line);
            match item {
                Item::ArrayOfTables(tables) => {
                    // `schedule.1.from` names a table of the array.
                    let number = key.split('.').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
                    let named = tables.get(number)?;
                    let span = key.split('.').nth(2).and_then(|k| named.key(k)).and_then(|k| k.span()).or(named.span());
                    return span.map(|span| line_at(text, span.start));
                }
                _ => match item.as_table_like() {
                    Some(inner) => table = inner,
                    None => break,
                },
            }
        }
        line
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

fn of_toml(error: &toml_edit::TomlError, text: &str) -> ConfigError {
    let line = error.span().map(|span| line_at(text, span.start));
    ConfigError { key: String::new(), line, problem: error.message().to_owned() }
}

/// Sets one key, and returns its path.
fn apply(document: &mut DocumentMut, pair: &str) -> Result<String, ConfigError> {
    let wrong = |problem: &str| ConfigError::new("", format!("--set {pair}: {problem}"));
    let (path, value) = pair.split_once('=').ok_or_else(|| wrong("must be key=value, such as clip.norm=0.5"))?;
    let path: Vec<&str> = path.trim().split('.').map(str::trim).collect();
    let name = path.join(".");
    let Some((key, sections)) = path.split_last().filter(|_| path.iter().all(|part| !part.is_empty())) else {
        return Err(wrong("the key is missing; write key=value, such as clip.norm=0.5"));
    };
    let takes_away = value.trim().is_empty();
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (number, section) in sections.iter().enumerate() {
        if takes_away && table.get(section).is_none() {
            return Ok(name);
        }
        let item = table.entry(section).or_insert_with(toml_edit::table);
        table = item.as_table_like_mut().ok_or_else(|| {
            let outer = path[..=number].join(".");
            ConfigError::new(&name, format!("{outer} is not a section, so it has no keys"))
        })?;
    }
    if takes_away {
        table.remove(key);
        return Ok(name);
    }
    let value: Value = value.trim().parse().unwrap_or_else(|_| Value::from(value.trim()));
    match table.get_mut(key) {
        Some(item) => *item = Item::Value(value),
        None => _ = table.insert(key, Item::Value(value)),
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::TEXT;

    /// With a schedule.
    fn text() -> String {
        format!("{TEXT}\n[[schedule]]\nfrom = 1\nclip_norm = 0.4\n")
    }

    fn refused(text: &str, set: &[&str]) -> ConfigError {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        Document::new(text, &set).and_then(|d| d.config()).unwrap_err()
    }

    #[test]
    fn a_config_survives_being_written_and_read() {
        let config = Document::new(&text(), &[]).unwrap().config().unwrap();
        let again = Document::new(&config.to_toml().unwrap(), &[]).unwrap().config().unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn unknown_and_missing_keys_are_refused_with_their_line() {
        let unknown = refused(&text().replace("norm = 0.8", "nrom = 0.8"), &[]);
        assert_eq!((unknown.line, unknown.key.as_str()), (Some(21), "clip.nrom"), "{unknown}");
        let missing = refused(&text().replace("cohort = 200\n", ""), &[]);
        assert_eq!((missing.line, missing.key.as_str()), (Some(14), "participation.cohort"), "{missing}");
        let kind = refused(&text().replace("\"flat\"", "\"flattened\""), &[]);
        assert_eq!((kind.line, kind.key.as_str()), (Some(20), "clip.kind"), "{kind}");
        assert_eq!(refused("rounds = = 3", &[]).line, Some(1));
    }

    /// A line of a text that nobody can open, or in which the value is not, helps nobody.
    #[test]
    fn lines_are_of_the_text_before_the_reader() {
        let built_in = Document::built_in(&text(), &["clip.norm=".to_owned()]).unwrap();
        assert_eq!(built_in.config().unwrap_err().line, None);
        assert_eq!(built_in.locate(ConfigError::new("clip.norm", "wrong")).line, None);
        let set = Document::new(&text(), &["clip.norm=3".to_owned(), "clip.kind=".to_owned()]).unwrap();
        let line = |key: &str| set.locate(ConfigError::new(key, "wrong")).line;
        assert_eq!((line("clip.norm"), line("clip.greedy"), line("rounds")), (None, Some(19), Some(1)));
    }

    #[test]
    fn keys_are_set_added_and_taken_away() {
        let set = ["clip.norm=0.5".to_owned(), "noise_seed=7".to_owned(), "clip.greedy = true".to_owned()];
        let config = Document::new(&text(), &set).unwrap().config().unwrap();
        assert_eq!((config.clip.norm, config.noise_seed, config.clip.greedy), (0.5, Some(7), true));
        let set = ["local.unroll=".to_owned(), "model.preset=gboard".to_owned(), "evaluation.every=2".to_owned()];
        let config = Document::new(&text(), &set).unwrap().config().unwrap();
        assert_eq!((config.local.unroll, config.evaluation.every), (None, 2));
        assert_eq!(config.model.new_model().preset.as_deref(), Some("gboard"));
        // What is not there may be taken away, and does not make a section.
        assert!(Document::new(&text(), &["secagg.dropout=".to_owned()]).unwrap().config().is_ok());
    }

    #[test]
    fn a_key_has_its_line_or_that_of_its_section() {
        let document = Document::new(&text(), &[]).unwrap();
        let line = |key: &str| document.locate(ConfigError::new(key, "wrong")).line;
        assert_eq!(line("rounds"), Some(1));
        assert_eq!(line("privacy.delta"), Some(26));
        assert_eq!(line("clip.quantile"), Some(19));
        assert_eq!(line("schedule.0.clip_norm"), Some(34));
        assert_eq!(line("nothing"), None);
    }
}
