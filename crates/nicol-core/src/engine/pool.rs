//! Pooled buffers: what futures resolve to.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// Bytes of the buffers kept for reuse: what an engine has in hand at a time is less, and more
/// would be memory that nothing counts.
const KEPT_BYTES_MAX: usize = 512 << 10;
/// A buffer that grew beyond this is freed instead of kept.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Empty buffers for reuse: as many as are within a limit of bytes together.
#[derive(Debug, Default)]
pub struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl SpareBuffers {
    /// One of them, or a new one.
    #[inline]
    pub fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Empties `buffer` and keeps it; frees it if it is large or those kept are enough.
    #[inline]
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let (bytes, enough) = (buffer.capacity(), self.bytes >= KEPT_BYTES_MAX);
        if bytes == 0 || enough || !Self::keeps(&buffer) {
            return;
        }
        buffer.clear();
        self.buffers.push(buffer);
        self.bytes += bytes;
    }

    /// Whether `buffer` is small enough to be kept.
    pub fn keeps(buffer: &Vec<u8>) -> bool {
        buffer.capacity() <= BUFFER_BYTES_MAX
    }
}

/// An engine's spare buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Rc<RefCell<SpareBuffers>>);

impl Pool {
    #[inline]
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().take()
    }

    #[inline]
    pub(super) fn give(&self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            self.0.borrow_mut().give(buffer);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_buffers_are_few_bytes_however_many_come_back() {
        let mut spare = SpareBuffers::default();
        for bytes in [BUFFER_BYTES_MAX, BUFFER_BYTES_MAX + 1, 3_000] {
            (0..1_000).for_each(|_| spare.give(Vec::with_capacity(bytes)));
            let kept: usize = spare.buffers.iter().map(Vec::capacity).sum();
            assert_eq!(kept, spare.bytes);
            assert!((1..=KEPT_BYTES_MAX + BUFFER_BYTES_MAX).contains(&kept), "{kept}");
        }
        let taken: usize = (0..1_000).map(|_| spare.take().capacity()).sum();
        assert!(taken > 0 && spare.bytes == 0);
    }
}
