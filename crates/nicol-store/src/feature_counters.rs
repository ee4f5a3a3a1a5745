//! Counters of the features of each worker's requests, and the weight of those that a new request
//! has in common with them: the part of AlNiCo's scheduler that its hardware does in parallel.
//! [AlNiCo22, scheduling algorithm]
//!
//! Workers are lanes: the counters of a feature stand side by side, two bytes a worker in one cache
//! line, so that a step looks at all workers at once. Where the machine has AVX2, the same steps
//! take two vectors; the results are equal.

mod list;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use list::FeatureList;
use list::WRITES;

/// Features. (C2.03)
pub const FEATURES: usize = 512;
/// Workers at most: lanes.
pub const LANES: usize = 32;
/// A feature that no worker steers.
pub const NONE: u8 = u8::MAX;

const WORDS: usize = FEATURES / 64;

/// A set of features.
pub type Plane = [u64; WORDS];

/// One value for each worker.
pub type Lanes = [u16; LANES];

/// The counters of a feature, by worker: of the requests that touch it in the lower byte, of those
/// of them that write it in the upper. A worker has fewer than 256 requests, so that no counter
/// runs over into its neighbour.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Counts(Lanes);

/// What a request adds to its worker's counters of a feature that it reads, and that it writes.
const COUNTED: [u16; 2] = [1, 1 << 8 | 1];

/// The requests in conflict with one that only reads a feature: those that write it.
const WRITERS: u16 = 0xff00;
/// The requests in conflict with one that writes a feature: all that touch it.
const ALL: u16 = 0xffff;
/// The same for every worker, of a request that reads and of one that writes.
static AGAINST: [Counts; 2] = [Counts([WRITERS; LANES]), Counts([ALL; LANES])];

/// A row for each feature, and one for each worker: it alone.
type Rows = [Counts; FEATURES + LANES];

fn no_rows() -> Box<Rows> {
    let alone = |worker: usize, lane| if worker == lane { ALL } else { 0 };
    Box::new(std::array::from_fn(|row| match row.checked_sub(FEATURES) {
        None => Counts([0; LANES]),
        Some(worker) => Counts(std::array::from_fn(|lane| alone(worker, lane))),
    }))
}

/// A request: what it touches, and what of that it writes.
#[derive(Clone, Copy, Debug)]
pub struct Touches<'a> {
    /// Read or written.
    pub touched: &'a Plane,
    /// Written. Where reads do not matter, the same as what is touched.
    pub written: &'a Plane,
    /// The same features one by one, if their list is at hand.
    pub listed: Option<&'a FeatureList>,
    /// Whatever `listed` says, all of them are written: where reads do not matter.
    pub all_written: bool,
}

impl Touches<'_> {
    /// Calls `each` with every feature, and whether it is written. Of two planes, each word whose
    /// number of features is not foreseen costs a mispredicted branch; a list costs one.
    #[inline(always)]
    fn each(&self, mut each: impl FnMut(usize, bool)) {
        if let Some(list) = self.listed {
            for &entry in list.entries() {
                let writes = self.all_written || entry & WRITES != 0;
                each(usize::from(entry & !WRITES) % FEATURES, writes);
            }
            return;
        }
        for word in 0..WORDS {
            let mut left = self.touched[word];
            while left != 0 {
                let bit = left.trailing_zeros();
                each(64 * word + bit as usize, self.written[word] >> bit & 1 == 1);
                left &= left - 1;
            }
        }
    }
}

/// The workers that a request meets most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Best {
    /// The sum of the weights of what it meets there, 65,534 at most.
    pub rank: u16,
    /// The workers that have it, a bit each; none if no worker is open.
    pub tied: u32,
    /// Those of them with the least in `queued`.
    pub shortest: u32,
}

/// The counters, and the weights of what they show.
#[derive(Clone, Debug)]
pub struct FeatureCounters {
    rows: Box<Rows>,
    /// What is looked at instead, if counters are looked at now and then.
    snapshot: Option<Box<Rows>>,
    /// By feature: what it weighs.
    weights: Box<[u16; FEATURES]>,
    /// By feature: the row that shows it, its own or that of the worker that steers it.
    shown: Box<[u16; FEATURES]>,
    /// Features that weigh anything.
    weighing: Plane,
    wide: bool,
}

