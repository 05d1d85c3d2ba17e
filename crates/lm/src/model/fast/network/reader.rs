//! Reads a user's text token by token and carries the state, so that each token costs one step.

use super::{
    Network,
    layer::{Scratch, State, Step, Weights},
};
use crate::{kernels::matrix::padded, language_model::Reader};

/// After how many of the last tokens the state is kept: as many words can be taken back without reading again.
const KEPT: usize = 32;

/// Reads one sequence.
pub(super) struct NetworkReader<'a> {
    network: &'a Network,
    by: Vec<Step<'a>>,
    /// The tokens read so far.
    read: Vec<u32>,
    /// How many tokens were read when the first state was kept; each of the others is one token later.
    first: usize,
    states: Vec<Vec<State>>,
    scratch: Scratch,
    out: Vec<f32>,
    line: Vec<f32>,
}

impl<'a> NetworkReader<'a> {
    pub(super) fn new(network: &'a Network) -> Self {
        Self {
            network,
            by: network.steps(|_| Weights::InPlace),
            read: Vec::new(),
            first: 0,
            states: vec![network.states(1)],
            scratch: Scratch::new(&network.layers, 1),
            out: vec![0.0; padded(network.config.output())],
            line: vec![0.0; padded(network.config.vocabulary)],
        }
    }

    /// Goes back to the first tokens; to none of them where the state there is not kept.
    fn go_back(&mut self, tokens: usize) {
        if tokens < self.first {
            self.read.clear();
            self.first = 0;
            self.states = vec![self.network.states(1)];
        } else {
            self.read.truncate(tokens);
            self.states.truncate(tokens - self.first + 1);
        }
    }

    fn read_one(&mut self, id: u32) {
        let Some(mut state) = self.states.last().cloned() else { return };
        self.network.step(&self.by, &[id], &[], &mut state, &mut self.scratch);
        self.read.push(id);
        self.states.push(state);
        if self.states.len() > KEPT {
            self.states.remove(0);
            self.first += 1;
        }
    }
}

impl Reader for NetworkReader<'_> {
    fn after(&mut self, sequence: &[u32]) -> &[f32] {
        let vocabulary = self.network.config.vocabulary;
        if sequence.is_empty() {
            return &[];
        }
        if self.read != sequence {
            let common = self.read.iter().zip(sequence).take_while(|(a, b)| a == b).count();
            self.go_back(common);
            for id in &sequence[self.read.len()..] {
                self.read_one(*id);
            }
            let network = self.network;
            let top = self.states.last().and_then(|layers| layers.last());
            if let Some(top) = top {
                let embedding = network.output_embedding();
                network.output.one(network.path, embedding, top.shown(1), &mut self.out, &mut self.line);
            }
        }
        &self.line[..vocabulary]
    }
}
