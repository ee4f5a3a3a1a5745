//! GET, PUT and DELETE of keys and values that are byte strings, and which of them find space.
//! [PRISM21 6.1]

use std::error::Error;
use std::fmt;

use nicol_core::fabric::Fabric;
use nicol_core::key_value::{Failure, Reason};

use super::client::Client;
use super::config::KvConfig;
use super::layout::ITEM_HEADER;

/// Why there is no item with such a key, or such a key and such a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The key has no byte: an item without a key is none.
    EmptyKey,
    /// The key alone is too long.
    Key {
        bytes: u64,
        /// Bytes of the longest key.
        most: u64,
    },
    /// The value is too long beside its key.
    Value {
        bytes: u64,
        /// Bytes of the longest value beside this key.
        most: u64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyKey => write!(f, "an empty key; a key has 1 byte at least"),
            Self::Key { bytes, most } => {
                write!(f, "a key of {bytes} bytes; this store takes {most} at most")
            }
            Self::Value { bytes, most } => {
                write!(
                    f,
                    "a value of {bytes} bytes; beside its key there is space for {most} at most"
                )
            }
        }
    }
}

impl Error for Unfit {}

/// Why an operation on byte strings did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesFailure {
    /// It was not tried.
    Unfit(Unfit),
    /// It was tried once.
    Failed(Failure),
}

