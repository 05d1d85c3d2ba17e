//! Two columns of a Parquet file, row by row.

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

use super::ImportError;

/// Takes a row: its number from 1, the user and the text; says whether to go on.
pub(super) type Emit<'e> = dyn FnMut(u64, &[u8], &[u8]) -> bool + 'e;

/// Hands every row on.
pub(super) fn read(path: &Path, keys: (&str, &str), emit: &mut Emit<'_>) -> Result<(), ImportError> {
    // The library asserts what a damaged file may break. Nothing that the closure touches is used after an error.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| rows(path, keys, emit)));
    outcome.unwrap_or_else(|_| Err(malformed(path, "it is damaged")))
}

fn malformed(path: &Path, problem: impl ToString) -> ImportError {
    ImportError::Malformed { path: path.to_owned(), format: "Parquet", problem: problem.to_string() }
}

fn rows(path: &Path, (user_key, text_key): (&str, &str), emit: &mut Emit<'_>) -> Result<(), ImportError> {
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
    let wanted = vec![column(user_key)?, column(text_key)?];
    let projection = Type::group_type_builder(schema.name()).with_fields(wanted).build().map_err(damaged)?;
    let rows = reader.get_row_iter(Some(projection)).map_err(damaged)?;
    for (i, row) in rows.enumerate() {
        let row = row.map_err(damaged)?;
        // A row without a user is passed on with an empty one, and counted as a bad line there.
        let (user, text) = (bytes(&row, user_key), bytes(&row, text_key));
        if !emit(i as u64 + 1, &user, &text) {
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

fn bytes(row: &Row, key: &str) -> Vec<u8> {
    let field = row.get_column_iter().find(|(name, _)| *name == key).map(|(_, field)| field);
    match field {
        Some(Field::Str(text)) => text.as_bytes().to_vec(),
        Some(Field::Bytes(bytes)) => bytes.data().to_vec(),
        Some(Field::Int(n)) => n.to_string().into_bytes(),
        Some(Field::Long(n)) => n.to_string().into_bytes(),
        Some(Field::UInt(n)) => n.to_string().into_bytes(),
        Some(Field::ULong(n)) => n.to_string().into_bytes(),
        _ => Vec::new(),
    }
}
