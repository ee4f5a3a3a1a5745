//! Rings of frames between engines, and the set of rings that have something.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::sync::atomic::{AtomicU64, Ordering};

/// Frames that a ring holds; a sender with more waits (its engine holds them back).
pub(crate) const RING_FRAMES: usize = 256;

/// Bytes of memory that the rings between so many engines take at least: one from each to each.
pub const fn ring_bytes(engines: u64) -> u64 {
    let ring = 2 * RING_FRAMES * size_of::<Vec<u8>>();
    engines.saturating_mul(engines).saturating_mul(ring as u64)
}

/// The sending end: frames out, empty buffers back.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) frames: Producer<Vec<u8>>,
    pub(crate) returned: Consumer<Vec<u8>>,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) frames: Consumer<Vec<u8>>,
    pub(crate) returned: Producer<Vec<u8>>,
}

/// A ring from one engine to another.
pub(crate) fn ring() -> (Outgoing, Incoming) {
    let (sender, receiver) = RingBuffer::new(RING_FRAMES);
    let (giver, taker) = RingBuffer::new(RING_FRAMES);
    (Outgoing { frames: sender, returned: taker }, Incoming { frames: receiver, returned: giver })
}

/// Which engines have left frames for one engine: a bit each.
#[derive(Debug)]
pub(crate) struct ReadySet(Box<[AtomicU64]>);

impl ReadySet {
    pub(crate) fn new(engines: usize) -> Self {
        Self((0..engines.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks `engine`, after its frame is in the ring.
    pub(crate) fn mark(&self, engine: usize) {
        self.0[engine / 64].fetch_or(1 << (engine % 64), Ordering::SeqCst);
    }

    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Takes the marks into `into`; true if there were any. A frame pushed before a mark that is
    /// taken here is in its ring; one pushed later leaves a new mark.
    pub(crate) fn take(&self, into: &mut [u64]) -> bool {
        let mut any = false;
        for (word, into) in self.0.iter().zip(into) {
            if word.load(Ordering::Relaxed) != 0 {
                *into |= word.swap(0, Ordering::AcqRel);
                any = true;
            }
        }
        any
    }
}
