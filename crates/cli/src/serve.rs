//! `keyhush serve`: a server and its tasks, for devices that come by themselves.

use std::{
    io::IsTerminal,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use federated::{
    config::Document,
    fleet::Stop,
    metrics::Metrics,
    protocol::{
        admission::{Admission, Anybody, ByToken, EnrolmentLimits},
        order::Order,
        pace::Pace,
    },
};
use server::{
    attestation::{Attestation, ByCommand},
    http::{HttpError, Identity, Limits, Network, Origin, Origins, Proxies, Transport, fingerprint, self_signed},
    sqlite::DatabaseError,
    tasks::{Happened, ServeError, Settings, Written, check_folders, serve},
    token::token_in,
};

use crate::{
    failure::{BadInput, Interrupted},
    interrupt,
    model_folder::{read_settings, read_text},
    train::MachineArgs,
};

/// How long a server that is asked to stop may take.
const ENDS_IN: Duration = Duration::from_millis(4200);

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
    /// Make a certificate for this name, which devices pin: secrets/tls/cert.pem. May be given several times. Where nothing is said of certificates, one
    /// is made for the address that it listens on
    #[arg(long, value_name = "NAME", conflicts_with = "certificate")]
    self_signed: Vec<String>,
    /// Speak plain HTTP. Only on a loopback address
    #[arg(long, conflicts_with_all = ["certificate", "self_signed"])]
    plain_http: bool,
    /// A file with the token that devices enrol with. Where neither this nor --anybody is said, one is drawn: secrets/token
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Let anybody enrol who reaches the server. One person can then be any number of devices
    #[arg(long, conflicts_with = "token")]
    anybody: bool,
    /// Ask this command about each device that would enrol, once its token is right. On its standard input it gets the key in 64 hexadecimal digits, the
    /// end of a line, and what the device says (keyhush device --attestation); it lets the device in by ending with 0, within 10 seconds
    #[arg(long, value_name = "COMMAND")]
    attest: Option<String>,
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
    /// Let web pages of this origin speak to the server (CORS), a scheme and a host as browsers send them: for devices that run in a browser. May be given several
    /// times; without it browsers let no page do so
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,
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
    check_folders(&args.data, &args.secrets).map_err(refused)?;
    let certificate = certificate(args);
    let token = token(args)?;
    let settings = Settings {
        listen: args.listen,
        data: args.data.clone(),
        secrets: args.secrets.clone(),
        transport: transport(&certificate)?,
        admission: admission(args, token.as_deref())?,
        attestation: args.attest.clone().map(|command| Arc::new(ByCommand::new(command)) as Arc<dyn Attestation>),
        enrolments: EnrolmentLimits { an_hour: args.enrolments, an_hour_by_address: args.enrolments_by_address },
        means: args.machine.means()?,
        limits: Limits::default(),
        proxies: Proxies::new(args.trusted_proxy.clone()),
        origins: Origins::new(args.allow_origin.clone()),
        pace: Pace { least_s: args.least_pause, ..Pace::default() },
        ends_with_tasks: args.until_done,
    };
    let stop = interrupt::watch()?;
    let quiet = args.machine.quiet;
    end_in_time(stop)?;
    let welcome = welcome(args, &certificate, token.as_deref())?;
    serve(tasks, settings, stop, &|happened| {
        say(happened, quiet);
        if let (Happened::Listening(address), Some(welcome)) = (happened, &welcome) {
            eprintln!("{}", welcome(*address));
        }
    })
    .map_err(refused)?;
    if stop.is_asked() {
        return Err(Interrupted("stopped; nothing is lost\ngo on with the same command".to_owned()).into());
    }
    Ok(())
}

/// Whoever asks a server to stop has it gone in five seconds. Where a step takes longer, such as the noise of a large model, or a disk that
/// does not answer, the program ends in its midst: what is durable is so, as after a crash, and the rest is done again.
fn end_in_time(stop: &'static Stop) -> anyhow::Result<()> {
    let watch = move || {
        while !stop.is_asked() {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(ENDS_IN);
        eprintln!("stopped in the midst of a step, which is done again; nothing is lost\ngo on with the same command");
        std::process::exit(i32::from(interrupt::EXIT_CODE));
    };
    std::thread::Builder::new().name("stop".to_owned()).spawn(watch)?;
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
    let text = read_settings(path)?;
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let config = Document::new(&text, set).and_then(|document| document.config());
    // There may be several tasks: which one is wrong is said too.
    let config = config.map_err(|e| BadInput::Refused(format!("{}: {e}", path.display())))?;
    Ok(Written { name, config })
}

/// Which certificate a server has.
enum Certificate<'a> {
    /// None: it speaks plain HTTP, on this machine.
    None,
    /// The operator's, with its key.
    Given(&'a Path, &'a Path),
    /// One that is made for these names, in a folder.
    Made { folder: PathBuf, names: Vec<String> },
}

