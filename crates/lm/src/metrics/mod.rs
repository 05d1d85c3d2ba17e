//! Keyboard metrics: accuracy, perplexity, keystrokes saved.
//!
//! One pass over a test set yields [`Counts`]; every metric is a quotient of them, and counts of parts of a test set add
//! up exactly, in any order. So threads may share the work and the result is the same to the bit.
//!
//! | metric                                | where it is defined                                                |
//! |---------------------------------------|--------------------------------------------------------------------|
//! | [`Counts::accuracy`]                  | McMahan et al. 2018, appendix B, "Accuracy metrics"                |
//! | [`Counts::accuracy_in_vocabulary`]    | the same over known words only, as keyboards report it             |
//! | [`Counts::perplexity`]                | McMahan et al. 2018, appendix B; Popov et al. 2018, section 2.4    |
//! | [`average_perplexity`]                | Popov et al. 2018, Tables 1 and 2, column "Av. PPL"                |
//! | [`Counts::keystroke_saving`]          | Popov et al. 2018, equation (5), after MacKenzie and Soukoreff 2002 |
//! | [`Counts::headedness`]                | McMahan et al. 2018, Table 3                                       |
//!
//! A sequence is `BOS w1 ... wn EOS`; every token after BOS is a target, predicted from all tokens before it. Predictions
//! are ordered by probability, of equals the lower id comes first.

mod counts;
mod measure;
mod summary;

pub use counts::{Counts, HEADS, Keys, Nats, TOPS, Tally, Targets, average_perplexity};
pub use measure::{HeadWords, LISTED, Measure, MetricsError, Predicted, Sequence, batches};
pub use summary::Metrics;
