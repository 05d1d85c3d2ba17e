#![doc = include_str!("../README.md")]

pub mod entropy;
pub mod graph;
pub mod masks;
pub mod modulus;
pub mod parameters;
pub mod shamir;
