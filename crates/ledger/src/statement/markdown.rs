//! A statement as Markdown: numbers rounded up, all sections that the guide recommends.

use std::fmt::Write;

use super::{
    Approved, Basis, DataAccesses, Guarantee, ObservedParticipation, Source, Statement, StreamAccess, rounded_up,
};
use crate::{Aggregation, Closing, DataSource, Ended, Frequency, ImportKind, Start, Unit};
use privacy::{event::Adjacency, rng::Randomness};

/// The page.
pub(super) fn write(statement: &Statement) -> String {
    let mut page = Page(String::from("# Privacy statement\n"));
    page.line(&summary(statement));
    page.section("Setting", &[setting(&statement.setting)]);
    page.section("Data", &[data(&statement.data)]);
    page.section("Data accesses covered", &data_accesses(&statement.data_accesses));
    page.section("Final output", &[format!("The guarantee covers {}", statement.output)]);
    page.section("How the model was chosen", std::slice::from_ref(&statement.choice));
    page.section("Unit of privacy", &[unit(statement)]);
    page.section("Adjacency", &[adjacency(statement)]);
    page.section("Accounting", &accounting(statement));
    page.section("Formal statement", &formal(statement));
    if let Some(found) = &statement.observed {
        page.section("Observed participation", &observed(statement, found));
    }
    if !statement.several_tasks.is_empty() {
        page.section("Devices in several tasks", &statement.several_tasks);
    }
    if let Some(approved) = &statement.approval {
        page.section("Approval", &[approval(approved)]);
    }
    page.section("Not covered", &statement.not_covered);
    page.section("Source", &source(statement));
    page.0
}

struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        let _ = write!(self.0, "\n{text}\n"); // writing to a string does not fail
    }

    /// One paragraph as it is, several as a list.
    fn section(&mut self, title: &str, items: &[String]) {
        self.line(&format!("## {title}"));
        match items {
            [one] => self.line(one),
            many => self.line(&many.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n")),
        }
    }
}

fn summary(statement: &Statement) -> String {
    let guarantee = &statement.guarantee;
    if let Some(seed) = simulated(statement.accounting.randomness) {
        return format!(
            "**No guarantee: simulated.** The noise comes from the seed {seed} and can be recomputed by anyone who knows it."
        );
    }
    if !guarantee.holds {
        return "**No guarantee:** epsilon is infinite.".into();
    }
    let (epsilon, delta) = (rounded_up(guarantee.epsilon.get()), guarantee.delta.get());
    let counted = match guarantee.sweep_runs {
        0 => String::new(),
        others => format!(", all {} runs of its sweep counted", others + 1),
    };
    let (whom, but) = match statement.data {
        DataSource::Users { .. } => ("", ""),
        DataSource::MadeUp { .. } => (" in synthetic data", " **The data is synthetic: nobody real is protected.**"),
    };
    format!("**({epsilon}, {delta:e})-differentially private** for each {}{whom}{counted}.{but}", protected(statement))
}

fn simulated(randomness: Randomness) -> Option<u64> {
    match randomness {
        Randomness::Secret => None,
        Randomness::Simulated { seed } | Randomness::SimulatedFloatingPoint { seed } => Some(seed),
    }
}

fn protected(statement: &Statement) -> String {
    match statement.group {
        1 => statement.unit.name().into(),
        k => format!("group of {k} {}s", statement.unit.name()),
    }
}

fn setting(aggregation: &Aggregation) -> String {
    match aggregation {
        Aggregation::Plain { sees_updates } => {
            format!(
                "Central: updates are summed in the clear and noise is added to the sum. Single updates are seen by {sees_updates}."
            )
        }
        Aggregation::Secure { protocol, sees_updates, sees_sum: Some(who) } => {
            format!(
                "Central, with secure aggregation ({protocol}). {}; the sum before noise is seen by {who}.",
                single_updates(sees_updates.as_deref())
            )
        }
        Aggregation::Secure { protocol, sees_updates: None, sees_sum: None } => {
            format!(
                "Distributed, with secure aggregation ({protocol}). The devices add the noise themselves: nobody sees single updates, or a sum without noise."
            )
        }
        Aggregation::Secure { protocol, sees_updates, sees_sum: None } => {
            format!(
                "Distributed, with secure aggregation ({protocol}). {}; the devices add the noise themselves, and nobody else sees a sum without it.",
                single_updates(sees_updates.as_deref())
            )
        }
    }
}

