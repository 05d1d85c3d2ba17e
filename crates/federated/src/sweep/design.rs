//! Plans the runs of a sweep: every combination of some settings, each planned before anything runs.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{
    folder_name,
    grid::{Axis, Variant, combinations},
};
use crate::{
    config::{Config, ConfigError, Document},
    plan::Plan,
    run::{Opened, RunError},
};

/// A sweep that cannot be run.
#[derive(Debug, Error)]
pub enum DesignError {
    /// An axis that cannot be meant.
    #[error(transparent)]
    Grid(ConfigError),
    /// Two combinations whose runs would share a folder.
    #[error("{first} and {second} would share the folder {folder}")]
    SameFolder {
        /// The first of the two runs.
        first: String,
        /// The second of the two runs.
        second: String,
        /// The folder that both would share.
        folder: String,
    },
    /// The settings of a combination are wrong.
    #[error("{variant}: {error}")]
    Settings {
        /// The name of the combination.
        variant: String,
        /// The underlying error.
        error: ConfigError,
    },
    /// Runs over private data that cannot be accounted together (rule P15).
    #[error(
        "{variant}: all runs on private data are accounted for together, and runs with different units or adjacencies do not compose; run a separate sweep for each"
    )]
    DoNotCompose {
        /// The first that differs.
        variant: String,
    },
    /// The text or the start of a run cannot be opened.
    #[error(transparent)]
    Run(RunError),
}

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Design {
    /// The keys that vary.
    pub axes: Vec<Axis>,
    /// Every combination.
    pub variants: Vec<Variant>,
    /// The settings of each.
    pub configs: Vec<Config>,
    /// What should be known before, each with the name of its combination.
    pub warnings: Vec<String>,
}

impl Design {
    /// Every combination of the axes over settings, with other values for some in all runs. Everything that can be refused is
    /// refused here.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(text: &str, set: &[String], grid: &[String]) -> Result<Self, DesignError> {
        let axes = grid.iter().map(|text| Axis::parse(text)).collect::<Result<Vec<_>, _>>();
        let axes = axes.map_err(DesignError::Grid)?;
        let variants = combinations(&axes).map_err(DesignError::Grid)?;
        check_names(&variants)?;
        let (mut configs, mut warnings, mut protects) = (Vec::new(), Vec::new(), None);
        for variant in &variants {
            let (config, plan) = planned(text, &[set, &variant.set[..]].concat(), &variant.name)?;
            warnings.extend(plan.warnings.iter().map(|warning| format!("{}: {warning}", variant.name)));
            let this = (plan.ledger.unit, plan.ledger.adjacency);
            if config.data.is_stored() && *protects.get_or_insert(this) != this {
                return Err(DesignError::DoNotCompose { variant: variant.name.clone() });
            }
            configs.push(config);
        }
        Ok(Self { axes, variants, configs, warnings })
    }

    /// The folder of a run, within that of the sweep.
    #[must_use]
    pub fn place(&self, variant: usize, seed: u64) -> PathBuf {
        Path::new(&folder_name(&self.variants[variant].name)).join(format!("seed-{seed}"))
    }
}

fn check_names(variants: &[Variant]) -> Result<(), DesignError> {
    for (number, variant) in variants.iter().enumerate() {
        let folder = folder_name(&variant.name);
        if let Some(other) = variants[..number].iter().find(|v| folder_name(&v.name) == folder) {
            let (first, second) = (other.name.clone(), variant.name.clone());
            return Err(DesignError::SameFolder { first, second, folder });
        }
    }
    Ok(())
}

/// Settings and the plan that they make.
fn planned(text: &str, set: &[String], name: &str) -> Result<(Config, Plan), DesignError> {
    let of_variant = |error: ConfigError| DesignError::Settings { variant: name.to_owned(), error };
    let document = Document::new(text, set).map_err(of_variant)?;
    let config = document.config().map_err(of_variant)?;
    let located = |error: RunError| match error {
        RunError::Config(error) => of_variant(document.locate(error)),
        other => DesignError::Run(other),
    };
    let opened = Opened::new(&config).map_err(located)?;
    opened.check_presence(&config).map_err(located)?;
    let plan = Plan::new(config.clone(), &opened.setting()).map_err(|e| located(e.into()))?;
    Ok((config, plan))
}
