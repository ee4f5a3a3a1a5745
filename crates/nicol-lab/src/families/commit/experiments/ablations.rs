//! Figure 9 of Xenic: what its mechanisms give, one after another. [Xenic21 5.7]

use anyhow::Result;
use serde_json::json;

use super::benchmarks::{Benchmark, RETWIS, SMALLBANK};
use super::study::{self, Study};
use crate::experiments::{Chart, Context, Experiment, Table, rounded};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "xenic-fig9a",
        family: "commit",
        title: "Retwis: throughput per server as mechanisms are added [Xenic21 fig. 9a]",
        columns: &["variant", "throughput_per_node_per_s"],
        chart: Chart::Bars {
            category: &["variant"],
            series: &[],
            y: "throughput_per_node_per_s",
            inside: None,
        },
        systems: &["xenic"],
        settings: &["combined_ops", "aggregation", "dma_async", "execute_at", "multi_hop"],
        timed: true,
        run: throughput,
    },
    Experiment {
        id: "xenic-fig9b",
        family: "commit",
        title: "Smallbank: median latency as mechanisms are added [Xenic21 fig. 9b]",
        columns: &["variant", "latency_p50_us"],
        chart: Chart::Bars {
            category: &["variant"],
            series: &[],
            y: "latency_p50_us",
            inside: None,
        },
        systems: &["xenic"],
        settings: &["combined_ops", "execute_at", "multi_hop"],
        timed: true,
        run: latency,
    },
];

/// A mechanism: the variant that has it and all before it, and the settings that take it away.
type Mechanism = (&'static str, &'static [&'static str]);

/// [Xenic21 5.7, fig. 9a] A core that waits for each DMA fills no vector.
const THROUGHPUT: [Mechanism; 3] = [
    ("combined_ops", &["combined_ops=off"]),
    ("aggregation", &["aggregation=off"]),
    ("async_dma", &["dma_async=off", "dma_vector=1"]),
];
/// Settings that all variants of figure 9a share: nothing is shipped.
const NO_SHIPPING: [&str; 2] = ["execute_at=host", "multi_hop=off"];

/// [Xenic21 5.7, fig. 9b]
const LATENCY: [Mechanism; 3] = [
    ("combined_ops", &["combined_ops=off"]),
    ("ship_to_nic", &["execute_at=host"]),
    ("multi_hop", &["multi_hop=off"]),
];
/// Clients per node of figure 9b, and how much longer than others its runs are for that.
pub(super) const FEW_CLIENTS: usize = 2;
const FEW_CLIENTS_LENGTH: u64 = 5;

/// The variants: the baseline, which lacks every mechanism, then each with one more. Every one of
/// them also lacks `always`.
fn variants(mechanisms: &[Mechanism], always: &[&'static str]) -> Vec<(String, Vec<String>)> {
    (0..=mechanisms.len())
        .map(|has| {
            let name = match has.checked_sub(1) {
                None => "baseline".to_owned(),
                Some(newest) => format!("+{}", mechanisms[newest].0),
            };
            let lacks = mechanisms[has..].iter().flat_map(|(_, settings)| settings.iter());
            (name, always.iter().chain(lacks).map(|&setting| setting.to_owned()).collect())
        })
        .collect()
}

/// The studies of the variants of Xenic, with their names.
fn studies<'c>(
    context: &'c Context<'_>,
    benchmark: &'static Benchmark,
    variants: Vec<(String, Vec<String>)>,
) -> Result<(Vec<String>, Vec<Study<'c>>)> {
    let (mut names, mut studies) = (Vec::new(), Vec::new());
    for (name, settings) in variants {
        let mut study = Study::new(context, benchmark, "xenic")?;
        study.settings = settings;
        names.push(name);
        studies.push(study);
    }
    Ok((names, studies))
}

fn throughput(context: &Context<'_>) -> Result<Table> {
    let (names, studies) = studies(context, &RETWIS, variants(&THROUGHPUT, &NO_SHIPPING))?;
    let sweeps = Study::each(&studies, Study::saturate)?;
    let mut table = context.table();
    study::assume_sweeps(&mut table, context.options.form, &[&RETWIS]);
    table.assume(
        "all variants",
        NO_SHIPPING.join(", "),
        "the baseline resembles DrTM+H, and shipping is figure 9b's: the last variant is not all of \
         Xenic",
    );
    assume_objects(&mut table);
    table.assume("without async_dma", "dma_vector=1", "a core that waits fills no vector");
    for ((name, study), points) in names.iter().zip(&studies).zip(sweeps) {
        study.tell_hardware(&mut table)?;
        let peak = study::peak(&points);
        table.push_bound(vec![json!(name), rounded(peak.throughput, 0)], &peak.binding);
        points.into_iter().for_each(|point| table.judge(point.violations));
    }
    Ok(table)
}

/// [Xenic21 5.7] "Separate requests to read, lock, and validate objects". AMB-45
fn assume_objects(table: &mut Table) {
    table.assume(
        "without combined_ops",
        "one object per READ, LOCK and VALIDATE",
        "a one-sided verb touches one object",
    );
}

fn latency(context: &Context<'_>) -> Result<Table> {
    let (names, mut studies) = studies(context, &SMALLBANK, variants(&LATENCY, &[]))?;
    studies.iter_mut().for_each(|study| study.length = FEW_CLIENTS_LENGTH);
    let points = Study::each(&studies, |study| study.at(FEW_CLIENTS))?;
    let mut table = context.table();
    study::assume(&mut table, context.options.form, &[&SMALLBANK]);
    assume_objects(&mut table);
    let clients = format!("closed loop, {FEW_CLIENTS} clients per node");
    table.assume("load", clients, "the figure's is not given");
    table.assume(
        "length of runs",
        format!("{FEW_CLIENTS_LENGTH} times the above"),
        "few clients commit few transactions",
    );
    for ((name, study), point) in names.iter().zip(&studies).zip(points) {
        study.tell_hardware(&mut table)?;
        table.push_bound(vec![json!(name), rounded(point.p50, 3)], &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_lacks_one_setting_less_than_the_one_before() {
        let found = variants(&LATENCY, &["local_read=strict"]);
        let found: Vec<_> =
            found.iter().map(|(name, lacks)| (name.as_str(), lacks.join(" "))).collect();
        assert_eq!(
            found,
            [
                (
                    "baseline",
                    "local_read=strict combined_ops=off execute_at=host multi_hop=off".to_owned()
                ),
                ("+combined_ops", "local_read=strict execute_at=host multi_hop=off".to_owned()),
                ("+ship_to_nic", "local_read=strict multi_hop=off".to_owned()),
                ("+multi_hop", "local_read=strict".to_owned()),
            ]
        );
    }

    #[test]
    fn only_the_settings_that_a_figure_names_are_changed() {
        for (experiment, mechanisms, always) in
            [(&ALL[0], &THROUGHPUT, &NO_SHIPPING[..]), (&ALL[1], &LATENCY, &[])]
        {
            for setting in variants(mechanisms, always).into_iter().flat_map(|(_, lacks)| lacks) {
                let (key, _) = setting.split_once('=').unwrap();
                // A vector is a part of asynchronous DMA, and the engines' own.
                assert!(experiment.settings.contains(&key) || key == "dma_vector", "{setting}");
            }
        }
    }
}
