//! `keyhush board`: serves a page of all runs, live while they train, or exports a copy of it.

use std::{io::Write, net::Ipv4Addr, path::PathBuf, time::Duration};

use ::board::{
    export::{self, ExportError},
    http,
    listing::Board,
    watch::Watcher,
};
use clap::Args;
use listen::{Limits, ListenError, Server, Transport};
use serde::Serialize;

use crate::{failure::BadInput, interrupt};

/// The default port; another one is used if it is taken.
const PORT: u16 = 7475;
/// Connections at a time: a browser has six.
const CONNECTIONS: usize = 256;
/// How often it checks whether to end.
const PAUSE: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  keyhush board                          all runs in the folder runs
  keyhush board runs/sweep other/run     those of a sweep, and one more
  keyhush board --export copy            write the page to a folder; open copy/index.html

The page finds new runs and follows those in progress. It can only be opened on this machine; to see the runs of another machine, \
use a tunnel: ssh -L 7475:127.0.0.1:7475 HOST. Selection, sorting and zoom are part of the address, so a link shows the same view.";

/// Arguments of `keyhush board`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BoardArgs {
    /// Folders of runs, or folders that contain runs
    #[arg(value_name = "RUNS", default_value = "runs")]
    runs: Vec<PathBuf>,
    /// The port on this machine, 0 for any [default: 7475, or any if that is taken]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Write the page and its data to this folder instead; it opens without a server
    #[arg(long, value_name = "DIR", conflicts_with = "port")]
    export: Option<PathBuf>,
    /// Print the address of the page as JSON
    #[arg(long)]
    json: bool,
}

/// The address of a board.
#[derive(Serialize)]
struct Serving<'a> {
    address: &'a str,
}

/// The result of an export.
#[derive(Serialize)]
struct Exported {
    page: String,
    runs: usize,
}

pub(crate) fn board(args: &BoardArgs) -> anyhow::Result<()> {
    if let Some(missing) = args.runs.iter().find(|folder| !folder.is_dir()) {
        let words = format!(
            "there is no folder {}: give folders of runs, or train one first (keyhush train)",
            missing.display()
        );
        return Err(BadInput::Refused(words).into());
    }
    match &args.export {
        Some(folder) => {
            let runs = export::write(&args.runs, folder).map_err(|error| match error {
                ExportError::NoRuns { .. } | ExportError::NotOurs { .. } => BadInput::Refused(error.to_string()).into(),
                other => anyhow::Error::from(other),
            })?;
            let page = folder.join("index.html").display().to_string();
            let words = format!("Copied {runs} {}: {page}", if runs == 1 { "run" } else { "runs" });
            say(args, &words, &Exported { page, runs })
        }
        None => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(serve(args))
        }
    }
}

async fn serve(args: &BoardArgs) -> anyhow::Result<()> {
    let stop = interrupt::watch()?;
    let server = bind(args.port).await.map_err(|error| BadInput::wrong("port", error))?;
    let board = Board::default();
    let watching = Watcher::new(args.runs.clone(), board.clone()).start()?;
    let address = format!("http://{}/", server.address());
    say(args, &format!("Board: {address} (Ctrl-C ends it)"), &Serving { address: &address })?;
    let ended = async {
        while !stop.is_asked() {
            tokio::time::sleep(PAUSE).await;
        }
        board.end();
    };
    server.serve(http::router(board.clone()), ended).await;
    drop(watching);
    Ok(())
}

/// At the given port; otherwise at the default one, or at any port if that is taken.
async fn bind(port: Option<u16>) -> Result<Server, ListenError> {
    let limits = Limits { connections: CONNECTIONS, by_loopback: CONNECTIONS, ..Limits::default() };
    let at = |port: u16| Server::bind((Ipv4Addr::LOCALHOST, port).into(), Transport::PlainOnLoopback, limits);
    match port {
        Some(port) => at(port).await,
        None => match at(PORT).await {
            Ok(server) => Ok(server),
            Err(_) => at(0).await,
        },
    }
}

fn say(args: &BoardArgs, words: &str, data: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(data)?)?;
    } else {
        writeln!(out, "{words}")?;
    }
    Ok(out.flush()?)
}
