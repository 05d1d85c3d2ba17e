//! What is done with arbitrary bytes: one target for everything that a device or its server reads of the other, or of its own disk.
//!
//! Two programs run the targets: the test `fuzz`, on every input that is kept in `fuzz/corpus`, and the fuzzer in `fuzz/`, which makes
//! inputs up. A target panics where the library does, or breaks its word. Otherwise it says whether the bytes were taken: seeds that
//! should be taken, and are not, fuzz nothing.
#![allow(dead_code, unused_imports, reason = "the fuzzer makes no seeds")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod decoders;
#[path = "../participating/mod.rs"]
mod participating;
pub(crate) mod seeds;
mod states;

/// Takes arbitrary bytes, or refuses them.
pub(crate) type Target = fn(&[u8]) -> bool;

/// Every target by its name, which is that of its folder in `fuzz/corpus`.
pub(crate) const TARGETS: [(&str, Target); 12] = [
    ("device_signed", decoders::signed),
    ("device_answer", decoders::answer),
    ("device_task", decoders::task),
    ("device_blob", decoders::blob),
    ("device_report", decoders::report),
    ("device_sealed_sum", decoders::sealed_sum),
    ("device_guard", decoders::guard),
    ("device_diary", decoders::diary),
    ("device_unsent", decoders::unsent),
    ("device_hears_idle", states::hears_idle),
    ("device_hears_busy", states::hears_busy),
    ("device_step_terms", states::step_terms),
];

/// The target of a name.
pub(crate) fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(own, _)| *own == name).map(|(_, target)| *target)
}
