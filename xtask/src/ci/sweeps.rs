//! The seed sweeps of the gate.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::finish;

/// Which sweeps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Worlds {
    /// Those by virtual time, which may share the machine.
    Simulated,
    /// Those on real threads.
    Threads,
}

/// The seed sweeps: every system on many seeds of the workloads that are hardest on a protocol,
/// under message faults and under crashes; then every workload on a few.
const SIMULATED: [&[&str]; 14] = [
    &["smallbank", "--on", WORLDS, "--seeds", "0..15"],
    &["churn", "--on", WORLDS, "--seeds", "0..15"],
    &["smallbank", "--on", WORLDS, "--faults", "messages,crashes", "--seeds", "0..20"],
    &["churn", "--on", WORLDS, "--faults", "messages,crashes", "--seeds", "0..20"],
    &["all", "--on", WORLDS, "--seeds", "4..5"],
    // What needs a log device.
    &["churn", "--on", "minos-snic", "--seeds", "0..20", "--system", MINOS],
    &[
        "ycsb",
        "--on",
        "minos-snic",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..20",
        "--system",
        MINOS,
    ],
    // What reads by verbs, on cards that execute them, and on a card with cores beside the path.
    &[
        "ycsb",
        "--on",
        "bluefield2,connectx5-40g",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..30",
        "--system",
        READERS,
    ],
    &[
        "ycsb",
        "--on",
        "bluefield2",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..30",
        "--system",
        OF_SOC,
    ],
    // Clients on nodes of their own.
    &[
        "ycsb",
        "--records",
        "16",
        "--on",
        "connectx5-40g",
        "--client-nodes",
        "2",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..20",
        "--system",
        APART,
    ],
    &[
        "ycsb",
        "--records",
        "16",
        "--on",
        "bluefield2",
        "--client-nodes",
        "2",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..20",
        "--system",
        OF_SOC,
    ],
    &[
        "ycsb",
        "--on",
        "bluefield2",
        "--nodes",
        "3",
        "--replicas",
        "3",
        "--client-nodes",
        "2",
        "--faults",
        "messages,crashes",
        "--seeds",
        "0..5",
        "--system",
        CHAINS,
    ],
    // The cores of one server.
    &[
        "smallbank,churn-ordered",
        "--on",
        "innova2",
        "--set",
        "epoch_us=20",
        "--seeds",
        "0..10",
        "--system",
        "silo,tictoc,cicada,2pl",
    ],
    // Scans where others insert and delete, with leaves that come and go, and stalls between steps.
    &[
        "churn-ordered",
        "--on",
        "innova2",
        "--records",
        "8",
        "--host-engines",
        "4",
        "--scan-first",
        "true",
        "--both-tables",
        "true",
        "--set",
        "epoch_us=1",
        "--set",
        "stall_us=3",
        "--seeds",
        "0..100",
        "--system",
        "silo,tictoc,cicada,2pl",
    ],
];
/// On real threads, where what else the machine does takes time from the runs.
const THREADS: [&[&str]; 2] = [
    &["smallbank", "--on", "threads", "--faults", "messages,crashes", "--seeds", "0..4"],
    &["churn", "--on", "threads", "--seeds", "0..4"],
];

const APART: &str = "drtm-kv:rnic,drtm-kv:a1,pilaf,prism-kv,prism-rs,abdlock";
const CHAINS: &str = "linefs:a1,linefs:a2,linefs:a3,linefs:a2+a3";
const READERS: &str = "drtm-kv:rnic,drtm-kv:a1,pilaf,prism-kv";
/// What needs a SoC beside the path.
const OF_SOC: &str = "drtm-kv:a2,drtm-kv:a3,drtm-kv:a4,drtm-kv:a5,drtm-kv:a4+a5";
const WORLDS: &str = "liquidio3,connectx5";
const MINOS: &str = "minos-b:synch,minos-b:strict,minos-b:renf,minos-b:event,minos-b:scope,\
                     minos-o:synch,minos-o:strict,minos-o:renf,minos-o:event,minos-o:scope";

/// Runs the sweeps with the release build in `nicol`, and fails with the first that does.
pub(super) fn run(nicol: &Path, worlds: Worlds) -> Result<()> {
    let sweeps: &[&[&str]] = match worlds {
        Worlds::Simulated => &SIMULATED,
        Worlds::Threads => &THREADS,
    };
    for sweep in sweeps {
        let mut nicol = Command::new(nicol);
        nicol.arg("sweep").args(*sweep);
        if !sweep.contains(&"--system") {
            nicol.args(["--system", "all"]);
        }
        finish(nicol.stdout(Stdio::null()))?;
    }
    Ok(())
}
