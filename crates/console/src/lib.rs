//! What operators of a server see and do over HTTP, beside the protocol of devices on the same address.
//!
//! | module       | what it is                                                                                     |
//! |--------------|------------------------------------------------------------------------------------------------|
//! | [`access`]   | tokens and roles: who may see and do what                                                      |
//! | [`about`]    | what a server says of itself above its tasks, in a demonstration                                |
//! | [`dashboard`] | the dashboard at `/`: its page, and what it is told                                           |
//! | `feed`       | the endpoints of the dashboard, and how its pages hear of changes                              |
//! | [`problems`] | why a request is refused, and what to do next (RFC 9457)                                       |
//! | [`endpoint`] | what an endpoint is, described once, and what answers it                                       |
//! | [`router`]   | from endpoints, each described once, to routes: who may use it, limits, headers                |
//! | `lately`     | the state of tasks as it was read a moment ago                                                 |
//! | [`metrics`]  | numbers for Prometheus, at `/metrics`                                                          |
//! | [`tasks`]    | the endpoints of tasks                                                                         |
//! | [`export`]   | what people take home of a task                                                                |
//! | `openapi`    | the description of all endpoints, at `/openapi.json`                                           |
//!
//! A console reads the state of a server as `keyhush task` does, and gives orders as it does. What a viewer is told is what is released (rules
//! P12 and P23); exact counts of devices are for operators, and marked as outside the guarantee (rule P26).

pub mod about;
pub mod access;
pub mod dashboard;
pub mod endpoint;
pub mod export;
mod feed;
mod lately;
pub mod metrics;
mod openapi;
pub mod problems;
pub mod router;
pub mod tasks;

use std::{path::PathBuf, sync::Arc};

use durable::files::FileError;
use ledger::VerifyingKey;
use listen::Limits;
use server::{observed::Observed, state::State};
use thiserror::Error;

use crate::{about::About, access::Access};

/// A console of one server.
pub struct Console<S> {
    /// The server's state, opened for reading.
    pub state: Arc<S>,
    /// The server's data folder, where orders are given.
    pub data: PathBuf,
    /// Who may use it.
    pub access: Access,
    /// The privacy officers of whom one must approve each task; empty where no approval is needed.
    pub officers: Vec<VerifyingKey>,
    /// The limits of the server, for bodies and answers.
    pub limits: Limits,
    /// What operators may see while the server runs: the one that is given to the server too.
    pub observed: Arc<Observed>,
    /// What the server says of itself above its tasks; nothing by default.
    pub about: Option<Arc<About>>,
}

impl<S: State + 'static> Console<S> {
    /// The routes of the console, for [`server::tasks::Settings::routes`].
    pub fn router(self) -> axum::Router {
        router::of(self)
    }
}

/// Why tokens cannot be read, created or revoked.
#[derive(Debug, Error)]
pub enum ConsoleError {
    /// A name that no token can have.
    #[error("a token's name must have 1 to 64 letters, digits, '-', '_', '.' or '@', not {name:?}")]
    Name {
        /// The name.
        name: String,
    },
    /// There is a token of this name already.
    #[error(
        "there is a token called {name:?} already; revoke it first (keyhush access revoke {name}), or choose another name"
    )]
    Taken {
        /// The name.
        name: String,
    },
    /// There is no token of this name.
    #[error("no token is called {name:?}; the tokens: {there}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        there: String,
    },
    /// The file cannot be understood.
    #[error("{} is damaged: {problem}. Nobody has access until it is repaired, or removed and its tokens created again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Others could read or change the file.
    #[error("{} has mode {mode:o}, so others can reach it; make it 600 (chmod 600)", path.display())]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another command changes the file.
    #[error("another command is changing {}; try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The operating system has no randomness to give.
    #[error("the operating system provided no randomness")]
    Randomness(#[source] getrandom::Error),
    /// The folder of secrets cannot be used.
    #[error(transparent)]
    Secrets(#[from] Box<ledger::LedgerError>),
    /// The disk fails.
    #[error(transparent)]
    File(#[from] FileError),
}
