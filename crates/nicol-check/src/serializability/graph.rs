//! The serialization graph and its cycles.

use std::collections::VecDeque;

use nicol_core::history::first::{End, Event};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EdgeKind {
    /// It installed a version that the other replaced (ww).
    Overwrites,
    /// The other read what it installed (wr).
    Reads,
    /// It read a version that the other replaced (rw).
    Anti,
    /// It ended before the other began.
    RealTime,
}

/// One step of a cycle between transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: EdgeKind,
    pub(super) key: u64,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    kind: EdgeKind,
    key: u64,
}

/// Nodes `0..transactions` are transactions, those behind are instants.
pub(super) struct Graph {
    transactions: usize,
    nodes: usize,
    edges: Vec<Edge>,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Self {
        Self { transactions, nodes: transactions, edges: Vec::new() }
    }

    /// Adds an edge; one from a transaction to itself says nothing.
    pub(super) fn edge(&mut self, from: usize, to: usize, kind: EdgeKind, key: u64) {
        if from != to {
            self.edges.push(Edge { from: from as u32, to: to as u32, kind, key });
        }
    }

    pub(super) fn maybe(&mut self, from: usize, to: Option<usize>, kind: EdgeKind, key: u64) {
        if let Some(to) = to {
            self.edge(from, to, kind, key);
        }
    }

    /// Adds the real-time order: an instant for each end, chained in time; a transaction comes
    /// after the last instant before its start.
    pub(super) fn real_time(&mut self, events: &[Event], effective: &[bool]) {
        let ends_known = |&index: &usize| effective[index] && events[index].end == End::Committed;
        let mut by_end: Vec<usize> = (0..events.len()).filter(ends_known).collect();
        by_end.sort_unstable_by_key(|&index| events[index].end_ns);
        let first = self.nodes;
        self.nodes += by_end.len();
        for (position, &index) in by_end.iter().enumerate() {
            self.edge(index, first + position, EdgeKind::RealTime, 0);
            if position > 0 {
                self.edge(first + position - 1, first + position, EdgeKind::RealTime, 0);
            }
        }
        for (index, event) in events.iter().enumerate().filter(|&(index, _)| effective[index]) {
            let before = by_end.partition_point(|&other| events[other].end_ns < event.start_ns);
            if before > 0 {
                self.edge(first + before - 1, index, EdgeKind::RealTime, 0);
            }
        }
    }

    /// A short cycle from each strongly connected component that has one.
    pub(super) fn cycles(&self) -> Vec<Vec<Step>> {
        let mut starts = vec![0u32; self.nodes + 1];
        for edge in &self.edges {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 0..self.nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut out = vec![0u32; self.edges.len()];
        for (index, edge) in self.edges.iter().enumerate() {
            let slot = &mut next[edge.from as usize];
            out[*slot as usize] = index as u32;
            *slot += 1;
        }
        let adjacency = Adjacency { graph: self, starts, out };
        let component = adjacency.components();
        let mut seen = vec![false; self.nodes];
        let mut sizes = vec![0u32; self.nodes];
        component.iter().for_each(|&number| sizes[number as usize] += 1);
        let mut cycles = Vec::new();
        for node in 0..self.transactions {
            let number = component[node] as usize;
            if sizes[number] > 1 && !seen[number] {
                seen[number] = true;
                cycles.push(adjacency.cycle_through(node, &component));
            }
        }
        cycles
    }
}

struct Adjacency<'a> {
    graph: &'a Graph,
    starts: Vec<u32>,
    out: Vec<u32>,
}

impl Adjacency<'_> {
    fn edges(&self, node: usize) -> impl Iterator<Item = &Edge> {
        let range = self.starts[node] as usize..self.starts[node + 1] as usize;
        self.out[range].iter().map(|&index| &self.graph.edges[index as usize])
    }

    /// The strongly connected component of each node (Tarjan's algorithm without recursion).
    fn components(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let nodes = self.graph.nodes;
        let (mut order, mut low) = (vec![NONE; nodes], vec![0u32; nodes]);
        let mut component = vec![NONE; nodes];
        let (mut stack, mut path): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        let (mut counter, mut number) = (0, 0);
        for root in 0..nodes {
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
                    let to = self.graph.edges[self.out[*edge as usize] as usize].to as usize;
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
    fn cycle_through(&self, start: usize, component: &[u32]) -> Vec<Step> {
        let mut came: Vec<Option<&Edge>> = vec![None; self.graph.nodes];
        let mut open = VecDeque::from([start]);
        let mut last = None;
        'search: while let Some(node) = open.pop_front() {
            for edge in self.edges(node) {
                let to = edge.to as usize;
                if to == start {
                    last = Some(edge);
                    break 'search;
                }
                if component[to] == component[start] && came[to].is_none() {
                    came[to] = Some(edge);
                    open.push_back(to);
                }
            }
        }
        let mut edges = Vec::new();
        let mut at = last;
        while let Some(edge) = at {
            edges.push(*edge);
            at = if edge.from as usize == start { None } else { came[edge.from as usize] };
        }
        edges.reverse();
        self.fold(&edges)
    }

    /// Joins the real-time edges through instants into one step between transactions.
    fn fold(&self, edges: &[Edge]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut from = None;
        for edge in edges {
            let begun = *from.get_or_insert(edge.from as usize);
            if (edge.to as usize) < self.graph.transactions {
                let Edge { kind, key, .. } = *edge;
                steps.push(Step { from: begun, to: edge.to as usize, kind, key });
                from = None;
            }
        }
        steps
    }
}
