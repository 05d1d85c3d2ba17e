//! The engine on rank 0, and the loop of the other ranks.

use device::{
    round::{Exact, Task},
    upload::{Rests, Upload},
};
use federated::{
    engine::{Around, Engine, EngineError, Summed, Users},
    population::Population,
};
use privacy::rng::StreamKey;

use crate::{
    facts::Facts,
    message::{Kind, Message},
    ranks::Ranks,
};

/// Numbers of one user that a simulation looks at: user, tokens, and the bits of loss and norm.
const NUMBERS: usize = 4;

/// All ranks as one engine, on rank 0. Its own share is trained by an engine like those of the other ranks: threads, or a card
/// each.
pub struct MpiEngine<'a> {
    ranks: &'a Ranks,
    own: Box<dyn Engine + 'a>,
}

impl<'a> MpiEngine<'a> {
    /// The engine on rank 0, once all ranks have been found to be alike. The others call [`Ranks::serve`].
    ///
    /// # Errors
    /// Which rank is not like rank 0, or cannot take part, and why.
    pub fn new(ranks: &'a Ranks, own: Box<dyn Engine + 'a>, facts: &Facts<'_>) -> Result<Self, EngineError> {
        let at_home = |problem: String| EngineError::Rank { rank: ranks.rank(), problem };
        let compared = facts.compared().map_err(|e| at_home(e.to_string()))?;
        ranks.tell(Message::facts(&compared).map_err(|e| at_home(e.to_string()))?);
        ranks.settle(Ok::<_, EngineError>(()))?;
        Ok(Self { ranks, own })
    }
}

impl<'a> Around for MpiEngine<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.own
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.own
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        if !matches!(task.upload, Upload::Whole) {
            return Err(EngineError::NotWhole);
        }
        let message = Message::users(task, users);
        let message = message.map_err(|e| EngineError::Rank { rank: self.ranks.rank(), problem: e.to_string() })?;
        self.ranks.tell(message);
        let numbers = self.ranks.share().of(users.numbers);
        let trained = self.own.sum(task, &Users { numbers: &numbers, ..*users });
        self.ranks.collect(trained)
    }

    /// The other ranks read when they are asked.
    fn foresee(&mut self, numbers: &[u64]) {
        self.own.foresee(&self.ranks.share().of(numbers));
    }
}

impl Ranks {
    /// The loop of every rank but 0: trains its share of the users of rank 0 until the run has ended. What goes wrong, here
    /// or elsewhere, rank 0 hears and says.
    pub fn serve(&self, engine: &mut dyn Engine, population: &dyn Population, facts: &Facts<'_>) {
        loop {
            let message = self.hear();
            // Rank 0 decides what becomes of a failure; it may try again.
            let _known_to_rank_0 = match message.kind {
                Kind::End => return,
                Kind::Facts => self.settle(compare(facts, &message)),
                Kind::Users => {
                    let trained = message.with_users(self.share(), |task, numbers: &[u64], key: &StreamKey| {
                        engine.sum(task, &Users { population, numbers, key })
                    });
                    let problem =
                        |e: serde_json::Error| EngineError::Rank { rank: self.rank(), problem: e.to_string() };
                    self.collect(trained.map_err(problem).flatten()).map(drop)
                }
            };
        }
    }

    /// What all ranks came to, on rank 0; on the others what they came to themselves.
    fn collect(&self, own: Result<Summed, EngineError>) -> Result<Summed, EngineError> {
        let Summed { sum, exact, busy_s, .. } = self.settle(own.map_err(|problem| match problem {
            EngineError::Rank { problem, .. } => problem,
            problem => problem.to_string(),
        }))?;
        let sum = sum.across_processes(|values, users| -> Result<(), EngineError> {
            self.add_up(values, users);
            Ok(())
        });
        let mut exact = read_exact(&self.gather(write_exact(&exact)));
        exact.sort_unstable_by_key(|(user, _)| *user);
        let busy_s = self.seconds(busy_s);
        // All that is done together has been done: from here on a rank may fail alone.
        Ok(Summed { sum: sum?, exact, rests: Rests::new(), busy_s })
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
