//! The decision: which worker a request goes to. [AlNiCo22, scheduling algorithm]
//!
//! Each worker has counters of the features of the requests that it has, and what it *shows* of
//! them: a feature that is steered to a worker is shown there alone. A request's rank at a worker
//! is the sum of the weights of the features that both show, in conflict; the highest rank wins.
//! Counters and sums are [`FeatureCounters`].

use nicol_store::feature_counters::{FEATURES, FeatureCounters, LANES, Lanes, NONE, Touches};

use super::features::Features;

/// Workers at most.
pub const WORKERS_MAX: usize = LANES;
/// Decisions after which an artifact's scheduler looks at its counters again. (C2.06)
const REFRESH: u64 = 1_024;
/// Requests that a worker has at most: its counters have 8 bits, and its queue has as many places.
pub const OPEN_MAX: u16 = u8::MAX as u16;

/// Requests by which a queue may be longer than twice the mean.
const QUEUE_SLACK: u16 = 4;

/// How ranks are compared, and when counters count. (AMB-22)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// Ties go to the lowest worker, no rank to the client's hint; counters are looked at every
    /// 1,024 decisions.
    Artifact,
    /// Ties, of no rank too, go to the shortest queue, then in turn; a worker with a much longer
    /// queue than the mean is passed over, since what it has makes its rank the highest again and
    /// again; counters count at once.
    Improved,
}

/// Which features are in conflict. (AMB-23)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planes {
    /// Those that both touch.
    One,
    /// Those that both touch and one writes.
    Two,
}

/// The software's input to the scheduler: how hot each feature is, and who steers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Grows with each that is published.
    pub epoch: u64,
    pub weights: Box<[u8; FEATURES]>,
    /// By feature: a worker, or [`NONE`].
    pub steering: Box<[u8; FEATURES]>,
}

impl Vectors {
    /// No feature weighs anything, and nobody steers any: requests go where clients would send
    /// them, or to the shortest queue.
    pub fn none() -> Self {
        Self { epoch: 0, weights: Box::new([0; FEATURES]), steering: Box::new([NONE; FEATURES]) }
    }
}

/// The scheduler's state.
#[derive(Clone, Debug)]
pub struct Scheduler {
    workers: usize,
    ranking: Ranking,
    planes: Planes,
    counters: FeatureCounters,
    epoch: u64,
    decisions: u64,
    turn: usize,
    /// Requests that each worker has; those that do not exist have the most there is.
    queued: Lanes,
    /// Requests of all workers.
    open: u32,
}

impl Scheduler {
    /// A scheduler for `workers` workers.
    ///
    /// # Panics
    /// If there are none, or more than [`WORKERS_MAX`].
    pub fn new(workers: usize, ranking: Ranking, planes: Planes) -> Self {
        assert!((1..=WORKERS_MAX).contains(&workers), "1 to {WORKERS_MAX} workers");
        Self {
            workers,
            ranking,
            planes,
            counters: FeatureCounters::new(ranking == Ranking::Artifact),
            epoch: 0,
            decisions: 0,
            turn: 0,
            queued: std::array::from_fn(|worker| if worker < workers { 0 } else { u16::MAX }),
            open: 0,
        }
    }

    /// The same, without what only some machines have.
    pub fn portable(self) -> Self {
        Self { counters: self.counters.portable(), ..self }
    }

    /// Takes vectors over, both at once; returns false of some that are not newer than its own.
    pub fn publish(&mut self, vectors: &Vectors) -> bool {
        if vectors.epoch <= self.epoch {
            return false;
        }
        self.epoch = vectors.epoch;
        let known = |worker: u8| if usize::from(worker) < self.workers { worker } else { NONE };
        let steering = vectors.steering.map(known);
        self.counters.publish(&vectors.weights, &steering);
        self.counters.look();
        true
    }

    /// The epoch of the vectors that decisions rest on.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The weight of `feature`.
    pub const fn weight(&self, feature: usize) -> u8 {
        self.counters.weight(feature)
    }

    /// Requests that a worker has.
    pub const fn queued(&self, worker: usize) -> u16 {
        self.queued[worker]
    }

