//! What must be the same on every rank for the results not to depend on who trains whom: compared before the first round.

use lm::kernels::KernelPath;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// What a rank is about to do.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Which instructions it computes with.
    pub kernels: KernelPath,
    /// All that decides what a user's training comes to: the settings, the vocabulary, which text. Ranks that are to work
    /// together have the same bytes.
    pub description: &'a [u8],
}

/// Facts as they are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compared {
    /// The digest of the program's file.
    program: [u8; 32],
    kernels: KernelPath,
    description: [u8; 32],
}

/// Why a rank cannot take part.
#[derive(Debug, Error)]
pub(crate) enum Different {
    /// Another build.
    #[error("runs another build of the program than rank 0; start the same file on every machine")]
    Program,
    /// Other instructions.
    #[error(
        "computes with the kernels {own} and rank 0 with {theirs}, which differ in the last digits; \
         set KEYHUSH_KERNELS to a path that all machines have (`mpirun -x KEYHUSH_KERNELS=...`)"
    )]
    Kernels { own: &'static str, theirs: &'static str },
    /// Another task.
    #[error("has other settings or other data than rank 0; give every rank the same")]
    Description,
    /// The program's own file.
    #[error("cannot read the program's own file to compare it with rank 0's: {0}")]
    Unreadable(#[from] std::io::Error),
}

impl Facts<'_> {
    pub(crate) fn compared(&self) -> Result<Compared, Different> {
        let program = std::fs::read(std::env::current_exe()?)?;
        let (program, description) = (Sha256::digest(program).into(), Sha256::digest(self.description).into());
        Ok(Compared { program, kernels: self.kernels, description })
    }
}

impl Compared {
    /// Whether a rank with these facts can work with rank 0.
    pub(crate) fn check(&self, rank_0: &Self) -> Result<(), Different> {
        if self.program != rank_0.program {
            return Err(Different::Program);
        }
        if self.kernels != rank_0.kernels {
            return Err(Different::Kernels { own: self.kernels.name(), theirs: rank_0.kernels.name() });
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
        let facts = |kernels, description| Facts { kernels, description }.compared().unwrap();
        let rank_0 = facts(KernelPath::Avx512, b"a");
        assert!(facts(KernelPath::Avx512, b"a").check(&rank_0).is_ok());
        let said = |other: Compared| other.check(&rank_0).unwrap_err().to_string();
        assert!(said(facts(KernelPath::Avx2, b"a")).contains("kernels avx2 and rank 0 with avx512"));
        assert!(said(facts(KernelPath::Avx512, b"b")).contains("other settings or other data"));
        assert!(said(Compared { program: [0; 32], ..rank_0.clone() }).contains("another build"));
    }
}
