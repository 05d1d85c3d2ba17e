//! What a run leaves behind: the model, the statement, the report.

use std::path::Path;

use crate::ledger_file::FileStore;
use device::learner::Part;
use ledger::{
    DataSource, Ledger, LedgerError,
    statement::{Statement, rounded_up},
};
use lm::folder::{Folder, Guarantee, Learned, LearnedConfig, LearnedPart, Weights};
use privacy::{Epsilon, Rho};
use serde::{Deserialize, Serialize};

use super::{MODEL_FOLDER, Over, Run, RunError, STATEMENT_FILE, STATEMENT_JSON, is_undecided};
use crate::{
    calendar::Moment,
    metrics::Metrics,
    model_folder,
    price::{Meaning, Price},
    report::{Cost, REPORT_FILE, Report, grouped},
};
use durable::files;

/// What a run came to, for people and programs.
#[derive(Debug, Clone, Serialize)]
pub struct Ending {
    /// Its folder.
    pub folder: String,
    /// Rounds that were done.
    pub rounds: u64,
    /// Why it ended, where it is not that all rounds were done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The last evaluation.
    pub metrics: Metrics,
    /// Top 1, the mean over the last five evaluations, as in the papers.
    pub smoothed_accuracy_top1: f64,
    /// Whether the noise could be repeated.
    pub simulated: bool,
    /// What the statement says: `epsilon`, or `epsilon_if_secret` where nothing is guaranteed.
    #[serde(flatten)]
    pub price: Price,
    /// The delta of the epsilons.
    pub delta: f64,
    /// What a person can quote.
    pub sentence: String,
    /// The head of the ledger.
    pub ledger_head: String,
}

