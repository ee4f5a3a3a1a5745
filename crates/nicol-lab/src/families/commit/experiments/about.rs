//! What the figures of Xenic are.

use nicol_core::units::Nanos;

use super::benchmarks::{
    Benchmark, NODES, REPLICAS, RETWIS, SMALLBANK, TPCC, TPCC_384, TPCC_NEW_ORDER,
    TPCC_NEW_ORDER_FEWER_ITEMS,
};
use super::{ablations, lookups, recovery, study, threads};
use crate::experiments::{About, Extent, Form, Readings};

const SECTION: Readings = Readings::Section("Xenic (SOSP '21)");
const BOTH: &[&str] = &["liquidio3", "connectx5"];
const SMART: &[&str] = &["liquidio3"];
const SWEEP: &str = "Threads are counted up until throughput is less than 95 % of the peak";

/// The description of figure `id`; `None` if it is none of these.
pub(crate) fn about(id: &str) -> Option<About> {
    let found = match id {
        "xenic-table2" => About {
            paper: "Table 2: a table of 8 million keys, 90 % full, lookups of random keys",
            scale: vec![Extent::of("keys", |form| lookups::keys(form).to_string())],
            profiles: &[],
            readings: Readings::These(&["AMB-01", "AMB-02", "AMB-03", "AMB-04", "AMB-46"]),
            left_out: &["bytes of a slot as in the paper, which it does not give"],
        },
        "xenic-fig2" => parts(
            "Figure 2: one operation of 256 B at a time, from a host and from the NIC, and verbs",
            "one operation at a time",
            BOTH,
            &["AMB-47"],
            &["a NOP over verbs: a fixed-function NIC executes none"],
        ),
        "xenic-fig3" => parts(
            "Figure 3: writes of 16 to 256 B to memory of a remote NIC and host, one by one and \
             batched, and by verbs with doorbell batches",
            "16 or 64 writes under way on each of 16 or 24 cores, 256 of one requester by verbs",
            BOTH,
            &["AMB-25", "AMB-42"],
            &[],
        ),
        "xenic-fig4" | "xenic-fig4-writes" => parts(
            "Figure 4: DMA reads and writes of 8 NIC cores, one by one and in vectors of 15",
            "60 requests under way on each of 8 NIC cores; for the latency one vector",
            SMART,
            &["AMB-25"],
            &["sizes beyond 16 to 256 B: those of the figure are not in its text"],
        ),
        "xenic-fig8a" => sweep("5.2: New-Order alone, 72 warehouses a server", &TPCC_NEW_ORDER),
        "xenic-fig8b" => sweep("5.3: TPC-C's mix, 72 warehouses a server", &TPCC),
        "xenic-50g" => sweep("5.3: TPC-C's mix, 384 warehouses, one 50 Gb/s link", &TPCC_384),
        "xenic-fig8c" => {
            sweep("5.4: Retwis, 1 million keys of 64 B a server, Zipf 0.5, half reads", &RETWIS)
        }
        "xenic-fig8d" => {
            sweep("5.5: Smallbank, 2.4 million accounts a server, 90 % of them on 4 %", &SMALLBANK)
        }
        "xenic-table3" => About {
            paper: "5.6: the fewest threads that keep 95 % of the peak, of three benchmarks; a NIC \
                    thread counts 0.31 of a host thread",
            scale: [vec![Extent::of("benchmarks", threads::words)]]
                .into_iter()
                .chain([&TPCC_NEW_ORDER_FEWER_ITEMS, &RETWIS, &SMALLBANK].map(scale))
                .flatten()
                .collect(),
            ..sweep("", &SMALLBANK)
        },
        "xenic-fig9a" => About {
            profiles: SMART,
            left_out: &["shipping to NICs, which is figure 9b's"],
            ..sweep("5.7: Retwis at the peak, as mechanisms are added", &RETWIS)
        },
        "xenic-fig9b" => {
            let mut about = sweep("5.7: the median of Smallbank at low load", &SMALLBANK);
            about.scale.retain(|line| line.what != study::LOAD);
            about.scale.push(Extent::same(study::LOAD, ablations::FEW_CLIENTS));
            About { profiles: SMART, ..about }
        }
        "recovery" | "recovery-throughput" => losses(),
        _ => return None,
    };
    Some(found)
}

fn parts(
    paper: &'static str,
    load: &'static str,
    profiles: &'static [&'static str],
    readings: &'static [&'static str],
    left_out: &'static [&'static str],
) -> About {
    let scale = vec![Extent::same("load", load)];
    About { paper, scale, profiles, readings: Readings::These(readings), left_out }
}

fn sweep(paper: &'static str, benchmark: &'static Benchmark) -> About {
    let mut lines = scale(benchmark);
    lines.push(Extent::same("nodes", format!("{NODES}, {REPLICAS} copies of each shard")));
    lines.push(Extent::of(study::LOAD, |form| benchmark.ladder(form).words()));
    lines.push(Extent::same("the paper's load", SWEEP));
    let left_out = &["the paper's number of threads at each point, which it does not give"];
    About { paper, scale: lines, profiles: BOTH, readings: SECTION, left_out }
}

/// The loss of nodes.
fn losses() -> About {
    let ms = |at: Nanos| format!("{} ms", at.0 / 1_000_000);
    About {
        paper: "nothing: no paper of these systems measures a failure; 4.2.1 takes FaRM's recovery \
                over in a paragraph",
        scale: vec![
            Extent::same(SMALLBANK.name, SMALLBANK.scale_words(Form::Quick)),
            Extent::same("nodes", format!("{NODES}, {REPLICAS} copies of each shard")),
            Extent::of(study::LOAD, |form| form.of(recovery::CLIENTS).to_string()),
            Extent::of("measured time", |form| {
                let (lost, ends) = (recovery::LOST_AT, form.of(recovery::ENDS_AT));
                format!("{}; nodes are lost after {}", ms(ends), ms(lost))
            }),
        ],
        profiles: BOTH,
        readings: Readings::These(&["AMB-35", "AMB-50"]),
        left_out: &[
            "copies made anew: a shard has one backup less from then on",
            "nodes that come back",
        ],
    }
}

fn scale(benchmark: &'static Benchmark) -> Vec<Extent> {
    vec![
        Extent::of(benchmark.name, |form| benchmark.scale_words(form)),
        Extent::of("measured time", |form| {
            let (warmup, window) = benchmark.windows(form);
            format!("{} us after {} us", window.0 / 1_000, warmup.0 / 1_000)
        }),
    ]
}
