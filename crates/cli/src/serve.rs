//! `keyhush serve`: runs a server and its tasks for real devices.

use std::{
    io::IsTerminal,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use console::{
    Console,
    access::{Access, Role, Token},
};
use federated::{
    config::Document,
    protocol::{
        admission::{Admission, Anybody, ByToken, EnrolmentLimits},
        pace::Pace,
    },
};
use ledger::VerifyingKey;
use server::{
    attestation::{Attestation, ByCommand},
    http::{
        HttpError, Identity, Limits, ListenError, Network, Origin, Origins, Proxies, Transport, fingerprint,
        self_signed,
    },
    observed::Observed,
    sqlite::{DatabaseError, SqliteState, check_folders},
    tasks::{Happened, ServeError, Settings, Written, serve},
    token::token_in,
};

use crate::{
    approval,
    failure::{BadInput, Interrupted, Told},
    interrupt,
    model_folder::{read_settings, read_text},
    officer::public_key,
    train::MachineArgs,
};

/// How long a server that is asked to stop may take. If a step takes longer, such as the noise of a large model, or a disk that does not answer, the program
/// exits anyway: what is durable stays, as after a crash, and the rest is done again.
const ENDS_IN: Duration = Duration::from_millis(4200);
const ENDS_AT_ONCE: &str =
    "stopped during a step, which will be repeated; nothing is lost\nresume with the same command";

mod log;

use self::log::{Format, Level, Line, Log};

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Settings file of each task, with data.kind = "devices"; the file's name is the task's name. A privacy officer's approval is read from
    /// TASK.approval next to it. Tasks of keyhush task create need not be named
    #[arg(value_name = "TASK.toml")]
    tasks: Vec<PathBuf>,
    /// Address to listen on, such as 0.0.0.0:8443
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Folder for the server's state: one SQLite database, and the models of finished tasks
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Folder for secret keys (ledgers, noise, rounds). Keep it on a different disk than --data, and out of backups
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,
    /// Certificate chain of the server, in PEM. It is read again when it is replaced, without a restart
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Create a self-signed certificate for this host name (secrets/tls/cert.pem), which devices pin; may be repeated [default: one for the
    /// address of --listen]
    #[arg(long, value_name = "NAME", conflicts_with = "certificate")]
    self_signed: Vec<String>,
    /// Use plain HTTP; only allowed on a loopback address
    #[arg(long, conflicts_with_all = ["certificate", "self_signed"])]
    plain_http: bool,
    /// File with the token that devices enrol with [default: secrets/token, created at random]
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Let anyone enrol who can reach the server. One person can then enrol any number of devices
    #[arg(long, conflicts_with = "token")]
    anybody: bool,
    /// Command that decides whether a device with a valid token may enrol. Its standard input is the device's key (64 hexadecimal digits), a
    /// newline, and the device's attestation (keyhush device --attestation). Exit code 0 within 10 seconds admits the device
    #[arg(long, value_name = "COMMAND")]
    attest: Option<String>,
    /// Most enrolments per hour
    #[arg(long, value_name = "N", default_value_t = EnrolmentLimits::default().an_hour)]
    enrolments: u64,
    /// Most enrolments per hour from one address. Behind a proxy that is not trusted, all devices share one address
    #[arg(long, value_name = "N", default_value_t = EnrolmentLimits::default().an_hour_by_address)]
    enrolments_by_address: u64,
    /// Trust X-Forwarded-For from a proxy at this address or in this network; may be repeated. The proxy must append the address of its
    /// client to the header, or replace the header
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    trusted_proxy: Vec<Network>,
    /// Allow requests from web pages of this origin (CORS), for devices that run in a browser: scheme and host, as browsers send them. May be
    /// repeated; without it no page is allowed
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,
    /// Answer devices only: no dashboard, no admin API. By default both are on the same address, for those who have a token (keyhush access)
    #[arg(long)]
    no_console: bool,
    /// Public key of a privacy officer who must have approved each task (keyhush task approve): 64 hexadecimal digits, or a file with them. May be
    /// repeated: one of them is enough. Without it tasks need no approval
    #[arg(long, value_name = "KEY")]
    officer: Vec<String>,
    /// Override a setting of every task that is named here, such as rounds=10
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Exit when all tasks are finished, instead of telling devices that there is nothing to do
    #[arg(long)]
    until_done: bool,
    /// Shortest time, in seconds, that a device is told to stay away
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, allow_negative_numbers = true)]
    least_pause: f64,
    /// Format of the log on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    log: Format,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs `keyhush serve`. A log for programs has how it ended, too.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let log = Log::new(args.log, args.machine.quiet);
    serve_until_stopped(args, &log).map_err(|error| {
        if log.is_text() {
            return error;
        }
        let level = if error.is::<Interrupted>() { Level::Info } else { Level::Error };
        Told::by(&error, |words| log.says(Line::new(level, "stopped", words))).into()
    })
}

