//! Chooses the labels of a store: those of a public list, or the most frequent ones in the users' own posts.

use std::path::PathBuf;

use clap::Args;
use corpus::{
    import::{self, Input, KnownLabels, LabelColumn},
    origin::Origin,
    store::LabelsError,
};

use super::{progress::Watch, sorted};
use crate::failure::BadInput;

/// Where the labels of posts are, and which of them are kept.
#[derive(Args)]
pub(super) struct LabelArgs {
    /// Field or column with the labels of a post: a list of strings, or one string
    #[arg(long, value_name = "COLUMN")]
    labels: Option<String>,
    /// Separator of labels within one string; labels in angle brackets, as in Stack Overflow dumps, need none
    #[arg(long, value_name = "TEXT", default_value = "|", requires = "labels")]
    label_separator: String,
    /// Public list of the labels to keep, one per line; text after a tab is ignored
    #[arg(long, value_name = "FILE", requires = "labels", conflicts_with = "most_labels")]
    label_names: Option<PathBuf>,
    /// Keep the N most frequent labels of the posts. This reveals users' labels without any privacy: the epsilon of every run on this store
    /// is infinite
    #[arg(long, value_name = "N", requires = "labels")]
    most_labels: Option<usize>,
}

impl LabelArgs {
    /// The column, if there is one.
    pub(super) fn column(&self) -> Option<LabelColumn> {
        let separator = self.label_separator.clone();
        self.labels.clone().map(|key| LabelColumn { key, separator })
    }

    /// Whether posts are read twice: their labels are counted first.
    pub(super) const fn counts(&self) -> bool {
        self.labels.is_some() && self.most_labels.is_some()
    }

    /// The labels to keep; counted from the posts if that is wanted.
    pub(super) fn known(&self, input: &Input, paths: &[PathBuf], quiet: bool) -> anyhow::Result<Option<KnownLabels>> {
        if self.labels.is_none() {
            return Ok(None);
        }
        match (&self.label_names, self.most_labels) {
            (Some(path), _) => {
                let wrong = |problem: String| BadInput::wrong("label_names", format!("{}: {problem}", path.display()));
                let list = corpus::text::read(path).map_err(|error| wrong(error.to_string()))?;
                let known = KnownLabels::from_list(&list, path).map_err(|error| wrong(error.to_string()))?;
                if known.labels.is_empty() {
                    return Err(wrong("contains no names".into()).into());
                }
                Ok(Some(known))
            }
            (None, Some(most)) => Ok(Some(count(input, paths, most, quiet)?)),
            (None, None) => {
                let why = "say which labels to keep, with --label-names FILE or --most-labels N";
                Err(BadInput::missing("label_names", why).into())
            }
        }
    }
}

fn count(input: &Input, paths: &[PathBuf], most: usize, quiet: bool) -> anyhow::Result<KnownLabels> {
    let wrong = |error: LabelsError| BadInput::wrong("most_labels", error);
    if most == 0 {
        return Err(BadInput::wrong("most_labels", "must be at least 1").into());
    }
    let mut watch = Watch::new(quiet, "bytes")?;
    let (counts, _) = import::count_labels(input, &mut |progress| watch.tick(progress)).map_err(sorted)?;
    watch.finish();
    let labels = counts.most_frequent(most).map_err(wrong)?;
    Ok(KnownLabels { labels, origin: Origin::users_non_privately(paths) })
}
