//! What training on a device computes. A binary of its own: it is run for browsers with every `cargo xtask test`.

mod local;
mod part;
