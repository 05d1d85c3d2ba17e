//! All tests of `durable` that share one binary; what each is about, it says itself.

mod folders;
mod replace;
