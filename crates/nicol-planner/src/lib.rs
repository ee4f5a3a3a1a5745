//! The planner of paths: from a description of alternatives to their bounds, their ranks and how to
//! combine them. [OffPath23 4.2]
//!
//! Step 1 is the description ([`Description`]); step 2 ranks by its criteria, from bounds in closed
//! form (`demand`) or the simulator (`simulate`); step 3 combines greedily until a resource is
//! exhausted (`solve`), and says what the best mix would be where that is more.
#![forbid(unsafe_code)]

mod advice;
mod capacity;
mod demand;
mod description;
mod grounds;
mod picture;
mod report;
mod simulate;
mod solve;

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

pub use advice::{Advice, Evidence, Gain};
pub use demand::Resource;
pub use description::{Alternative, Criterion, Description, Kept, Step, Way, Wrong};
pub use grounds::{Effect, Ground};
pub use picture::picture;
pub use report::Report;
pub use simulate::{Arrival, Simulated, run as simulate};

use demand::{Demand, Hardware};
use nicol_sim::Profile;
use solve::Programme;

/// The plan of one alternative: its bound, what binds, and what a request takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub name: String,
    /// Requests a second at most, in millions, if it takes all of them.
    pub mops: f64,
    pub binds: Resource,
    /// Time of one request alone, in microseconds.
    pub latency_us: f64,
    /// Host cores that its most requests keep busy.
    pub host_cores: f64,
    /// Bytes on the network of a request, both ways.
    pub network_bytes: f64,
    /// The simulator's rate and latency, if it was asked.
    pub simulated: Option<(f64, f64)>,
}

/// A mix of alternatives: the rate of each, and what they take together.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Requests a second of each, in millions, in the order of the description.
    pub mops: Vec<f64>,
    /// Host cores that they keep busy.
    pub host_cores: f64,
    /// Bytes on the network of a request, both ways, on the mean.
    pub network_bytes: f64,
    /// Time of a request alone, in microseconds, on the mean.
    pub latency_us: f64,
    /// The share of each resource that is taken, the most first; what takes nothing is left out.
    pub taken: Vec<(Resource, f64)>,
    /// The simulator's rates when it is offered these shares, if it was asked.
    pub simulated: Option<Vec<f64>>,
}

impl Mix {
    /// Requests a second of all, in millions.
    pub fn total(&self) -> f64 {
        self.mops.iter().sum()
    }
}

/// A load from which on another alternative answers sooner.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The alternative that is faster below.
    pub from: String,
    /// The one that is faster above.
    pub to: String,
    /// Requests a second of the first, in millions.
    pub mops: f64,
    /// Requests of the first that are under way then: what a client can count.
    pub under_way: f64,
}

/// A plan: ranked alternatives, the greedy and the best mix, switch points, advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub description: Description,
    /// By alternative, in the order of the description.
    pub candidates: Vec<Candidate>,
    /// Their places in the description, the best first.
    pub ranked: Vec<usize>,
    /// Those whose data the SoC's memory does not hold beside that of better ones, in that order:
    /// no part of the greedy mix.
    pub left_out: Vec<usize>,
    /// The greedy mix, which takes the alternatives in that order.
    pub greedy: Mix,
    /// The mix with the greatest rate; of corners of the programme within a percent of it, the best
    /// by the criteria.
    pub best: Mix,
    /// Whether the greedy mix gives as much as the best, to a percent.
    pub greedy_is_best: bool,
    /// Loads from which on the next of the recommended alternatives answers sooner. [OffPath23 5.2]
    pub switches: Vec<Switch>,
    /// The study's advices that apply, each with its evidence.
    pub advice: Vec<Advice>,
}

impl Plan {
    /// The mix that is recommended: the guideline's, by the criteria first, and then each
    /// alternative as far as resources are left. [OffPath23 4.2] The best by rate alone stands
    /// beside it.
    pub const fn recommended(&self) -> &Mix {
        &self.greedy
    }

    /// The alternatives that the recommended mix may have, the best first.
    pub fn built(&self) -> Vec<usize> {
        self.ranked.iter().copied().filter(|at| !self.left_out.contains(at)).collect()
    }

    /// Where the best mix gives more than the recommended one: the resource that the recommended
    /// one exhausts, and what 1 % more of it would cost the alternative that takes it first.
    pub fn regret(&self) -> Option<Regret> {
        if self.greedy_is_best {
            return None;
        }
        let (exhausted, _) = *self.greedy.taken.first()?;
        let first = self.ranked.iter().find(|at| self.greedy.mops[**at] > 0.0)?;
        let more = self.best.total() / self.greedy.total() - 1.0;
        Some(Regret { exhausted, first: self.candidates[*first].name.clone(), more })
    }
}

/// The loss of rate from following the criteria.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    /// The resource that the recommended mix exhausts.
    pub exhausted: Resource,
    /// The alternative that takes it first.
    pub first: String,
    /// The part by which the best mix gives more.
    pub more: f64,
}

