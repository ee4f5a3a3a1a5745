//! The workloads of the families of single operations, at a scale.

use anyhow::{Result, bail, ensure};
use nicol_core::key_value::Offered;
use nicol_core::view::NODES_MAX;
use nicol_workload::key_value::{KeyValueWorkload, Login, asked_by};
use nicol_workload::ycsb::{KEY_BYTES, KeyForm};

use crate::refused::refuse;
use crate::workloads::{VALUE_BYTES, WorkloadSpec};

/// The workloads that these families run.
const NAMES: [&str; 4] = ["ycsb", "churn", "login-social", "login-media"];

/// Users per node by default.
const USERS: u64 = 1_000;
/// Records of churn per node by default.
const CHURN_ROWS: u64 = 64;

/// Checks that a system which offers these operations, on values of so many bytes at most, can run
/// this workload. Errors: why not.
pub(super) fn accepts(
    spec: &WorkloadSpec,
    offered: Offered,
    value_bytes_max: u32,
) -> Result<(), String> {
    let Some(value_bytes_max) = beside_key(spec, value_bytes_max) else {
        let why =
            format!("it holds values of {value_bytes_max} bytes, and a key takes {KEY_BYTES}");
        return Err(refuse("key_form", "bytes", why, "leave it out").to_string());
    };
    if let Some(bytes) = spec.value_bytes.filter(|bytes| *bytes > value_bytes_max) {
        let remedy = format!("it holds values of {value_bytes_max} at most");
        return Err(refuse("value_bytes", bytes, "", remedy).to_string());
    }
    let asked = match spec.name.as_str() {
        "ycsb" => {
            let mix = spec.mix.unwrap_or_default();
            if mix.scans() && spec.key_form == Some(KeyForm::Bytes) {
                let remedy = "leave it out, or give another `mix`";
                return Err(refuse("key_form", "bytes", "hashed keys cannot be scanned", remedy)
                    .to_string());
            }
            asked_by(mix, spec.key_form.unwrap_or_default())
        }
        "churn" => Offered { inserts: true, deletes: true, ..Offered::default() },
        "login-social" | "login-media" => Offered::default(),
        _ => {
            let known = NAMES.join(", ");
            return Err(format!("its clients run single operations: choose one of {known}"));
        }
    };
    let mix = if spec.name == "ycsb" {
        format!("`mix` {}: ", spec.mix.unwrap_or_default().name())
    } else {
        String::new()
    };
    if asked.sparse && !offered.sparse {
        let why = "its records are numbered blocks";
        return Err(refuse("key_form", "bytes", why, "leave it out").to_string());
    }
    for (asks, offers, what) in [
        (asked.scans, offered.scans, "scans"),
        (asked.inserts, offered.inserts, "inserts records"),
        (asked.deletes, offered.deletes, "deletes records"),
    ] {
        if asks && !offers {
            return Err(format!("{mix}it {what}, and the system does not offer that"));
        }
    }
    Ok(())
}

/// Takes values that a system can hold, of so many bytes at most, where no size was given.
pub(super) fn fit(spec: &mut WorkloadSpec, value_bytes_max: u32) {
    if spec.name != "churn" {
        let most = beside_key(spec, value_bytes_max).unwrap_or(value_bytes_max);
        spec.value_bytes.get_or_insert(VALUE_BYTES.min(most));
    }
}

/// Bytes that a value has at most, where a byte-string key stands beside it; `None` if too few for
/// any.
fn beside_key(spec: &WorkloadSpec, value_bytes_max: u32) -> Option<u32> {
    match spec.key_form {
        Some(KeyForm::Bytes) => {
            value_bytes_max.checked_sub(KEY_BYTES as u32).filter(|bytes| *bytes >= 8)
        }
        _ => Some(value_bytes_max),
    }
}

/// Builds a workload for `nodes` nodes. Errors name the field and the remedy.
pub(super) fn build(
    spec: &WorkloadSpec,
    nodes: usize,
    value_bytes_max: u32,
) -> Result<KeyValueWorkload> {
    ensure!(
        (1..=NODES_MAX).contains(&nodes),
        refuse("nodes", nodes, "", format!("give 1 to {NODES_MAX}"))
    );
    let nodes = nodes as u16;
    spec.refuse_foreign()?;
    match spec.name.as_str() {
        "ycsb" => {
            let ycsb = spec.ycsb(nodes, value_bytes_max)?;
            let insertions = spec.insertions(&ycsb);
            let workload = KeyValueWorkload::ycsb(ycsb, nodes, insertions);
            let workload = workload.with_content(spec.content.unwrap_or_default());
            if let Some([one, other]) = workload.collision() {
                let why = format!("the keys of records {one} and {other} have the same hash");
                bail!(refuse("key_form", "bytes", why, "give fewer `records`"));
            }
            Ok(workload)
        }
        "churn" => {
            let rows = spec.records.unwrap_or(CHURN_ROWS) * u64::from(nodes);
            ensure!(
                (1..=1 << 32).contains(&rows),
                refuse("records", "", "", "give 1 to 2^32 in the cluster")
            );
            Ok(KeyValueWorkload::churn(rows, nodes))
        }
        "login-social" | "login-media" => {
            let service = if spec.name == "login-social" { Login::Social } else { Login::Media };
            let users = spec.records.unwrap_or(USERS) * u64::from(nodes);
            ensure!(
                (1..=1 << 30).contains(&users),
                refuse("records", "", "", "give 1 to 2^30 users in the cluster")
            );
            let bytes = spec.value_bytes.unwrap_or(VALUE_BYTES);
            ensure!(
                (8..=1_024).contains(&bytes),
                refuse("value_bytes", bytes, "", "give 8 to 1024")
            );
            Ok(KeyValueWorkload::logins(service, users, nodes, bytes as usize))
        }
        other => bail!("unknown workload '{other}': choose one of {}", NAMES.join(", ")),
    }
}
