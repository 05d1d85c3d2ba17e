//! How settings are described: each key once, with its name, an example and its meaning.
//!
//! A section of the settings is a [`Section`]: its [`Section::keys`] goes through its keys in the order in which they are written, and
//! names the field of each. A visitor ([`Visit`]) does the rest: [`super::read`] reads a text and refuses unknown keys,
//! [`super::write`] writes it, [`super::explained`] explains it, [`Listing`] lists the keys. So a key is one line, and there is no second
//! list of keys that could differ.
//!
//! Which keys a section has can depend on one of them, such as `kind` ([`ByKind`]). Keys of one kind are fields of that kind's variant,
//! so settings cannot hold what has no meaning.

use serde::{Serialize, de::DeserializeOwned};

/// The description of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// Its name in its section.
    pub(super) name: &'static str,
    /// An example of its value, as TOML.
    pub(super) example: &'a str,
    /// What the key means, for comments.
    pub(super) says: &'a str,
    /// Why it cannot be left out, if its meaning does not say so.
    pub(super) why: &'static str,
}

/// A key, an example of its value, and what it means.
pub(super) const fn key<'a>(name: &'static str, example: &'a str, says: &'a str) -> Key<'a> {
    Key { name, example, says, why: "" }
}

impl Key<'_> {
    /// Adds the reason why it cannot be left out.
    pub(super) const fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }

    /// What the error says if it is missing.
    pub(super) const fn reason(&self) -> &str {
        if self.why.is_empty() { self.says } else { self.why }
    }
}

/// The name of a section, and what it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Its name, within the section that it is in.
    pub(super) name: &'static str,
    /// What it is about; may be several lines.
    pub(super) about: &'static str,
}

/// The name of a section, and what it is about.
pub(super) const fn head(name: &'static str, about: &'static str) -> Head {
    Head { name, about }
}

/// A value of a key.
pub(super) trait Leaf: Serialize + DeserializeOwned + Clone + PartialEq {}

impl<T: Serialize + DeserializeOwned + Clone + PartialEq> Leaf for T {}

/// A part of the settings with keys of its own.
pub(super) trait Section: Clone {
    /// The state before reading: optional keys have their defaults, and required ones are read or refused.
    fn unsaid() -> Self;

    /// Goes through its keys, in the order in which they are written.
    fn keys<V: Visit>(&mut self, visit: &mut V);
}

/// A section whose keys depend on the value of one of them.
pub(super) trait ByKind: Section {
    /// The possible values.
    fn kinds() -> Vec<&'static str>;

    /// The current value.
    fn kind_name(&self) -> &'static str;

    /// Changes it to another kind, with nothing set. Returns whether there is such a kind.
    fn turn(&mut self, kind: &str) -> bool;
}

/// What holds if the kind of a section is not given.
#[derive(Debug, Clone, Copy)]
pub(super) enum Usual {
    /// The kind must be given.
    None,
    /// This one; it is written anyway.
    Written(&'static str),
    /// This one; it is not written.
    Unwritten(&'static str),
}

impl Usual {
    /// The default kind, if there is one.
    pub(super) const fn kind(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Written(kind) | Self::Unwritten(kind) => Some(kind),
        }
    }
}

/// A visitor of the keys of settings.
pub(super) trait Visit {
    /// Whether the text that is being read has a key.
    fn says(&self, _name: &str) -> bool {
        false
    }

    /// A required key.
    fn need<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T);

    /// An optional key without a default.
    fn may<T: Leaf>(&mut self, key: &Key<'_>, to: &mut Option<T>);

    /// A key with a default; it is always written.
    fn or<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T);

    /// A key with a default; it is only written if it has another value.
    fn rare<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T);

    /// The key that decides which others there are. It comes before those.
    fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, usual: Usual);

    /// A key that can only have one value here, and is written; `with` says what other values need.
    fn idle<T: Leaf>(&mut self, key: &Key<'_>, only: T, with: &str);

    /// A key that does not exist here; `with` says what it needs.
    fn unavailable(&mut self, key: &Key<'_>, with: &str);

    /// A section that is required, or has defaults for all of its keys.
    fn section<S: Section>(&mut self, head: &Head, to: &mut S, needed: bool);

    /// An optional section; if it does not exist here, `with` says what it needs.
    fn maybe<S: Section>(&mut self, head: &Head, to: Option<&mut Option<S>>, with: &str);

    /// A section that may be repeated.
    fn tables<S: Section>(&mut self, head: &Head, to: &mut Vec<S>);
}

/// A list of all keys.
pub(super) struct Listing {
    prefix: String,
    /// Whether the keys of sections within are listed, and those of all kinds.
    deep: bool,
    /// The keys that were listed.
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
