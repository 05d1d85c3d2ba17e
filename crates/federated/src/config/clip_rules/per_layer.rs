//! Per-layer clipping: bounds the norm of each layer, sharing the bound evenly (McMahan et al. 2018, section 3).

use device::learner::Part;
use privacy::stages::ClipRule;

use super::{Described, flat::NO_BOUND};

pub(super) static PER_LAYER: Described = Described {
    name: "per-layer",
    about: "one per layer",
    why_norm: NO_BOUND,
    is_adaptive: false,
    is_of_the_whole: false,
    in_ledger: |clip| format!("{clip}, evenly over the layers"),
    rule: |clip, parameters| {
        let lens: Vec<usize> = parameters.parts().iter().map(Part::len).collect();
        ClipRule::even_layers(clip, &lens)
    },
};
