//! Where a server is: on this machine, by its data folder, or anywhere, by its admin API.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use agent::http::{Server, Trust};
use clap::Args;
use console::{
    export,
    tasks::{AboutServer, NewTask, Task},
};
use federated::protocol::order::Order;
use hyper::{Method, StatusCode};
use ledger::{Digest, hex};
use serde::{Deserialize, de::DeserializeOwned};
use server::{
    listing::{list_in, refuses},
    orders::Orders,
    sqlite::{DATABASE, DatabaseError, SqliteState},
    state::State,
    tasks::{ServeError, check_new, created::Created},
};

use super::Shown;
use crate::{failure::BadInput, model_folder::read_text, reach, serve::refused};

/// The variable that has an access token where no file is named.
const ACCESS: &str = "KEYHUSH_ACCESS";
/// The most bytes of an answer: a model.
const MOST_BYTES: usize = 4 << 30;

/// Which server.
#[derive(Args)]
pub(crate) struct Where {
    /// Data folder of the server, on its own machine (--data of keyhush serve)
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    data: Option<PathBuf>,
    /// Address of the server, such as `https://example.org:8443`
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// File with an access token for the server (keyhush access create) [default: the environment variable KEYHUSH_ACCESS]
    #[arg(long, value_name = "FILE", requires = "server")]
    access: Option<PathBuf>,
    /// Trusted root certificates (PEM) for the server
    #[arg(long, value_name = "FILE", requires = "server", conflicts_with = "pin")]
    roots: Option<PathBuf>,
    /// The server's own certificate (PEM), to pin
    #[arg(long, value_name = "FILE", requires = "server")]
    pin: Option<PathBuf>,
}

impl Where {
    /// The server.
    pub(super) fn place(&self) -> anyhow::Result<Place> {
        let Some(address) = &self.server else {
            let why = "give the data folder of the server (--data), or its address (--server)";
            return Ok(Place::Data(self.data.clone().ok_or_else(|| BadInput::missing("data", why))?));
        };
        let trust = match (&self.roots, &self.pin) {
            (Some(roots), _) => Trust::Roots(roots.clone()),
            (_, Some(pin)) => Trust::Pinned(pin.clone()),
            // What is wrong with an address is said before what is missing beside it.
            _ if address.starts_with("http://") || !address.contains("://") => Trust::Loopback,
            _ => {
                let why = "this command must be able to authenticate the server. Use --roots FILE for a certificate authority, or --pin FILE for the server's own certificate (secrets/tls/cert.pem, if keyhush serve created it)";
                return Err(BadInput::missing("roots", why).into());
            }
        };
        let token = match &self.access {
            Some(path) => read_text("access", path)?,
            None => std::env::var(ACCESS).ok().filter(|token| !token.trim().is_empty()).ok_or_else(|| {
                let why = format!("give a file with an access token, or set {ACCESS}; keyhush access create creates tokens on the server's machine");
                BadInput::missing("access", why)
            })?,
        };
        let server = Server::new(address, &trust, 1).map_err(|error| BadInput::wrong("server", error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Place::Server(Box::new(Api { address: address.clone(), server, token: token.trim().to_owned(), runtime })))
    }
}

/// A server.
pub(super) enum Place {
    /// By its data folder.
    Data(PathBuf),
    /// By its admin API.
    Server(Box<Api>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => data.display().fmt(f),
            Self::Server(api) => f.write_str(&api.address),
        }
    }
}

/// The admin API of a server.
pub(super) struct Api {
    address: String,
    server: Server,
    token: String,
    runtime: tokio::runtime::Runtime,
}

/// Why the server refuses.
#[derive(Deserialize)]
struct Told {
    detail: String,
    next: String,
}

