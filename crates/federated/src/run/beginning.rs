//! Remembers the data and settings of a run, so that it can only be resumed with the same (rule P21).
//!
//! A release from other data than its ledger speaks of, or by other settings than its plan was checked with, is not the one
//! that is accounted for. So a run keeps, in `secret/`, keyed digests of its settings, of its store and of its first
//! parameters, and compares them when it continues. The digests are keyed because a plain one would tell anyone with a guess
//! of somebody's text whether it is right. The settings stand there as text too, to say what changed.

use corpus::store::Store;
use ledger::{Digest, Ledger, LedgerError, LedgerStore, PseudonymKey, Unit};
use privacy::rng::Randomness;
use serde::{Deserialize, Serialize};

use super::{Opened, RunError, ledger_time};
use crate::{
    config::{Config, Data, Document, FineTune},
    finetune,
    plan::{BEFORE, Phase, Plan},
    secrets::Secrets,
};

/// What a run began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Beginning {
    settings: String,
    settings_digest: Digest,
    /// Digest of the initial parameters.
    start: Digest,
    /// Of the run's noise key, from which the order of arrivals follows; none where the noise is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise_key: Option<Digest>,
    /// Of the store; none if the text is synthetic, which the settings describe whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreDigests>,
    /// Of what devices rehearse; none where they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    general: Option<Digest>,
}

/// Whose text, and what text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreDigests {
    /// Who is in it, in order.
    users: Digest,
    /// The digest of the whole store.
    content: Digest,
}

/// What has changed since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    Nothing,
    /// The text of the same users, in the same order.
    Text,
    /// The users.
    Users,
}

impl Beginning {
    pub(super) fn of(key: &PseudonymKey, secrets: &Secrets, plan: &Plan, opened: &Opened) -> Result<Self, RunError> {
        let (first, store) = (opened.first_parameters(), opened.store());
        let noise_key = match plan.randomness() {
            Randomness::Secret => Some(key.digest("noise key", [&secrets.noise_key()?.secret_bytes()[..]])),
            Randomness::Simulated { .. } | Randomness::SimulatedFloatingPoint { .. } => None,
        };
        let bytes: Vec<u8> = first.iter().flat_map(|v| v.to_le_bytes()).collect();
        let digests = |store: &Store| StoreDigests {
            users: key.digest("users", store.roll()),
            content: key.digest("store", store.content()),
        };
        Ok(Self {
            settings: plan.settings.clone(),
            settings_digest: key.digest("settings", [plan.settings.as_bytes()]),
            start: key.digest("start", [&bytes[..]]),
            noise_key,
            store: store.map(digests),
            general: opened.general().map(|text| key.digest("general text", [&finetune::digest(text)[..]])),
        })
    }

    pub(super) fn keep(&self, secrets: &Secrets) -> Result<(), RunError> {
        let bytes = serde_json::to_vec(self).map_err(|e| LedgerError::storage("what the run began with", e))?;
        Ok(secrets.keep_beginning(&bytes)?)
    }

    /// What was kept; none if nothing was, or what was kept is not whole.
    pub(super) fn read(secrets: &Secrets) -> Result<Option<Self>, RunError> {
        Ok(secrets.beginning()?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Compares what a run continues with; settings and start may not change at all.
    pub(super) fn compare(&self, key: &PseudonymKey, now: &Self, config: &Config) -> Result<Changed, RunError> {
        if self.settings_digest != key.digest("settings", [self.settings.as_bytes()]) {
            let changes = vec!["the record of them in secret/ was changed too".to_owned()];
            return Err(RunError::SettingsChanged { changes });
        }
        // As this version reads them: a key that is new since then has its default.
        let mut began = Document::built_in(&self.settings, &[])?.config()?;
        // A store may be moved: what it holds is what counts.
        if let (Data::Store(then), Data::Store(now)) = (&mut began.data, &config.data) {
            then.path.clone_from(&now.path);
        }
        // So may a file of general text.
        if let (
            Some(FineTune::Rehearsal { public_text: Some(then), .. }),
            Some(FineTune::Rehearsal { public_text: Some(now), .. }),
        ) = (&mut began.finetune, &config.finetune)
        {
            then.clone_from(now);
        }
        // And the ledgers of earlier tasks, whose heads the plan has.
        if let (Data::Devices(then), Data::Devices(now)) = (&mut began.data, &config.data)
            && let (Some(then), Some(now)) = (&mut then.devices, &now.devices)
            && then.after.len() == now.after.len()
        {
            then.after.clone_from(&now.after);
        }
        if began != *config {
            return Err(RunError::SettingsChanged { changes: changes(&self.settings, &now.settings) });
        }
        if self.start != now.start {
            return Err(RunError::StartChanged);
        }
        if self.general != now.general {
            return Err(RunError::GeneralTextChanged);
        }
        if self.noise_key != now.noise_key {
            return Err(RunError::NoiseKeyChanged);
        }
        Ok(match (self.store, now.store) {
            (Some(then), Some(now)) if then.users != now.users => Changed::Users,
            (then, now) if then != now => Changed::Text,
            _ => Changed::Nothing,
        })
    }
}

/// The keys that have another value, and both.
fn changes(then: &str, now: &str) -> Vec<String> {
    let [then, now] = [then, now].map(|text| {
        let mut leaves = std::collections::BTreeMap::new();
        if let Ok(table) = toml::from_str::<toml::Table>(text) {
            flatten("", &toml::Value::Table(table), &mut leaves);
        }
        leaves
    });
    let mut keys: Vec<&String> = then.keys().chain(now.keys()).collect();
    keys.sort();
    keys.dedup();
    let word = |value: Option<&String>| value.map_or_else(|| "not set".to_owned(), Clone::clone);
    let differs = keys.into_iter().filter(|key| then.get(*key) != now.get(*key));
    differs.map(|key| format!("{key} was {} and is now {}", word(then.get(key)), word(now.get(key)))).collect()
}

fn flatten(key: &str, value: &toml::Value, leaves: &mut std::collections::BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(&key, value, leaves);
            }
        }
        leaf => _ = leaves.insert(key.to_owned(), leaf.to_string()),
    }
}

