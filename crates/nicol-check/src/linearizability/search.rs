//! The decider for values that repeat and have no versions: a search over the orders in which the
//! operations may have taken effect. (Wing and Gong, 1993; Lowe, 2017)
//!
//! A configuration is the set of operations that have taken effect and the value that they left;
//! each is visited once. A read that may come now and fits the value comes now: no order with it
//! later allows more. So only writes branch, and reads that tell the version or the digest of a
//! write of which only they know it.
//!
//! Of the writes that may come now, those are left out of which another order says the same:
//!
//! - A write of unknown outcome comes only where a read of it may come next: one that nobody reads
//!   before the next write need not happen.
//! - Of several writes of one value one is tried: a certain one, of these the one that ends first.
//! - A write comes at once, before whatever write comes next, if all reads to come that fit it may
//!   come now: they come right behind it, wherever they stood. So puts of values that are all
//!   different do not branch.
//! - Nothing comes while a read to come needs the present value, and no write to come brings it
//!   back.

mod pending;

use std::collections::{BTreeMap, BTreeSet};

use super::Bound;
use super::problem::{Op, Problem, Value};
use pending::Pending;

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Searched {
    /// There is an order.
    Found,
    /// There is none. The ids of the operations that the longest one could not be continued with,
    /// and how many operations it holds.
    Impossible { stuck: Vec<u64>, longest: usize },
    /// The bound on configurations was met.
    Undecided { states: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    /// All certain operations before this one have taken effect.
    base: usize,
    /// Which of those from `base` on have, a bit each.
    window: Vec<u64>,
    /// Which of the unsure writes have.
    unsure: Vec<u64>,
    recovered: bool,
    /// The write that the value is of: certain ones first, then unsure ones; the last is the load.
    value: usize,
    /// The assumed initial value, where it is unknown; `None`: nobody reads it.
    guessed: Option<Value>,
    told: Told,
}

/// What reads have told of the value besides what its writer said: the version that its write may
/// have, what later ones exceed, and its digest. Where no operation tells a version, versions stay
/// as they are at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    least: u64,
    most: u64,
    floor: u64,
    digest: Option<u64>,
}

impl Told {
    const ANY: Self = Self { least: 0, most: u64::MAX, floor: 0, digest: None };

    /// Those of a value of which a read, or the load, has told the version.
    fn of(value: &Value) -> Self {
        match value.version {
            None => Self::ANY,
            Some(floor) if value.is_absent() => Self { most: floor, floor, ..Self::ANY },
            Some(version) => Self { least: version, most: version, floor: version, digest: None },
        }
    }

    /// Those after a write; `None` if its version is too low, or none is left.
    fn after_write(self, value: &Value) -> Option<Self> {
        let least = self.floor.checked_add(1)?;
        match value.version {
            None => Some(Self { least, most: u64::MAX, floor: least, digest: None }),
            Some(version) if version >= least => {
                Some(Self { least: version, most: version, floor: version, digest: None })
            }
            Some(_) => None,
        }
    }

    /// Those after a read of the value; `None` if its version does not fit.
    fn after_read(self, read: &Value) -> Option<Self> {
        let Self { least, most, floor, .. } = self;
        match read.version {
            None => Some(self),
            Some(version) if read.is_absent() => (version >= least).then_some(Self {
                least,
                most: most.min(version),
                floor: floor.max(version),
                ..self
            }),
            Some(version) => (least..=most).contains(&version).then_some(Self {
                least: version,
                most: version,
                floor: floor.max(version),
                ..self
            }),
        }
    }

    /// Those after a read of a value whose writer did not tell its digest; `None` if another read
    /// told another one.
    fn after_digest(self, read: &Value) -> Option<Self> {
        match (self.digest, read.digest) {
            (Some(told), Some(read)) => (told == read).then_some(self),
            (told, read) => Some(Self { digest: told.or(read), ..self }),
        }
    }
}

impl Configuration {
    fn is_done(&self, certain: usize) -> bool {
        certain < self.base || bit(&self.window, certain - self.base)
    }

    fn finish(&mut self, certain: usize) {
        set(&mut self.window, certain - self.base);
        while bit(&self.window, 0) {
            self.base += 1;
            let mut carry = 0;
            for word in self.window.iter_mut().rev() {
                let next = *word & 1;
                *word = *word >> 1 | carry << 63;
                carry = next;
            }
        }
        while self.window.last() == Some(&0) {
            self.window.pop();
        }
    }

