//! `[server]`: how the server applies the average.

use super::keys::{ByKind, Section, Usual, Visit, key};

/// The server optimizer and its learning rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// The optimizer.
    pub optimizer: ServerOptimizer,
    /// eta_s: the learning rate.
    pub learning_rate: f32,
}

/// The optimizer of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ServerOptimizer {
    /// The average itself.
    Sgd,
    /// With Nesterov momentum, as in the papers.
    Momentum {
        /// The share of the last step that is kept.
        momentum: f32,
    },
    /// Reddi et al. 2021.
    Adam(Moments),
    /// Reddi et al. 2021.
    Adagrad {
        /// Smaller values adapt more; 0.001 by default.
        tau: Option<f32>,
    },
    /// Reddi et al. 2021.
    Yogi(Moments),
}

/// The moments of the updates that an optimizer tracks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    /// The decay rate of the first moment; 0.9 by default.
    pub beta1: Option<f32>,
    /// The decay rate of the second moment; 0.99 by default.
    pub beta2: Option<f32>,
    /// Smaller values adapt more; 0.001 by default.
    pub tau: Option<f32>,
}

const SGD: &str = "sgd";
const MOMENTUM: &str = "momentum";
const ADAM: &str = "adam";
const ADAGRAD: &str = "adagrad";
const YOGI: &str = "yogi";

impl Section for Server {
    fn unsaid() -> Self {
        Self { optimizer: ServerOptimizer::Sgd, learning_rate: 0.0 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.choose(&key("optimizer", "\"sgd\"", ""), self, Usual::None);
        visit.need(&key("learning_rate", "1.0", "eta_s: learning rate of the server"), &mut self.learning_rate);
        let tau_key = key("tau", "0.001", "smaller values adapt more to each coordinate");
        match &mut self.optimizer {
            ServerOptimizer::Sgd => {}
            ServerOptimizer::Momentum { momentum } => {
                visit.need(&key("momentum", "0.9", "share of the last step that is kept"), momentum);
            }
            ServerOptimizer::Adam(Moments { beta1, beta2, tau })
            | ServerOptimizer::Yogi(Moments { beta1, beta2, tau }) => {
                visit.may(&key("beta1", "0.9", "decay rate of the first moment"), beta1);
                visit.may(&key("beta2", "0.99", "decay rate of the second moment"), beta2);
                visit.may(&tau_key, tau);
            }
            ServerOptimizer::Adagrad { tau } => visit.may(&tau_key, tau),
        }
    }
}

impl ByKind for Server {
    fn kinds() -> Vec<&'static str> {
        vec![SGD, MOMENTUM, ADAM, ADAGRAD, YOGI]
    }

    fn kind_name(&self) -> &'static str {
        match self.optimizer {
            ServerOptimizer::Sgd => SGD,
            ServerOptimizer::Momentum { .. } => MOMENTUM,
            ServerOptimizer::Adam(_) => ADAM,
            ServerOptimizer::Adagrad { .. } => ADAGRAD,
            ServerOptimizer::Yogi(_) => YOGI,
        }
    }

    fn turn(&mut self, kind: &str) -> bool {
        self.optimizer = match kind {
            SGD => ServerOptimizer::Sgd,
            MOMENTUM => ServerOptimizer::Momentum { momentum: 0.0 },
            ADAM => ServerOptimizer::Adam(Moments::default()),
            ADAGRAD => ServerOptimizer::Adagrad { tau: None },
            YOGI => ServerOptimizer::Yogi(Moments::default()),
            _ => return false,
        };
        true
    }
}
