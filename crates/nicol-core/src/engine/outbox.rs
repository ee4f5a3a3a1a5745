//! What leaves an engine at the end of a round: one frame per destination.

use std::collections::VecDeque;

use super::pool::Payload;
use crate::wire::{FRAME_HEADER, MESSAGES_MAX, MessageHeader, Writer};

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
    /// Appends a message.
    pub(super) fn append(&mut self, header: &MessageHeader, body: &[u8]) {
        if self.frame.is_empty() {
            self.frame.resize(FRAME_HEADER, 0);
        }
        assert!(usize::from(self.count) < MESSAGES_MAX, "a full frame is flushed before");
        let mut writer = Writer::new(&mut self.frame);
        header.emit(&mut writer);
        writer.bytes(body);
        self.count += 1;
    }
}

/// Messages that an engine sent to itself.
#[derive(Debug, Default)]
pub(super) struct Loopback {
    pub(super) queue: VecDeque<(MessageHeader, Payload)>,
}
