//! `keyhush serve`: a server and its tasks, for devices that come by themselves.

use std::{
    io::IsTerminal,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use federated::{
    config::Document,
    metrics::Metrics,
    protocol::{
        admission::{Admission, Anybody, ByToken, EnrolmentLimits},
        order::Order,
        pace::Pace,
    },
};
use server::{
    http::{HttpError, Identity, Limits, Network, Proxies, Transport, self_signed},
    sqlite::DatabaseError,
    tasks::{Happened, ServeError, Settings, Written, serve},
};

use crate::{
    failure::{BadInput, Interrupted},
    interrupt,
    model_folder::read_text,
    train::MachineArgs,
};

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The tasks: settings with data.kind = "devices"; a task is called as its file is
    #[arg(required = true, value_name = "TASK.toml")]
    tasks: Vec<PathBuf>,
    /// Where to listen, such as 0.0.0.0:8443
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// What the server must not forget: one SQLite database, and the models of tasks that are over
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// What nobody may see: keys of ledgers, noise and rounds. Keep it on another disk than --data, and out of backups
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,
    /// The certificate of the server and those that lead to its root, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Make a certificate for this name, for trying things out: devices pin data/tls/cert.pem. May be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "certificate")]
    self_signed: Vec<String>,
    /// Speak plain HTTP. Only on a loopback address
    #[arg(long, conflicts_with_all = ["certificate", "self_signed"])]
    plain_http: bool,
    /// A file with the token that devices enrol with
    #[arg(long, value_name = "FILE", required_unless_present = "anybody")]
    token: Option<PathBuf>,
    /// Let anybody enrol who reaches the server. One person can then be any number of devices
    #[arg(long, conflicts_with = "token")]
    anybody: bool,
    /// Devices that may enrol in an hour, in all
    #[arg(long, value_name = "N", default_value_t = EnrolmentLimits::default().an_hour)]
    enrolments: u64,
    /// The same from one address. Behind a proxy all devices have one, unless it is trusted
    #[arg(long, value_name = "N", default_value_t = EnrolmentLimits::default().an_hour_by_address)]
    enrolments_by_address: u64,
    /// Take the word of a proxy at this address, or in this network, on where requests come from (X-Forwarded-For). It must add the address
    /// of its client to the list, or write the list anew. May be given several times
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    trusted_proxy: Vec<Network>,
    /// Override a setting of every task, such as rounds=10
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// End when all tasks are over, instead of telling devices that there is nothing to do
    #[arg(long)]
    until_done: bool,
    /// Devices come back no sooner than this, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, allow_negative_numbers = true)]
    least_pause: f64,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs `keyhush serve`.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let tasks = args.tasks.iter().map(|path| written(path, &args.set)).collect::<anyhow::Result<Vec<_>>>()?;
    if !(0.0..=86_400.0).contains(&args.least_pause) {
        return Err(BadInput::wrong("least-pause", "must be from 0 to 86400 seconds").into());
    }
    let settings = Settings {
        listen: args.listen,
        data: args.data.clone(),
        secrets: args.secrets.clone(),
        transport: transport(args)?,
        admission: admission(args)?,
        enrolments: EnrolmentLimits { an_hour: args.enrolments, an_hour_by_address: args.enrolments_by_address },
        means: args.machine.means()?,
        limits: Limits::default(),
        proxies: Proxies::new(args.trusted_proxy.clone()),
        pace: Pace { least_s: args.least_pause, ..Pace::default() },
        ends_with_tasks: args.until_done,
    };
    let stop = interrupt::watch()?;
    let quiet = args.machine.quiet;
    serve(tasks, settings, stop, &|happened| say(happened, quiet)).map_err(refused)?;
    if stop.is_asked() {
        return Err(Interrupted("stopped; nothing is lost\ngo on with the same command".to_owned()).into());
    }
    Ok(())
}

/// Errors that a person can mend are bad input.
fn refused(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Config(error) => crate::failure::of_config(&error).into(),
        ServeError::Run(error) => crate::failure::refused(*error),
        ServeError::Http(error) => unusable(*error),
        ServeError::Database(error) => unopened(*error),
        ServeError::SameTask { .. } | ServeError::OtherTerms { .. } | ServeError::Folders { .. } => {
            BadInput::Refused(error.to_string()).into()
        }
        other => other.into(),
    }
}

