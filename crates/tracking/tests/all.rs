//! All tests of `tracking` that share one binary; what each is about, it says itself.

mod a_run;
mod real;
mod requests;
mod server;
