//! An event loop on an engine's thread: it gets its turns beside busy and idle engines, is woken by
//! engines of its own thread and of others, and ends with the cluster.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, HasDoorbell};
use nicol_core::ids::{EngineId, NodeId};
use nicol_core::serving::{EventLoop, Turn};
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LiveConfig, Mailbox};

/// Ends waits.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.ringing.notify_all();
    }
}

/// Asks the engine of a mailbox, and waits for its answer before it asks again.
struct Asker {
    bell: Arc<Bell>,
    ask: Arc<Mailbox<Sender<()>>>,
    answers: (Sender<()>, Receiver<()>),
    waits: bool,
    /// Questions that are left.
    left: usize,
    turns: Arc<AtomicUsize>,
    dropped: Arc<AtomicBool>,
}

impl EventLoop for Asker {
    fn wait(&mut self, limit: Duration) {
        let rung = self.bell.rung.lock().unwrap();
        let (mut rung, _) =
            self.bell.ringing.wait_timeout_while(rung, limit, |rung| !*rung).unwrap();
        *rung = false;
    }

    fn turn(&mut self) -> Turn {
        self.turns.fetch_add(1, Ordering::SeqCst);
        if self.waits && self.answers.1.try_recv().is_err() {
            return Turn::Idle;
        }
        if self.left == 0 {
            return Turn::Ended;
        }
        self.left -= 1;
        self.waits = true;
        assert!(self.ask.push(self.answers.0.clone()).is_ok(), "one question at a time");
        Turn::Worked
    }

    fn waker(&self) -> Waker {
        self.bell.clone().into()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
    }
}

/// The host engine of node 1 answers, and then rings the asker's bell. Its other engine never rests
/// if it is `busy`.
struct Answers {
    asked: Arc<Mailbox<Sender<()>>>,
    bell: Arc<Bell>,
    busy: bool,
}

impl Start for Answers {
    fn start<F: Fabric>(&self, fabric: &F) {
        let (engine, here) = (fabric.clone(), fabric.here());
        if here == EngineId::nic(NodeId(1), 0) && self.busy {
            fabric.spawn(async move {
                loop {
                    engine.yield_now().await;
                }
            });
        } else if here == EngineId::host(NodeId(1), 0) {
            let (asked, bell) = (self.asked.clone(), self.bell.clone());
            fabric.spawn(async move {
                let doorbell: Arc<dyn HasDoorbell> = asked.clone();
                loop {
                    let seen = doorbell.doorbell().rings();
                    while let Some(answer) = asked.pop() {
                        // The loop is gone when the last one comes.
                        let _gone = answer.send(());
                        bell.clone().wake();
                    }
                    engine.wait_for_doorbell(&doorbell, seen).await;
                }
            });
        }
    }
}

/// A cluster of two nodes with an asker.
struct Running {
    cluster: LiveCluster,
    asked: Arc<Mailbox<Sender<()>>>,
    turns: Arc<AtomicUsize>,
    dropped: Arc<AtomicBool>,
}

impl Running {
    /// The asker is on the last thread, with node 1, and has so many questions; `None`: it waits
    /// for an answer that never comes.
    fn launch(threads: usize, busy: bool, questions: Option<usize>) -> Self {
        let view = View::new(2, 1, 1, 1).unwrap();
        let config = LiveConfig { threads: Some(threads), spin: false, ..LiveConfig::new(view) };
        let (asked, bell) = (Arc::new(Mailbox::new(4)), Arc::<Bell>::default());
        let start = Answers { asked: asked.clone(), bell: bell.clone(), busy };
        let cluster = LiveCluster::launch(&config, Arc::new(start)).unwrap();
        let (turns, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let asker = Asker {
            bell,
            ask: asked.clone(),
            answers: mpsc::channel(),
            waits: questions.is_none(),
            left: questions.unwrap_or_default(),
            turns: turns.clone(),
            dropped: dropped.clone(),
        };
        cluster.attach(threads - 1, Box::new(asker)).unwrap();
        Self { cluster, asked, turns, dropped }
    }

    fn has_ended(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }

    /// Waits until every question is answered. A wake-up that is lost costs a sleep of 100 ms, and
    /// 2,000 of them minutes.
    fn assert_answered(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        let over = || self.has_ended() || Instant::now() > until;
        self.cluster.run_until(over, Duration::from_millis(1)).unwrap();
        assert!(self.has_ended(), "still asking after {} turns", self.turns());
    }
}

#[test]
fn what_engines_of_its_thread_answer_is_taken_at_once() {
    for threads in [1, 2] {
        Running::launch(threads, false, Some(2_000)).assert_answered();
    }
}

#[test]
fn engines_of_a_thread_that_sleeps_in_it_are_woken() {
    let running = Running::launch(2, false, None);
    let (answer, answered) = mpsc::channel();
    let begun = Instant::now();
    for _ in 0..1_000 {
        assert!(running.asked.push(answer.clone()).is_ok());
        answered.recv().unwrap();
    }
    // A wake-up that is lost costs some 40 ms.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn engines_that_never_rest_leave_it_its_turns() {
    let running = Running::launch(2, true, Some(2_000));
    running.assert_answered();
    let report = running.cluster.stop().unwrap();
    assert_eq!(report.parks[1], 0, "its thread had no time to sleep");
}

#[test]
fn without_work_it_sleeps_and_it_ends_with_the_cluster() {
    let running = Running::launch(1, false, None);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(350));
    assert!(!running.has_ended());
    // One after each sleep of 100 ms, however long this test's own sleep was, and a few at the
    // start.
    let (turns, passed) = (running.turns(), begun.elapsed());
    assert!(turns < 17 + passed.as_millis() as usize / 100, "{turns} turns in {passed:?}");
    let Running { cluster, dropped, .. } = running;
    cluster.stop().unwrap();
    assert!(dropped.load(Ordering::SeqCst));
}
