//! All tests of `agent` that share one binary; what each is about, it says itself.

mod fuzz;
mod keeping;
mod pace;
mod running;
mod serving;
mod unsent;
