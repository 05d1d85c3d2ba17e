//! `[data]`: whose text a run trains on.

use std::path::PathBuf;

use corpus::synth::Dialect;

use super::{
    devices::Devices,
    keys::{ByKind, Section, Usual, Visit, key},
};

/// Where the users' text comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// That of synthetic users, generated on demand.
    Synthetic(Crowd),
    /// That of the users of a store, written by `keyhush data import`.
    Store(StoredText),
    /// That of the devices that enrol with `keyhush serve`; it never leaves them.
    Devices(DeviceText),
}

/// Synthetic users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crowd {
    /// Their seed; 1 by default.
    pub seed: Option<u64>,
    /// How they write; informally by default.
    pub dialect: Option<Dialect>,
    /// How many people there are, if the unit of privacy is a post; otherwise that is the population.
    pub users: Option<u64>,
    /// Posts per user, on average.
    pub posts_per_user: Option<u32>,
}

/// The text of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    /// The file of the store.
    pub path: PathBuf,
    /// How many users per thousand are held out for evaluation; 100 by default.
    pub held_out_per_mille: Option<u32>,
    /// Changes which users are held out; 0 by default.
    pub salt: Option<u64>,
}

/// Text that stays on devices, and what models are evaluated on instead.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceText {
    /// The seed of the synthetic users to evaluate on; 1 by default.
    pub seed: Option<u64>,
    /// How they write; informally by default.
    pub dialect: Option<Dialect>,
    /// Posts per synthetic user, on average.
    pub posts_per_user: Option<u32>,
    /// A file of public text, one post per line, to evaluate on instead of synthetic users.
    pub public_text: Option<PathBuf>,
    /// The deadlines of devices: the section `[devices]`.
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
        visit.choose(&key("kind", "\"synthetic\"", "where the text comes from"), self, Usual::None);
        let seed = key("seed", "1", "seed of the synthetic users");
        let dialect = key("dialect", "\"informal\"", "how they write: \"informal\" or \"general\"");
        let posts = key("posts_per_user", "40", "posts per synthetic user, on average");
        match self {
            Self::Synthetic(crowd) => {
                visit.may(&seed, &mut crowd.seed);
                visit.may(&dialect, &mut crowd.dialect);
                let users = "number of people who wrote the posts; only with unit = \"example\"";
                visit.may(&key("users", "1000", users), &mut crowd.users);
                visit.may(&posts, &mut crowd.posts_per_user);
            }
            Self::Store(store) => {
                let path = key("path", "\"users.store\"", "the store to train on");
                visit.need(&path.because("give the store that `keyhush data import` wrote"), &mut store.path);
                let held_out = key("held_out_per_mille", "100", "users per thousand who are held out for evaluation");
                visit.may(&held_out, &mut store.held_out_per_mille);
                visit.may(&key("salt", "0", "changes which users are held out"), &mut store.salt);
            }
            Self::Devices(text) => {
                visit.may(&seed, &mut text.seed);
                visit.may(&dialect, &mut text.dialect);
                visit.may(&posts, &mut text.posts_per_user);
                let public = "evaluate on this public text instead of synthetic users; one post per line";
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
    /// Whether the text stays on devices.
    #[must_use]
    pub const fn is_on_devices(&self) -> bool {
        matches!(self, Self::Devices(_))
    }

    /// Whether the text is that of a store.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// The section `[devices]`, if there is one.
    #[must_use]
    pub const fn devices(&self) -> Option<&Devices> {
        match self {
            Self::Devices(text) => text.devices.as_ref(),
            Self::Synthetic(_) | Self::Store(_) => None,
        }
    }
}
