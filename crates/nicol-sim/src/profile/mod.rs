//! Hardware profiles: every number of the model, with its unit and its source.

mod capabilities;
mod card;
mod off_path;
mod overrides;
mod sourced;
mod two_sided;
mod values;

use std::io::ErrorKind;
use std::path::Path;

pub use capabilities::{Capabilities, NicCores, OneSidedBy};
pub use card::{Card, DmaEngine, DmaRates, Endpoint, Memory, MemoryTimes, Suspected, Switch};
use nicol_core::ids::{NodeId, Side};
use nicol_core::names::did_you_mean;
use nicol_core::units::{BitsPerSec, Bytes, Picos};
use nicol_core::view::{View, ViewError};
pub use off_path::{OffPath, Published};
use serde::Deserialize;
pub use sourced::{Quantity, RawValue, Sourced};
pub use two_sided::TwoSided;
pub use values::{Assumption, Measured, Stated};

/// The profiles that come with Nicol, in the order of their names: name and text.
const BUILT_IN: &[(&str, &str)] = &[
    ("bluefield1", include_str!("../../../../profiles/bluefield1.toml")),
    ("bluefield1-25g", include_str!("../../../../profiles/bluefield1-25g.toml")),
    ("bluefield2", include_str!("../../../../profiles/bluefield2.toml")),
    ("connectx4", include_str!("../../../../profiles/connectx4.toml")),
    ("connectx5", include_str!("../../../../profiles/connectx5.toml")),
    ("connectx5-25g", include_str!("../../../../profiles/connectx5-25g.toml")),
    ("connectx5-40g", include_str!("../../../../profiles/connectx5-40g.toml")),
    ("connectx6", include_str!("../../../../profiles/connectx6.toml")),
    ("innova2", include_str!("../../../../profiles/innova2.toml")),
    ("liquidio3", include_str!("../../../../profiles/liquidio3.toml")),
    ("minos-b-cluster", include_str!("../../../../profiles/minos-b-cluster.toml")),
    ("minos-snic", include_str!("../../../../profiles/minos-snic.toml")),
    ("stingray", include_str!("../../../../profiles/stingray.toml")),
];

/// Whether it looks like the path of a file, and not like a misspelt name.
fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/')
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a built-in name nor a file.
    #[error(
        "no profile {name:?}: give one of {known}, the path of a .toml file, or one of these with \
         values to change, as in liquidio3:link.rate=50Gbps:dma.queues=4{meant}"
    )]
    Missing {
        /// The name or path that was asked for.
        name: String,
        known: String,
        /// The question whether one of these was meant, or nothing.
        meant: String,
    },
    /// A file that cannot be read.
    #[error("cannot read the profile {name:?}")]
    Unreadable { name: String, source: std::io::Error },
    /// The view has more engines than the hardware has cores.
    #[error("{asked} {side:?} engines a node, but {profile} has {there}: ask for {there} or fewer")]
    Engines { profile: String, side: Side, asked: usize, there: usize },
    /// The text is not a profile.
    #[error("{file}:{}{what}", place(*line, key))]
    Invalid {
        file: String,
        /// Line of the text, from 1; none if the text is not that of a file.
        line: Option<usize>,
        /// The key on that line; empty if the text as a whole is wrong.
        key: String,
        /// The error, and what to write instead.
        what: String,
    },
}

/// The place of an error in a file.
fn place(line: Option<usize>, key: &str) -> String {
    let line = line.map_or_else(String::new, |line| format!("{line}:"));
    let key = if key.is_empty() { String::new() } else { format!(" {key}:") };
    format!("{line}{key} ")
}

/// The hardware of a testbed, as a file of `profiles/` describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    pub summary: String,
    pub cores: Cores,
    pub host_core: CoreCosts,
    /// Costs of the core of a NIC engine.
    pub nic_core: CoreCosts,
    /// Named computation, on a host core.
    pub work: WorkCosts,
    /// Transfers to the other side's memory.
    pub dma: Dma,
    pub verbs: Verbs,
    /// The delay until software takes what arrives; `None` where it is measured as a part of
    /// `[pcie]`.
    pub two_sided: Option<TwoSided>,
    pub link: Link,
    /// PCIe and its packet queues.
    pub pcie: Pcie,
    /// Frames that stay on one side of a node.
    pub within: Within,
    pub persist: Persist,
    /// The NIC's queues for updates on their way to the host; none where it has no such queues.
    pub nic_queues: Option<NicQueues>,
    /// The way to NIC cores off the packets' path; none where there are no such cores.
    pub off_path: Option<OffPath>,
    /// The inside of the card; none where a card is one queue of packets.
    pub card: Option<Card>,
    /// The time of two-sided RPCs of the testbed, where that was measured.
    pub null_rpc: Option<NullRpc>,
    /// Values measured on this hardware to which its component checks are held, where these are not
    /// those of all hardware of its kind.
    pub published: Option<Published>,
    /// Every value, in the order of their keys.
    #[serde(skip)]
    stated: Vec<Stated>,
    /// Values that no source gives.
    #[serde(skip)]
    assumed: Vec<Assumption>,
}

