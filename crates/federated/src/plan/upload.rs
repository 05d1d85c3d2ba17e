//! What a device sends in each round, its size in bytes, and the traffic of the whole run.
//!
//! Bytes follow from the plan alone, so they tell nothing of what was typed (rule P26): cohorts are the declared ones, and every device
//! of a round sends as much.
//!
//! | kind     | bytes of one upload                                                                                      |
//! |----------|----------------------------------------------------------------------------------------------------------|
//! | `grid`   | the integers, each as wide as the grid asks for; with secure aggregation what the protocol sends          |
//! | `dense`  | 4 for every coordinate                                                                                   |
//! | `sparse` | for every coordinate that is sent its place and its integer, in bits, and what stands beside the update    |
//! | `mask`   | as `grid`, of the coordinates of the mask: the mask follows from a public seed and is not sent            |
//!
//! The model goes down to every device as 32-bit floats.

use device::upload::{Keeping, Partial, Rests, Sends, UploadTerms, mask};
use serde::{Deserialize, Serialize};

use super::{Plan, phases::Phase};
use crate::{
    config::{Config, ConfigError, Mask, Sparse, Upload},
    numbers,
};

/// The plan of what devices send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UploadPlan {
    said: Option<Upload>,
    /// Coordinates of an update.
    parameters: usize,
    /// Public seed of the masks.
    seed: u64,
    /// Whether users are real devices.
    on_devices: bool,
}

/// The planned traffic of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// How often anybody sends an update.
    pub uploads: u64,
    /// Bytes from devices to the server.
    pub up_bytes: u64,
    /// Bytes from the server to devices.
    pub down_bytes: u64,
}

impl Sent {
    /// Describes it in a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { uploads, up_bytes, down_bytes } = *self;
        let (up, down) = (numbers::bytes(up_bytes), numbers::bytes(down_bytes));
        format!("As planned, devices sent {up} in {} and received {down}.", numbers::counted(uploads, "upload"))
    }
}

impl UploadPlan {
    /// The plan of the settings, for a model with this many parameters.
    #[must_use]
    pub const fn new(config: &Config, parameters: usize) -> Self {
        Self { said: config.upload, parameters, seed: config.seed, on_devices: config.data.is_on_devices() }
    }

    /// The same where users are simulated, who keep what the loop has for them.
    #[must_use]
    pub const fn of_simulated_users(self) -> Self {
        Self { on_devices: false, ..self }
    }

    /// Whether anything was said.
    #[must_use]
    pub const fn is_said(&self) -> bool {
        self.said.is_some()
    }

    /// Whether simulated users keep something for later rounds, which is then part of the run's state.
    #[must_use]
    pub fn keeps_rest(&self) -> bool {
        !self.on_devices && self.said.is_some_and(|said| said.keeps_rest())
    }

    /// What real devices are told of it; none where they send all coordinates and keep nothing.
    #[must_use]
    pub fn told(&self) -> Option<UploadTerms> {
        match self.said? {
            Upload::Grid | Upload::Dense => None,
            Upload::Sparse(Sparse { momentum, local_clip, .. }) => Some(UploadTerms::Largest { momentum, local_clip }),
            Upload::Mask(Mask { keep_rest, .. }) => {
                Some(UploadTerms::Mask { coordinates: self.coordinates() as u64, seed: self.seed, keep_rest })
            }
        }
    }