/// Names and modes are a person's to mend; a disk that fails is not.
fn unopened(error: DatabaseError) -> anyhow::Error {
    match error {
        DatabaseError::Name { .. } | DatabaseError::OtherCase { .. } => BadInput::Refused(error.to_string()).into(),
        DatabaseError::Loose { .. } | DatabaseError::Linked { .. } | DatabaseError::Foreign { .. } => {
            BadInput::wrong("data", error).into()
        }
        other => other.into(),
    }
}

/// Addresses, certificates and keys that cannot be used are bad input; a disk that fails is not.
fn unusable(error: HttpError) -> anyhow::Error {
    match error {
        HttpError::File(_) => error.into(),
        HttpError::Listen { .. } => BadInput::wrong("listen", error).into(),
        HttpError::PlainElsewhere { .. } => BadInput::wrong("plain-http", error).into(),
        HttpError::OtherNames { .. } | HttpError::KeyMissing { .. } | HttpError::Certificate { .. } => {
            BadInput::wrong("self-signed", error).into()
        }
        HttpError::Pem { .. } | HttpError::Identity { .. } => BadInput::wrong("certificate", error).into(),
    }
}

fn written(path: &Path, set: &[String]) -> anyhow::Result<Written> {
    let text = read_text("task", path)?;
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let document = Document::new(&text, set).map_err(|e| crate::failure::of_config(&e))?;
    let config = document.config().map_err(|e| crate::failure::of_config(&e))?;
    Ok(Written { name, config })
}

fn transport(args: &ServeArgs) -> anyhow::Result<Transport> {
    Ok(match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Transport::Tls(Identity::from_files(certificate, key).map_err(unusable)?),
        _ if args.plain_http => Transport::PlainOnLoopback,
        _ if args.self_signed.is_empty() => {
            let why = "devices must know whom they speak to. Give a certificate and its --key, or --self-signed NAME, or --plain-http on a loopback address";
            return Err(BadInput::missing("certificate", why).into());
        }
        _ => Transport::Tls(self_signed(&args.data.join("tls"), &args.self_signed).map_err(unusable)?),
    })
}

fn admission(args: &ServeArgs) -> anyhow::Result<Box<dyn Admission>> {
    let Some(path) = &args.token else { return Ok(Box::new(Anybody)) };
    let token = read_text("token", path)?;
    let token = token.trim();
    if token.len() < 16 {
        return Err(BadInput::wrong("token", "the file must hold a token of at least 16 characters").into());
    }
    Ok(Box::new(ByToken::new(token.as_bytes().to_vec())))
}

/// What the server measured itself.
fn measured(metrics: &Metrics) -> String {
    let headline = metrics.measured.measures().headline;
    format!("{} {:.2} %", headline.name, 100.0 * metrics.measured.headline())
}

/// The server's log: a line for each thing that happens.
fn say(happened: &Happened<'_>, quiet: bool) {
    let time = if std::io::stderr().is_terminal() { String::new() } else { format!("{} ", jiff::Timestamp::now()) };
    match happened {
        Happened::Listening(address) => {
            eprintln!("{time}listening on {address}");
            if !quiet {
                eprintln!(
                    "{time}when rounds close and fail follows who came: this log is for operators, and outside the guarantee"
                );
            }
        }
        Happened::Broken { task, error } => eprintln!("{time}{task}: cannot go on: {error}"),
        _ if quiet => {}
        Happened::Running { task, round } => eprintln!("{time}{task}: running, {round} rounds done"),
        Happened::Waits { task, enrolled, begin_with } => eprintln!(
            "{time}{task}: the first round begins when {begin_with} devices are enrolled (devices.begin_with); {enrolled} are"
        ),
        Happened::Ordered { task, order } => {
            let words = match order {
                Order::Run => "goes on",
                Order::Pause => "rests once the round that devices have is over",
                Order::Stop => "is stopped for good",
            };
            eprintln!("{time}{task}: {words}, as its operator wants");
        }
        Happened::Round { task, round, metrics } => {
            let measured = metrics.map(|metrics| format!(", {}", measured(metrics)));
            eprintln!("{time}{task}: round {round} released{}", measured.unwrap_or_default());
        }
        Happened::Evaluated { task, round, metrics } => {
            let by_devices = metrics.by_devices.as_ref().map(|by_devices| format!(", {}", by_devices.words()));
            eprintln!("{time}{task}: after round {round}, {}{}", measured(metrics), by_devices.unwrap_or_default());
        }
        Happened::Failed { task, failed } => eprintln!("{time}{task}: {failed}"),
        Happened::FailedEvaluation { task, failed } => eprintln!("{time}{task}: {failed}"),
        Happened::Over { task, folder } => {
            eprintln!("{time}{task}: over; model, statement and ledger are in {}", folder.display());
        }
    }
}
