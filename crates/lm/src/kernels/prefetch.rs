//! Prefetches memory before it is needed.
//!
//! A tile of a product runs for a microsecond from registers and the first cache; what the next one reads can come nearer
//! meanwhile. This is a hint: it changes no value and cannot fault, and does nothing where there is no such instruction.

/// Asks for the cache lines that hold these values.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction takes a pointer; it reads nothing that a program can see")]
pub(crate) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks((64 / size_of::<T>()).max(1)) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed, and this one points into a slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
