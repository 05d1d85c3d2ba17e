//! `keyhush task`: the tasks of a server, from its own machine or from another: approved, created, shown, paused, resumed, stopped, exported.

mod approve;
mod place;
mod shown;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use console::tasks::NewTask;
use durable::files;
use federated::protocol::order::Order;
use serde_json::json;
use server::listing::Stands;

use self::{
    place::{Place, Where},
    shown::Shown,
};
use crate::{approval, failure::BadInput, model_folder::read_settings};

/// How long a server is given to do what is wanted, before this command says how things stand and leaves.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `keyhush task` does.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Approve the plan of a task with a privacy officer's key, for one server.
    Approve(approve::ApproveArgs),
    /// Create a task on a server, whether or not it runs. A server that runs takes it up without a restart.
    Create(Create),
    /// List the tasks of a server, with their state and privacy cost.
    List(Of),
    /// Show one task.
    Show(One),
    /// Pause a task after its current round, until it is resumed.
    Pause(One),
    /// Resume a paused task.
    Resume(One),
    /// Stop a task permanently: close its ledger, destroy its keys, keep its last released model.
    Stop(One),
    /// Copy a task's ledger, statement and metrics into a folder, and its model once it has finished.
    Export(Export),
}

#[derive(Args)]
pub(crate) struct Of {
    #[command(flatten)]
    at: Where,
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

#[derive(Args)]
pub(crate) struct Create {
    /// Settings file of the task, with data.kind = "devices"; the file's name is the task's name. Whatever it reads is named by whole paths on the
    /// server's machine
    #[arg(value_name = "TASK.toml")]
    settings: PathBuf,
    /// The privacy officer's approval (keyhush task approve) [default: TASK.approval next to the settings, if there is one]
    #[arg(long, value_name = "FILE")]
    approval: Option<PathBuf>,
    #[command(flatten)]
    of: Of,
}

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    one: One,
    /// Folder to write to; created if it does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs `keyhush task`.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Approve(args) => approve::run(args),
        Command::Create(args) => create(args),
        Command::List(of) => show_all(of),
        Command::Show(one) => show(&one.of, &named(&one.of.at.place()?, &one.task)?),
        Command::Pause(one) => give(one, Order::Pause),
        Command::Resume(one) => give(one, Order::Run),
        Command::Stop(one) => give(one, Order::Stop),
        Command::Export(args) => export(args),
    }
}

/// The name of a task: that of its settings file.
fn name_of(settings: &Path) -> String {
    settings.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

fn create(args: &Create) -> anyhow::Result<()> {
    let (name, settings) = (name_of(&args.settings), read_settings(&args.settings)?);
    let approval = approval::read(args.approval.as_deref(), &args.settings)?;
    let place = args.of.at.place()?;
    place.create(&NewTask { name: name.clone(), settings, approval })?;
    // A server that runs takes it up within moments, or refuses it.
    let until = Instant::now() + PATIENCE;
    let now = loop {
        let now = named(&place, &name)?;
        match now.state {
            Stands::Refused => {
                let why = now.why.unwrap_or_default();
                return Err(BadInput::Refused(format!("the server refused {name}: {why}")).into());
            }
            Stands::NotServed if place.is_served()? && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(100));
            }
            _ => break now,
        }
    };
    show(&args.of, &now)
}

fn show_all(of: &Of) -> anyhow::Result<()> {
    let tasks = of.at.place()?.tasks()?;
    if of.json {
        println!("{}", serde_json::to_string_pretty(&tasks)?);
        return Ok(());
    }
    for task in &tasks {
        print(task);
    }
    Ok(())
}

fn show(of: &Of, task: &Shown) -> anyhow::Result<()> {
    if of.json {
        println!("{}", serde_json::to_string_pretty(task)?);
    } else {
        print(task);
    }
    Ok(())
}

fn print(task: &Shown) {
    println!("{}: {}", task.task, shown::state(task));
    for (name, words) in shown::facts(task) {
        println!("  {name:<8} {words}");
    }
}

/// Says what is wanted of a task, and waits for a while until it is so.
fn give(One { task, of }: &One, order: Order) -> anyhow::Result<()> {
    let place = of.at.place()?;
    place.order(task, order)?;
    let until = Instant::now() + PATIENCE;
    let now = loop {
        let now = named(&place, task)?;
        let settled = match (order, now.state) {
            (_, Stands::Over | Stands::Broken | Stands::NotServed | Stands::Refused) => true,
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
    println!("{task}: {}", shown::state(&now));
    if now.state == Stands::Over {
        match &place {
            Place::Data(data) => {
                println!("  model, statement and ledger are in {}", data.join("models").join(task).display());
            }
            Place::Server(_) => println!("  get its model, statement and ledger with keyhush task export {task}"),
        }
    }
    Ok(())
}

fn export(args: &Export) -> anyhow::Result<()> {
    let One { task, of } = &args.one;
    let place = of.at.place()?;
    named(&place, task)?;
    let files = place.exports(task)?;
    if files.is_empty() {
        return Err(BadInput::Refused(format!("{task} has not begun: there is nothing to export yet")).into());
    }
    files::make_folder(&args.out)?;
    for name in &files {
        let path = args.out.join(name);
        files::write(&path, &place.export(task, name)?)?;
    }
    if of.json {
        println!("{}", serde_json::to_string_pretty(&json!({ "task": task, "files": files }))?);
        return Ok(());
    }
    println!("{}", args.out.display());
    files.iter().for_each(|name| println!("  {name}"));
    println!("check it with keyhush privacy verify {}", args.out.display());
    Ok(())
}

fn named(place: &Place, task: &str) -> anyhow::Result<Shown> {
    let mut tasks = place.tasks()?;
    match tasks.iter().position(|listed| listed.task == task) {
        Some(at) => Ok(tasks.swap_remove(at)),
        None => {
            let names: Vec<&str> = tasks.iter().map(|listed| listed.task.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(BadInput::Refused(format!("no task {task:?} in {place}; its tasks: {there}")).into())
        }
    }
}