/// Who sees single updates under secure aggregation.
fn single_updates(sees: Option<&str>) -> String {
    match sees {
        None => "Nobody sees single updates".to_owned(),
        Some(who) => format!("It is simulated: the protocol shows single updates to nobody, but {who} sees them all"),
    }
}

fn data(source: &DataSource) -> String {
    match source {
        DataSource::MadeUp { what } => {
            format!("Synthetic: {what}. It contains no real people, so the guarantee protects nobody.")
        }
        DataSource::Users { what } => format!("Text of people: {what}."),
    }
}

fn data_accesses(accesses: &DataAccesses) -> Vec<String> {
    let mut items: Vec<String> = accesses.streams.iter().map(stream).collect();
    items.push(match accesses.failed_attempts {
        0 => "No round failed.".into(),
        n => format!("Failed attempts at a round in which users took part: {n}."),
    });
    items.extend(
        accesses.data_changes.iter().map(|changed| {
            format!("The users' data changed during the run, and the run was resumed: {}.", changed.why)
        }),
    );
    items.push(match &accesses.start {
        Start::Random => "The model was initialized at random before the first round.".into(),
        Start::Public(public) => format!("The run started from {}, treated as public: {}.", public.what, public.why),
        Start::Ledger { head } => {
            format!("The run started from the model of the ledger {head}, whose cost is included.")
        }
    });
    for import in &accesses.imports {
        let role = match import.kind {
            ImportKind::StartingModel => "Counted as the starting model",
            ImportKind::EarlierTask => "Counted as an earlier task over the same devices",
            ImportKind::SweepRun => "Counted as another run of the sweep",
        };
        let verified = if import.verified { "verified" } else { "not verified" };
        items.push(format!("{role}: {}, ledger {} ({verified}).", import.what, import.head));
    }
    items.extend(accesses.non_private.iter().map(|what| format!("Released **without privacy**: {what}.")));
    items
}

fn stream(access: &StreamAccess) -> String {
    let name = &access.stream;
    let (Some(mechanism), Some(planned)) = (&access.mechanism, access.planned) else {
        return format!("`{name}`: {} releases outside the plan, without privacy.", access.released);
    };
    let participation = access.participation.as_deref().unwrap_or_default();
    let mut text =
        format!("`{name}`: {mechanism}; {} of {planned} planned steps released; {participation}", access.released);
    for (key, value) in &access.parameters {
        let _ = write!(text, "; {key} = {value}"); // writing to a string does not fail
    }
    text.push('.');
    text
}

fn unit(statement: &Statement) -> String {
    let one = match statement.unit {
        Unit::User => "One user: all the text of one person.",
        Unit::Device => "One device: all the text on it.",
        Unit::Example => "One example. This is not a guarantee for persons.",
    };
    let group = match statement.group {
        1 => String::new(),
        k => format!(" The numbers below protect {k} of them together."),
    };
    format!("{one}{group} The plan declares {} of them.", statement.population)
}

fn adjacency(statement: &Statement) -> String {
    let name = statement.unit.name();
    let how = match statement.adjacency {
        Adjacency::AddOrRemove => format!("one {name}'s data is added or removed"),
        Adjacency::ZeroOut => {
            format!("one {name}'s contributions are replaced by zeros, the number of {name}s unchanged")
        }
        Adjacency::ReplaceOne => format!("one {name}'s data is replaced by another's"),
    };
    format!("`{}`: two datasets are neighbours when {how}.", statement.adjacency)
}

