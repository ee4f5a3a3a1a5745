//! What servers do for clients that have died: AMB-14c.
//!
//! A client that dies between its write checks and its installs leaves PW > C, which nobody else
//! can undo. Every write that it has checked is staged at its server, with what the check has found
//! and how many writes the transaction has. So the servers can tell what the client has decided, or
//! was to decide: it commits if every check has passed, and only then.
//!
//! 1. A server that learns of a client's death waits until no chain of it can arrive any more.
//! 2. It asks the other servers what they hold of that client's transactions. From here on nobody's
//!    answer changes, but for what a server has decided, which it tells instead.
//! 3. A transaction of which as many writes have passed as it has commits: they are installed.
//!    Otherwise it aborts: C is raised as by its client. If a server has died besides, and with it
//!    perhaps writes that had passed, the transaction stays undecided.
//!
//! An item is kept until its transaction is complete, although another one may have replaced it:
//! else a write that was installed could look like one that was never checked
//! ([`Store::take_back`]).
//!
//! [`Store::take_back`]: super::store::Store::take_back

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nicol_core::chain::Chain;
use nicol_core::fabric::{Fabric, FabricError, OneSided, Timeout};
use nicol_core::ids::{EngineId, FreeListKey, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_kit::{Open, count};

use super::chains::{At, Installed, only_word};
use super::layout::Item;
use super::messages::{Of, Staged, StagedWrite, Stock};
use super::node::Node;
use crate::recycling::drain;
use crate::tag::Tag;

/// Interval at which a condition is looked at again.
const POLL: Nanos = Nanos::from_micros(20);
/// Time that a STOCK waits for its answer, and the next one after a refusal.
const STOCK_TIMEOUT: Nanos = Nanos::from_millis(5);
const STOCK_WAIT: Nanos = Nanos::from_micros(500);
/// Wait of a write that was given up for the one before it, if a server has died: that one may stay
/// undecided. Many times what a recovery takes.
pub(super) const UNDECIDED_AFTER: Nanos = Nanos::from_millis(60);

/// Ends the transactions of every node that dies, for ever.
pub(super) async fn end_what_is_left<F: Fabric>(fabric: F, node: Arc<Node>) {
    let changes = fabric.view_changes();
    let mut known = BTreeSet::new();
    loop {
        let change = changes.wait();
        node.lost().learn(fabric.view());
        let lost = fabric.view().node_ids().filter(|&id| node.lost().contain(id));
        for dead in lost.filter(|&dead| known.insert(dead)) {
            let open = Open::begin(&node.open);
            fabric.spawn(end_those_of(fabric.clone(), node.clone(), dead, open));
        }
        change.await;
    }
}

/// Ends the transactions of `dead`.
async fn end_those_of<F: Fabric>(fabric: F, node: Arc<Node>, dead: NodeId, open: Open) {
    drain(&fabric).await;
    node.ended().drained.insert(dead);
    let mine = node.store().staged(|ts| node.is_of(ts, dead));
    if !mine.is_empty() {
        let stock = take_stock(&fabric, &node, dead, &mine).await;
        for write in mine {
            end(&fabric, &node, &write, &stock).await;
        }
    }
    // What it has not reported, of transactions that were complete.
    node.store().scan(&fabric, Nanos::ZERO).await;
    drop(open);
}

/// The reports of servers about the transactions of a node that has died.
#[derive(Default)]
struct Stocks {
    /// Writes that have passed.
    passed: BTreeMap<Tag, u64>,
    /// Transactions with a write that has not.
    failed: BTreeSet<Tag>,
    decided: BTreeMap<Tag, bool>,
    /// Whether every server has told.
    complete: bool,
}

impl Stocks {
    fn add(&mut self, staged: &Staged) {
        for write in &staged.writes {
            *self.passed.entry(write.ts).or_default() += u64::from(write.passed);
            if !write.passed {
                self.failed.insert(write.ts);
            }
        }
        self.decided.extend(staged.decided.iter().copied());
    }

    /// Whether the transaction of `write` commits; `None`: only a server that has died may have
    /// known.
    fn verdict(&self, write: &StagedWrite) -> Option<bool> {
        let all_passed = self.passed.get(&write.ts) == Some(&u64::from(write.writes));
        let failed = self.complete || self.failed.contains(&write.ts);
        let own = if all_passed { Some(true) } else { failed.then_some(false) };
        self.decided.get(&write.ts).copied().or(own)
    }
}

/// Asks every other server what it holds besides `mine`.
async fn take_stock<F: Fabric>(
    fabric: &F,
    node: &Arc<Node>,
    dead: NodeId,
    mine: &[StagedWrite],
) -> Stocks {
    let mut stocks = Stocks { complete: true, ..Stocks::default() };
    stocks.add(&Staged { writes: mine.to_vec(), decided: Vec::new() });
    if !node.config().hooks().asks_others() {
        let believed = mine.iter().filter(|write| !stocks.failed.contains(&write.ts));
        stocks.decided = believed.map(|write| (write.ts, true)).collect();
        return stocks;
    }
    let others: Vec<NodeId> = node.servers().filter(|&server| server != node.id()).collect();
    for server in others {
        loop {
            if node.lost().contain(server) {
                stocks.complete = false;
                break;
            }
            let timeout = Timeout::After(STOCK_TIMEOUT);
            let asked = fabric.call(EngineId::host(server, 0), &Stock(Of::Node(dead)), timeout);
            let answer = asked.await.ok().and_then(|body| Staged::parse(body.as_ref()).ok());
            if let Some(staged) = answer {
                stocks.add(&staged);
                break;
            }
            fabric.sleep_until(fabric.now() + STOCK_WAIT).await;
        }
    }
    stocks
}

/// Ends a staged write of this server.
async fn end<F: Fabric>(fabric: &F, node: &Arc<Node>, write: &StagedWrite, stocks: &Stocks) {
    let Some(commits) = stocks.verdict(write) else { return };
    node.ended().decided.insert(write.ts, commits);
    let Some(slot) = node.store().find(write.key) else { return };
    let view = fabric.view();
    let lives = view.node_ids().map(|id| view.side(id, Side::Host).incarnation).collect();
    let handles = node.store().open(fabric, lives);
    let at = At { config: node.config(), handles: &handles, slot };
    if commits {
        let item = Item::new(write.ts, write.key, None, write.writes);
        let chain = at.install(FreeListKey(0), &item, write.offset);
        let answer = execute(fabric, node, &chain, |reply| at.installed(reply)).await;
        if let Some(Installed::Done { replaced }) = answer {
            let replaced = node.store().replaced(slot, replaced);
            node.store().take_back(fabric, replaced.as_slice());
        }
    } else if let Some((old_pw, _)) = write.raised {
        if !await_c(fabric, node, at, old_pw).await {
            return;
        }
        execute(fabric, node, &at.bump(write.ts), only_word).await;
    }
    count(&node.counts.recovered);
    node.store().complete(fabric, write);
}

/// Waits until C is no earlier than `before`. False if it may never be.
async fn await_c<F: Fabric>(fabric: &F, node: &Node, at: At<'_>, before: Tag) -> bool {
    let until = fabric.now() + UNDECIDED_AFTER;
    loop {
        let c = execute(fabric, node, &at.read_c(), only_word).await;
        if c.is_some_and(|c| Tag(c) >= before) {
            return true;
        }
        if node.has_lost_server() && fabric.now() >= until {
            return false;
        }
        fabric.sleep_until(fabric.now() + POLL).await;
    }
}

/// Sends a chain to this server itself until it is answered; `None` if it is refused.
async fn execute<F: Fabric, T>(
    fabric: &F,
    node: &Node,
    chain: &Chain,
    parse: impl Fn(&[u8]) -> Result<T, FabricError>,
) -> Option<T> {
    loop {
        let done = fabric.one_sided(node.id(), OneSided::Chain(chain)).await;
        match done.and_then(|reply| parse(reply.as_ref())) {
            Ok(done) => return Some(done),
            Err(FabricError::AccessDenied(_) | FabricError::Malformed) => return None,
            Err(_) => fabric.sleep_until(fabric.now() + POLL).await,
        }
    }
}
