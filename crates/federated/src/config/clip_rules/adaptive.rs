//! Adaptive clipping: the norm of the whole update follows a quantile (Andrew et al. 2021; its steps are in [`privacy::clip`]).

use privacy::stages::ClipRule;

use super::Described;

pub(super) static ADAPTIVE: Described = Described {
    name: "adaptive",
    about: "one that adapts",
    why_norm: "an adaptive clip starts with one, such as 0.1",
    is_adaptive: true,
    is_of_the_whole: true,
    in_ledger: |clip| format!("adaptive, from {clip}"),
    rule: |clip, _| Ok(ClipRule::Flat(clip)),
};