impl From<Unfit> for BytesFailure {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl From<Failure> for BytesFailure {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Reason> for BytesFailure {
    fn from(reason: Reason) -> Self {
        Self::Failed(Failure::Aborted(reason))
    }
}

impl KvConfig {
    /// Checks that there is space for an item with such a key and a value of so many bytes.
    pub fn admits(&self, key: &[u8], value_bytes: usize) -> Result<(), Unfit> {
        let (bytes, value) = (key.len() as u64, value_bytes as u64);
        let most = self.largest_item().saturating_sub(ITEM_HEADER);
        match most.checked_sub(bytes) {
            _ if bytes == 0 => Err(Unfit::EmptyKey),
            None => Err(Unfit::Key { bytes, most }),
            Some(most) if value > most => Err(Unfit::Value { bytes: value, most }),
            Some(_) => Ok(()),
        }
    }
}

impl<F: Fabric> Client<F> {
    /// GET of any key: reads its value into `value`; false if there is none.
    ///
    /// Errors: also of a key for which there is no space anywhere.
    pub async fn get_bytes(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BytesFailure> {
        self.config().admits(key, 0)?;
        Ok(self.get_item(key, value).await?)
    }

    /// PUT of any value to any key.
    ///
    /// Errors: also of an item for which there is no space anywhere.
    pub async fn put_bytes(&self, key: &[u8], value: &[u8]) -> Result<(), BytesFailure> {
        self.config().admits(key, value.len())?;
        Ok(self.put_item(key, value).await?)
    }

    /// DELETE of any key.
    ///
    /// Errors: also of a key for which there is no space anywhere.
    pub async fn delete_bytes(&self, key: &[u8]) -> Result<(), BytesFailure> {
        self.config().admits(key, 0)?;
        Ok(self.delete_item(key).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use nicol_core::engine::Start;
    use nicol_core::ids::{NodeId, Side};
    use nicol_core::records::Empty;
    use nicol_core::rng::{Purpose, Stream};
    use nicol_core::system::{NodeState, Sequential, load_nodes};
    use nicol_core::units::Nanos;
    use nicol_core::view::View;
    use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

    use super::*;
    use crate::kv::{DeletedSlots, Hash, Node, Reuse, Slots};

    /// Bytes of the largest item, of which no buffer size is made; and of the longest key.
    const ITEM: u64 = 100;
    const KEY: usize = 84;
    const OPERATIONS: u64 = 1_500;

    /// Keys of every kind of length; many begin alike, and some are those of a workload.
    fn keys(random: &mut Stream) -> Vec<Vec<u8>> {
        let lengths = [1, 1, 2, 3, 7, 8, 8, 8, 9, 16, 31, 63, KEY - 1, KEY, KEY];
        let mut keys: Vec<Vec<u8>> =
            (0..).zip(lengths).map(|(key, len)| vec![key % 3; len]).collect();
        keys.iter_mut().skip(5).for_each(|key| key.fill_with(|| random.below(256) as u8));
        keys[5..7]
            .iter_mut()
            .zip(1..)
            .for_each(|(key, row)| key.copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, row]));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A client that compares what it reads with what a map holds. Where slots are used again, new
    /// keys come all the time.
    struct Compared {
        nodes: Vec<Arc<Node>>,
        seed: u64,
        /// By what was found: a value, nothing, a refusal in words.
        seen: Arc<[AtomicU64; 3]>,
        ended: Arc<Mutex<Option<Map>>>,
    }

    impl Compared {
        async fn run<F: Fabric>(
            client: Client<F>,
            mut random: Stream,
            seen: Arc<[AtomicU64; 3]>,
        ) -> Map {
            let mut keys = keys(&mut random);
            let new_keys = client.config().reuses_slots();
            let mut map = Map::new();
            let mut found = Vec::new();
            let count = |what: usize| seen[what].fetch_add(1, Ordering::Relaxed);
            for _ in 0..OPERATIONS {
                let place = random.below(keys.len() as u64) as usize;
                if new_keys && !map.contains_key(&keys[place]) {
                    keys[place].fill_with(|| random.below(256) as u8);
                }
                let key = &keys[place];
                match random.below(5) {
                    0 => {
                        assert_eq!(client.delete_bytes(key).await, Ok(()));
                        map.remove(key);
                    }
                    1 | 2 => {
                        let most = KEY - key.len();
                        let lengths =
                            [0, 1, most, random.below(most as u64 + 1) as usize, most + 1];
                        let len = lengths[random.below(5) as usize].min(most + 1);
                        let value: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                        let put = client.put_bytes(key, &value).await;
                        if len <= most {
                            assert_eq!(put, Ok(()), "{key:?} {len}");
                            map.insert(key.clone(), value);
                        } else {
                            let most = most as u64;
                            let unfit = Unfit::Value { bytes: most + 1, most };
                            assert_eq!(put, Err(unfit.into()));
                            count(2);
                        }
                    }
                    _ => {
                        let present = client.get_bytes(key, &mut found).await.unwrap();
                        assert_eq!(present.then_some(&found), map.get(key), "{key:?}");
                        count(usize::from(!present));
                    }
                }
            }
            map
        }
    }

    impl Start for Compared {
        fn start<F: Fabric>(&self, fabric: &F) {
            let here = fabric.here();
            let Some(client) = self.nodes[here.node.index()].start_engine(fabric) else { return };
            if (here.node, here.side, here.core) != (NodeId(0), Side::Host, 0) {
                return;
            }
            let random = Stream::new(self.seed, Purpose::Test, 0);
            let (seen, ended) = (self.seen.clone(), self.ended.clone());
            fabric.spawn(async move {
                let map = Self::run(client, random, seen).await;
                *ended.lock().unwrap() = Some(map);
            });
        }
    }

    fn configs() -> impl Iterator<Item = KvConfig> {
        let paper = KvConfig { entries: 16, ..KvConfig::paper(vec![(ITEM, 40)]) };
        let ways = [
            (Reuse::Pointer, Hash::Probing, DeletedSlots::Kept),
            (Reuse::Generation, Hash::CollisionFree, DeletedSlots::Kept),
            (Reuse::Generation, Hash::Probing, DeletedSlots::Reused),
            // A client alone meets no change of a slot that it has read.
            (Reuse::Pointer, Hash::CollisionFree, DeletedSlots::Reused),
        ];
        [Slots::Pointer, Slots::Bounded].into_iter().flat_map(move |slots| {
            let paper = paper.clone();
            ways.map(|(reuse, hash, deleted_slots)| KvConfig {
                slots,
                reuse,
                hash,
                deleted_slots,
                ..paper.clone()
            })
        })
    }

    #[test]
    fn byte_strings_of_every_length_are_what_a_map_holds() {
        for (seed, config) in (0..).zip(configs()) {
            let view = View::new(2, 1, 1, 1).unwrap();
            let nodes =
                load_nodes::<Node>(&view, &config, &Empty { capacity_per_shard: 0 }, &Sequential)
                    .unwrap();
            let (seen, ended) = (Arc::<[AtomicU64; 3]>::default(), Arc::<Mutex<_>>::default());
            let compared =
                Compared { nodes: nodes.clone(), seed, seen: seen.clone(), ended: ended.clone() };
            let profile = ["connectx5-40g", "connectx5-40g:verbs.chains=true", "liquidio3"];
            let profile = profile[seed as usize % 3];
            let profile = Arc::new(Profile::load(profile).unwrap());
            let cluster = SimCluster::new(SimConfig::new(view, profile, seed));
            cluster.start(Arc::new(compared));
            let done =
                |_| ended.lock().unwrap().is_some() && nodes.iter().all(|node| node.is_settled());
            let limit = Nanos::from_secs(1);
            assert_eq!(cluster.run_until(&mut { done }, limit), RunEnd::Done, "{config:?}");
            let map = ended.lock().unwrap().take().unwrap();
            assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) > 40), "{seen:?}");
            let collisions =
                nodes.iter().map(|node| node.counts.collisions.load(Ordering::Relaxed));
            assert!(collisions.sum::<u64>() > 300, "keys meet others");
            let reused = nodes.iter().map(|node| node.counts.reused_slots.load(Ordering::Relaxed));
            let reused: u64 = reused.sum();
            assert_eq!(reused > 0, config.reuses_slots());
            let mut held = Map::new();
            for node in &nodes {
                node.check();
                let [empty, free] = node.store().unwrap().free();
                assert!(empty > 0, "{free} are free, and a search has no end");
                assert_eq!(node.audit().leaks.iter().map(|(_, count)| count).sum::<u64>(), 0);
                node.store().unwrap().for_each(&mut |_, item| {
                    held.extend(item.value.map(|value| (item.key.to_vec(), value.to_vec())));
                });
            }
            assert_eq!(held, map, "{config:?}");
        }
    }

