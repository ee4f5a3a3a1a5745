//! Bytes that live as long as a transaction's run: the arguments of the commands of scripts.

use std::cell::OnceCell;

/// A list of buffers that grows while they are borrowed.
#[derive(Debug, Default)]
pub struct Arena(OnceCell<Box<Node>>);

#[derive(Debug)]
struct Node {
    bytes: Vec<u8>,
    next: Arena,
}

impl Arena {
    /// The end of the list.
    pub fn end(&self) -> End<'_> {
        End(self)
    }
}

impl Drop for Arena {
    // One after the other: a long list would exhaust the stack.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut node) = next {
            next = node.next.0.take();
        }
    }
}

/// Where the next buffer goes.
#[derive(Clone, Copy, Debug)]
pub struct End<'t>(&'t Arena);

impl<'t> End<'t> {
    /// Keeps `bytes`.
    pub fn keep(&mut self, bytes: Vec<u8>) -> &'t [u8] {
        while let Some(node) = self.0.0.get() {
            self.0 = &node.next;
        }
        let node = self.0.0.get_or_init(|| Box::new(Node { bytes, next: Arena::default() }));
        self.0 = &node.next;
        &node.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_stay_where_they_are() {
        let arena = Arena::default();
        let mut end = arena.end();
        let kept: Vec<_> = (0..100_000_u32).map(|n| end.keep(n.to_le_bytes().to_vec())).collect();
        let other = arena.end().keep(b"last".to_vec());
        assert!(kept.iter().zip(0_u32..).all(|(bytes, n)| *bytes == n.to_le_bytes()));
        assert_eq!(other, b"last");
    }
}
