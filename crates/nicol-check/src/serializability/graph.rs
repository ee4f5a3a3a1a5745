//! The serialization graph: its edges, an order that agrees with them, and cycles where there is
//! none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Why one node comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EdgeKind {
    /// It installed a version that the other replaced (ww).
    Overwrites,
    /// The other read what it installed (wr).
    Reads,
    /// It read a version that the other replaced (rw).
    Anti,
    /// The other found no record where it had deleted one (a predicate's wr).
    FindsAbsent,
    /// It found no record where the other inserted one (a predicate's rw).
    Phantom,
    /// Both are of one client, which issued it first.
    Client,
    /// It ended before the other began.
    RealTime,
    /// It may have loaded a record, before all operations.
    Load,
}

/// An edge; `key` is 0 where there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) key: u32,
    pub(super) kind: EdgeKind,
}

/// One step of a cycle between operations.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: EdgeKind,
    pub(super) key: u32,
    /// The decisions that the step rests on, besides those that its ends rest on.
    pub(super) levels: [u32; 2],
}

/// Nodes `0..operations` are operations, those behind are instants of time.
pub(super) struct Graph<'a> {
    operations: usize,
    nodes: usize,
    certain: &'a [Edge],
    /// Those that rest on decisions, and which.
    assumed: &'a [(Edge, [u32; 2])],
    /// Where each node's edges begin in `out`.
    starts: Vec<u32>,
    /// Positions in `certain`, and behind those in `assumed`.
    out: Vec<u32>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(
        operations: usize,
        nodes: usize,
        certain: &'a [Edge],
        assumed: &'a [(Edge, [u32; 2])],
    ) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        let all = || certain.iter().chain(assumed.iter().map(|(edge, _)| edge));
        all().for_each(|edge| starts[edge.from as usize + 1] += 1);
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut out = vec![0u32; certain.len() + assumed.len()];
        for (index, edge) in all().enumerate() {
            let slot = &mut next[edge.from as usize];
            out[*slot as usize] = index as u32;
            *slot += 1;
        }
        Self { operations, nodes, certain, assumed, starts, out }
    }

    fn edge(&self, index: u32) -> &Edge {
        let index = index as usize;
        match index.checked_sub(self.certain.len()) {
            None => &self.certain[index],
            Some(index) => &self.assumed[index].0,
        }
    }

    fn levels(&self, index: u32) -> [u32; 2] {
        match (index as usize).checked_sub(self.certain.len()) {
            None => [0; 2],
            Some(index) => self.assumed[index].1,
        }
    }

    fn out(&self, node: u32) -> &[u32] {
        &self.out[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }

    /// The operations in an order that agrees with every edge, the earlier of two (by `time`) first
    /// where either would do; shorter than their number if there is a cycle.
    pub(super) fn order(&self, time: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut incoming = vec![0u32; self.nodes];
        let all = self.certain.iter().chain(self.assumed.iter().map(|(edge, _)| edge));
        all.for_each(|edge| incoming[edge.to as usize] += 1);
        let is_operation = |node: u32| (node as usize) < self.operations;
        // An instant is passed as soon as it can be.
        let due = |node: u32| if is_operation(node) { time(node) } else { 0 };
        let mut ready: BinaryHeap<Reverse<(u64, u32)>> = (0..self.nodes as u32)
            .filter(|&node| incoming[node as usize] == 0)
            .map(|node| Reverse((due(node), node)))
            .collect();
        let mut order = Vec::with_capacity(self.operations);
        while let Some(Reverse((_, node))) = ready.pop() {
            if is_operation(node) {
                order.push(node);
            }
            for &index in self.out(node) {
                let to = self.edge(index).to;
                incoming[to as usize] -= 1;
                if incoming[to as usize] == 0 {
                    ready.push(Reverse((due(to), to)));
                }
            }
        }
        order
    }

    /// A short cycle from each strongly connected component that has one.
    pub(super) fn cycles(&self) -> Vec<Vec<Step>> {
        let component = self.components();
        let mut sizes = vec![0u32; self.nodes];
        component.iter().for_each(|&number| sizes[number as usize] += 1);
        let mut seen = vec![false; self.nodes];
        let mut cycles = Vec::new();
        for node in 0..self.operations {
            let number = component[node] as usize;
            if sizes[number] > 1 && !seen[number] {
                seen[number] = true;
                cycles.push(self.cycle_through(node as u32, &component));
            }
        }
        cycles
    }

    /// The strongly connected component of each node (Tarjan's algorithm without recursion).
    fn components(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let (mut order, mut low) = (vec![NONE; self.nodes], vec![0u32; self.nodes]);
        let mut component = vec![NONE; self.nodes];
        let (mut stack, mut path): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        let (mut counter, mut number) = (0, 0);
        for root in 0..self.nodes {
            if order[root] != NONE {
                continue;
            }
            path.push((root as u32, self.starts[root]));
            while let Some(&mut (node, ref mut edge)) = path.last_mut() {
                let at = node as usize;
                if order[at] == NONE {
                    (order[at], low[at]) = (counter, counter);
                    counter += 1;
                    stack.push(node);
                }
                if *edge < self.starts[at + 1] {
                    let to = self.edge(self.out[*edge as usize]).to as usize;
                    *edge += 1;
                    if order[to] == NONE {
                        path.push((to as u32, self.starts[to]));
                    } else if component[to] == NONE {
                        low[at] = low[at].min(order[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    low[parent as usize] = low[parent as usize].min(low[at]);
                }
                if low[at] == order[at] {
                    while let Some(member) = stack.pop() {
                        component[member as usize] = number;
                        if member == node {
                            break;
                        }
                    }
                    number += 1;
                }
            }
        }
        component
    }

    /// A shortest cycle through `start` within its component, instants folded away.
    fn cycle_through(&self, start: u32, component: &[u32]) -> Vec<Step> {
        let mut came: Vec<Option<u32>> = vec![None; self.nodes];
        let mut open = VecDeque::from([start]);
        let mut last = None;
        'search: while let Some(node) = open.pop_front() {
            for &index in self.out(node) {
                let to = self.edge(index).to;
                if to == start {
                    last = Some(index);
                    break 'search;
                }
                let inside = component[to as usize] == component[start as usize];
                if inside && came[to as usize].is_none() {
                    came[to as usize] = Some(index);
                    open.push_back(to);
                }
            }
        }
        let mut edges = Vec::new();
        let mut at = last;
        while let Some(index) = at {
            edges.push(index);
            let from = self.edge(index).from;
            at = if from == start { None } else { came[from as usize] };
        }
        edges.reverse();
        self.fold(&edges)
    }

    /// Joins the real-time edges through instants into one step between operations.
    fn fold(&self, edges: &[u32]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut from = None;
        for &index in edges {
            let edge = self.edge(index);
            let begun = *from.get_or_insert(edge.from);
            if (edge.to as usize) < self.operations {
                let Edge { to, kind, key, .. } = *edge;
                steps.push(Step { from: begun, to, kind, key, levels: self.levels(index) });
                from = None;
            }
        }
        steps
    }
}
