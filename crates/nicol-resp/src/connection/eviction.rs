//! Which connections go when the buffers of all clients take more memory than they may.

use std::cmp::Reverse;

use super::Connection;

/// The places of the connections to be closed so that `bytes` become free: the largest first, and
/// none of a client that said CLIENT NO-EVICT.
///
/// Cost: a sort of the connections.
pub fn victims(connections: &[Option<Connection>], bytes: usize) -> Vec<usize> {
    let weight = |slot: usize| {
        let connection = connections[slot].as_ref().filter(|it| !it.session.client.seen().no_evict);
        connection.map_or(0, |connection| connection.weight)
    };
    let weighed = (0..connections.len()).map(|slot| (weight(slot), slot));
    let mut slots: Vec<(usize, usize)> = weighed.filter(|(weight, _)| *weight > 0).collect();
    slots.sort_unstable_by_key(|&(weight, slot)| (Reverse(weight), slot));
    let mut freed = 0;
    let enough = |&(weight, _): &(usize, usize)| {
        let goes = freed < bytes;
        freed += weight;
        goes
    };
    slots.into_iter().take_while(enough).map(|(_, slot)| slot).collect()
}
