//! LineFS's alternatives as systems: what may be set in them.

use anyhow::{Result, ensure};
use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::units::{Bytes, Nanos};
use nicol_offpath::linefs::{Alternative, HostLoad, LineFsConfig, Node, Sabotage, payload_max};
use nicol_workload::ycsb::Popularity;

use crate::config::{BenchConfig, Length};
use crate::key_value::{KeyValueConfig, system};
use crate::refused::{Unfit, refuse};
use crate::settings::{
    EngineSettings, Setting, Settings, Sizes, SystemConfig, broken, bytes, micros, numbers,
    numbers_as, refuse_idle, sabotage, switch, words,
};
use crate::system::{Needs, System};
use crate::workloads::WorkloadSpec;

/// The alternatives by their names.
pub const ALTERNATIVES: [(&str, Alternative); 4] = [
    ("linefs:a1", Alternative::A1),
    ("linefs:a2", Alternative::A2),
    ("linefs:a3", Alternative::A3),
    ("linefs:a2+a3", Alternative::A2AndA3),
];

/// The systems, in that order.
pub(super) const SYSTEMS: [System; 4] =
    [alternative(0), alternative(1), alternative(2), alternative(3)];

const fn alternative(at: usize) -> System {
    System {
        guarantee: "linearizable; acknowledged on every backup",
        replication: "primary and a chain of backups",
        survives: "message faults, partitions, stalls, crashes while one member of each chain is up",
        coverage_of_crashes: &["shard_unavailable"],
        harmless: &[("corrupts_chunks", "a backup refuses what its CRC denies, and has it again")],
        sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
        trials,
        needs: match ALTERNATIVES[at].1 {
            Alternative::A3 => Needs::NONE,
            _ => Needs::SOC,
        },
        ..system::<Node>("offpath", ALTERNATIVES[at].0, "LineFS on off-path SmartNICs, OSDI '23")
    }
}

/// Ways to break it on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 8] = [
    ("acknowledges_early", Sabotage::AcknowledgesEarly),
    ("publishes_early", Sabotage::PublishesEarly),
    ("breaks_chain", Sabotage::BreaksChain),
    ("publishes_old", Sabotage::PublishesOld),
    ("corrupts_chunks", Sabotage::CorruptsChunks),
    ("trusts_chunks", Sabotage::TrustsChunks),
    ("skips_alignment", Sabotage::SkipsAlignment),
    ("rejoins_empty", Sabotage::RejoinsEmpty),
];

/// The least and the most bytes of a chunk: a write of a workload fits, a core's pieces stay few.
const CHUNK: (u64, u64) = (2 << 10, 64 << 20);

impl Settings for LineFsConfig {
    fn table() -> Vec<Setting<Self>> {
        let chunks = CHUNK.0..=CHUNK.1;
        let hosts = [("idle", HostLoad::Idle), ("busy", HostLoad::Busy)];
        let segments = numbers_as(
            0..=CHUNK.1,
            |bytes| Some((bytes > 0).then_some(Bytes(bytes))),
            |segment| Some(segment.map_or(0, |bytes| bytes.0)),
        );
        let shares = numbers_as(
            0..=1_000,
            |share| Some(Some(share as u16)),
            |share: &Option<u16>| share.map(u64::from),
        );
        vec![
            sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage),
            Setting::new("host", words(hosts), |to: &mut Self| &mut to.host)
                .help("busy: hosts share their cores with a program that clusters points"),
            Setting::new("chunk_bytes", bytes(chunks), |to: &mut Self| &mut to.chunk)
                .help("most bytes of a chunk of the log"),
            Setting::new("slots", numbers(1..=64), |to: &mut Self| &mut to.slots)
                .help("most chunks of a host engine under way"),
            Setting::new("a3_permille", shares, |to: &mut Self| &mut to.a3_permille)
                .help("of 1,000 chunks those by the host, not those for which the SoC is full (a2+a3)")
                .default("by the load of the SoC"),
            Setting::new("segment_bytes", segments, |to: &mut Self| &mut to.segment)
                .help("most bytes of a transfer, a multiple of 64; 0: no limit")
                .then(|to| match to.segment {
                    Some(Bytes(bytes)) if !bytes.is_multiple_of(64) => {
                        Err(Unfit::new("", "give a multiple of 64, or 0"))
                    }
                    Some(_) | None => Ok(()),
                }),
            Setting::new("compress", switch(), |to: &mut Self| &mut to.soc_compresses)
                .help("the SoC compresses what it replicates (a1, a2, a2+a3)"),
            Setting::new("host_compresses", switch(), |to: &mut Self| &mut to.host_compresses)
                .help("the host compresses what it replicates (a3, a2+a3)")
                .then(|to| match to.alternative {
                    Alternative::A1 | Alternative::A2 if to.host_compresses => Err(Unfit::new(
                        "the host replicates chunks with a3 and a2+a3 only",
                        "leave it out, or choose one of these",
                    )),
                    _ => Ok(()),
                }),
            Setting::new("compress_ps", numbers(0..=1_000_000), |to: &mut Self| {
                &mut to.compression.byte_ps
            })
            .help("picoseconds that compressing a byte costs a core of the SoC"),
            Setting::new("timeout_us", micros(1..=10_000_000), |to: &mut Self| &mut to.timeout)
                .help("how long a client waits for the answer to a request"),
        ]
    }
}

