//! All tests of `ledger` that share one binary; what each is about, it says itself.

// Helpers that crates share call this one by the name that others know it by.
extern crate keyhush_ledger as ledger;

mod distributed;
mod failed_attempts;
mod ledger_story;
#[path = "../../privacy/tests/noised_users/mod.rs"]
mod noised_users;
mod observed;
mod statement;
mod stores;
