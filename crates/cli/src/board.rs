//! `keyhush board`: one page over all runs, live while they train, or a copy of it.

use std::{io::Write, net::Ipv4Addr, path::PathBuf, time::Duration};

use ::board::{
    export::{self, ExportError},
    http,
    listing::Board,
    watch::Watcher,
};
use clap::Args;
use serde::Serialize;
use server::http::{HttpError, Limits, Server, Transport};

use crate::{failure::BadInput, interrupt};

/// Where the board is, if nothing is said and nobody else is there.
const PORT: u16 = 7475;
/// Connections at a time: a browser has six.
const CONNECTIONS: usize = 256;
/// How often it is looked whether it is to end.
const PAUSE: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  keyhush board                          all runs in the folder runs
  keyhush board runs/sweep other/run     those of a sweep, and one more
  keyhush board --export copy            the page with its data as a folder: open copy/index.html

The page finds new runs by itself and follows those that train. Only this machine can open it; to look at the runs of another
one: ssh -L 7475:127.0.0.1:7475 HOST. What is selected, sorted and zoomed stands in the address: a link shows the same.";

/// Arguments of `keyhush board`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BoardArgs {
    /// Folders of runs, or folders with runs in them
    #[arg(value_name = "RUNS", default_value = "runs")]
    runs: Vec<PathBuf>,
    /// The port on this machine, 0 for any [default: 7475, or any if that is taken]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Write the page and its data into this folder instead; it opens without a server
    #[arg(long, value_name = "DIR", conflicts_with = "port")]
    export: Option<PathBuf>,
    /// Print where the page is as JSON
    #[arg(long)]
    json: bool,
}

/// Where a board is.
#[derive(Serialize)]
struct Serving<'a> {
    address: &'a str,
}

/// What was copied.
#[derive(Serialize)]
struct Exported {
    page: String,
    runs: usize,
}

pub(crate) fn board(args: &BoardArgs) -> anyhow::Result<()> {
    if let Some(missing) = args.runs.iter().find(|folder| !folder.is_dir()) {
        let words = format!(
            "there is no folder {}: name folders of runs, or train one first (keyhush train)",
            missing.display()
        );
        return Err(BadInput::Refused(words).into());
    }
    match &args.export {
        Some(folder) => {
            let runs = export::write(&args.runs, folder).map_err(|error| match error {
                ExportError::NoRuns { .. } => BadInput::Refused(error.to_string()).into(),
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

/// At the port that was asked for; otherwise at the usual one, or at any where that is taken.
async fn bind(port: Option<u16>) -> Result<Server, HttpError> {
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