impl FeatureCounters {
    /// Counters of nothing, and no weights; if `snapshots`, they are looked at as of the last
    /// [`FeatureCounters::look`].
    pub fn new(snapshots: bool) -> Self {
        Self {
            rows: no_rows(),
            snapshot: snapshots.then(no_rows),
            weights: Box::new([0; FEATURES]),
            shown: Box::new(std::array::from_fn(|feature| feature as u16)),
            weighing: [0; WORDS],
            wide: has_wide(),
        }
    }

    /// The same without AVX2.
    pub fn portable(self) -> Self {
        Self { wide: false, ..self }
    }

    /// Takes over the weights and the steering. A steered feature is shown by its worker alone,
    /// also if others have requests for it.
    ///
    /// # Panics
    /// If a feature is steered by a worker beyond [`LANES`].
    pub fn publish(&mut self, weights: &[u8; FEATURES], steering: &[u8; FEATURES]) {
        let known = |worker: &u8| *worker == NONE || usize::from(*worker) < LANES;
        assert!(steering.iter().all(known), "a feature is steered by a worker or by none");
        *self.weights = weights.map(u16::from);
        *self.shown = std::array::from_fn(|feature| match steering[feature] {
            NONE => feature as u16,
            worker => FEATURES as u16 + u16::from(worker),
        });
        for (word, weighing) in self.weighing.iter_mut().enumerate() {
            let weights = &weights[64 * word..64 * (word + 1)];
            let bit = |(bit, weight): (usize, &u8)| u64::from(*weight != 0) << bit;
            *weighing = weights.iter().enumerate().map(bit).sum();
        }
    }

    /// The weight of `feature`.
    pub const fn weight(&self, feature: usize) -> u8 {
        self.weights[feature] as u8
    }

    /// Looks at the counters again, if they are looked at now and then.
    pub fn look(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.copy_from_slice(&self.rows[..]);
        }
    }

    /// Counts a request at `worker`, which has fewer than 255 before it: one more would count as a
    /// write. The scheduler's queues see to that, so that it is looked at in debug builds only.
    pub fn add(&mut self, worker: usize, request: Touches<'_>) {
        self.change(worker, request, COUNTED);
    }

    /// Takes a request back that was counted at `worker`; in debug builds it is looked at, too.
    pub fn remove(&mut self, worker: usize, request: Touches<'_>) {
        self.change(worker, request, COUNTED.map(u16::wrapping_neg));
    }

    #[inline]
    fn change(&mut self, worker: usize, request: Touches<'_>, by: [u16; 2]) {
        assert!(worker < LANES, "workers are lanes");
        request.each(|feature, writes| {
            let count = &mut self.rows[feature].0[worker];
            let refused = if by == COUNTED { 0xff } else { 0 };
            debug_assert_ne!(*count & 0xff, refused, "a worker has 255 requests at most");
            *count = count.wrapping_add(by[usize::from(writes)]);
        });
    }

    /// The rank of a request at each worker, 65,535 at most.
    pub fn ranks(&self, request: Touches<'_>) -> Lanes {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that the machine has AVX2.
            return unsafe { wide::ranks(self, request) };
        }
        self.ranks_portable(request)
    }

    fn ranks_portable(&self, request: Touches<'_>) -> Lanes {
        let mut ranks = [0; LANES];
        self.each_row(request, |row, against, weight| {
            for ((rank, counts), against) in ranks.iter_mut().zip(row).zip(against) {
                let met: u16 = if counts & against == 0 { 0 } else { *weight };
                *rank = met.saturating_add(*rank);
            }
        });
        ranks
    }

    /// Calls `each` with what shows each feature of a request, the part of it that is in conflict,
    /// and its weight. Of a plane only features that weigh anything.
    #[inline(always)]
    fn each_row(&self, request: Touches<'_>, mut each: impl FnMut(&Lanes, &Lanes, &u16)) {
        let mut touched = *request.touched;
        if request.listed.is_none() {
            touched.iter_mut().zip(&self.weighing).for_each(|(word, weighing)| *word &= weighing);
        }
        let rows = self.snapshot.as_ref().unwrap_or(&self.rows);
        // No branch for each feature: whether it is written or steered, no processor foresees.
        Touches { touched: &touched, ..request }.each(|feature, writes| {
            let Counts(row) = &rows[usize::from(self.shown[feature])];
            let Counts(against) = &AGAINST[usize::from(writes)];
            each(row, against, &self.weights[feature]);
        });
    }

    /// Where a request meets most, among workers whose queue is not longer than `longest`. Workers
    /// that do not exist have the longest there is.
    ///
    /// Cost: one step a feature of the request that weighs anything, and five for all workers.
    pub fn best(&self, request: Touches<'_>, queued: &Lanes, longest: u16) -> Best {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that the machine has AVX2.
            return unsafe { wide::best(self, request, queued, longest) };
        }
        choose(&self.ranks_portable(request), queued, longest)
    }
}

