//! Eviction: makes room for transactions that the store has refused since its memory is used up.
//!
//! A refused transaction waits while the front deletes keys that the policy has chosen, and then
//! tries again; each refusal doubles the keys that go. What is deleted is deleted by a transaction:
//! it is logged and replicated, and others learn of it as of any other deletion. If there is
//! nothing to evict, the refused ones are answered as they would be without a policy.
//!
//! Keys are chosen among some that are looked at: of the rows behind random positions of the store,
//! or of those in which this front lets keys expire. Of these the best candidates go.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nicol_core::ids::Key;
use nicol_core::rng;
use nicol_core::serving::{Response, Walked};
use nicol_core::txn::Outcome;

use super::active_expiry::{ActiveExpiry, integers};
use super::lock_table::{LockTable, Waiter};
use super::plan::{Bounds, Kind, Op, PlanBuilder, Planned};
use super::record::Database;
use super::{ATTEMPTS_AT_ONCE, BACK_OFF, BACK_OFF_DOUBLINGS, Open, Stage, Transactions};
use crate::connection::encode::Protocol;
use crate::eviction::policy::{Order, Policy};
use crate::shared::{Shared, count};

/// The place of the eviction among the connections.
pub const EVICTOR: usize = usize::MAX - 4;
/// Rows of one transaction.
const BATCH: usize = 128;
/// Refusals of a transaction after which its wish is doubled no more.
const DOUBLINGS: u32 = 6;
/// Steps of the store that one look takes at most.
const STEPS: usize = 4_096;
/// Transactions one after the other that evict nothing until there seems to be nothing.
const BARREN: u32 = 8;
/// How long that is believed.
const HOPELESS: Duration = Duration::from_millis(100);

/// What is evicted next.
#[derive(Debug)]
pub enum Next {
    /// Nothing: nobody waits, or one is in progress.
    Idle,
    /// The rows of this transaction.
    Evict(Planned),
    /// Nothing, since nothing was found: who waits is to be answered.
    Hopeless,
}

/// The eviction of one front.
#[derive(Debug, Default)]
pub struct Evictor {
    /// The places and connections of the transactions that wait for room.
    starved: Vec<(usize, u64)>,
    /// Rows that shall go for them.
    wanted: usize,
    /// The rows of the transaction in progress.
    evicting: Vec<Key>,
    barren: u32,
    hopeless_until: Option<Instant>,
}

impl Evictor {
    /// Whether it is of use to wait for room.
    pub fn may_help(&self, shared: &Shared) -> bool {
        let hopeless = self.hopeless_until.is_some_and(|until| Instant::now() < until);
        shared.eviction.policy().order.is_some() && !hopeless
    }

    /// A transaction of `writes` rows has been refused for the time of number `attempts`; it waits.
    pub fn starve(&mut self, slot: usize, connection: u64, writes: usize, attempts: u32) {
        let doublings = attempts.saturating_sub(1).min(DOUBLINGS);
        self.wanted = self.wanted.max(writes.max(1) << doublings).min(BATCH);
        self.starved.push((slot, connection));
    }

    /// Those who wait: they try again.
    pub fn take_starved(&mut self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.starved)
    }

    /// The next transaction for those who wait.
    pub fn next(
        &mut self,
        shared: &Shared,
        expiry: &ActiveExpiry,
        locks: &LockTable,
        random: &mut rng::Stream,
    ) -> Next {
        if self.starved.is_empty() || !self.evicting.is_empty() {
            return Next::Idle;
        }
        let (policy, limits) = (shared.eviction.policy(), &shared.config.limits);
        let wanted = self.wanted.clamp(1, limits.transaction_keys);
        let rows = match policy.order {
            Some(order) if self.barren < BARREN => {
                choose(shared, (policy, order), wanted, (expiry, locks), random)
            }
            _ => Vec::new(),
        };
        if rows.is_empty() {
            self.barren = 0;
            self.hopeless_until = Some(Instant::now() + HOPELESS);
            return Next::Hopeless;
        }
        let mut plan = PlanBuilder::new();
        for row in &rows {
            plan.begin(Op::EVICT, true);
            plan.key(*row, b"");
            plan.plain(&[policy.is_volatile.into()]);
        }
        if shared.notices.is_on() {
            plan.tell_events();
        }
        self.evicting = rows;
        let now = shared.unix_ms();
        Next::Evict(plan.finish(
            Kind::Batch,
            Protocol::Resp2,
            Bounds::values(limits.value_bytes),
            &[],
            now,
        ))
    }

    /// The transaction has ended; returns whether it has evicted something.
    pub fn ended(
        &mut self,
        response: &Response,
        shared: &Shared,
        expiry: &mut ActiveExpiry,
    ) -> bool {
        let rows = std::mem::take(&mut self.evicting);
        let keys = match response.outcome {
            Outcome::Committed => integers(&response.output),
            _ => Vec::new(),
        };
        for (row, keys) in rows.iter().zip(&keys) {
            // Without a key that expires it stands among such rows in vain.
            expiry.forget(*row, shared);
            if *keys > 0 {
                shared.eviction.evicted(*row);
            }
        }
        let evicted: i64 = keys.iter().sum();
        count(&shared.counters.evicted_keys, evicted as u64);
        self.barren = if evicted > 0 { 0 } else { self.barren + 1 };
        if evicted > 0 {
            self.wanted = 0;
        }
        evicted > 0
    }
}

