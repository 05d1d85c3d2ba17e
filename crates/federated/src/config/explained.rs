//! Writes settings with every key explained, for `keyhush init` and proposals.

use serde::Serialize;

use super::{
    Config, ConfigError, Document,
    keys::{ByKind, Head, Key, Leaf, Section, Usual, Visit},
    nearest::one_of,
};

/// What `keyhush train` does without settings: a small run on synthetic users that takes minutes.
pub const FIRST_RUN: &str = include_str!("first-run.toml");

/// The settings of [`FIRST_RUN`].
///
/// # Errors
/// Never, but for a mistake in that file.
pub fn first_run() -> Result<Config, ConfigError> {
    Document::built_in(FIRST_RUN, &[])?.config()
}

/// Settings as text with every key explained; optional keys that are not set are commented out. `head` is put above them.
///
/// # Errors
/// When there is a path among them that is not text.
pub fn explained(config: &Config, head: &[String]) -> Result<String, ConfigError> {
    let mut page = Page::new(String::new(), false);
    head.iter().for_each(|line| page.plain(format!("# {line}")));
    page.plain(String::new());
    config.clone().keys(&mut page);
    match page.failed {
        Some(error) => Err(error),
        None => Ok(lined_up(&page.lines)),
    }
}

/// A key with its value, or with an example of one where it is not set; or any other line.
#[derive(Debug, Clone)]
struct Line {
    assignment: String,
    says: String,
}

/// A key of kinds other than the chosen one.
struct Other {
    name: &'static str,
    line: Line,
    kinds: Vec<&'static str>,
}

/// The text of a section and of what is within it.
struct Page {
    /// The path of the section, with a dot at the end.
    path: String,
    lines: Vec<Line>,
    /// Whether the whole section is commented out, because nothing of it is set.
    commented: bool,
    /// The keys of the section that have a line.
    shown: Vec<&'static str>,
    /// The key that holds the kind, and the keys of other kinds.
    kind: &'static str,
    others: Vec<Other>,
    failed: Option<ConfigError>,
}

impl Page {
    fn new(path: String, commented: bool) -> Self {
        Self { path, lines: Vec::new(), commented, shown: Vec::new(), kind: "", others: Vec::new(), failed: None }
    }

    fn plain(&mut self, text: String) {
        self.lines.push(Line { assignment: text, says: String::new() });
    }

    fn put(&mut self, key: &Key<'_>, assignment: String, says: &str) {
        self.shown.push(key.name);
        self.lines.push(Line { assignment, says: says.to_owned() });
    }

    /// A key with its value.
    fn set(&mut self, key: &Key<'_>, value: &impl Serialize, says: &str) {
        if self.commented {
            return self.example(key, says);
        }
        match written(value) {
            Ok(value) => self.put(key, format!("{} = {value}", key.name), says),
            Err(error) => self.failed = Some(ConfigError::new(format!("{}{}", self.path, key.name), error)),
        }
    }

    /// A key that is not set.
    fn example(&mut self, key: &Key<'_>, says: &str) {
        self.put(key, format!("# {} = {}", key.name, key.example), says);
    }

    /// A section within this one.
    fn within<S: Section>(&mut self, head: &Head, brackets: (&str, &str), section: &S, commented: bool) {
        let name = format!("{}{}", self.path, head.name);
        self.plain(String::new());
        head.about.lines().for_each(|line| self.plain(format!("# {line}")));
        let hash = if commented { "# " } else { "" };
        self.plain(format!("{hash}{}{name}{}", brackets.0, brackets.1));
        let mut page = Self::new(format!("{name}."), commented);
        section.clone().keys(&mut page);
        page.with_other_kinds();
        self.lines.append(&mut page.lines);
        self.failed = self.failed.take().or(page.failed);
    }

    /// The keys of other kinds, grouped by kind.
    fn with_other_kinds(&mut self) {
        let mut others = std::mem::take(&mut self.others);
        others.retain(|other| !self.shown.contains(&other.name));
        while let Some(first) = others.first() {
            let kinds = first.kinds.clone();
            let quoted: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
            self.plain(format!("# With {} = {}:", self.kind, one_of(&quoted)));
            let (same, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|other| other.kinds == kinds);
            self.lines.extend(same.into_iter().map(|other| other.line));
            others = rest;
        }
    }
}

