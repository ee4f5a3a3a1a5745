//! [`Fabric`], implemented once for the engines of every world.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use super::transmit::ONE_SIDED_KIND;
use super::{Charge, Completion, Engine, Payload, Timer, Transfer, Wake, Watch, World};
use crate::chain::{Encoded, STATUS_OK};
use crate::exec::Signal;
use crate::fabric::{
    Fabric, FabricError, HasDoorbell, Message, OneSided, ReplyTo, RequestId, Service, Timeout, Work,
};
use crate::ids::{EngineId, FreeListKey, NodeId, RKey};
use crate::memory::{Access, AccessError, Buffers, Region};
use crate::units::Nanos;
use crate::view::View;
use crate::wire::Writer;

impl<W: World> Fabric for Engine<W> {
    type Completion = Completion;
    type Payload = Payload;
    type Wake = Wake;

    fn here(&self) -> EngineId {
        self.0.here
    }

    fn view(&self) -> &View {
        self.0.views.current()
    }

    fn now(&self) -> Nanos {
        self.0.world.now()
    }

    fn sleep_until(&self, deadline: Nanos) -> Wake {
        let (token, completion) = self.0.completions.open();
        self.0.set_timer(deadline, Timer::Wake(token));
        Wake(completion)
    }

    fn yield_now(&self) -> Wake {
        let (token, completion) = self.0.completions.open();
        self.0.yielded.borrow_mut().push_back(token);
        Wake(completion)
    }

    fn caught_up(&self) -> Wake {
        if self.0.world.is_ahead() {
            return self.sleep_until(self.now());
        }
        Wake(self.0.completions.ready(Ok(self.0.pool.payload(Vec::new()))))
    }

    fn random(&self) -> u64 {
        self.0.world.random()
    }