    fn count(&self) -> usize {
        self.base + self.window.iter().map(|word| word.count_ones() as usize).sum::<usize>()
    }
}

fn bit(words: &[u64], at: usize) -> bool {
    words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

fn set(words: &mut Vec<u64>, at: usize) {
    if words.len() <= at / 64 {
        words.resize(at / 64 + 1, 0);
    }
    words[at / 64] |= 1 << (at % 64);
}

struct Search<'a> {
    problem: &'a Problem,
    /// Which reads fit which writes.
    pending: Pending,
    /// For each write, the first one of the same value: orders that leave the same value are one.
    same: Vec<usize>,
    /// Does any operation tell a version?
    told: bool,
}

/// Decides `problem`, within `bound`.
pub(crate) fn decide(problem: &Problem, bound: Bound) -> Searched {
    let mut first = BTreeMap::new();
    let writes = problem.certain.iter().chain(&problem.unsure).enumerate();
    let same = writes.map(|(at, op)| *first.entry(op.value).or_insert(at)).collect();
    let told = problem.tells_versions();
    let search = Search { problem, pending: Pending::of(problem), same, told };
    let load = problem.certain.len() + problem.unsure.len();
    let start = |guessed: Option<Value>| Configuration {
        base: 0,
        window: Vec::new(),
        unsure: Vec::new(),
        recovered: problem.recovered.is_none(),
        value: load,
        guessed,
        told: match problem.initial.or(guessed).filter(|_| told) {
            None => Told::ANY,
            Some(value) => Told::of(&value),
        },
    };
    let mut open = vec![start(None)];
    open.extend(guesses(problem).into_iter().map(|guess| start(Some(guess))));
    let mut seen = BTreeSet::new();
    let (mut longest, mut stuck) = (0, Vec::new());
    while let Some(mut configuration) = open.pop() {
        let enabled = search.take_reads(&mut configuration);
        if configuration.base == problem.certain.len() && configuration.recovered {
            return Searched::Found;
        }
        if configuration.count() >= longest {
            longest = configuration.count();
            stuck = enabled.certain.iter().map(|at| problem.certain[*at].id).collect();
        }
        if seen.contains(&configuration) {
            continue;
        }
        if bound.is_met(seen.len()) {
            return Searched::Undecided { states: seen.len() };
        }
        search.branch(&configuration, &enabled, &mut open);
        seen.insert(configuration);
    }
    Searched::Impossible { stuck, longest }
}

/// What the initial value may have been where nobody said: what was read before any write had to
/// be over, or recovered.
fn guesses(problem: &Problem) -> BTreeSet<Value> {
    if problem.initial.is_some() {
        return BTreeSet::new();
    }
    let written = problem.certain.iter().filter(|op| op.writes).map(|op| op.responded).min();
    let early = |invoked| written.is_none_or(|written| invoked <= written);
    let reads = problem.certain.iter().filter(|op| !op.writes && early(op.invoked));
    let recovered = problem.recovered.iter().map(|recovered| recovered.value);
    reads.map(|op| op.value).chain(recovered).collect()
}

/// The operations that may take effect next.
struct Enabled {
    certain: Vec<usize>,
    /// No unsure write that was invoked later may.
    until: u64,
}

