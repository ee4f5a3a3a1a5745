//! What a busy host does besides: a program that clusters points, on every core. [OffPath23 figure
//! 13]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::units::Nanos;

use super::member::Member;

/// Time for which the operating system lets either program run, in turn. Assumed: it is shorter
/// than the slices of a Linux scheduler (milliseconds), so that a short run sees many turns.
const TURN: Nanos = Nanos::from_micros(100);
/// Points of a step, and coordinates of each.
const POINTS: usize = 128;
const COORDINATES: usize = 32;
/// A step on a core of 3.6 GHz that handles eight coordinates a nanosecond: assumed.
const STEP: Nanos = Nanos(POINTS as u64 * COORDINATES as u64 / 8);

/// Takes turns of this core while the engine has anything to do, for ever. Without that nobody
/// would notice, and the cluster would never come to rest.
pub(super) async fn cluster_points<F: Fabric>(member: Rc<Member<F>>) {
    let Member { fabric, node, working, .. } = &*member;
    let points: Vec<[f32; COORDINATES]> = (0..POINTS).map(|at| [at as f32; COORDINATES]).collect();
    // Not all cores begin their turns at once.
    fabric.sleep_until(fabric.now() + Nanos(fabric.random() % (2 * TURN.0))).await;
    loop {
        working.any().await;
        let began = fabric.now();
        let mut nearest = f32::MAX;
        while fabric.now().since(began) < TURN {
            nearest = nearest.min(distance(&points));
            fabric.work(Work::Given { nanos: STEP.0 });
        }
        assert!(nearest < f32::MAX, "there are points");
        node.counts.elsewhere(fabric.now().since(began));
        fabric.sleep_until(fabric.now() + TURN).await;
    }
}

/// The sum of the squared distances of all points to the first.
fn distance(points: &[[f32; COORDINATES]]) -> f32 {
    let center = std::hint::black_box(points)[0];
    let of = |point: &[f32; COORDINATES]| -> f32 {
        point.iter().zip(&center).map(|(one, other)| (one - other) * (one - other)).sum()
    };
    points.iter().map(of).sum()
}
