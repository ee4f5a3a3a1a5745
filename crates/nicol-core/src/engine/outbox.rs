//! What leaves an engine at the end of a round: one frame per destination.

use std::collections::VecDeque;

use super::pool::Payload;
use crate::wire::{FRAME_HEADER, MESSAGES_MAX, MessageHeader};

/// A frame in the making for one destination.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// The frame with space for its header; empty while nothing is bound there.
    pub(super) frame: Vec<u8>,
    /// Messages in it.
    pub(super) count: u16,
    /// Is the destination on the list of those to flush?
    pub(super) listed: bool,
    /// The frame's number where a trace is taken.
    pub(super) traced: u64,
    /// Frames that the transport had no space for, oldest first.
    pub(super) held: VecDeque<Vec<u8>>,
}

impl Gather {
    /// Appends a message whose body `emit` writes; puts its length into `header`.
    #[inline(always)]
    pub(super) fn append(&mut self, header: &mut MessageHeader, emit: impl FnOnce(&mut Vec<u8>)) {
        if self.frame.is_empty() {
            self.frame.extend_from_slice(&[0; FRAME_HEADER]);
        }
        assert!(usize::from(self.count) < MESSAGES_MAX, "a full frame is flushed before");
        header.emit_before(&mut self.frame, emit);
        self.count += 1;
    }
}

/// Messages that an engine sent to itself.
#[derive(Debug, Default)]
pub(super) struct Loopback {
    pub(super) queue: VecDeque<(MessageHeader, Payload)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::RequestId;
    use crate::ids::{EngineId, NodeId};
    use crate::wire::{Class, Frame, FrameHeader, Window, seal};

    #[test]
    fn a_body_is_written_into_the_frame_and_its_length_behind() {
        let (here, there) = (EngineId::host(NodeId(0), 0), EngineId::nic(NodeId(0), 0));
        let mut gather = Gather::default();
        for (body, class) in
            [(&b"hello"[..], Class::Request), (b"", Class::Reply), (b"hi", Class::Delegated(here))]
        {
            let request = RequestId { slot: 7, sequence: 9 };
            let mut header = MessageHeader { class, kind: 3, request, length: 0 };
            gather.append(&mut header, |to| to.extend_from_slice(body));
            assert_eq!(header.length as usize, body.len());
        }
        let header = FrameHeader {
            from: here,
            to: there,
            epoch: Window::of(0),
            incarnation: Window::of(1),
            to_incarnation: Window::of(1),
            count: gather.count,
        };
        seal(&mut gather.frame, header, true);
        let mut frame = Frame::parse(&gather.frame, true).unwrap();
        let mut taken = Vec::new();
        while let Some((header, body)) = frame.next_message().unwrap() {
            assert_eq!((header.request.sequence, header.length as usize), (9, body.len()));
            taken.push(body);
        }
        assert_eq!(taken, [&b"hello"[..], b"", b"hi"]);
    }
}