fn accounting(statement: &Statement) -> Vec<String> {
    let accounting = &statement.accounting;
    let mut items = vec![if accounting.accountant == accounting.answered_by {
        format!("Accountant: `{}`.", accounting.accountant)
    } else {
        format!("Accountant: `{}`; the answer is that of `{}`.", accounting.accountant, accounting.answered_by)
    }];
    items.extend(accounting.assumes.iter().map(|assumption| format!("Assumes that {}.", clause(assumption))));
    items
}

/// Sentences about noise are noun phrases; the rest are clauses.
fn clause(assumption: &str) -> String {
    let noun = ["noise of", "discrete Gaussian noise"].iter().any(|start| assumption.starts_with(start));
    if noun { format!("there was {assumption}") } else { assumption.to_owned() }
}

fn formal(statement: &Statement) -> Vec<String> {
    let guarantee = &statement.guarantee;
    let delta = format!("{:e}", guarantee.delta.get());
    let mut items = Vec::new();
    if let Some(epsilon) = guarantee.epsilon_if_secret {
        items.push("No guarantee. The noise was simulated and can be recomputed by anyone who knows the seed.".into());
        items.push(format!(
            "With secret noise the same releases would cost epsilon = {} at delta = {delta}.",
            rounded_up(epsilon.get())
        ));
    } else if !guarantee.holds {
        items.push("No guarantee: epsilon is infinite, because something was released without privacy.".into());
    } else {
        items.push(definition(guarantee, &delta));
        items.extend(guarantee.rho.map(|rho| format!("This is also {}-zCDP.", rounded_up(rho.get()))));
    }
    items.extend(limit(guarantee));
    if guarantee.sweep_runs > 0 {
        items.push(format!("This counts this run and all others of its sweep, {} in total.", guarantee.sweep_runs + 1));
    }
    if let Some(alone) = guarantee.epsilon_of_this_run_alone {
        items.push(format!(
            "This run alone, had it not been chosen among them, would have epsilon = {} at delta = {delta}; that is not the guarantee.",
            rounded_up(alone.get())
        ));
    }
    items
}

fn definition(guarantee: &Guarantee, delta: &str) -> String {
    let epsilon = rounded_up(guarantee.epsilon.get());
    let basis = match guarantee.basis {
        Basis::Spent => "for what was released",
        Basis::Plan => "for the whole plan, even if less was released",
        Basis::Budget => "for the whole budget, even if less was spent",
    };
    format!(
        "For all neighbouring datasets D and D' and every set S of outputs, P(M(D) in S) <= e^epsilon P(M(D') in S) + delta, with epsilon = {epsilon} and delta = {delta}, {basis}."
    )
}

fn limit(guarantee: &Guarantee) -> Vec<String> {
    let max = guarantee.max_epsilon.map(|max| match guarantee.basis {
        Basis::Spent | Basis::Plan => {
            let alone = if guarantee.sweep_runs > 0 { ", for this run alone" } else { "" };
            format!("The plan's limit is epsilon = {max}{alone}; the release that would exceed it is refused.")
        }
        Basis::Budget => format!(
            "A zCDP filter enforces the budget of epsilon = {max}, because the course of the run could depend on released values."
        ),
    });
    // A run that did all of its plan, or states all of it, has said so; of a sweep it is one run's.
    let ended_before = guarantee.basis == Basis::Spent && guarantee.sweep_runs == 0;
    let planned = guarantee.planned_epsilon.filter(|whole| ended_before && *whole > guarantee.epsilon);
    let planned = planned.map(|epsilon| format!("The whole plan would cost epsilon = {}.", rounded_up(epsilon.get())));
    max.into_iter().chain(planned).collect()
}

