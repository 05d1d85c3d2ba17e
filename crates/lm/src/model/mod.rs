//! The papers' recurrent models: configuration, parameter layout, and computation.

pub mod batch;
pub mod config;
pub mod dropout;
pub mod fast;
pub mod initial;
pub mod parameters;
pub mod reference;
pub mod unit_norm;