/// `[cores]`: the cores of a node, and where its NIC engines run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// Host engines by default, and at most.
    pub host: Sourced<u64>,
    /// NIC engines by default, and at most.
    pub nic: Sourced<u64>,
    /// The memory that NIC engines work in.
    pub nic_memory: Sourced<Bytes>,
    /// Whether NIC engines run on cores of the NIC. If not, they run on host cores.
    pub nic_is_separate: Sourced<bool>,
    /// Whether packets from and to the host pass through NIC cores.
    pub on_path: Sourced<bool>,
    /// Time of a NIC engine's core for what takes a host core 1000.
    pub nic_slowdown_permille: Sourced<u64>,
    /// Whether hardware keeps some memory coherent between host and NIC, so that each side's cores
    /// reach it as they reach their own. Left out: only where both work in the same memory.
    /// [MINOS24 V-B2]
    pub coherent: Option<Sourced<bool>>,
}

/// `[host_core]`, `[nic_core]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreCosts {
    /// One poll round: also what an idle core needs to notice something.
    pub poll: Sourced<Picos>,
    /// Taking a packet from the network or PCIe queue.
    pub packet_received: Sourced<Picos>,
    /// Giving a packet to the network or PCIe queue.
    pub packet_sent: Sourced<Picos>,
    /// Taking a frame of another engine of the same side.
    pub local_received: Sourced<Picos>,
    /// Giving a frame to another engine of the same side.
    pub local_sent: Sourced<Picos>,
    /// Parsing and dispatching a message.
    pub message_received: Sourced<Picos>,
    /// Appending a message to a frame.
    pub message_sent: Sourced<Picos>,
    pub copy: Sourced<BitsPerSec>,
    /// [`nicol_core::fabric::SharedMemory::access`] on this side's cores; by default `work.access`.
    pub synchronize: Option<Sourced<Picos>>,
}

/// `[work]`: the time of named computation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkCosts {
    /// [`nicol_core::fabric::Work::IndexLookup`]
    pub index_lookup: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::TableLookup`]
    pub table_lookup: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::TableApply`]
    pub table_apply: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::TxnSetup`]
    pub txn_setup: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::Execute`], per key.
    pub execute_key: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::Client`]
    pub client: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::Chain`], per operation.
    pub chain_operation: Sourced<Picos>,
    /// [`nicol_core::fabric::Work::Crc64`], per byte.
    pub crc64_byte: Sourced<Picos>,
    /// [`nicol_core::fabric::SharedMemory::access`]; by default the `local_received` of the core.
    pub access: Option<Sourced<Picos>>,
}

/// `[dma]`: the DMA engine between host and NIC.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dma {
    /// Hardware queues of a node.
    pub queues: Sourced<u64>,
    /// Requests of a vector.
    pub vector: Sourced<u64>,
    /// Time of the core to submit a vector.
    pub submit: Sourced<Picos>,
    /// Time of the core to handle a vector's completion.
    pub completed: Sourced<Picos>,
    /// A queue's time per request.
    pub request_interval: Sourced<Picos>,
    /// From submission to the completion status of reads.
    pub read_latency: Sourced<Picos>,
    /// From submission to the completion status of writes.
    pub write_latency: Sourced<Picos>,
}

