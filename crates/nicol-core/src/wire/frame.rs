//! Frames: what one engine has for another in one poll round, and the messages in them.

use std::ops::Range;

use super::{Malformed, Reader, Writer};
use crate::fabric::RequestId;
use crate::ids::EngineId;

/// Version of this layout; others are refused.
pub const FRAME_VERSION: u8 = 2;

/// A frame's header is two words, of which the first holds, from the lowest bit on: the checksum
/// (32 bits), version (4), epoch (12), the sender's and the receiver's incarnation (8 each); the
/// second: the number of messages (16), source and destination (24 each).
const LIVES_SHIFT: u32 = 32;
const FROM_SHIFT: u32 = 16;
const TO_SHIFT: u32 = 40;
/// Bits of an engine's name.
const ENGINE: u64 = 0xff_ffff;
/// The checksum's bytes; it covers all others.
const CHECKSUM: Range<usize> = 0..4;

/// Bytes of a frame's header: checksum of the rest, version, the sender's epoch and incarnation,
/// the receiver's incarnation as the sender knows it, messages, source, destination. The frame's
/// length is that of its messages together.
pub const FRAME_HEADER: usize = 16;
const VERSION_BITS: u32 = 4;
/// Bits of an epoch: its lowest ones, compared within a window.
const EPOCH_BITS: u32 = 12;
/// The same of an incarnation: a frame does not stay under way for 128 restarts.
const LIFE_BITS: u32 = 8;
const _: () = assert!(VERSION_BITS + EPOCH_BITS + 2 * LIFE_BITS == 32, "they share a word");
const EPOCH_SHIFT: u32 = VERSION_BITS;
const FROM_LIFE_SHIFT: u32 = EPOCH_SHIFT + EPOCH_BITS;
const TO_LIFE_SHIFT: u32 = FROM_LIFE_SHIFT + LIFE_BITS;
/// Bytes of a message's header.
pub const MESSAGE_HEADER: usize = 16;
/// Where the fields of a message's header stand in its two words, counted in bits: kind (16), class
/// (8), reserved (8), slot (16), reserved (16); sequence (32), length (32).
const CLASS_SHIFT: u32 = 16;
const SLOT_SHIFT: u32 = 32;
const LENGTH_SHIFT: u32 = 32;
const RESERVED: u64 = 0xffff_0000_ff00_0000;
/// Messages in one frame.
pub const MESSAGES_MAX: usize = u16::MAX as usize;

/// The lowest bits of a number that only grows: of an epoch or an incarnation.
///
/// It is compared with a number that the receiver knows, and stands for the one nearest to that:
/// right as long as the two differ by less than half of what `BITS` bits can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const BITS: u32>(u16);

impl<const BITS: u32> Window<BITS> {
    /// The lowest bits of `number`.
    pub const fn of(number: u32) -> Self {
        Self((number & ((1 << BITS) - 1)) as u16)
    }

    /// The number that it stands for, where that is `known` or higher.
    pub const fn from(self, known: u32) -> u32 {
        known.wrapping_add((self.0.wrapping_sub(known as u16) & ((1 << BITS) - 1)) as u32)
    }

