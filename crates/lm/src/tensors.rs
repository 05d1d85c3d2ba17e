//! Reads and writes safetensors: models and training states.
//!
//! The header is read by the crate `safetensors`, which checks names, offsets and sizes. Its readers want the whole file in
//! memory, and a keyboard has no room for a model twice: the tensors are read here, as a stream. Written by hand: the crate
//! writes metadata in the order of a hash map, and the same model must give the same bytes. The format: the length of the header (u64,
//! little-endian), the header (JSON, padded with spaces to a multiple of 8), then the tensors one after the other.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

pub use safetensors::tensor::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// A file that is not what it should be; the words follow the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TensorsError {
    /// Bytes are missing.
    #[error("is truncated: {got} bytes of {want}")]
    Truncated {
        /// The number found.
        got: u64,
        /// The expected number.
        want: u64,
    },
    /// Bytes that belong to no tensor.
    #[error("has {got} bytes, but its tensors end after {want}")]
    TooLong {
        /// The number found.
        got: u64,
        /// The expected number.
        want: u64,
    },
    /// The stream cannot be read, or there is no memory for it.
    #[error("cannot be read: {0}")]
    Io(String),
    /// Bytes that are not safetensors.
    #[error("is not a safetensors file: {0}")]
    NotSafetensors(String),
    /// A tensor that is not there.
    #[error("has no tensor {name:?}")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor that nobody asked for.
    #[error("has a tensor {name:?} that the model does not have")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A tensor of another shape.
    #[error("has a tensor {name:?} of shape {got:?}, expected {want:?}")]
    Shape {
        /// Its name.
        name: String,
        /// The value in the file.
        got: Vec<usize>,
        /// The value the model expects.
        want: Vec<usize>,
    },
    /// A tensor of another type.
    #[error("has a tensor {name:?} of type {got}, expected {want}")]
    Type {
        /// Its name.
        name: String,
        /// The value in the file.
        got: String,
        /// The supported type.
        want: String,
    },
}

/// A tensor to be written.
#[derive(Debug)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The tensor's values.
    pub values: Values<'a>,
}

/// The values of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Numbers of 32 bits.
    Floats(&'a [f32]),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl Values<'_> {
    fn dtype(&self) -> &'static str {
        match self {
            Self::Floats(_) => "F32",
            Self::Bytes(_) => "U8",
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Floats(values) => values.len() * 4,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Hands its bytes on, in blocks.
    ///
    /// # Errors
    /// Those of who takes them.
    pub fn each_block<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Floats(values) => {
                let mut block = Vec::with_capacity(BLOCK);
                for some in values.chunks(BLOCK / 4) {
                    block.clear();
                    some.iter().for_each(|v| block.extend(v.to_le_bytes()));
                    sink(&block)?;
                }
                Ok(())
            }
            Self::Bytes(bytes) => sink(bytes),
        }
    }
}

/// Writes tensors one after the other: the same ones give the same bytes.
///
/// # Errors
/// When `out` fails.
pub fn write_to(out: &mut dyn Write, metadata: &BTreeMap<String, String>, tensors: &[Tensor<'_>]) -> io::Result<()> {
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!(metadata))]);
    let mut end = 0;
    for Tensor { name, shape, values } in tensors {
        let start = end;
        end += values.size();
        let entry = json!({ "dtype": values.dtype(), "shape": shape, "data_offsets": [start, end] });
        header.insert((*name).to_owned(), entry);
    }
    let mut header = Value::Object(header).to_string();
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    tensors.iter().try_for_each(|tensor| tensor.values.each_block(|block| out.write_all(block)))
}

/// Serializes the tensors.
#[must_use]
pub fn write(metadata: &BTreeMap<String, String>, tensors: &[Tensor<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(tensors.iter().map(|tensor| tensor.values.size()).sum());
    let _ = write_to(&mut out, metadata, tensors); // writing to memory does not fail
    out
}

/// The longest header that is read, as in the crate.
const MOST_HEADER: u64 = 100_000_000;
/// Bytes that are read at a time.
const BLOCK: usize = 1 << 16;

/// A stream of tensors whose header is in order. Tensors are read one after the other as they come, so that nothing is in
/// memory twice.
pub struct Reader<'a> {
    from: &'a mut dyn Read,
    header: Metadata,
    /// Where the tensors begin.
    start: u64,
    /// Bytes read so far.
    at: u64,
}

