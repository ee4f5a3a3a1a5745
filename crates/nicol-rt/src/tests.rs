//! What threads share, on threads: parkers, rings with their marks, mailboxes. Apart from the files
//! themselves, which `tests/loom` compiles and tries in every order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nicol_core::fabric::HasDoorbell;
use nicol_core::rng::test_steps;

use crate::mailbox::Mailbox;
use crate::parker::Parker;
use crate::ring::{ReadySet, ring};

#[test]
fn no_wake_up_is_lost() {
    let rounds = test_steps(2_000);
    let (parker, work) = (Arc::new(Parker::default()), Arc::new(AtomicU64::new(0)));
    let sleeper = {
        let (parker, work) = (parker.clone(), work.clone());
        thread::spawn(move || {
            parker.adopt();
            let mut done = 0;
            let started = Instant::now();
            while done < rounds {
                let left = work.load(Ordering::SeqCst);
                if left > done {
                    done = left;
                } else {
                    let has_work = || work.load(Ordering::SeqCst) > done;
                    parker.park(has_work, || thread::park_timeout(Duration::from_secs(20)));
                }
            }
            started.elapsed()
        })
    };
    for round in 1..=rounds {
        work.store(round, Ordering::SeqCst);
        parker.wake();
        if round % 16 == 0 {
            thread::sleep(Duration::from_micros(20));
        }
    }
    // One lost wake-up would cost the whole limit of a sleep.
    assert!(sleeper.join().unwrap() < Duration::from_secs(20));
}

/// A sender and a receiver as `LiveWorld` is both: a frame, a mark, a wake; the marks, the
/// frames, the buffers back, and sleep.
#[test]
fn frames_of_another_thread_come_whole_and_in_order_and_their_buffers_go_back() {
    let frames = test_steps(20_000);
    let (mut outgoing, mut incoming) = ring();
    let shared = Arc::new((ReadySet::new(1), Parker::default()));
    let sender = {
        let shared = shared.clone();
        move || {
            let (ready, parker) = &*shared;
            let mut reused = 0;
            for number in 0..frames {
                let mut frame = outgoing.returned.pop().unwrap_or_default();
                reused += u64::from(frame.capacity() > 0);
                frame.extend_from_slice(&number.to_le_bytes());
                while let Err(rtrb::PushError::Full(back)) = outgoing.frames.push(frame) {
                    frame = back;
                    thread::yield_now();
                }
                ready.mark(0);
                parker.wake();
            }
            reused
        }
    };
    let (ready, parker) = &*shared;
    parker.adopt();
    let sender = thread::spawn(sender);
    let (mut marks, mut received) = ([0], 0_u64);
    while received < frames {
        if !ready.take(&mut marks) {
            parker.park(|| ready.any(), thread::park);
            continue;
        }
        while let Ok(mut frame) = incoming.frames.pop() {
            assert_eq!(frame, received.to_le_bytes());
            received += 1;
            frame.clear();
            // A full ring of buffers means that the sender has enough.
            let _full = incoming.returned.push(frame);
        }
    }
    let reused = sender.join().unwrap();
    assert!(reused > 0, "no buffer came back to its sender");
}

#[test]
fn every_engine_has_a_mark_of_its_own() {
    let ready = ReadySet::new(130);
    let mut marks = [0; 3];
    for engine in [0, 63, 64, 129] {
        assert!(!ready.any());
        ready.mark(engine);
        assert!(ready.any() && ready.take(&mut marks));
        assert!(!ready.take(&mut marks), "a mark is taken once");
    }
    assert_eq!(marks, [1 << 63 | 1, 1, 2]);
}

#[test]
fn requests_of_several_threads_come_once_each_and_in_the_order_of_each() {
    let each = test_steps(10_000);
    let mailbox = Arc::new(Mailbox::new(8));
    let senders: Vec<_> = (0..3)
        .map(|sender| {
            let mailbox = mailbox.clone();
            thread::spawn(move || {
                for number in 0..each {
                    while mailbox.push((sender, number)).is_err() {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; 3];
    while next != [each; 3] {
        let Some((sender, number)) = mailbox.pop() else {
            thread::yield_now();
            continue;
        };
        assert_eq!(number, next[sender]);
        next[sender] += 1;
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!((mailbox.pop(), mailbox.doorbell().rings()), (None, 3 * each));
}

#[test]
fn a_full_mailbox_gives_the_request_back() {
    let mailbox = Mailbox::new(1);
    assert_eq!(mailbox.push('a'), Ok(()));
    assert_eq!((mailbox.push('b'), mailbox.doorbell().rings()), (Err('b'), 1));
    assert_eq!((mailbox.pop(), mailbox.pop()), (Some('a'), None));
}