fn certificate(args: &ServeArgs) -> Certificate<'_> {
    match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Certificate::Given(certificate, key),
        _ if args.plain_http => Certificate::None,
        _ if args.self_signed.is_empty() => {
            Certificate::Made { folder: made_in(args), names: names_of(args.listen.ip()) }
        }
        _ => Certificate::Made { folder: made_in(args), names: args.self_signed.clone() },
    }
}

/// Where a certificate that is made lies: its key is a secret. Servers of before have it beside their data, and devices have pinned it.
fn made_in(args: &ServeArgs) -> PathBuf {
    let before = args.data.join("tls");
    if before.join("cert.pem").exists() { before } else { args.secrets.join("tls") }
}

/// What devices may call a server that listens there.
fn names_of(listen: IpAddr) -> Vec<String> {
    let listen = listen.to_canonical();
    let mut names = Vec::new();
    if listen.is_unspecified() || listen.is_loopback() {
        names.push("localhost".to_owned());
    }
    if listen.is_unspecified() {
        let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        names.extend(Some(host.trim()).filter(|name| !name.is_empty()).filter(is_name).map(str::to_owned));
    } else {
        names.push(listen.to_string());
    }
    names
}

fn transport(certificate: &Certificate<'_>) -> anyhow::Result<Transport> {
    Ok(match certificate {
        Certificate::None => Transport::PlainOnLoopback,
        Certificate::Given(certificate, key) => {
            Transport::Tls(Identity::from_files(certificate, key).map_err(unusable)?)
        }
        Certificate::Made { folder, names } => Transport::Tls(self_signed(folder, names).map_err(unusable)?),
    })
}

/// Where the token lies: the operator's file, or one that is drawn. None where anybody may enrol.
fn token(args: &ServeArgs) -> anyhow::Result<Option<PathBuf>> {
    match &args.token {
        _ if args.anybody => Ok(None),
        Some(path) => Ok(Some(path.clone())),
        None => Ok(Some(token_in(&args.secrets).map_err(unopened)?)),
    }
}

/// What a device needs to come, where the server made some of it by itself: a line for whoever starts devices.
fn welcome(
    args: &ServeArgs,
    certificate: &Certificate<'_>,
    token: Option<&Path>,
) -> anyhow::Result<Option<impl Fn(SocketAddr) -> String>> {
    let (mut flags, mut words, mut name) = (String::new(), String::new(), None);
    if let Certificate::Made { folder, names } = certificate {
        let path = folder.join("cert.pem");
        flags.push_str(&format!(" --pin {}", path.display()));
        words = format!("the certificate has the SHA-256 {}\n", fingerprint(&path).map_err(unusable)?);
        name = names.first().cloned();
    } else if let Certificate::Given(..) = certificate {
        flags.push_str(" --roots FILE");
    }
    if let Some(path) = token {
        flags.push_str(&format!(" --token {}", path.display()));
    }
    let scheme = if args.plain_http { "http" } else { "https" };
    let drawn = args.token.is_none() && !args.anybody;
    let made = matches!(certificate, Certificate::Made { .. });
    Ok((drawn || made).then_some(move |address: SocketAddr| {
        let host = name.clone().unwrap_or_else(|| address.ip().to_string());
        format!(
            "{words}devices come by: keyhush device --server {scheme}://{host}:{}{flags} --text DIR",
            address.port()
        )
    }))
}

fn admission(args: &ServeArgs, path: Option<&Path>) -> anyhow::Result<Box<dyn Admission>> {
    let Some(path) = path.filter(|_| !args.anybody) else { return Ok(Box::new(Anybody)) };
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
    format!("{} {}", headline.label, headline.shown(metrics.measured.headline()))
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
