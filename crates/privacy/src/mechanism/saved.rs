//! The state of a mechanism as bytes: what it was made for, where it stands, and what cannot be drawn again.
//!
//! The length of a header, the header as JSON, the stored noise as little-endian integers, and the SHA-256 of all before.
//! Independent noise and the tree store no noise: a counter and the run's key are enough, the tree draws its nodes again
//! (two vectors a round). Noise that users add is not here at all.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{Matrix, Mechanism, MechanismError, MechanismPlan};
use crate::{
    encoding::{EncodingId, layout::Layout},
    rng::NoiseSource,
};

/// The header holds at most so many bytes.
const LONGEST_HEADER: u64 = 1 << 26;

/// What is written before the noise.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    plan: MechanismPlan,
    layout: Layout,
    segment: usize,
    rounds: u64,
    encoding: Option<EncodingId>,
}

const FORMAT: &str = "keyhush mechanism 1";

/// A saved state that cannot be taken up again.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Reading failed.
    #[error("the saved mechanism cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not a saved mechanism, or damaged.
    #[error("the saved mechanism is damaged: {0}")]
    Damaged(String),
    /// It belongs to another plan or layout.
    #[error("the saved mechanism belongs to another plan")]
    OtherPlan,
    /// The plan cannot be carried out.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
}

impl Mechanism {
    /// Writes the state.
    ///
    /// # Errors
    /// When writing fails.
    pub fn save(&self, to: impl Write) -> io::Result<()> {
        let mut out = Hashing { inner: to, hash: Sha256::new() };
        let (plan, layout) = (self.plan.clone(), self.layout.clone());
        let (segment, rounds, encoding) = (self.segment, self.rounds, self.encoding);
        let header = Header { format: FORMAT.to_owned(), plan, layout, segment, rounds, encoding };
        let header = serde_json::to_vec(&header)?;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        match &self.matrix {
            None | Some(Matrix::Identity(_) | Matrix::Tree(_)) => {}
            Some(Matrix::Banded(banded)) => {
                banded.state().try_for_each(|v| write_integers(&mut out, v, i32::to_le_bytes))?
            }
            Some(Matrix::Blt(blt)) => blt.state().try_for_each(|v| write_integers(&mut out, v, i64::to_le_bytes))?,
        }
        let digest = out.hash.finalize();
        out.inner.write_all(&digest)
    }

    /// Takes up a saved state. The tree draws its nodes again.
    ///
    /// # Errors
    /// When the bytes are damaged or belong to another plan.
    pub fn restore(
        plan: MechanismPlan,
        layout: &Layout,
        source: Arc<NoiseSource>,
        from: impl Read,
    ) -> Result<Self, RestoreError> {
        let mut from = Hashing { inner: from, hash: Sha256::new() };
        let header = read_header(&mut from)?;
        if header.plan != plan || header.layout != *layout {
            return Err(RestoreError::OtherPlan);
        }
        let mut mechanism = Self::init(plan, layout, source)?;
        let ends = mechanism.plan.segments.get(header.segment).map_or(1, |s| s.rounds);
        if header.segment > mechanism.plan.segments.len() || header.rounds >= ends {
            return Err(RestoreError::Damaged("it stands beyond the end of the plan".into()));
        }
        (mechanism.segment, mechanism.rounds, mechanism.encoding) = (header.segment, header.rounds, header.encoding);
        match &mut mechanism.matrix {
            None | Some(Matrix::Identity(_) | Matrix::Tree(_)) => {}
            Some(Matrix::Banded(banded)) => {
                let state = banded.state_mut(header.rounds);
                state.into_iter().try_for_each(|v| read_integers(&mut from, v, i32::from_le_bytes))?;
            }
            Some(Matrix::Blt(blt)) => {
                blt.state_mut().try_for_each(|v| read_integers(&mut from, v, i64::from_le_bytes))?;
            }
        }
        check_digest(from)?;
        if let Some(Matrix::Tree(tree)) = &mut mechanism.matrix {
            tree.restore(&mechanism.source, mechanism.plan.stream, header.segment as u64, header.rounds)?;
        }
        Ok(mechanism)
    }
}

/// Passes bytes on and hashes them.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

fn read_header(from: &mut impl Read) -> Result<Header, RestoreError> {
    let damaged = |problem: String| RestoreError::Damaged(problem);
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER {
        return Err(damaged(format!("a header of {length} bytes")));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header)?;
    let header: Header = serde_json::from_slice(&header).map_err(|e| damaged(e.to_string()))?;
    if header.format != FORMAT {
        return Err(damaged(format!("its format is {:?}, expected {FORMAT:?}", header.format)));
    }
    Ok(header)
}

fn check_digest<R: Read>(mut from: Hashing<R>) -> Result<(), RestoreError> {
    let expected: [u8; 32] = from.hash.finalize().into();
    let mut found = Vec::new();
    from.inner.by_ref().take(33).read_to_end(&mut found)?;
    if found == expected { Ok(()) } else { Err(RestoreError::Damaged("its digest is wrong".into())) }
}

fn write_integers<T: Copy, const N: usize>(
    out: &mut impl Write,
    values: &[T],
    bytes: fn(T) -> [u8; N],
) -> io::Result<()> {
    let all: Vec<u8> = values.iter().flat_map(|v| bytes(*v)).collect();
    out.write_all(&all)
}

fn read_integers<T, const N: usize>(from: &mut impl Read, values: &mut [T], of: fn([u8; N]) -> T) -> io::Result<()> {
    let mut all = vec![0; values.len() * N];
    from.read_exact(&mut all)?;
    values.iter_mut().zip(all.as_chunks::<N>().0).for_each(|(v, bytes)| *v = of(*bytes));
    Ok(())
}
