//! What a doorbell calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Doorbell;

#[test]
fn a_ring_calls_every_watcher_once_however_often_it_has_watched() {
    let (doorbell, called) = (Doorbell::default(), [(); 3].map(|()| Arc::<AtomicU64>::default()));
    doorbell.ring();
    for _ in 0..3 {
        for (watcher, called) in (1..).zip(&called) {
            doorbell.notify_each(watcher, || {
                let called = called.clone();
                move || _ = called.fetch_add(1, Ordering::Relaxed)
            });
        }
        assert!(!doorbell.notify_with(|| panic!("it has watchers")));
    }
    doorbell.ring();
    doorbell.ring();
    let called = called.map(|called| called.load(Ordering::Relaxed));
    assert_eq!((called, doorbell.rings()), ([2; 3], 3));
}