    /// A client that fills a store.
    #[derive(Clone, Copy)]
    enum Crowd {
        /// It puts large values to new keys, of which few have space.
        Refused,
        /// It puts small values until none has space, and deletes them.
        Deleted,
        /// The same where deleted keys keep their slots, and their buffers.
        KeptDeleted,
    }

    impl Crowd {
        async fn run<F: Fabric>(self, client: &Client<F>) {
            let full = BytesFailure::Failed(Failure::Aborted(Reason::NoResources));
            let key = |number: u8| [number; 8];
            match self {
                Self::Refused => {
                    for number in 0..40 {
                        let put = client.put_bytes(&key(number), &[number; 200]).await;
                        let expected = if number < 2 { Ok(()) } else { Err(full) };
                        assert_eq!(put, expected, "{number}");
                    }
                }
                Self::Deleted | Self::KeptDeleted => {
                    let mut puts = 0;
                    while client.put_bytes(&key(puts), b"small").await == Ok(()) {
                        puts += 1;
                    }
                    assert!(puts >= 11, "{puts}");
                    if matches!(self, Self::KeptDeleted) {
                        // Each takes a larger buffer, and leaves the one that it had.
                        assert_eq!((puts, client.delete_bytes(&key(0)).await), (12, Ok(())));
                        return;
                    }
                    for number in 0..puts {
                        assert_eq!(client.delete_bytes(&key(number)).await, Ok(()), "{number}");
                    }
                }
            }
            // What was reported last has to get there.
            client.0.fabric.sleep_until(client.0.fabric.now() + Nanos::from_millis(1)).await;
            for number in 100..108 {
                assert_eq!(client.put_bytes(&key(number), b"small").await, Ok(()), "{number}");
            }
        }
    }

    struct Crowded {
        nodes: Vec<Arc<Node>>,
        crowd: Crowd,
        ended: Arc<AtomicU64>,
    }

    impl Start for Crowded {
        fn start<F: Fabric>(&self, fabric: &F) {
            let Some(client) = self.nodes[0].start_engine(fabric) else { return };
            if (fabric.here().side, fabric.here().core) != (Side::Host, 0) {
                return;
            }
            let (crowd, ended) = (self.crowd, self.ended.clone());
            fabric.spawn(async move {
                crowd.run(&client).await;
                ended.store(1, Ordering::Relaxed);
            });
        }
    }

    #[test]
    fn a_full_store_keeps_no_slot_of_a_refused_key_and_lets_delete() {
        let items = vec![(64, 12), (256, 2)];
        let crowds = [Crowd::Refused, Crowd::Deleted, Crowd::KeptDeleted];
        for (seed, crowd) in crowds.into_iter().enumerate() {
            let deleted_slots = match crowd {
                Crowd::KeptDeleted => DeletedSlots::Kept,
                Crowd::Refused | Crowd::Deleted => DeletedSlots::Reused,
            };
            let config = KvConfig {
                reuse: Reuse::Generation,
                deleted_slots,
                deleted: 0,
                spare_buffers: 0,
                ..KvConfig::paper(items.clone())
            };
            let view = View::new(1, 1, 1, 1).unwrap();
            let nodes =
                load_nodes::<Node>(&view, &config, &Empty { capacity_per_shard: 0 }, &Sequential)
                    .unwrap();
            let ended = Arc::new(AtomicU64::new(0));
            let crowded = Crowded { nodes: nodes.clone(), crowd, ended: ended.clone() };
            let profile = Arc::new(Profile::load("connectx5-40g").unwrap());
            let cluster = SimCluster::new(SimConfig::new(view, profile, seed as u64));
            cluster.start(Arc::new(crowded));
            let done = |_| ended.load(Ordering::Relaxed) == 1 && nodes[0].is_settled();
            assert_eq!(cluster.run_until(&mut { done }, Nanos::from_secs(2)), RunEnd::Done);
            nodes[0].check();
            let used = 64 - nodes[0].store().unwrap().free().iter().sum::<u64>();
            let kept = u64::from(deleted_slots == DeletedSlots::Kept);
            assert_eq!(used, nodes[0].records() + kept, "slots are those of records");
            assert_eq!(nodes[0].audit().leaks.iter().map(|(_, count)| count).sum::<u64>(), 0);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_in_words_that_name_the_limit() {
        let config = KvConfig::paper(vec![(64, 1), (ITEM, 1)]);
        assert_eq!(config.admits(b"", 0), Err(Unfit::EmptyKey));
        assert_eq!(config.admits(&[0; KEY], 0), Ok(()));
        assert_eq!(config.admits(&[0; 1], KEY - 1), Ok(()));
        let key = config.admits(&[0; KEY + 1], 0).unwrap_err();
        assert_eq!(key.to_string(), "a key of 85 bytes; this store takes 84 at most");
        let value = config.admits(&[0; 4], KEY - 3).unwrap_err();
        let words = "a value of 81 bytes; beside its key there is space for 80 at most";
        assert_eq!(value.to_string(), words);
        assert!(Unfit::EmptyKey.to_string().contains("1 byte at least"));
    }
}
