//! `[audit]`: canary users that audit the run.

use super::keys::{Section, Visit, key};

/// The confidence of an audit by default.
pub const CONFIDENCE: f64 = 0.999;

/// Canaries of a run (docs/AUDITS.md).
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// How many of the declared users are canaries. About half of them take part.
    pub canaries: u64,
    /// The probability that the bound of the audit is right.
    pub confidence: f64,
}

impl Section for Audit {
    fn unsaid() -> Self {
        Self { canaries: 0, confidence: CONFIDENCE }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let canaries = key("canaries", "1_000", "number of canary users; about half take part");
        visit.need(&canaries, &mut self.canaries);
        let confidence = key("confidence", "0.999", "confidence level of the lower bound on epsilon");
        visit.or(&confidence, &mut self.confidence, CONFIDENCE);
    }
}
