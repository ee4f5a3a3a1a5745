//! Named computation steps, charged to the core that makes them.

/// A step of computation between fabric calls. Its cost is a number of the profile, in
/// nanoseconds on a host core, scaled to NIC cores by the profile's core ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Looking one key up in the NIC index, locking or unlocking it. [Xenic21 4.1.3]
    IndexLookup,
    /// Looking one key up in a host hash table (one probe sequence in local memory).
    TableLookup,
    /// Applying one logged write to a host table. [Xenic21 4.2 (7)]
    TableApply,
    /// Setting up or tearing down a transaction's state.
    TxnSetup,
    /// The application's execution logic, per key it touches. [Xenic21 4.2 (3)]
    Execute {
        /// Keys of the transaction.
        keys: u16,
    },
    /// Generating one transaction at a client and recording its end.
    Client,
    /// Executing the operations of a chain in software, besides what crosses PCIe. [PRISM21 4.1]
    Chain { operations: u16 },
    /// Computing a table-driven CRC-64 over bytes in local memory. [PRISM21 2.1, 6]
    Crc64 { bytes: u32 },
    /// Framing a message that leaves as a one-sided WRITE, which is charged besides: what a message
    /// costs in a frame, without the frame. [Xenic21 2.2.2]
    MessageFramed { bytes: u32 },
    /// Taking a message out of memory that was polled: what a message costs that comes in a frame,
    /// without the frame. [Xenic21 2.2.2]
    MessagePolled { bytes: u32 },
    /// Computation whose time on this core is given, not the profile's: what a user says of a
    /// system that is only planned, or what was measured of a library.
    Given { nanos: u64 },
    /// Copying bytes between buffers.
    Copy { bytes: u32 },
}