impl Run<'_> {
    /// Writes the report of what there is so far.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn report(&self) -> Result<Ending, RunError> {
        let statement = write_statement(&self.folder, self.ledger())?;
        let markdown = statement.to_markdown();
        let ending = self.ending(&statement)?;
        let title = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let participations = ending.metrics.planned_participations;
        let report = Report {
            title: &title,
            started: &Moment::new(self.started).to_string(),
            sentence: &ending.sentence,
            simulated: ending.simulated,
            price: ending.price,
            remark: &remark(&statement),
            delta: self.plan.ledger.delta,
            settings: &self.plan.settings,
            metrics: &self.history,
            timing: &self.timings()?,
            failed: &self.failed(),
            cost: Cost {
                population: self.plan.ledger.population,
                planned_participations: participations,
                most_tokens: self.plan.local.most_tokens.map(|most| participations.saturating_mul(most as u64)),
                simulated_tokens: ending.simulated.then_some(self.tokens),
            },
            statement: &markdown,
            ledger_head: &ending.ledger_head,
        };
        files::write(&self.folder.join(REPORT_FILE), report.html()?.as_bytes())?;
        Ok(ending)
    }

    /// Ends the run for good: the last evaluation, the ledger closed and what its noise was drawn from destroyed, the report,
    /// then the model.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn finish(&mut self) -> Result<Ending, RunError> {
        self.abandon()?;
        self.evaluate_now()?;
        self.checkpoint()?;
        self.find_out_whether_over()?;
        self.close()?;
        self.leave()
    }

    /// The same for a run of a sweep, whose ledger stays open until the choice among the runs is counted in it.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn finish_undecided(&mut self) -> Result<Ending, RunError> {
        self.abandon()?;
        self.evaluate_now()?;
        self.checkpoint()?;
        self.find_out_whether_over()?;
        self.leave()
    }

    /// The model as its files have it.
    fn weights(&self) -> Weights {
        let (learner, values) = (self.opened.learner(), self.state().model.clone());
        if let Some(config) = learner.recurrent() {
            return Weights::Recurrent { config: config.clone(), values };
        }
        let part = |part: &Part| LearnedPart { name: part.name.clone(), rows: part.rows, columns: part.columns };
        let config = LearnedConfig {
            learner: learner.name().to_owned(),
            vocabulary: self.opened.vocabulary().len(),
            settings: learner.settings(),
            parts: learner.layout().parts().iter().map(part).collect(),
        };
        Weights::Learned(Learned { config, values })
    }

    /// Records an attempt in whose midst the program ended, now that nobody asks for it again.
    fn abandon(&mut self) -> Result<(), RunError> {
        let time = self.time();
        if let Some(failed) = self.rounds.abandon(time)? {
            self.warnings.push(failed.to_string());
        }
        Ok(())
    }

    /// Writes report and model.
    fn leave(&self) -> Result<Ending, RunError> {
        let ending = self.report()?;
        let statement = Statement::of(self.ledger())?;
        let guarantee = if is_undecided(&self.folder) {
            Guarantee::None {
                why: "it is one of several runs of a sweep, and the choice among them is not counted yet".into(),
            }
        } else if statement.guarantee.holds {
            Guarantee::Private {
                epsilon: rounded_up(statement.guarantee.epsilon.get()),
                delta: statement.guarantee.delta.to_string(),
                protects: protects(&statement),
                statement: without_title(&statement.to_markdown()),
                ledger_head: ending.ledger_head.clone(),
            }
        } else if ending.simulated {
            Guarantee::None { why: "the noise was simulated and could be repeated".into() }
        } else {
            Guarantee::None { why: "users' data was released without noise".into() }
        };
        let model = Folder {
            name: self.plan.config.model.preset.clone().unwrap_or_else(|| "keyhush".into()),
            rules: self.opened.rules(),
            vocabulary: self.opened.vocabulary().clone(),
            weights: self.weights(),
            guarantee,
        };
        model_folder::write(&model, &self.folder.join(MODEL_FOLDER))?;
        Ok(ending)
    }

    fn ending(&self, statement: &Statement) -> Result<Ending, RunError> {
        let metrics = match self.history.last() {
            Some(last) => last.clone(),
            None => self.measure()?,
        };
        let accuracies: Vec<f64> = self.history.iter().map(|m| m.accuracy_top1).collect();
        let smoothed = crate::report::smoothed(&accuracies).last().copied().unwrap_or(metrics.accuracy_top1);
        let stopped = match &self.over {
            None | Some(Over::Done) => None,
            Some(Over::Budget(why)) => Some(format!("the budget: {why}")),
            Some(Over::Accurate) => Some("the accuracy that was asked for is reached".into()),
            Some(Over::ByHand) => Some("it was ended by hand".into()),
        };
        let mut ending = Ending {
            folder: self.folder.display().to_string(),
            rounds: self.state().round,
            stopped,
            smoothed_accuracy_top1: smoothed,
            simulated: self.is_simulation(),
            price: price(statement),
            delta: self.plan.ledger.delta.get(),
            sentence: String::new(),
            ledger_head: statement.ledger.head.to_string(),
            metrics,
        };
        ending.sentence = self.sentence(&ending, statement);
        Ok(ending)
    }

    /// What a person can quote: the accuracy, for whom it was paid, and the price, if there is one (rule P23).
    fn sentence(&self, ending: &Ending, statement: &Statement) -> String {
        let Ending { rounds, metrics, simulated, price, .. } = ending;
        let unit = statement.unit.name();
        let made_up = if statement.data.is_made_up() { "made-up " } else { "" };
        let (cohort, population) = (grouped(self.plan.stage(*rounds).cohort), grouped(statement.population));
        let accuracy = 100.0 * metrics.accuracy_top1;
        let mood = if *simulated { "In simulation, the model predicts" } else { "The model predicts" };
        let failed = match self.failed().iter().filter(|failed| failed.passed_over).count() {
            0 => String::new(),
            passed_over => format!(", {passed_over} of which came to nothing"),
        };
        let done = format!(
            "{mood} {accuracy:.1} % of the next words of held-out users after {rounds} rounds of {cohort} of {population} {made_up}{unit}s{failed}"
        );
        if !price.epsilon.is_finite() {
            return format!("{done}, with no privacy at all (epsilon is infinite).");
        }
        let (epsilon, delta) = (rounded_up(price.epsilon.get()), format!("{:e}", statement.guarantee.delta.get()));
        let (adjacency, counted) = (statement.adjacency, counted(statement));
        let private = format!("{unit}-level ({epsilon}, {delta})-differential privacy ({adjacency}){counted}");
        match (price.meaning, &statement.data) {
            (Meaning::IfSecret, _) => {
                format!("{done}. No guarantee: the noise was simulated; with secret noise it would be {private}.")
            }
            (_, DataSource::MadeUp { .. }) => format!("{done}, with {private}; nobody real is protected."),
            (_, DataSource::Users { .. }) => format!("{done}, with {private}."),
        }
    }
}