fn serve_until_stopped(args: &ServeArgs, log: &Log) -> anyhow::Result<()> {
    let tasks = args.tasks.iter().map(|path| written(path, &args.set)).collect::<anyhow::Result<Vec<_>>>()?;
    if !(0.0..=86_400.0).contains(&args.least_pause) {
        return Err(BadInput::wrong("least-pause", "must be from 0 to 86400 seconds").into());
    }
    let officers = args.officer.iter().map(|given| public_key(given)).collect::<Result<Vec<_>, _>>()?;
    check_folders(&args.data, &args.secrets).map_err(unopened)?;
    let certificate = certificate(args);
    let token = token(args)?;
    let limits = Limits::default();
    let mut settings = Settings {
        listen: args.listen,
        data: args.data.clone(),
        transport: transport(&certificate)?,
        admission: admission(args, token.as_deref())?,
        attestation: args.attest.clone().map(|command| Arc::new(ByCommand::new(command)) as Arc<dyn Attestation>),
        enrolments: EnrolmentLimits { an_hour: args.enrolments, an_hour_by_address: args.enrolments_by_address },
        means: args.machine.means()?,
        limits,
        proxies: Proxies::new(args.trusted_proxy.clone()),
        origins: Origins::new(args.allow_origin.clone()),
        pace: Pace { least_s: args.least_pause, ..Pace::default() },
        tells: log.requests(),
        observed: Arc::default(),
        routes: axum::Router::new(),
        ends_with_tasks: args.until_done,
        officers: officers.clone(),
    };
    let stop = interrupt::watch()?;
    let last_words = log.clone();
    interrupt::end_within(ENDS_IN, move || last_words.says(Line::new(Level::Warning, "stopped", ENDS_AT_ONCE)))?;
    let welcome = welcome(args, &certificate, token.as_deref())?;
    let state = SqliteState::open(&args.data, &args.secrets).map_err(unopened)?;
    let mut shows = None;
    if !args.no_console {
        let access = Access::in_secrets(&args.secrets);
        shows = Some(dashboard(args, &certificate, &access)?);
        settings.routes = console(args, access, limits, officers, Arc::clone(&settings.observed))?.router();
    }
    serve(&state, tasks, settings, stop, &|happened| {
        log.happened(happened);
        if let Happened::Listening(address) = happened {
            welcome.iter().for_each(|welcome| log.says(Line::new(Level::Info, "welcome", welcome(*address))));
            shows.iter().for_each(|shows| log.says(Line::new(Level::Info, "dashboard", shows(*address))));
        }
    })
    .map_err(refused)?;
    if stop.is_asked() {
        return Err(Interrupted("stopped; nothing is lost\nresume with the same command".to_owned()).into());
    }
    Ok(())
}

/// Errors that a person can mend are bad input.
pub(crate) fn refused(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Config(error) => crate::failure::of_config(&error).into(),
        ServeError::Run(error) => crate::failure::refused(*error),
        ServeError::Http(error) => unusable(*error),
        ServeError::OtherTerms { .. } | ServeError::NoTask => BadInput::Refused(error.to_string()).into(),
        error if error.is_of_the_task() => BadInput::Refused(error.to_string()).into(),
        other => other.into(),
    }
}

/// Folders and modes are a person's to mend; a disk that fails is not.
pub(crate) fn unopened(error: DatabaseError) -> anyhow::Error {
    match error {
        DatabaseError::Folders { .. } => BadInput::Refused(error.to_string()).into(),
        DatabaseError::Loose { .. } | DatabaseError::Linked { .. } | DatabaseError::Foreign { .. } => {
            BadInput::wrong("data", error).into()
        }
        other => other.into(),
    }
}

/// Addresses, certificates and keys that cannot be used are bad input; a disk that fails is not.
pub(crate) fn unusable(error: HttpError) -> anyhow::Error {
    match error {
        HttpError::File(_) => error.into(),
        HttpError::Listen(ListenError::Address { .. }) => BadInput::wrong("listen", error).into(),
        HttpError::Listen(ListenError::PlainElsewhere { .. }) => BadInput::wrong("plain-http", error).into(),
        HttpError::OtherNames { .. } | HttpError::KeyMissing { .. } | HttpError::Certificate { .. } => {
            BadInput::wrong("self-signed", error).into()
        }
        HttpError::OtherNext { .. } | HttpError::LacksNames { .. } => BadInput::wrong("name", error).into(),
        HttpError::Pem { .. } | HttpError::Identity { .. } => BadInput::wrong("certificate", error).into(),
    }
}

