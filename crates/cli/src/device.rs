//! `keyhush device`: a device on this machine, or many simulated ones.

use std::{path::PathBuf, sync::Arc, time::Duration};

use agent::{
    AgentError,
    eligibility::{Always, CommandSays, Eligibility, FileSays},
    http::{Server, Trust},
    identity::Identity,
    many::{self, Behaviour, Ended, Tally},
    one::{self, Clocks, Surroundings},
    parts::Parts,
    text::{Keep, Synthetic, TakenIn, TextFolder, TextSource, TextStore, today},
    training::{Learning, Trainers},
    unsent::UnsentFile,
};
use anyhow::Context;
use clap::{Args, ValueEnum, value_parser};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    guard::{Limits, Timer, Window, file::FileStore},
    protocol::{
        participant::{Participant, Settings},
        policy::Policy,
    },
    unsent::{self, Unsent},
};
use federated::numbers;
use secagg::entropy::OsEntropy;
use tokio::sync::watch;

use crate::{failure::BadInput, interrupt, model_folder::read_text, threads};

/// The longest attestation: with the rest of the request it must fit a message.
const MOST_ATTESTATION: usize = 1 << 19;
/// The file of a device's folder with its text.
const TEXT: &str = "text";
/// The one with what it learned and has not sent.
const UNSENT: &str = "unsent";

#[derive(Args)]
pub(crate) struct DeviceArgs {
    /// URL of the server: https://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present_any = ["page", "forget_text"], default_value = "", hide_default_value = true)]
    server: String,
    /// Folder with the owner's text: .txt files with one post per line, or .jsonl. Each line is read once; the files are not changed
    #[arg(long, value_name = "DIR", required_unless_present_any = ["synthetic", "page", "forget_text"])]
    text: Option<PathBuf>,
    /// Most text to keep in the device's state; the rest waits in the --text folder
    #[arg(long, value_name = "BYTES", default_value_t = Keep::default().bytes, conflicts_with = "synthetic")]
    text_bytes: usize,
    /// Delete kept text that was not trained on within this many days
    #[arg(long, value_name = "DAYS", default_value_t = Keep::default().days, value_parser = value_parser!(u32).range(1..), conflicts_with = "synthetic")]
    text_days: u32,
    /// Delete what was learned from text and not sent (upload.kind = "sparse", or "mask" with keep_rest) after this many days; 0 to keep nothing
    #[arg(long, value_name = "DAYS", default_value_t = Keep::default().days, conflicts_with = "synthetic")]
    unsent_days: u32,
    /// Folder for the device's state: key, guard, diary, text not trained on yet, and what was learned and not sent [default: keyhush/device in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Use synthetic users instead of real text, for trials
    #[arg(long, conflicts_with = "text")]
    synthetic: bool,
    /// Number of synthetic devices, all in one process
    #[arg(long, requires = "synthetic", default_value_t = 1, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    count: u64,
    /// How synthetic devices behave
    #[arg(long, requires = "synthetic", default_value = "steady")]
    behaviour: BehaviourName,
    /// Length of a day for realistic devices, whose availability comes in waves, one per day
    #[arg(long, requires = "synthetic", value_name = "SECONDS", default_value_t = DAY_S)]
    day_seconds: f64,
    /// Seed of synthetic users, their keys and their behaviour
    #[arg(long, requires = "synthetic", default_value_t = 1)]
    seed: u64,
    /// Mean number of posts per synthetic user
    #[arg(long, requires = "synthetic", value_name = "N")]
    posts_per_user: Option<u32>,
    /// Send ready-made reports instead of training, to load-test a server. Only for tasks with simulated noise (noise_seed)
    #[arg(long, requires = "synthetic")]
    ready_made: bool,
    /// Write one line of JSON for each report that a synthetic device sends, and for each that the server counts
    #[arg(long, requires = "synthetic", value_name = "FILE")]
    parts: Option<PathBuf>,
    /// File with the token to enrol with
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// File with the manufacturer's attestation of this device, for servers that require one
    #[arg(long, value_name = "FILE")]
    attestation: Option<PathBuf>,
    /// Trusted root certificates (PEM) for the server
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    roots: Option<PathBuf>,
    /// The server's own certificate (PEM), to pin. While it is being replaced, the file has both: the one in use and the next one
    #[arg(long, value_name = "FILE")]
    pin: Option<PathBuf>,
    /// What the device refuses, as a TOML file; missing keys keep their strict defaults
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Most reports the device ever sends, over all tasks
    #[arg(long, default_value_t = 1000, value_name = "N")]
    most_inputs: u32,
    /// Hours to wait after sending a report, for any task; a task may require more
    #[arg(long, value_name = "HOURS", default_value_t = 0.0, allow_negative_numbers = true)]
    timer_hours: f64,
    /// Take part only while this file contains "yes"; another program writes it when the device is idle, charging and on an unmetered network
    #[arg(long, value_name = "FILE", conflicts_with = "eligible_command")]
    eligible_file: Option<PathBuf>,
    /// Take part only while this command exits with 0
    #[arg(long, value_name = "COMMAND")]
    eligible_command: Option<String>,
    /// Number of training threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = threads::number)]
    threads: usize,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    for_seconds: Option<f64>,
    /// Only show which text the device keeps, what it sent to whom, and what it refused
    #[arg(long, conflicts_with = "synthetic")]
    page: bool,
    /// Only delete the text that the device keeps, and what it learned from text and has not sent. Lines it has read are not read again
    #[arg(long, conflicts_with_all = ["page", "synthetic"])]
    forget_text: bool,
    /// Print a summary as JSON at the end
    #[arg(long)]
    json: bool,
}

