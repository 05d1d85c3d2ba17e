//! All tests of `privacy` that share one binary; what each is about, it says itself.

// Helpers that crates share call this one by the name that others know it by.
extern crate keyhush_privacy as privacy;

mod audit;
mod clip;
mod contract;
mod correlated;
mod distributed;
mod factorization;
mod lattice;
mod mechanism;
mod noise;
mod noised_users;
mod papers;
mod properties;
mod quantile;
mod quotient;
mod rdp;
mod replaced;
mod residues;
mod rotation;
mod rules;
mod shorthand;
mod stages;
mod tight;
mod units;
