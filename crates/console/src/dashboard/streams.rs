//! How many pages may listen at a time: each stream of events is a connection that stays, and devices need connections too.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Streams of events at a time, of all tokens together.
const MOST: usize = 64;
/// The same of one token: a person has a few pages open.
const MOST_OF_ONE: usize = 8;

/// The streams that are open, by the names of tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<BTreeMap<String, usize>>>);

/// The place of a stream, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    streams: Streams,
    token: String,
}

impl Streams {
    /// A place for a stream of a token; none where there are too many.
    pub(crate) fn place(&self, token: &str) -> Option<Place> {
        let mut open = self.open();
        let own = open.get(token).copied().unwrap_or_default();
        if own >= MOST_OF_ONE || open.values().sum::<usize>() >= MOST {
            return None;
        }
        open.insert(token.to_owned(), own + 1);
        Some(Place { streams: self.clone(), token: token.to_owned() })
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        match open.get_mut(&self.token) {
            Some(own) if *own > 1 => *own -= 1,
            _ => _ = open.remove(&self.token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Behind a proxy on the same machine one token could take every connection, and devices were turned away.
    #[test]
    fn one_token_and_all_together_have_a_bound_and_places_come_back() {
        let streams = Streams::default();
        let mut places: Vec<Place> = (0..MOST_OF_ONE).map(|_| streams.place("wall").unwrap()).collect();
        assert!(streams.place("wall").is_none());
        drop(places.pop());
        places.push(streams.place("wall").unwrap());
        for other in 0.. {
            let name = format!("other{other}");
            let before = places.len();
            places.extend((0..MOST_OF_ONE).map_while(|_| streams.place(&name)));
            if places.len() == before {
                break;
            }
        }
        assert_eq!(places.len(), MOST);
        drop(places);
        assert!(streams.open().is_empty() && streams.place("wall").is_some());
    }
}
