//! Doorbells and the engines that watch them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use nicol_core::fabric::Bell;
use nicol_core::memory::Doorbell;

struct Watched {
    bell: Arc<dyn Bell>,
    watchers: Vec<usize>,
    /// How often it had rung, for bells that notify another cluster.
    seen: u64,
}

/// The doorbells that a cluster's engines watch.
#[derive(Default)]
pub struct Bells {
    watched: Vec<Watched>,
    /// Places by address: looked up, never iterated. The bells are held, so addresses are theirs.
    places: BTreeMap<usize, usize>,
    /// Places of bells that have rung, in order.
    rung: Arc<Mutex<Vec<usize>>>,
    /// Bells whose one notifier was taken before: their counts are compared instead.
    compared: Vec<usize>,
}

impl Bells {
    /// Lets engine `index` have a round whenever `bell` rings.
    pub fn watch(&mut self, bell: &Arc<dyn Bell>, index: usize) {
        let address = std::ptr::from_ref::<Doorbell>(bell.bell()).addr();
        let place = *self.places.entry(address).or_insert_with(|| {
            let place = self.watched.len();
            // Weak: a region that outlives the cluster must not collect rings for it.
            let rung = Arc::downgrade(&self.rung);
            let installed = bell.bell().notify_with(move || {
                if let Some(rung) = rung.upgrade() {
                    rung.lock().unwrap_or_else(|poison| poison.into_inner()).push(place);
                }
            });
            if !installed {
                self.compared.push(place);
            }
            let seen = bell.bell().rings();
            self.watched.push(Watched { bell: bell.clone(), watchers: Vec::new(), seen });
            place
        });
        let watchers = &mut self.watched[place].watchers;
        if !watchers.contains(&index) {
            watchers.push(index);
        }
    }

    /// Calls `wake` with every engine that watches a bell that has rung since the last call.
    pub fn drain(&mut self, mut wake: impl FnMut(usize)) {
        if self.watched.is_empty() {
            return;
        }
        let mut rung = self.rung.lock().unwrap_or_else(|poison| poison.into_inner());
        for place in rung.drain(..) {
            self.watched[place].watchers.iter().copied().for_each(&mut wake);
        }
        for place in &self.compared {
            let watched = &mut self.watched[*place];
            let rings = watched.bell.bell().rings();
            if rings != watched.seen {
                watched.seen = rings;
                watched.watchers.iter().copied().for_each(&mut wake);
            }
        }
    }
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bells({})", self.watched.len())
    }
}
