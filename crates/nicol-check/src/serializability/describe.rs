//! Violations in words.

use super::Anomaly;
use super::graph::{EdgeKind, Step};
use super::index::{Hidden, Index, NOBODY, ReadAt};
use super::installs::{Install, Twice};
use super::replay::Missed;

/// The kind of violation that a cycle is.
pub(super) fn anomaly(cycle: &[Step]) -> Anomaly {
    let count = |kind| cycle.iter().filter(|step| step.kind == kind).count();
    if count(EdgeKind::RealTime) > 0 {
        return Anomaly::RealTime;
    }
    if count(EdgeKind::Load) > 0 {
        return Anomaly::WrongPresence;
    }
    if count(EdgeKind::Client) > 0 {
        return Anomaly::ClientOrder;
    }
    if count(EdgeKind::Phantom) + count(EdgeKind::FindsAbsent) > 0 {
        return Anomaly::Phantom;
    }
    match (count(EdgeKind::Anti), count(EdgeKind::Reads)) {
        (0, 0) => Anomaly::DirtyWrite,
        (0, _) => Anomaly::CircularInformation,
        (1, _) => {
            let same_key = cycle.iter().all(|step| step.key == cycle[0].key);
            let overwrites = count(EdgeKind::Overwrites) > 0;
            if same_key && overwrites { Anomaly::LostUpdate } else { Anomaly::ReadSkew }
        }
        _ => Anomaly::WriteSkew,
    }
}

/// A cycle, step by step.
pub(super) fn cycle(index: &Index<'_>, cycle: &[Step]) -> String {
    let steps: Vec<String> = cycle.iter().map(|step| one_step(index, step)).collect();
    steps.join("; ")
}

fn one_step(index: &Index<'_>, step: &Step) -> String {
    let (from, to) = (index.operation(step.from), index.operation(step.to));
    let (first, second) = (name(index, step.from), name(index, step.to));
    let key = || index.name(step.key);
    match step.kind {
        EdgeKind::Overwrites => {
            format!("{first} installed key {}, then {second} overwrote it", key())
        }
        EdgeKind::Reads => format!("{second} read key {} from {first}", key()),
        EdgeKind::Anti => format!("{first} read key {} before {second} installed it", key()),
        EdgeKind::FindsAbsent => {
            format!("{second} scanned over key {} after {first} had deleted it", key())
        }
        EdgeKind::Phantom => {
            format!("{first} scanned over key {} before {second} inserted it", key())
        }
        EdgeKind::Client => format!("client {} issued {first} before {second}", from.client),
        EdgeKind::Load => format!("{first} came before {second}"),
        EdgeKind::RealTime => format!(
            "{first} ended at {} before {second} began at {}",
            from.responded.unwrap_or_default(),
            to.invoked
        ),
    }
}

/// The operation that made an install, in words.
fn writer(index: &Index<'_>, install: &Install) -> String {
    match install.writer {
        NOBODY => "the initial load".to_owned(),
        writer => name(index, writer),
    }
}

/// An operation, or a load that may have happened, in words.
fn name(index: &Index<'_>, node: u32) -> String {
    match index.is_load(node) {
        true => "the initial load".to_owned(),
        false => format!("operation {}", index.id(node)),
    }
}

pub(super) fn twice(index: &Index<'_>, twice: &Twice) -> String {
    let Twice { one, other } = twice;
    let (key, version) = (index.name(one.key), one.version);
    let (one, other) = (writer(index, one), writer(index, other));
    format!("{one} and {other} both installed version {version} of key {key}")
}

/// The key and the version that an operation read.
fn seen(index: &Index<'_>, read: &ReadAt) -> String {
    let (id, key) = (index.id(read.node), index.name(read.key));
    let version = read.version.unwrap_or_default();
    if read.present {
        format!("operation {id} read version {version} of key {key}")
    } else {
        format!("operation {id} read no record of key {key} at version {version}")
    }
}

pub(super) fn presence(index: &Index<'_>, read: &ReadAt, there: &Install) -> String {
    let (seen, writer) = (seen(index, read), writer(index, there));
    let what = if there.deleted { "deleted" } else { "installed" };
    format!("{seen}, although {writer} {what} it at version {}", there.version)
}

pub(super) fn own_read(index: &Index<'_>, read: &ReadAt) -> String {
    format!("{}, which it wrote itself, or a version above that", seen(index, read))
}

pub(super) fn low_install(index: &Index<'_>, install: &Install) -> String {
    let (writer, key, version) = (writer(index, install), index.name(install.key), install.version);
    format!("{writer} installed version {version} of key {key}, which is 0 or below the loaded one")
}

pub(super) fn low_read(index: &Index<'_>, read: &ReadAt) -> String {
    format!("{}, which no record has", seen(index, read))
}

/// A value that is not what was written.
pub(super) fn value(index: &Index<'_>, read: &ReadAt, install: &Install) -> String {
    format!("{} with another value than {} wrote", seen(index, read), writer(index, install))
}

/// A value that is not what operation `by` read.
pub(super) fn values(index: &Index<'_>, read: &ReadAt, by: u32) -> String {
    format!("{} with another value than operation {} did", seen(index, read), index.id(by))
}

/// A version that nobody installed.
pub(super) fn nobody(index: &Index<'_>, read: &ReadAt) -> (Anomaly, String) {
    let seen = seen(index, read);
    let version = read.version.unwrap_or_default();
    let at = index.hidden.partition_point(|one| (one.key, one.version) < (read.key, version));
    let hidden = index.hidden.get(at).filter(|one| (one.key, one.version) == (read.key, version));
    match hidden {
        Some(Hidden { operation, aborted: true, .. }) => {
            let id = index.operations[*operation as usize].id;
            (Anomaly::AbortedRead, format!("{seen}, which only the aborted operation {id} wrote"))
        }
        Some(Hidden { operation, aborted: false, .. }) => {
            let id = index.operations[*operation as usize].id;
            let what = format!("{seen}, which operation {id} replaced before it committed");
            (Anomaly::IntermediateRead, what)
        }
        None => {
            let later = index.writes.iter().find(|write| {
                index.nodes[write.node as usize].unknown
                    && !index.is_load(write.node)
                    && write.key == read.key
                    && write.version == Some(version)
            });
            match later {
                Some(write) => {
                    let id = index.id(write.node);
                    let what =
                        format!("{seen}, which only operation {id} wrote, which began later");
                    (Anomaly::RealTime, what)
                }
                None => (Anomaly::UnknownVersion, format!("{seen}, which nobody installed")),
            }
        }
    }
}

pub(super) fn missed(index: &Index<'_>, missed: &Missed) -> String {
    let (id, key) = (index.id(missed.node), index.name(missed.key));
    let version = missed.version;
    format!(
        "operation {id} scanned a range without finding key {key}, of which version {version} was \
         there all the time"
    )
}
