//! Asks the machine for memory that is read soon.

/// Asks for the cache line of `soon`. Nobody waits for it.
#[inline(always)]
pub(super) fn prefetch<T>(soon: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, which reads nothing that the program sees.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(soon).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _there_is_no_stable_way = soon;
}