/// The answers that have lists in them.
#[derive(Deserialize)]
struct Tasks {
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Files {
    files: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Api {
    /// The bytes of an answer; a refusal is an error in the server's words.
    fn call(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> anyhow::Result<Vec<u8>> {
        let called = self.server.call(method, path, &self.token, body, MOST_BYTES);
        let (status, bytes) =
            self.runtime.block_on(called).map_err(|error| anyhow::anyhow!("{}: {error}", self.address))?;
        if status.is_success() {
            return Ok(bytes.into());
        }
        let words = match serde_json::from_slice::<Told>(&bytes) {
            Ok(Told { detail, .. }) if status == StatusCode::UNAUTHORIZED => {
                format!(
                    "{detail}; check --access FILE or {ACCESS}: keyhush access list shows on the server's machine which tokens there are"
                )
            }
            Ok(Told { detail, next }) => format!("{detail}; {next}"),
            Err(_) if status == StatusCode::NOT_FOUND => {
                "the server has no admin API here: is it keyhush serve, without --no-console?".to_owned()
            }
            Err(_) => format!("the server answered {status}"),
        };
        if status.is_client_error() { Err(BadInput::Refused(words).into()) } else { Err(anyhow::anyhow!(words)) }
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let bytes = self.call(Method::GET, path, None)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            anyhow::anyhow!(
                "{} answers in another way than this program expects ({error}); use the server's version",
                self.address
            )
        })
    }
}

impl Place {
    /// All tasks.
    pub(super) fn tasks(&self) -> anyhow::Result<Vec<Shown>> {
        match self {
            Self::Data(data) => {
                let state = self.state()?;
                let listed = list_in(state.as_ref(), data);
                let listed =
                    listed.map_err(|e| anyhow::Error::from(e).context(format!("cannot read the tasks in {self}")))?;
                Ok(listed.into_iter().map(Shown::from).collect())
            }
            Self::Server(api) => Ok(api.get::<Tasks>("/api/tasks")?.tasks.into_iter().map(Shown::from).collect()),
        }
    }

    /// Whether a server runs there now.
    pub(super) fn is_served(&self) -> anyhow::Result<bool> {
        match self {
            Self::Data(_) => Ok(self.state()?.map_or(Ok(false), |state| state.is_served())?),
            Self::Server(_) => Ok(true),
        }
    }

    /// The realm of the server, for which approvals are given.
    pub(super) fn realm(&self) -> anyhow::Result<[u8; 32]> {
        match self {
            Self::Data(_) => {
                let why = "no server was started on it yet; start keyhush serve once, which draws its realm";
                let state = self.state_or_none()?.ok_or_else(|| BadInput::wrong("data", why))?;
                Ok(state.coordinator().realm()?)
            }
            Self::Server(api) => realm(&api.get::<AboutServer>("/api/server")?.realm),
        }
    }

    /// Creates a task, whose settings are of a file.
    pub(super) fn create(&self, new: &NewTask, file: &Path) -> anyhow::Result<()> {
        match self {
            Self::Data(data) => {
                if !there(data, reach::is_folder)? {
                    let why = format!("there is no folder {self}; give the --data folder of keyhush serve");
                    return Err(BadInput::wrong("data", why).into());
                }
                let (state, created) = (self.state_or_none()?, Created::in_data(data));
                let check = || {
                    let task = (new.name.as_str(), new.settings.as_str());
                    check_new(state.as_ref(), &created, task, new.approval.as_ref(), None).map(drop)
                };
                created.create(&new.name, &new.settings, new.approval.as_ref(), check).map_err(|error| match error {
                    ServeError::Config(error) => BadInput::Refused(format!("{}: {error}", file.display())).into(),
                    other => refused(other),
                })
            }
            Self::Server(api) => api.call(Method::POST, "/api/tasks", Some(serde_json::to_vec(new)?)).map(drop),
        }
    }

