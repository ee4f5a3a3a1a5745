//! One-sided operations and chains of them: the primitives of PRISM (SOSP '21, section 3, Table 1).
//!
//! A [`Chain`] is built by its client, sent in one request, and executed at the target in order;
//! its reply holds an [`Outcome`] per operation ([`ChainResults`]). The four plain verbs of
//! [`OneSided`](crate::fabric::OneSided) travel and execute as chains of one operation whose reply
//! is the bare output.
//!
//! - **Addresses** are offsets into the region of the operation's rkey, or [`scratch`]: 32 bytes
//!   that each chain has to itself while it is under way, zero at first (the paper's per-connection
//!   buffer in NIC memory, AMB-11). A pointer in a region is a little-endian word that holds an
//!   offset into the *same* region, so that one rkey covers the target and what it points to; a
//!   bounded pointer is followed by a word with the bound.
//! - **Failure**: a compare-and-swap whose comparison does not hold, and an operation that is
//!   refused, are unsuccessful. A conditional operation is skipped unless the one before it was
//!   successful; being skipped is being unsuccessful. An unconditional operation runs in any case,
//!   so that a chain may end with a READ of what it allocated in vain (AMB-12). A refused operation
//!   leaves memory alone.
//! - **Atomicity**: of CAS and FETCH-ADD with respect to all one-sided operations, and of READs and
//!   WRITEs within an aligned span of 256 bytes. Nothing else is: other operations come between
//!   those of a chain, and between following a pointer and accessing what it points to. Code of the
//!   target's own cores is only ordered with operations on single words.
//!
//! The order of comparisons and the departures from the paper are in decision 0009.

#[cfg(test)]
mod attacks;
mod encode;
mod encoded;
#[cfg(test)]
mod exhaustive;
#[doc(hidden)]
pub mod fuzz;
mod results;
mod run;
mod step;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;

pub use encode::{Chain, PAPER_FLAGS};
pub(crate) use encoded::Encoded;
pub use results::{ChainResults, Outcome};
pub(crate) use results::{STATUS_OK, error_status, status_error};
pub use run::{ChainAccess, Touch, run};
pub use step::{Data, Primitive, Step, Target};

/// Operations of a chain at most: each runs in short, bounded time, and so does a chain [PRISM21
/// 4.1]. The paper's longest, PRISM-RS's write, has four with AMB-12; the longest of all,
/// PRISM-TX's checks of the keys on one server, has as many as a chain may have (AMB-53).
pub const OPERATIONS_MAX: usize = 16;
/// Bytes of a chain as sent, and of its results. The target buffers both, and refuses more with
/// `NoResources` (receiver not ready) [PRISM21 4.2].
pub const CHAIN_BYTES_MAX: usize = 64 << 10;
/// Bytes of a chain's scratch. [PRISM21 4.2]
pub const SCRATCH_BYTES: usize = 32;

/// Addresses from here on are the chain's scratch: no region is that large.
const SCRATCH_BASE: u64 = 1 << 63;

/// The address of byte `at` of the chain's scratch.
pub const fn scratch(at: u64) -> u64 {
    SCRATCH_BASE + at
}
