//! What a run leaves behind: the model, the statement, the report.

use lm::folder::{Folder, Guarantee, Weights};
use privacy::{
    Epsilon,
    ledger::LedgerError,
    rng::Randomness,
    statement::{Statement, rounded_up},
};
use serde::Serialize;

use super::{MODEL_FOLDER, Over, Run, RunError, STATEMENT_FILE, STATEMENT_JSON, opened::is_simulated};
use crate::{
    calendar::Moment,
    files,
    metrics::Metrics,
    model_folder,
    report::{Cost, REPORT_FILE, Report, grouped},
};

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
        let statement = Statement::of(self.ledger())?;
        let markdown = statement.to_markdown();
        files::write(&self.folder.join(STATEMENT_FILE), markdown.as_bytes())?;
        let json = serde_json::to_vec_pretty(&statement).map_err(|e| LedgerError::storage("the statement", e))?;
        files::write(&self.folder.join(STATEMENT_JSON), &json)?;
        let ending = self.ending(&statement)?;
        let title = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let participations = ending.metrics.planned_participations;
        let report = Report {
            title: &title,
            started: &Moment::new(self.started).to_string(),
            sentence: &ending.sentence,
            simulated: ending.simulated,
            delta: self.plan.ledger.delta,
            settings: &self.plan.settings,
            metrics: &self.history,
            timing: &self.timings()?,
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
        self.evaluate_now()?;
        self.checkpoint()?;
        self.find_out_whether_over()?;
        self.leave()
    }

    /// Writes report and model.
    fn leave(&self) -> Result<Ending, RunError> {
        let ending = self.report()?;
        let statement = Statement::of(self.ledger())?;
        let guarantee = if statement.guarantee.holds {
            Guarantee::Private {
                epsilon: rounded_up(statement.guarantee.epsilon.get()),
                delta: statement.guarantee.delta.to_string(),
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
            weights: Weights::Recurrent { config: self.plan.model.clone(), values: self.state().model.clone() },
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
        let imported = self.opened.import().is_some_and(is_simulated);
        let simulated = self.plan.randomness() != Randomness::Secret || imported;
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
            simulated,
            delta: self.plan.ledger.delta.get(),
            sentence: String::new(),
            ledger_head: statement.ledger.head.to_string(),
            metrics,
        };
        ending.sentence = self.sentence(&ending, statement);
        Ok(ending)
    }

    /// What a person can quote: the accuracy, for whom it was paid, and the price.
    fn sentence(&self, ending: &Ending, statement: &Statement) -> String {
        let Ending { rounds, metrics, simulated, .. } = ending;
        let unit = statement.unit.name();
        let (population, adjacency) = (statement.population, statement.adjacency);
        let accuracy = 100.0 * metrics.accuracy_top1;
        let guaranteed = if *simulated {
            statement.guarantee.epsilon_if_secret.unwrap_or(metrics.epsilon)
        } else {
            statement.guarantee.epsilon
        };
        let price = if guaranteed == Epsilon::INFINITE {
            "with no privacy at all (epsilon is infinite)".to_owned()
        } else {
            let (epsilon, delta) = (rounded_up(guaranteed.get()), format!("{:e}", statement.guarantee.delta.get()));
            format!("with {unit}-level ({epsilon}, {delta})-differential privacy ({adjacency})")
        };
        let (cohort, population) = (grouped(self.plan.stage(*rounds).cohort), grouped(population));
        let who = format!("{rounds} rounds of {cohort} of {population} {unit}s");
        let mood = if *simulated { "In simulation, the model predicts" } else { "The model predicts" };
        format!("{mood} {accuracy:.1} % of the next words of held-out users after {who}, {price}.")
    }
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