    /// Whether devices send coordinates of their update and not all of it.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        matches!(self.said, Some(Upload::Sparse(_) | Upload::Mask(_)))
    }

    /// Whether what is kept has a momentum.
    #[must_use]
    pub fn keeps_velocity(&self) -> bool {
        matches!(self.said, Some(Upload::Sparse(sparse)) if sparse.momentum > 0.0)
    }

    /// Coordinates of the vector that is encoded and noised.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        match self.said {
            Some(Upload::Mask(mask)) => some_of(self.parameters, mask.share),
            _ => self.parameters,
        }
    }

    /// The coordinates that all devices of a round send, in ascending order, where they share them. Anybody can draw them.
    #[must_use]
    pub fn mask(&self, round: u64) -> Option<Vec<u32>> {
        let Some(Upload::Mask(_)) = self.said else { return None };
        Some(mask(self.seed, round, self.coordinates(), self.parameters))
    }

    /// How many coordinates a device chooses by their size in a round, where it does.
    #[must_use]
    pub fn largest(&self, round: u64) -> Option<usize> {
        let Some(Upload::Sparse(sparse)) = self.said else { return None };
        // Lin et al. 2017: with four steps to a share of 0.001 these are 25, 6.3, 1.6 and 0.4 %.
        let share = match round < sparse.warm_up {
            true => libm::pow(sparse.share, (round + 1) as f64 / (sparse.warm_up + 1) as f64),
            false => sparse.share,
        };
        Some(some_of(self.parameters, share))
    }

    /// The upload task of a round's devices.
    #[must_use]
    pub fn task<'a>(&self, round: u64, mask: Option<&'a [u32]>, rests: &'a Rests) -> device::upload::Upload<'a> {
        let (momentum, local_clip) = match self.said {
            Some(Upload::Sparse(sparse)) => (sparse.momentum, sparse.local_clip),
            _ => (0.0, None),
        };
        let keeps = self.keeps_rest().then_some(Keeping { momentum, local_clip, rests });
        let sends = match (mask, self.largest(round)) {
            (Some(mask), _) => Sends::Mask(mask),
            (None, Some(count)) => Sends::Largest(count),
            (None, None) => return device::upload::Upload::Whole,
        };
        device::upload::Upload::Part(Partial { sends, keeps })
    }

    /// Bytes from one device in a round, and to it.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub(super) fn bytes(&self, phase: &Phase, round: u64) -> Result<(u64, u64), ConfigError> {
        let model = 4 * self.parameters as u64;
        if let Some(secure) = phase.secure_traffic()? {
            return Ok((secure.up as u64, model + secure.down as u64));
        }
        let whole = phase.report_bytes() as u64;
        let up = match (self.said, self.largest(round)) {
            (Some(Upload::Dense), _) => 4 * phase.coordinates() as u64,
            (_, Some(count)) => {
                let integer = phase.update_bits() as u64;
                let beside = whole - (self.parameters as u64 * integer).div_ceil(8);
                (count as u64 * (place_bits(self.parameters) + integer)).div_ceil(8) + beside
            }
            _ => whole,
        };
        Ok((up, model))
    }

    /// In words, for the ledger: a run that was begun before can be resumed only while they stay as they are ([`ledger::Plan::is_same_run`]).
    pub(super) fn words(&self) -> Option<String> {
        let percent = |share: f64| format!("{} %", numbers::four_digits(100.0 * share));
        Some(match self.said? {
            Upload::Grid => "all coordinates, as integers".to_owned(),
            Upload::Dense => "all coordinates, as 32-bit floats, rounded to the grid by the server".to_owned(),
            Upload::Sparse(sparse) => {
                format!("the largest {} of the coordinates; the others are kept by the device", percent(sparse.share))
            }
            Upload::Mask(mask) => {
                let others = if mask.keep_rest { "are kept by the device" } else { "are forgotten" };
                format!("a random {} of the coordinates, the same for all; the others {others}", percent(mask.share))
            }
        })
    }

    /// What a server sees of single updates beside their values.
    pub(super) fn shows_places(&self) -> bool {
        matches!(self.said, Some(Upload::Sparse(_)))
    }
}

impl Plan {
    /// Bytes from one device in a round, and to it.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn upload_bytes(&self, round: u64) -> Result<(u64, u64), ConfigError> {
        self.upload.bytes(self.phase(round), round)
    }

    /// The planned traffic of the rounds before this one.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn sent(&self, rounds: u64) -> Result<Sent, ConfigError> {
        let warm_up = match self.upload.said {
            Some(Upload::Sparse(sparse)) => sparse.warm_up.min(rounds),
            _ => 0,
        };
        let mut sent = Sent::default();
        let mut add = |from: u64, to: u64, cohort: u64| -> Result<(), ConfigError> {
            if from >= to {
                return Ok(());
            }
            let ((up, down), uploads) = (self.upload_bytes(from)?, cohort.saturating_mul(to - from));
            sent.uploads = sent.uploads.saturating_add(uploads);
            sent.up_bytes = sent.up_bytes.saturating_add(up.saturating_mul(uploads));
            sent.down_bytes = sent.down_bytes.saturating_add(down.saturating_mul(uploads));
            Ok(())
        };
        for round in 0..warm_up {
            add(round, round + 1, self.stage(round).cohort)?;
        }
        let ends = self.stages()[1..].iter().map(|stage| stage.from).chain([self.rounds]);
        for (stage, end) in self.stages().iter().zip(ends) {
            add(stage.from.max(warm_up), end.min(rounds), stage.cohort)?;
        }
        Ok(sent)
    }
}

