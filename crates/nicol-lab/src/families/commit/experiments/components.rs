//! Figures 2 to 4 of Xenic: what the hardware's parts do, measured through the code that protocols
//! use. [Xenic21 3.2, 3.4, 3.5]

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::measure::{
    Action, FULL_VECTOR, batched_writes, dma_latency, dma_rate, round_trip, unbatched_writes,
    verb_writes,
};
use serde_json::json;

use super::VERBS;
use crate::experiments::{Chart, Context, Experiment, Scale, Table, rounded};
use nicol_bench::binding::Binding;
use nicol_bench::refused::refuse;

/// The experiments of this file.
pub(super) static ALL: [Experiment; 4] = [
    Experiment {
        id: "xenic-fig2",
        family: "commit",
        title: "Round-trip latency of remote operations of 256 B [Xenic21 fig. 2]",
        columns: &["source", "operation", "latency_us"],
        chart: Chart::Bars {
            category: &["operation"],
            series: &["source"],
            y: "latency_us",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: latencies,
    },
    Experiment {
        id: "xenic-fig3",
        family: "commit",
        title: "Throughput of remote writes [Xenic21 fig. 3]",
        columns: &["target", "batching", "bytes", "mops"],
        chart: Chart::Lines {
            x: "bytes",
            y: "mops",
            series: &["target", "batching"],
            scale: Scale::LogX,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: writes,
    },
    Experiment {
        id: "xenic-fig4",
        family: "commit",
        title: "DMA reads: throughput of a queue, latency of a vector [Xenic21 fig. 4]",
        columns: DMA_COLUMNS,
        chart: DMA_CHART,
        systems: &[],
        settings: &[],
        timed: true,
        run: |context| dma(context, Action::DmaRead),
    },
    Experiment {
        id: "xenic-fig4-writes",
        family: "commit",
        title: "DMA writes: throughput of a queue, latency of a vector [Xenic21 fig. 4]",
        columns: DMA_COLUMNS,
        chart: DMA_CHART,
        systems: &[],
        settings: &[],
        timed: true,
        run: |context| dma(context, Action::DmaWrite),
    },
];

const DMA_COLUMNS: &[&str] = &["bytes", "vectored", "mops", "submit_ns", "complete_ns"];
const DMA_CHART: Chart =
    Chart::Lines { x: "bytes", y: "mops", series: &["vectored"], scale: Scale::LogX };

/// Payload of figure 2, C1.09.
const PAYLOAD: usize = 256;

/// The on-path SmartNIC's profile, or an error that says why this one cannot take its place.
fn on_path(context: &Context<'_>) -> Result<Arc<Profile>> {
    let profile = Arc::new(Profile::load(super::on_path(context))?);
    ensure!(
        profile.cores.on_path.value && profile.cores.nic_is_separate.value,
        refuse(
            "profile",
            &profile.name,
            "this figure measures an on-path SmartNIC, which it lacks",
            "leave it out, or choose one that has it"
        )
    );
    Ok(profile)
}

fn verbs() -> Result<Arc<Profile>> {
    Profile::load(VERBS).map(Arc::new).context("the profile of the RDMA NIC")
}

/// [Xenic21 3.2]: operations one at a time, from the host and from the NIC, and with verbs.
fn latencies(context: &Context<'_>) -> Result<Table> {
    let (smart, rdma) = (on_path(context)?, verbs()?);
    let operations = [
        ("nop", Action::Echo(Side::Nic)),
        ("read", Action::Read(Side::Host)),
        ("write", Action::Write(Side::Host)),
        ("host_rpc", Action::Echo(Side::Host)),
    ];
    let mut points = Vec::new();
    for (source, profile, side) in
        [("host", &smart, Side::Host), ("nic", &smart, Side::Nic), ("cx5", &rdma, Side::Host)]
    {
        // A fixed-function NIC has no cores to answer a NOP.
        let least = usize::from(source == "cx5");
        points.extend(operations[least..].iter().map(|point| (source, profile, side, *point)));
    }
    let found = context.pool.map(&points, |(_, profile, side, (_, action))| {
        context.pool.run(0, || Ok(round_trip(profile, *action, *side, PAYLOAD)?))
    })?;
    let mut table = context.table();
    table.ran_on(&smart);
    table.ran_on(&rdma);
    table.assume("cx5 nop", "left out", "a fixed-function NIC executes no NOP RPC of its own");
    for ((source, _, _, (operation, _)), ns) in points.iter().zip(found) {
        let measured = vec![json!(source), json!(operation), rounded(ns / 1e3, 3)];
        table.push_bound(measured, &Binding::one_at_a_time());
    }
    Ok(table)
}

/// [Xenic21 3.4]: remote writes of 16 to 256 B to NIC and host memory, and with verbs.
fn writes(context: &Context<'_>) -> Result<Table> {
    const SIZES: [usize; 5] = [16, 32, 64, 128, 256];
    let (smart, rdma) = (on_path(context)?, verbs()?);
    let mut points = Vec::new();
    for (target, batching) in
        [("nic", "off"), ("nic", "on"), ("host", "off"), ("host", "on"), ("cx5", "doorbell")]
    {
        points.extend(SIZES.map(|size| (target, batching, size)));
    }
    let found = context.pool.map(&points, |&(target, batching, size)| {
        let memory = if target == "nic" { Side::Nic } else { Side::Host };
        context.pool.run(0, || {
            let rate = match batching {
                "off" => unbatched_writes(&smart, memory, size),
                "on" => batched_writes(&smart, memory, size),
                _ => verb_writes(&rdma, 1, size),
            };
            let rate = rate?;
            Ok((rate.mops, Binding::of_parts(&rate.resources)))
        })
    })?;
    let mut table = context.table();
    table.ran_on(&smart);
    table.ran_on(&rdma);
    table.assume("writers of unbatched writes", 1, "its packet queue to the NIC binds, C1.12");
    table.assume("writers of batched writes", 5, "one host's PCIe 3.0 x8 would bind, C1.13");
    table.assume("requesters of cx5", 1, "the published rate is that of one requester, AMB-42");
    for ((target, batching, size), (mops, binding)) in points.iter().zip(found) {
        let measured = vec![json!(target), json!(batching), json!(size), rounded(mops, 3)];
        table.push_bound(measured, &binding);
    }
    Ok(table)
}

/// [Xenic21 3.5]: DMAs of 16 to 256 B, one by one and in full vectors.
fn dma(context: &Context<'_>, action: Action) -> Result<Table> {
    const SIZES: [usize; 5] = [16, 32, 64, 128, 256];
    let smart = on_path(context)?;
    let vectors = [1, FULL_VECTOR];
    let points: Vec<_> =
        vectors.iter().flat_map(|vector| SIZES.map(|size| (*vector, size))).collect();
    let found = context.pool.map(&points, |&(vector, size)| {
        context.pool.run(0, || {
            let latency = dma_latency(&smart, action, vector, size)?;
            Ok((dma_rate(&smart, action, vector, size)?, latency))
        })
    })?;
    let mut table = context.table();
    table.ran_on(&smart);
    table.assume("mops", "per DMA queue", "8.7 M/s is a queue's maximum, AMB-25");
    table.assume("sizes", "16 to 256 B", "the figure's sizes are not in its text");
    for ((vector, size), (rate, latency)) in points.iter().zip(found) {
        let measured = vec![
            json!(size),
            json!(*vector > 1),
            rounded(rate.mops, 3),
            rounded(latency.submit_ns, 1),
            rounded(latency.complete_ns, 1),
        ];
        table.push_bound(measured, &Binding::of_parts(&rate.resources));
    }
    Ok(table)
}
