//! `keyhush task`: the tasks of a server, listed, paused, resumed and stopped from its own machine.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use federated::protocol::order::Order;
use ledger::{Basis, statement::rounded_up};
use server::{
    listing::{Listed, Spent, Stands, list},
    orders::Orders,
    sqlite::DatabaseError,
    tasks::ServeError,
};

use crate::failure::BadInput;

/// How long a server is given to do what is wanted, before this command says how things stand and leaves.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `keyhush task` does.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Where each task of a server stands, and what it costs in privacy.
    List(Of),
    /// Let a task rest: a round that devices have goes on to its end, and nobody is asked after it. Holds until it is resumed.
    Pause(One),
    /// Go on with a task that rests.
    Resume(One),
    /// End a task for good: its ledger is closed and its keys are destroyed; the model of the last release is kept.
    Stop(One),
}

#[derive(Args)]
pub(crate) struct Of {
    /// The folder of the server's data, as keyhush serve was given it
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// For programs
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct One {
    /// The task: it is called as its file is
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
    list(data).map_err(|error| match error {
        ServeError::Database(missing) if matches!(*missing, DatabaseError::Missing { .. }) => {
            BadInput::wrong("data", format!("{missing}: give the folder that keyhush serve was given")).into()
        }
        other => anyhow::Error::from(other).context(format!("cannot read the tasks in {}", data.display())),
    })
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
            Err(BadInput::Refused(format!("there is no task {task:?} in {}; there are: {there}", data.display()))
                .into())
        }
    }
}

/// What is over stays over, and what is being stopped is stopped.
fn refuse(task: &Listed, order: Order) -> anyhow::Result<()> {
    let name = &task.task;
    if task.state == Stands::Over {
        let why = task.why.as_deref().unwrap_or_default();
        return Err(BadInput::Refused(format!("{name} is over: {why}. Nothing can be changed about it")).into());
    }
    if task.wanted == Order::Stop && order != Order::Stop {
        return Err(BadInput::Refused(format!("{name} is being stopped, and that is final")).into());
    }
    Ok(())
}

/// How a task stands, in words.
fn state(task: &Listed) -> String {
    let why = task.why.as_deref().unwrap_or_default();
    match (task.state, task.wanted) {
        (Stands::Running, _) => "running".into(),
        (Stands::Pausing, _) => {
            "pausing: the round that devices have goes on to its end, and nothing begins after it".into()
        }
        (Stands::Paused, _) => "paused: nobody is asked until it is resumed".into(),
        (Stands::Stopping, _) => "stopping: it is being closed".into(),
        (Stands::Over, _) => format!("over: {why}"),
        (Stands::Broken, Order::Stop) => {
            format!("cannot go on: {why}. It is closed when the server is started again")
        }
        (Stands::Broken, _) => format!("cannot go on: {why}"),
        (Stands::NotServed, Order::Run) => "no server runs it now".into(),
        (Stands::NotServed, Order::Pause) => "paused, and no server runs it now".into(),
        (Stands::NotServed, Order::Stop) => "to be stopped by the next server that is started with it".into(),
    }
}

/// What else is known of a task.
fn facts(task: &Listed) -> Vec<(&'static str, String)> {
    let mut facts = vec![("digest", task.digest.clone().unwrap_or_else(|| "none yet".into()))];
    facts.push((
        "devices",
        format!("{} enrolled on this server (a count of operators', outside the guarantee)", task.enrolled),
    ));
    match &task.ledger {
        None => facts.push(("rounds", "not begun".into())),
        Some(spent) => {
            if let Some(asked) = task.asked {
                facts.push(("asked", format!("{asked} of them so far, of {} that are declared", spent.population)));
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
        Basis::Spent => "everything that it released",
        Basis::Plan => "its whole plan, which is what holds whenever it ends by hand",
        Basis::Budget => "its budget, which is what holds however little of it is spent",
    };
    let mut costs = vec![("epsilon", format!("{} at delta {:e}, of {of}", spent.holds.words(), spent.delta.get()))];
    if let Some(so_far) = &spent.so_far {
        let rounds = spent.rounds;
        let number = if so_far.epsilon.is_finite() { rounded_up(so_far.epsilon.get()) } else { "infinite".into() };
        let only = "the cost of these releases alone, no guarantee of the task";
        costs.push(("so far", format!("{number} at the same delta, after {rounds} rounds: {only}")));
    }
    costs
}
