//! Ends a run: writes the model and the statement.

use device::learner::Part;
use ledger::{
    Ended, Ledger, LedgerError, LedgerStore,
    statement::{Statement, rounded_up},
};
use lm::folder::{Folder, Guarantee, Learned, LearnedConfig, LearnedPart, Weights};
use privacy::rng::Randomness;
use serde::Serialize;

use super::{
    Opened, Over, Run, RunError, is_undecided,
    kept::alone,
    known_heads, ledger_time,
    stated::{price, protects},
    told::{Told, notes},
};
use crate::{
    burden::Burden,
    canaries::{Canaries, Shown},
    home::{Home, Paper, Records},
    metrics::Metrics,
    plan::Plan,
    price::Price,
    round::attempts::settled_rounds,
};

/// The result of a run, for people and programs.
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
    /// Whether the noise could be repeated.
    pub simulated: bool,
    /// What the statement says: `epsilon`, or `epsilon_if_secret` where nothing is guaranteed.
    #[serde(flatten)]
    pub price: Price,
    /// The delta of the epsilons.
    pub delta: f64,
    /// What a person can quote.
    pub sentence: String,
    /// What else should be known, each in a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The head of the ledger.
    pub ledger_head: String,
    /// What its canaries show, where it has some and is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Shown>,
}

impl<H: Home + Records> Run<'_, H> {
    /// Writes the statement of what there is so far, and says where the run stands. A run of a sweep that is not decided has no
    /// statement: what it costs is what all of them cost (rule P22).
    ///
    /// # Errors
    /// When the disk fails.
    pub fn so_far(&self) -> Result<Ending, RunError> {
        if is_undecided(&self.home)? {
            self.home.remove_paper(Paper::Statement)?;
            self.home.remove_paper(Paper::StatementJson)?;
            return self.ending(&Statement::of(self.ledger())?);
        }
        self.ending(&write_statement(&self.home, self.ledger())?)
    }

    /// Ends the run permanently: the last evaluation, the ledger closed and what its noise was drawn from destroyed, the
    /// statement, then the model.
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

    /// Records an attempt during which the program ended, now that nobody asks for it again.
    fn abandon(&mut self) -> Result<(), RunError> {
        let time = self.time();
        if let Some(failed) = self.rounds.abandon_evaluation(time)? {
            self.warnings.push(failed.to_string());
        }
        if let Some(failed) = self.rounds.abandon(time)? {
            self.warnings.push(failed.to_string());
            if self.plan.randomness() == Randomness::Secret {
                self.home.secrets().settle_cohort_seed(settled_rounds(self.ledger()))?;
            }
        }
        Ok(())
    }

    /// Writes statement and model.
    fn leave(&self) -> Result<Ending, RunError> {
        let ending = self.so_far()?;
        let statement = Statement::of(self.ledger())?;
        let guarantee = if is_undecided(&self.home)? {
            Guarantee::None {
                why: "it is one of several runs of a sweep, and the choice among them is not counted yet".into(),
            }
        } else {
            guarantee(&statement)
        };
        self.home.write_model(&folder(self.plan, self.opened, self.state().model.clone(), guarantee))?;
        Ok(Ending { audit: self.audit(&statement)?, ..ending })
    }

    /// What the canaries show of the model that was written, where there are some; kept beside it. What a run of a sweep costs is not
    /// known before the choice, so nothing can be compared with it.
    fn audit(&self, statement: &Statement) -> Result<Option<Shown>, RunError> {
        let Some(canaries) = Canaries::of(self.plan) else { return Ok(None) };
        if is_undecided(&self.home)? {
            return Ok(None);
        }
        let scored = canaries.scores(self.opened.first_parameters(), &self.state().model);
        let shown = Shown::of(&canaries, &scored, price(statement).epsilon, self.ledger())?;
        let text = serde_json::to_string_pretty(&shown).map_err(|e| LedgerError::storage("the audit", e))?;
        self.home.write_paper(Paper::Audit, &text)?;
        Ok(Some(shown))
    }

    fn ending(&self, statement: &Statement) -> Result<Ending, RunError> {
        let metrics = match self.history.last() {
            Some(last) => last.clone(),
            None => self.measure()?,
        };
        let history = if self.history.is_empty() { std::slice::from_ref(&metrics) } else { &self.history };
        let stopped = match &self.over {
            None | Some(Over::Done) => None,
            Some(Over::Budget(why)) => Some(format!("the budget: {why}")),
            Some(Over::Accurate) => Some("the target accuracy is reached".into()),
            Some(Over::ByHand) => Some("it was ended by hand".into()),
        };
        let rounds = self.state().round;
        let (cohort, failed) = (self.plan.stage(rounds).cohort, self.failed());
        let told = Told { cohort, rounds, history, totals: self.totals, failed: &failed, statement };
        Ok(Ending {
            folder: self.home.name(),
            rounds,
            stopped,
            simulated: self.is_simulation(),
            price: price(statement),
            delta: self.plan.ledger.delta.get(),
            sentence: told.sentence() + alone(&self.home)?,
            notes: notes(
                Burden::of(self.plan).as_ref(),
                self.totals.as_ref(),
                self.history.last().and_then(|line| line.sent),
            ),
            ledger_head: statement.ledger.head.to_string(),
            metrics,
            audit: None,
        })
    }
}