/// What was observed of who took part, and what that would cost.
fn observed(statement: &Statement, found: &ObservedParticipation) -> Vec<String> {
    let name = statement.unit.name();
    let frequency = |found: &Frequency| {
        let between = found.min_separation.map_or_else(
            || "nobody more than once".to_owned(),
            |closest| {
                let rounds = closest.as_rounds_between();
                let plural = if rounds == 1 { "" } else { "s" };
                format!("at least {rounds} other round{plural} between two of one {name}")
            },
        );
        format!("at most {} of one {name}, {between}", found.max_participations)
    };
    let mut items: Vec<String> = found
        .streams
        .iter()
        .map(|(stream, observed)| {
            let (released, all) = (frequency(&observed.released), frequency(&observed.with_failed));
            format!("`{stream}`: participations in releases: {released}; including failed attempts: {all}.")
        })
        .collect();
    let delta = statement.guarantee.delta.get();
    items.extend(found.epsilon.map(|epsilon| {
        format!(
            "Computed with these (including failed attempts) instead of the limits, the same releases would have epsilon = {} at delta = {delta:e}.",
            rounded_up(epsilon.get())
        )
    }));
    items.extend(found.no_epsilon.map(|why| format!("No epsilon is computed from these: {}.", why.words())));
    items.extend(found.caveats.iter().cloned());
    items
}

/// Who approved the plan.
fn approval(approved: &Approved) -> String {
    let (Some(by), Some(task), Some(realm)) = (approved.by, &approved.task, approved.realm) else {
        return "No privacy officer approved the plan.".into();
    };
    let vouched: Vec<String> =
        approved.vouched.iter().map(|vouched| format!("{} (SHA-256 `{}`)", vouched.what, vouched.digest)).collect();
    let vouched = match vouched[..] {
        [] => String::new(),
        _ => format!(" The approval covers what the task reads: {}.", vouched.join(", ")),
    };
    format!(
        "The privacy officer with the key `{by}` approved this plan, for the task {task:?} on the server `{realm}`. The signature is in the first entry of the ledger; compare the key with the one you know.{vouched}"
    )
}

fn source(statement: &Statement) -> Vec<String> {
    let ledger = &statement.ledger;
    let mut items = vec![
        format!("Head of the ledger: `{}`. Keep it to detect a truncated or modified ledger.", ledger.head),
        format!(
            "Signed by the key `{}`, written by {}. The holder of that key can write any ledger that passes verification.",
            ledger.key, ledger.software
        ),
    ];
    items.extend(closing(ledger, simulated(statement.accounting.randomness).is_some()));
    items.extend(ledger.warnings.iter().map(|warning| format!("Warning while the ledger was read: {warning}.")));
    items
}

/// Whether more can come, why nothing more does, and which keys are left.
fn closing(ledger: &Source, simulated: bool) -> Vec<String> {
    let Some(Closing { because, noise_destroyed, pseudonym_key_destroyed }) = ledger.closing else {
        return vec![
            "The ledger is open: more may be released, and then this statement no longer holds. Nothing shows that the noise and pseudonym keys were destroyed.".into(),
        ];
    };
    let why = match because {
        Ended::PlanDone => "the plan was completed",
        Ended::BudgetSpent => "the next release would have exceeded the budget",
        Ended::TargetReached => "the target accuracy was reached",
        Ended::ByHand => "the run was ended by hand",
    };
    let destroyed = |gone: bool| if gone { "destroyed" } else { "**not** destroyed" };
    let noise = if simulated {
        "Anyone who knows the seed can draw the noise again.".into()
    } else {
        format!("The noise key, and everything that could draw the noise again, was {}.", destroyed(noise_destroyed))
    };
    let mut items = vec![
        format!("The ledger is closed: {why}. Nothing can be added."),
        noise,
        format!("The pseudonym key was {}.", destroyed(pseudonym_key_destroyed)),
    ];
    if pseudonym_key_destroyed || (noise_destroyed && !simulated) {
        items
            .push("A program can only destroy its own copies: a backup or snapshot of the secrets undoes this.".into());
    }
    items
}
