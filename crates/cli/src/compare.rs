//! `keyhush compare`: the curves and last values of several runs in one page.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use durable::files;
use federated::{
    home::RunFolder,
    metrics::{METRICS_FILE, Metrics},
    price::Price,
    run, sweep,
};
use report::compare::{self, cells, overlay};
use serde::Serialize;

use crate::{columns, failure::BadInput};

/// Arguments of `keyhush compare`.
#[derive(Args)]
pub(crate) struct CompareArgs {
    /// Folders of the runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// File for the page
    #[arg(long, value_name = "FILE.html", default_value = "compare.html")]
    out: PathBuf,
    /// Print the last values as JSON
    #[arg(long)]
    json: bool,
}

/// The last values of a run.
#[derive(Serialize)]
struct Compared<'a> {
    run: &'a str,
    /// What its statement guarantees, or would.
    stated: Option<Price>,
    last: Option<&'a Metrics>,
}

pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<()> {
    let names = names(&args.runs);
    let mut runs: Vec<(&str, Vec<Metrics>, Option<Price>)> = Vec::new();
    for (name, folder) in names.iter().zip(&args.runs) {
        if !folder.join(METRICS_FILE).is_file() {
            return Err(BadInput::Refused(format!("{} is not the folder of a run", folder.display())).into());
        }
        runs.push((name, sweep::metrics(folder)?, run::stated(&RunFolder::at(folder))));
    }
    let of_page: Vec<compare::Compared<'_>> =
        runs.iter().map(|(name, metrics, stated)| compare::Compared { name, metrics, stated: *stated }).collect();
    files::make_folder(files::folder(&args.out))?;
    files::write(&args.out, overlay(&of_page)?.as_bytes())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let compared =
            runs.iter().map(|(run, metrics, stated)| Compared { run, stated: *stated, last: metrics.last() });
        writeln!(out, "{}", serde_json::to_string_pretty(&compared.collect::<Vec<_>>())?)?;
        return Ok(());
    }
    columns::write(&mut out, &cells(&of_page), columns::Align::Numbers)?;
    writeln!(out, "Page: {}", args.out.display())?;
    Ok(())
}

/// The names of folders without what they have in common at their beginnings.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let parts = |path: &Path| path.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
    let all: Vec<Vec<String>> = folders.iter().map(|folder| parts(folder)).collect();
    let shortest = all.iter().map(Vec::len).min().unwrap_or(0);
    // The last part always stays.
    let common = (0..shortest.saturating_sub(1)).take_while(|i| all.iter().all(|path| path[*i] == all[0][*i])).count();
    all.iter().map(|path| path[common..].join("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_differs() {
        let of = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["runs/a/seed-0", "runs/a/seed-1"]), ["seed-0", "seed-1"]);
        assert_eq!(of(&["runs/a/seed-0", "runs/b/seed-0"]), ["a/seed-0", "b/seed-0"]);
        assert_eq!(of(&["runs/a"]), ["a"]);
        assert_eq!(of(&["x", "runs/a"]), ["x", "runs/a"]);
    }
}
