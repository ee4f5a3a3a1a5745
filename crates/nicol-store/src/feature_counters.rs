//! Counters of the features of each worker's requests, and the weight of those that a new request
//! has in common with them: the part of AlNiCo's scheduler that its hardware does in parallel.
//! [AlNiCo22, scheduling algorithm]
//!
//! Workers are lanes: the counters of a feature stand side by side, two bytes a worker in one cache
//! line, so that a step looks at all workers at once. Where the machine has AVX2, the same steps
//! take two vectors; the results are equal.

mod list;

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

/// The counters of a feature, by worker: requests that touch it, and those that write it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Counts([[u8; LANES]; 2]);

const TOUCHED: usize = 0;
const WRITTEN: usize = 1;

/// A worker alone.
const ALONE: [[u8; LANES]; LANES] = {
    let mut alone = [[0; LANES]; LANES];
    let mut worker = 0;
    while worker < LANES {
        alone[worker][worker] = 1;
        worker += 1;
    }
    alone
};

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
    counts: Box<[Counts; FEATURES]>,
    /// What is looked at instead, if counters are looked at now and then.
    snapshot: Option<Box<[Counts; FEATURES]>>,
    weights: Box<[u8; FEATURES]>,
    steering: Box<[u8; FEATURES]>,
    /// Features that weigh anything.
    weighing: Plane,
    wide: bool,
}

impl FeatureCounters {
    /// Counters of nothing, and no weights; if `snapshots`, they are looked at as of the last
    /// [`FeatureCounters::look`].
    pub fn new(snapshots: bool) -> Self {
        let none = || Box::new([Counts([[0; LANES]; 2]); FEATURES]);
        Self {
            counts: none(),
            snapshot: snapshots.then(none),
            weights: Box::new([0; FEATURES]),
            steering: Box::new([NONE; FEATURES]),
            weighing: [0; WORDS],
            wide: has_wide(),
        }
    }

    /// The same without AVX2.
    pub fn portable(self) -> Self {
        Self { wide: false, ..self }
    }

    /// Does the machine have AVX2, and is it used?
    pub const fn is_wide(&self) -> bool {
        self.wide
    }

    /// Takes over the weights and the steering. A steered feature is shown by its worker alone,
    /// also if others have requests for it.
    ///
    /// # Panics
    /// If a feature is steered by a worker beyond [`LANES`].
    pub fn publish(&mut self, weights: &[u8; FEATURES], steering: &[u8; FEATURES]) {
        let known = |worker: &u8| *worker == NONE || usize::from(*worker) < LANES;
        assert!(steering.iter().all(known), "a feature is steered by a worker or by none");
        (*self.weights, *self.steering) = (*weights, *steering);
        for (word, weighing) in self.weighing.iter_mut().enumerate() {
            let weights = &weights[64 * word..64 * (word + 1)];
            let bit = |(bit, weight): (usize, &u8)| u64::from(*weight != 0) << bit;
            *weighing = weights.iter().enumerate().map(bit).sum();
        }
    }

    /// By feature: what it weighs.
    pub const fn weights(&self) -> &[u8; FEATURES] {
        &self.weights
    }