    /// Compares the number that it stands for with `known`.
    pub const fn compare(self, known: u32) -> std::cmp::Ordering {
        let ahead = self.0.wrapping_sub(known as u16) & ((1 << BITS) - 1);
        match ahead {
            0 => std::cmp::Ordering::Equal,
            _ if ahead < 1 << (BITS - 1) => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Less,
        }
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub from: EngineId,
    pub to: EngineId,
    /// The epoch of the sender's view.
    pub epoch: Window<EPOCH_BITS>,
    /// The incarnation of the sender's side of its node.
    pub incarnation: Window<LIFE_BITS>,
    /// The incarnation of the receiver's side for which it is meant.
    pub to_incarnation: Window<LIFE_BITS>,
    /// Messages in the frame.
    pub count: u16,
}

/// Writes the header into the first [`FRAME_HEADER`] bytes of `frame`, which the caller reserved,
/// with a checksum over everything else if `checksum` is set.
pub fn seal(frame: &mut [u8], header: FrameHeader, checksum: bool) {
    let lives = u32::from(FRAME_VERSION)
        | u32::from(header.epoch.0) << EPOCH_SHIFT
        | u32::from(header.incarnation.0) << FROM_LIFE_SHIFT
        | u32::from(header.to_incarnation.0) << TO_LIFE_SHIFT;
    let places = u64::from(header.count)
        | u64::from(header.from.pack()) << FROM_SHIFT
        | u64::from(header.to.pack()) << TO_SHIFT;
    frame[..8].copy_from_slice(&(u64::from(lives) << LIVES_SHIFT).to_le_bytes());
    frame[8..FRAME_HEADER].copy_from_slice(&places.to_le_bytes());
    if checksum {
        let crc = crc32c::crc32c(&frame[CHECKSUM.end..]);
        frame[CHECKSUM].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A frame whose header has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub header: FrameHeader,
    /// Messages that have not been taken.
    left: u16,
    body: Reader<'a>,
}

impl<'a> Frame<'a> {
    /// Checks version, addresses and, if `checksum` is set, the CRC32C. That the messages fill the
    /// frame is found out by taking them.
    #[inline]
    pub fn parse(bytes: &'a [u8], checksum: bool) -> Result<Self, Malformed> {
        let mut body = Reader::new(bytes);
        let Ok([first, places]) = body.u64s() else {
            return Err(Malformed { what: "a frame shorter than its header" });
        };
        let lives = (first >> LIVES_SHIFT) as u32;
        if lives & ((1 << VERSION_BITS) - 1) != u32::from(FRAME_VERSION) {
            return Err(Malformed { what: "an unknown frame version" });
        }
        if checksum && first as u32 != crc32c::crc32c(&bytes[CHECKSUM.end..]) {
            return Err(Malformed { what: "a frame's checksum" });
        }
        let engine = |shift: u32| {
            let name = (places >> shift & ENGINE) as u32;
            EngineId::unpack(name).ok_or(Malformed { what: "a frame's address" })
        };
        let (count, from, to) = (places as u16, engine(FROM_SHIFT)?, engine(TO_SHIFT)?);
        let epoch = Window::of(lives >> EPOCH_SHIFT);
        let incarnation = Window::of(lives >> FROM_LIFE_SHIFT);
        let to_incarnation = Window::of(lives >> TO_LIFE_SHIFT);
        let header = FrameHeader { from, to, epoch, incarnation, to_incarnation, count };
        Ok(Self { header, left: count, body })
    }

    /// The next message's header and body; `None` after the last. Errors: the messages and the
    /// header's count of them do not fill the frame exactly.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<(MessageHeader, &'a [u8])>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else {
            self.body.finish()?;
            return Ok(None);
        };
        self.left = left;
        let header = MessageHeader::parse(&mut self.body)?;
        let body = self.body.bytes(header.length as usize)?;
        Ok(Some((header, body)))
    }
}

/// The role of a message for the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No reply is expected.
    OneWay,
    /// A request; the body starts with the message.
    Request,
    /// A request that supersedes another one of the same sender, named before the body.
    Superseding(RequestId),
    /// A request in the name of the engine that expects the reply, named before the body.
    Delegated(EngineId),
    /// The reply to a request; `kind` is its status.
    Reply,
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    pub class: Class,
    /// The protocol's kind, or the status of a reply.
    pub kind: u16,
    /// The request that it is or answers; zero for one-way messages.
    pub request: RequestId,
    /// Bytes of the body.
    pub length: u32,
}

impl MessageHeader {
    /// The part of it that every message has.
    #[inline]
    fn words(&self) -> [u8; MESSAGE_HEADER] {
        let class = match self.class {
            Class::OneWay => 0,
            Class::Request => 1,
            Class::Superseding(_) => 2,
            Class::Reply => 3,
            Class::Delegated(_) => 4,
        };
        let first = u64::from(self.kind)
            | class << CLASS_SHIFT
            | u64::from(self.request.slot) << SLOT_SHIFT;
        let second = u64::from(self.request.sequence) | u64::from(self.length) << LENGTH_SHIFT;
        (u128::from(first) | u128::from(second) << 64).to_le_bytes()
    }

