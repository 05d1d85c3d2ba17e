//! The papers' models: what they are made of, how their parameters lie, and how they are computed.

pub mod batch;
pub mod config;
pub mod dropout;
pub mod fast;
pub mod initial;
pub mod parameters;
pub mod reference;
pub mod unit_norm;
