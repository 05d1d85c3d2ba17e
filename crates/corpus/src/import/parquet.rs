//! Two columns of a Parquet file, row by row.

use std::{fs::File, path::Path, sync::Arc};

use parquet::{
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row},
    schema::types::{Type, TypePtr},
};

use super::ImportError;

/// Hands every row on: its number from 1, the user and the text. What takes them says whether to go on.
pub(super) fn read(
    path: &Path,
    (user_key, text_key): (&str, &str),
    emit: &mut dyn FnMut(u64, &[u8], &[u8]) -> bool,
) -> Result<(), ImportError> {
    let malformed = |error: ParquetError| ImportError::Malformed {
        path: path.to_owned(),
        format: "Parquet",
        problem: error.to_string(),
    };
    let file = File::open(path).map_err(|error| ImportError::Read { path: path.to_owned(), error })?;
    let reader = SerializedFileReader::new(file).map_err(malformed)?;
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
    let projection = Type::group_type_builder(schema.name()).with_fields(wanted).build().map_err(malformed)?;
    let rows = reader.get_row_iter(Some(projection)).map_err(malformed)?;
    for (i, row) in rows.enumerate() {
        let row = row.map_err(malformed)?;
        // A row without a user is passed on with an empty one, and counted as a bad line there.
        let (user, text) = (bytes(&row, user_key), bytes(&row, text_key));
        if !emit(i as u64 + 1, &user, &text) {
            break;
        }
    }
    Ok(())
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