/// Rates that differ by less than this are equal, and other criteria decide.
const WORTH: f64 = 1.01;
/// Share of what it could take alone, and of all requests, below which an alternative takes no part
/// in a mix: what the solver's rounding leaves.
const PART: [f64; 2] = [1e-9, 1e-6];

/// Plans `description`: in closed form, and with the simulator if `simulated`.
///
/// # Errors
/// A profile that does not exist, whose card's inside is not described, or that has no SoC where an
/// alternative takes one; alternatives whose data in the SoC's memory leaves no others that take
/// all requests.
pub fn plan(description: &Description, simulated: bool) -> Result<Plan> {
    let profile = Arc::new(Profile::load(&description.hardware)?);
    let client = Arc::new(Profile::load(&description.clients)?);
    ensure!(
        client.verbs.present.value,
        "clients = {:?}: machines that ask need a card with verbs, such as connectx4",
        description.clients
    );
    let (demands, programme) = closed_form(description, &profile, &client).with_context(|| {
        let why = match profile.card {
            Some(_) => "it has no SoC; choose bluefield2 or a profile like it",
            None => description::NO_INSIDE,
        };
        format!("hardware = {:?}: {why}", description.hardware)
    })?;
    let ask = |arrival: &Arrival| simulate(&profile, &client, description, arrival);
    let mut candidates = Vec::new();
    for (at, demand) in demands.iter().enumerate() {
        let name = &description.alternatives[at].name;
        let mut one = candidate(name, demand, programme.alone(at));
        if simulated {
            let (peak, alone) = (ask(&Arrival::Saturated(at))?, ask(&Arrival::Alone(at))?);
            one.simulated = Some((peak.mops[at], alone.latency_us[at]));
        }
        candidates.push(one);
    }
    let ranked = rank(&candidates, &description.criteria);
    let mix = |mut rates: Vec<f64>, asked: bool| -> Result<Mix> {
        let [alone, of_all] = PART.map(|part| part / 1e6);
        let all = rates.iter().sum::<f64>() * 1e6;
        for (rate, one) in rates.iter_mut().zip(&candidates) {
            if *rate < one.mops * alone && *rate < all * of_all {
                *rate = 0.0;
            }
        }
        let mops: Vec<f64> = rates.iter().map(|rate| rate * 1e6).collect();
        let part = rates.iter().filter(|rate| **rate > 0.0).count();
        let simulated =
            if asked && part > 1 { Some(ask(&Arrival::Mixed(mops.clone()))?.mops) } else { None };
        Ok(mixed(&candidates, &demands, mops, taken(&programme, &rates), simulated))
    };
    let (built, left_out) = capacity::built(description, &ranked, profile.cores.nic_memory.value)?;
    let greedy = programme.greedy(&built);
    let best = capacity::subsets(description, profile.cores.nic_memory.value)
        .map(|built| best(&programme.among(&built), &candidates, description))
        .max_by(|one, other| one.iter().sum::<f64>().total_cmp(&other.iter().sum()))
        .unwrap_or_else(|| greedy.clone());
    let greedy_is_best = best.iter().sum::<f64>() < greedy.iter().sum::<f64>() * WORTH;
    let greedy = mix(greedy, simulated)?;
    let best = mix(best, simulated && !greedy_is_best)?;
    let switches = switches(&candidates, &ranked, &greedy);
    let advice = advice::advise(description, &profile, &client, &greedy);
    Ok(Plan {
        description: description.clone(),
        candidates,
        ranked,
        left_out,
        greedy,
        best,
        greedy_is_best,
        switches,
        advice,
    })
}

/// The demand of each alternative, and their rates together as a programme; `None` if the card of
/// `profile` is not described, or has no SoC that an alternative takes.
fn closed_form(
    description: &Description,
    profile: &Profile,
    client: &Profile,
) -> Option<(Vec<Demand>, Programme)> {
    let hardware = Hardware::new(profile, client, description)?;
    let demands: Vec<Demand> =
        description.alternatives.iter().map(|one| hardware.demand(one)).collect();
    let programme = Programme {
        takes: demands.iter().map(|demand| demand.takes.to_vec()).collect(),
        capacity: Resource::ALL.map(|resource| hardware.capacity(resource, description)).to_vec(),
        share_max: description.alternatives.iter().map(|one| one.share_max).collect(),
    };
    Some((demands, programme))
}

/// An alternative that takes `demand` and is bound by a resource at a rate.
fn candidate(name: &str, demand: &Demand, (rate, binds): (f64, usize)) -> Candidate {
    Candidate {
        name: name.to_owned(),
        // A demand is in picoseconds of a request.
        mops: rate * 1e6,
        binds: Resource::ALL[binds],
        latency_us: demand.latency / 1e6,
        host_cores: rate * demand.of(Resource::HostCores),
        network_bytes: demand.network_bytes,
        simulated: None,
    }
}

