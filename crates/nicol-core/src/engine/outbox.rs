//! What leaves an engine: messages are gathered into one frame for each destination, which leaves
//! at the end of the round or when it is full.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::pool::Payload;
use super::site::Site;
use super::sparse::Sparse;
use super::stats::count;
use super::{Charge, World};
use crate::fabric::Fanout;
use crate::ids::EngineId;
use crate::trace::Flow;
use crate::wire::{FRAME_HEADER, FrameHeader, MESSAGES_MAX, MessageHeader, Window, seal};

/// Writes a body. As an object, so that sending is compiled once and not again for each message.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&mut Vec<u8>);

/// A frame is flushed when it has grown to this size, whatever the round still brings.
const FRAME_BYTES_MAX: usize = 32 << 10;

/// Which part of sending a message is this core's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// All of it.
    Own,
    /// The deposit: what is sent was prepared for another receiver.
    Copy,
    /// None: the card sends a copy.
    OfCard,
}

/// A frame in the making for one destination.
#[derive(Debug, Default)]
struct Gather {
    /// The frame with space for its header; empty while nothing is bound there.
    frame: Vec<u8>,
    /// Messages in it.
    count: u16,
    /// True if the destination is on the list of those to flush.
    listed: bool,
    /// The frame's number where a trace is taken.
    traced: u64,
    /// Frames that the transport had no space for, oldest first.
    held: VecDeque<Vec<u8>>,
}

impl Gather {
    /// Appends a message whose body `emit` writes; puts its length into `header`.
    #[inline(always)]
    fn append(&mut self, header: &mut MessageHeader, emit: impl FnOnce(&mut Vec<u8>)) {
        if self.frame.is_empty() {
            self.frame.extend_from_slice(&[0; FRAME_HEADER]);
        }
        assert!(usize::from(self.count) < MESSAGES_MAX, "a full frame is flushed before");
        header.emit_before(&mut self.frame, emit);
        self.count += 1;
    }
}

/// The frames in the making of one engine, and what it has sent to itself.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// By engine: the frame in the making for it.
    gathers: RefCell<Sparse<Gather>>,
    /// The engines for which frames are in the making.
    listed: RefCell<Vec<EngineId>>,
    /// The engines for which frames are held back, by their index in the view.
    holding: RefCell<Vec<(usize, EngineId)>>,
    /// Messages that the engine sent to itself.
    loopback: RefCell<VecDeque<(MessageHeader, Payload)>>,
}