fn has_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The workers of the highest rank, and those of them with the least in `queued`.
fn choose(ranks: &Lanes, queued: &Lanes, longest: u16) -> Best {
    let mut above = [0_u16; LANES];
    for lane in 0..LANES {
        let open = if queued[lane] <= longest { u16::MAX } else { 0 };
        above[lane] = ranks[lane].saturating_add(1) & open;
    }
    let highest = above.iter().copied().fold(0, u16::max);
    if highest == 0 {
        return Best::default();
    }
    let mut waiting = [u16::MAX; LANES];
    let mut tied = 0;
    for lane in 0..LANES {
        let is_tied = above[lane] == highest;
        tied |= u32::from(is_tied) << lane;
        waiting[lane] = if is_tied { queued[lane] } else { u16::MAX };
    }
    let least = waiting.iter().copied().fold(u16::MAX, u16::min);
    let mut shortest = 0;
    for (lane, waits) in waiting.iter().enumerate() {
        shortest |= u32::from(*waits == least) << lane;
    }
    Best { rank: highest - 1, tied, shortest: shortest & tied }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream, test_steps};

    use super::*;

    type Planes = (Plane, Plane);

    fn draw(random: &mut Stream, keys: u64) -> Planes {
        let (mut touched, mut written) = ([0; WORDS], [0; WORDS]);
        for _ in 0..keys {
            let feature = random.below(FEATURES as u64) as usize;
            touched[feature / 64] |= 1 << (feature % 64);
            written[feature / 64] |= random.below(2) << (feature % 64);
        }
        (touched, written)
    }

    fn touches((touched, written): &Planes) -> Touches<'_> {
        Touches { touched, written, listed: None, all_written: false }
    }

    /// The list of what planes have.
    fn list((touched, written): &Planes) -> FeatureList {
        let mut list = FeatureList::default();
        let has = |plane: &Plane, feature: usize| plane[feature / 64] >> (feature % 64) & 1 == 1;
        let features = (0..FEATURES).filter(|feature| has(touched, *feature));
        features.for_each(|feature| list.push(feature, has(written, feature)));
        list
    }

    /// The slides' sums, feature by feature and worker by worker, from the requests that are
    /// counted.
    fn plain(
        given: &[(usize, Planes)],
        request: &Planes,
        (weights, steering): (&[u8; FEATURES], &[u8; FEATURES]),
    ) -> Lanes {
        let has = |plane: &Plane, feature: usize| plane[feature / 64] >> (feature % 64) & 1 == 1;
        std::array::from_fn(|worker| {
            let meets = |feature: &usize| {
                let feature = *feature;
                let shows = match steering[feature] {
                    NONE => given.iter().any(|(at, other)| {
                        *at == worker
                            && has(
                                if has(&request.1, feature) { &other.0 } else { &other.1 },
                                feature,
                            )
                    }),
                    steers => usize::from(steers) == worker,
                };
                has(&request.0, feature) && shows
            };
            let weights = (0..FEATURES).filter(meets).map(|feature| u64::from(weights[feature]));
            weights.sum::<u64>().min(u16::MAX.into()) as u16
        })
    }

    #[test]
    fn ranks_are_the_sums_of_the_slides_with_and_without_wide_vectors() {
        let mut random = Stream::new(5, Purpose::Test, 0);
        for turn in 0..test_steps(60) {
            let wide = FeatureCounters::new(false);
            let mut both = [wide.clone(), wide.portable()];
            let weights = std::array::from_fn(|_| (random.below(300).saturating_sub(45)) as u8);
            let steers = |at: u64| if at < LANES as u64 { at as u8 } else { NONE };
            let steering = std::array::from_fn(|_| steers(random.below(400)));
            both.iter_mut().for_each(|counters| counters.publish(&weights, &steering));
            let mut given = Vec::new();
            for _ in 0..random.below(60) {
                let keys = random.below(30);
                let one = (random.below(LANES as u64) as usize, draw(&mut random, keys));
                let listed = list(&one.1);
                for (turn, counters) in both.iter_mut().enumerate() {
                    let listed = listed.get().filter(|_| turn % 2 == 0);
                    counters.add(one.0, Touches { listed, ..touches(&one.1) });
                }
                given.push(one);
            }
            for _ in 0..given.len() / 2 {
                let (worker, gone) = given.swap_remove(0);
                both.iter_mut().for_each(|counters| counters.remove(worker, touches(&gone)));
            }
            let request = draw(&mut random, if turn % 10 == 0 { 2_000 } else { 16 });
            let expected = plain(&given, &request, (&weights, &steering));
            let queued: Lanes = std::array::from_fn(|_| random.below(3) as u16);
            let longest = random.below(3) as u16;
            let open = (0..LANES).filter(|lane| queued[*lane] <= longest);
            let highest = open.map(|lane| expected[lane]).max();
            let mut named = Vec::new();
            for counters in &both {
                assert_eq!(counters.ranks(touches(&request)), expected);
                let listed = list(&request);
                let listed = Touches { listed: listed.get(), ..touches(&request) };
                assert_eq!(counters.ranks(listed), expected);
                let best = counters.best(touches(&request), &queued, longest);
                assert_eq!(best.rank, highest.unwrap_or_default().min(u16::MAX - 1));
                assert_eq!(best.tied == 0, highest.is_none());
                named.push(best);
                let full = [u16::MAX; LANES];
                assert_eq!(counters.best(touches(&request), &full, longest), Best::default());
            }
            assert!(named.iter().all(|best| *best == named[0]), "{named:?}");
        }
    }

    #[test]
    fn the_shortest_queue_of_those_that_tie_is_named() {
        let queue = |lane| if lane % 7 == 3 { 1 } else { 4 };
        let queued = std::array::from_fn(|lane| if lane < 22 { queue(lane) } else { u16::MAX });
        for counters in [FeatureCounters::new(false), FeatureCounters::new(false).portable()] {
            let none = ([0; WORDS], [0; WORDS]);
            let best = counters.best(touches(&none), &queued, 254);
            let shortest = 1 << 3 | 1 << 10 | 1 << 17;
            assert_eq!(best, Best { rank: 0, tied: (1 << 22) - 1, shortest });
        }
    }

    #[test]
    fn snapshots_are_looked_at_now_and_then() {
        let mut counters = FeatureCounters::new(true);
        counters.publish(&[1; FEATURES], &[NONE; FEATURES]);
        let mut request = ([0; WORDS], [0; WORDS]);
        (request.0[7], request.1[7]) = (1, 1);
        counters.add(2, touches(&request));
        assert_eq!(counters.ranks(touches(&request)), [0; LANES]);
        counters.look();
        assert_eq!(counters.ranks(touches(&request))[2], 1);
        counters.remove(2, touches(&request));
        assert_eq!(counters.ranks(touches(&request))[2], 1);
    }
}
