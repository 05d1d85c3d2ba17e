//! Compiles every kernel without a card, so that a kernel that does not compile, or that has another name than the host asks for, is
//! found wherever tests run.

use device::local::{Algorithm, LocalPlan};
use lm::model::{
    config::{Cell, ModelConfig, PRESETS},
    parameters::ParameterLayout,
};

use crate::{
    bound, card, encoding,
    error::CudaError,
    gates, measuring, network,
    placement::Placement,
    recurrence,
    shape::Shape,
    source::{BOUND, ENCODE, GATES, JUDGE, LEARN, RECURRENCE, RECURRENCE_EXACT, Source, UNITS, VOCABULARY},
    vocabulary,
};

/// Every source, and the kernels that the host asks it for.
const ALL: [(Source, &[&str]); 8] = [
    (LEARN, network::Kernels::NAMES),
    (ENCODE, encoding::Kernels::NAMES),
    (VOCABULARY, vocabulary::Kernels::NAMES),
    (RECURRENCE, recurrence::Kernels::NAMES),
    (RECURRENCE_EXACT, recurrence::Kernels::NAMES),
    (GATES, gates::Kernels::NAMES),
    (JUDGE, measuring::Kernels::NAMES),
    (BOUND, bound::Kernels::NAMES),
];

/// Users of the usual kind: what is compiled depends on the sizes of a batch in numbers alone.
const LOCAL: LocalPlan = LocalPlan {
    algorithm: Algorithm::FedAvg { epochs: 1 },
    batch: 8,
    unroll: 10,
    most_tokens: None,
    greedy: false,
    update_penalty: 0.0,
    finetune: None,
};

/// What decides which lines of a source are compiled: how the source says it, and what a shape answers.
type Switch = (&'static str, fn(&Shape) -> bool);
const SWITCHES: [Switch; 7] = [
    ("GATES", |shape| shape.gates() == 4),
    ("MANY_PEOPLE", |shape| shape.many_people),
    ("MASKED", |shape| shape.output_bias || !shape.vocabulary.is_multiple_of(80)),
    ("OUTPUT_BIAS", |shape| shape.output_bias),
    ("TIED", |shape| shape.tied),
    ("UNIT_NORM", |shape| shape.unit_norm),
    ("VOCABULARY <=", |shape| shape.vocabulary <= 256 * 48),
];

/// Compiles every kernel for an architecture such as `sm_90`: in each way in which a preset has its source compiled, or for every preset.
/// Returns how many sources were compiled; none where there is no compiler here.
///
/// # Errors
/// What does not compile, or lacks a kernel that is asked for.
pub fn compile_all(architecture: &str, every_preset: bool) -> Option<Result<usize, CudaError>> {
    card::has_compiler().then(|| {
        let mut compiled = 0;
        for (source, kernels) in ALL {
            let mut ways: Vec<Vec<bool>> = Vec::new();
            for config in PRESETS.map(|(_, preset)| preset()) {
                for shape in shapes(&config, &source)? {
                    let way = way(&shape, &source);
                    if every_preset || !ways.contains(&way) {
                        ways.push(way);
                        compile(&config, &shape, (source, kernels), architecture)?;
                        compiled += 1;
                    }
                }
            }
        }
        Ok(compiled)
    })
}

/// Which of a source's lines a shape has compiled.
fn way(shape: &Shape, source: &Source) -> Vec<bool> {
    SWITCHES.iter().filter(|(name, _)| source.text.contains(name)).map(|(_, is_on)| is_on(shape)).collect()
}

/// The shapes of a preset that a source is compiled for: users who train, and, where what is read is told apart by person, one model that
/// many people read.
fn shapes(config: &ModelConfig, source: &Source) -> Result<Vec<Shape>, CudaError> {
    let people: &[bool] = match source.name {
        _ if !fits(config, source) => &[],
        name if name == LEARN.name => &[false, true],
        name if name == JUDGE.name => &[true],
        _ => &[false],
    };
    let shape = Shape::new(config, &LOCAL, 100)?;
    Ok(people.iter().map(|many_people| Shape { many_people: *many_people, ..shape }).collect())
}

/// Whether a source must be compiled for a model: the passes over the vocabulary are for outputs that fit a block, recurrences on the chip
/// for LSTMs of one size, gates are moved at once where all of them see the same state, and what encodes or bounds knows of models only
/// how long they are.
fn fits(config: &ModelConfig, source: &Source) -> bool {
    match source.name {
        name if name == VOCABULARY.name => config.output() <= 128,
        name if name.starts_with(RECURRENCE.name) => config.cell == Cell::Lstm && config.hidden == UNITS,
        name if name == GATES.name => config.cell != Cell::Gru,
        name if name == ENCODE.name || name == BOUND.name => PRESETS.first().is_some_and(|(_, make)| make() == *config),
        _ => true,
    }
}

fn compile(
    config: &ModelConfig,
    shape: &Shape,
    (source, kernels): (Source, &[&str]),
    architecture: &str,
) -> Result<(), CudaError> {
    let layout = ParameterLayout::new(config).map_err(|problem| CudaError::Refused(problem.to_string()))?;
    let placement = Placement::new(config, &layout, shape);
    let code = source.compile(&shape.defines(placement.length, layout.len()), architecture)?.to_src();
    let entries: Vec<&str> = code.split(".entry ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    // Recurrences on the chip are for cards with clusters: on others nothing is left of them, and nobody asks.
    let wanted = if source.name.starts_with(RECURRENCE.name) && architecture < "sm_90" { &[] } else { kernels };
    match wanted.iter().find(|kernel| !entries.contains(kernel)) {
        Some(kernel) => {
            Err(CudaError::Source { what: source.name, log: format!("it has no kernel {kernel}, but {entries:?}") })
        }
        None => Ok(()),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    /// A switch that is not in the list would have one of its ways compiled on nobody's machine.
    #[test]
    fn every_condition_in_a_source_is_a_switch() {
        for (source, _) in ALL {
            for line in source.text.lines().filter_map(|line| line.strip_prefix("#if ")) {
                let known = SWITCHES.iter().any(|(name, _)| line.starts_with(name));
                assert!(known || line.starts_with("__CUDA_ARCH__ >= 900 && HIDDEN"), "{}: #if {line}", source.name);
            }
        }
    }

    /// Each switch has both its values in some preset, so that both ways are compiled.
    #[test]
    fn presets_have_every_switch_on_and_off() {
        let of_preset = |(_, preset): &(&str, fn() -> ModelConfig)| {
            ALL.iter().flat_map(|(source, _)| shapes(&preset(), source).unwrap()).collect::<Vec<_>>()
        };
        let made: Vec<Shape> = PRESETS.iter().flat_map(of_preset).collect();
        for (name, is_on) in SWITCHES {
            assert!(made.iter().any(is_on) && !made.iter().all(is_on), "{name}");
        }
    }
}
