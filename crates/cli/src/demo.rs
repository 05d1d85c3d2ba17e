//! `keyhush demo`: a server, devices of synthetic users and the dashboard, on this machine.

use std::{
    io::{IsTerminal, Write},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use console::about::About;
use demo::{Costs, Demo, DemoError, Ended, Place, Settings, Step, Summary, place, settings};
use federated::numbers::{counted, percent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use server::{
    http::{HttpError, ListenError},
    tasks::ServeError,
};

use crate::{
    columns::folded,
    failure::{BadInput, Interrupted},
    interrupt, kernels, threads,
};

/// The usual port; another one where it is taken.
const PORT: u16 = 8790;
/// How long a demo that is asked to end may take, before its folder is deleted and the process ends at once.
const ENDS_IN: Duration = Duration::from_secs(20);
const ENDS_AT_ONCE: &str = "the demo did not end in time, and was ended at once";
/// Rounds for each of which a line is printed, at the beginning; later every tenth has one.
const EACH: u64 = 10;
/// The accuracy that fills a bar.
const FULL: f64 = 0.4;
const BAR: usize = 40;

const WHAT: &str = "\
Everything runs in one process on this machine and speaks plain HTTP on a loopback address, so no browser warns about a certificate; \
a server for real devices (keyhush serve) uses TLS. The people and their messages are made up. The noise, the secure sums, the ledger \
and its guarantee are real.

In the first ten to twenty rounds the accuracy jumps up and down; then it rises.

Ctrl-C ends the demo. Its files are in a temporary folder that is deleted at the end, unless you keep them with --keep. If a demo is \
killed, the next one deletes what it left.

Examples:
  keyhush demo
  keyhush demo --devices 1000           more devices, and a smaller epsilon
  keyhush demo --rounds 20 --json       end after 20 rounds with a summary in JSON
  keyhush demo --keep kept              keep the ledger, the statement and the model";

#[derive(Args)]
#[command(after_help = WHAT)]
pub(crate) struct DemoArgs {
    /// Number of devices, each with one made-up person: 20 to 1000
    #[arg(long, value_name = "D", default_value_t = 200)]
    devices: u64,
    /// End after this many rounds, 1 to 2000. The limits on participation follow from it, and with them epsilon
    #[arg(long, value_name = "N", default_value_t = settings::USUAL_ROUNDS)]
    rounds: u64,
    /// Port of the dashboard on 127.0.0.1; 0 for any that is free [default: 8790, or another one if that is taken]
    #[arg(long, value_name = "P")]
    port: Option<u16>,
    /// Keep all files in this folder, which must be new or empty
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Number of threads of the server, and of the devices' training [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads::number)]
    threads: Option<usize>,
    /// Print a summary as JSON at the end; everything else goes to standard error
    #[arg(long)]
    json: bool,
}

/// Runs `keyhush demo`.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let settings = Settings::new(args.devices, args.rounds).map_err(refused)?;
    let costs = Costs::of(&settings).map_err(refused)?;
    let about = Arc::new(demo::about(&settings, &costs));
    let demo = Demo {
        settings,
        about: Arc::clone(&about),
        port: port(args.port)?,
        threads: threads::chosen(args.threads),
        kernels: kernels::chosen()?,
    };
    demo.check_files().map_err(refused)?;
    let stop = interrupt::watch()?;
    let place = match &args.keep {
        Some(folder) => Place::kept(folder).map_err(no_place_to_keep)?,
        None => Place::temporary(&std::env::temp_dir()).map_err(no_temporary_place)?,
    };
    if !place.is_kept() {
        let folder = place.folder().to_owned();
        interrupt::before_the_end(move || _ = place::remove(&folder));
    }
    interrupt::end_within(ENDS_IN, || _ = writeln!(std::io::stderr(), "{ENDS_AT_ONCE}"))?;
    let mut shown = Shown::new(args, &about);
    let summary = demo.run(&place, stop, &mut |step| shown.show(&step));
    shown.bar.finish_and_clear();
    let summary = match summary {
        // Its folder goes on the way out, before this is said.
        Err(error @ DemoError::StoppedEarly) => return Err(Interrupted(error.to_string()).into()),
        other => other.map_err(refused)?,
    };
    // The folder is gone before anything says that the demo is over.
    drop(place);
    if args.json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&summary)?)?;
    } else {
        shown.end(&summary);
    }
    Ok(())
}

/// No folder that stays.
fn no_place_to_keep(error: DemoError) -> anyhow::Error {
    match error {
        DemoError::Folder { .. } => {
            BadInput::wrong("keep", format!("{error}; choose a folder that you may write to")).into()
        }
        other => refused(other),
    }
}

/// No folder among the temporary files.
fn no_temporary_place(error: DemoError) -> anyhow::Error {
    match error {
        DemoError::Folder { .. } => anyhow::anyhow!(
            "{error}; temporary files are in the folder that TMPDIR names: set it to one that you may write to, or use --keep DIR"
        ),
        other => refused(other),
    }
}

/// What a person can mend is bad input.
fn refused(error: DemoError) -> anyhow::Error {
    match error {
        DemoError::OutOfRange { field, .. } => BadInput::out_of_range(field, error.to_string()).into(),
        DemoError::Files { .. } => BadInput::wrong("devices", error).into(),
        DemoError::Taken { .. } => BadInput::wrong("keep", error).into(),
        DemoError::Serve(serve) => match *serve {
            ServeError::Http(http) => match *http {
                HttpError::Listen(listen @ ListenError::Address { .. }) => {
                    let next = "choose another port, or --port 0 for any that is free";
                    BadInput::wrong("port", format!("{listen}; {next}")).into()
                }
                other => ServeError::from(other).into(),
            },
            other => other.into(),
        },
        other => other.into(),
    }
}