impl Visit for Page {
    fn need<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T) {
        self.set(key, to, key.says);
    }

    fn may<T: Leaf>(&mut self, key: &Key<'_>, to: &mut Option<T>) {
        match to {
            Some(value) => self.set(key, value, key.says),
            None => self.example(key, key.says),
        }
    }

    fn or<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, _: T) {
        self.set(key, to, key.says);
    }

    fn rare<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T) {
        if *to == usual { self.example(key, key.says) } else { self.set(key, to, key.says) }
    }

    fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, _: Usual) {
        let quoted: Vec<String> = S::kinds().iter().map(|kind| format!("{kind:?}")).collect();
        let says = if key.says.is_empty() { String::new() } else { format!(": {}", key.says) };
        self.set(key, &to.kind_name(), &format!("{}{says}", one_of(&quoted)));
        self.kind = key.name;
        for kind in S::kinds().into_iter().filter(|kind| *kind != to.kind_name()) {
            let mut other = Keys::default();
            let mut section = to.clone();
            section.turn(kind);
            section.keys(&mut other);
            for (name, line) in other.lines {
                match self.others.iter_mut().find(|other| other.name == name) {
                    Some(known) => known.kinds.push(kind),
                    None => self.others.push(Other { name, line, kinds: vec![kind] }),
                }
            }
        }
    }

    fn idle<T: Leaf>(&mut self, _: &Key<'_>, _: T, _: &str) {}

    fn unavailable(&mut self, key: &Key<'_>, _: &str) {
        self.example(key, key.says);
    }

    fn section<S: Section>(&mut self, head: &Head, to: &mut S, _: bool) {
        self.within(head, ("[", "]"), to, self.commented);
    }

    fn maybe<S: Section>(&mut self, head: &Head, to: Option<&mut Option<S>>, _: &str) {
        match to {
            Some(Some(section)) if !self.commented => self.within(head, ("[", "]"), section, false),
            _ => self.within(head, ("[", "]"), &S::unsaid(), true),
        }
    }

    fn tables<S: Section>(&mut self, head: &Head, to: &mut Vec<S>) {
        to.iter().for_each(|section| self.within(head, ("[[", "]]"), section, false));
        if to.is_empty() {
            self.within(head, ("[[", "]]"), &S::unsaid(), true);
        }
    }
}

/// The keys of a section alone, each as an example.
#[derive(Default)]
struct Keys {
    lines: Vec<(&'static str, Line)>,
}

impl Keys {
    fn add(&mut self, key: &Key<'_>) {
        let assignment = format!("# {} = {}", key.name, key.example);
        self.lines.push((key.name, Line { assignment, says: key.says.to_owned() }));
    }
}

impl Visit for Keys {
    fn need<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T) {
        self.add(key);
    }

    fn may<T: Leaf>(&mut self, key: &Key<'_>, _: &mut Option<T>) {
        self.add(key);
    }

