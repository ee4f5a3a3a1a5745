//! What the figures of PRISM are.

use super::closed_loop::{self, CLIENTS};
use super::{load, registers, transactions};
use crate::experiments::{About, Extent, Form, Readings};

const SECTION: Readings = Readings::Section("PRISM (SOSP '21)");
const SWITCHED: &[&str] = &[super::SWITCHED];
const EXECUTORS: &[&str] = &[super::SWITCHED, "bluefield1-25g"];
const MICRO: &[&str] = &[super::DIRECT, "bluefield1-25g"];
const KEYS: &str = "8 million keys of 8 B with values of 512 B, accesses uniform, closed-loop \
                    clients on up to 11 machines, one server of 16 cores";
const BLOCKS: &str = "3 servers, 8 million blocks of 512 B, half writes";
const TRANSACTIONS: &str = "YCSB-T: short read-modify-write transactions on one shard of 8 million \
                            objects of 512 B";
const NO_SCALE: &str = "8 million objects: every simulated server holds a copy of each";
const BEYOND: &[&str] = &[NO_SCALE, "the paper compares these executors in figures 1 and 2 only"];

/// The description of figure `id`; `None` if it is none of these.
pub(crate) fn about(id: &str) -> Option<About> {
    let (figure, executors) = match id.strip_suffix("-executors") {
        Some(figure) => (figure, true),
        None => (id, false),
    };
    let mut about = match figure {
        "prism-fig1" => micro("Figure 1: each primitive on 512 B, one at a time, without a switch"),
        "prism-fig2" => micro("Figure 2: an indirect READ of 512 B over three networks"),
        "prism-fig3" | "prism-fig4" => keys(KEYS),
        "prism-fig6" => blocks(Extent::of("clients", |form| form.of(registers::CLIENTS).words())),
        "prism-fig7" => {
            let clients = registers::CLIENTS_OF_FIGURE_7;
            blocks(Extent::same("clients", format!("{clients}, as published")))
        }
        "prism-fig9" => objects(Extent::of("clients", |form| form.of(CLIENTS).words()), "uniform"),
        "prism-fig10" => objects(
            Extent::of("clients", |form| form.of(transactions::CLIENTS_AT_PEAK).words()),
            "Zipf 0 to 0.99",
        ),
        _ => return None,
    };
    if executors {
        about.profiles = EXECUTORS;
        about.left_out = BEYOND;
    }
    Some(about)
}

fn micro(paper: &'static str) -> About {
    About {
        paper,
        scale: vec![Extent::same("load", "one operation at a time")],
        profiles: MICRO,
        readings: Readings::These(&["AMB-09", "AMB-31"]),
        left_out: &["an indirect READ or an ALLOCATE by verbs, which have neither"],
    }
}

fn keys(paper: &'static str) -> About {
    About {
        paper,
        scale: vec![
            Extent::of("records", |form| form.of(closed_loop::RECORDS).to_string()),
            Extent::same("bytes of a value", closed_loop::VALUE_BYTES),
            Extent::of("clients", |form| form.of(CLIENTS).words()),
            time(closed_loop::measured),
        ],
        profiles: SWITCHED,
        readings: SECTION,
        left_out: &[NO_SCALE],
    }
}

fn blocks(clients: Extent) -> About {
    About {
        paper: BLOCKS,
        scale: vec![
            Extent::of("blocks", |form| form.of(registers::BLOCKS.objects).to_string()),
            clients,
            time(load::measured),
        ],
        profiles: SWITCHED,
        readings: SECTION,
        left_out: &[NO_SCALE],
    }
}

fn objects(clients: Extent, accesses: &'static str) -> About {
    let keys = keys(TRANSACTIONS);
    let mut scale = keys.scale;
    scale.retain(|line| line.what != "clients");
    scale.extend([clients, Extent::same("accesses", accesses)]);
    About { scale, ..about_of(TRANSACTIONS) }
}

fn about_of(paper: &'static str) -> About {
    About { left_out: &[NO_SCALE, "how many objects a transaction has: one here"], ..keys(paper) }
}

fn time(least: fn(Form) -> String) -> Extent {
    Extent::of("measured time", least)
}
