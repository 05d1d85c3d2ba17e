//! What a server says of itself above its tasks: texts for people who look at a demonstration. Other servers say nothing.

use serde::Serialize;

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// The heading of the panel.
    pub title: String,
    /// What the whole is, in a few sentences.
    pub lead: String,
    /// The parts of the server and of its devices.
    pub parts: Vec<Part>,
    /// What should be known of its numbers, a paragraph each.
    pub notes: Vec<String>,
}

/// A part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What the part is called.
    pub name: String,
    /// What the part does, as a sentence without its subject.
    pub does: String,
}
