//! The state of a run as a file, and the newest one that can be read.
//!
//! The length of a header, the header as JSON, the model and the optimizer's memory as little-endian floats, and the SHA-256
//! of all before. The two newest are kept: if one is damaged, it is named and the one before it is used; the ledger has
//! every release since. All of it follows from what was released: of the mechanism there is a counter and no noise
//! (rule P20).

use std::{
    fs,
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use ledger::{self, Head};
use privacy::{
    clip::AdaptiveClip,
    mechanism::{Mechanism, MechanismError, Position},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{optimizer::Optimizer, plan::Plan, round::State};
use durable::files::{self, FileError};

const FORMAT: &str = "keyhush checkpoint 2";
/// The header holds at most so many bytes.
const LONGEST_HEADER: u64 = 1 << 20;
/// Checkpoints that are kept.
const KEPT: usize = 2;

/// What is written before the numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    /// The id of the run's ledger: a checkpoint of another run is none of this one.
    run: ledger::Digest,
    /// The kernels: a run repeats to the bit on the same ones only.
    kernels: String,
    round: u64,
    ledger_head: Head,
    clip: Option<AdaptiveClip>,
    fraction_below_clip: Option<f64>,
    parameters: u64,
    memory: [u64; 2],
    mechanism: Option<Position>,
}

/// A checkpoint that cannot be used.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is not whole, or something else.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It belongs to another run.
    #[error("it belongs to another run: {0}")]
    Other(String),
    /// Its mechanism cannot be taken up.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
}

/// A state that was found.
#[derive(Debug)]
pub struct Found {
    /// The state.
    pub state: State,
    /// The head of the ledger when it was written: the ledger must not be shorter.
    pub head: Head,
}

/// The checkpoints of a run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    run: ledger::Digest,
    kernels: String,
}

impl Checkpoints {
    /// Those of a run, by the id of its ledger, in a folder.
    #[must_use]
    pub fn new(folder: PathBuf, run: ledger::Digest, kernels: &str) -> Self {
        Self { folder, run, kernels: kernels.to_owned() }
    }

    /// Writes the state, durably, and removes all but the newest. Gives the rounds of those that are kept. Where it is said,
    /// the file has that time, in seconds since 1970, and not the time at which the round was done.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn write(&self, state: &State, head: Head, time: Option<u64>) -> Result<Vec<u64>, FileError> {
        files::make_folder(&self.folder)?;
        files::write_at(&self.path(state.round), time, |out| self.write_to(state, head, out))?;
        let rounds = self.rounds()?;
        let (kept, old) = rounds.split_at(rounds.len().min(KEPT));
        for round in old {
            let path = self.path(*round);
            fs::remove_file(&path).map_err(files::failed("remove", &path))?;
        }
        Ok(kept.to_vec())
    }

    fn write_to(&self, state: &State, head: Head, out: &mut dyn Write) -> io::Result<()> {
        let mut out = Hashing { inner: out, hash: Sha256::new() };
        let [first, second] = state.optimizer.memory();
        let header = serde_json::to_vec(&Header {
            format: FORMAT.to_owned(),
            run: self.run,
            kernels: self.kernels.clone(),
            round: state.round,
            ledger_head: head,
            clip: state.clip,
            fraction_below_clip: state.fraction_below_clip,
            parameters: state.model.len() as u64,
            memory: [first.len() as u64, second.len() as u64],
            mechanism: state.mechanism.as_ref().map(Mechanism::position),
        })?;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for values in [&state.model[..], first, second] {
            write_floats(&mut out, values)?;
        }
        let digest = out.hash.finalize();
        out.inner.write_all(&digest)
    }

    /// The newest that can be used, and what was wrong with newer ones, each named.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn newest(&self, plan: &Plan) -> Result<(Option<Found>, Vec<String>), FileError> {
        let mut wrong = Vec::new();
        for round in self.rounds()? {
            match self.read(round, plan) {
                Ok(found) => return Ok((Some(found), wrong)),
                Err(error) => wrong.push(format!("the checkpoint {}: {error}", self.path(round).display())),
            }
        }
        Ok((None, wrong))
    }

    fn read(&self, round: u64, plan: &Plan) -> Result<Found, CheckpointError> {
        let path = self.path(round);
        check_digest(&path)?;
        let mut from = BufReader::with_capacity(1 << 20, fs::File::open(&path)?);
        let header = read_header(&mut from)?;
        if header.run != self.run {
            return Err(CheckpointError::Other("its ledger is not this one".into()));
        }
        if header.kernels != self.kernels {
            let (theirs, ours) = (&header.kernels, &self.kernels);
            return Err(CheckpointError::Other(format!("it was made with {theirs} kernels, and these are {ours}")));
        }
        let damaged = |what: &str| CheckpointError::Damaged(what.to_owned());
        if header.round != round || round > plan.rounds || header.parameters != plan.parameters.len() as u64 {
            return Err(damaged("its numbers are not those of this run"));
        }
        let model = read_floats(&mut from, plan.parameters.len())?;
        let fresh = Optimizer::new(plan.optimizer, model.len()).map_err(|e| damaged(&e.to_string()))?;
        let lens = fresh.memory().map(<[f32]>::len);
        if header.memory != lens.map(|l| l as u64) {
            return Err(damaged("it has the memory of another optimizer"));
        }
        let memory = [read_floats(&mut from, lens[0])?, read_floats(&mut from, lens[1])?];
        let optimizer = fresh.remember(memory).ok_or_else(|| damaged("it has the memory of another optimizer"))?;
        let mechanism = header.mechanism.map(|position| mechanism(round, plan, position)).transpose()?;
        let Header { clip, fraction_below_clip, ledger_head: head, .. } = header;
        if clip.is_some() != plan.adaptive.is_some() {
            return Err(damaged("its clip is of another kind"));
        }
        Ok(Found { state: State { round, model, optimizer, clip, fraction_below_clip, mechanism }, head })
    }

    /// The rounds of the checkpoints, the newest first.
    fn rounds(&self) -> Result<Vec<u64>, FileError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(files::failed("read", &self.folder)(error)),
        };
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|e| e.file_name().to_string_lossy().into_owned());
        let names: Vec<String> =
            entries.map(name).collect::<Result<_, _>>().map_err(files::failed("read", &self.folder))?;
        let mut rounds: Vec<u64> = names.iter().filter_map(|n| number(n)).collect();
        rounds.sort_unstable_by(|a, b| b.cmp(a));
        Ok(rounds)
    }

    fn path(&self, round: u64) -> PathBuf {
        self.folder.join(format!("round-{round:08}.state"))
    }
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix("round-")?.strip_suffix(".state")?.parse().ok()
}

