//! The decision: which worker a request goes to. [AlNiCo22, scheduling algorithm]
//!
//! Each worker has counters of the features of the requests that it has, and what it *shows* of them: a
//! feature that is steered to a worker is shown there alone. A request's rank at a worker is the sum of
//! the weights of the features that both show, in conflict; the highest rank wins.

use super::features::{FEATURES, Features};

/// Workers at most: counters, masks and ranks have as many lanes.
pub const WORKERS_MAX: usize = 32;
/// A feature that no worker steers.
pub const NONE: u8 = u8::MAX;
/// Decisions after which an artifact's scheduler looks at its counters again. (C2.06)
const REFRESH: u64 = 1_024;

/// Requests by which a queue may be longer than twice the mean.
const QUEUE_SLACK: u32 = 4;

/// How ranks are compared, and when counters count. (AMB-22, A-23)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// Ties go to the lowest worker, no rank to the client's hint; counters are looked at every 1,024
    /// decisions.
    Artifact,
    /// Ties, of no rank too, go to the shortest queue, then in turn; a worker with a much longer queue
    /// than the mean is passed over; counters count at once.
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

/// What software tells the scheduler: how hot each feature is, and who steers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Grows with each that is published.
    pub epoch: u64,
    /// By feature.
    pub weights: Box<[u8; FEATURES]>,
    /// By feature: a worker, or [`NONE`].
    pub steering: Box<[u8; FEATURES]>,
}

impl Vectors {
    /// No feature weighs anything, and nobody steers any: requests go where clients would send them,
    /// or to the shortest queue.
    pub fn none() -> Self {
        Self { epoch: 0, weights: Box::new([0; FEATURES]), steering: Box::new([NONE; FEATURES]) }
    }
}

/// The counters of one plane: by feature and worker, and by feature the workers that show it.
#[derive(Clone, Debug)]
struct Counters {
    counts: Box<[[u8; WORKERS_MAX]]>,
    shown: Box<[u32; FEATURES]>,
}

impl Counters {
    fn new() -> Self {
        let counts = vec![[0; WORKERS_MAX]; FEATURES].into_boxed_slice();
        Self { counts, shown: Box::new([0; FEATURES]) }
    }

    /// Looks at the counters of a feature again.
    fn refresh(&mut self, feature: usize, steered: u8) {
        let counts = &self.counts[feature];
        let busy = (0..WORKERS_MAX).fold(0, |mask, at| mask | u32::from(counts[at] != 0) << at);
        self.shown[feature] = if steered == NONE { busy } else { 1 << steered };
    }
}