/// A share of so many coordinates, at least one.
fn some_of(parameters: usize, share: f64) -> usize {
    (libm::round(parameters as f64 * share) as usize).clamp(1, parameters.max(1))
}

/// The bits of the place of one of so many coordinates.
fn place_bits(parameters: usize) -> u64 {
    u64::from(usize::BITS - parameters.saturating_sub(1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{TREE, plan, plan_for, refused},
        *,
    };

    const GIB: f64 = (1u64 << 30) as f64;

    /// Popov et al. 2018, section 2.6: four nodes, the first round through one after the other, 27 rounds of all.
    const TABLE_4: [&str; 9] = [
        "rounds=31",
        "noise_seed=1",
        "participation.kind=arrival",
        "participation.population=4",
        "participation.cohort=1",
        "participation.min_separation=0",
        "participation.max_participations=31",
        "privacy.mechanism=none",
        "schedule=[{ from = 4, cohort = 4 }]",
    ];

    const NONE: [&str; 2] = ["privacy.noise_multiplier=", "privacy.delta="];

    fn with<'a>(set: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        set.iter().chain(more).copied().collect()
    }

    #[test]
    fn the_bytes_of_table_4_are_the_papers() {
        let set = with(&with(&TABLE_4, &NONE), &["upload.kind=dense"]);
        let sent = plan_for("ptb1500", &set).sent(31).unwrap();
        assert_eq!((sent.uploads, sent.up_bytes), (112, 112 * 51_022_000 * 4));
        assert_eq!(format!("{:.2}", sent.up_bytes as f64 / GIB), "21.29");
        assert_eq!(sent.down_bytes, sent.up_bytes);
        let first = plan_for("ptb1500", &set).sent(4).unwrap();
        assert_eq!(first.uploads, 4, "the first round of theirs is four of ours, of one node each");
        // Of Deep Gradient Compression they print what 53 thousand uploads at Lin's ratio of 462 are: 332 batches of 20 x 35 words on each of
        // 4 nodes, 40 times.
        let theirs = 53_120.0 * 51_022_000.0 * 4.0 / 462.0;
        assert_eq!(format!("{:.2}", theirs / GIB), "21.85");
    }

    /// A size of 174.43 MiB is 29,947 words of the 30 thousand that they speak of; ten of them are their 1.70 GiB.
    #[test]
    fn the_bytes_of_table_3_are_the_papers() {
        let model = lm::model::config::ModelConfig::preset("zaremba650").unwrap().with_vocabulary(29_947);
        let parameters = lm::model::parameters::ParameterLayout::new(&model).unwrap().len() as f64;
        assert_eq!(format!("{:.2} {:.2}", parameters / 1e7, parameters * 4.0 / f64::from(1 << 20)), "4.57 174.43");
        assert_eq!(format!("{:.2}", 10.0 * parameters * 4.0 / GIB), "1.70");
    }

    #[test]
    fn an_upload_costs_what_it_says() {
        let parameters = plan(&[]).parameters.len() as u64;
        let bytes = |set: &[&str]| plan(set).upload_bytes(59).unwrap();
        let whole = bytes(&[]);
        // A grid of 2^20 steps: 21 bits and the sign.
        assert_eq!(whole, ((parameters * 22).div_ceil(8), 4 * parameters));
        assert_eq!(bytes(&["upload.kind=grid"]), whole);
        assert_eq!(bytes(&["upload.kind=dense"]), (4 * parameters, 4 * parameters));
        let count = (parameters as f64 * 0.01).round() as u64;
        let place = 64 - u64::from((parameters - 1).leading_zeros());
        let sparse = ["noise_seed=1", "upload.kind=sparse", "upload.share=0.01"];
        assert_eq!(bytes(&sparse).0, (count * (place + 22)).div_ceil(8));
        assert_eq!(bytes(&["upload.kind=mask", "upload.share=0.01"]).0, (count * 22).div_ceil(8));
        // What stands beside the update is sent with it: the clip bit of an adaptive clip, in 17 bits.
        let adaptive = with(&sparse, &["clip.kind=adaptive", "clip.quantile=0.5"]);
        assert_eq!(bytes(&adaptive).0, (count * (place + 22)).div_ceil(8) + 3);
    }

    /// 25, 6.25, 1.5625 and 0.4 % of Lin et al. 2017, section 3.3, to the digits that a share has.
    #[test]
    fn the_warm_up_is_the_papers() {
        let set = ["noise_seed=1", "upload.kind=sparse", "upload.share=0.001", "upload.warm_up=4"];
        let plan = plan_for("ptb1500", &with(&set, &["clip.norm=1"]));
        let share = |round| plan.upload.largest(round).unwrap() as f64 / 51_022_000.0;
        let shares: Vec<String> = (0..6).map(|round| format!("{:.3}", 100.0 * share(round))).collect();
        assert_eq!(shares, ["25.119", "6.310", "1.585", "0.398", "0.100", "0.100"]);
        let of = |round: u64| plan.upload_bytes(round).unwrap().0;
        assert_eq!(plan.sent(6).unwrap().up_bytes, 200 * (of(0) + of(1) + of(2) + of(3) + 2 * of(5)));
    }

    #[test]
    fn a_mask_is_public_and_another_in_every_round() {
        let set = ["upload.kind=mask", "upload.share=0.1", "seed=5"];
        let (plan, again) = (plan(&set), plan(&with(&set, &["noise_seed=9"])));
        let mask = plan.upload.mask(3).unwrap();
        assert_eq!(Some(&mask), again.upload.mask(3).as_ref(), "it follows from the public seed");
        assert_ne!(Some(&mask), plan.upload.mask(4).as_ref());
        assert_eq!(mask.len(), plan.upload.coordinates());
        assert!(mask.is_sorted_by(|a, b| a < b) && (mask[mask.len() - 1] as usize) < plan.parameters.len());
    }

    /// What is accounted for is what it is without a mask, and what is noised is the mask alone.
    #[test]
    fn p1_a_mask_has_noise_on_its_coordinates_alone_and_the_same_epsilon() {
        let (whole, masked) = (plan(&[]), plan(&["upload.kind=mask", "upload.share=0.1"]));
        let layout = |plan: &Plan| plan.phases()[0].released_layout().unwrap();
        assert_eq!(layout(&masked).len(), masked.upload.coordinates());
        assert_eq!(layout(&whole).len(), whole.parameters.len());
        // Fewer coordinates are rounded, so an update may be longer by less: never by more.
        let (masked, whole) = (masked.epsilon(60).unwrap().get(), whole.epsilon(60).unwrap().get());
        assert!((masked / whole - 1.0).abs() < 1e-3, "{masked} {whole}");
    }

    #[test]
    fn what_would_tell_too_much_or_has_no_proof_is_refused() {
        let sparse = ["noise_seed=1", "upload.kind=sparse", "upload.share=0.01"];
        let mask = ["upload.kind=mask", "upload.share=0.01"];
        let kept = with(&mask, &["noise_seed=1", "upload.keep_rest=true"]);
        let secagg = ["aggregation=secagg", "privacy.rotation=true"];
        let fixed_size = ["participation.kind=fixed-size"];
        let devices = with(&TREE, &["unit=device", "data.kind=devices"]);
        for (set, key, word) in [
            (with(&devices, &["upload.kind=dense"]), "upload.kind", "integers"),
            (with(&devices, &with(&sparse, &["aggregation=secagg"])), "upload.kind", "mask"),
            (with(&devices, &mask), "upload.kind", "gaussian"),
            (
                with(&devices, &with(&sparse, &["participation.max_participations=1"])),
                "participation.max_participations",
                "later round",
            ),
            (with(&devices, &["schedule=[{ from = 3, local_epochs = 2 }]"]), "schedule.0.local_epochs", "simulation"),
            (with(&sparse, &["aggregation=secagg"]), "upload.kind", "mask"),
            (with(&secagg, &["upload.kind=dense"]), "upload.kind", "grid"),
            (with(&kept, &secagg), "upload.keep_rest", "plain"),
            (with(&sparse, &["noise_seed="]), "noise_seed", "simulation"),
            (with(&kept, &["noise_seed="]), "noise_seed", "simulation"),
            (with(&sparse, &fixed_size), "participation.kind", "poisson"),
            (with(&kept, &fixed_size), "participation.kind", "poisson"),
            (with(&sparse, &["privacy.rotation=true"]), "privacy.rotation", "grid"),
            (vec!["upload.kind=dense", "privacy.rotation=true"], "privacy.rotation", "integers"),
            (with(&sparse, &["clip.greedy=true"]), "clip.greedy", "grid"),
            (with(&mask, &["clip.greedy=true"]), "clip.greedy", "grid"),
            (with(&mask, &["clip.kind=per-layer"]), "clip.kind", "flat"),
            (with(&mask, &TREE), "upload.kind", "gaussian"),
            (with(&mask, &["upload.share=1"]), "upload.share", "below 1"),
            (with(&mask, &["upload.share=0"]), "upload.share", "above 0"),
            (with(&sparse, &["upload.momentum=1"]), "upload.momentum", "below 1"),
            (with(&sparse, &["upload.local_clip=0"]), "upload.local_clip", "above 0"),
            (with(&sparse, &["upload.warm_up=61"]), "upload.warm_up", "60"),
            (with(&sparse, &["participation.kind=once"]), "participation.kind", "mask"),
            (vec!["schedule=[{ from = 3, local_epochs = 0 }]"], "schedule.0.local_epochs", "from 1"),
            (
                vec!["local.algorithm=fedsgd-all", "schedule=[{ from = 3, local_epochs = 2 }]"],
                "schedule.0.local_epochs",
                "fedavg",
            ),
        ] {
            let (refused_key, problem) = refused(&set);
            assert!(refused_key == key && problem.contains(word), "{set:?}: {refused_key}: {problem}");
        }
        // Without noise nothing is accounted for, and a mask alone depends on nobody.
        plan(&with(&with(&sparse, &fixed_size), &with(&["privacy.mechanism=none"], &NONE)));
        plan(&with(&mask, &fixed_size));
        plan(&with(&mask, &secagg));
        plan(&with(&sparse, &TREE));
        plan(&with(&devices, &["upload.kind=grid"]));
        // What devices keep is nothing that a server would have to compute again: its noise can be secret.
        plan(&with(&devices, &with(&sparse, &["noise_seed="])));
    }

    /// Rule P12: a list of places is a view of single updates, and the statement says whose.
    #[test]
    fn p12_the_ledger_says_what_leaves_and_who_sees_the_places() {
        let sparse = ["noise_seed=1", "upload.kind=sparse", "upload.share=0.01"];
        let simulated = plan(&sparse);
        let said = stated(&simulated);
        assert!(said.contains("a server would also see in the clear which coordinates each device sends"), "{said}");
        assert!(simulated.ledger.phases[0].parameters["upload"].starts_with("the largest 1.000 %"));
        let whole = plan(&[]);
        assert!(!stated(&whole).contains("coordinates") && !whole.ledger.phases[0].parameters.contains_key("upload"));
    }

    /// The statement of a real fleet had the sentence of one that sends everything: who sees the places was said of simulations alone, where nobody is
    /// protected anyway.
    #[test]
    fn p12_the_statement_of_real_devices_says_that_the_server_sees_the_places() {
        let devices = with(&TREE, &["unit=device", "data.kind=devices"]);
        let of = |more: &[&str]| stated(&plan(&with(&devices, more)));
        let sparse = of(&["upload.kind=sparse", "upload.share=0.01"]);
        assert!(sparse.contains("seen by the server, in memory, until each is added"), "{sparse}");
        assert_eq!(sparse.matches("sees in the clear which coordinates each device sends").count(), 2, "{sparse}");
        assert!(!of(&["upload.kind=grid"]).contains("which coordinates"));
    }

    /// The statement of a plan, as its owner reads it.
    fn stated(plan: &Plan) -> String {
        let key = ledger::SigningKey::generate().unwrap();
        let ledger = ledger::Ledger::create(ledger::MemoryStore::new(), plan.ledger.clone(), key, 0).unwrap();
        ledger::statement::Statement::of(&ledger).unwrap().to_markdown()
    }

    #[test]
    fn epochs_follow_the_schedule() {
        let plan = plan(&[
            "local.epochs=10",
            "schedule=[{ from = 4, local_epochs = 3 }, { from = 9, local_learning_rate = 0.1 }]",
        ]);
        assert_eq!(
            [0, 3, 4, 8, 9].map(|round| plan.stage(round).local_epochs),
            [Some(10), Some(10), Some(3), Some(3), Some(3)]
        );
        let constant = super::super::tests::plan(&["local.epochs=10"]);
        assert_eq!(constant.stage(0).local_epochs, None, "devices know it from their plan");
    }
}
