//! What the system grants this process, and what the process has used of it.

use std::fs;
use std::time::Duration;

use nicol_bench::memory;
use nicol_core::units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Addresses that the logs of a served store reserve beyond the memory that they take, with three
/// nodes and one engine thread (decision 0189).
const ADDRESSES_OF_LOGS: u64 = 512 << 20;

/// Memory that the process could still take: what the machine has free, and what the limits on
/// address space (`ulimit -v`) and on its control group leave. `None` where the system does not
/// say.
pub fn free_memory() -> Option<Bytes> {
    let sizes = fs::read_to_string("/proc/self/statm").ok();
    let pages = sizes.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let taken = pages.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64);
    let taken = taken.saturating_add(ADDRESSES_OF_LOGS);
    let address_space = getrlimit(Resource::As).current.map(|limit| limit.saturating_sub(taken));
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    [memory::available(), address_space, group].into_iter().flatten().min().map(Bytes)
}

/// The time that the process has had on cores: its own, and the kernel's for it. `None` where the
/// system does not say.
pub fn cpu_time() -> Option<(Duration, Duration)> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = rustix::param::clock_ticks_per_second();
    let time = |place: usize| {
        let ticks_used: u64 = fields.split_ascii_whitespace().nth(place)?.parse().ok()?;
        Some(Duration::from_millis(ticks_used * 1_000 / ticks.max(1)))
    };
    Some((time(11)?, time(12)?))
}

/// File descriptors that the process has open; 40 where the system does not say.
pub fn open_descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(40, |entries| entries.count() as u64)
}

/// Raises the limit on file descriptors (`ulimit -n`) to `wanted`, or as far as the system allows.
/// Returns the limit.
pub fn raise_descriptors(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let now = current.unwrap_or(u64::MAX);
    if now >= wanted {
        return now;
    }
    let raised = wanted.min(maximum.unwrap_or(u64::MAX));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        // Without the right to raise it, the process goes on with the limit it has.
        Err(_) => now,
    }
}

/// Reads a size as Redis writes it: bytes, or a number with a unit of 1,024 bytes (kb), of its
/// square (mb) or of its cube (gb).
pub fn size(text: &str) -> Result<Bytes, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &lower[digits.len()..] {
        "" | "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        unit => return Err(format!("unit '{unit}': give bytes, or kb, mb or gb as in 4gb")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("'{text}': give bytes, or a number with kb, mb or gb as in 4gb"))?;
    let bytes = number.checked_mul(1 << unit);
    bytes.map(Bytes).ok_or_else(|| format!("'{text}': that is more than 2^64 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_redis_writes_them() {
        let good = [("1", 1), ("512mb", 512 << 20), ("4GB", 4 << 30), ("7b", 7), ("3kb", 3 << 10)];
        for (text, bytes) in good {
            assert_eq!(size(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "gb", "-1", "1.5gb", "4gib", "4 gb", "99999999999tb", "0x10"] {
            let error = size(text).unwrap_err();
            assert!(error.contains("bytes"), "{text}: {error}");
        }
    }

    #[test]
    fn the_system_says_what_is_free() {
        let free = free_memory().expect("Linux says");
        assert!(free > Bytes(1 << 20) && free < Bytes(1 << 50), "{free:?}");
    }
}