/// How simulated devices behave.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum BehaviourName {
    /// Always available
    Steady,
    /// Daily cycles, drop-outs, slow connections, crashes, wrong clocks
    Realistic,
}

/// A day, in seconds.
pub(crate) const DAY_S: f64 = 86_400.0;

/// A day of simulated devices, which can be short.
pub(crate) fn day_s(day_s: f64) -> anyhow::Result<f64> {
    if (1.0..=1e9).contains(&day_s) {
        return Ok(day_s);
    }
    Err(BadInput::wrong("day-seconds", "must be from 1 to 1e9 seconds").into())
}

/// Runs `keyhush device`.
pub(crate) fn run(args: &DeviceArgs) -> anyhow::Result<()> {
    if args.page {
        return page(args);
    }
    if args.forget_text {
        return forget_text(args);
    }
    let trust = trust(args)?;
    let seconds = args.for_seconds.map(Duration::try_from_secs_f64).transpose();
    let deadline = seconds.map_err(|_| BadInput::wrong("for-seconds", "must be a number of seconds, 0 or more"))?;
    let connections = usize::try_from(args.count).unwrap_or(usize::MAX).max(1);
    let server = Arc::new(Server::new(&args.server, &trust, connections).map_err(|error| refused(args, error))?);
    let learning = if args.ready_made { Learning::Ready } else { Learning::Train };
    let trainers = Arc::new(Trainers::new(args.threads, learning));
    let stop = interrupt::watch()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    let (ask, asked) = watch::channel(false);
    runtime.spawn(async move {
        let began = std::time::Instant::now();
        while !stop.is_asked() && deadline.is_none_or(|deadline| began.elapsed() < deadline) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = ask.send(true);
    });
    runtime.block_on(async {
        if args.synthetic {
            run_many(args, server, trainers, asked).await
        } else {
            run_one(args, server, trainers, asked).await
        }
    })
}

/// Says why the server cannot be reached, where it cannot: devices only try again.
async fn greet(args: &DeviceArgs, server: &Server, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        said = server.hello() => if let Err(why) = said {
            say(&format!("{}: {why}; retrying", args.server));
        },
    }
}

/// What a person named and can mend is bad input.
fn refused(args: &DeviceArgs, error: AgentError) -> anyhow::Error {
    match error {
        AgentError::Address { address, problem } => BadInput::wrong("server", format!("{address} {problem}")).into(),
        AgentError::Certificate { .. } => {
            BadInput::wrong(if args.roots.is_some() { "roots" } else { "pin" }, error).into()
        }
        AgentError::Folder { .. } => BadInput::wrong("state", error).into(),
        AgentError::Text { .. } => BadInput::wrong("text", error).into(),
        other => other.into(),
    }
}