/// The cost of a request of `candidate` by `criterion`: less is better.
fn cost(candidate: &Candidate, criterion: Criterion) -> f64 {
    match criterion {
        Criterion::Throughput => 1.0 / candidate.mops,
        Criterion::Latency => candidate.latency_us,
        // Of hosts, what a request costs; nothing counts as a little, so that a percent means
        // something.
        Criterion::HostCpu => candidate.host_cores / candidate.mops + 1e-6,
        Criterion::Network => candidate.network_bytes + 1.0,
    }
}

/// Places of candidates, the best first: by the first criterion in which two differ by a percent;
/// what is equal in all of them goes by host cores, of which the fewer are better.
fn rank(candidates: &[Candidate], criteria: &[Criterion]) -> Vec<usize> {
    // Steps of a percent make an order of what is equal within one.
    let step = |cost: f64| (cost.ln() * 100.0).round() as i64;
    let key = |at: &usize| -> Vec<i64> {
        let criteria = criteria.iter().chain([&Criterion::HostCpu]);
        criteria.map(|criterion| step(cost(&candidates[*at], *criterion))).collect()
    };
    let mut ranked: Vec<usize> = (0..candidates.len()).collect();
    ranked.sort_by_key(key);
    ranked
}

/// The rates with the greatest sum; of those that differ by less than a percent, those that cost
/// the least by the criteria other than throughput.
///
/// Cost is weighed against rate more and more, as long as no more than a percent is lost.
fn best(programme: &Programme, candidates: &[Candidate], description: &Description) -> Vec<f64> {
    // From next to nothing up to a cost that outweighs any rate, doubled from turn to turn.
    const FIRST: f64 = 1.0 / 256.0;
    const TURNS: usize = 16;
    let mut costs = vec![0.0; candidates.len()];
    let others = description.criteria.iter().filter(|one| **one != Criterion::Throughput);
    // A criterion decides where those before it do not.
    for (criterion, weight) in others.zip([1.0, 1e-2, 1e-4]) {
        let of: Vec<f64> = candidates.iter().map(|one| cost(one, *criterion)).collect();
        let most = of.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        costs.iter_mut().zip(of).for_each(|(sum, cost)| *sum += weight * cost / most);
    }
    let mut best = programme.best(&vec![1.0; candidates.len()]);
    let greatest: f64 = best.iter().sum();
    for turn in 0..TURNS {
        let weight = FIRST * (1_u64 << turn) as f64;
        let worth: Vec<f64> = costs.iter().map(|cost| 1.0 - weight * cost).collect();
        let cheaper = programme.best(&worth);
        if cheaper.iter().sum::<f64>() * WORTH < greatest {
            break;
        }
        best = cheaper;
    }
    best
}

/// The mix in which each alternative has its rate of `mops`.
fn mixed(
    candidates: &[Candidate],
    demands: &[Demand],
    mops: Vec<f64>,
    taken: Vec<(Resource, f64)>,
    simulated: Option<Vec<f64>>,
) -> Mix {
    let total = mops.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let sum = |of: &dyn Fn(usize) -> f64| -> f64 {
        mops.iter().enumerate().map(|(at, mops)| mops * of(at)).sum()
    };
    Mix {
        host_cores: sum(&|at| demands[at].of(Resource::HostCores) / 1e6),
        network_bytes: sum(&|at| demands[at].network_bytes) / total,
        latency_us: sum(&|at| candidates[at].latency_us) / total,
        mops,
        taken,
        simulated,
    }
}

/// The loads at which queueing makes an alternative of `mix` slower than the next one is alone.
///
/// The resource that binds is a queue with random arrivals and one server of its whole rate
/// (M/M/1): at a share r of that rate a request waits r / (1 - r) times its service.
fn switches(candidates: &[Candidate], ranked: &[usize], mix: &Mix) -> Vec<Switch> {
    let mut used: Vec<usize> = ranked.iter().copied().filter(|at| mix.mops[*at] > 0.0).collect();
    used.sort_by(|a, b| candidates[*a].latency_us.total_cmp(&candidates[*b].latency_us));
    let pairs = used.windows(2).map(|pair| {
        let (first, next) = (&candidates[pair[0]], &candidates[pair[1]]);
        let (service, later) = (1.0 / first.mops, next.latency_us - first.latency_us);
        let share = later / (later + service);
        let mops = first.mops * share;
        // By Little's law: at the switch point a request takes as long as one of the next.
        let under_way = mops * next.latency_us;
        Switch { from: first.name.clone(), to: next.name.clone(), mops, under_way }
    });
    // With less than one under way nobody can tell, and the two answer about as soon.
    pairs.filter(|switch| switch.under_way >= 1.0).collect()
}

fn taken(programme: &Programme, rates: &[f64]) -> Vec<(Resource, f64)> {
    let mut taken = Vec::new();
    for (at, resource) in Resource::ALL.into_iter().enumerate() {
        let used: f64 =
            rates.iter().zip(&programme.takes).map(|(rate, takes)| rate * takes[at]).sum();
        let share = used / programme.capacity[at];
        if share > 0.0 {
            taken.push((resource, share));
        }
    }
    taken.sort_by(|a, b| b.1.total_cmp(&a.1));
    taken
}

#[cfg(test)]
mod tests;
