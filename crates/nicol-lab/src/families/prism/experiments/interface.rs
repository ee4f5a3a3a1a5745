//! Figures 1 and 2 of PRISM: the primitives one by one, and an indirect READ over slower networks.
//! [PRISM21 4.3]

use std::sync::Arc;

use anyhow::{Result, ensure};
use nicol_core::ids::Side;
use nicol_sim::Profile;
use nicol_sim::checks::measure::{Action, ChainProbe, PRIMITIVES, round_trip};
use serde_json::json;

use super::DIRECT;
use crate::experiments::{Chart, Context, Experiment, Table, rounded};
use nicol_bench::binding::Binding;
use nicol_bench::refused::refuse;

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "prism-fig1",
        family: "prism",
        title: "Latency of primitives on 512 B without a switch [PRISM21 fig. 1]",
        columns: &["operation", "implementation", "latency_us"],
        chart: Chart::Bars {
            category: &["operation"],
            series: &["implementation"],
            y: "latency_us",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: primitives,
    },
    Experiment {
        id: "prism-fig2",
        family: "prism",
        title: "Latency of an indirect READ of 512 B over three networks [PRISM21 fig. 2]",
        columns: &["network", "implementation", "latency_us"],
        chart: Chart::Bars {
            category: &["network"],
            series: &["implementation"],
            y: "latency_us",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: networks,
    },
];

/// Bytes of every value but a CAS's.
const VALUE: usize = 512;
/// Bytes of a pointer.
const POINTER: usize = 8;

/// The executor of chains, and its profile: host cores, the card, the card's cores.
const IMPLEMENTATIONS: [(&str, &str, &str); 3] = [
    ("prism-software", DIRECT, "verbs.chains=false"),
    ("prism-asic", DIRECT, "verbs.chains=true"),
    ("prism-bluefield", "bluefield1-25g", "verbs.chains=false"),
];

/// C3.07: what a network adds to a round trip, and half of it.
const NETWORKS: [(&str, &str); 3] =
    [("rack", "300ns"), ("cluster", "1500ns"), ("datacenter", "12us")];

/// The testbed with plain verbs, unless the options name another.
fn verbs(context: &Context<'_>, changes: &str) -> Result<Arc<Profile>> {
    let name = context.options.profile.as_deref().unwrap_or(DIRECT);
    let profile = Profile::load(&format!("{name}{changes}"))?;
    let has_both = profile.verbs.present.value && profile.verbs.chains.is_some();
    ensure!(
        has_both,
        refuse(
            "profile",
            name,
            "this figure compares verbs with chains",
            format!("choose one whose verbs.chains says who executes these, such as {DIRECT}")
        )
    );
    Ok(Arc::new(profile))
}

/// The profile of an implementation.
fn prism(context: &Context<'_>, base: &str, changes: &str) -> Result<Arc<Profile>> {
    let base = match context.options.profile.as_deref() {
        Some(asked) if base == DIRECT => asked,
        _ => base,
    };
    Ok(Arc::new(Profile::load(&format!("{base}:{changes}"))?))
}

/// [PRISM21 4.3]: each primitive, one at a time.
fn primitives(context: &Context<'_>) -> Result<Table> {
    let mut points = Vec::new();
    let rdma = verbs(context, "")?;
    let verbs_of = |name| !matches!(name, "indirect READ" | "ALLOCATE");
    for (name, primitive, verb) in PRIMITIVES {
        if verbs_of(name) {
            points.push((name, "rdma", rdma.clone(), verb));
        }
        for (implementation, base, changes) in IMPLEMENTATIONS {
            let profile = prism(context, base, changes)?;
            points.push((name, implementation, profile, Action::Chain(primitive)));
        }
    }
    let found = context.pool.map(&points, |(_, _, profile, action)| {
        context.pool.run(0, || Ok(round_trip(profile, *action, Side::Host, VALUE)?))
    })?;
    let mut table = context.table();
    points.iter().for_each(|(_, _, profile, _)| table.ran_on(profile));
    table.assume("load", "one operation at a time", "as a microbenchmark of latency");
    table.assume("an indirect READ or an ALLOCATE of rdma", "none", "verbs have neither");
    for ((operation, implementation, ..), ns) in points.iter().zip(found) {
        let measured = vec![json!(operation), json!(implementation), rounded(ns / 1e3, 3)];
        table.push_bound(measured, &Binding::one_at_a_time());
    }
    Ok(table)
}

/// [PRISM21 4.3]: two READs one after the other, or one indirect READ.
fn networks(context: &Context<'_>) -> Result<Table> {
    let mut points = Vec::new();
    for (network, latency) in NETWORKS {
        let far = format!("link.latency={latency}");
        let rdma = verbs(context, &format!(":{far}"))?;
        points.push((network, "rdma", rdma, None));
        for (implementation, base, changes) in IMPLEMENTATIONS {
            let profile = prism(context, base, &format!("{changes}:{far}"))?;
            let action = Action::Chain(ChainProbe::IndirectRead);
            points.push((network, implementation, profile, Some(action)));
        }
    }
    let found = context.pool.map(&points, |(_, _, profile, action)| {
        let one = |action, size| round_trip(profile, action, Side::Host, size);
        context.pool.run(0, || match action {
            Some(action) => Ok(one(*action, VALUE)?),
            None => {
                let read = Action::Read(Side::Host);
                Ok(one(read, POINTER)? + one(read, VALUE)?)
            }
        })
    })?;
    let mut table = context.table();
    points.iter().for_each(|(_, _, profile, _)| table.ran_on(profile));
    let half = "half of what C3.07 adds to a round trip, each way";
    table.assume("link.latency", "300 ns, 1.5 us, 12 us", half);
    for ((network, implementation, ..), ns) in points.iter().zip(found) {
        let measured = vec![json!(network), json!(implementation), rounded(ns / 1e3, 3)];
        table.push_bound(measured, &Binding::one_at_a_time());
    }
    Ok(table)
}