/// Refuses settings that would change nothing in an alternative.
fn refuse_what_is_idle(config: &LineFsConfig, settings: &[String]) -> Result<()> {
    let refuse = |keys: &[&'static str], why: &str| refuse_idle(settings, keys, why);
    let alternative = config.alternative;
    if alternative != Alternative::A2AndA3 {
        refuse(&["a3_permille"], "only linefs:a2+a3 has two ways for a chunk")?;
    }
    if alternative == Alternative::A3 {
        refuse(&["compress", "compress_ps"], "with linefs:a3 no SoC compresses")?;
    } else if !config.soc_compresses {
        refuse(&["compress_ps"], "with compress=off no SoC compresses")?;
    }
    Ok(())
}

impl SystemConfig for LineFsConfig {
    fn published(system: &str, _: &Sizes<'_>) -> Self {
        let found = ALTERNATIVES.iter().find(|(name, _)| *name == system);
        Self::paper(found.map_or(Alternative::A1, |(_, alternative)| *alternative))
    }

    /// SENDs are datagrams of one message each.
    fn engines(&self) -> EngineSettings {
        EngineSettings { aggregation: Some(false), ..EngineSettings::default() }
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        refuse_what_is_idle(self, &config.settings)?;
        let (most, given) = (payload_max(self.chunk), config.workload.value_bytes);
        let bytes = given.unwrap_or_default();
        let why = || format!("a chunk of {} bytes has space for {most}", self.chunk.0);
        ensure!(
            u64::from(bytes) <= most,
            refuse("value_bytes", bytes, why(), "give fewer, or change `chunk_bytes=N`")
        );
        Ok(())
    }

    /// A core compresses the chunks of a host engine one after the other.
    fn longest_wait(&self) -> Nanos {
        let chunks = self.chunk.0.saturating_mul(u64::from(self.slots));
        Nanos(chunks.saturating_mul(self.compression.byte_ps) / 1_000)
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }
}

impl KeyValueConfig for LineFsConfig {}

const _: () = assert!(payload_max(Bytes(CHUNK.0)) >= crate::workloads::VALUE_BYTES as u64);

/// Runs in which a broken protocol shows: few blocks and many writers, chunks of a few writes, one
/// at a time of each log, a primary that crashes, one that comes back, and one that does not crash
/// alone.
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let spec = WorkloadSpec {
        records: Some(3),
        value_bytes: Some(64),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    let two_ways = system.name == "linefs:a2+a3";
    let settings = ["chunk_bytes=2048", "slots=2"].into_iter();
    let settings = settings.chain(two_ways.then_some("a3_permille=500"));
    let calm = BenchConfig {
        settings: settings.map(str::to_owned).collect(),
        clients: Some(8),
        host_engines: Some(2),
        nic_engines: Some(2),
        length: Some(Length::Transactions(300)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "bluefield2", seed)
    };
    let mut lossy = calm.clone();
    lossy.faults.messages = true;
    let at = Nanos(20_000 + seed.wrapping_mul(7_919) % 200_000);
    let crash = Crash { scope: CrashScope::Node, node: seed as u16, at, restart_after: None };
    let with_crash = |crash| {
        let fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
        BenchConfig { fault_plan, ..calm.clone() }
    };
    let crashing = with_crash(crash);
    // Long enough for the node to be a member again while clients write.
    let restart_after = Some(Nanos::from_micros(500));
    let mut returning = with_crash(Crash { restart_after, ..crash });
    returning.length = Some(Length::Transactions(3_000));
    // A head and the middle of its chain crash at once: what is between them and behind them may
    // differ.
    let middle = Crash { node: crash.node.wrapping_add(2), ..crash };
    let mut broken = with_crash(crash);
    (broken.nodes, broken.replicas) = (4, 4);
    broken.fault_plan.iter_mut().for_each(|plan| plan.crashes.push(middle));
    vec![calm.clone(), crashing, lossy, returning, broken]
}
