//! What the statement of a run says of its privacy, as others quote it: the epsilon, what it counts, and whom it protects.

use ledger::{DataSource, statement::Statement};
use privacy::{Epsilon, Rho};
use serde::Deserialize;

use super::is_undecided;
use crate::{
    home::{Home, Paper, Records},
    price::{Meaning, Price},
};

/// The epsilon of a statement: what is guaranteed, or what would be.
pub(super) fn price(statement: &Statement) -> Price {
    let guarantee = &statement.guarantee;
    price_of(guarantee.epsilon, guarantee.rho, guarantee.epsilon_if_secret)
}

fn price_of(epsilon: Epsilon, rho: Option<Rho>, epsilon_if_secret: Option<Epsilon>) -> Price {
    match epsilon_if_secret {
        Some(epsilon) => Price { meaning: Meaning::IfSecret, epsilon, rho: None },
        None => Price { meaning: Meaning::Guaranteed, epsilon, rho },
    }
}

/// The epsilon in a run's statement; none if there is no statement yet, or for a run of an unfinished sweep.
#[must_use]
pub fn stated(home: &(impl Home + Records)) -> Option<Price> {
    if is_undecided(home).unwrap_or(true) {
        return None;
    }
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
    let Said { guarantee } = serde_json::from_str(&home.paper(Paper::StatementJson).ok()??).ok()?;
    Some(price_of(guarantee.epsilon, guarantee.rho, guarantee.epsilon_if_secret))
}

/// What an epsilon counts beside this run (rule P22).
pub(super) fn counted(statement: &Statement) -> String {
    match statement.guarantee.sweep_runs {
        0 => String::new(),
        others => format!(", all {} runs of its sweep counted", others + 1),
    }
}

/// Whom a model's guarantee is for.
pub(crate) fn protects(statement: &Statement) -> String {
    let unit = statement.unit.name();
    let each = match (statement.group, &statement.data) {
        (1, DataSource::Users { .. }) => format!("each {unit}"),
        (1, DataSource::MadeUp { .. }) => format!("each synthetic {unit} (nobody real is protected)"),
        (group, DataSource::Users { .. }) => format!("each group of {group} {unit}s"),
        (group, DataSource::MadeUp { .. }) => {
            format!("each group of {group} synthetic {unit}s (nobody real is protected)")
        }
    };
    each + &counted(statement)
}
