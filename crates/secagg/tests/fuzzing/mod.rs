//! What is done with arbitrary bytes: one target for each decoder, and for each state that takes messages.
//!
//! Two programs run the targets: the test `fuzz`, on every input that is kept in `fuzz/corpus`, and the fuzzer in
//! `fuzz/`, which makes inputs up. A target panics where the library does, or breaks its word. Otherwise it says
//! whether the bytes were taken: seeds that should be taken, and are not, fuzz nothing.
#![allow(dead_code, reason = "the fuzzer makes no seeds")]

mod decoders;
mod recorded;
pub(crate) mod seeds;
mod states;

/// Takes arbitrary bytes, or refuses them.
pub(crate) type Target = fn(&[u8]) -> bool;

/// Every target by its name, which is that of its folder in `fuzz/corpus`.
pub(crate) const TARGETS: [(&str, Target); 24] = [
    ("offer", decoders::offer),
    ("advertise_keys", decoders::advertise_keys),
    ("neighbourhood", decoders::neighbourhood),
    ("share_keys", decoders::share_keys),
    ("delivery", decoders::delivery),
    ("masked_input", decoders::masked_input),
    ("view", decoders::view),
    ("agreement", decoders::agreement),
    ("unmask_request", decoders::unmask_request),
    ("unmask_response", decoders::unmask_response),
    ("parameters", decoders::parameters),
    ("packing", decoders::packing),
    ("share", decoders::share),
    ("shares_any", decoders::shares_any),
    ("shares_dealt", decoders::shares_dealt),
    ("client_neighbourhood", states::client_neighbourhood),
    ("client_delivery", states::client_delivery),
    ("client_view", states::client_view),
    ("client_unmask", states::client_unmask),
    ("server_keys", states::server_keys),
    ("server_shares", states::server_shares),
    ("server_masked", states::server_masked),
    ("server_agreement", states::server_agreement),
    ("server_unmask", states::server_unmask),
];

/// The target of a name.
pub(crate) fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(own, _)| *own == name).map(|(_, target)| *target)
}