/// Why a run is taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why<'a> {
    /// For the rounds that are left; with the reason, where its data had to change.
    Rounds(Option<&'a str>),
    /// To end it as it stands.
    End,
}

impl<'a> Why<'a> {
    pub(super) const fn data_changed(self) -> Option<&'a str> {
        match self {
            Self::Rounds(data_changed) => data_changed,
            Self::End => None,
        }
    }
}

/// Refuses other settings and other data than the run began with, unless somebody says why the data had to change.
pub(super) fn recognise<S: LedgerStore>(
    secrets: &Secrets,
    ledger: &mut Ledger<S>,
    key: &PseudonymKey,
    plan: &Plan,
    opened: &Opened,
    data_changed: Option<&str>,
) -> Result<(), RunError> {
    let now = Beginning::of(key, secrets, plan, opened)?;
    let Some(began) = Beginning::read(secrets)? else {
        // It was killed while it was begun, or somebody took the file away.
        return if ledger.releases().keys().all(|stream| stream == BEFORE) {
            now.keep(secrets)
        } else {
            Err(RunError::BeginningMissing { place: "ledger.jsonl.beginning" })
        };
    };
    let counted = plan.phases().iter().any(Phase::counts_participations);
    // Posts are numbered one after the other: where they are the units, other text is other units.
    let posts = plan.ledger.unit == Unit::Example;
    match (began.compare(key, &now, &plan.config)?, data_changed) {
        (Changed::Nothing, _) => Ok(()),
        (Changed::Users, _) if counted => Err(RunError::UsersChanged),
        (Changed::Text, _) if counted && posts => Err(RunError::UsersChanged),
        (_, None) => Err(RunError::DataChanged),
        (_, Some(why)) => {
            let _receipt = ledger.record_data_changed(why, ledger_time(plan.randomness()))?;
            now.keep(secrets)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::TEXT;

    /// Ledgers of earlier tasks may be moved. None may be left out or come in: the plan has their heads.
    #[test]
    fn p15_the_ledgers_of_earlier_tasks_are_as_many_as_they_were() {
        let key = PseudonymKey::from_bytes(&[7; 32]);
        let config = |after: &str| {
            let devices = [
                "unit=device",
                "data.kind=devices",
                "participation.kind=arrival",
                "participation.min_separation=1",
                "participation.max_participations=4",
                "privacy.mechanism=tree",
                after,
            ];
            Document::new(TEXT, &devices.map(str::to_owned)).unwrap().config().unwrap()
        };
        let beginning = |config: &Config| {
            let settings = config.to_toml().unwrap();
            let settings_digest = key.digest("settings", [settings.as_bytes()]);
            let start = Digest::of_released(b"the first parameters");
            Beginning { settings, settings_digest, start, noise_key: None, store: None, general: None }
        };
        let began = beginning(&config(r#"devices.after=["a", "b"]"#));
        let compared = |after: &str| {
            let now = config(after);
            began.compare(&key, &beginning(&now), &now)
        };
        assert_eq!(compared(r#"devices.after=["c", "d/b"]"#).unwrap(), Changed::Nothing);
        for other in [r#"devices.after=["a"]"#, r#"devices.after=["a", "b", "c"]"#] {
            assert!(matches!(compared(other), Err(RunError::SettingsChanged { .. })), "{other}");
        }
    }

    #[test]
    fn changes_are_named_by_their_keys() {
        let (then, now) = ("rounds = 3\n[clip]\nnorm = 0.5\n[local]\nbatch = 4\n", "rounds = 3\n[clip]\nnorm = 0.7\n");
        assert_eq!(changes(then, now), ["clip.norm was 0.5 and is now 0.7", "local.batch was 4 and is now not set"]);
        assert!(changes(then, then).is_empty());
    }
}
