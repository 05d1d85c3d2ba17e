//! `keyhush task`: lists, pauses, resumes and stops the tasks of a server, from its own machine.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use federated::{numbers::counted, protocol::order::Order};
use ledger::{Basis, statement::rounded_up};
use server::{
    listing::{Listed, Spent, Stands, list},
    orders::Orders,
    sqlite::{DatabaseError, SqliteState},
};

use crate::failure::BadInput;

/// How long a server is given to do what is wanted, before this command says how things stand and leaves.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `keyhush task` does.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the tasks of a server, with their state and privacy cost.
    List(Of),
    /// Pause a task after its current round, until it is resumed.
    Pause(One),
    /// Resume a paused task.
    Resume(One),
    /// Stop a task permanently: close its ledger, destroy its keys, keep its last released model.
    Stop(One),
}

#[derive(Args)]
pub(crate) struct Of {
    /// Data folder of the server (--data of keyhush serve)
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct One {
    /// Name of the task (its file name without .toml)
    #[arg(value_name = "TASK")]
    task: String,
    #[command(flatten)]
    of: Of,
}

/// Runs `keyhush task`.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(of) => show_all(of),
        Command::Pause(one) => give(one, Order::Pause),
        Command::Resume(one) => give(one, Order::Run),
        Command::Stop(one) => give(one, Order::Stop),
    }
}

fn tasks(data: &Path) -> anyhow::Result<Vec<Listed>> {
    let unread = |error: anyhow::Error| error.context(format!("cannot read the tasks in {}", data.display()));
    let state = SqliteState::read(data).map_err(|error| match error {
        missing @ DatabaseError::Missing { .. } => {
            BadInput::wrong("data", format!("{missing}; give the --data folder of keyhush serve")).into()
        }
        other => unread(other.into()),
    })?;
    list(&state, &Orders::in_data(data)).map_err(|error| unread(error.into()))
}

fn show_all(of: &Of) -> anyhow::Result<()> {
    let tasks = tasks(&of.data)?;
    if of.json {
        println!("{}", serde_json::to_string_pretty(&tasks)?);
        return Ok(());
    }
    for task in &tasks {
        println!("{}: {}", task.task, state(task));
        for (name, words) in facts(task) {
            println!("  {name:<8} {words}");
        }
    }
    Ok(())
}

/// Says what is wanted of a task, and waits for a while until it is so.
fn give(One { task, of }: &One, order: Order) -> anyhow::Result<()> {
    let orders = Orders::in_data(&of.data);
    refuse(&named(&of.data, task)?, order)?;
    orders.give(task, order)?;
    let until = Instant::now() + PATIENCE;
    let now = loop {
        let now = named(&of.data, task)?;
        let settled = match (order, now.state) {
            (_, Stands::Over | Stands::Broken | Stands::NotServed) => true,
            (Order::Stop, _) => false,
            _ => now.obeyed,
        };
        if settled || Instant::now() >= until {
            break now;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if of.json {
        println!("{}", serde_json::to_string_pretty(&now)?);
        return Ok(());
    }
    println!("{task}: {}", state(&now));
    if now.state == Stands::Over {
        println!("  model, statement and ledger are in {}", of.data.join("models").join(task).display());
    }
    Ok(())
}

fn named(data: &Path, task: &str) -> anyhow::Result<Listed> {
    let mut tasks = tasks(data)?;
    match tasks.iter().position(|listed| listed.task == task) {
        Some(at) => Ok(tasks.swap_remove(at)),
        None => {
            let names: Vec<&str> = tasks.iter().map(|listed| listed.task.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(BadInput::Refused(format!("no task {task:?} in {}; its tasks: {there}", data.display())).into())
        }
    }
}

/// What is over stays over, and what is being stopped is stopped.
fn refuse(task: &Listed, order: Order) -> anyhow::Result<()> {
    let name = &task.task;
    if task.state == Stands::Over {
        let why = task.why.as_deref().unwrap_or_default();
        return Err(BadInput::Refused(format!("{name} has finished ({why}) and cannot be changed")).into());
    }
    if task.wanted == Order::Stop && order != Order::Stop {
        return Err(BadInput::Refused(format!("{name} is being stopped, which cannot be undone")).into());
    }
    Ok(())
}

/// How a task stands, in words.
fn state(task: &Listed) -> String {
    let why = task.why.as_deref().unwrap_or_default();
    match (task.state, task.wanted) {
        (Stands::Running, _) => "running".into(),
        (Stands::Pausing, _) => "pausing: the current round is completed, and no other is started".into(),
        (Stands::Paused, _) => "paused: no device is asked until it is resumed".into(),
        (Stands::Stopping, _) => "stopping: the ledger is being closed".into(),
        (Stands::Over, _) => format!("finished: {why}"),
        (Stands::Broken, Order::Stop) => {
            format!("cannot continue: {why}. It will be closed when the server is started again")
        }
        (Stands::Broken, _) => format!("cannot continue: {why}"),
        (Stands::NotServed, Order::Run) => "not running: no server is serving it".into(),
        (Stands::NotServed, Order::Pause) => "paused; no server is serving it".into(),
        (Stands::NotServed, Order::Stop) => "will be stopped when a server is started with it".into(),
    }
}

/// What else is known of a task.
fn facts(task: &Listed) -> Vec<(&'static str, String)> {
    let mut facts = vec![("digest", task.digest.clone().unwrap_or_else(|| "none yet".into()))];
    facts.push((
        "devices",
        format!("{} enrolled on this server (exact; for operators only, not covered by the guarantee)", task.enrolled),
    ));
    match &task.ledger {
        None => facts.push(("rounds", "not started".into())),
        Some(spent) => {
            if let Some(asked) = task.asked {
                facts.push((
                    "devices asked",
                    format!("{asked} so far, of a declared population of {}", spent.population),
                ));
            }
            facts.push(("rounds", format!("{} of {} released", spent.rounds, spent.planned_rounds)));
            if let (Some(released), Some(planned)) = (spent.evaluations, spent.planned_evaluations) {
                facts.push(("evaluations", format!("{released} of {planned} by devices released")));
            }
            facts.extend(costs(spent));
        }
    }
    facts
}

/// What a task costs in privacy, each number with what it means (rule P23).
fn costs(spent: &Spent) -> Vec<(&'static str, String)> {
    let of = match spent.basis {
        Basis::Spent => "everything released",
        Basis::Plan => "the whole plan, which is the guarantee even if the task is stopped early",
        Basis::Budget => "the whole budget, which is the guarantee even if less is spent",
    };
    let mut costs = vec![("epsilon", format!("{} at delta {:e}, for {of}", spent.holds.words(), spent.delta.get()))];
    if let Some(so_far) = &spent.so_far {
        let rounds = spent.rounds;
        let number = if so_far.epsilon.is_finite() { rounded_up(so_far.epsilon.get()) } else { "infinite".into() };
        let only = "the cost of these releases alone, not a guarantee";
        costs.push(("so far", format!("{number} at the same delta, after {}: {only}", counted(rounds, "round"))));
    }
    costs
}