/// Ends a run whose data, settings or checkpoints cannot be had any more: what its noise was drawn from is destroyed, its
/// ledger closed and its statement written. There is no model.
///
/// # Errors
/// When the ledger cannot be opened, or something cannot be destroyed or kept.
pub fn end_without_model(home: &(impl Home + Records)) -> Result<Statement, RunError> {
    // Before anything is mended: what shows that entries are missing must not be cleared away.
    let heads = known_heads(home)?;
    let secrets = home.secrets();
    let (mut ledger, _) = secrets.open_ledger(home.open_store()?, &heads)?;
    if is_undecided(home)? {
        return Err(RunError::Undecided { run: home.name() });
    }
    if !ledger.is_closed() {
        let because = secrets.closing_begun()?.unwrap_or(Ended::ByHand);
        let time = ledger_time(ledger.plan().randomness);
        match ledger.record_interrupted(time) {
            // Which one it was cannot be known any more, and the run ends all the same.
            Err(LedgerError::AttemptDamaged { .. }) => {}
            other => _ = other?,
        }
        secrets.close_ledger(&mut ledger, because, time)?;
    }
    home.remove_paper(Paper::PartOfASweep)?;
    write_statement(home, &ledger)
}

/// What the card of a model says that its ledger guarantees.
pub(super) fn guarantee(statement: &Statement) -> Guarantee {
    if statement.guarantee.holds {
        Guarantee::Private {
            epsilon: rounded_up(statement.guarantee.epsilon.get()),
            delta: statement.guarantee.delta.to_string(),
            protects: protects(statement),
            statement: without_title(&statement.to_markdown()),
            ledger_head: statement.ledger.head.to_string(),
        }
    } else if statement.accounting.randomness != Randomness::Secret {
        Guarantee::None { why: "the noise was simulated and could be repeated".into() }
    } else {
        Guarantee::None { why: "users' data was released without noise".into() }
    }
}

/// A model as its files have it.
pub(super) fn folder(plan: &Plan, opened: &Opened, values: Vec<f32>, guarantee: Guarantee) -> Folder {
    Folder {
        name: plan.model_name.clone(),
        rules: opened.rules(),
        vocabulary: opened.vocabulary().clone(),
        weights: weights(opened, values),
        guarantee,
    }
}

fn weights(opened: &Opened, values: Vec<f32>) -> Weights {
    let learner = opened.learner();
    if let Some(config) = learner.recurrent() {
        return Weights::Recurrent { config: config.clone(), values };
    }
    let part = |part: &Part| LearnedPart { name: part.name.clone(), rows: part.rows, columns: part.columns };
    let config = LearnedConfig {
        learner: learner.name().to_owned(),
        vocabulary: opened.vocabulary().len(),
        settings: learner.settings(),
        parts: learner.layout().parts().iter().map(part).collect(),
    };
    Weights::Learned(Learned { config, values })
}

/// Writes what a ledger guarantees, for people and for programs.
pub(super) fn write_statement<S: LedgerStore>(home: &dyn Home, ledger: &Ledger<S>) -> Result<Statement, RunError> {
    let statement = Statement::of(ledger)?;
    home.write_paper(Paper::Statement, &statement.to_markdown())?;
    let json = serde_json::to_string_pretty(&statement).map_err(|e| LedgerError::storage("the statement", e))?;
    home.write_paper(Paper::StatementJson, &json)?;
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
