//! Requests from threads that are not engines.

use std::collections::VecDeque;

use nicol_core::fabric::HasDoorbell;
use nicol_core::memory::Doorbell;

use crate::sync::{Mutex, PoisonError};

/// A bounded queue that any thread fills and one engine empties: it waits with
/// `Fabric::wait_for_doorbell` on the mailbox's doorbell. [Xenic21 4.2: B]
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    capacity: usize,
    doorbell: Doorbell,
}

impl<T> Mailbox<T> {
    /// An empty mailbox for at most `capacity` requests.
    pub fn new(capacity: usize) -> Self {
        Self { queue: Mutex::new(VecDeque::new()), capacity, doorbell: Doorbell::default() }
    }

    /// Leaves a request, or gives it back if the mailbox is full.
    pub fn push(&self, request: T) -> Result<(), T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= self.capacity {
            return Err(request);
        }
        queue.push_back(request);
        drop(queue);
        self.doorbell.ring();
        Ok(())
    }

    /// Takes the oldest request.
    pub fn pop(&self) -> Option<T> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl<T: Send + 'static> HasDoorbell for Mailbox<T> {
    fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }
}