impl Search<'_> {
    fn enabled(&self, configuration: &Configuration) -> Enabled {
        let (mut certain, mut until) = (Vec::new(), u64::MAX);
        for (at, op) in self.problem.certain.iter().enumerate().skip(configuration.base) {
            if op.invoked > until {
                break;
            }
            if configuration.is_done(at) {
                continue;
            }
            // The order of the client counts where two of its operations meet at an instant.
            if self.problem.previous[at].is_none_or(|before| configuration.is_done(before)) {
                certain.push(at);
            }
            until = until.min(op.responded);
        }
        Enabled { certain, until }
    }

    /// The value that `configuration` has, if anybody knows.
    fn value(&self, configuration: &Configuration) -> Option<Value> {
        let Problem { certain, unsure, initial, .. } = self.problem;
        let at = configuration.value;
        match at.checked_sub(certain.len()) {
            None => Some(certain[at].value),
            Some(at) if at < unsure.len() => Some(unsure[at].value),
            Some(_) => initial.or(configuration.guessed),
        }
    }

    /// The configuration after `read`, if the value that `configuration` has fits it.
    fn fits(&self, configuration: &Configuration, read: &Value) -> Option<Told> {
        let value = self.value(configuration).filter(|value| value.may_be_version(read))?;
        let told = match self.told {
            true => configuration.told.after_read(read)?,
            false => configuration.told,
        };
        if value.digest.is_none() { told.after_digest(read) } else { Some(told) }
    }

    /// Lets every read come that may come now and tells nothing new. Returns what may come after
    /// them.
    fn take_reads(&self, configuration: &mut Configuration) -> Enabled {
        loop {
            let enabled = self.enabled(configuration);
            let mut taken = false;
            for &at in &enabled.certain {
                let op = &self.problem.certain[at];
                if op.writes {
                    continue;
                }
                if self.fits(configuration, &op.value) == Some(configuration.told) {
                    configuration.finish(at);
                    taken = true;
                }
            }
            if self.recover(configuration) == Some(configuration.told) {
                configuration.recovered = true;
                taken = true;
            }
            if !taken {
                return enabled;
            }
        }
    }

    /// What is told after the recovered state, a read that comes once what it follows has taken
    /// effect: if it may come now, and has not.
    fn recover(&self, configuration: &Configuration) -> Option<Told> {
        let recovered = self.problem.recovered.as_ref().filter(|_| !configuration.recovered)?;
        let due = recovered.after.iter().all(|at| configuration.is_done(*at));
        due.then(|| self.fits(configuration, &recovered.value))?
    }

    fn after_write(&self, from: &Configuration, value: &Value) -> Option<Told> {
        match self.told {
            true => from.told.after_write(value),
            false => Some(Told { digest: None, ..from.told }),
        }
    }

    fn branch(&self, from: &Configuration, enabled: &Enabled, open: &mut Vec<Configuration>) {
        let certain = &self.problem.certain;
        // Reads of a value that is known whole have been taken: only a write can come next.
        let is_known = self.value(from).is_some_and(|value| value.is_exact());
        if !self.told && is_known {
            if self.is_needed(from) {
                return;
            }
            if let Some(at) = self.serves_all(from, enabled) {
                open.push(self.after(from, at));
                return;
            }
        }
        if !self.is_needed(from) {
            self.branch_to_unsure(from, enabled, open);
            for at in self.writes(from, enabled) {
                let Some(told) = self.after_write(from, &certain[at].value) else { continue };
                let mut next = Configuration { told, value: self.same[at], ..from.clone() };
                next.finish(at);
                open.push(next);
            }
        }
        for &at in enabled.certain.iter().filter(|at| !certain[**at].writes) {
            let Some(told) = self.fits(from, &certain[at].value) else { continue };
            let mut next = Configuration { told, ..from.clone() };
            next.finish(at);
            open.push(next);
        }
        if let Some(told) = self.recover(from) {
            open.push(Configuration { told, recovered: true, ..from.clone() });
        }
    }

    /// Branches to the unsure writes of which a read may come next, one of each value.
    fn branch_to_unsure(
        &self,
        from: &Configuration,
        enabled: &Enabled,
        open: &mut Vec<Configuration>,
    ) {
        let Problem { certain, unsure, recovered, .. } = self.problem;
        let of_certain = enabled.certain.iter().filter(|at| certain[**at].writes);
        let mut tried: BTreeSet<usize> = of_certain.map(|at| self.same[*at]).collect();
        let reads = enabled.certain.iter().map(|at| &certain[*at]).filter(|op| !op.writes);
        let mut reads: Vec<_> = reads.map(|op| op.value).collect();
        reads.extend(recovered.iter().filter(|_| !from.recovered).map(|found| found.value));
        for (at, op) in unsure.iter().enumerate() {
            if op.invoked > enabled.until {
                break;
            }
            let is_read = || reads.iter().any(|read| op.value.may_be_version(read));
            let value = self.same[certain.len() + at];
            if !self.may_come(from, enabled, at) || !is_read() || !tried.insert(value) {
                continue;
            }
            let Some(told) = self.after_write(from, &op.value) else { continue };
            let mut next = Configuration { told, value, ..from.clone() };
            set(&mut next.unsure, at);
            open.push(next);
        }
    }

    /// The certain writes to branch to; the one that ends first is the last one, and tried first.
    fn writes(&self, from: &Configuration, enabled: &Enabled) -> Vec<usize> {
        let certain = &self.problem.certain;
        let writes = || enabled.certain.iter().copied().filter(|at| certain[*at].writes);
        let mut ends = BTreeMap::<usize, u64>::new();
        for at in writes() {
            let first = ends.entry(self.same[at]).or_insert(u64::MAX);
            *first = (*first).min(certain[at].responded);
        }
        // Exchanged with one of its value that ends first, a write comes before nothing that it has
        // to precede: all that lies between was invoked before the other one ended.
        let is_later = |at: usize| {
            let ends = ends[&self.same[at]];
            from.recovered
                && ends < certain[at].responded
                && self.pending.next_of_client(at).is_none_or(|next| certain[next].invoked > ends)
        };
        let mut writes: Vec<_> = writes().filter(|at| !is_later(*at)).collect();
        writes.sort_by_key(|at| std::cmp::Reverse((certain[*at].responded, *at)));
        writes
    }

    /// A write that may come now, of which every read to come may. One of unknown outcome that
    /// nobody reads need not happen.
    fn serves_all(&self, from: &Configuration, enabled: &Enabled) -> Option<usize> {
        let Problem { certain, unsure, .. } = self.problem;
        let serves = |at: usize, op: &Op| {
            let fitting = self.pending.reads_of(at).iter().copied();
            let to_come = fitting.flat_map(|value| self.pending.to_come(value, from.base));
            let mut to_come = to_come.filter(|read| !from.is_done(*read)).peekable();
            let is_read = to_come.peek().is_some();
            let serves = !is_read
                || op.value.is_exact()
                    && to_come.all(|read| enabled.certain.binary_search(&read).is_ok());
            (is_read, serves && !self.recovers(from, op))
        };
        let mut of_certain = enabled.certain.iter().copied().filter(|at| certain[*at].writes);
        let found = of_certain.find(|at| serves(*at, &certain[*at]).1);
        found.or_else(|| {
            let until = unsure.partition_point(|op| op.invoked <= enabled.until);
            let mut all = (0..until).map(|at| (at, certain.len() + at));
            let found = all.find(|(at, number)| {
                self.may_come(from, enabled, *at) && serves(*number, &unsure[*at]) == (true, true)
            });
            found.map(|(_, number)| number)
        })
    }

    /// The configuration after the write `at` where versions are not told.
    fn after(&self, from: &Configuration, at: usize) -> Configuration {
        let mut next = from.clone();
        match at.checked_sub(self.problem.certain.len()) {
            None => next.finish(at),
            Some(unsure) => set(&mut next.unsure, unsure),
        }
        next.value = self.same[at];
        next.told.digest = None;
        next
    }

    /// May this unsure write, invoked early enough, come now?
    fn may_come(&self, from: &Configuration, enabled: &Enabled, unsure: usize) -> bool {
        let op = &self.problem.unsure[unsure];
        let comes_after_its_client = |before: &usize| {
            Problem::precedes(&self.problem.certain[*before], op) && !from.is_done(*before)
        };
        !bit(&from.unsure, unsure)
            && (!op.after_recovery || from.recovered)
            && !enabled.certain.iter().any(comes_after_its_client)
    }

    /// Does the recovered state, still to come, fit what `write` writes?
    fn recovers(&self, from: &Configuration, write: &Op) -> bool {
        let recovered = self.problem.recovered.as_ref().filter(|_| !from.recovered);
        recovered.is_some_and(|recovered| write.value.may_be_version(&recovered.value))
    }

    /// Does a read to come need the present value, which no write to come brings back in time?
    fn is_needed(&self, from: &Configuration) -> bool {
        let Problem { certain, unsure, .. } = self.problem;
        if from.value == certain.len() + unsure.len() {
            return false;
        }
        self.pending.reads_of(from.value).iter().any(|value| {
            let writes = self.pending.writes_of(*value);
            let (sure, others) = writes.split_at(writes.partition_point(|at| *at < certain.len()));
            let sure = &sure[sure.partition_point(|at| *at < from.base)..];
            let sure = sure.iter().find(|at| !from.is_done(**at)).map(|at| certain[*at].invoked);
            let others = others.iter().map(|at| at - certain.len());
            let other = { others }.find(|at| !bit(&from.unsure, *at)).map(|at| unsure[at].invoked);
            let again = sure.into_iter().chain(other).min();
            let mut to_come = self.pending.to_come(*value, from.base);
            to_come.any(|read| {
                !from.is_done(read) && again.is_none_or(|again| certain[read].responded < again)
            })
        })
    }
}