/// The epsilon of a statement: what is guaranteed, or what would be.
fn price(statement: &Statement) -> Price {
    let guarantee = &statement.guarantee;
    price_of(guarantee.epsilon, guarantee.rho, guarantee.epsilon_if_secret)
}

fn price_of(epsilon: Epsilon, rho: Option<Rho>, epsilon_if_secret: Option<Epsilon>) -> Price {
    match epsilon_if_secret {
        Some(epsilon) => Price { meaning: Meaning::IfSecret, epsilon, rho: None },
        None => Price { meaning: Meaning::Guaranteed, epsilon, rho },
    }
}

/// What the statement in the folder of a run says; none where there is none yet.
#[must_use]
pub fn stated(folder: &Path) -> Option<Price> {
    #[derive(Deserialize)]
    struct Said {
        guarantee: Guaranteed,
    }
    #[derive(Deserialize)]
    struct Guaranteed {
        epsilon: Epsilon,
        rho: Option<Rho>,
        epsilon_if_secret: Option<Epsilon>,
    }
    let Said { guarantee } = serde_json::from_str(&files::read_text(&folder.join(STATEMENT_JSON)).ok()?).ok()?;
    Some(price_of(guarantee.epsilon, guarantee.rho, guarantee.epsilon_if_secret))
}

/// What an epsilon counts beside this run (rule P22).
fn counted(statement: &Statement) -> String {
    match statement.guarantee.sweep_runs {
        0 => String::new(),
        others => format!(", all {} runs of its sweep counted", others + 1),
    }
}

/// What must be said beside an epsilon.
fn remark(statement: &Statement) -> String {
    let nobody = if statement.data.is_made_up() { ", of a made-up crowd: nobody real is protected" } else { "" };
    counted(statement) + nobody
}

/// Whom a model's guarantee is for.
fn protects(statement: &Statement) -> String {
    let unit = statement.unit.name();
    let each = match (statement.group, &statement.data) {
        (1, DataSource::Users { .. }) => format!("each {unit}"),
        (1, DataSource::MadeUp { .. }) => format!("each {unit} of a made-up crowd (nobody real is protected)"),
        (group, DataSource::Users { .. }) => format!("each group of {group} {unit}s"),
        (group, DataSource::MadeUp { .. }) => {
            format!("each group of {group} {unit}s of a made-up crowd (nobody real is protected)")
        }
    };
    each + &counted(statement)
}

/// Writes what a ledger guarantees, for people and for programs.
pub(super) fn write_statement(folder: &Path, ledger: &Ledger<FileStore>) -> Result<Statement, RunError> {
    let statement = Statement::of(ledger)?;
    files::write(&folder.join(STATEMENT_FILE), statement.to_markdown().as_bytes())?;
    let json = serde_json::to_vec_pretty(&statement).map_err(|e| LedgerError::storage("the statement", e))?;
    files::write(&folder.join(STATEMENT_JSON), &json)?;
    Ok(statement)
}

/// A statement begins with a title of its own.
fn without_title(markdown: &str) -> String {
    let rest = markdown.strip_prefix("# ").and_then(|m| m.split_once('\n')).map_or(markdown, |(_, rest)| rest);
    rest.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_taken_off_once() {
        assert_eq!(without_title("# A\n\n# B\n"), "# B\n");
        assert_eq!(without_title("text"), "text");
    }
}
