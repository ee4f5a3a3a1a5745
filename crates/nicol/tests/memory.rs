//! What loading takes: generators stream, so that no more is in memory than what is loaded. Each
//! load has a process of its own, whose peak says nothing of another one.

use std::process::Command;

use serde_json::Value;

/// Loads a workload into a system; its bytes, and how many there were at most while it was loaded.
/// `None` where the machine does not say.
fn loaded(workload: &[&str], system: &str) -> Option<(u64, u64)> {
    // One copy of a shard: further ones are made later, when a generator's memory is free again.
    let one = ["--replicas", "1", "--host-engines", "1", "--nic-engines", "1", "--clients", "1"];
    let few = ["--transactions", "3"];
    let output = Command::new(env!("CARGO_BIN_EXE_nicol"))
        .arg("bench")
        .args(workload)
        .args(["--system", system, "--on", "liquidio3", "--format", "json"])
        .args([&one[..], &few].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let memory = report["memory"].as_object()?;
    let bytes = |name: &str| memory[name].as_u64().unwrap();
    Some((bytes("loaded_bytes"), bytes("loading_peak_bytes")))
}

#[test]
fn loading_holds_no_second_copy_of_the_data() {
    for workload in [
        &["smallbank", "--records", "150000"][..],
        &["retwis", "--records", "150000"],
        &["tpcc", "--warehouses", "2", "--items", "10000", "--customers", "400"],
        &["tpcc-no", "--warehouses", "2", "--items", "10000", "--customers", "400"],
    ] {
        for system in ["xenic", "farm"] {
            let Some((loaded, peak)) = loaded(workload, system) else { return };
            assert!(loaded > 24 << 20, "{system}: too little to tell: {loaded} bytes");
            assert!(
                peak * 10 <= loaded * 11,
                "{workload:?} on {system}: {peak} for {loaded} bytes"
            );
        }
    }
}