    /// The conflicts of a request: with one plane every feature counts as written.
    const fn touches<'a>(planes: Planes, request: &'a Features) -> Touches<'a> {
        request.touches(matches!(planes, Planes::One))
    }

    /// The rank of a request at each worker.
    pub fn ranks(&self, request: &Features) -> Lanes {
        self.counters.ranks(Self::touches(self.planes, request))
    }

    /// The longest queue that a request may join.
    fn longest(&self) -> u16 {
        let full = OPEN_MAX - 1;
        match self.ranking {
            Ranking::Artifact => full,
            Ranking::Improved => {
                let mean_twice = 2 * self.open / self.workers as u32;
                mean_twice.min(full.into()) as u16 + QUEUE_SLACK
            }
        }
        .min(full)
    }

    /// Decides who gets a request whose client would send it to `hint`, and counts it there.
    /// Workers whose queues are too long are passed over; `None` if all have [`OPEN_MAX`] requests.
    ///
    /// Cost: that of [`FeatureCounters::best`], and a step a feature.
    pub fn decide(&mut self, request: &Features, hint: usize) -> Option<usize> {
        let touches = Self::touches(self.planes, request);
        let longest = self.longest();
        let best = self.counters.best(touches, &self.queued, longest);
        if best.tied == 0 {
            return None;
        }
        let winner = match self.ranking {
            Ranking::Artifact => match hint % self.workers {
                hint if best.rank == 0 && self.queued[hint] <= longest => hint,
                _ => best.tied.trailing_zeros() as usize,
            },
            Ranking::Improved => {
                let later = best.shortest >> self.turn << self.turn;
                self.turn = if self.turn + 1 == self.workers { 0 } else { self.turn + 1 };
                (if later == 0 { best.shortest } else { later }).trailing_zeros() as usize
            }
        };
        self.counters.add(winner, touches);
        self.queued[winner] += 1;
        self.open += 1;
        self.decisions += 1;
        if self.ranking == Ranking::Artifact && self.decisions.is_multiple_of(REFRESH) {
            self.counters.look();
        }
        Some(winner)
    }

    /// A request that was decided for `worker` is done.
    ///
    /// # Panics
    /// If the worker has none.
    pub fn done(&mut self, worker: usize, request: &Features) {
        assert!(self.queued[worker] > 0, "what is done was decided");
        self.counters.remove(worker, Self::touches(self.planes, request));
        self.queued[worker] -= 1;
        self.open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::{Purpose, Stream};

    use super::*;

    fn request(features: &[(usize, bool)]) -> Features {
        let mut request = Features::default();
        features.iter().for_each(|(feature, write)| request.add(*feature, *write));
        request
    }

    /// A scheduler for which every feature weighs 1.
    fn scheduler(workers: usize, ranking: Ranking, planes: Planes) -> Scheduler {
        let mut scheduler = Scheduler::new(workers, ranking, planes);
        let even = Vectors { epoch: 1, weights: Box::new([1; FEATURES]), ..Vectors::none() };
        assert!(scheduler.publish(&even));
        scheduler
    }

    #[test]
    fn a_queue_that_is_much_longer_than_the_mean_is_passed_over() {
        let mut scheduler = scheduler(4, Ranking::Improved, Planes::One);
        let hot = request(&[(7, true)]);
        let given: Vec<_> = (0..100).map(|_| scheduler.decide(&hot, 0).unwrap()).collect();
        let first = given.iter().filter(|worker| **worker == given[0]).count();
        assert!((40..70).contains(&first), "{first} of 100");
    }

    #[test]
    fn a_full_worker_is_passed_over_and_nothing_is_decided_when_all_are() {
        for ranking in [Ranking::Improved, Ranking::Artifact] {
            let mut scheduler = scheduler(3, ranking, Planes::One);
            let hot = request(&[(7, true)]);
            let given: Vec<_> = (0..3 * OPEN_MAX).map(|_| scheduler.decide(&hot, 1)).collect();
            assert!(given.iter().all(Option::is_some));
            assert!((0..3).all(|worker| scheduler.queued(worker) == OPEN_MAX));
            assert_eq!(scheduler.decide(&hot, 1), None);
            scheduler.done(2, &hot);
            assert_eq!(scheduler.decide(&hot, 1), Some(2));
        }
    }

    #[test]
    fn ties_and_no_rank_go_where_each_ranking_says() {
        let one = request(&[(7, true)]);
        let mut artifact = scheduler(4, Ranking::Artifact, Planes::Two);
        assert_eq!([2, 9].map(|hint| artifact.decide(&one, hint)), [Some(2), Some(1)], "the hint");
        artifact.counters.look();
        assert_eq!(artifact.decide(&one, 3), Some(1), "a tie of workers 1 and 2");
        let mut improved = scheduler(3, Ranking::Improved, Planes::Two);
        let spread: Vec<usize> =
            (0..3).filter_map(|at| improved.decide(&request(&[(at, true)]), 0)).collect();
        assert_eq!(spread, [0, 1, 2]);
        assert_eq!(improved.decide(&request(&[(1, true)]), 0), Some(1), "where the conflict is");
        // All tie: of the two shortest queues that whose turn comes first, after worker 1's.
        let all = request(&[(0, true), (1, false), (2, true)]);
        assert_eq!(improved.decide(&all, 0), Some(2));
    }

    #[test]
    fn reads_conflict_with_writes_only_if_there_are_two_planes() {
        for (planes, rank) in [(Planes::Two, 0), (Planes::One, 1)] {
            let mut scheduler = scheduler(2, Ranking::Improved, planes);
            let at = scheduler.decide(&request(&[(9, false)]), 0).unwrap();
            assert_eq!(scheduler.ranks(&request(&[(9, false)]))[at], rank);
            assert_eq!(scheduler.ranks(&request(&[(9, true)]))[at], 1);
        }
    }

    #[test]
    fn a_steered_feature_is_shown_by_its_worker_alone_and_old_vectors_are_refused() {
        let mut scheduler = scheduler(4, Ranking::Improved, Planes::One);
        let hot = request(&[(3, true)]);
        scheduler.decide(&hot, 0);
        let mut vectors = Vectors { epoch: 5, ..Vectors::none() };
        vectors.weights[3] = 90;
        vectors.steering[3] = 2;
        vectors.steering[4] = 17;
        assert!(scheduler.publish(&vectors));
        for old in [5, 4, 0] {
            let old = Vectors { epoch: old, ..Vectors::none() };
            assert!(!scheduler.publish(&old), "epoch {}", old.epoch);
        }
        assert_eq!((scheduler.epoch(), scheduler.weight(3)), (5, 90));
        let ranks = scheduler.ranks(&hot);
        assert_eq!((ranks[0], ranks[2]), (0, 90));
        assert_eq!(scheduler.decide(&hot, 0), Some(2));
        assert_eq!(scheduler.ranks(&request(&[(4, true)])), [0; WORKERS_MAX], "no such worker");
    }

    #[test]
    fn hostile_features_cost_no_request_and_leave_nothing_behind() {
        let mut random = Stream::new(2, Purpose::Test, 0);
        let everything = request(&(0..FEATURES).map(|at| (at, true)).collect::<Vec<_>>());
        for ranking in [Ranking::Improved, Ranking::Artifact] {
            let mut scheduler = Scheduler::new(22, ranking, Planes::Two);
            // Every feature weighs all it can: sums end at their limit.
            let mut vectors = Vectors { epoch: 1, ..Vectors::none() };
            vectors.weights.fill(u8::MAX);
            vectors.steering.fill(5);
            assert!(scheduler.publish(&vectors));
            let mut given = Vec::new();
            for turn in 0..3_000_usize {
                let honest = request(&[(random.below(512) as usize, true)]);
                let one = if turn.is_multiple_of(3) { everything } else { honest };
                given.push((scheduler.decide(&one, turn).unwrap(), one));
            }
            assert!((0..22).all(|worker| scheduler.queued(worker) > 0), "nobody is left out");
            given.drain(..).for_each(|(worker, one)| scheduler.done(worker, &one));
            vectors = Vectors { epoch: 2, weights: vectors.weights, ..Vectors::none() };
            assert!(scheduler.publish(&vectors));
            assert_eq!(scheduler.ranks(&everything), [0; WORKERS_MAX]);
        }
    }

    #[test]
    fn counters_return_to_nothing_and_never_wrap() {
        let mut random = Stream::new(1, Purpose::Test, 0);
        let mut scheduler = scheduler(22, Ranking::Improved, Planes::Two);
        let mut given = Vec::new();
        for _ in 0..2_000 {
            let mut one = Features::default();
            (0..16).for_each(|_| one.add(random.below(40) as usize, random.below(2) == 0));
            given.push((scheduler.decide(&one, 0).unwrap(), one));
        }
        assert!(given.iter().all(|(worker, _)| *worker < 22));
        given.iter().for_each(|(worker, one)| scheduler.done(*worker, one));
        let all = request(&(0..FEATURES).map(|at| (at, true)).collect::<Vec<_>>());
        assert_eq!(scheduler.ranks(&all), [0; WORKERS_MAX]);
        assert!((0..22).all(|worker| scheduler.queued(worker) == 0));
    }
}
