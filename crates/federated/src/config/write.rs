//! Writes settings through serde: keys in order, unset ones left out.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::keys::{ByKind, Head, Key, Leaf, Section, Usual, Visit};

/// A section that can be written.
pub(super) struct Written<'a, S>(pub(super) &'a S);

impl<S: Section> Serialize for Written<'_, S> {
    fn serialize<Z: Serializer>(&self, to: Z) -> Result<Z::Ok, Z::Error> {
        let mut writer = Writer { map: to.serialize_map(None)?, failed: None };
        self.0.clone().keys(&mut writer);
        match writer.failed {
            Some(error) => Err(error),
            None => writer.map.end(),
        }
    }
}

struct Writer<M: SerializeMap> {
    map: M,
    /// The first error.
    failed: Option<M::Error>,
}

impl<M: SerializeMap> Writer<M> {
    fn put(&mut self, name: &'static str, value: &impl Serialize) {
        if self.failed.is_none() {
            self.failed = self.map.serialize_entry(name, value).err();
        }
    }
}

impl<M: SerializeMap> Visit for Writer<M> {
    fn need<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T) {
        self.put(key.name, to);
    }

    fn may<T: Leaf>(&mut self, key: &Key<'_>, to: &mut Option<T>) {
        if let Some(value) = to {
            self.put(key.name, value);
        }
    }

    fn or<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, _: T) {
        self.put(key.name, to);
    }

    fn rare<T: Leaf>(&mut self, key: &Key<'_>, to: &mut T, usual: T) {
        if *to != usual {
            self.put(key.name, to);
        }
    }

    fn choose<S: ByKind>(&mut self, key: &Key<'_>, to: &mut S, usual: Usual) {
        let unwritten = matches!(usual, Usual::Unwritten(kind) if kind == to.kind_name());
        if !unwritten {
            self.put(key.name, &to.kind_name());
        }
    }

    fn idle<T: Leaf>(&mut self, key: &Key<'_>, only: T, _: &str) {
        self.put(key.name, &only);
    }

    fn unavailable(&mut self, _: &Key<'_>, _: &str) {}

    fn section<S: Section>(&mut self, head: &Head, to: &mut S, _: bool) {
        self.put(head.name, &Written(to));
    }

    fn maybe<S: Section>(&mut self, head: &Head, to: Option<&mut Option<S>>, _: &str) {
        if let Some(Some(section)) = to {
            self.put(head.name, &Written(section));
        }
    }

    fn tables<S: Section>(&mut self, head: &Head, to: &mut Vec<S>) {
        if !to.is_empty() {
            self.put(head.name, &to.iter().map(|section| Written(section)).collect::<Vec<_>>());
        }
    }
}