/// The scheduler's state.
#[derive(Clone, Debug)]
pub struct Scheduler {
    workers: usize,
    ranking: Ranking,
    planes: Planes,
    touched: Counters,
    written: Counters,
    vectors: Vectors,
    decisions: u64,
    turn: usize,
    /// Requests that each worker has.
    queued: [u32; WORKERS_MAX],
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
            touched: Counters::new(),
            written: Counters::new(),
            vectors: Vectors::none(),
            decisions: 0,
            turn: 0,
            queued: [0; WORKERS_MAX],
        }
    }

    /// Takes vectors over, both at once; returns false of some that are not newer than its own.
    pub fn publish(&mut self, vectors: Vectors) -> bool {
        if vectors.epoch <= self.vectors.epoch {
            return false;
        }
        self.vectors = vectors;
        let workers = self.workers;
        let steers = |worker: &mut u8| {
            if usize::from(*worker) >= workers {
                *worker = NONE;
            }
        };
        self.vectors.steering.iter_mut().for_each(steers);
        self.refresh();
        true
    }

    fn refresh(&mut self) {
        for feature in 0..FEATURES {
            let steered = self.vectors.steering[feature];
            self.touched.refresh(feature, steered);
            self.written.refresh(feature, steered);
        }
    }

    /// The epoch of the vectors that decisions rest on.
    pub const fn epoch(&self) -> u64 {
        self.vectors.epoch
    }

    /// By feature: the worker that steers it, or [`NONE`].
    pub fn steering(&self) -> &[u8; FEATURES] {
        &self.vectors.steering
    }

    /// Requests that a worker has.
    pub fn queued(&self, worker: usize) -> u32 {
        self.queued[worker]
    }

    /// The rank of a request at each worker.
    pub fn ranks(&self, request: &Features) -> [u32; WORKERS_MAX] {
        let mut ranks = [0; WORKERS_MAX];
        for feature in Features::of(&request.touched) {
            let weight = u32::from(self.vectors.weights[feature]);
            if weight == 0 {
                continue;
            }
            let writes = request.written[feature / 64] >> (feature % 64) & 1 == 1;
            let mut workers = match self.planes {
                Planes::Two if !writes => self.written.shown[feature],
                Planes::One | Planes::Two => self.touched.shown[feature],
            };
            while workers != 0 {
                ranks[workers.trailing_zeros() as usize] += weight;
                workers &= workers - 1;
            }
        }
        ranks
    }

    /// Decides who gets a request whose client would send it to `hint`, and counts it there.
    ///
    /// Cost: one step a feature of the request and worker that shows it, and one a worker.
    pub fn decide(&mut self, request: &Features, hint: usize) -> usize {
        let ranks = self.ranks(request);
        let longest = match self.ranking {
            Ranking::Artifact => u32::MAX,
            Ranking::Improved => {
                let all: u32 = self.queued[..self.workers].iter().sum();
                2 * all / self.workers as u32 + QUEUE_SLACK
            }
        };
        let is_open = |worker: &usize| self.queued[*worker] <= longest;
        let open = (0..self.workers).filter(is_open).map(|worker| ranks[worker]);
        let highest = open.max().unwrap_or_default();
        let winner = match self.ranking {
            Ranking::Artifact if highest == 0 => hint % self.workers,
            Ranking::Artifact => ranks.iter().position(|rank| *rank == highest).unwrap_or(0),
            Ranking::Improved => {
                let from = self.turn;
                self.turn = (self.turn + 1) % self.workers;
                let in_turn = (0..self.workers).map(|step| (from + step) % self.workers);
                let tied = in_turn.filter(is_open).filter(|worker| ranks[*worker] == highest);
                tied.min_by_key(|worker| self.queued[*worker]).unwrap_or(from)
            }
        };
        self.count(winner, request, u8::saturating_add);
        self.queued[winner] += 1;
        self.decisions += 1;
        if self.ranking == Ranking::Artifact && self.decisions.is_multiple_of(REFRESH) {
            self.refresh();
        }
        winner
    }

    /// A request that was decided for `worker` is done.
    pub fn done(&mut self, worker: usize, request: &Features) {
        self.count(worker, request, u8::saturating_sub);
        self.queued[worker] = self.queued[worker].saturating_sub(1);
    }

    fn count(&mut self, worker: usize, request: &Features, change: impl Fn(u8, u8) -> u8) {
        let at_once = self.ranking == Ranking::Improved;
        let planes = [(&mut self.touched, &request.touched), (&mut self.written, &request.written)];
        for (counters, plane) in planes {
            for feature in Features::of(plane) {
                let count = &mut counters.counts[feature][worker];
                *count = change(*count, 1);
                if at_once && self.vectors.steering[feature] == NONE {
                    let shown = &mut counters.shown[feature];
                    *shown = *shown & !(1 << worker) | u32::from(*count != 0) << worker;
                }
            }
        }
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
        assert!(scheduler.publish(even));
        scheduler
    }

    #[test]
    fn a_queue_that_is_much_longer_than_the_mean_is_passed_over() {
        let mut scheduler = scheduler(4, Ranking::Improved, Planes::One);
        let hot = request(&[(7, true)]);
        let given: Vec<usize> = (0..100).map(|_| scheduler.decide(&hot, 0)).collect();
        let first = given.iter().filter(|worker| **worker == given[0]).count();
        assert!((40..70).contains(&first), "{first} of 100");
    }

    #[test]
    fn ties_and_no_rank_go_where_each_ranking_says() {
        let one = request(&[(7, true)]);
        let mut artifact = scheduler(4, Ranking::Artifact, Planes::Two);
        assert_eq!([artifact.decide(&one, 2), artifact.decide(&one, 9)], [2, 1], "the hint");
        artifact.refresh();
        assert_eq!(artifact.decide(&one, 3), 1, "a tie of workers 1 and 2");
        let mut improved = scheduler(3, Ranking::Improved, Planes::Two);
        let spread: Vec<usize> =
            (0..3).map(|at| improved.decide(&request(&[(at, true)]), 0)).collect();
        assert_eq!(spread, [0, 1, 2]);
        assert_eq!(improved.decide(&request(&[(1, true)]), 0), 1, "where the conflict is");
        // All tie: of the two shortest queues that whose turn comes first, after worker 1's.
        assert_eq!(improved.decide(&request(&[(0, true), (1, false), (2, true)]), 0), 2);
    }

    #[test]
    fn reads_conflict_with_writes_only_if_there_are_two_planes() {
        for (planes, rank) in [(Planes::Two, 0), (Planes::One, 1)] {
            let mut scheduler = scheduler(2, Ranking::Improved, planes);
            let at = scheduler.decide(&request(&[(9, false)]), 0);
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
        assert!(scheduler.publish(vectors.clone()) && !scheduler.publish(vectors));
        let ranks = scheduler.ranks(&hot);
        assert_eq!((ranks[0], ranks[2]), (0, 90));
        assert_eq!(scheduler.decide(&hot, 0), 2);
        assert_eq!(scheduler.ranks(&request(&[(4, true)])), [0; WORKERS_MAX], "no such worker");
    }

    #[test]
    fn counters_return_to_nothing_and_never_wrap() {
        let mut random = Stream::new(1, Purpose::Test, 0);
        let mut scheduler = scheduler(22, Ranking::Improved, Planes::Two);
        let mut given = Vec::new();
        for _ in 0..2_000 {
            let mut one = Features::default();
            (0..16).for_each(|_| one.add(random.below(40) as usize, random.below(2) == 0));
            given.push((scheduler.decide(&one, 0), one));
        }
        assert!(given.iter().all(|(worker, _)| *worker < 22));
        given.iter().for_each(|(worker, one)| scheduler.done(*worker, one));
        scheduler.done(3, &request(&[(0, true)]));
        assert!((0..22).all(|worker| scheduler.queued(worker) == 0));
    }
}