    /// Says what is wanted of a task.
    pub(super) fn order(&self, task: &str, order: Order) -> anyhow::Result<()> {
        let known = super::named(self, task)?;
        match self {
            Self::Data(data) => {
                let (name, why) = (known.task.as_str(), known.why.as_deref().unwrap_or_default());
                if let Some(why) = refuses((name, why), known.state, known.wanted, order) {
                    return Err(BadInput::Refused(why).into());
                }
                Ok(Orders::in_data(data).give(task, order)?)
            }
            Self::Server(api) => {
                let word = match order {
                    Order::Run => "resume",
                    Order::Pause => "pause",
                    Order::Stop => "stop",
                };
                api.call(Method::POST, &format!("/api/tasks/{task}/{word}"), None).map(drop)
            }
        }
    }

    /// The names of the files that can be exported of a task.
    pub(super) fn exports(&self, task: &str) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Data(_) => {
                let Some(state) = self.state()? else { return Ok(Vec::new()) };
                if !state.names()?.iter().any(|name| name == task) {
                    return Ok(Vec::new());
                }
                Ok(export::files(&state, task)?.iter().map(|file| file.name.to_owned()).collect())
            }
            Self::Server(api) => {
                let files = api.get::<Files>(&format!("/api/tasks/{task}/export"))?.files;
                let names: Vec<String> = files.into_iter().map(|file| file.name).collect();
                // They become files of this machine.
                let is_name = |name: &String| !name.starts_with('.') && !name.contains(['/', '\\']);
                match names.iter().find(|name| !is_name(name)) {
                    Some(other) => Err(anyhow::anyhow!("the server names a file {other:?}, which is refused")),
                    None => Ok(names),
                }
            }
        }
    }

    /// The bytes of one of them.
    pub(super) fn export(&self, task: &str, name: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Data(_) => {
                let state = self.state()?.ok_or_else(|| anyhow::anyhow!("the server's database is gone"))?;
                let file = export::files(&state, task)?.into_iter().find(|file| file.name == name);
                let file = file.ok_or_else(|| anyhow::anyhow!("the task {task} has no file {name}"))?;
                Ok(export::bytes(&state, task, file)?)
            }
            Self::Server(api) => api.call(Method::GET, &format!("/api/tasks/{task}/export/{name}"), None),
        }
    }

    /// The state in a data folder; none where no server was started on it, and tasks were created for one.
    fn state(&self) -> anyhow::Result<Option<SqliteState>> {
        let Self::Data(data) = self else { return Ok(None) };
        there(&data.join(DATABASE), reach::is_there)?;
        match SqliteState::read(data) {
            Ok(state) => Ok(Some(state)),
            Err(DatabaseError::Missing { .. }) if data.join("tasks").is_dir() => Ok(None),
            Err(missing @ DatabaseError::Missing { .. }) => {
                Err(BadInput::wrong("data", format!("{missing}; give the --data folder of keyhush serve")).into())
            }
            Err(other) => Err(anyhow::Error::from(other).context(format!("cannot read the tasks in {self}"))),
        }
    }

    /// The same, also where nothing was created yet: a folder for a server that is to be started.
    fn state_or_none(&self) -> anyhow::Result<Option<SqliteState>> {
        match self {
            Self::Data(data) if there(data, reach::is_folder)? && !there(&data.join(DATABASE), reach::is_there)? => {
                Ok(None)
            }
            _ => self.state(),
        }
    }
}

/// Looks at a path of the data folder; what may not be looked at is not said to be missing.
fn there(path: &Path, look: fn(&Path) -> Result<bool, String>) -> Result<bool, BadInput> {
    look(path).map_err(|why| BadInput::wrong("data", why))
}

/// A realm as it is written.
pub(super) fn realm(text: &str) -> anyhow::Result<[u8; 32]> {
    let digest: Digest = text.trim().parse().map_err(|error| BadInput::wrong("realm", error))?;
    Ok(*digest.as_bytes())
}

/// The same, to be shown.
pub(super) fn shown(realm: &[u8; 32]) -> String {
    hex(realm)
}

/// Errors of settings and approvals are a person's to mend.
pub(super) fn mendable(error: ServeError) -> anyhow::Error {
    refused(error)
}
