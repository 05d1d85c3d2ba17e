//! The `keyhush` command.
fn main() {}
