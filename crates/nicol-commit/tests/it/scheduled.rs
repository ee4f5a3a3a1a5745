//! Xenic behind a scheduler that is broken on purpose.

use nicol_commit::xenic::{Node, XenicConfig};
use nicol_schedule::{Kind, Sabotage, ScheduleConfig};

use crate::cluster::{RUN, Ran, Run, run};
use crate::xenic::{config, smallbank};

/// A run in which a NIC core schedules, or what stands before it loses requests.
fn scheduled(sabotage: Sabotage) -> Ran {
    let workload = smallbank(500);
    let alnico = ScheduleConfig::published(Kind::Alnico);
    let schedule = ScheduleConfig { fpga: false, sabotage, ..alnico };
    let config = XenicConfig { schedule: Some(schedule), ..config(&workload, 8) };
    run::<Node>(&Run { transactions: 240, ..RUN }, &config, workload, 1)
}

#[test]
fn a_scheduler_that_is_broken_on_purpose_loses_requests_before_xenic_too() {
    let whole = scheduled(Sabotage::None);
    assert!(whole.held(), "{:#?} {:#?}", whole.anomalies, whole.wrong);
    assert_eq!((whole.counts.unknown, whole.counts.issued), (0, 240));
    // Vectors come of aborts, and none are published before a request is let through. Within a node
    // nothing is sent again.
    let lost = scheduled(Sabotage::DropsBeforeVectors);
    assert_eq!(lost.counts.committed, 0);
    assert_eq!(lost.wrong.first().map(String::as_str), Some("24 clients are stuck"));
}