/// `[verbs]`: one-sided operations that the card executes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verbs {
    /// Whether the NIC executes verbs.
    pub present: Sourced<bool>,
    /// Time of the core to ring the doorbell of a batch.
    pub doorbell: Sourced<Picos>,
    /// Time of the core per operation of a batch.
    pub post: Sourced<Picos>,
    /// Time of the core to poll a completion.
    pub completed: Sourced<Picos>,
    /// Whether the NIC also executes chains of operations, as a future one might. If not, software
    /// of the node's NIC engines does. Left out: it does. [PRISM21 4.1, 4.2]
    pub chains: Option<Sourced<bool>>,
    /// Whether the card is only known from machines that ask. Then what is published of cards that
    /// answer does not hold it. Left out: it is known as both.
    pub asks_only: Option<Sourced<bool>>,
    /// The NIC's time per operation of one requester.
    pub requester_interval: Sourced<Picos>,
    /// The NIC's time per packet of all connections.
    pub card_interval: Sourced<Picos>,
    /// From the doorbell to the first packet.
    pub post_latency: Sourced<Picos>,
    /// Passing through a NIC.
    pub card_latency: Sourced<Picos>,
    /// The target NIC's read of host memory, or an atomic.
    pub read_latency: Sourced<Picos>,
    /// From a WRITE's last byte on the target's lanes until its NIC knows that memory has it, which
    /// it waits for before it acknowledges. Left out: it acknowledges as soon as the lanes have
    /// taken it.
    pub write_latency: Option<Sourced<Picos>>,
    /// From the response to the completion in the requester's memory.
    pub completion_latency: Sourced<Picos>,
    /// Before an unanswered operation is sent again by the NIC.
    pub retry_after: Sourced<Picos>,
    /// Repeats before the operation fails.
    pub retries: Sourced<u64>,
    /// Bytes of a request or response besides its data.
    pub header: Sourced<Bytes>,
}

/// `[link]`: the link between a node and the switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate of a node's link, each direction.
    pub rate: Sourced<BitsPerSec>,
    /// Payload of a full packet.
    pub packet_payload: Sourced<Bytes>,
    /// Bytes on the wire per packet besides the payload.
    pub packet_overhead: Sourced<Bytes>,
    /// Bytes on the wire of the smallest packet.
    pub packet_minimum: Sourced<Bytes>,
    /// Cable and switch, one way.
    pub latency: Sourced<Picos>,
    /// Frames that an engine may have waiting for the link or the PCIe queue.
    pub queue_frames: Sourced<u64>,
    /// Whether a module of the card sends the copies of one deposit to many. Left out: no. [MINOS24
    /// V-B3]
    pub broadcast: Option<Sourced<bool>>,
}

/// `[pcie]`: the lanes and packet queues between host and NIC.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    pub rate: Sourced<BitsPerSec>,
    /// Data of a full transaction-layer packet.
    pub tlp_payload: Sourced<Bytes>,
    /// Bytes of a transaction-layer packet besides its data.
    pub tlp_overhead: Sourced<Bytes>,
    /// The host-to-NIC packet queue's time per doorbell: per burst, or per frame unbatched.
    pub doorbell: Sourced<Picos>,
    /// A packet queue's time per packet.
    pub descriptor: Sourced<Picos>,
    /// A packet from host memory to the NIC.
    pub to_nic_latency: Sourced<Picos>,
    /// A packet from the NIC to host memory.
    pub to_host_latency: Sourced<Picos>,
}

/// `[within]`: messages between the engines of a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// A frame between host cores of a node.
    pub host_latency: Sourced<Picos>,
    /// A frame between NIC cores of a node.
    pub nic_latency: Sourced<Picos>,
}

/// `[null_rpc]`: the median of an RPC that does nothing, by the bytes of its payload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullRpc {
    pub of_128: Sourced<Picos>,
    pub of_512: Sourced<Picos>,
    pub of_2048: Sourced<Picos>,
    pub of_4096: Sourced<Picos>,
}

/// `[persist]`: the log device, or persistent memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Persist {
    pub latency: Sourced<Picos>,
    pub per_kib: Sourced<Picos>,
    /// Writes that the device takes at a time; others wait. Left out: any number, and those of one
    /// engine's round share the fixed time.
    pub channels: Option<Sourced<u64>>,
    /// Whether the device is memory that cores write and flush themselves. Then a core that
    /// persists is busy meanwhile, and what a DMA has landed there is durable without a flush.
    pub by_core: Option<Sourced<bool>>,
}

impl Persist {
    /// Whether cores persist themselves.
    pub(crate) fn is_by_core(&self) -> bool {
        self.by_core.as_ref().is_some_and(|by_core| by_core.value)
    }
}

/// `[nic_queues]`: writing an entry of the queues that buffer updates on a NIC. Entries are written
/// side by side; how many there are is the system's choice. [MINOS24 V-B4]
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicQueues {
    /// Fixed time of an entry of the volatile queue.
    pub volatile_latency: Sourced<Picos>,
    /// Time per KiB of it.
    pub volatile_per_kib: Sourced<Picos>,
    /// Fixed time until an entry of the durable queue is durable.
    pub durable_latency: Sourced<Picos>,
    /// Time per KiB of it.
    pub durable_per_kib: Sourced<Picos>,
    /// Whether entries drain to the host in the background, so that messages over the same lanes do
    /// not wait for them.
    pub background: Sourced<bool>,
}

