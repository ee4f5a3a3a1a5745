//! Pooled buffers: what futures resolve to.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// Buffers kept for reuse.
const KEPT_MAX: usize = 4_096;
/// A buffer that grew beyond this is freed instead of kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// An engine's spare buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Rc<RefCell<Vec<Vec<u8>>>>);

impl Pool {
    #[inline]
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    #[inline]
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 {
            return;
        }
        let mut spare = self.0.borrow_mut();
        if spare.len() < KEPT_MAX && buffer.capacity() <= KEPT_BYTES_MAX {
            buffer.clear();
            spare.push(buffer);
        }
    }

    #[inline]
    pub(super) fn payload(&self, buffer: Vec<u8>) -> Payload {
        // Most replies are empty: there is nothing to give back.
        let pool = (buffer.capacity() > 0).then(|| self.clone());
        Payload { buffer, pool }
    }

    #[inline]
    pub(super) fn copy(&self, bytes: &[u8]) -> Payload {
        if bytes.is_empty() {
            return self.payload(Vec::new());
        }
        let mut buffer = self.take();
        buffer.extend_from_slice(bytes);
        self.payload(buffer)
    }
}

/// Bytes in a pooled buffer; dropping it gives the buffer back to its engine.
pub struct Payload {
    buffer: Vec<u8>,
    /// Where the buffer goes; none if there is nothing to keep of it.
    pool: Option<Pool>,
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give(std::mem::take(&mut self.buffer));
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.buffer.len())
    }
}