    /// Looks at the counters again, if they are looked at now and then.
    pub fn look(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.copy_from_slice(&self.counts[..]);
        }
    }

    /// Counts a request at `worker`, which has fewer than 256.
    pub fn add(&mut self, worker: usize, request: Touches<'_>) {
        self.change(worker, request, 1);
    }

    /// Takes a request back that was counted at `worker`.
    pub fn remove(&mut self, worker: usize, request: Touches<'_>) {
        self.change(worker, request, u8::MAX);
    }

    #[inline]
    fn change(&mut self, worker: usize, request: Touches<'_>, by: u8) {
        assert!(worker < LANES, "workers are lanes");
        request.each(|feature, writes| {
            let Counts(counts) = &mut self.counts[feature];
            counts[TOUCHED][worker] = counts[TOUCHED][worker].wrapping_add(by);
            let written = by * u8::from(writes);
            counts[WRITTEN][worker] = counts[WRITTEN][worker].wrapping_add(written);
        });
    }

    /// What shows a feature to a request that writes it, or only reads it.
    #[inline(always)]
    fn row(&self, feature: usize, writes: bool) -> &[u8; LANES] {
        let Counts(counts) = &self.snapshot.as_ref().unwrap_or(&self.counts)[feature];
        match self.steering[feature] {
            NONE => &counts[if writes { TOUCHED } else { WRITTEN }],
            worker => &ALONE[usize::from(worker) % LANES],
        }
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
        self.each_row(request, |row, weight| {
            for (rank, count) in ranks.iter_mut().zip(row) {
                let met: u16 = if *count == 0 { 0 } else { weight };
                *rank = met.saturating_add(*rank);
            }
        });
        ranks
    }

    /// Calls `each` with what shows each feature of a request, and its weight. Of a plane only
    /// features that weigh anything.
    #[inline(always)]
    fn each_row(&self, request: Touches<'_>, mut each: impl FnMut(&[u8; LANES], u16)) {
        let mut touched = *request.touched;
        if request.listed.is_none() {
            touched.iter_mut().zip(&self.weighing).for_each(|(word, weighing)| *word &= weighing);
        }
        Touches { touched: &touched, ..request }.each(|feature, writes| {
            each(self.row(feature, writes), u16::from(self.weights[feature]));
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

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m256i, _mm_extract_epi16, _mm_min_epu16, _mm_minpos_epu16, _mm256_add_epi16,
        _mm256_adds_epu16, _mm256_and_si256, _mm256_andnot_si256, _mm256_castsi256_si128,
        _mm256_cmpeq_epi8, _mm256_cmpeq_epi16, _mm256_cvtepi8_epi16, _mm256_extracti128_si256,
        _mm256_loadu_si256, _mm256_maddubs_epi16, _mm256_min_epu16, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_packs_epi16, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
        _mm256_set1_epi16, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_unpackhi_epi8,
        _mm256_unpacklo_epi8, _mm256_xor_si256,
    };

    use super::{Best, FEATURES, FeatureCounters, FeatureList, LANES, Lanes, Touches, WRITES};

    #[target_feature(enable = "avx2")]
    fn load(lanes: &Lanes) -> [__m256i; 2] {
        let (low, high) = lanes.split_at(LANES / 2);
        // SAFETY: each half has 16 values of two bytes; the load needs no alignment.
        unsafe {
            [_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())]
        }
    }

    /// The sums of a list, two features at a time. What they weigh together is less than
    /// [`FeatureList::MOST`] times 256, and nothing overflows.
    #[target_feature(enable = "avx2")]
    fn sums_of_few(
        counters: &FeatureCounters,
        list: &FeatureList,
        all_written: bool,
    ) -> [__m256i; 2] {
        let zero = _mm256_setzero_si256();
        let written = if all_written { WRITES } else { 0 };
        // Of each worker what the features weigh that it does not show, with a minus.
        let (mut low, mut high, mut all) = (zero, zero, 0_u16);
        let (pairs, rest) = list.entries().as_chunks::<2>();
        let pairs = pairs.iter().map(|&[one, other]| (one, Some(other)));
        for (one, other) in pairs.chain(rest.iter().map(|&one| (one, None))) {
            let absent = |entry: u16| {
                let feature = usize::from(entry & !WRITES) % FEATURES;
                let row = counters.row(feature, (entry | written) & WRITES != 0);
                // SAFETY: a row has 32 bytes; the load needs no alignment.
                let counts = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
                (_mm256_cmpeq_epi8(counts, zero), u16::from(counters.weights[feature]))
            };
            let (one, weight) = absent(one);
            let (other, further) = other.map_or((zero, 0), absent);
            let weights = _mm256_set1_epi16((further << 8 | weight).cast_signed());
            let first = _mm256_unpacklo_epi8(one, other);
            let second = _mm256_unpackhi_epi8(one, other);
            low = _mm256_add_epi16(low, _mm256_maddubs_epi16(weights, first));
            high = _mm256_add_epi16(high, _mm256_maddubs_epi16(weights, second));
            all += weight + further;
        }
        // Unpacking works within halves: these bring the workers into their order.
        let order = [
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        ];
        let all = _mm256_set1_epi16(all.cast_signed());
        order.map(|sums| _mm256_add_epi16(sums, all))
    }

    #[target_feature(enable = "avx2")]
    fn sums(counters: &FeatureCounters, request: Touches<'_>) -> [__m256i; 2] {
        if let Some(list) = request.listed {
            return sums_of_few(counters, list, request.all_written);
        }
        let zero = _mm256_setzero_si256();
        let (mut low, mut high) = (zero, zero);
        counters.each_row(request, |row, weight| {
            // SAFETY: a row has 32 bytes; the load needs no alignment.
            let counts = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
            let absent = _mm256_cmpeq_epi8(counts, zero);
            let weight = _mm256_set1_epi16(weight.cast_signed());
            let first = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(absent));
            let second = _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(absent));
            low = _mm256_adds_epu16(low, _mm256_andnot_si256(first, weight));
            high = _mm256_adds_epu16(high, _mm256_andnot_si256(second, weight));
        });
        [low, high]
    }

    /// [`FeatureCounters::ranks`].
    #[target_feature(enable = "avx2")]
    pub(super) fn ranks(counters: &FeatureCounters, request: Touches<'_>) -> Lanes {
        let [low, high] = sums(counters, request);
        let mut ranks = [0; LANES];
        let (first, second) = ranks.split_at_mut(LANES / 2);
        // SAFETY: each half has 16 values of two bytes; the store needs no alignment.
        unsafe {
            _mm256_storeu_si256(first.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(second.as_mut_ptr().cast(), high);
        }
        ranks
    }

    /// The least of 32 unsigned values.
    #[target_feature(enable = "avx2")]
    fn least(low: __m256i, high: __m256i) -> u16 {
        let both = _mm256_min_epu16(low, high);
        let eight =
            _mm_min_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
        _mm_extract_epi16::<0>(_mm_minpos_epu16(eight)) as u16
    }

    /// A bit for each of 32 values of which all bits are set, none for those of which none is.
    #[target_feature(enable = "avx2")]
    fn bits(low: __m256i, high: __m256i) -> u32 {
        // Packing works within halves; the permutation brings them into their order.
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
        _mm256_movemask_epi8(packed).cast_unsigned()
    }

    /// [`FeatureCounters::best`].
    #[target_feature(enable = "avx2")]
    pub(super) fn best(
        counters: &FeatureCounters,
        request: Touches<'_>,
        queued: &Lanes,
        longest: u16,
    ) -> Best {
        let [low, high] = sums(counters, request);
        let (one, all) = (_mm256_set1_epi16(1), _mm256_set1_epi16(-1));
        let ([first, second], longest) = (load(queued), _mm256_set1_epi16(longest.cast_signed()));
        let open = [first, second]
            .map(|queued| _mm256_cmpeq_epi16(_mm256_min_epu16(queued, longest), queued));
        let low = _mm256_and_si256(_mm256_adds_epu16(low, one), open[0]);
        let high = _mm256_and_si256(_mm256_adds_epu16(high, one), open[1]);
        // The highest is the least of the complements.
        let highest = !least(_mm256_xor_si256(low, all), _mm256_xor_si256(high, all));
        if highest == 0 {
            return Best::default();
        }
        let wanted = _mm256_set1_epi16(highest.cast_signed());
        let (low, high) = (_mm256_cmpeq_epi16(low, wanted), _mm256_cmpeq_epi16(high, wanted));
        let tied = bits(low, high);
        let first = _mm256_or_si256(first, _mm256_andnot_si256(low, all));
        let second = _mm256_or_si256(second, _mm256_andnot_si256(high, all));
        let wanted = _mm256_set1_epi16(least(first, second).cast_signed());
        let shortest = bits(_mm256_cmpeq_epi16(first, wanted), _mm256_cmpeq_epi16(second, wanted));
        Best { rank: highest - 1, tied, shortest: shortest & tied }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream};

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
        for turn in 0..60 {
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
                let ways = [listed.get(), None];
                for (counters, listed) in both.iter_mut().zip(ways) {
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
            for counters in &both {
                assert_eq!(counters.ranks(touches(&request)), expected);
                let listed = list(&request);
                let listed = Touches { listed: listed.get(), ..touches(&request) };
                assert_eq!(counters.ranks(listed), expected);
                let best = counters.best(touches(&request), &queued, longest);
                assert_eq!(best.rank, highest.unwrap_or_default().min(u16::MAX - 1));
                assert_eq!(best.tied == 0, highest.is_none());
            }
            let best = both.each_ref().map(|one| one.best(touches(&request), &queued, longest));
            assert_eq!(best[0], best[1]);
            let full = [u16::MAX; LANES];
            let closed = both.each_ref().map(|one| one.best(touches(&request), &full, longest));
            assert_eq!(closed, [Best::default(); 2]);
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
