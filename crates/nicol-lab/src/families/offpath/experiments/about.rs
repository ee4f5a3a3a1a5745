//! What the figures of the off-path study are.

use super::files::{self, CORES};
use super::key_values::{MACHINES, PER_MACHINE, RECORDS, VALUE_BYTES};
use super::{CLIENT, RNIC, SNIC, sizes};
use crate::experiments::{About, Extent, Readings};

const SECTION: Readings = Readings::Section("Off-path SmartNICs (OSDI '23 study)");
const BED: &[&str] = &[SNIC, RNIC, CLIENT];
const CARD: &[&str] = &[SNIC];
const FILES: &str = "LineFS with one primary and a chain of two backups, chunks of 256 KB";
const KEYS: &str = "DrTM-KV on YCSB C: keys of 8 B, values of 64 B, Zipf 0.99, up to 11 machines";

/// The description of figure `id`; `None` if it is none of these.
pub(crate) fn about(id: &str) -> Option<About> {
    let found = match id {
        "offpath-fig3" => path("Figure 3: latency and peak of READ, WRITE and SEND on each path"),
        "offpath-fig5" => path("Figure 5: flows of 4 KB in one direction and in both"),
        "offpath-fig7" => path("Figure 7: 64 B on ranges of addresses from 1.5 KB on"),
        "offpath-fig8" => by_size("Figure 8: READ and WRITE to host and SoC by payload"),
        "offpath-fig9" => by_size("Figure 9: READ and WRITE between host and SoC by payload"),
        "offpath-fig10" => path("Figure 10: READs of 64 B from one core, by batches of doorbells"),
        "offpath-fig11" => by_size("Figure 11: RDMA and DMA from the SoC to its host by payload"),
        "offpath-fig12" => path("Figure 12: requests of 0 B by 1 to 11 machines"),
        "offpath-fig13a" => About {
            scale: vec![Extent::same("clients", "1, with one chunk on its way")],
            ..of_files("Figure 13 (a): the time of a chunk, and of hosts for 8 MB, by part")
        },
        "offpath-fig13" => of_files("Figure 13: bandwidth and host CPU, on idle and busy hosts"),
        "offpath-fig15" => of_files("Figure 15: A2 and A3 together, by the share of A3"),
        "offpath-chunks" => of_files("5.1: chunks of 256 KB and of 16 MB, whole and in pieces"),
        "offpath-fig17" => of_keys("1 alone, and all"),
        "offpath-fig18" => of_keys("1 to 11 machines"),
        "offpath-cached" => of_keys("all; by the share of values that the SoC keeps"),
        "offpath-mitigations" => of_keys("1 alone, and all; beyond the study"),
        _ => return None,
    };
    Some(found)
}

fn path(paper: &'static str) -> About {
    About {
        paper,
        scale: vec![
            Extent::same("requests under way", "8 or 16 on each of 24 cores of a machine"),
            Extent::same("range of addresses", "16 MB, of the study's 10 GB, unless it is varied"),
        ],
        profiles: BED,
        readings: SECTION,
        left_out: &["memory of other machines than the one that was measured, which is not given"],
    }
}

fn by_size(paper: &'static str) -> About {
    let mut about = path(paper);
    about.scale.push(Extent::of("payloads", |form| {
        let sizes = sizes::payload_sizes(form);
        let (first, last) = (sizes.first(), sizes.last());
        let of = |bytes: Option<&usize>| bytes.copied().unwrap_or_default();
        format!("{} of {} to {} B", sizes.len(), of(first), of(last))
    }));
    about
}

fn of_files(varied: &'static str) -> About {
    About {
        paper: FILES,
        scale: vec![
            Extent::same("what is varied", varied),
            Extent::same("clients", format!("up to {CORES}, a core each, 8 chunks on their way")),
            Extent::same("content", files::HALF),
        ],
        profiles: CARD,
        readings: SECTION,
        left_out: &["the content of the study's files, which is not given"],
    }
}

fn of_keys(clients: &'static str) -> About {
    About {
        paper: KEYS,
        scale: vec![
            Extent::of("records", |form| form.of(RECORDS).to_string()),
            Extent::same("bytes of a value", VALUE_BYTES),
            Extent::same(
                "clients",
                format!("{PER_MACHINE} of each of {MACHINES} machines: {clients}"),
            ),
        ],
        profiles: BED,
        readings: SECTION,
        left_out: &["the 10 GB that values are spread over"],
    }
}
