//! The parker, the ready sets, the mailboxes and the doorbells of the live world under loom, which
//! tries every order of their steps and every old value that an atomic may show.
//!
//! The files are those of `nicol-rt` and `nicol-core`, compiled with loom's atomics, locks and
//! threads ([`sync`]). A thread that sleeps and is never woken is a deadlock, which loom reports.
//! The rings themselves are those of `rtrb`, into which loom cannot see: a flag that is written
//! without any order stands for a frame, so that only the mark can make it visible.
#![expect(dead_code, reason = "the files are compiled whole, and the models use a part of them")]

// The files name the core by its name.
extern crate self as nicol_core;

#[path = "../../../nicol-core/src/memory/doorbell.rs"]
mod doorbell;
#[path = "../../src/mailbox.rs"]
mod mailbox;
#[path = "../../src/parker.rs"]
mod parker;
#[path = "../../src/ring.rs"]
mod ring;
mod sync;

/// The core's module of this name.
mod memory {
    pub(crate) use crate::doorbell::Doorbell;
}

/// The core's module of this name.
mod fabric {
    pub(crate) trait HasDoorbell {
        fn doorbell(&self) -> &crate::memory::Doorbell;
    }
}

use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use fabric::HasDoorbell;
use mailbox::Mailbox;
use parker::Parker;
use ring::ReadySet;

/// Runs a model in every order, and expects that there are many.
fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    in_orders(None, model);
}

/// The same for three threads, whose orders are too many: in those in which a thread is interrupted
/// three times at most, besides where it waits.
fn in_many_orders(model: impl Fn() + Send + Sync + 'static) {
    in_orders(Some(3), model);
}

fn in_orders(interruptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let orders = std::sync::Arc::new(AtomicU64::new(0));
    let counted = orders.clone();
    let mut explored = loom::model::Builder::new();
    explored.preemption_bound = interruptions;
    explored.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    assert!(orders > 20, "{orders} orders: the threads do not meet");
}

/// What a thread that leaves a frame does, which a fault does out of turn.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    /// Frame, mark, wake.
    Whole,
    /// Wakes before it marks.
    WakesFirst,
    /// Marks before the frame is there.
    MarksFirst,
}

/// An engine waits for a frame of another one.
fn a_frame_comes(by: Sender) {
    let parker = Arc::new(Parker::default());
    let ready = Arc::new(ReadySet::new(1));
    let frame = Arc::new(AtomicBool::new(false));
    parker.adopt();
    let sender = {
        let (parker, ready, frame) = (parker.clone(), ready.clone(), frame.clone());
        thread::spawn(move || {
            let leave = || frame.store(true, Ordering::Relaxed);
            match by {
                Sender::Whole => (leave(), ready.mark(0), parker.wake()),
                Sender::WakesFirst => (leave(), parker.wake(), ready.mark(0)),
                Sender::MarksFirst => (ready.mark(0), leave(), parker.wake()),
            };
        })
    };
    let mut marks = [0];
    while !ready.take(&mut marks) {
        parker.park(|| ready.any(), thread::park);
    }
    assert_eq!(marks, [1]);
    assert!(frame.load(Ordering::Relaxed), "a mark came before its frame");
    sender.join().unwrap();
}

#[test]
fn a_frame_wakes_its_receiver_which_then_sees_it() {
    in_every_order(|| a_frame_comes(Sender::Whole));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_before_the_mark_is_lost() {
    in_every_order(|| a_frame_comes(Sender::WakesFirst));
}

#[test]
#[should_panic(expected = "a mark came before its frame")]
fn a_mark_before_the_frame_shows_an_empty_ring() {
    in_every_order(|| a_frame_comes(Sender::MarksFirst));
}

/// Two engines mark one set, whose owner takes what is there and sleeps in between.
#[test]
fn marks_of_two_senders_are_taken_once_each() {
    in_many_orders(|| {
        let parker = Arc::new(Parker::default());
        let ready = Arc::new(ReadySet::new(2));
        parker.adopt();
        let senders = [0, 1].map(|engine| {
            let (parker, ready) = (parker.clone(), ready.clone());
            thread::spawn(move || {
                ready.mark(engine);
                parker.wake();
            })
        });
        let mut taken = 0;
        while taken != 0b11 {
            let mut marks = [0];
            if !ready.take(&mut marks) {
                parker.park(|| ready.any(), thread::park);
            }
            assert_eq!(taken & marks[0], 0, "a mark was taken twice");
            taken |= marks[0];
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// How an engine waits for a mailbox.
#[derive(Clone, Copy, PartialEq)]
enum Watcher {
    /// As `SharedMemory::wait_for_doorbell` does: it watches, and looks again before it sleeps.
    Whole,
    /// It sleeps without looking again.
    LooksOnce,
}

/// Takes a request, and sleeps until there is one.
fn take(mailbox: &Mailbox<u8>, parker: &Arc<Parker>, watcher: Watcher) -> u8 {
    loop {
        let seen = mailbox.doorbell().rings();
        if let Some(request) = mailbox.pop() {
            return request;
        }
        let waker = parker.clone();
        mailbox.doorbell().notify_each(1, || move || waker.wake());
        let has_rung = || watcher == Watcher::Whole && mailbox.doorbell().rings() > seen;
        parker.park(has_rung, thread::park);
    }
}

fn a_request_comes(watcher: Watcher) {
    let parker = Arc::new(Parker::default());
    let mailbox = Arc::new(Mailbox::new(1));
    parker.adopt();
    let sender = {
        let mailbox = mailbox.clone();
        thread::spawn(move || mailbox.push(7).unwrap())
    };
    assert_eq!(take(&mailbox, &parker, watcher), 7);
    sender.join().unwrap();
}

#[test]
fn a_request_wakes_the_engine_that_begins_to_watch_while_it_comes() {
    in_every_order(|| a_request_comes(Watcher::Whole));
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_engine_that_does_not_look_again_sleeps_beside_a_request() {
    in_every_order(|| a_request_comes(Watcher::LooksOnce));
}

#[test]
fn requests_of_two_threads_come_once_each() {
    in_many_orders(|| {
        let parker = Arc::new(Parker::default());
        let mailbox = Arc::new(Mailbox::new(2));
        parker.adopt();
        let senders = [1, 2].map(|request| {
            let mailbox = mailbox.clone();
            thread::spawn(move || mailbox.push(request).unwrap())
        });
        let [first, second] = [(); 2].map(|()| take(&mailbox, &parker, Watcher::Whole));
        assert_eq!(first + second, 3);
        assert_eq!(mailbox.pop(), None);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}
