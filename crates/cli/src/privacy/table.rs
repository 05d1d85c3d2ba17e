//! `keyhush privacy table`: the papers' tables, computed here, next to the printed numbers.

use std::io::Write;

use clap::{Args, ValueEnum};
use experiments::tables::{self, Paper, Section};

use crate::columns;

/// Arguments of `keyhush privacy table`.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Paper
    #[arg(value_enum)]
    paper: PaperName,
    /// Print JSON, one object per cell
    #[arg(long)]
    json: bool,
}

/// The papers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PaperName {
    /// McMahan et al., first version: Tables 1 and 2.
    Mcmahan2017,
    /// McMahan et al.: Tables 1 and 2, and the values in the text.
    Mcmahan2018,
    /// Andrew et al.: Table 1.
    Andrew2021,
    /// Xu et al.: the participation, rho and epsilon of each model.
    Xu2023,
    /// Popov et al.: Table 6, an empirical estimate.
    Popov2018,
}

impl From<PaperName> for Paper {
    fn from(name: PaperName) -> Self {
        match name {
            PaperName::Mcmahan2017 => Self::Mcmahan2017,
            PaperName::Mcmahan2018 => Self::Mcmahan2018,
            PaperName::Andrew2021 => Self::Andrew2021,
            PaperName::Xu2023 => Self::Xu2023,
            PaperName::Popov2018 => Self::Popov2018,
        }
    }
}

pub(crate) fn table(args: &TableArgs) -> anyhow::Result<()> {
    let sections = tables::of(args.paper.into())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        for cell in sections.iter().flat_map(|s| &s.cells) {
            writeln!(out, "{cell}")?;
        }
        return Ok(());
    }
    for (i, section) in sections.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        print(section, &mut out)?;
    }
    Ok(())
}

fn print(section: &Section, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{}", section.title)?;
    let rows: Vec<Vec<String>> = std::iter::once(&section.header).chain(&section.rows).cloned().collect();
    columns::write(out, &rows, columns::Align::Right)?;
    for note in &section.notes {
        writeln!(out, "  {note}")?;
    }
    Ok(())
}