/// The port that was asked for; otherwise the usual one, or any where that is taken.
fn port(asked: Option<u16>) -> anyhow::Result<u16> {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    match asked {
        None => Ok(if is_free(PORT).is_ok() { PORT } else { 0 }),
        Some(0) => Ok(0),
        Some(port) => match is_free(port) {
            Ok(_) => Ok(port),
            Err(error) => {
                let problem = format!(
                    "port {port} of 127.0.0.1 cannot be used: {error}; choose another one, or --port 0 for any that is free"
                );
                Err(BadInput::wrong("port", problem).into())
            }
        },
    }
}

/// What is shown in the terminal.
struct Shown<'a> {
    about: &'a About,
    rounds: u64,
    json: bool,
    bar: ProgressBar,
    began: Instant,
}

impl<'a> Shown<'a> {
    fn new(args: &DemoArgs, about: &'a About) -> Self {
        let is_watched = if args.json { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
        let target = match (is_watched, args.json) {
            (false, _) => ProgressDrawTarget::hidden(),
            (true, true) => ProgressDrawTarget::stderr(),
            (true, false) => ProgressDrawTarget::stdout(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let bar = match ProgressStyle::with_template("{spinner} {msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.enable_steady_tick(Duration::from_millis(120));
        bar.set_message(format!("starting a server and {} ...", counted(args.devices, "device")));
        Self { about, rounds: args.rounds, json: args.json, bar, began: Instant::now() }
    }

    fn show(&mut self, step: &Step<'_>) {
        match step {
            Step::Begins { page, accuracy } => {
                self.introduce(page);
                self.began = Instant::now();
                self.line(&format!("round    seconds  next words that the model predicts{:21}", ""));
                self.measured(0, *accuracy);
                self.bar.set_message("devices enrol, and the first round begins ...");
            }
            Step::Round { round, accuracy } => {
                if let Some(accuracy) = accuracy {
                    if *round <= EACH || round.is_multiple_of(EACH) || *round == self.rounds {
                        self.measured(*round, *accuracy);
                    }
                    let done = format!("round {round} of {}: {}", self.rounds, percent(*accuracy));
                    self.bar.set_message(format!("{done}  (Ctrl-C ends the demo)"));
                }
            }
            Step::Failed { why } => self.line(&format!("         {why}")),
            Step::Ends => self.bar.set_message("ending ..."),
        }
    }

    fn introduce(&self, page: &str) {
        self.line(&format!("\n  {page}\n  Open this address in a browser. Ctrl-C ends the demo.\n"));
        self.line(&format!("{}\n{}\n", self.about.title, folded("", &self.about.lead)));
        for part in &self.about.parts {
            self.line(&folded(&format!("  {:<20}", part.name), &part.does));
        }
        for note in &self.about.notes {
            self.line(&format!("\n{}", folded("", note)));
        }
        self.line("");
    }

    fn measured(&self, round: u64, accuracy: f64) {
        let full = ((accuracy / FULL).clamp(0.0, 1.0) * BAR as f64).round() as usize;
        let seconds = self.began.elapsed().as_secs_f64();
        self.line(&format!("{round:5} {seconds:10.1}  {:>7} {}", percent(accuracy), "█".repeat(full)));
    }

    fn end(&self, summary: &Summary) {
        let Summary { rounds, planned_rounds, devices, seconds, accuracy_start, accuracy_end, accuracy_best, .. } =
            summary;
        let best = if accuracy_best > accuracy_end {
            format!(" Its best was {}: in the first rounds it jumps.", percent(*accuracy_best))
        } else {
            String::new()
        };
        let why = match summary.ended {
            Ended::PlanDone => "The plan is done: the participations of the devices are spent.",
            Ended::Stopped => "The demo was stopped.",
        };
        let done = format!(
            "{why} {rounds} of {} with {} in {seconds:.0} s: the share of next words that the model predicts went from {} to {}.{best}",
            counted(*planned_rounds, "round"),
            counted(*devices, "device"),
            percent(*accuracy_start),
            percent(*accuracy_end)
        );
        self.line(&format!("\n{}", folded("", &done)));
        let words =
            format!("Epsilon {} at delta {:e}: {}.", summary.price.words(), summary.delta, summary.epsilon_means);
        self.line(&folded("", &words));
        match &summary.kept {
            None => self.line("All files of the demo are deleted."),
            Some(folder) => {
                let model = folder.join("data/models").join(demo::TASK);
                let model = model.display();
                self.line(&format!(
                    "\nThe files are in {}. Look at them with:\n  keyhush privacy verify {model}\n  keyhush privacy statement {model}\n  keyhush predict --model {model}",
                    folder.display()
                ));
            }
        }
    }

    /// A line above the one that moves.
    fn line(&self, text: &str) {
        self.bar.suspend(|| {
            // Where nothing can be written any more, or nobody reads it, that is no reason to leave a folder behind.
            _ = if self.json { writeln!(std::io::stderr(), "{text}") } else { writeln!(std::io::stdout(), "{text}") };
        });
    }
}
