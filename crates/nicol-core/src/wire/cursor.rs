//! Reading and writing of little-endian fields with every bound checked.

/// Bytes that are not what their header claims. The message is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {what}")]
pub struct Malformed {
    /// Which field or rule was violated.
    pub what: &'static str,
}

/// Takes fields off the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(Malformed { what: "shorter than its fields" }),
        }
    }

    /// The next `N` bytes: fields that always stand together, whose bounds are checked once.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(Malformed { what: "shorter than its fields" }),
        }
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next `N` times eight bytes.
    #[inline]
    pub fn u64s<const N: usize>(&mut self) -> Result<[u64; N], Malformed> {
        let words = self.bytes(N * size_of::<u64>())?.as_chunks().0;
        Ok(std::array::from_fn(|word| u64::from_le_bytes(words[word])))
    }

    /// Succeeds if nothing is left.
    #[inline]
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed { what: "trailing bytes" }) }
    }
}

/// Appends `bytes` to a buffer. Most values are as long as a number: those take a load and a store
/// each, where a copy of any length is a call.
#[inline]
pub fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    if let Ok(number) = <&[u8; 4]>::try_from(bytes) {
        buffer.extend_from_slice(number);
    } else if let Ok(number) = <&[u8; 8]>::try_from(bytes) {
        buffer.extend_from_slice(number);
    } else if !bytes.is_empty() {
        buffer.extend_from_slice(bytes);
    }
}

/// Appends fields to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `buffer`.
    #[inline]
    pub const fn new(buffer: &'a mut Vec<u8>) -> Self {
        Self { buffer }
    }

    /// Bytes in the buffer so far.
    pub fn position(&self) -> usize {
        self.buffer.len()
    }

    /// Puts four bytes where others were appended, at `position` of the buffer.
    ///
    /// # Panics
    /// If there are none.
    pub fn put_u32(&mut self, position: usize, value: u32) {
        self.buffer[position..position + size_of::<u32>()].copy_from_slice(&value.to_le_bytes());
    }

    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        append(self.buffer, bytes);
    }

    /// Appends fields that always stand together.
    #[inline]
    pub fn array<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Appends `count` bytes that are zero.
    pub fn zeros(&mut self, count: usize) {
        self.buffer.resize(self.buffer.len() + count, 0);
    }

    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.buffer.push(value);
    }

    /// Appends two bytes.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.array(&value.to_le_bytes());
    }

    /// Appends four bytes.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.array(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.array(&value.to_le_bytes());
    }
}