impl Outbox {
    /// True if nothing is waiting to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.holding.borrow().is_empty()
            && self.listed.borrow().is_empty()
            && self.loopback.borrow().is_empty()
    }

    /// Appends a message to the frame that goes to an engine next; `to` has this index, and is
    /// within reach. `emit` writes the body where it leaves from, and must not reach for the
    /// engine; the header's length is that of the body.
    #[inline]
    pub(super) fn append<W: World>(
        &self,
        site: &Site<W>,
        (to, index): (EngineId, usize),
        header: MessageHeader,
        emit: Emit<'_>,
    ) {
        if index == site.index() {
            return self.append_for_itself(site, header, emit);
        }
        self.deposit(site, (to, index), Share::Own, header, emit);
    }

    /// Sends a one-way message, whose body `emit` writes, to each of `to`.
    ///
    /// What the card sends copies of is a frame of its own: frames in the making differ from one
    /// receiver to the next. (Decision 0014)
    pub(super) fn append_copies<W: World>(
        &self,
        site: &Site<W>,
        to: &[EngineId],
        header: MessageHeader,
        fanout: Fanout,
        emit: Emit<'_>,
    ) {
        let by_card = fanout == Fanout::Broadcast && site.world().broadcasts();
        let mut body = site.pool().take();
        emit(&mut body);
        let mut share = Share::Own;
        for &to in to {
            let Some(index) = site.membership().reach(to) else { continue };
            assert!(to.node != site.here().node, "within a node nothing is sent in copies");
            if by_card {
                self.close(site, (to, index), Share::Own);
            }
            let copy: Emit<'_> = &mut |frame| frame.extend_from_slice(&body);
            self.deposit(site, (to, index), share, header, copy);
            if by_card {
                self.close(site, (to, index), share);
            }
            share = if by_card { Share::OfCard } else { Share::Copy };
        }
        site.pool().give(body);
    }

    /// Sends a frame without a message, which tells `to` the incarnation of this side.
    pub(super) fn append_notice(&self, to: EngineId, index: usize) {
        let mut gathers = self.gathers.borrow_mut();
        let gather = gathers.entry(index);
        if gather.frame.is_empty() {
            gather.frame.resize(FRAME_HEADER, 0);
        }
        if !std::mem::replace(&mut gather.listed, true) {
            self.listed.borrow_mut().push(to);
        }
    }

    /// Appends a message to the frame for an engine that is not this one.
    #[inline]
    fn deposit<W: World>(
        &self,
        site: &Site<W>,
        (to, index): (EngineId, usize),
        share: Share,
        mut header: MessageHeader,
        emit: Emit<'_>,
    ) {
        let world = site.world();
        let since = site.trace().map(|_| world.now());
        let full = {
            let mut gathers = self.gathers.borrow_mut();
            let gather = gathers.entry(index);
            if gather.frame.is_empty() && gather.frame.capacity() == 0 {
                gather.frame = world.frame_buffer();
            }
            let place = gather.count;
            gather.append(&mut header, emit);
            match share {
                Share::Own => world.charge(Charge::MessageSent { bytes: header.length }),
                Share::Copy => world.charge(Charge::MessageCopied),
                Share::OfCard => {}
            }
            count(&site.counters().messages_sent, 1);
            count(&site.counters().message_bytes_sent, u64::from(header.length));
            if let (Some(trace), Some(since)) = (site.trace(), since) {
                if place == 0 {
                    gather.traced = trace.sink().number_frame();
                }
                let flow = Flow::new(gather.traced, place);
                trace.sent((since, world.now()), flow, to, &header);
            }
            if !gather.listed {
                gather.listed = true;
                self.listed.borrow_mut().push(to);
            }
            !world.tuning().aggregation
                || gather.frame.len() >= FRAME_BYTES_MAX
                || usize::from(gather.count) == MESSAGES_MAX
        };
        if full {
            self.close(site, (to, index), share);
        }
    }

    #[inline]
    fn append_for_itself<W: World>(
        &self,
        site: &Site<W>,
        mut header: MessageHeader,
        emit: Emit<'_>,
    ) {
        let mut body = site.pool().take();
        emit(&mut body);
        header.length = body.len() as u32;
        if let Some(trace) = site.trace() {
            trace.sent_to_itself(site.now(), &header);
        }
        let kept = site.pool().payload(body);
        self.loopback.borrow_mut().push_back((header, kept));
    }

    /// Takes the oldest message that the engine sent to itself.
    pub(super) fn take_own(&self) -> Option<(MessageHeader, Payload)> {
        self.loopback.borrow_mut().pop_front()
    }

    /// Seals the frame for `to` and gives it to the transport, or holds it back if there is no
    /// space or older ones are held.
    fn close<W: World>(&self, site: &Site<W>, (to, index): (EngineId, usize), share: Share) {
        let world = site.world();
        let mut gathers = self.gathers.borrow_mut();
        let gather = gathers.entry(index);
        if gather.frame.is_empty() {
            return;
        }
        let membership = site.membership();
        let header = FrameHeader {
            from: site.here(),
            to,
            epoch: Window::of(membership.view().epoch().0),
            incarnation: Window::of(site.incarnation().0),
            to_incarnation: Window::of(membership.lives().incarnation(to).0),
            count: gather.count,
        };
        let mut frame = std::mem::take(&mut gather.frame);
        gather.count = 0;
        assert!((frame.len() > FRAME_HEADER) == (header.count > 0), "a count is that of messages");
        seal(&mut frame, header, world.tuning().checksums);
        if let Some(trace) = site.trace() {
            trace.sink().frame_sent(&frame, gather.traced);
        }
        let bytes = frame.len() as u32;
        count(&site.counters().frames_sent, 1);
        count(&site.counters().frame_bytes_sent, u64::from(bytes));
        if share != Share::OfCard {
            world.charge(Charge::FrameSent { to, bytes });
        }
        let refused = if !gather.held.is_empty() {
            Some(frame)
        } else if share == Share::OfCard {
            world.transmit_copy(to, frame).err()
        } else {
            world.transmit(to, frame).err()
        };
        if let Some(frame) = refused {
            gather.held.push_back(frame);
            let mut holding = self.holding.borrow_mut();
            if let Err(at) = holding.binary_search(&(index, to)) {
                holding.insert(at, (index, to));
            }
        }
    }

    /// Forgets what was gathered or held back for the engine of this index.
    pub(super) fn forget(&self, index: usize) {
        let mut gathers = self.gathers.borrow_mut();
        let gather = gathers.entry(index);
        gather.frame.clear();
        gather.count = 0;
        gather.held.clear();
        self.holding.borrow_mut().retain(|&(holding, _)| holding != index);
    }

    /// Sends what the round has gathered; true if anything left.
    pub(super) fn flush<W: World>(&self, site: &Site<W>) -> bool {
        let mut progress = false;
        if !self.holding.borrow().is_empty() {
            progress |= self.retry_held(site.world());
        }
        loop {
            let next = self.listed.borrow_mut().pop();
            let Some(to) = next else { return progress };
            let Some(index) = site.membership().index_of(to) else { continue };
            self.gathers.borrow_mut().entry(index).listed = false;
            self.close(site, (to, index), Share::Own);
            progress = true;
        }
    }

    fn retry_held(&self, world: &impl World) -> bool {
        let mut progress = false;
        let mut gathers = self.gathers.borrow_mut();
        self.holding.borrow_mut().retain(|&(index, to)| {
            let held = &mut gathers.entry(index).held;
            while let Some(frame) = held.pop_front() {
                if let Err(frame) = world.transmit(to, frame) {
                    held.push_front(frame);
                    return true;
                }
                progress = true;
            }
            false
        });
        progress
    }
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
