//! Flat clipping: bounds the norm of the whole update (McMahan et al. 2018, section 3).

use privacy::stages::ClipRule;

use super::Described;

pub(super) const NO_BOUND: &str = "without a bound, one user could move the sum arbitrarily far";

pub(super) static FLAT: Described = Described {
    name: "flat",
    about: "one norm",
    why_norm: NO_BOUND,
    is_adaptive: false,
    is_of_the_whole: true,
    in_ledger: |clip| clip.to_string(),
    rule: |clip, _| Ok(ClipRule::Flat(clip)),
};
