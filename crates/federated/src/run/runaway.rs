//! Counts users whose training diverged, for the terminal: their updates are not finite and count as zero, and no file of a private run may
//! say how many there were (rule P12).

use crate::{metrics::Diagnostics, numbers::counted};

/// What this process saw.
#[derive(Debug, Default)]
pub(super) struct RunAway {
    users: u64,
    not_finite: u64,
}

const HELPS: &str = "try a smaller local.learning_rate";

impl RunAway {
    /// Takes note of a round. What is to be said of the first of its kind.
    pub(super) fn note(&mut self, seen: &Diagnostics) -> Option<String> {
        let first = self.not_finite == 0 && seen.not_finite > 0;
        self.users += seen.users;
        self.not_finite += seen.not_finite;
        let Diagnostics { round, users, not_finite, .. } = seen;
        first.then(|| {
            format!(
                "round {round}: training diverged for {not_finite} of {}; their updates are not finite and count as zero; {HELPS}",
                counted(*users, "user")
            )
        })
    }

    /// What is to be said at the end.
    pub(super) fn in_all(&self) -> Option<String> {
        let Self { users, not_finite } = self;
        let said = || {
            format!(
                "over the whole run, training diverged for {not_finite} of {users} user updates, which counted as zero; {HELPS}"
            )
        };
        (*not_finite > 0).then(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(round: u64, not_finite: u64) -> Diagnostics {
        Diagnostics { round, users: 10, tokens: 100, loss: None, norm_quantiles: None, clipped_share: None, not_finite }
    }

    /// 367 of 506 users whose updates were not finite showed nowhere.
    #[test]
    fn the_first_round_of_it_is_said_and_all_of_it_at_the_end() {
        let mut run_away = RunAway::default();
        assert_eq!((run_away.note(&round(1, 0)), run_away.in_all()), (None, None));
        let said = run_away.note(&round(2, 7)).unwrap();
        assert!(said.starts_with("round 2: training diverged for 7 of 10 users"), "{said}");
        assert_eq!(run_away.note(&round(3, 9)), None, "once is enough");
        assert!(run_away.in_all().unwrap().contains("16 of 30 user"));
    }
}
