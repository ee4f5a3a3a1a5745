//! What arrives: frames, their messages, and one-sided operations executed in software.

use super::peers::Arrival;
use super::stats::count;
use super::transmit::{ONE_SIDED_KIND, STATUS_OK, status_error};
use super::{Charge, Completion, Engine, Operation, Route, Transfer, World};
use crate::fabric::{Delivery, Fabric, FabricError, ReplyTo, RequestId};
use crate::ids::{EngineId, RKey};
use crate::memory::AccessError;
use crate::wire::{Class, Frame, Malformed, MessageHeader, Reader};

impl<W: World> Engine<W> {
    /// Takes a burst of frames; true if there was one.
    pub(super) fn take_frames(&self) -> bool {
        let world = &self.0.world;
        let mut progress = false;
        for _ in 0..world.tuning().burst {
            let Some(frame) = world.receive() else { break };
            progress = true;
            count(&self.0.counters.frames_received, 1);
            if self.take_frame(&frame).is_err() {
                count(&self.0.counters.malformed, 1);
            }
            world.recycle(frame);
        }
        progress
    }

    /// Delivers what this engine sent to itself; true if there was anything.
    pub(super) fn take_loopback(&self) -> bool {
        let mut progress = false;
        loop {
            let next = self.0.loopback.borrow_mut().queue.pop_front();
            let Some((header, body)) = next else { return progress };
            progress = true;
            self.dispatch(self.0.here, Route::Reliable, header, &body);
        }
    }

    fn take_frame(&self, bytes: &[u8]) -> Result<(), Malformed> {
        let world = &self.0.world;
        let mut frame = Frame::parse(bytes, world.tuning().checksums)?;
        let from = frame.header.from;
        if frame.header.to != self.0.here || world.layout().index_of(from).is_none() {
            return Err(Malformed { what: "a frame for another engine" });
        }
        world.charge(Charge::FrameReceived { from, bytes: bytes.len() as u32 });
        let route = world.route(from);
        while let Some((header, body)) = frame.next_message()? {
            world.charge(Charge::MessageReceived { bytes: header.length });
            count(&self.0.counters.messages_received, 1);
            self.dispatch(from, route, header, body);
        }
        Ok(())
    }

    fn dispatch(&self, from: EngineId, route: Route, header: MessageHeader, body: &[u8]) {
        let request = header.request;
        match header.class {
            Class::OneWay => self.deliver(from, None, header.kind, body),
            Class::Reply => self.take_reply(request, header.kind, body),
            Class::Request => self.take_request(from, route, request, header.kind, body),
            Class::Superseding(dead) => {
                if route == Route::Unreliable {
                    self.with_peer(from, |peer| peer.fence(dead));
                }
                self.take_request(from, route, request, header.kind, body);
            }
            Class::Delegated(asker) if self.0.world.layout().index_of(asker).is_none() => {
                count(&self.0.counters.malformed, 1);
            }
            // Two engines may send it, so that it may come twice over any route.
            Class::Delegated(asker) => {
                self.take_request(asker, Route::Unreliable, request, header.kind, body);
            }
        }
    }

    fn take_request(
        &self,
        from: EngineId,
        route: Route,
        request: RequestId,
        kind: u16,
        body: &[u8],
    ) {
        let reply_to = ReplyTo { engine: from, request };
        if route == Route::Unreliable {
            let again = self.with_peer(from, |peer| match peer.arrive(request) {
                Arrival::New => None,
                Arrival::Ignore => Some(None),
                Arrival::Again(status, body) => Some(Some((status, self.0.pool.copy(body)))),
            });
            if let Some(answer) = again {
                count(&self.0.counters.duplicates, 1);
                if let Some((status, body)) = answer {
                    self.send_reply(reply_to, status, &body);
                }
                return;
            }
        }
        if kind == ONE_SIDED_KIND {
            self.take_one_sided(reply_to, body);
        } else {
            self.deliver(from, Some(reply_to), kind, body);
        }
    }

    fn deliver(&self, from: EngineId, reply_to: Option<ReplyTo>, kind: u16, body: &[u8]) {
        let service = self.0.service.borrow().clone();
        let Some(service) = service else {
            if let Some(reply_to) = reply_to {
                self.refuse(reply_to, FabricError::Unreachable);
            }
            return;
        };
        if service.deliver(Delivery { from, reply_to, kind, body }).is_err() {
            count(&self.0.counters.malformed, 1);
            if let Some(reply_to) = reply_to {
                self.refuse(reply_to, FabricError::Malformed);
            }
        }
    }

