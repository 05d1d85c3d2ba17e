//! Optimises the cells of `bench/factorization/`: one JSON question a line in, one JSON answer a line out.
//!
//! `cargo run --release -p keyhush-privacy --example bench_factorization < questions`. A question has `rounds`,
//! `distance`, `max_participations`, `objective`, and `buffers` or `bands`; it may have a `peer`, another matrix to be
//! judged by the same evaluator.

#![allow(clippy::print_stdout, reason = "printing is what this program does")]

use std::{error::Error, io::BufRead, time::Instant};

use keyhush_privacy::{
    MinSeparation, NoiseMatrix, Participation,
    factorization::{Errors, Objective, Setting, evaluate, optimise_banded, optimise_blt},
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Question {
    rounds: u64,
    distance: u64,
    max_participations: u64,
    objective: String,
    buffers: Option<usize>,
    bands: Option<usize>,
    peer: Option<NoiseMatrix>,
}

fn judged(errors: &Errors) -> Value {
    json!({
        "squared_sensitivity": errors.squared_sensitivity,
        "max_squared_error": errors.max_squared,
        "mean_squared_error": errors.mean_squared,
    })
}

fn answer(question: &Question) -> Result<Value, Box<dyn Error>> {
    let separation = MinSeparation::distance(question.distance)?;
    let max_participations = question.max_participations;
    let setting = Setting::new(question.rounds, Participation::MinSeparation { separation, max_participations })?;
    let objective = if question.objective == "max" { Objective::Max } else { Objective::Mean };
    let start = Instant::now();
    let found = match (question.buffers, question.bands) {
        (Some(buffers), None) => optimise_blt(&setting, buffers, objective)?,
        (None, Some(bands)) => optimise_banded(&setting, bands, objective)?,
        _ => return Err("give buffers or bands".into()),
    };
    let seconds = start.elapsed().as_secs_f64();
    let peer = question.peer.as_ref().map(|matrix| evaluate(matrix, &setting)).transpose()?;
    Ok(json!({
        "seconds": seconds,
        "matrix": found.matrix,
        "errors": judged(&found.errors),
        "peer_errors": peer.as_ref().map(judged),
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        println!("{}", answer(&serde_json::from_str(&line?)?)?);
    }
    Ok(())
}