    fn or<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
        self.add(key);
    }

    fn rare<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
        self.add(key);
    }

    fn choose<S: ByKind>(&mut self, _: &Key<'_>, _: &mut S, _: Usual) {}

    fn idle<T: Leaf>(&mut self, _: &Key<'_>, _: T, _: &str) {}

    fn unavailable(&mut self, _: &Key<'_>, _: &str) {}

    fn section<S: Section>(&mut self, _: &Head, _: &mut S, _: bool) {}

    fn maybe<S: Section>(&mut self, _: &Head, _: Option<&mut Option<S>>, _: &str) {}

    fn tables<S: Section>(&mut self, _: &Head, _: &mut Vec<S>) {}
}

/// Aligns the explanations.
fn lined_up(lines: &[Line]) -> String {
    let said = lines.iter().filter(|line| !line.says.is_empty());
    let width = said.map(|line| line.assignment.chars().count()).max().unwrap_or(0);
    let line = |Line { assignment, says }: &Line| match says.is_empty() {
        true => format!("{assignment}\n"),
        false => format!("{assignment:<width$}  # {says}\n"),
    };
    lines.iter().map(line).collect()
}

/// A value as TOML: as in JSON, with underscores between thousands.
fn written(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(value)?;
    if json.len() < 5 || !json.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(json);
    }
    let groups: Vec<&str> = json.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    Ok(groups.join("_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Aggregation, Data, DeviceText, Devices, MechanismKind, keys::Listing},
        propose::beginning,
    };

    fn parsed(text: &str) -> Result<Config, String> {
        Document::new(text, &[]).and_then(|d| d.config()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let all = MechanismKind::noises().map(|kind| beginning(kind).unwrap());
        let mut devices = beginning(MechanismKind::TREE).unwrap();
        devices.data = Data::Devices(DeviceText { devices: Some(Devices::default()), ..DeviceText::default() });
        devices.participation.simulated = None;
        devices.aggregation = Aggregation::Secagg(None);
        for config in all.chain([devices]) {
            let text = explained(&config, &["a line".into()]).unwrap();
            assert_eq!(parsed(&text).unwrap(), config, "{text}");
            let long = text.lines().find(|line| line.chars().count() > 120);
            assert_eq!(long, None);
        }
    }

    /// The lines of a section of a page, also where it is commented out.
    fn part<'a>(text: &'a str, section: &str) -> Vec<&'a str> {
        let is_head = |line: &str| line.trim_start_matches("# ").starts_with('[');
        let named = |line: &str| line.trim_start_matches("# ").trim_matches(['[', ']']) == section;
        let from: Vec<&str> = match section {
            "" => text.lines().collect(),
            _ => text.lines().skip_while(|line| !(is_head(line) && named(line))).skip(1).collect(),
        };
        from.into_iter().take_while(|line| !is_head(line)).collect()
    }

    #[test]
    fn no_key_is_left_out() {
        let text = explained(&beginning(MechanismKind::Gaussian).unwrap(), &[]).unwrap();
        let all = Listing::all::<Config>();
        assert!(all.len() > 100, "{all:?}");
        for path in &all {
            let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
            let is_section = all.iter().any(|other| other.starts_with(&format!("{path}.")));
            let there = match is_section {
                true => !part(&text, path).is_empty(),
                false => part(&text, section).iter().any(|line| {
                    line.trim_start_matches("# ").strip_prefix(key).is_some_and(|rest| rest.starts_with(" = "))
                }),
            };
            assert!(there, "{path} is not explained:\n{text}");
        }
    }

    /// Their names stood a second time in the comments, where a new one was easily forgotten.
    #[test]
    fn every_learner_and_clipping_rule_is_explained() {
        use crate::config::{clip_rules::CLIP_RULES, learners::LEARNERS};
        let text = explained(&beginning(MechanismKind::Gaussian).unwrap(), &[]).unwrap();
        let line = |section: &str, key: &str| part(&text, section).into_iter().find(|line| line.contains(key)).unwrap();
        for kind in LEARNERS {
            assert!(line("model", "learner = ").contains(&format!("{:?} (", kind.name)), "{text}");
        }
        for kind in CLIP_RULES {
            let said = line("clip", "kind = ").split_once('#').unwrap().1;
            assert!(said.contains(&format!("{:?}", kind.name())) && said.contains(kind.about()), "{said}");
        }
    }

    /// The comment said that only "grid" was for real devices.
    #[test]
    fn the_uploads_that_are_called_simulated_are_the_ones_that_devices_refuse() {
        use crate::config::{Upload, keys::ByKind};
        let text = explained(&beginning(MechanismKind::Gaussian).unwrap(), &[]).unwrap();
        let said = text.lines().find(|line| line.contains("for simulations only")).unwrap_or_default();
        for kind in Upload::kinds() {
            let mut upload = Upload::Grid;
            upload.turn(kind);
            assert_eq!(said.contains(&format!("{kind:?}")), upload == Upload::Dense, "{kind}: {said}");
        }
    }

    /// The example of each key is a valid value, and each key is explained: the kinds of data, participation, noise and optimizer were listed
    /// without a word about what they decide.
    #[test]
    fn examples_are_of_their_keys() {
        struct Examples(usize);
        impl Examples {
            fn check<T: Leaf>(&mut self, key: &Key<'_>) {
                let item: toml_edit::Item = toml_edit::Item::Value(key.example.parse().expect(key.name));
                let read = super::super::read::leaf::<T>(&item);
                assert!(read.is_ok(), "{} = {}: {:?}", key.name, key.example, read.err());
                assert!(!key.says.is_empty(), "{}", key.name);
                self.0 += 1;
            }
        }
        impl Visit for Examples {
            fn need<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T) {
                self.check::<T>(key);
            }
            fn may<T: Leaf>(&mut self, key: &Key<'_>, _: &mut Option<T>) {
                self.check::<T>(key);
            }
            fn or<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
                self.check::<T>(key);
            }
            fn rare<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, usual: T) {
                self.check::<T>(key);
                let same = toml::to_string(&std::collections::BTreeMap::from([("key", usual)])).unwrap();
                assert_ne!(same.trim(), format!("key = {}", key.example), "{}: it is the default", key.name);
            }
            fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, _: Usual) {
                assert!(!key.says.is_empty(), "{}", key.name);
                let example = key.example.trim_matches('"');
                assert!(S::kinds().contains(&example), "{}", key.name);
                if to.kind_name() == S::kinds()[0] {
                    for kind in S::kinds().into_iter().skip(1) {
                        let mut other = to.clone();
                        assert!(other.turn(kind) && other.kind_name() == kind && !other.turn("nonsense"));
                        other.keys(self);
                    }
                }
            }
            fn idle<T: Leaf>(&mut self, _: &Key<'_>, _: T, _: &str) {}
            fn unavailable(&mut self, _: &Key<'_>, _: &str) {}
            fn section<S: Section>(&mut self, _: &Head, to: &mut S, _: bool) {
                to.clone().keys(self);
            }
            fn maybe<S: Section>(&mut self, _: &Head, _: Option<&mut Option<S>>, _: &str) {
                S::unsaid().keys(self);
            }
            fn tables<S: Section>(&mut self, _: &Head, _: &mut Vec<S>) {
                S::unsaid().keys(self);
            }
        }
        let mut examples = Examples(0);
        Config::unsaid().keys(&mut examples);
        assert!(examples.0 > 100, "{}", examples.0);
    }
}
