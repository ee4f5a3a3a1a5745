//! MINOS: replication on the host and offloaded, each with five persistency models.

mod read_back;
mod settings;
mod trials;

use nicol_core::history::Persistency;
use nicol_minos::{Node, Sabotage};

use crate::families::serving::serve;
use crate::key_value::system;
use crate::system::{Needs, SingleRecords, System};

/// Bytes of the largest record of a store that is served. Each engine keeps 256 of them on their
/// way to a log.
const SERVED_BYTES: usize = 32 << 10;

/// The systems of the family: MINOS-B, MINOS-O, and the five models of each.
pub(crate) static SYSTEMS: &[System] = &[
    minos("minos-b:synch", BASELINE, None),
    minos("minos-b:strict", BASELINE, None),
    minos("minos-b:renf", BASELINE, UNREAD),
    System { harmless: EARLY, ..minos("minos-b:event", BASELINE, LATEST) },
    minos("minos-b:scope", BASELINE, LATEST),
    System { sabotages: with_queues, ..minos("minos-o:synch", OFFLOADED, None) },
    minos("minos-o:strict", OFFLOADED, None),
    minos("minos-o:renf", OFFLOADED, UNREAD),
    System { harmless: EARLY, ..minos("minos-o:event", OFFLOADED, LATEST) },
    minos("minos-o:scope", OFFLOADED, LATEST),
];

/// The planted fault that the model without durability does not notice.
const EARLY: &[(&str, &str)] = &[(
    "acks_before_persist",
    "event acknowledges and validates before it persists, and promises nothing of what a crash takes",
)];

const BASELINE: &str = "MINOS, HPCA '24, section III";
const OFFLOADED: &str = "MINOS, HPCA '24, section V";

/// What a server of a model that acknowledges before it persists may lose. A front ends no scopes.
const UNREAD: Option<&str> =
    Some("a crash may take writes that were acknowledged, but none that a GET has returned");
const LATEST: Option<&str> = Some(
    "a crash may take the latest writes, although they were acknowledged or a GET has returned them",
);

const fn minos(name: &'static str, source: &'static str, may_lose: Option<&'static str>) -> System {
    System {
        sabotages: without_queues,
        replication: "every node holds every record",
        survives: "message faults, partitions, stalls; crashes of hosts, NICs or both of all but one node, \
                   which come back with what the others hold; crashes of everything, as far as the model \
                   keeps it",
        needs: Needs {
            log_device: true,
            coherent: true,
            ..system::<Node>("replicate", name, source).needs
        },
        trials: trials::trials,
        mirrors_engines: true,
        synced_log: true,
        single: Some(SingleRecords { record_bytes: SERVED_BYTES, one_copy: false, may_lose }),
        logs: Some(read_back::UPDATES),
        serve: Ok(serve::<Node>),
        ..system::<Node>("replicate", name, source)
    }
}

/// Every way to break MINOS. Those that concern the queues of MINOS-O are shown in the model that
/// promises all that they keep: weaker ones forgive most of what a NIC alone loses, since what was
/// read is in the memory of hosts by then.
fn with_queues() -> Vec<&'static str> {
    SABOTAGES.iter().map(|(name, _)| *name).collect()
}

/// The ways to break it in every model, in both places.
fn without_queues() -> Vec<&'static str> {
    with_queues().into_iter().filter(|name| !name.contains("queue")).collect()
}

/// Ways to break it on purpose.
const SABOTAGES: [(&str, Sabotage); 13] = [
    ("reads_through_locks", Sabotage::ReadsThroughLocks),
    ("releases_early", Sabotage::ReleasesEarly),
    ("forgets_follower", Sabotage::ForgetsFollower),
    ("applies_obsolete", Sabotage::AppliesObsolete),
    ("skips_spins", Sabotage::SkipsSpins),
    ("acks_before_persist", Sabotage::AcksBeforePersist),
    ("loses_queue", Sabotage::LosesQueue),
    ("loses_queue_with_nic", Sabotage::LosesQueueWithNic),
    ("keeps_volatile_queue", Sabotage::KeepsVolatileQueue),
    ("serves_alone", Sabotage::ServesAlone),
    ("resurrects", Sabotage::Resurrects),
    ("drops_replays", Sabotage::DropsReplays),
    ("replays_as_new", Sabotage::ReplaysAsNew),
];

/// The model and the place that a system's name says: `minos-o:renf`.
fn parts(system: &str) -> (Persistency, bool) {
    let (place, model) = system.split_once(':').unwrap_or((system, ""));
    let named = Persistency::ALL.into_iter().find(|known| known.name() == model);
    let model = named.unwrap_or_else(|| panic!("{system}: the registry names the model"));
    (model, place == "minos-o")
}
