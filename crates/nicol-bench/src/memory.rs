//! What a run takes of the machine's memory, as the system tells it.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::refused::{Refused, refuse};
use crate::report::Memory;

/// Bytes of a record besides its value, at least: key and version.
const RECORD_HEADER_BYTES: u64 = 16;

/// Bytes that this process has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    pub now: u64,
    /// The most it ever had.
    pub peak: u64,
}

impl Resident {
    /// `None` where the system does not say.
    ///
    /// Cost: a look at every page if mappings share pages; the peak is then the most that was ever
    /// found here.
    pub fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/status").ok()?;
        let (resident, peak) = (field(&text, "VmRSS:")?, field(&text, "VmHWM:")?);
        let shares = field(&text, "RssShmem:").is_some_and(|bytes| bytes > 0);
        if !shares && HIGHEST.load(Ordering::Relaxed) == 0 {
            return Some(Self { now: resident, peak });
        }
        // The system's own numbers count a page once for each mapping that has touched it.
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
        let now = field(&rollup, "Pss:")?;
        Some(Self { now, peak: HIGHEST.fetch_max(now, Ordering::Relaxed).max(now) })
    }
}

/// The most bytes that were found in memory, since mappings share pages; 0 before.
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// The bytes in the line that starts with `name` and counts kibibytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Bytes that a new process could have, where the system says.
pub fn available() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Refuses so many copies of records, with values of so many bytes, if they take more than the
/// machine has left: the system would end the process, or another one. `fields` are those that
/// give fewer.
///
/// # Errors
/// What they take, what there is, and the fields.
pub fn refuse_beyond_machine(
    copies: u64,
    value_bytes: u64,
    fields: &[&'static str],
) -> Result<(), Refused> {
    // Whatever a table is like: each record has a key and a version, and space for its value.
    let least = RECORD_HEADER_BYTES + value_bytes;
    refuse_beyond_available("the records", copies.saturating_mul(least), fields)
}

/// Refuses so many engines on threads, if the rings between them take more than the machine has
/// left.
///
/// # Errors
/// What they take, what there is, and the fields.
pub(crate) fn refuse_engines_beyond_machine(engines: u64) -> Result<(), Refused> {
    let needed = nicol_rt::ring_bytes(engines);
    let fields = ["nodes", "host_engines", "nic_engines"];
    refuse_beyond_available(&format!("rings between {engines} engines"), needed, &fields)
}

/// Refuses places for records of so many bytes, if the machine has not so many left. `settings`
/// are those that give fewer.
///
/// # Errors
/// What they are, what there is, and the settings.
pub(crate) fn refuse_places_beyond_machine(
    bytes: u64,
    settings: &[&'static str],
) -> Result<(), Refused> {
    refuse_beyond_available("the places asked for", bytes, settings)
        .map_err(|refused| Refused { is_setting: true, ..refused })
}

/// The same of so many places at each of the nodes, none of which takes less than its pointer and a
/// word besides.
///
/// # Errors
/// What they take, what there is, and the fields.
pub(crate) fn refuse_slots_beyond_machine(
    slots: u64,
    nodes: usize,
    settings: &[&'static str],
) -> Result<(), Refused> {
    const BYTES_LEAST: u64 = 16;
    let bytes = slots.saturating_mul(BYTES_LEAST).saturating_mul(nodes as u64);
    refuse_places_beyond_machine(bytes, settings)
}

fn refuse_beyond_available(
    what: &str,
    needed: u64,
    fields: &[&'static str],
) -> Result<(), Refused> {
    available().map_or(Ok(()), |available| refuse_beyond(what, needed, available, fields))
}

fn refuse_beyond(
    what: &str,
    needed: u64,
    available: u64,
    fields: &[&'static str],
) -> Result<(), Refused> {
    if needed <= available {
        return Ok(());
    }
    let why = format!("{what} take {} at least and {} are free", told(needed), told(available));
    let names: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
    let remedy = format!("give fewer: {}", names.join(", "));
    Err(refuse(fields.first().copied().unwrap_or_default(), "", why, remedy))
}

/// So many bytes in a unit in which they are not nothing.
fn told(bytes: u64) -> String {
    match bytes {
        1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// The memory of a load under way.
pub(crate) struct Loading {
    before: Option<Resident>,
}

impl Loading {
    /// Notes what the process has before it loads.
    pub(crate) fn start() -> Self {
        Self { before: Resident::read() }
    }

    /// The memory that loading so many copies of records took.
    pub(crate) fn end(self, records: u64, nodes: usize) -> Option<Memory> {
        Some(loaded(self.before?, Resident::read()?, records, nodes))
    }
}

/// The memory that loading so many copies of records took of a process that had `before`, and has
/// `after`.
fn loaded(before: Resident, after: Resident, records: u64, nodes: usize) -> Memory {
    let loaded = after.now.saturating_sub(before.now);
    // A peak that was there before says nothing about this load.
    let is_new = after.peak > before.peak;
    let peak = if is_new { after.peak - before.now } else { loaded };
    Memory {
        records,
        loaded_bytes: loaded,
        bytes_per_record: loaded as f64 / records.max(1) as f64,
        bytes_per_node: loaded as f64 / nodes.max(1) as f64,
        loading_peak_bytes: peak.max(loaded),
        peak_bytes: after.peak,
    }
}

/// Updates the process's peak at the end of a run.
pub(crate) fn finish(memory: Option<Memory>) -> Option<Memory> {
    memory.map(|memory| Memory {
        peak_bytes: Resident::read().map_or(memory.peak_bytes, |resident| resident.peak),
        ..memory
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_does_not_have_is_refused_before_it_is_loaded() {
        assert!(refuse_beyond("the records", 1 << 30, 1 << 30, &["records"]).is_ok());
        let error = refuse_beyond("the records", 220_000_000_000, 22_500_000_000, &["records"]);
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("give fewer: `records`"), "{error}");
        assert!(error.contains("220.0 GB"), "{error}");
        assert!(error.contains("22.5 GB"), "{error}");
        let error = refuse_beyond("the records", 31_400_000, 250_000, &["records"]).unwrap_err();
        assert!(error.to_string().contains("the records take 31.4 MB at least and 0.2 MB are"));
        assert!(refuse_engines_beyond_machine(18).is_ok());
        let error = refuse_engines_beyond_machine(1 << 20).unwrap_err().to_string();
        assert!(error.contains("`nic_engines`"), "{error}");
    }

    #[test]
    fn the_systems_figures_are_read_in_kibibytes() {
        let text = "VmPeak:\t  9 kB\nVmHWM:\t    1536 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(field(text, "VmHWM:"), Some(1_536 << 10));
        assert_eq!(field(text, "VmRSS:"), Some(512 << 10));
        assert_eq!(field(text, "VmSwap:"), None);
    }

    #[test]
    fn a_load_is_what_the_process_has_gained() {
        let before = Resident { now: 1_000, peak: 5_000 };
        let below = loaded(before, Resident { now: 3_000, peak: 5_000 }, 10, 2);
        assert_eq!((below.loaded_bytes, below.loading_peak_bytes), (2_000, 2_000));
        assert_eq!((below.bytes_per_record, below.bytes_per_node), (200.0, 1_000.0));
        let above = loaded(before, Resident { now: 3_000, peak: 9_000 }, 10, 2);
        assert_eq!((above.loading_peak_bytes, above.peak_bytes), (8_000, 9_000));
        let freed = loaded(before, Resident { now: 500, peak: 5_000 }, 10, 2);
        assert_eq!(freed.loaded_bytes, 0);
    }

    /// Other tests of this process load and free at the same time: only what is held is certain.
    #[test]
    fn what_the_process_holds_is_in_its_memory() {
        const HELD: usize = 64 << 20;
        let held = std::hint::black_box(vec![1_u8; HELD]);
        if let Some(resident) = Resident::read() {
            assert!(resident.now >= HELD as u64, "{resident:?}");
            assert!(resident.peak >= resident.now, "{resident:?}");
        }
        drop(held);
    }
}
