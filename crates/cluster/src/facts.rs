//! Facts that must be equal on all ranks, so that results do not depend on which rank trains whom; compared before the first round.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The facts of a rank that must match those of all others.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What decides the last digits of what it computes: the instructions of its processor, or its engine, precision and chunk
    /// (`federated::engine::Means::arithmetic`).
    pub arithmetic: &'a str,
    /// All that decides what a user's training comes to: the settings, the vocabulary, which text. Ranks that are to work
    /// together have the same bytes.
    pub description: &'a [u8],
}

/// Facts as they are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compared {
    /// The digest of the program's file.
    program: [u8; 32],
    arithmetic: String,
    description: [u8; 32],
}

/// Why a rank cannot take part.
#[derive(Debug, Error)]
pub(crate) enum Different {
    /// Another build.
    #[error("runs a different build of the program than rank 0; start the same file on every machine")]
    Program,
    /// Another engine, precision or chunk, or other instructions.
    #[error(
        "computes with {own}, but rank 0 with {theirs}, and their results differ in the last digits; give every rank the same --engine and --precision and a GPU of the same kind with as much free memory, or set KEYHUSH_KERNELS to instructions that all machines have (`mpirun -x KEYHUSH_KERNELS=...`)"
    )]
    Arithmetic { own: String, theirs: String },
    /// Another task.
    #[error("has different settings or data than rank 0; give every rank the same")]
    Description,
    /// The program's own file.
    #[error("cannot read the program's own file to compare it with rank 0's: {0}")]
    Unreadable(#[from] std::io::Error),
}

impl Facts<'_> {
    pub(crate) fn compared(&self) -> Result<Compared, Different> {
        let program = std::fs::read(std::env::current_exe()?)?;
        let (program, description) = (Sha256::digest(program).into(), Sha256::digest(self.description).into());
        Ok(Compared { program, arithmetic: self.arithmetic.to_owned(), description })
    }
}

impl Compared {
    /// Whether a rank with these facts can work with rank 0.
    pub(crate) fn check(&self, rank_0: &Self) -> Result<(), Different> {
        if self.program != rank_0.program {
            return Err(Different::Program);
        }
        if self.arithmetic != rank_0.arithmetic {
            return Err(Different::Arithmetic { own: self.arithmetic.clone(), theirs: rank_0.arithmetic.clone() });
        }
        if self.description != rank_0.description {
            return Err(Different::Description);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_is_named() {
        let facts = |arithmetic, description| Facts { arithmetic, description }.compared().unwrap();
        let rank_0 = facts("cuda f16 chunk 100", b"a");
        assert!(facts("cuda f16 chunk 100", b"a").check(&rank_0).is_ok());
        let said = |other: Compared| other.check(&rank_0).unwrap_err().to_string();
        for other in ["avx2", "cuda f32 chunk 100", "cuda f16 chunk 90"] {
            assert!(said(facts(other, b"a")).contains(&format!("with {other}, but rank 0 with cuda f16 chunk 100")));
        }
        assert!(said(facts("cuda f16 chunk 100", b"b")).contains("different settings or data"));
        assert!(said(Compared { program: [0; 32], ..rank_0.clone() }).contains("a different build"));
    }
}
