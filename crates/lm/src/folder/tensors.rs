//! safetensors, written and read.
//!
//! Read with the crate `safetensors`, which checks names, offsets and sizes. Written by hand: the crate writes metadata in
//! the order of a hash map, and the same model must give the same bytes. The format: the length of the header (u64,
//! little-endian), the header (JSON, padded with spaces to a multiple of 8), then the tensors one after the other.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensorError, SafeTensors, tensor::Metadata};
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

/// A file of tensors whose header and sizes are in order.
pub(super) struct Reader<'a> {
    tensors: SafeTensors<'a>,
    metadata: Metadata,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, FolderError> {
        let got = bytes.len() as u64;
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or(FolderError::Truncated { got, want: 8 })?;
        let header = u64::from_le_bytes(*length);
        // A sane header that is longer than the file was cut; an insane one is the crate's to refuse.
        if header > rest.len() as u64 && rest.first() == Some(&b'{') && header <= 100_000_000 {
            return Err(FolderError::Truncated { got, want: 8 + header });
        }
        let not = |error: SafeTensorError| FolderError::NotSafetensors(error.to_string());
        let (_, metadata) = match SafeTensors::read_metadata(bytes) {
            Err(SafeTensorError::MetadataIncompleteBuffer) => return Err(wrong_length(bytes, header)),
            read => read.map_err(not)?,
        };
        Ok(Self { tensors: SafeTensors::deserialize(bytes).map_err(not)?, metadata })
    }

    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    pub(super) fn refuse_unknown(&self, known: &[&str]) -> Result<(), FolderError> {
        let mut unknown: Vec<&str> = self.tensors.names().into_iter().filter(|n| !known.contains(n)).collect();
        unknown.sort_unstable();
        match unknown.first() {
            Some(name) => Err(FolderError::Unknown { name: (*name).to_owned() }),
            None => Ok(()),
        }
    }

    fn view(&self, name: &str, want: Dtype, want_name: &'static str) -> Result<safetensors::tensor::TensorView<'a>, FolderError> {
        let missing = |_| FolderError::Missing { name: name.to_owned() };
        let view = self.tensors.tensor(name).map_err(missing)?;
        if view.dtype() != want {
            let got = format!("{:?}", view.dtype());
            return Err(FolderError::Type { name: name.to_owned(), got, want: want_name });
        }
        Ok(view)
    }

    /// Appends the values of a tensor of this shape.
    pub(super) fn append_floats(&self, name: &str, shape: Vec<usize>, out: &mut Vec<f32>) -> Result<(), FolderError> {
        let view = self.view(name, Dtype::F32, "F32")?;
        if view.shape() != shape {
            return Err(FolderError::Shape { name: name.to_owned(), got: view.shape().to_vec(), want: shape });
        }
        out.extend(view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
        Ok(())
    }

    /// The bytes of the only tensor.
    pub(super) fn only_bytes(&self, name: &str) -> Result<&'a [u8], FolderError> {
        self.refuse_unknown(&[name])?;
        Ok(self.view(name, Dtype::U8, "U8")?.data())
    }
}

/// The tensors do not end where the file does: says where they do.
fn wrong_length(bytes: &[u8], header: u64) -> FolderError {
    let got = bytes.len() as u64;
    let text = bytes.get(8..8 + header as usize).unwrap_or_default();
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    let end = |tensor: &Value| tensor.get("data_offsets")?.get(1)?.as_u64();
    let ends = value.as_object().into_iter().flat_map(Map::values).filter_map(end);
    let want = (8 + header).saturating_add(ends.max().unwrap_or(0));
    if got < want { FolderError::Truncated { got, want } } else { FolderError::TooLong { got, want } }
}
