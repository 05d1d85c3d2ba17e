//! Reads selected columns of a Parquet file, row by row.

use std::{fs::File, panic::AssertUnwindSafe, path::Path, sync::Arc};

use parquet::{
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, RowGroupMetaData},
        reader::{FileReader, SerializedFileReader},
    },
    record::{Field, Row},
    schema::types::{Type, TypePtr},
};

use super::{Columns, ImportError, block::RawPost, labels::Tags};

/// Takes a row; returns whether to continue.
pub(super) type Emit<'e> = dyn FnMut(RawPost) -> bool + 'e;

/// Hands every row on.
pub(super) fn read(path: &Path, columns: &Columns, emit: &mut Emit<'_>) -> Result<(), ImportError> {
    // The library asserts what a damaged file may break. Nothing that the closure touches is used after an error.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| rows(path, columns, emit)));
    outcome.unwrap_or_else(|_| Err(malformed(path, "it is damaged")))
}

fn malformed(path: &Path, problem: impl ToString) -> ImportError {
    ImportError::Malformed { path: path.to_owned(), format: "Parquet", problem: problem.to_string() }
}

fn rows(path: &Path, columns: &Columns, emit: &mut Emit<'_>) -> Result<(), ImportError> {
    let damaged = |error: ParquetError| malformed(path, error);
    let unread = |error| ImportError::Read { path: path.to_owned(), error };
    let file = File::open(path).map_err(unread)?;
    let length = file.metadata().map_err(unread)?.len();
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    if !reader
        .metadata()
        .row_groups()
        .iter()
        .flat_map(RowGroupMetaData::columns)
        .all(|column| is_inside(column, length))
    {
        return Err(malformed(path, "a column is not inside the file"));
    }
    let schema = reader.metadata().file_metadata().schema();
    let column = |key: &str| -> Result<TypePtr, ImportError> {
        let found = schema.get_fields().iter().find(|field| field.name() == key).map(Arc::clone);
        found.ok_or_else(|| ImportError::NoColumn {
            path: path.to_owned(),
            key: key.to_owned(),
            columns: schema.get_fields().iter().map(|field| field.name().to_owned()).collect(),
        })
    };
    let labels = columns.labels.iter().map(|column| &column.key);
    let keys = labels.chain(&columns.features).map(String::as_str);
    let wanted = [columns.user(), columns.text()].into_iter().chain(keys);
    let wanted = wanted.map(column).collect::<Result<Vec<_>, _>>()?;
    let projection = Type::group_type_builder(schema.name()).with_fields(wanted).build().map_err(damaged)?;
    let rows = reader.get_row_iter(Some(projection)).map_err(damaged)?;
    for (i, row) in rows.enumerate() {
        let row = row.map_err(damaged)?;
        if !emit(post(i as u64 + 1, &row, columns)) {
            break;
        }
    }
    Ok(())
}

/// Whether a column lies where the file is.
fn is_inside(column: &ColumnChunkMetaData, length: u64) -> bool {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let end = start.checked_add(column.compressed_size());
    start >= 0 && column.compressed_size() >= 0 && end.is_some_and(|end| end as u64 <= length)
}

/// A row; one without a user is passed on with an empty one, and counted as a bad line there.
fn post(line: u64, row: &Row, columns: &Columns) -> RawPost {
    let of = |key: &str| row.get_column_iter().find(|(name, _)| *name == key).map(|(_, field)| field);
    let bytes = |key: &str| of(key).map(bytes).unwrap_or_default();
    let labels = columns.labels.as_ref().and_then(|column| of(&column.key));
    RawPost {
        line,
        user: bytes(columns.user()),
        text: bytes(columns.text()),
        labels: labels.map(tags).unwrap_or_default(),
        features: columns.features.iter().map(|key| of(key).map(number).unwrap_or_default()).collect(),
    }
}

fn tags(field: &Field) -> Tags<Vec<u8>> {
    match field {
        Field::ListInternal(list) => Tags::Listed(list.elements().iter().map(bytes).collect()),
        field => Tags::Joined(bytes(field)),
    }
}

/// A number as text; a user or a text is never a fraction, so that is not among [`bytes`].
fn number(field: &Field) -> Vec<u8> {
    match field {
        Field::Float(n) => n.to_string().into_bytes(),
        Field::Double(n) => n.to_string().into_bytes(),
        Field::Byte(n) => n.to_string().into_bytes(),
        Field::Short(n) => n.to_string().into_bytes(),
        Field::UByte(n) => n.to_string().into_bytes(),
        Field::UShort(n) => n.to_string().into_bytes(),
        field => bytes(field),
    }
}

fn bytes(field: &Field) -> Vec<u8> {
    match field {
        Field::Str(text) => text.as_bytes().to_vec(),
        Field::Bytes(bytes) => bytes.data().to_vec(),
        Field::Int(n) => n.to_string().into_bytes(),
        Field::Long(n) => n.to_string().into_bytes(),
        Field::UInt(n) => n.to_string().into_bytes(),
        Field::ULong(n) => n.to_string().into_bytes(),
        _ => Vec::new(),
    }
}