impl<'a> Reader<'a> {
    /// Reads the header, and no more.
    ///
    /// # Errors
    /// When it is not whole, or no header.
    pub fn new(from: &'a mut dyn Read) -> Result<Self, TensorsError> {
        let mut length = [0; 8];
        let got = fill(from, &mut length)?;
        if got < length.len() {
            return Err(TensorsError::Truncated { got: got as u64, want: 8 });
        }
        let want = u64::from_le_bytes(length);
        if want > MOST_HEADER {
            return Err(TensorsError::NotSafetensors(format!("its header would be {want} bytes long")));
        }
        let mut header = Vec::new();
        from.take(want).read_to_end(&mut header).map_err(|error| failed(&error))?;
        let got = header.len() as u64;
        if got < want {
            let truncated = header.first().is_none_or(|first| *first == b'{');
            let error = TensorsError::Truncated { got: 8 + got, want: 8 + want };
            return Err(if truncated { error } else { TensorsError::NotSafetensors("its header is no JSON".into()) });
        }
        let header =
            serde_json::from_slice(&header).map_err(|error| TensorsError::NotSafetensors(error.to_string()))?;
        Ok(Self { from, header, start: 8 + want, at: 8 + want })
    }

    /// A value of the metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Checks that there are these tensors and no others, each with its shape and type.
    ///
    /// # Errors
    /// The first that is missing, of another kind, or too many.
    pub fn expect(&self, tensors: &[(&str, Vec<usize>, Dtype)]) -> Result<(), TensorsError> {
        let known = |name: &String| tensors.iter().any(|(known, ..)| known == name);
        let mut unknown: Vec<String> = self.header.offset_keys().into_iter().filter(|name| !known(name)).collect();
        unknown.sort_unstable();
        if let Some(name) = unknown.into_iter().next() {
            return Err(TensorsError::Unknown { name });
        }
        for (name, shape, want) in tensors {
            let name = (*name).to_owned();
            let Some(info) = self.header.info(&name) else { return Err(TensorsError::Missing { name }) };
            if info.dtype != *want {
                return Err(TensorsError::Type { name, got: info.dtype.to_string(), want: want.to_string() });
            }
            if info.shape != *shape {
                return Err(TensorsError::Shape { name, got: info.shape.clone(), want: shape.clone() });
            }
        }
        Ok(())
    }

    /// The numbers of all tensors, in the order of these names, which are those of all tensors ([`Self::expect`]); to the end of the
    /// stream. Other programs write tensors in other orders.
    ///
    /// # Errors
    /// When there are fewer bytes or more, or no memory for them.
    pub fn floats(mut self, names: &[&str]) -> Result<Vec<f32>, TensorsError> {
        let mut values = Vec::new();
        let room = values.try_reserve_exact(self.header.data_len() / 4);
        room.map_err(|error| TensorsError::Io(error.to_string()))?;
        self.blocks(|block| values.extend(block.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))))?;
        let mut places = Vec::with_capacity(names.len());
        for name in names {
            let info = self.header.info(name).ok_or_else(|| TensorsError::Missing { name: (*name).to_owned() })?;
            places.push(info.data_offsets.0 / 4..info.data_offsets.1 / 4);
        }
        if places.is_sorted_by_key(|place| place.start) {
            return Ok(values);
        }
        Ok(places.into_iter().flat_map(|place| values[place].iter().copied()).collect())
    }

    /// The bytes of all tensors; to the end of the stream.
    ///
    /// # Errors
    /// When there are fewer bytes or more.
    pub fn bytes(mut self) -> Result<Vec<u8>, TensorsError> {
        let mut bytes = Vec::new();
        self.blocks(|block| bytes.extend_from_slice(block))?;
        Ok(bytes)
    }

    /// The names of all tensors, and how many numbers each has.
    #[must_use]
    pub fn sizes(&self) -> Vec<(String, usize)> {
        let size = |name: &String| self.header.info(name).map_or(0, |info| info.shape.iter().product());
        self.header.offset_keys().into_iter().map(|name| (name.clone(), size(&name))).collect()
    }

    /// How long the only tensor is.
    #[must_use]
    pub fn length(&self, name: &str) -> Vec<usize> {
        self.header.info(name).map_or_else(Vec::new, |info| vec![info.shape.iter().product()])
    }

    /// Hands the content on in blocks of a multiple of four bytes, the last one excepted.
    fn blocks(&mut self, mut sink: impl FnMut(&[u8])) -> Result<(), TensorsError> {
        let want = self.start + self.header.data_len() as u64;
        let mut block = vec![0; BLOCK];
        while self.at < want {
            let size = BLOCK.min((want - self.at) as usize);
            let got = fill(self.from, &mut block[..size])?;
            self.at += got as u64;
            if got < size {
                return Err(TensorsError::Truncated { got: self.at, want });
            }
            sink(&block[..size]);
        }
        let more = io::copy(self.from, &mut io::sink()).map_err(|error| failed(&error))?;
        if more > 0 { Err(TensorsError::TooLong { got: want + more, want }) } else { Ok(()) }
    }
}

/// Reads until the block is full or the stream ends; says how much came.
fn fill(from: &mut dyn Read, block: &mut [u8]) -> Result<usize, TensorsError> {
    let mut got = 0;
    while got < block.len() {
        match from.read(&mut block[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(got)
}

fn failed(error: &io::Error) -> TensorsError {
    TensorsError::Io(error.to_string())
}