fn trust(args: &DeviceArgs) -> anyhow::Result<Trust> {
    match (&args.roots, &args.pin) {
        (Some(roots), _) => Ok(Trust::Roots(roots.clone())),
        (_, Some(pin)) => Ok(Trust::Pinned(pin.clone())),
        _ if args.server.starts_with("http://") => Ok(Trust::Loopback),
        _ => {
            let why = "the device must be able to authenticate the server. Use --roots FILE for a certificate authority, or --pin FILE for the server's own certificate; keyhush serve prints the path of the certificate it creates; copy it over a channel you trust";
            Err(BadInput::missing("roots", why).into())
        }
    }
}

fn token(args: &DeviceArgs) -> anyhow::Result<Vec<u8>> {
    let Some(path) = &args.token else { return Ok(Vec::new()) };
    Ok(read_text("token", path)?.trim().as_bytes().to_vec())
}

fn attestation(args: &DeviceArgs) -> anyhow::Result<Vec<u8>> {
    let Some(path) = &args.attestation else { return Ok(Vec::new()) };
    let wrong = |problem: String| BadInput::wrong("attestation", format!("{}: {problem}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() > MOST_ATTESTATION {
        return Err(wrong(format!("has {} bytes; the limit is {MOST_ATTESTATION}", bytes.len())).into());
    }
    Ok(bytes)
}

/// Where the one device lives.
fn state(args: &DeviceArgs) -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let place = args.state.clone().or_else(|| usual().map(|state| state.join("keyhush/device")));
    let why = "there is no home folder; name a folder for the device's state";
    place.ok_or_else(|| BadInput::missing("state", why).into())
}

fn policy(args: &DeviceArgs) -> anyhow::Result<Policy> {
    match &args.policy {
        Some(path) => {
            let text = read_text("policy", path)?;
            toml::from_str(&text).map_err(|e| BadInput::wrong("policy", e).into())
        }
        None if args.synthetic => Ok(Policy::for_made_up_people()),
        None => Ok(Policy::default()),
    }
}

fn limits(args: &DeviceArgs) -> anyhow::Result<Limits> {
    if !(0.0..=87_840.0).contains(&args.timer_hours) {
        return Err(BadInput::wrong("timer-hours", "must be from 0 (no timer) to 87840 (ten years)").into());
    }
    // Never shorter than was said.
    let timer = Timer { own_s: (args.timer_hours * 3600.0).ceil() as u64, ..Timer::NONE };
    Ok(Limits { most_inputs: args.most_inputs, window: Window::Ever, separation: None, timer })
}

async fn run_many(
    args: &DeviceArgs,
    server: Arc<Server>,
    trainers: Arc<Trainers>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut made_up = SynthPlan::new(args.seed, args.count.max(1), Dialect::Informal);
    made_up.posts_per_user = args.posts_per_user.unwrap_or(made_up.posts_per_user);
    let crowd = Arc::new(Crowd::new(made_up).map_err(|e| BadInput::wrong("count", e))?);
    let plan = many::Plan {
        count: args.count,
        behaviour: match args.behaviour {
            BehaviourName::Steady => Behaviour::Steady,
            BehaviourName::Realistic => Behaviour::Realistic,
        },
        seed: args.seed,
        day_s: day_s(args.day_seconds)?,
        spread_s: (args.count as f64 / 2000.0).min(60.0),
        inputs: 64,
        token: token(args)?,
        attestation: attestation(args)?,
        policy: policy(args)?,
        limits: limits(args)?,
        patience_ms: 20_000,
        keep_until_thanked: true,
        text: Arc::new(move |user| Arc::new(Synthetic { crowd: Arc::clone(&crowd), user }) as Arc<dyn TextSource>),
    };
    greet(args, &server, stop.clone()).await;
    let tally = Arc::new(match &args.parts {
        Some(path) => {
            let file = std::fs::File::create(path).map_err(|e| BadInput::wrong("parts", e))?;
            Tally::with_parts(Parts::new(std::io::BufWriter::new(file)))
        }
        None => Tally::default(),
    });
    many::run(plan, Arc::clone(&server), Arc::clone(&trainers), Arc::clone(&tally), stop).await?;
    tally.parts().map(Parts::flush).transpose()?;
    let counted = tally.counted();
    if args.json {
        let (traffic, trained_s) = (server.traffic(), trainers.busy_s());
        let ended = Ended { counted, bytes_up: traffic.up(), bytes_down: traffic.down(), trained_s };
        println!("{}", serde_json::to_string(&ended)?);
    } else {
        say(&format!(
            "{}: {} started, {} sent, {} counted, {} refused by devices, {} by the server",
            numbers::counted(counted.enrolled, "device"),
            numbers::counted(counted.assigned, "participation"),
            numbers::counted(counted.gave, "report"),
            counted.thanked,
            counted.refused,
            counted.refused_by_server
        ));
    }
    Ok(())
}

