//! The registry of clipping rules: one file each, and a line in [`CLIP_RULES`].
//!
//! A rule turns one norm S into what a device clips to: the whole update, or each of its layers. The accountant uses the bound that
//! follows for the whole update ([`ClipRule::bound`]), so a rule can be unwise but not unsafe.

mod adaptive;
mod flat;
mod per_layer;

use std::fmt;

use device::learner::Layout;
use privacy::{
    ClipNorm,
    stages::{ClipRule, ClipRuleError},
};

/// All of them, in the order in which they are shown.
pub const CLIP_RULES: [ClipKind; 3] = [ClipKind(&flat::FLAT), ClipKind(&per_layer::PER_LAYER), ClipKind::ADAPTIVE];

/// A rule: its name, its words, and what it clips to.
struct Described {
    /// Its name in settings.
    name: &'static str,
    /// Its norm in a few words, for the comments of `keyhush init`.
    about: &'static str,
    /// Why it needs a norm.
    why_norm: &'static str,
    /// Whether the norm follows a quantile of the updates' norms (Andrew et al. 2021).
    is_adaptive: bool,
    /// Whether it bounds one norm alone, that of the whole update: then it fits any part of an update, which has no layers.
    is_of_the_whole: bool,
    /// Describes the rule for the ledger and the statement.
    in_ledger: fn(ClipNorm) -> String,
    /// What a device clips to.
    rule: fn(ClipNorm, &Layout) -> Result<ClipRule, ClipRuleError>,
}

/// A rule of clipping.
#[derive(Clone, Copy)]
pub struct ClipKind(&'static Described);

impl ClipKind {
    /// A norm that follows a quantile.
    pub const ADAPTIVE: Self = Self(&adaptive::ADAPTIVE);

    /// The one that settings call so.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        CLIP_RULES.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Its norm in a few words, for the comments of `keyhush init`.
    pub(super) const fn about(self) -> &'static str {
        self.0.about
    }

    /// Why it needs a norm.
    #[must_use]
    pub const fn why_norm(self) -> &'static str {
        self.0.why_norm
    }

    /// Whether the norm follows a quantile of the updates' norms.
    #[must_use]
    pub const fn is_adaptive(self) -> bool {
        self.0.is_adaptive
    }

    /// Whether it bounds one norm alone, that of the whole update: then it fits any part of an update, which has no layers.
    #[must_use]
    pub const fn is_of_the_whole(self) -> bool {
        self.0.is_of_the_whole
    }

    /// Describes the rule for the ledger and the statement.
    #[must_use]
    pub fn in_ledger(self, clip: ClipNorm) -> String {
        (self.0.in_ledger)(clip)
    }

    /// The rule by which a device clips updates with these parts.
    ///
    /// # Errors
    /// When the rule does not fit them.
    pub fn rule(self, clip: ClipNorm, parameters: &Layout) -> Result<ClipRule, ClipRuleError> {
        (self.0.rule)(clip, parameters)
    }
}

impl PartialEq for ClipKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for ClipKind {}

impl fmt::Debug for ClipKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use device::learner::Part;

    use super::*;

    /// Whatever a rule makes, an update that keeps it is within the norm that was said.
    #[test]
    fn no_rule_allows_more_than_the_norm() {
        let part = |name: &str, rows, columns| Part { name: name.into(), rows, columns };
        let parameters = Layout::new(vec![part("a", 3, 4), part("b", 1, 1), part("c", 100, 7)]);
        for kind in CLIP_RULES {
            for norm in [1e-6, 0.3, 1.0, 1e6] {
                let clip = ClipNorm::new(norm).unwrap();
                let rule = kind.rule(clip, &parameters).unwrap();
                assert_eq!(kind.is_of_the_whole(), rule == ClipRule::Flat(clip), "{kind:?}");
                let bound = rule.bound().get();
                assert!(bound <= norm && bound > norm * 0.999_999, "{kind:?}: {bound} of {norm}");
            }
        }
    }

    #[test]
    fn every_name_is_that_of_one_rule() {
        for kind in CLIP_RULES {
            assert_eq!(ClipKind::named(kind.name()), Some(kind));
            let said = kind.in_ledger(ClipNorm::new(0.5).unwrap());
            assert!(said.contains("0.5") && !kind.why_norm().is_empty(), "{said}");
        }
        assert_eq!(ClipKind::named("none"), None);
        assert!(ClipKind::ADAPTIVE.is_adaptive() && !ClipKind::named("flat").unwrap().is_adaptive());
    }
}
