//! The kernels against the slow model and against PyTorch. A binary of its own: it is run for phones and for browsers with every
//! `cargo xtask test`.

mod fast;
mod pytorch;