impl Profile {
    /// The built-in profile of this name, or the one in the file at this path; after a colon,
    /// values to change in it: `liquidio3:link.rate=50Gbps:dma.queues=4`. What is no built-in
    /// profile as it stands is named as it was asked for.
    pub fn load(name_or_path: &str) -> Result<Self, ProfileError> {
        let (file, text) = Self::source(name_or_path)?;
        let parsed = Self::parse(&file, &text);
        match parsed {
            // The text with changed values is in no file, whose lines could be counted.
            Err(ProfileError::Invalid { file, key, what, .. })
                if overrides::split(name_or_path).is_some() =>
            {
                Err(ProfileError::Invalid { file, line: None, key, what })
            }
            // A copy keeps the name of its original, and reports must tell the two apart.
            Ok(read) if file == name_or_path => Ok(Self { name: file, ..read }),
            parsed => parsed,
        }
    }

    /// The text of a profile and the file it stands in.
    pub fn source(name_or_path: &str) -> Result<(String, String), ProfileError> {
        if let Some((base, changes)) = overrides::split(name_or_path) {
            let (_, text) = Self::source(base)?;
            let changed = overrides::apply(name_or_path, &text, changes)?;
            return Ok((name_or_path.to_owned(), changed));
        }
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Ok((format!("profiles/{name}.toml"), (*text).to_owned()));
        }
        match std::fs::read_to_string(Path::new(name_or_path)) {
            Ok(text) => Ok((name_or_path.to_owned(), text)),
            Err(error) if error.kind() == ErrorKind::NotFound && !is_path(name_or_path) => {
                Err(ProfileError::Missing {
                    name: name_or_path.into(),
                    known: Self::list().join(", "),
                    meant: did_you_mean(name_or_path, Self::list()),
                })
            }
            Err(source) => Err(ProfileError::Unreadable { name: name_or_path.into(), source }),
        }
    }

    /// The names of the built-in profiles.
    pub fn list() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a profile; `file` names it in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let located = |error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
            let shown = text.lines().nth(line).unwrap_or_default();
            let key = shown.split('=').next().unwrap_or_default();
            let key = key.trim_matches(|c: char| c.is_whitespace() || "[]".contains(c)).to_owned();
            let what = error.message().trim().replace('\n', "; ");
            ProfileError::Invalid { file: file.into(), line: Some(line + 1), key, what }
        };
        let mut profile: Self = toml::from_str(text).map_err(located)?;
        let table: toml::Table = toml::from_str(text).map_err(located)?;
        values::collect("", &table, &mut profile.stated).map_err(located)?;
        profile.assumed = profile.stated.iter().filter_map(Stated::assumed).collect();
        profile.check(file, text)?;
        Ok(profile)
    }

    /// Every value as it is written, in the order of their keys.
    pub fn stated(&self) -> &[Stated] {
        &self.stated
    }

    /// The values that no source gives.
    pub fn assumed(&self) -> &[Assumption] {
        &self.assumed
    }

    /// Engines of a side: the default number, which is also the most that there are.
    pub fn engines(&self, side: Side) -> usize {
        match side {
            Side::Host => self.cores.host.value as usize,
            Side::Nic => self.cores.nic.value as usize,
        }
    }

    /// A view with every core of the hardware, or with at most `engines` on each side.
    pub fn view(
        &self,
        nodes: usize,
        replicas: usize,
        engines: Option<usize>,
    ) -> Result<View, ViewError> {
        let most = |side| self.engines(side).min(engines.unwrap_or(usize::MAX));
        View::new(nodes, replicas, most(Side::Host), most(Side::Nic))
    }

    /// Checks that the hardware has a core for each engine of `node`.
    pub fn check_node(&self, view: &View, node: NodeId) -> Result<(), ProfileError> {
        for side in [Side::Host, Side::Nic] {
            let (asked, there) = (view.engines(node, side), self.engines(side));
            if asked > there {
                let profile = self.name.clone();
                return Err(ProfileError::Engines { profile, side, asked, there });
            }
        }
        Ok(())
    }

    /// The costs of the core of an engine of `side`.
    pub fn core(&self, side: Side) -> &CoreCosts {
        match side {
            Side::Host => &self.host_core,
            Side::Nic => &self.nic_core,
        }
    }

    /// Relations between values that a single value cannot show.
    fn check(&self, file: &str, text: &str) -> Result<(), ProfileError> {
        let cores = &self.cores;
        let verbs = self.verbs.present.value;
        let off_path = cores.nic_is_separate.value && !cores.on_path.value && verbs;
        let inside = self.card.as_ref().and_then(|card| card.wrong(self.off_path.is_some()));
        let (card, of_card) = inside.unwrap_or_default();
        let rules: [(bool, &str, &str); 11] = [
            (inside.is_none(), card, of_card),
            (
                self.off_path.is_none() || off_path,
                "[off_path]",
                "needs nic_is_separate and verbs, and cores that are not on_path",
            ),
            (self.host_core.poll.value.0 > 0, "poll", "a poll round must take time: 1ns or more"),
            (self.nic_core.poll.value.0 > 0, "poll", "a poll round must take time: 1ns or more"),
            (self.link.packet_payload.value.0 > 0, "packet_payload", "give at least 1B"),
            (self.link.queue_frames.value > 0, "queue_frames", "give at least 1"),
            (self.pcie.tlp_payload.value.0 > 0, "tlp_payload", "give at least 1B"),
            (self.dma.queues.value > 0, "queues", "give at least 1"),
            (self.dma.vector.value > 0, "vector", "give at least 1"),
            (
                self.persist.channels.as_ref().is_none_or(|channels| channels.value > 0),
                "channels",
                "give at least 1, or leave it out",
            ),
            (
                !self.persist.is_by_core() || self.persist.channels.is_none(),
                "by_core",
                "memory that cores flush has no channels: leave one of the two out",
            ),
        ];
        for (holds, key, what) in rules {
            if !holds {
                let at = text.lines().position(|line| line.trim_start().starts_with(key));
                return Err(ProfileError::Invalid {
                    file: file.into(),
                    line: at.map(|at| at + 1),
                    key: key.into(),
                    what: what.into(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_profiles_load_and_say_what_they_assume() {
        for name in Profile::list() {
            let profile = Profile::load(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(!profile.assumed().is_empty());
            assert!(profile.assumed().iter().all(|line| line.key.contains('.')));
        }
    }

    /// What there is a number of takes memory for each: a slip of the finger must not take all.
    #[test]
    fn every_count_has_a_bound() {
        for name in Profile::list() {
            let (file, text) = Profile::source(name).unwrap();
            let profile = Profile::parse(&file, &text).unwrap();
            let counts = profile.stated().iter();
            for line in counts.filter(|line| matches!(line.value, Measured::Count(_))) {
                for count in ["65537", "999999999999"] {
                    let asked = format!("{name}:{}={count}", line.key);
                    let error = Profile::load(&asked).unwrap_err().to_string();
                    let key = line.key.rsplit('.').next().unwrap();
                    let named = error.contains(key) && error.contains("65536 at most");
                    assert!(named, "{asked}: {error}");
                }
            }
        }
    }

    #[test]
    fn errors_name_file_line_key_and_remedy() {
        let (_, text) = Profile::source("liquidio3").unwrap();
        let line = text.lines().position(|line| line.starts_with("submit")).unwrap() + 1;
        let broken = text.replace("value = \"190ns\"", "value = \"190\"");
        let error = Profile::parse("mine.toml", &broken).unwrap_err().to_string();
        assert!(error.starts_with(&format!("mine.toml:{line}: submit")), "{error}");
        assert!(error.contains("write a time with its unit"), "{error}");
        let below = text.replace("value = \"190ns\"", "value = -190");
        let error = Profile::parse("mine.toml", &below).unwrap_err().to_string();
        assert!(error.contains("a count from 0 on, or a number with its unit"), "{error}");
        let unknown = text.replace("submit =", "sumbit =");
        let error = Profile::parse("mine.toml", &unknown).unwrap_err().to_string();
        assert!(error.contains("unknown field `sumbit`") && error.contains("`submit`"), "{error}");
        let empty = Profile::parse("mine.toml", "").unwrap_err().to_string();
        assert_eq!(empty, "mine.toml:1: missing field `name`");
        let folder = Profile::load("/").unwrap_err();
        assert_eq!(folder.to_string(), "cannot read the profile \"/\"");
        assert!(std::error::Error::source(&folder).is_some(), "what the system says");
        let unreasoned = text.replacen("reason = ", "reson = ", 1);
        assert!(Profile::parse("mine.toml", &unreasoned).is_err());
        let profile = Profile::load("liquidio3").unwrap();
        assert!(profile.check_node(&profile.view(6, 3, None).unwrap(), NodeId(5)).is_ok());
        let error = profile.check_node(&View::new(6, 3, 1, 25).unwrap(), NodeId(0)).unwrap_err();
        assert!(error.to_string().contains("ask for 24 or fewer"), "{error}");
        let error = Profile::load("liquidio4").unwrap_err().to_string();
        assert!(error.contains(&Profile::list().join(", ")), "{error}");
    }
}
