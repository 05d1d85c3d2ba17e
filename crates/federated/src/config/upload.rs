//! `[upload]`: which part of an update a device sends, and in which form.

use super::keys::{ByKind, Section, Usual, Visit, key};

/// Which part of an update a device sends, and in which form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Upload {
    /// All of it, as integers on the grid: the default.
    Grid,
    /// All of it, as 32-bit floats, which the server rounds to the grid.
    Dense,
    /// The largest coordinates (Deep Gradient Compression, Lin et al. 2017).
    Sparse(Sparse),
    /// The coordinates of a random mask, the same for all devices of a round.
    Mask(Mask),
}

/// Deep Gradient Compression (Lin et al. 2017).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sparse {
    /// The share of coordinates that is sent.
    pub share: f64,
    /// m: the momentum of what is kept.
    pub momentum: f32,
    /// The norm that a device shortens what it learned to, before it adds it to what it kept; none by default.
    pub local_clip: Option<f32>,
    /// Rounds in which more is sent: the share falls from round to round by the same factor.
    pub warm_up: u64,
}

/// A random mask that all devices of a round share.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mask {
    /// The share of coordinates that is sent.
    pub share: f64,
    /// Whether devices keep the others for later rounds, or forget them.
    pub keep_rest: bool,
}

const GRID: &str = "grid";
const DENSE: &str = "dense";
const SPARSE: &str = "sparse";
const MASK: &str = "mask";

/// The momentum of Deep Gradient Compression, by default.
const MOMENTUM: f32 = 0.9;

impl Upload {
    /// Whether a device keeps what it does not send.
    #[must_use]
    pub const fn keeps_rest(&self) -> bool {
        match self {
            Self::Grid | Self::Dense => false,
            Self::Sparse(_) => true,
            Self::Mask(mask) => mask.keep_rest,
        }
    }
}

impl Section for Upload {
    fn unsaid() -> Self {
        Self::Grid
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let kind = key("kind", "\"grid\"", "which coordinates devices send");
        visit.choose(&kind, self, Usual::None);
        match self {
            Self::Grid | Self::Dense => {}
            Self::Sparse(sparse) => {
                visit.need(&key("share", "0.001", "share of coordinates sent"), &mut sparse.share);
                let momentum =
                    key("momentum", "0.9", "momentum of the coordinates that are kept for later; 0 for none");
                visit.or(&momentum, &mut sparse.momentum, MOMENTUM);
                let clip = key("local_clip", "1.0", "clips a local update before it is added to what is kept");
                visit.may(&clip, &mut sparse.local_clip);
                let warm_up = key("warm_up", "4", "rounds over which the share falls to its final value");
                visit.or(&warm_up, &mut sparse.warm_up, 0);
            }
            Self::Mask(mask) => {
                visit.need(&key("share", "0.001", "share of coordinates sent"), &mut mask.share);
                let keep = key("keep_rest", "false", "whether devices keep what they do not send for later rounds");
                visit.or(&keep, &mut mask.keep_rest, false);
            }
        }
    }
}

impl ByKind for Upload {
    fn kinds() -> Vec<&'static str> {
        vec![GRID, DENSE, SPARSE, MASK]
    }

    fn kind_name(&self) -> &'static str {
        match self {
            Self::Grid => GRID,
            Self::Dense => DENSE,
            Self::Sparse(_) => SPARSE,
            Self::Mask(_) => MASK,
        }
    }

    fn turn(&mut self, kind: &str) -> bool {
        *self = match kind {
            GRID => Self::Grid,
            DENSE => Self::Dense,
            SPARSE => Self::Sparse(Sparse { momentum: MOMENTUM, ..Sparse::default() }),
            MASK => Self::Mask(Mask::default()),
            _ => return false,
        };
        true
    }
}