    /// Appends what only some classes have, which the length does not count.
    #[inline]
    fn emit_rest(&self, to: &mut Writer<'_>) {
        match self.class {
            Class::Superseding(dead) => {
                to.u16(dead.slot);
                to.u32(dead.sequence);
            }
            Class::Delegated(asker) => to.u32(asker.pack()),
            Class::OneWay | Class::Request | Class::Reply => {}
        }
    }

    /// Appends the header and the body that `emit` writes behind it, and sets the length.
    #[inline(always)]
    pub fn emit_before(&mut self, frame: &mut Vec<u8>, emit: impl FnOnce(&mut Vec<u8>)) {
        let start = frame.len();
        frame.extend_from_slice(&[0; MESSAGE_HEADER]);
        self.emit_rest(&mut Writer::new(frame));
        let body = frame.len();
        emit(frame);
        self.length = (frame.len() - body) as u32;
        frame[start..start + MESSAGE_HEADER].copy_from_slice(&self.words());
    }

    #[inline]
    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [first, second] = from.u64s()?;
        if first & RESERVED != 0 {
            return Err(Malformed { what: "a reserved field" });
        }
        let request = RequestId { slot: (first >> SLOT_SHIFT) as u16, sequence: second as u32 };
        let class = match (first >> CLASS_SHIFT) as u8 {
            0 => Class::OneWay,
            1 => Class::Request,
            2 => Class::Superseding(RequestId { slot: from.u16()?, sequence: from.u32()? }),
            3 => Class::Reply,
            4 => Class::Delegated(
                EngineId::unpack(from.u32()?).ok_or(Malformed { what: "who asks" })?,
            ),
            _ => return Err(Malformed { what: "a message's class" }),
        };
        Ok(Self { class, kind: first as u16, request, length: (second >> LENGTH_SHIFT) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn frame(messages: u16, count: u16) -> (FrameHeader, Vec<u8>) {
        let header = FrameHeader {
            from: EngineId::nic(NodeId(4_095), 254),
            to: EngineId::host(NodeId(258), 3),
            epoch: Window::of(16_384 + 5),
            incarnation: Window::of(7),
            to_incarnation: Window::of(256 + 3),
            count,
        };
        let mut bytes = vec![0; FRAME_HEADER];
        for kind in 0..messages {
            let request = RequestId { slot: 9, sequence: 1 };
            let mut message = MessageHeader { class: Class::Request, kind, request, length: 0 };
            message.emit_before(&mut bytes, |to| to.extend_from_slice(b"hi"));
        }
        seal(&mut bytes, header, true);
        (header, bytes)
    }

    /// The kinds of the messages in a frame.
    fn read(bytes: &[u8]) -> Result<Vec<u16>, Malformed> {
        let mut frame = Frame::parse(bytes, true)?;
        let mut kinds = Vec::new();
        while let Some((header, _)) = frame.next_message()? {
            kinds.push(header.kind);
        }
        Ok(kinds)
    }

    #[test]
    fn a_header_comes_back_as_it_was_sealed() {
        let (header, bytes) = frame(3, 3);
        assert_eq!(Frame::parse(&bytes, true).unwrap().header, header);
        assert_eq!(read(&bytes).unwrap(), [0, 1, 2]);
    }

    #[test]
    fn a_frame_that_its_messages_do_not_fill_is_malformed() {
        assert_eq!(read(&frame(3, 2).1), Err(Malformed { what: "trailing bytes" }));
        assert_eq!(read(&frame(2, 3).1), Err(Malformed { what: "shorter than its fields" }));
        let (_, bytes) = frame(2, 2);
        for bit in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_window_compares_with_the_nearest_number() {
        use std::cmp::Ordering::{Equal, Greater, Less};
        for known in [0, 1, 8_191, 16_383, 16_384, 70_000_u32] {
            assert_eq!(Window::<14>::of(known).compare(known), Equal);
            assert_eq!(Window::<14>::of(known + 8_191).compare(known), Greater);
            assert_eq!(Window::<8>::of(known + 5).from(known), known + 5);
            assert_eq!(Window::<14>::of(known).compare(known + 1), Less);
            assert_eq!(Window::<14>::of(known).compare(known + 8_191), Less);
        }
    }
}