fn written(path: &Path, set: &[String]) -> anyhow::Result<Written> {
    let text = read_settings(path)?;
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let config = Document::new(&text, set).and_then(|document| document.config());
    // There may be several tasks: which one is wrong is said too.
    let config = config.map_err(|e| BadInput::Refused(format!("{}: {e}", path.display())))?;
    let approval = approval::read(None, path)?;
    Ok(Written { name, config, approval })
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

/// Where a generated certificate is stored: its key is a secret. Older servers keep it with their data, and devices have pinned it.
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
            Transport::Tls(Arc::new(told(Identity::from_files(certificate, key).map_err(unusable)?)))
        }
        Certificate::Made { folder, names } => {
            Transport::Tls(Arc::new(told(self_signed(folder, names).map_err(unusable)?)))
        }
    })
}

/// The log has it when a certificate is replaced, or is not.
fn told(identity: Identity) -> Identity {
    identity.telling(|words| eprintln!("{words}"))
}

/// Where the token lies: the operator's file, or one that is drawn. None where anybody may enrol.
fn token(args: &ServeArgs) -> anyhow::Result<Option<PathBuf>> {
    match &args.token {
        _ if args.anybody => Ok(None),
        Some(path) => Ok(Some(path.clone())),
        None => Ok(Some(token_in(&args.secrets).map_err(unopened)?)),
    }
}

/// The console, on a reader of the server's state.
fn console(
    args: &ServeArgs,
    access: Access,
    limits: Limits,
    officers: Vec<VerifyingKey>,
    observed: Arc<Observed>,
) -> anyhow::Result<Console<SqliteState>> {
    let state = Arc::new(SqliteState::read(&args.data).map_err(unopened)?);
    Ok(Console { state, data: args.data.clone(), access, officers, limits, observed, about: None })
}

/// The dashboard's address. The first time that a person starts a server at a terminal, a token is created, and the address has it. It is not printed where
/// the output may be kept, as in the journal of a service: there the words say how to create one.
fn dashboard(
    args: &ServeArgs,
    certificate: &Certificate<'_>,
    access: &Access,
) -> anyhow::Result<impl Fn(SocketAddr) -> String + use<>> {
    let is_new = !access.exists().map_err(crate::access::refused)?;
    // A log for programs is kept.
    let token = if is_new && args.log == Format::Text && std::io::stderr().is_terminal() {
        Some(access.create("first", Role::Operator).map_err(crate::access::refused)?)
    } else {
        None
    };
    let scheme = if args.plain_http { "http" } else { "https" };
    let name = host(certificate);
    let create = format!("keyhush access create NAME --role viewer --secrets {}", args.secrets.display());
    Ok(move |address: SocketAddr| {
        let host = name.clone().unwrap_or_else(|| bracketed(address.ip()));
        let place = format!("{scheme}://{host}:{}/", address.port());
        match token.as_ref().map(Token::text) {
            Some(token) => format!(
                "dashboard: {place}#token={token}\nthe token has the role operator and is shown once; for other people: {create}"
            ),
            None if is_new => format!("dashboard: {place}; nobody has a token yet: {create}"),
            None => format!("dashboard: {place}"),
        }
    })
}

/// The first name of a certificate that is made, which clients may call the server.
fn host(certificate: &Certificate<'_>) -> Option<String> {
    match certificate {
        Certificate::Made { names, .. } => names.first().cloned(),
        _ => None,
    }
}

/// An address as it is written in a URL.
fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The command to connect a device, if the server generated its certificate or token.
fn welcome(
    args: &ServeArgs,
    certificate: &Certificate<'_>,
    token: Option<&Path>,
) -> anyhow::Result<Option<impl Fn(SocketAddr) -> String>> {
    let (mut flags, mut words, mut name) = (String::new(), String::new(), None);
    if let Certificate::Made { folder, .. } = certificate {
        let path = folder.join("cert.pem");
        flags.push_str(&format!(" --pin {}", path.display()));
        words = format!("SHA-256 of the certificate: {}\n", fingerprint(&path).map_err(unusable)?);
        name = host(certificate);
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
        let host = name.clone().unwrap_or_else(|| bracketed(address.ip()));
        format!(
            "{words}to connect a device: keyhush device --server {scheme}://{host}:{}{flags} --text DIR",
            address.port()
        )
    }))
}

fn admission(args: &ServeArgs, path: Option<&Path>) -> anyhow::Result<Box<dyn Admission>> {
    let Some(path) = path.filter(|_| !args.anybody) else { return Ok(Box::new(Anybody)) };
    let token = read_text("token", path)?;
    let token = token.trim();
    if token.len() < 16 {
        return Err(BadInput::wrong("token", "the token in the file must have at least 16 characters").into());
    }
    Ok(Box::new(ByToken::new(token.as_bytes().to_vec())))
}
