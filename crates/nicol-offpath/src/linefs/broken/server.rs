//! A backup that is broken on purpose: it stands before the true one.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, Message, Service};
use nicol_core::wire::{Malformed, Writer};

use super::Sabotage;
use crate::linefs::member::Member;
use crate::linefs::messages::{CHUNK, Chunk};

/// One chunk in so many is corrupted by the planted faults that corrupt some.
const CORRUPTED_ONE_IN: u64 = 4;

/// The service of an engine: `service`, unless a planted fault stands before it.
pub(in crate::linefs) fn service<F: Fabric>(
    member: &Rc<Member<F>>,
    service: impl Service + 'static,
) -> Rc<dyn Service> {
    match member.node.config().sabotage {
        Sabotage::BreaksChain | Sabotage::CorruptsChunks | Sabotage::TrustsChunks => {
            Rc::new(Broken { member: member.clone(), service })
        }
        _ => Rc::new(service),
    }
}

struct Broken<F: Fabric, S> {
    member: Rc<Member<F>>,
    service: S,
}

impl<F: Fabric, S> Broken<F, S> {
    /// Spoils a chunk that is in this side's memory.
    fn spoil(&self, chunk: &mut Chunk) {
        let sabotage = self.member.node.config().sabotage;
        if sabotage == Sabotage::BreaksChain {
            return chunk.way.rest.clear();
        }
        let (fabric, memory) = (&self.member.fabric, &self.member.memory);
        if chunk.len == 0 || !fabric.random().is_multiple_of(CORRUPTED_ONE_IN) {
            return;
        }
        let side = fabric.here().side;
        let (inbox, offset) = (memory.inbox(side), memory.place_of(side, chunk.slot));
        let mut bytes = vec![0; chunk.len as usize];
        if inbox.read(offset, &mut bytes).is_err() {
            return;
        }
        let at = (fabric.random() % bytes.len() as u64) as usize;
        bytes[at] ^= 1 << (fabric.random() % 8);
        if inbox.write(offset, &bytes).is_ok() && sabotage == Sabotage::TrustsChunks {
            chunk.crc = crc32c::crc32c(&bytes);
        }
    }
}

impl<F: Fabric, S: Service> Service for Broken<F, S> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if delivery.kind != CHUNK {
            return self.service.deliver(delivery);
        }
        let mut chunk = Chunk::parse(delivery.body)?;
        self.member.memory.check(&chunk)?;
        self.spoil(&mut chunk);
        let mut body = Vec::new();
        chunk.emit(&mut Writer::new(&mut body));
        self.service.deliver(Delivery { body: &body, ..delivery })
    }
}
