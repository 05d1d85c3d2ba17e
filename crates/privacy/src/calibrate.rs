//! Searches for the noise, rounds or cohort that a target needs.
