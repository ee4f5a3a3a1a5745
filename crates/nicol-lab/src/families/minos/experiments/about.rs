//! What the figures of MINOS are.

use super::comparisons::{APPLICATION_NODES, LOGINS, NODES, SCALE_NODES, SCALE_RECORDS, USERS};
use super::load::{self, RECORDS, REQUESTS};
use super::{CLUSTER, SMARTNIC};
use crate::experiments::{About, Extent, Readings};

const SECTION: Readings = Readings::Section("MINOS");
const WORKLOAD: &str = "YCSB: 100,000 records of 1 KB on every node, 100,000 requests of a node, \
                        half writes, zipfian; the paper does not say how many at once";
const ONE_PROFILE: &[&str] = &[SMARTNIC];

/// What the figure called `id` is; `None` if it is none of these.
pub(crate) fn about(id: &str) -> Option<About> {
    let found = match id {
        "minos-fig4" => {
            About { profiles: &[CLUSTER], ..one("IV: where a write's time goes", load::BUSY_CORES) }
        }
        "minos-fig9" => {
            one("VIII-A: by the share of writes, from 20 to 100 %, and reads alone", ALONE)
        }
        "minos-clients" => ycsb("clients of a node, beyond the paper"),
        "minos-fig10" => {
            let mut about = one("VIII-B: 2 to 10 nodes", ALONE);
            about.scale.retain(|line| line.what != "nodes");
            about.scale.push(Extent::same("nodes", format!("{NODES:?}")));
            about
        }
        "minos-fig11" => About {
            paper: "VIII-C: Login of DeathStarBench's social network and media service, 16 nodes \
                    with 500 us between two of them",
            scale: vec![
                Extent::same("nodes", APPLICATION_NODES),
                Extent::of("users", |form| form.of(USERS).to_string()),
                Extent::of("requests of a node", |form| form.of(LOGINS).to_string()),
                Extent::same("clients of a node", format!("{:?}", load::CLIENTS)),
            ],
            left_out: &["what the functions do besides gets and sets, which nobody publishes"],
            ..ycsb("")
        },
        "minos-fig12" => ycsb("VIII-D: writes only, as mechanisms are added to MINOS-B"),
        "minos-fig13" => ycsb("VIII-E: queues of 1 to 5 and 100 entries, and of any number"),
        "minos-fig14" => ycsb("VIII-E: by persist latency, distribution of keys, and records"),
        "minos-scale" => About {
            paper: "not in the paper, where every node holds every record",
            scale: vec![
                Extent::of("nodes", |form| form.of(SCALE_NODES).to_string()),
                Extent::same("records of a node", SCALE_RECORDS),
                Extent::same("clients of a node", ALONE),
            ],
            ..ycsb("")
        },
        _ => return None,
    };
    Some(found)
}

/// Clients of a node where they are not varied. AMB-49
const ALONE: usize = load::CLIENTS[0];

/// A figure with so many clients of a node.
fn one(figure: &'static str, clients: usize) -> About {
    let mut about = ycsb(figure);
    about.scale.retain(|line| line.what != "clients of a node");
    about.scale.push(Extent::same("clients of a node", clients));
    about
}

fn ycsb(figure: &'static str) -> About {
    About {
        paper: WORKLOAD,
        scale: vec![
            Extent::same("what is varied", figure),
            Extent::same("nodes", load::NODES),
            Extent::same("clients of a node", format!("{:?}", load::CLIENTS)),
            Extent::of("records on every node", |form| form.of(RECORDS).to_string()),
            Extent::of("requests of a node", |form| form.of(REQUESTS).to_string()),
        ],
        profiles: ONE_PROFILE,
        readings: SECTION,
        left_out: &["the number of writes of a scope, which is not published: 10 here"],
    }
}