    fn take_reply(&self, request: RequestId, status: u16, body: &[u8]) {
        let Some(token) = self.0.calls.borrow_mut().close(request) else {
            count(&self.0.counters.late_replies, 1);
            return;
        };
        let result = if status == STATUS_OK {
            Ok(self.0.pool.copy(body))
        } else {
            Err(status_error(status, body))
        };
        self.0.completions.resolve(token, result);
    }

    pub(super) fn with_peer<T>(
        &self,
        from: EngineId,
        act: impl FnOnce(&mut super::Peer) -> T,
    ) -> T {
        let index = self.0.world.layout().index_of(from);
        let mut peers = self.0.peers.borrow_mut();
        // `take_frame` has checked that the sender is part of the layout.
        act(&mut peers[index.unwrap_or(self.0.index)])
    }

    /// Executes a one-sided operation in software: on this side's memory at once, on the other
    /// side's by DMA.
    fn take_one_sided(&self, reply_to: ReplyTo, body: &[u8]) {
        let Ok(operation) = self.parse_one_sided(body) else {
            count(&self.0.counters.malformed, 1);
            self.refuse(reply_to, FabricError::Malformed);
            return;
        };
        match self.begin_one_sided(operation) {
            Ok(Begun::Done(bytes)) => {
                self.send_reply(reply_to, STATUS_OK, &bytes);
                self.0.pool.give(bytes);
            }
            Ok(Begun::Dma(completion)) => {
                let engine = self.clone();
                self.spawn(async move {
                    match completion.await {
                        Ok(bytes) => engine.send_reply(reply_to, STATUS_OK, &bytes),
                        Err(error) => engine.refuse(reply_to, error),
                    }
                });
            }
            Err(error) => self.refuse(reply_to, FabricError::AccessDenied(error)),
        }
    }

    fn begin_one_sided(&self, mut operation: Operation) -> Result<Begun, AccessError> {
        let regions = self.0.world.regions();
        if !W::SHARED_MEMORY {
            match operation.transfer {
                Transfer::VerbRead { rkey, offset, len } => {
                    let region = regions.find(rkey, false)?;
                    region.check(offset, u64::from(len))?;
                    if regions.side_of(rkey) != Some(self.0.here.side) {
                        return Ok(Begun::Dma(self.dma_read(&region, offset, len as usize)));
                    }
                }
                Transfer::VerbWrite { rkey, offset } => {
                    let region = regions.find(rkey, true)?;
                    region.check(offset, operation.buffer.len() as u64)?;
                    if regions.side_of(rkey) != Some(self.0.here.side) {
                        let written = self.dma_write(&region, offset, &operation.buffer);
                        return Ok(Begun::Dma(written));
                    }
                }
                // The atomics are made by this engine, which serialises them; the crossing of
                // PCIe that a host word costs is charged as a read.
                _ => {}
            }
        }
        operation.execute_verb(regions);
        match operation.result {
            Ok(()) => {
                if matches!(operation.transfer, Transfer::VerbWrite { .. }) {
                    operation.buffer.clear();
                }
                Ok(Begun::Done(operation.buffer))
            }
            Err(FabricError::AccessDenied(error)) => Err(error),
            Err(_) => Err(AccessError::Denied { rkey: 0 }),
        }
    }

    fn parse_one_sided(&self, body: &[u8]) -> Result<Operation, Malformed> {
        let mut reader = Reader::new(body);
        let verb = reader.u8()?;
        let rkey = RKey(reader.u32()?);
        let offset = reader.u64()?;
        let mut buffer = self.0.pool.take();
        let transfer = match verb {
            0 => Transfer::VerbRead { rkey, offset, len: reader.u32()? },
            1 => {
                let rest = reader.rest();
                buffer.extend_from_slice(reader.bytes(rest.len())?);
                Transfer::VerbWrite { rkey, offset }
            }
            2 => {
                let (expected, new) = (reader.u64()?, reader.u64()?);
                Transfer::VerbCompareSwap { rkey, offset, expected, new }
            }
            3 => Transfer::VerbFetchAdd { rkey, offset, amount: reader.u64()? },
            _ => return Err(Malformed { what: "a one-sided operation's verb" }),
        };
        reader.finish()?;
        Ok(Operation { transfer, buffer, result: Ok(()), token: 0 })
    }
}

enum Begun {
    Done(Vec<u8>),
    Dma(Completion),
}