impl Transactions {
    /// Has keys evicted for a transaction that the store has refused, and lets it wait; `false`: it
    /// is of no use.
    pub(super) fn waits_for_room(&mut self, slot: usize, failed: &Open) -> bool {
        let Open { connection, ref planned, attempts, begun, .. } = *failed;
        let (backend, limits) = (&self.shared.backend, &self.shared.config.limits);
        let over = attempts >= limits.attempts || begun.elapsed() >= limits.transaction_time;
        let is_full = !backend.is_out_of_room() && backend.is_full();
        if over || !is_full || !self.evictor.may_help(&self.shared) {
            return false;
        }
        count(&self.shared.counters.retries, 1);
        self.evictor.starve(slot, connection, planned.request().writes.len(), attempts);
        let (planned, attempts) = (planned.at(self.shared.unix_ms()), attempts + 1);
        let stage = Stage::BackOff;
        self.open[slot] = Some(Open { connection, planned, attempts, begun, stage });
        self.evict();
        true
    }

    /// Submits the next rows to be evicted, if someone waits and none are in progress.
    fn evict(&mut self) {
        let Self { shared, expiry, locks, random, .. } = self;
        match self.evictor.next(shared, expiry, locks, random) {
            Next::Idle => {}
            Next::Evict(planned) => {
                self.lock(Waiter { slot: EVICTOR, connection: 0, planned });
            }
            // Now they are refused for good.
            Next::Hopeless => self.feed(),
        }
    }

    /// Rows have been evicted, or could not be.
    pub(super) fn evicted(&mut self, response: &Response) {
        match self.evictor.ended(response, &self.shared, &mut self.expiry) {
            true => self.feed(),
            false => self.evict(),
        }
    }

    /// Lets those who wait for room try again.
    fn feed(&mut self) {
        for (slot, connection) in self.evictor.take_starved() {
            let attempts = self.open.get(slot).and_then(Option::as_ref).map_or(0, |o| o.attempts);
            // The memory is free once the hosts have applied the deletion.
            let wait = match attempts.saturating_sub(ATTEMPTS_AT_ONCE) {
                0 => 0,
                more => (BACK_OFF.as_micros() as u64) << more.min(BACK_OFF_DOUBLINGS),
            };
            let at = Instant::now() + Duration::from_micros(wait);
            self.back_offs.push(Reverse((at, slot, connection)));
        }
    }
}

/// The rows that go: `wanted` of them, or fewer.
fn choose(
    shared: &Shared,
    (policy, order): (Policy, Order),
    wanted: usize,
    (expiry, locks): (&ActiveExpiry, &LockTable),
    random: &mut rng::Stream,
) -> Vec<Key> {
    let samples = shared.eviction.samples.load(Ordering::Relaxed) as usize;
    let sampled = wanted * samples;
    // Whoever holds a row here may be the one that waits.
    let is_free = |row: &Key| Database::of(*row).is_some() && !locks.is_held(*row);
    let mut rows: Vec<Key> = match policy.is_volatile {
        true if order == Order::Ttl => expiry.next().filter(is_free).take(wanted).collect(),
        true => expiry.sample(sampled, random).into_iter().filter(is_free).collect(),
        false => Vec::new(),
    };
    if rows.is_empty() {
        // The keys may expire in rows that other fronts know; the transaction tells.
        rows = walk(shared, sampled, is_free, random);
    }
    if matches!(order, Order::Lru | Order::Lfu) {
        rows.sort_by_cached_key(|row| Reverse(shared.eviction.badness(*row, order)));
    }
    // Of few keys no more go than one in so many.
    let most = rows.len().div_ceil(samples).min(wanted);
    rows.truncate(if order == Order::Ttl { wanted } else { most });
    rows
}

/// About `sampled` rows behind random positions of the store, each once.
fn walk(
    shared: &Shared,
    sampled: usize,
    is_free: impl Fn(&Key) -> bool,
    random: &mut rng::Stream,
) -> Vec<Key> {
    let (mut found, mut named) = (BTreeSet::new(), Vec::new());
    let mut rows = Vec::new();
    let mut at = shared.backend.walk_position(random.bits());
    for _ in 0..STEPS {
        let walked = shared.backend.walk(at, &mut named);
        let before = rows.len();
        rows.extend(named.drain(..).filter(&is_free).filter(|row| found.insert(*row)));
        if rows.len() >= sampled {
            break;
        }
        at = match walked {
            Walked::Unable => break,
            _ if rows.len() > before => shared.backend.walk_position(random.bits()),
            // Nothing is here: the next rows are as good as any others.
            Walked::Until(next) => next,
            Walked::End => 0,
        };
    }
    rows
}
