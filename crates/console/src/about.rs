//! What a server says of itself above its tasks: texts for people who look at a demonstration. Other servers say nothing.

use serde::Serialize;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// The title.
    pub title: String,
    /// What it is.
    pub lead: String,
    /// Its parts.
    pub parts: Vec<Part>,
    /// What should be known of its numbers, a paragraph each.
    pub notes: Vec<String>,
}

/// A part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The part.
    pub name: String,
    /// What it does.
    pub does: String,
}
