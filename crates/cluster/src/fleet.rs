//! The fleet that rank 0 holds, and what the other ranks do.

use std::time::Instant;

use device::round::Exact;
use federated::fleet::{Collected, Fleet, FleetError, RoundTask};

use crate::{
    facts::Facts,
    message::{Kind, Message},
    ranks::Ranks,
};

/// Numbers of one user that a simulation looks at: user, tokens, and the bits of loss and norm.
const NUMBERS: usize = 4;

/// All ranks as one fleet, for the loop on rank 0. Its own share is trained by a fleet like those of the other ranks.
pub struct MpiFleet<'a, F> {
    ranks: &'a Ranks,
    own: F,
}

impl<'a, F: Fleet> MpiFleet<'a, F> {
    /// The fleet on rank 0, once all ranks have been found to be alike. The others call [`Ranks::serve`].
    ///
    /// # Errors
    /// Which rank is not like rank 0, or cannot take part, and why.
    pub fn new(ranks: &'a Ranks, own: F, facts: &Facts<'_>) -> Result<Self, FleetError> {
        let at_home = |problem: String| FleetError::Rank { rank: ranks.rank(), problem };
        let compared = facts.compared().map_err(|e| at_home(e.to_string()))?;
        ranks.tell(Message::facts(&compared).map_err(|e| at_home(e.to_string()))?);
        ranks.settle(Ok::<_, FleetError>(()))?;
        Ok(Self { ranks, own })
    }
}

impl<F: Fleet> Fleet for MpiFleet<'_, F> {
    fn round(&mut self, task: &RoundTask<'_>) -> Result<Collected, FleetError> {
        let began = Instant::now();
        let message = Message::round(task);
        let message = message.map_err(|e| FleetError::Rank { rank: self.ranks.rank(), problem: e.to_string() })?;
        self.ranks.tell(message);
        let cohort = self.ranks.share().of(task.cohort);
        let trained = self.own.round(&RoundTask { cohort: &cohort, ..*task });
        let mut all = self.ranks.collect(trained)?;
        all.wall_s = began.elapsed().as_secs_f64();
        Ok(all)
    }
}

impl Ranks {
    /// What every rank but 0 does: trains its share of the rounds of rank 0 until the run has ended. What goes wrong, here
    /// or elsewhere, rank 0 hears and says.
    pub fn serve(&self, fleet: &mut impl Fleet, facts: &Facts<'_>) {
        loop {
            let message = self.hear();
            // Rank 0 decides what becomes of a failure; it may try the round again.
            let _known_to_rank_0 = match message.kind {
                Kind::End => return,
                Kind::Facts => self.settle(compare(facts, &message)),
                Kind::Round => {
                    let trained = message.with_round(self.share(), |task| fleet.round(task));
                    let problem = |e: serde_json::Error| FleetError::Rank { rank: self.rank(), problem: e.to_string() };
                    self.collect(trained.map_err(problem).flatten()).map(drop)
                }
            };
        }
    }

    /// What all ranks came to, on rank 0; on the others what they came to themselves.
    fn collect(&self, own: Result<Collected, FleetError>) -> Result<Collected, FleetError> {
        let Collected { sum, exact, busy_s, wall_s } = self.settle(own.map_err(|problem| match problem {
            FleetError::Rank { problem, .. } => problem,
            problem => problem.to_string(),
        }))?;
        let sum = sum.across_processes(|values, users| -> Result<(), FleetError> {
            self.add_up(values, users);
            Ok(())
        });
        let mut exact = read_exact(&self.gather(write_exact(&exact)));
        exact.sort_unstable_by_key(|(user, _)| *user);
        let busy_s = self.seconds(busy_s);
        // All that is done together has been done: from here on a rank may fail alone.
        Ok(Collected { sum: sum?, exact, busy_s, wall_s })
    }
}

fn compare(facts: &Facts<'_>, message: &Message) -> Result<(), String> {
    let own = facts.compared().map_err(|e| e.to_string())?;
    let rank_0 = message.read_facts().map_err(|e| e.to_string())?;
    own.check(&rank_0).map_err(|e| e.to_string())
}

fn write_exact(exact: &[(u64, Exact)]) -> Vec<u64> {
    let numbers = |(user, exact): &(u64, Exact)| -> [u64; NUMBERS] {
        [*user, exact.tokens as u64, exact.loss.to_bits(), exact.norm.to_bits()]
    };
    exact.iter().flat_map(numbers).collect()
}

fn read_exact(words: &[u64]) -> Vec<(u64, Exact)> {
    let read = |&[user, tokens, loss, norm]: &[u64; NUMBERS]| {
        (user, Exact { tokens: tokens as usize, loss: f64::from_bits(loss), norm: f64::from_bits(norm) })
    };
    words.as_chunks().0.iter().map(read).collect()
}
