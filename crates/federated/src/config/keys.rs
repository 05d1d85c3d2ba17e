//! How settings are described: every key once, with its name, an example and what it means.
//!
//! A section of the settings is a [`Section`]: its [`Section::keys`] goes through its keys in the order in which they are written, and
//! names for each the field that holds it. Whoever visits ([`Visit`]) does the rest: [`super::read`] reads a text and refuses what is not
//! a key, [`super::write`] writes it, [`super::explained`] explains it, [`Listing`] says which keys there are. So a key is one line, and
//! there is no second list of keys that could differ from it.
//!
//! Which keys a section has can depend on one of them, such as `kind` ([`ByKind`]). What goes with one kind alone is held by that kind's
//! variant alone, so settings cannot hold what has no meaning.

use serde::{Serialize, de::DeserializeOwned};

/// A key, as it is described to people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// Its name in its section.
    pub(super) name: &'static str,
    /// A value that it can have, as TOML.
    pub(super) example: &'a str,
    /// What it means.
    pub(super) says: &'static str,
    /// Why it cannot be left out, where that is not clear from what it means.
    pub(super) why: &'static str,
}

/// A key, an example of its value, and what it means.
pub(super) const fn key<'a>(name: &'static str, example: &'a str, says: &'static str) -> Key<'a> {
    Key { name, example, says, why: "" }
}

impl Key<'_> {
    /// The same, with the reason why it cannot be left out.
    pub(super) const fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }

    /// What is said where it is missing.
    pub(super) const fn reason(&self) -> &'static str {
        if self.why.is_empty() { self.says } else { self.why }
    }
}

/// The name of a section, and what it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Its name, within the section that it is in.
    pub(super) name: &'static str,
    /// What it is about; may have several lines.
    pub(super) about: &'static str,
}

/// A section, and what it is about.
pub(super) const fn head(name: &'static str, about: &'static str) -> Head {
    Head { name, about }
}

/// A value of a key.
pub(super) trait Leaf: Serialize + DeserializeOwned + Clone + PartialEq {}

impl<T: Serialize + DeserializeOwned + Clone + PartialEq> Leaf for T {}

/// A part of the settings with keys of its own.
pub(super) trait Section: Clone {
    /// Before anything is said: what is not needed has its default, and what is needed will be read or refused.
    fn unsaid() -> Self;

    /// Goes through its keys, in the order in which they are written.
    fn keys<V: Visit>(&mut self, visit: &mut V);
}

/// A section that has other keys for every value of one of them.
pub(super) trait ByKind: Section {
    /// The values that there are.
    fn kinds() -> Vec<&'static str>;

    /// The one that it has.
    fn kind_name(&self) -> &'static str;

    /// Makes it one of another kind, of which nothing is said yet. Whether there is such a kind.
    fn turn(&mut self, kind: &str) -> bool;
}

/// What holds where the kind of a section is not said.
#[derive(Debug, Clone, Copy)]
pub(super) enum Usual {
    /// It must be said.
    None,
    /// This one, and it is written all the same.
    Written(&'static str),
    /// This one, and it is not written.
    Unwritten(&'static str),
}

impl Usual {
    /// The kind, where there is a usual one.
    pub(super) const fn kind(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Written(kind) | Self::Unwritten(kind) => Some(kind),
        }
    }
}

/// Somebody who goes through the keys of settings.
pub(super) trait Visit {
    /// Whether a key is said in a text that is being read.
    fn says(&self, _name: &str) -> bool {
        false
    }

    /// A key that must be said.
    fn need<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T);

    /// A key that may be left out.
    fn may<T: Leaf>(&mut self, key: &Key<'_>, to: &mut Option<T>);

    /// A key with a default; it is always written.
    fn or<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T);

    /// A key with a default; it is written where it has another value.
    fn rare<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T);

    /// The key that says which others there are. It comes before all that depend on it.
    fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, usual: Usual);

    /// A key that has one value here and is written, and others elsewhere: with what, is said in words.
    fn idle<T: Leaf>(&mut self, key: &Key<'_>, only: T, with: &str);

    /// A key that there is not here, and elsewhere: with what, is said in words.
    fn unavailable(&mut self, key: &Key<'_>, with: &str);

    /// A section, that must be there or has defaults for all of its keys.
    fn section<S: Section>(&mut self, head: &Head, to: &mut S, needed: bool);

    /// A section that may be left out; with what there is one, is said in words where it is not here.
    fn maybe<S: Section>(&mut self, head: &Head, to: Option<&mut Option<S>>, with: &str);

    /// A section that there may be several times.
    fn tables<S: Section>(&mut self, head: &Head, to: &mut Vec<S>);
}

/// The keys that there are.
pub(super) struct Listing {
    prefix: String,
    /// Whether the keys of sections within are listed, and those of all kinds.
    deep: bool,
    /// What was listed.
    pub(super) keys: Vec<String>,
}

impl Listing {
    /// The keys of a section as it is, without what is within its sections.
    pub(super) fn of<S: Section>(section: &S) -> Vec<String> {
        let mut listing = Self { prefix: String::new(), deep: false, keys: Vec::new() };
        section.clone().keys(&mut listing);
        listing.keys
    }

    /// All keys of settings of any kind, with their sections.
    pub(super) fn all<S: Section>() -> Vec<String> {
        let mut listing = Self { prefix: String::new(), deep: true, keys: Vec::new() };
        S::unsaid().keys(&mut listing);
        listing.keys
    }

    fn add(&mut self, name: &str) {
        let path = format!("{}{name}", self.prefix);
        if !self.keys.contains(&path) {
            self.keys.push(path);
        }
    }

    fn within<S: Section>(&mut self, name: &str, mut section: S) {
        self.add(name);
        if self.deep {
            let outer = std::mem::take(&mut self.prefix);
            self.prefix = format!("{outer}{name}.");
            section.keys(self);
            self.prefix = outer;
        }
    }
}

impl Visit for Listing {
    fn need<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T) {
        self.add(key.name);
    }

    fn may<T: Leaf>(&mut self, key: &Key<'_>, _: &mut Option<T>) {
        self.add(key.name);
    }

    fn or<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
        self.add(key.name);
    }

    fn rare<T: Leaf>(&mut self, key: &Key<'_>, _: &mut T, _: T) {
        self.add(key.name);
    }

    fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, _: Usual) {
        let expands = self.deep && !self.keys.contains(&format!("{}{}", self.prefix, key.name));
        self.add(key.name);
        // Each other kind comes here again, and knows the key by then.
        for kind in S::kinds().into_iter().filter(|_| expands) {
            let mut other = to.clone();
            other.turn(kind);
            other.keys(self);
        }
    }

    fn idle<T: Leaf>(&mut self, _: &Key<'_>, _: T, _: &str) {}

    fn unavailable(&mut self, key: &Key<'_>, _: &str) {
        if self.deep {
            self.add(key.name);
        }
    }

    fn section<S: Section>(&mut self, head: &Head, to: &mut S, _: bool) {
        self.within(head.name, to.clone());
    }

    fn maybe<S: Section>(&mut self, head: &Head, to: Option<&mut Option<S>>, _: &str) {
        if to.is_some() || self.deep {
            self.within(head.name, S::unsaid());
        }
    }

    fn tables<S: Section>(&mut self, head: &Head, _: &mut Vec<S>) {
        self.within(head.name, S::unsaid());
    }
}
