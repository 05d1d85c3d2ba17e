//! Everything that a server keeps, in one SQLite file.
