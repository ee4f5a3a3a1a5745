//! What the figures of AlNiCo are.

use super::run::{self, CLIENT_NODES, CLIENTS, CUSTOMERS, ITEMS, RECORDS, TESTBED, WORKERS};
use super::series;
use crate::experiments::{About, Extent, Readings};

const PROFILES: &[&str] = &[TESTBED];
const SECTION: Readings = Readings::Section("AlNiCo (ATC '22)");

/// The description of figure `id`; `None` if it is none of these.
pub(crate) fn about(id: &str) -> Option<About> {
    let found = match id {
        "alnico-fig5a" => tpcc("Figure 5a: TPC-C, 20 warehouses, 20 workers and 2 more"),
        "alnico-fig5b" => tpcc("Figure 5b: TPC-C, 20 warehouses chosen by Zipf 0.99"),
        "alnico-fig5c" => tpcc("Figure 5c: TPC-C, 2 warehouses"),
        "alnico-fig5d" => ycsb("Figure 5d: YCSB-T, 16 keys of 10 million, Zipf 0.99, 5 % writes"),
        "alnico-fig5e" => ycsb("Figure 5e: YCSB-T, 16 keys of 10 million, Zipf 0.99, 50 % writes"),
        "alnico-fig5f" => ycsb("Figure 5f: YCSB-T, 16 keys of 10 million, Zipf 0.99, 95 % writes"),
        "alnico-fig6" => tpcc("Figure 6: latency of New-Order and Delivery, 2 warehouses"),
        "alnico-fig7" => {
            let mut about = ycsb("Figure 7: YCSB-HOT, Zipf 1.2, a hotspot stays for 2 s");
            about.scale.push(Extent::of("a hotspot stays", |form| {
                format!("{} us", series::hotspot(form).0 / 1_000)
            }));
            about
        }
        "alnico-fig8" => tpcc("Figure 8: four engines behind four schedulers, 2 warehouses"),
        "alnico-fig9" => About {
            scale: vec![
                Extent::same("clients", format!("1 of each of {CLIENT_NODES} machines")),
                Extent::same("bytes of a request", "128 to 4096 (C2.04), an RPC that reads a key"),
            ],
            ..ycsb("Figure 9: the latency of an RPC without contention, by its bytes")
        },
        "alnico-fig10" => ycsb("Figure 10: YCSB-T, 50 % writes, by skew from Zipf 0.5 to 1.5"),
        _ => return None,
    };
    Some(found)
}

fn tpcc(paper: &'static str) -> About {
    let mut scale = common(true);
    scale.push(Extent::of("items, customers of a district", |form| {
        format!("{}, {}", form.of(ITEMS), form.of(CUSTOMERS))
    }));
    About { scale, ..of(paper) }
}

fn ycsb(paper: &'static str) -> About {
    let mut scale = common(false);
    scale.push(Extent::of("records", |form| form.of(RECORDS).to_string()));
    About { scale, ..of(paper) }
}

fn of(paper: &'static str) -> About {
    About {
        paper,
        scale: Vec::new(),
        profiles: PROFILES,
        readings: SECTION,
        left_out: &["the length of the published runs, which is not given"],
    }
}

fn common(tpcc: bool) -> Vec<Extent> {
    vec![
        Extent::same("workers", WORKERS),
        Extent::of("clients", |form| {
            format!("{} of each of {CLIENT_NODES} machines", form.of(CLIENTS))
        }),
        Extent::of("measured time", |form| {
            let (warmup, window) = run::times(form, tpcc);
            format!("{} us after {} us", window.0 / 1_000, warmup.0 / 1_000)
        }),
    ]
}