    fn spawn<T: Future<Output = ()> + 'static>(&self, task: T) {
        self.0.executor.spawn(task);
    }

    fn work(&self, work: Work) {
        self.0.world.charge(Charge::Work(work));
    }

    fn serve(&self, service: Rc<dyn Service>) -> bool {
        let mut serving = self.0.service.borrow_mut();
        let first = serving.is_none();
        if first {
            *serving = Some(service);
        }
        first
    }

    fn send<M: Message>(&self, to: EngineId, message: &M) {
        self.send_message(to, message);
    }

    fn call<M: Message>(&self, to: EngineId, message: &M, timeout: Timeout) -> Completion {
        self.request(to, M::KIND, self.body(message), timeout, None)
    }

    fn call_superseding<M: Message>(
        &self,
        to: EngineId,
        message: &M,
        timed_out: RequestId,
    ) -> Completion {
        self.request(to, M::KIND, self.body(message), Timeout::Never, Some(timed_out))
    }

    fn open_delegated_call(&self, to: EngineId) -> (ReplyTo, Completion) {
        self.open_delegated(to)
    }

    fn send_on_behalf_of<M: Message>(&self, asker: ReplyTo, to: EngineId, message: &M) {
        let body = self.body(message);
        self.send_delegated(asker, to, M::KIND, &body);
        self.0.pool.give(body);
    }

    fn retransmit<M: Message>(&self, delegated: RequestId, message: &M, timeout: Timeout) {
        if self.may_be_lost(delegated) {
            self.retransmit_delegated(delegated, M::KIND, self.body(message), timeout);
        }
    }

    fn give_up_after(&self, delegated: RequestId, timeout: Nanos) {
        if self.may_be_lost(delegated) {
            let RequestId { slot, sequence } = delegated;
            let deadline = self.now().saturating_add(timeout);
            self.0.set_timer(deadline, Timer::GiveUp { slot, sequence });
        }
    }

    fn reply<M: Message>(&self, to: ReplyTo, message: &M) {
        let body = self.body(message);
        self.send_reply(to, STATUS_OK, &body);
        self.0.pool.give(body);
    }

    fn refuse(&self, to: ReplyTo, error: FabricError) {
        self.send_refusal(to, error);
    }

    fn keep(&self, bytes: &[u8]) -> Payload {
        self.0.pool.copy(bytes)
    }

    fn register(&self, region: &Arc<Region>, access: Access) -> RKey {
        let world = &self.0.world;
        world.regions().register(region.clone(), access, self.0.here.side, || world.draw_rkey())
    }

    fn revoke(&self, rkey: RKey) -> bool {
        self.0.world.regions().revoke(rkey)
    }

    fn register_buffers(&self, buffers: Buffers) -> Result<FreeListKey, AccessError> {
        let world = &self.0.world;
        world.regions().register_buffers(buffers, || world.draw_rkey())
    }

    fn post_buffers(&self, list: FreeListKey, offsets: &[u64]) -> Result<(), AccessError> {
        self.0.world.regions().post_buffers(list, offsets)
    }

    fn buffers_ready(&self, list: FreeListKey) -> usize {
        self.0.world.regions().buffers_ready(list)
    }

    fn one_sided(&self, node: NodeId, operation: OneSided<'_>) -> Completion {
        if self.view().node(node).is_none() {
            return self.0.completions.ready(Err(FabricError::Unreachable));
        }
        let mut body = self.0.pool.take();
        Encoded::emit(operation, &mut body);
        if self.0.world.has_verbs() {
            return self.post_verb(node, body);
        }
        let target = self.view().nic_of(node, self.0.here.core);
        self.request(target, ONE_SIDED_KIND, body, Timeout::Never, None)
    }

    fn dma_read(&self, from: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let transfer = Transfer::DmaRead { region: from.clone(), offset, len: len as u32 };
        self.start_local(transfer, self.0.pool.take())
    }

    fn dma_write(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Completion {
        self.start_dma_write(to, offset, bytes, false)
    }

    fn dma_write_durable(&self, to: &Arc<Region>, offset: u64, bytes: &[u8]) -> Completion {
        self.start_dma_write(to, offset, bytes, true)
    }

    fn wait_for_doorbell(&self, doorbell: &Arc<dyn HasDoorbell>, seen: u64) -> Wake {
        let (token, completion) = self.0.completions.open();
        if doorbell.doorbell().rings() > seen {
            self.0.wake(token);
        } else {
            self.0.world.watch(doorbell);
            self.0.watches.borrow_mut().push(Watch { doorbell: doorbell.clone(), seen, token });
        }
        Wake(completion)
    }

    fn persist(&self, region: &Arc<Region>, offset: u64, len: usize) -> Completion {
        let mut buffer = self.0.pool.take();
        // Checked before the buffer grows: a length is only as good as its region.
        if let Err(error) = region.check(offset, len as u64) {
            return self.0.completions.ready(Err(FabricError::AccessDenied(error)));
        }
        if self.0.world.memory_is_durable() {
            return self.0.completions.ready(Ok(self.0.pool.payload(buffer)));
        }
        buffer.resize(len, 0);
        let copied = region.read(offset, &mut buffer);
        assert!(copied.is_ok(), "the range was checked");
        let transfer = Transfer::Persist { region: region.clone(), offset, len: len as u32 };
        self.start_local(transfer, buffer)
    }

    fn signal(&self) -> Signal {
        Signal::new(self.0.executor.clone())
    }
}

impl<W: World> Engine<W> {
    fn start_dma_write(
        &self,
        to: &Arc<Region>,
        offset: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Completion {
        let mut buffer = self.0.pool.take();
        buffer.extend_from_slice(bytes);
        self.start_local(Transfer::DmaWrite { region: to.clone(), offset, durable }, buffer)
    }

    fn body<M: Message>(&self, message: &M) -> Vec<u8> {
        let mut body = self.0.pool.take();
        message.emit(&mut Writer::new(&mut body));
        body
    }
}
