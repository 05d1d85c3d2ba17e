//! `keyhush privacy matrix`: coefficients that minimize the error of correlated noise, and that error.

use std::io::Write;

use clap::{Args, ValueEnum, builder::TypedValueParser};
use privacy::{
    MinSeparation, NoiseMatrix, Participation,
    design::{DESIGNS, Design, SizeOf},
    factorization::{Errors, Factorization, FactorizationError, Objective, Setting, evaluate, independent},
};
use serde::Serialize;

use crate::{choices::named, failure::BadInput};

/// The designs whose matrices have coefficients, as flags name them.
fn designs() -> impl TypedValueParser<Value = &'static Design> {
    let with_size = DESIGNS.into_iter().filter(|design| design.size.is_some());
    named(with_size.map(|design| (design, design.name, format!("Noise of {}", design.about))))
}

/// Help for a size: which designs have it.
fn number_of(size: SizeOf) -> String {
    let with_it = DESIGNS.into_iter().filter(|design| design.size.is_some_and(|of| of.of == size));
    let names: Vec<&str> = with_it.map(|design| design.name).collect();
    format!("Number of {} ({})", size.name(), names.join(", "))
}

/// Which error is made small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ErrorKind {
    /// Error of the worst prefix sum
    Max,
    /// Root mean squared error over all prefix sums
    Mean,
}

/// Arguments of `keyhush privacy matrix`.
#[derive(Args)]
pub(crate) struct MatrixArgs {
    /// Kind of matrix
    #[arg(long, value_parser = designs())]
    mechanism: &'static Design,
    /// Number of rounds; with restarts, of one segment
    #[arg(long)]
    rounds: u64,
    /// Minimum rounds strictly between two participations of a user, MinS
    #[arg(long, value_name = "ROUNDS")]
    min_separation: Option<u64>,
    /// Most participations of a user, MaxP [default: as many as the separation allows]
    #[arg(long, value_name = "TIMES")]
    max_participations: Option<u64>,
    #[arg(long, value_name = "COUNT", help = number_of(SizeOf::Buffers))]
    buffers: Option<usize>,
    #[arg(long, value_name = "COUNT", help = number_of(SizeOf::Bands))]
    bands: Option<usize>,
    /// Error to minimize
    #[arg(long, value_enum, default_value = "max")]
    error: ErrorKind,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Sensitivity and errors, as they are printed.
#[derive(Serialize)]
struct Judged {
    sensitivity: f64,
    max_error: f64,
    mean_error: f64,
}

impl From<Errors> for Judged {
    fn from(errors: Errors) -> Self {
        Self { sensitivity: errors.sensitivity(), max_error: errors.max(), mean_error: errors.mean() }
    }
}

/// The answer of `keyhush privacy matrix`.
#[derive(Serialize)]
struct MatrixAnswer {
    matrix: NoiseMatrix,
    #[serde(flatten)]
    judged: Judged,
    independent: Judged,
    tree: Judged,
}

pub(crate) fn matrix(args: &MatrixArgs) -> anyhow::Result<()> {
    let setting = Setting::new(args.rounds, args.limits()?).map_err(refused)?;
    let found = args.search(&setting)?;
    let tree = evaluate(&NoiseMatrix::Tree, &setting).map_err(refused)?;
    let answer = MatrixAnswer {
        matrix: found.matrix,
        judged: found.errors.into(),
        independent: independent(&setting).into(),
        tree: tree.into(),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    } else {
        answer.lines().iter().try_for_each(|(name, value)| writeln!(out, "{name:<17} {value}"))?;
    }
    Ok(())
}

impl MatrixArgs {
    fn limits(&self) -> Result<Participation, BadInput> {
        match (self.min_separation, self.max_participations) {
            (None, Some(1)) => Ok(Participation::Once),
            (None, _) => Err(BadInput::missing(
                "min_separation",
                "correlated noise depends on the participation limits; 0 means no minimum separation",
            )),
            (Some(min_s), count) => Ok(Participation::MinSeparation {
                separation: MinSeparation::rounds_between(min_s)
                    .map_err(|e| BadInput::illegal("min_separation", &e))?,
                max_participations: count.unwrap_or(self.rounds),
            }),
        }
    }

    fn search(&self, setting: &Setting) -> Result<Factorization, BadInput> {
        let objective = match self.error {
            ErrorKind::Max => Objective::Max,
            ErrorKind::Mean => Objective::Mean,
        };
        let Some(size) = self.mechanism.size else {
            return self.mechanism.matrix(setting, 0, objective).map_err(refused);
        };
        let said = |of: SizeOf| match of {
            SizeOf::Bands => self.bands,
            SizeOf::Buffers => self.buffers,
        };
        if let Some(other) = SizeOf::ALL.into_iter().find(|of| *of != size.of && said(*of).is_some()) {
            return Err(BadInput::out_of_place(other.name(), self.mechanism.name));
        }
        let missing = || BadInput::missing(size.of.name(), size.advice);
        self.mechanism.matrix(setting, said(size.of).ok_or_else(missing)?, objective).map_err(refused)
    }
}

fn refused(error: FactorizationError) -> BadInput {
    // The error begins with the name of its field, and a flag stands there instead.
    let in_flags = |field: &'static str| {
        let said = error.to_string();
        BadInput::out_of_range(field, said.strip_prefix(field).unwrap_or(&said).trim_start())
    };
    match &error {
        FactorizationError::Participation(e) => BadInput::wrong("max_participations", e),
        FactorizationError::Rounds { .. } => in_flags("rounds"),
        FactorizationError::Bands { .. } => in_flags("bands"),
        FactorizationError::Buffers { .. } => in_flags("buffers"),
        FactorizationError::Work { .. } => BadInput::wrong("bands", &error),
        FactorizationError::ParticipationKind | FactorizationError::Event(_) => BadInput::Refused(error.to_string()),
    }
}

impl MatrixAnswer {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        match &self.matrix {
            NoiseMatrix::Banded { coefficients } => lines.push(("coefficients", list(coefficients))),
            NoiseMatrix::Blt { buffer_decay, output_scale } => {
                lines.push(("buffer decay", list(buffer_decay)));
                lines.push(("output scale", list(output_scale)));
            }
            NoiseMatrix::Tree => {}
        }
        lines.push(("sensitivity", format!("{:.6} for a clip norm of 1", self.judged.sensitivity)));
        lines.push(("max error", self.compared(|j| j.max_error)));
        lines.push(("mean error", self.compared(|j| j.mean_error)));
        lines
    }

    fn compared(&self, error: impl Fn(&Judged) -> f64) -> String {
        let (independent, tree) = (error(&self.independent), error(&self.tree));
        format!("{:.5}  (independent noise {independent:.5}, tree {tree:.5})", error(&self.judged))
    }
}

/// As the flags of other commands take it.
fn list(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(",")
}
