//! What binds: which resource limits the throughput of a run, or why none does.
//!
//! The rule, in this order:
//!
//! 1. A resource binds if on some node it was taken for [`SATURATED`] of the measured time, in the
//!    mean over its parts (such as all NIC cores of that node). Of several the busiest binds.
//! 2. If there is none: a part binds (`one of nic_cores`) that was taken for so much of the time,
//!    while others of the same node were not.
//! 3. If there is none: conflicts limit, where attempts aborted [`CONTENDED`] times a commit or
//!    more.
//! 4. Else throughput is what so many clients with such a latency give: more clients would give
//!    more.
//!
//! It is the busiest node that decides, not the mean of all: work that waits for one node waits.

use nicol_sim::Utilization;
use serde::{Deserialize, Serialize};

/// Of the measured time, what a resource is taken for at least where it binds. With random arrivals
/// what waits for a resource that is taken for nine tenths of the time waits for 4.5 to 9 times as
/// long as it is served, and no more than a ninth more can be had from it.
pub const SATURATED: f64 = 0.9;

/// Aborted attempts to a commit from which on conflicts are said to limit: one attempt in six is in
/// vain, and what clients wait before the next comes on top.
pub const CONTENDED: f64 = 0.2;

/// The text where nothing is saturated.
pub const LATENCY: &str = "nothing: latency and load";
/// The text where nothing is saturated and much is aborted.
pub const CONFLICTS: &str = "nothing: conflicts";

/// The limit of the throughput of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// A resource, such as `nic_cores` or `one of nic_cores`; [`LATENCY`] or [`CONFLICTS`] if none
    /// is saturated.
    pub binds: String,
    /// The busiest resource of all nodes; `None` if none is known.
    pub busiest: Option<Busiest>,
    /// Aborted attempts to a commit, refusals apart.
    pub aborts_per_commit: f64,
}

/// The busiest resource of a run, on its busiest node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Busiest {
    /// Its name, such as `link_out`; `one of nic_cores` if it is a part.
    pub resource: String,
    /// Whose it is, such as `n0`, or a thread.
    pub of: String,
    /// Of the measured time, what it was taken for: 0 to 1.
    pub share: f64,
}

/// A resource of one node, and its share of the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct Resource {
    pub name: String,
    /// Busy fraction of the measured time, 0 to 1, in the mean over its parts; of a thread that of
    /// the time from its start to its end.
    pub utilization: f64,
    /// That of its busiest part, such as one of a node's NIC cores.
    pub busiest: f64,
}

impl Resource {
    /// The resource that the simulator reports as `used`.
    pub fn of(used: &Utilization) -> Self {
        Self { name: used.name.clone(), utilization: used.busy(), busiest: used.busiest() }
    }
}

impl Busiest {
    fn whole(used: &Resource) -> Self {
        let (of, resource) = used.name.split_once('.').unwrap_or((&used.name, "thread"));
        Self { resource: resource.to_owned(), of: of.to_owned(), share: used.utilization }
    }

    fn part(used: &Resource) -> Self {
        let whole = Self::whole(used);
        let resource = format!("one of {}", whole.resource);
        Self { resource, share: used.busiest, ..whole }
    }
}

impl Binding {
    /// The columns at the end of every row of a figure with a timing model.
    pub const COLUMNS: [&'static str; 4] =
        ["binds", "busiest", "busiest_share", "aborts_per_commit"];

    /// The binding of a run whose resources were so busy, and that had so many aborts for each
    /// commit.
    pub fn of(resources: &[Resource], aborts_per_commit: f64) -> Self {
        let most = |of: fn(&Resource) -> Busiest| {
            let each = resources.iter().map(of);
            // Of equals the first.
            each.reduce(|most, one| if one.share > most.share { one } else { most })
        };
        let (whole, part) = (most(Busiest::whole), most(Busiest::part));
        let saturated = |one: &Busiest| one.share >= SATURATED;
        let part = part.filter(|part| saturated(part) && !whole.as_ref().is_some_and(saturated));
        let busiest = part.or(whole);
        let binds = match &busiest {
            Some(busiest) if saturated(busiest) => busiest.resource.clone(),
            _ if aborts_per_commit >= CONTENDED => CONFLICTS.to_owned(),
            _ => LATENCY.to_owned(),
        };
        Self { binds, busiest, aborts_per_commit }
    }

    /// Of a measurement of parts, where nothing is aborted.
    pub fn of_parts(resources: &[Utilization]) -> Self {
        let resources: Vec<Resource> = resources.iter().map(Resource::of).collect();
        Self::of(&resources, 0.0)
    }

    /// Of one operation at a time, which nothing but its latency limits.
    pub fn one_at_a_time() -> Self {
        Self { binds: LATENCY.to_owned(), busiest: None, aborts_per_commit: 0.0 }
    }

    /// In words: what binds, and how busy the busiest resource was.
    pub fn words(&self) -> String {
        let Some(Busiest { resource, of, share }) = &self.busiest else {
            return self.binds.clone();
        };
        let taken = format!("{of} at {:.0} %", share * 100.0);
        if *resource == self.binds {
            format!("{resource} of {taken}")
        } else {
            format!("{}; the busiest is {resource} of {taken}", self.binds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(name: &str, utilization: f64, busiest: f64) -> Resource {
        Resource { name: name.to_owned(), utilization, busiest }
    }

    fn told(resources: &[Resource], aborts: f64) -> (String, String) {
        let binding = Binding::of(resources, aborts);
        let Busiest { resource, of, share } = binding.busiest.unwrap();
        (binding.binds, format!("{of} {resource} {share}"))
    }

    #[test]
    fn the_busiest_node_decides_and_not_the_mean() {
        let uneven = [
            used("n0.nic_cores", 0.5, 0.6),
            used("n1.nic_cores", 0.95, 0.97),
            used("n2.link_out", 0.93, 0.93),
        ];
        let expected = ("nic_cores".to_owned(), "n1 nic_cores 0.95".to_owned());
        assert_eq!(told(&uneven, 3.0), expected, "conflicts or not");
    }

    #[test]
    fn one_part_binds_where_no_resource_does_as_a_whole() {
        let one = [used("n0.host_cores", 0.2, 0.99), used("n0.link_in", 0.6, 0.6)];
        let expected = ("one of host_cores".to_owned(), "n0 one of host_cores 0.99".to_owned());
        assert_eq!(told(&one, 0.0), expected);
        let whole = [used("n0.host_cores", 0.2, 0.99), used("n0.link_in", 0.92, 0.92)];
        assert_eq!(told(&whole, 0.0).0, "link_in", "a whole resource comes first");
    }

    #[test]
    fn where_nothing_is_saturated_aborts_tell_conflicts_from_latency() {
        let idle = [used("n0.link_in", 0.2, 0.2), used("n1.link_in", 0.89, 0.89)];
        let busiest = "n1 link_in 0.89".to_owned();
        assert_eq!(told(&idle, 0.19), (LATENCY.to_owned(), busiest.clone()));
        assert_eq!(told(&idle, 0.2), (CONFLICTS.to_owned(), busiest));
    }
}
