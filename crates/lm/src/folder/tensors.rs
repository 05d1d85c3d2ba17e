//! safetensors, written and read.
//!
//! The header is read by the crate `safetensors`, which checks names, offsets and sizes. Its readers want the whole file in
//! memory, and a keyboard has no room for a model twice: the tensors are read here, as a stream. Written by hand: the crate
//! writes metadata in the order of a hash map, and the same model must give the same bytes. The format: the length of the header (u64,
//! little-endian), the header (JSON, padded with spaces to a multiple of 8), then the tensors one after the other.

use std::{collections::BTreeMap, io::Read};

use safetensors::tensor::{Dtype, Metadata};
use serde_json::{Map, Value, json};

use super::FolderError;

/// A tensor to be written.
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Vec<usize>,
    pub(super) values: Values<'a>,
}

/// What is in a tensor.
pub(super) enum Values<'a> {
    Floats(&'a [f32]),
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

    fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Floats(values) => values.iter().for_each(|v| out.extend(v.to_le_bytes())),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

pub(super) fn write(metadata: &BTreeMap<String, String>, tensors: &[Tensor<'_>]) -> Vec<u8> {
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
    let mut out = Vec::with_capacity(8 + header.len() + end);
    out.extend((header.len() as u64).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    tensors.iter().for_each(|t| t.values.append_to(&mut out));
    out
}

/// The longest header that is read, as in the crate.
const MOST_HEADER: u64 = 100_000_000;
/// Bytes that are read at a time.
const BLOCK: usize = 1 << 16;

/// A stream of tensors whose header is in order. Tensors are read one after the other as they come, so that nothing is in
/// memory twice.
pub(super) struct Reader<'a> {
    from: &'a mut dyn Read,
    header: Metadata,
    /// Where the tensors begin.
    start: u64,
    /// Bytes read so far.
    at: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(from: &'a mut dyn Read) -> Result<Self, FolderError> {
        let mut length = [0; 8];
        let got = fill(from, &mut length)?;
        if got < length.len() {
            return Err(FolderError::Truncated { got: got as u64, want: 8 });
        }
        let want = u64::from_le_bytes(length);
        if want > MOST_HEADER {
            return Err(FolderError::NotSafetensors(format!("its header would be {want} bytes long")));
        }
        let mut header = Vec::new();
        from.take(want).read_to_end(&mut header).map_err(|error| io(&error))?;
        let got = header.len() as u64;
        if got < want {
            let truncated = header.first().is_none_or(|first| *first == b'{');
            let error = FolderError::Truncated { got: 8 + got, want: 8 + want };
            return Err(if truncated { error } else { FolderError::NotSafetensors("its header is no JSON".into()) });
        }
        let header = serde_json::from_slice(&header).map_err(|error| FolderError::NotSafetensors(error.to_string()))?;
        Ok(Self { from, header, start: 8 + want, at: 8 + want })
    }

    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Checks that there are these tensors and no others, each with its shape and type.
    pub(super) fn expect(&self, tensors: &[(&str, Vec<usize>, Dtype)]) -> Result<(), FolderError> {
        let known = |name: &String| tensors.iter().any(|(known, ..)| known == name);
        let mut unknown: Vec<String> = self.header.offset_keys().into_iter().filter(|name| !known(name)).collect();
        unknown.sort_unstable();
        if let Some(name) = unknown.into_iter().next() {
            return Err(FolderError::Unknown { name });
        }
        for (name, shape, want) in tensors {
            let name = (*name).to_owned();
            let Some(info) = self.header.info(&name) else { return Err(FolderError::Missing { name }) };
            if info.dtype != *want {
                return Err(FolderError::Type { name, got: info.dtype.to_string(), want: want.to_string() });
            }
            if info.shape != *shape {
                return Err(FolderError::Shape { name, got: info.shape.clone(), want: shape.clone() });
            }
        }
        Ok(())
    }

    /// Where each tensor begins, in bytes from the first, in the order in which they come.
    pub(super) fn order(&self) -> Vec<(String, usize)> {
        let starts = |name: String| self.header.info(&name).map(|info| (name, info.data_offsets.0));
        self.header.offset_keys().into_iter().filter_map(starts).collect()
    }

    /// The numbers of all tensors, in the order in which they come; to the end of the stream.
    pub(super) fn floats(mut self) -> Result<Vec<f32>, FolderError> {
        let mut values = Vec::new();
        let room = values.try_reserve_exact(self.header.data_len() / 4);
        room.map_err(|error| FolderError::Io(error.to_string()))?;
        self.blocks(|block| values.extend(block.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))))?;
        Ok(values)
    }

    /// The bytes of all tensors; to the end of the stream.
    pub(super) fn bytes(mut self) -> Result<Vec<u8>, FolderError> {
        let mut bytes = Vec::new();
        self.blocks(|block| bytes.extend_from_slice(block))?;
        Ok(bytes)
    }

    /// How long the only tensor is.
    pub(super) fn length(&self, name: &str) -> Vec<usize> {
        self.header.info(name).map_or_else(Vec::new, |info| vec![info.shape.iter().product()])
    }

    /// Hands the content on in blocks of a multiple of four bytes, the last one excepted.
    fn blocks(&mut self, mut sink: impl FnMut(&[u8])) -> Result<(), FolderError> {
        let want = self.start + self.header.data_len() as u64;
        let mut block = vec![0; BLOCK];
        while self.at < want {
            let size = BLOCK.min((want - self.at) as usize);
            let got = fill(self.from, &mut block[..size])?;
            self.at += got as u64;
            if got < size {
                return Err(FolderError::Truncated { got: self.at, want });
            }
            sink(&block[..size]);
        }
        let more = std::io::copy(self.from, &mut std::io::sink()).map_err(|error| io(&error))?;
        if more > 0 { Err(FolderError::TooLong { got: want + more, want }) } else { Ok(()) }
    }
}

/// Reads until the block is full or the stream ends; says how much came.
fn fill(from: &mut dyn Read, block: &mut [u8]) -> Result<usize, FolderError> {
    let mut got = 0;
    while got < block.len() {
        match from.read(&mut block[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io(&error)),
        }
    }
    Ok(got)
}

fn io(error: &std::io::Error) -> FolderError {
    FolderError::Io(error.to_string())
}
