//! [`Messages`] for engines.

use std::rc::Rc;

use super::outbox::Emit;
use super::timers::Timer;
use super::{Completion, Engine, World};
use crate::chain::STATUS_OK;
use crate::fabric::{
    FabricError, Fanout, Local, Message, Messages, ReplyTo, RequestId, Service, Timeout,
};
use crate::ids::EngineId;
use crate::units::Nanos;
use crate::wire::{Class, MessageHeader};

impl<W: World> Messages for Engine<W> {
    fn serve(&self, service: Rc<dyn Service>) -> bool {
        // One that is delivering right now is the first.
        let Ok(mut serving) = self.0.service.try_borrow_mut() else { return false };
        let first = serving.is_none();
        if first {
            *serving = Some(service);
        }
        first
    }

    fn send<M: Message>(&self, to: EngineId, message: &M) {
        let (class, request) = (Class::OneWay, RequestId::NONE);
        let header = MessageHeader { class, kind: M::KIND, request, length: 0 };
        self.append(to, header, &mut |body| self.site().emit(message, body));
    }

    fn is_reliable(&self, to: EngineId) -> bool {
        !self.may_lose(to)
    }

    fn send_each<M: Message>(&self, to: &[EngineId], message: &M, fanout: Fanout) {
        let (class, request) = (Class::OneWay, RequestId::NONE);
        let header = MessageHeader { class, kind: M::KIND, request, length: 0 };
        let emit: Emit<'_> = &mut |body| self.site().emit(message, body);
        self.0.outbox.append_copies(self.site(), to, header, fanout, emit);
    }

    fn call<M: Message>(&self, to: EngineId, message: &M, timeout: Timeout) -> Completion {
        self.request(to, M::KIND, &mut |body| self.site().emit(message, body), timeout, None)
    }

    fn call_superseding<M: Message>(
        &self,
        to: EngineId,
        message: &M,
        timed_out: RequestId,
    ) -> Completion {
        let emit: Emit<'_> = &mut |body| self.site().emit(message, body);
        self.request(to, M::KIND, emit, Timeout::Never, Some(timed_out))
    }

    fn open_delegated_call(&self, to: EngineId) -> (ReplyTo, Completion) {
        self.open_delegated(to)
    }

    fn send_on_behalf_of<M: Message>(&self, asker: ReplyTo, to: EngineId, message: &M) {
        let class = Class::Delegated(asker.engine);
        let header = MessageHeader { class, kind: M::KIND, request: asker.request, length: 0 };
        self.append(to, header, &mut |body| self.site().emit(message, body));
    }

    fn retransmit<M: Message>(&self, delegated: RequestId, message: &M, timeout: Timeout) {
        if self.may_be_lost(delegated) {
            let mut body = self.site().pool().take();
            self.site().emit(message, &mut body);
            self.retransmit_delegated(delegated, M::KIND, body, timeout);
        }
    }

    fn give_up_after(&self, delegated: RequestId, timeout: Nanos) {
        if self.may_be_lost(delegated) {
            let deadline = self.now().saturating_add(timeout);
            self.0.timers.set(self.world(), deadline, Timer::give_up(delegated));
        }
    }

    fn reply<M: Message>(&self, to: ReplyTo, message: &M) {
        self.send_reply(to, STATUS_OK, &mut |body| self.site().emit(message, body));
    }

    fn refuse(&self, to: ReplyTo, error: FabricError) {
        self.send_refusal(to, error);
    }
}
