//! Whose text a run trains on.

use std::path::PathBuf;

use corpus::synth::Dialect;

use super::{
    devices::Devices,
    keys::{ByKind, Section, Usual, Visit, key},
};

/// Whose text.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// That of a crowd that is made up on demand.
    Synthetic(Crowd),
    /// That of the users of a store, as `keyhush data import` makes it.
    Store(StoredText),
    /// That of the devices that enrol with `keyhush serve`; it never leaves them.
    Devices(DeviceText),
}

/// A crowd that is made up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crowd {
    /// The seed that it follows from; 1 if not said.
    pub seed: Option<u64>,
    /// How it speaks; informally if not said.
    pub dialect: Option<Dialect>,
    /// How many people there are, where their posts are the units; otherwise that is the population.
    pub users: Option<u64>,
    /// Posts of a user, on average.
    pub posts_per_user: Option<u32>,
}

/// The text of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    /// The file of the store.
    pub path: PathBuf,
    /// So many users of a thousand are held out for evaluation; 100 if not said.
    pub held_out_per_mille: Option<u32>,
    /// Chooses who is held out; 0 if not said.
    pub salt: Option<u64>,
}

/// Text that is on devices, and what models are measured on instead of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceText {
    /// The seed of made-up people to measure on; 1 if not said.
    pub seed: Option<u64>,
    /// How they speak; informally if not said.
    pub dialect: Option<Dialect>,
    /// Posts of each of them, on average.
    pub posts_per_user: Option<u32>,
    /// A file of public text, one post per line, to measure on instead of made-up people.
    pub public_text: Option<PathBuf>,
    /// How long devices have: the section `[devices]`.
    pub devices: Option<Devices>,
}

const SYNTHETIC: &str = "synthetic";
const STORE: &str = "store";
const DEVICES: &str = "devices";

impl Section for Data {
    fn unsaid() -> Self {
        Self::Synthetic(Crowd::default())
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.choose(&key("kind", "\"synthetic\"", ""), self, Usual::None);
        let seed = key("seed", "1", "the made-up people follow from it");
        let dialect = key("dialect", "\"informal\"", "how they speak: \"informal\" or \"general\"");
        let posts = key("posts_per_user", "40", "posts of each of them, on average");
        match self {
            Self::Synthetic(crowd) => {
                visit.may(&seed, &mut crowd.seed);
                visit.may(&dialect, &mut crowd.dialect);
                let users = "how many people typed the posts; only with unit = \"example\"";
                visit.may(&key("users", "1000", users), &mut crowd.users);
                visit.may(&posts, &mut crowd.posts_per_user);
            }
            Self::Store(store) => {
                let path = key("path", "\"users.store\"", "the file of the store");
                visit.need(&path.because("the store, as `keyhush data import` made it"), &mut store.path);
                let held_out = key("held_out_per_mille", "100", "users of a thousand who are held out for evaluation");
                visit.may(&held_out, &mut store.held_out_per_mille);
                visit.may(&key("salt", "0", "chooses who is held out"), &mut store.salt);
            }
            Self::Devices(text) => {
                visit.may(&seed, &mut text.seed);
                visit.may(&dialect, &mut text.dialect);
                visit.may(&posts, &mut text.posts_per_user);
                let public = "text to measure models on instead of made-up people, one post per line";
                visit.may(&key("public_text", "\"public.txt\"", public), &mut text.public_text);
            }
        }
    }
}

impl ByKind for Data {
    fn kinds() -> Vec<&'static str> {
        vec![SYNTHETIC, STORE, DEVICES]
    }

    fn kind_name(&self) -> &'static str {
        match self {
            Self::Synthetic(_) => SYNTHETIC,
            Self::Store(_) => STORE,
            Self::Devices(_) => DEVICES,
        }
    }

    fn turn(&mut self, kind: &str) -> bool {
        *self = match kind {
            SYNTHETIC => Self::Synthetic(Crowd::default()),
            STORE => Self::Store(StoredText { path: PathBuf::new(), held_out_per_mille: None, salt: None }),
            DEVICES => Self::Devices(DeviceText::default()),
            _ => return false,
        };
        true
    }
}

impl Data {
    /// Whether it is on devices.
    #[must_use]
    pub const fn is_on_devices(&self) -> bool {
        matches!(self, Self::Devices(_))
    }

    /// Whether it is that of people in a store.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// The file of the store, where there is one.
    pub const fn store_path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Store(store) => Some(&mut store.path),
            Self::Synthetic(_) | Self::Devices(_) => None,
        }
    }

    /// The section `[devices]`, where there is one.
    #[must_use]
    pub const fn devices(&self) -> Option<&Devices> {
        match self {
            Self::Devices(text) => text.devices.as_ref(),
            Self::Synthetic(_) | Self::Store(_) => None,
        }
    }
}
