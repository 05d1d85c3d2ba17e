//! Reports: pages, charts and TensorBoard files of runs. Everything shown comes from the files of runs.
//!
//! | module          | what it is                                              |
//! |-----------------|---------------------------------------------------------|
//! | [`run`]         | `report.html`: a run on one page, from its folder       |
//! | [`compare`]     | several runs in the same charts                         |
//! | [`audit`]       | charts of audits                                        |
//! | [`planned`]     | charts of what runs would cost                          |
//! | [`board`]       | a run as data, for the page over all runs               |
//! | [`sweep`]       | the runs of a sweep: page, table, numbers               |
//! | [`scalars`]     | the scalars of a run over its rounds                    |
//! | [`settings`]    | settings for display, without local paths               |
//! | [`tensorboard`] | the same, for TensorBoard                               |
//! | [`following`]   | updates the pages of a run in progress                  |
//! | [`chart`]       | line charts as SVG                                      |
//! | `curves`        | the charts that reports and comparisons share           |
//! | `page`, `markup` | the template of all pages, and escaping                |
//!
//! [`federated::metrics::registry`] defines all metrics and their names.

pub mod audit;
pub mod board;
pub mod chart;
pub mod compare;
mod curves;
pub mod following;
mod markup;
mod page;
pub mod planned;
pub mod run;
pub mod scalars;
pub mod settings;
pub mod sweep;
pub mod tensorboard;

use durable::files::FileError;
use federated::run::RunError;
use thiserror::Error;

use self::chart::ChartError;

/// Why something could not be shown.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A chart cannot be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// A page cannot be written.
    #[error("the page could not be written: {0}")]
    Page(#[from] askama::Error),
    /// A run cannot be read.
    #[error(transparent)]
    Run(#[from] Box<RunError>),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
