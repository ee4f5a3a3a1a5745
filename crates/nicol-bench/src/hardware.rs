//! What the nodes of a simulated run stand on: one profile for all, or one for each role or node.

use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use nicol_core::ids::{NodeId, Side};
use nicol_core::names::did_you_mean;
use nicol_core::view::{Halves, NODES_MAX, NodeSpec, Role, View};
use nicol_sim::profile::{NicCores, OneSidedBy};
use nicol_sim::{Profile, checks};

use crate::config::{BenchConfig, THREADS, refused_view};
use crate::refused::refuse;
use crate::system::System;

/// The nodes of a run and their hardware.
#[derive(Clone, Debug)]
pub struct Hardware {
    pub view: View,
    pub(crate) profiles: Vec<Arc<Profile>>,
}

/// The nodes that a part of `--on` names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Nodes {
    Role(Role),
    Range(RangeInclusive<usize>),
}

impl Nodes {
    /// A role, a node's number, or two of them with a dash.
    fn parse(text: &str) -> Result<Self> {
        const ROLES: [Role; 2] = [Role::Server, Role::Client];
        if let Some(role) = ROLES.into_iter().find(|role| role.name() == text) {
            return Ok(Self::Role(role));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self::Range(first..=last)),
            _ => {
                let meant = did_you_mean(text, ROLES.map(Role::name));
                bail!("'{text}' names no nodes{meant}: write server, client, 3 or 0-2")
            }
        }
    }

    fn contain(&self, node: usize, role: Role) -> bool {
        match self {
            Self::Role(named) => *named == role,
            Self::Range(range) => range.contains(&node),
        }
    }
}

fn load(name: &str) -> Result<Arc<Profile>> {
    Ok(Arc::new(Profile::load(name)?))
}

/// The profile of each of these nodes. Errors name the part of it.
fn profiles_of(on: &str, roles: &[Role]) -> Result<Vec<Arc<Profile>>> {
    // In `NAME:section.key=value` a value of one profile for all is changed.
    if on.split_once('=').is_none_or(|(nodes, _)| nodes.contains(':')) {
        let flag = || format!("`on` {on}{}", did_you_mean(on, [THREADS]));
        return Ok(vec![load(on).with_context(flag)?; roles.len()]);
    }
    let mut found: Vec<Option<(&str, Arc<Profile>)>> = vec![None; roles.len()];
    for part in on.split(',').map(str::trim) {
        let flag = || format!("`on`, in '{part}'");
        let Some((nodes, name)) = part.split_once('=') else {
            return Err(anyhow::anyhow!("write NODES=PROFILE").context(flag()));
        };
        let nodes = Nodes::parse(nodes.trim()).with_context(flag)?;
        let profile = load(name.trim()).with_context(flag)?;
        let contained = |&(node, &role): &(usize, &Role)| nodes.contain(node, role);
        let named: Vec<usize> =
            roles.iter().enumerate().filter(contained).map(|(node, _)| node).collect();
        let are_there = match &nodes {
            Nodes::Role(_) => !named.is_empty(),
            Nodes::Range(range) => *range.end() < roles.len(),
        };
        ensure!(are_there, "{}: there are no such nodes among the {}", flag(), roles.len());
        for node in named {
            if let Some((other, _)) = &found[node] {
                bail!("{}: node {node} has its profile from '{other}' already", flag());
            }
            found[node] = Some((part, profile.clone()));
        }
    }
    let given = found.into_iter().enumerate().map(|(node, found)| {
        let role = roles[node].name();
        let (_, profile) = found.with_context(|| {
            let why = format!("node {node}, a {role}, has no profile");
            refuse("on", on, why, format!("add {role}=PROFILE"))
        })?;
        Ok(profile)
    });
    given.collect()
}

/// The roles of the nodes of a run: servers first.
fn roles(config: &BenchConfig) -> Result<Vec<Role>> {
    let (nodes, clients) = (config.nodes, config.client_nodes);
    ensure!(
        (1..=NODES_MAX).contains(&nodes),
        refuse("nodes", nodes, "", format!("give 1 to {NODES_MAX}"))
    );
    let most = NODES_MAX - nodes;
    ensure!(
        clients <= most,
        refuse("client_nodes", clients, "", format!("give 0 to {most} beside {nodes} nodes"))
    );
    let of = |role, count| std::iter::repeat_n(role, count);
    Ok(of(Role::Server, nodes).chain(of(Role::Client, clients)).collect())
}

/// Engines of a side of a node on threads, unless others are asked for.
const LIVE_ENGINES: usize = 1;

/// The nodes of a run on threads.
pub(crate) fn live_view(config: &BenchConfig) -> Result<View> {
    let host_engines = config.host_engines.unwrap_or(LIVE_ENGINES);
    let nic_engines = config.nic_engines.unwrap_or(LIVE_ENGINES);
    let specs = roles(config)?.into_iter().map(|role| NodeSpec { role, host_engines, nic_engines });
    View::of(&specs.collect::<Vec<_>>(), config.replicas).map_err(refused_view)
}

/// The sides of a node that a system which asks for `halves` needs together on threads, where NIC
/// engines execute verbs.
pub(crate) const fn live_halves(halves: Halves) -> Halves {
    if halves.keeps_memory() { halves } else { Halves::Together }
}

/// Host cores of each server: as many as are asked for, or as there are.
pub(crate) fn host_cores(config: &BenchConfig) -> Result<Vec<usize>> {
    match config.host_engines {
        Some(cores) => Ok(vec![cores]),
        None if config.is_live() => Ok(vec![LIVE_ENGINES]),
        None => {
            let servers = profiles_of(&config.on, &roles(config)?)?.into_iter().take(config.nodes);
            Ok(servers.map(|profile| profile.engines(Side::Host)).collect())
        }
    }
}