/// The mechanism of the round before: at the first round of the next phase another begins.
fn mechanism(round: u64, plan: &Plan, position: Position) -> Result<Mechanism, CheckpointError> {
    let phase = plan.phase(round.saturating_sub(1));
    let damaged = |what: String| CheckpointError::Damaged(what);
    let of_plan = phase.mechanism.clone().ok_or_else(|| damaged("it has noise, and the plan has none".into()))?;
    let layout = phase.released_layout().map_err(|e| damaged(e.to_string()))?;
    let mechanism = Mechanism::at(of_plan, &layout, plan.randomness(), position)?;
    if mechanism.step() != round - phase.first {
        return Err(damaged("its noise stands at another round".into()));
    }
    Ok(mechanism)
}

/// Everything but the last 32 bytes.
struct BeforeDigest<R> {
    inner: R,
    held: Vec<u8>,
}

impl<R: Read> BeforeDigest<R> {
    fn new(mut inner: R) -> io::Result<Self> {
        let mut held = Vec::new();
        inner.by_ref().take(32).read_to_end(&mut held)?;
        Ok(Self { inner, held })
    }
}

impl<R: Read> Read for BeforeDigest<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        // What was held comes first; as much as was read is held instead.
        self.held.extend_from_slice(&bytes[..read]);
        bytes[..read].copy_from_slice(&self.held[..read]);
        self.held.drain(..read);
        Ok(read)
    }
}

/// Passes bytes on and hashes them.
struct Hashing<'a> {
    inner: &'a mut dyn Write,
    hash: Sha256,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Reads the file once to see that it is whole.
fn check_digest(path: &Path) -> Result<(), CheckpointError> {
    let mut from = BeforeDigest::new(BufReader::with_capacity(1 << 20, fs::File::open(path)?))?;
    let mut hash = Sha256::new();
    let mut some = vec![0; 1 << 20];
    loop {
        match from.read(&mut some)? {
            0 => break,
            read => hash.update(&some[..read]),
        }
    }
    if hash.finalize()[..] == from.held[..] {
        Ok(())
    } else {
        Err(CheckpointError::Damaged("its digest is wrong".into()))
    }
}

fn read_header(from: &mut impl Read) -> Result<Header, CheckpointError> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER {
        return Err(CheckpointError::Damaged(format!("a header of {length} bytes")));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header)?;
    let header: Header = serde_json::from_slice(&header).map_err(|e| CheckpointError::Damaged(e.to_string()))?;
    if header.format != FORMAT {
        return Err(CheckpointError::Damaged(format!("its format is {:?}, expected {FORMAT:?}", header.format)));
    }
    Ok(header)
}

fn write_floats(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    for some in values.chunks(1 << 16) {
        let bytes: Vec<u8> = some.iter().flat_map(|v| v.to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn read_floats(from: &mut impl Read, count: usize) -> io::Result<Vec<f32>> {
    let mut bytes = vec![0; count * 4];
    from.read_exact(&mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_last_bytes_are_read_whatever_the_pieces() {
        let all: Vec<u8> = (0..200).collect();
        for piece in [1, 7, 32, 33, 500] {
            let mut from = BeforeDigest::new(&all[..]).unwrap();
            let (mut read, mut some) = (Vec::new(), vec![0; piece]);
            loop {
                match from.read(&mut some).unwrap() {
                    0 => break,
                    n => read.extend_from_slice(&some[..n]),
                }
            }
            assert_eq!(read, all[..168], "{piece}");
            assert_eq!(from.held, all[168..], "{piece}");
        }
    }

    #[test]
    fn names_are_those_of_rounds() {
        assert_eq!(number("round-00000012.state"), Some(12));
        assert_eq!(number(".round-00000012.state.new"), None);
        assert_eq!(number("round-x.state"), None);
    }
}
