//! Chains of many clients, and many chains of one, at the same words.

use std::sync::atomic::Ordering;

use nicol_core::chain::{ChainResults, Primitive, Target};
use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::memory::{Compare, MaskedSwap};

use super::{At, DONE, chain, read, write};

/// Swaps that each client wins at the place where all meet.
const WINS: u64 = 10;
/// Additions of each client to a word of its own.
const ADDITIONS: u64 = 30;

impl<F: Fabric> At<'_, F> {
    /// All clients swap the 32 bytes of the first slot, whose words are equal at any time.
    pub(super) async fn meeting(&self) {
        let (place, rkey) = (Target::At(0), self.ground.rkey);
        let mut won = 0;
        let mut seen = 0;
        while won < WINS {
            let swap = MaskedSwap::new(Compare::Equal, [seen; 4], [seen + 1; 4]);
            let cas = Primitive::compare_swap(place, swap).under(rkey);
            let (payload, _) = self.run(&[cas, read(place, 32).under(rkey)]).await;
            let results = payload.as_ref().map(|payload| ChainResults::parse(payload.as_ref()));
            let Ok(Ok(results)) = results else {
                self.client.expect("a CAS where all meet", false);
                return;
            };
            for outcome in results.outcomes() {
                let words = outcome.words();
                let whole = words.iter().all(|&word| word == words[0]) && words[0] >= seen;
                self.client.expect("a CAS of 32 bytes is atomic", whole);
                if !whole {
                    return;
                }
                seen = words[0];
            }
            won += u64::from(results.outcome(0).succeeded());
        }
    }

    /// Chains that are sent again are not executed again.
    pub(super) async fn at_most_once(&self) {
        let (place, rkey) = (Target::At(self.base), self.ground.rkey);
        let add = Primitive::FetchAdd { target: place, amount: 1 }.under(rkey);
        let (add, node) = (chain(&[add]), self.engine.node);
        let post = |_| self.client.fabric.one_sided(node, OneSided::Chain(&add));
        let under_way: Vec<_> = (0..ADDITIONS).map(post).collect();
        let mut given_up = 0;
        for one in under_way {
            let added = match one.await {
                Ok(payload) => ChainResults::parse(payload.as_ref())
                    .is_ok_and(|results| results.outcome(0).words()[0] < ADDITIONS),
                Err(error) => {
                    given_up += 1;
                    self.client.suite.0.given_up.fetch_add(1, Ordering::AcqRel);
                    error == FabricError::Unreachable
                }
            };
            self.client.expect("FETCH-ADD", added);
        }
        let (payload, _) = self.run(&[read(place, 8).under(rkey)]).await;
        let sum = payload.map(|payload| match ChainResults::parse(payload.as_ref()) {
            Ok(results) => results.outcome(0).words()[0],
            Err(_) => u64::MAX,
        });
        let once = sum.is_ok_and(|sum| (ADDITIONS - given_up..=ADDITIONS).contains(&sum));
        self.client.expect("additions take effect once", once);
        self.expect("WRITE", &[write(place, &[0; 8])], &[DONE]).await;
    }
}
