//! `[clip]`: how far one user may move the sum.

use privacy::clip::ClipStep;

use super::{
    clip_rules::{CLIP_RULES, ClipKind},
    keys::{ByKind, Section, Usual, Visit, key},
    nearest::one_of,
};

/// The clipping rule. Only rules that follow a quantile have settings for that.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    kind: ClipKind,
    adaptive: Option<Adaptive>,
    /// S: the largest norm of an update; an adaptive clip starts with it.
    pub norm: f64,
    /// Whether the update is projected after every local step, not only at the end.
    pub greedy: bool,
}

/// How a clip norm follows a quantile of the updates' norms (Andrew et al. 2021).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Adaptive {
    /// gamma: the target share of updates below the clip norm.
    pub quantile: f64,
    /// eta_C: how fast the norm adapts; 0.2 by default.
    pub learning_rate: Option<f64>,
    /// sigma_b: the noise on the count of unclipped updates; a twentieth of the cohort by default.
    pub count_stddev: Option<f64>,
    /// How the norm moves; geometrically by default.
    pub step: Option<ClipStep>,
}

impl Clip {
    /// One norm for whole updates, at all times.
    #[must_use]
    pub const fn flat(norm: f64) -> Self {
        Self { kind: CLIP_RULES[0], adaptive: None, norm, greedy: false }
    }

    /// A clip that starts with a norm and follows a quantile.
    #[must_use]
    pub fn adaptive(norm: f64, quantile: f64) -> Self {
        let adaptive = Some(Adaptive { quantile, ..Adaptive::default() });
        Self { kind: ClipKind::ADAPTIVE, adaptive, norm, greedy: false }
    }

    /// The rule.
    #[must_use]
    pub const fn kind(&self) -> ClipKind {
        self.kind
    }

    /// How the norm follows a quantile, if it does.
    #[must_use]
    pub const fn following(&self) -> Option<&Adaptive> {
        self.adaptive.as_ref()
    }

    /// Whether the norm follows a quantile.
    #[must_use]
    pub const fn is_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }
}

impl Section for Clip {
    fn unsaid() -> Self {
        Self::flat(0.0)
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let norms = one_of(&CLIP_RULES.map(|kind| kind.about().to_owned()));
        visit.choose(&key("kind", "\"flat\"", &norms), self, Usual::None);
        let norm = key("norm", "1.0", "S: the largest norm of an update; \"adaptive\" starts with it");
        visit.need(&norm.because(self.kind.why_norm()), &mut self.norm);
        visit.rare(
            &key("greedy", "true", "project after every local step, not only at the end; FedAvg only"),
            &mut self.greedy,
            false,
        );
        if let Some(adaptive) = &mut self.adaptive {
            let quantile = key("quantile", "0.5", "gamma: target share of updates below the clip norm");
            visit.need(&quantile.because("an adaptive clip follows a quantile, such as 0.5"), &mut adaptive.quantile);
            visit
                .may(&key("learning_rate", "0.2", "eta_C: how fast the clip norm adapts"), &mut adaptive.learning_rate);
            let count =
                key("count_stddev", "25.0", "sigma_b: noise on the count of unclipped updates; default: cohort / 20");
            visit.may(&count, &mut adaptive.count_stddev);
            visit.may(
                &key("step", "\"geometric\"", "how the clip norm moves: \"geometric\" or \"linear\""),
                &mut adaptive.step,
            );
        }
    }
}

impl ByKind for Clip {
    fn kinds() -> Vec<&'static str> {
        CLIP_RULES.into_iter().map(ClipKind::name).collect()
    }

    fn kind_name(&self) -> &'static str {
        self.kind.name()
    }

    fn turn(&mut self, kind: &str) -> bool {
        let Some(kind) = ClipKind::named(kind) else { return false };
        self.kind = kind;
        self.adaptive = kind.is_adaptive().then(Adaptive::default);
        true
    }
}
