//! What an engine counts. Plain cells of one core, read when a run is over.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An engine's counters at one instant.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct EngineStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl EngineStats {
            /// Adds the counters of another engine.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// The counts since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name - earlier.$name,)* }
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Cell<u64>,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> EngineStats {
                EngineStats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Poll rounds that did something.
    rounds,
    /// Task polls.
    tasks,
    /// Frames handed to the transport.
    frames_sent,
    /// Their bytes, headers included.
    frame_bytes_sent,
    /// Messages sent to other engines.
    messages_sent,
    /// Bytes of their bodies.
    message_bytes_sent,
    /// Frames received.
    frames_received,
    /// Messages received from other engines.
    messages_received,
    /// Frames and messages dropped because they were malformed.
    malformed,
    /// Messages of other nodes dropped because the engine had no lease.
    unleased,
    /// Requests sent again.
    retransmissions,
    /// Requests dropped because they had been delivered before, or were superseded.
    duplicates,
    /// Replies whose caller had already given up.
    late_replies,
    /// Calls that timed out.
    timeouts,
    /// Calls that ended because their receiver is known to be gone.
    fenced_calls,
    /// Frames of or for an earlier incarnation, which were dropped.
    fenced_frames,
    /// DMA reads.
    dma_reads,
    /// DMA writes.
    dma_writes,
    /// DMA vectors submitted.
    dma_vectors,
    /// Bytes moved by DMA.
    dma_bytes,
    /// Verbs posted.
    verbs,
}

/// Adds to a counter.
#[inline]
pub(super) fn count(counter: &Cell<u64>, amount: u64) {
    counter.set(counter.get() + amount);
}
