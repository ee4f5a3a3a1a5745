//! The allocator of a process that serves: when it gives back what is free.
#![expect(unsafe_code, reason = "the allocator's settings are functions of C")]

use std::ffi::c_long;
use std::time::Duration;

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// `mi_option_purge_delay`: the binding names no options.
const PURGE_DELAY: mi_option_t = 15;

/// Lets the allocator give pages back to the system once they have been free for so long, unless
/// the environment says otherwise (`MIMALLOC_PURGE_DELAY`, in milliseconds). It has an effect in
/// programs whose allocator is mimalloc.
pub fn give_back_after(free: Duration) {
    let millis = c_long::try_from(free.as_millis()).unwrap_or(c_long::MAX);
    // SAFETY: The option exists in every version, and any number of milliseconds is one for it; who
    // reads it meanwhile sees one of both.
    unsafe { mi_option_set_default(PURGE_DELAY, millis) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_delay_before_memory_is_given_back() {
        // SAFETY: It only reads.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
            assert_eq!(delay(), 1_000, "what mimalloc 3 starts with");
            give_back_after(Duration::from_millis(20));
            assert_eq!(delay(), 20);
        }
    }
}
