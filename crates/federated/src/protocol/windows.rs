//! How long devices have in an attempt.

/// The time limits of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Devices are waited for so long before fewer than wanted are taken, in milliseconds.
    pub select_ms: u64,
    /// A device has so long for its report, in milliseconds.
    pub report_ms: u64,
    /// A device has so long for each other message of secure aggregation, in milliseconds.
    pub answer_ms: u64,
    /// Reports leave devices at whole multiples of this, in milliseconds.
    pub tick_ms: u32,
}