async fn run_one(
    args: &DeviceArgs,
    server: Arc<Server>,
    trainers: Arc<Trainers>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (token, policy, limits) = (token(args)?, policy(args)?, limits(args)?);
    let text = args.text.as_ref().context("a device needs --text")?;
    if !text.is_dir() {
        return Err(BadInput::wrong("text", format!("{} is not a folder", text.display())).into());
    }
    let (folder, attestation) = (state(args)?, attestation(args)?);
    let Identity { key, guard, diary } = Identity::open_or_make(&folder).map_err(|error| refused(args, error))?;
    if args.state.is_none() {
        say(&format!("the state of this device is in {}", folder.display()));
    }
    let unsent_keep = unsent::Keep { days: args.unsent_days, bytes: policy.bounds.unsent_bytes };
    let settings = Settings { attestation, ..Settings::new(key, token, policy, limits) };
    let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
    let keep = Keep { bytes: args.text_bytes, days: args.text_days };
    let store = TextStore::in_file(&folder.join(TEXT), keep, today())?;
    let text = TakenIn::new(TextFolder::new(text), store).map_err(|error| refused(args, error))?;
    let unsent = UnsentFile::open(FileStore::lock(folder.join(UNSENT))?, unsent_keep, today())?;
    greet(args, &server, stop.clone()).await;
    let around = Surroundings {
        server,
        trainers,
        content: None,
        text: Arc::new(text),
        unsent,
        eligibility: eligibility(args),
        patience: Duration::from_secs(20),
    };
    one::run(&mut device, &around, Clocks::now_on(), stop, |note| say(&note.to_string())).await;
    Ok(())
}

fn eligibility(args: &DeviceArgs) -> Arc<dyn Eligibility> {
    match (&args.eligible_file, &args.eligible_command) {
        (Some(file), _) => Arc::new(FileSays(file.clone())),
        (_, Some(command)) => {
            let arguments = vec!["-c".to_owned(), command.clone()];
            Arc::new(CommandSays { program: "sh".into(), arguments })
        }
        _ => Arc::new(Always),
    }
}

/// The folder of a device that is there.
fn home(args: &DeviceArgs) -> anyhow::Result<PathBuf> {
    let folder = state(args)?;
    if !folder.join("key").is_file() {
        return Err(
            BadInput::wrong("state", format!("{} does not hold the state of a device", folder.display())).into()
        );
    }
    Ok(folder)
}

fn page(args: &DeviceArgs) -> anyhow::Result<()> {
    let folder = home(args)?;
    let limits = limits(args)?;
    let Identity { guard, diary, .. } = Identity::open_or_make(&folder)?;
    if let Some(text) = TextStore::found_in(&folder.join(TEXT), today())? {
        println!("{}", text.page());
    }
    // Whatever its age: only a device that runs deletes.
    let keep = unsent::Keep { days: u32::MAX, bytes: u64::MAX };
    if let Some(page) = UnsentFile::open(FileStore::lock(folder.join(UNSENT))?, keep, today())?.page() {
        println!("{page}");
    }
    let rests: Vec<_> = guard.rests(Clocks::now_on().now()).collect();
    println!("{}", diary.page(guard.inputs(), &rests, &limits));
    Ok(())
}

fn forget_text(args: &DeviceArgs) -> anyhow::Result<()> {
    let folder = home(args)?;
    Unsent::forget(&mut FileStore::lock(folder.join(UNSENT))?)?;
    let knows_its_lines = TextStore::forget(&mut FileStore::lock(folder.join(TEXT))?, today())?;
    say("the text is deleted, and what was learned from it and not sent");
    if !knows_its_lines {
        say("the file could not be read, so lines that are still in the folder of text will be read again");
    }
    Ok(())
}

fn say(line: &str) {
    eprintln!("{line}");
}