/// The profile of the first node, a server.
pub(crate) fn first_profile(config: &BenchConfig) -> Result<Arc<Profile>> {
    Ok(profiles_of(&config.on, &roles(config)?)?.swap_remove(0))
}

/// A system that works on NIC cores is flagged where these save no latency. [Xenic21 4.3.4]
pub fn vain_offload(profile: &Arc<Profile>) -> Result<Option<String>> {
    let name = &profile.name;
    Ok(match checks::offload(profile)? {
        None => Some(format!(
            "{name} has no NIC cores: what the system puts there runs on cores of the host"
        )),
        Some(offload) if !offload.saves_latency() => Some(format!(
            "on {name} the NIC saves no latency: it answers in {:.1} us from its own memory and in \
             {:.1} us from the host's, a host RPC takes {:.1} us",
            offload.served_ns / 1e3,
            offload.fetched_ns / 1e3,
            offload.host_rpc_ns / 1e3
        )),
        Some(_) => None,
    })
}

impl Hardware {
    /// The nodes of a simulated run of `system`.
    ///
    /// # Errors
    /// The field, and what to give instead.
    pub fn of(config: &BenchConfig, system: &System) -> Result<Self> {
        let roles = roles(config)?;
        let profiles = profiles_of(&config.on, &roles)?;
        system.ensure_runs_on(roles.iter().copied().zip(&profiles))?;
        // Where host engine i of a node works with host engine i of every other, all have as many.
        let least = profiles.iter().map(|profile| profile.engines(Side::Host)).min();
        let host_engines = config.host_engines.or(least.filter(|_| system.mirrors_engines));
        let mut specs = Vec::with_capacity(roles.len());
        for (&role, profile) in roles.iter().zip(&profiles) {
            let engines = |asked: Option<usize>, side: Side, field: &'static str| {
                let most = profile.engines(side);
                let engines = asked.unwrap_or(most);
                ensure!(
                    engines <= most,
                    refuse(field, engines, "", format!("{} has {most} such cores", profile.name))
                );
                Ok(engines)
            };
            let host_engines = engines(host_engines, Side::Host, "host_engines")?;
            let nic_engines = engines(config.nic_engines, Side::Nic, "nic_engines")?;
            specs.push(NodeSpec { role, host_engines, nic_engines });
        }
        let view = View::of(&specs, config.replicas).map_err(refused_view)?;
        Ok(Self { view, profiles })
    }

    /// The sides of a node that a system which asks for `halves` needs together on this hardware: a
    /// host also needs NIC cores that pass on its frames, or stand in for a card.
    pub(crate) fn halves(&self, halves: Halves) -> Halves {
        let moves_bytes = |profile: &Arc<Profile>| {
            let can = profile.capabilities();
            can.one_sided_by == OneSidedBy::Card && can.nic_cores == NicCores::Host
        };
        let alone = halves != Halves::HostAlone || self.profiles.iter().all(moves_bytes);
        if alone { halves } else { Halves::Together }
    }

    /// The name in reports: the profile's, or the argument if there are several.
    pub(crate) fn name(&self, config: &BenchConfig) -> String {
        let first = &self.profiles[NodeId(0).index()];
        let mixed = self.profiles.iter().any(|profile| profile.name != first.name);
        if mixed { config.on.clone() } else { first.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 4] = [Role::Server, Role::Server, Role::Server, Role::Client];

    fn names(on: &str) -> Result<Vec<String>, String> {
        let found = profiles_of(on, &ROLES).map_err(|error| format!("{error:#}"))?;
        Ok(found.iter().map(|profile| profile.name.clone()).collect())
    }

    #[test]
    fn profiles_are_given_to_all_to_roles_or_to_nodes() {
        let (liquid, cx5) = ("liquidio3", "connectx5");
        assert_eq!(names(liquid).unwrap(), [liquid; 4]);
        assert_eq!(
            names("server=liquidio3,client=connectx5").unwrap(),
            [liquid, liquid, liquid, cx5]
        );
        assert_eq!(
            names("0-1=connectx5, 2=liquidio3,client=connectx5").unwrap(),
            [cx5, cx5, liquid, cx5]
        );
    }

    #[test]
    fn a_changed_value_is_not_taken_for_nodes() {
        let latencies = |on: &str| -> Vec<_> {
            let found = profiles_of(on, &ROLES).unwrap();
            found.iter().map(|profile| profile.link.latency.value.to_nanos_up().0).collect()
        };
        assert_eq!(latencies("liquidio3:link.latency=100us"), [100_000; 4]);
        let mixed = latencies("server=liquidio3,client=connectx5:link.latency=100us");
        assert!(mixed[0] < 100_000 && mixed[3] == 100_000, "{mixed:?}");
    }

    #[test]
    fn errors_name_the_part_and_the_remedy() {
        for (on, words) in [
            ("server=liquidio3", "node 3, a client, has no profile; add client=PROFILE"),
            ("server=liquidio3,sevrer=connectx5", "in 'sevrer=connectx5': 'sevrer' names no nodes"),
            ("server=liquidio3,client=conectx5", "in 'client=conectx5'"),
            (
                "server=liquidio3,2=connectx5",
                "in '2=connectx5': node 2 has its profile from 'server",
            ),
            ("server=liquidio3,client=connectx5,7-9=connectx5", "no such nodes among the 4"),
            ("server=liquidio3,connectx5", "in 'connectx5': write NODES=PROFILE"),
            ("0-9=liquidio3", "no such nodes among the 4"),
            ("2-1=liquidio3", "'2-1' names no nodes"),
            ("thread", "did you mean 'threads'"),
        ] {
            let error = names(on).unwrap_err();
            assert!(error.contains(words), "{on}: {error}");
        }
    }
}
