//! What a core spends on each [`Charge`], precomputed from the profile.

use nicol_core::engine::Charge;
use nicol_core::fabric::Work;
use nicol_core::ids::{EngineId, Side};
use nicol_core::units::{Bytes, Picos};

use super::PerByte;
use super::node::packets;
use crate::profile::{CoreCosts, Profile};

/// The costs of the core of one engine.
#[derive(Clone, Debug)]
pub struct Costs {
    here: EngineId,
    separate: bool,
    packet_payload: u64,
    poll: Picos,
    packet_received: Picos,
    packet_sent: Picos,
    local_received: Picos,
    local_sent: Picos,
    message_received: Picos,
    message_sent: Picos,
    copy: PerByte,
    dma_submit: Picos,
    dma_completed: Picos,
    verb_doorbell: Picos,
    verb_post: Picos,
    verb_completed: Picos,
    dma_by_verbs: bool,
    work: Computation,
    access: Picos,
}

/// The cost of named computation on this core.
#[derive(Clone, Copy, Debug)]
struct Computation {
    index_lookup: Picos,
    table_lookup: Picos,
    table_apply: Picos,
    txn_setup: Picos,
    execute_key: Picos,
    client: Picos,
    chain_operation: Picos,
    crc64_byte: Picos,
}

impl Costs {
    /// The costs of the core of engine `here`.
    pub fn new(profile: &Profile, here: EngineId) -> Self {
        let core: &CoreCosts = profile.core(here.side);
        let permille = match here.side {
            Side::Host => 1_000,
            Side::Nic => profile.cores.nic_slowdown_permille.value,
        };
        let scaled = |span: Picos| Picos(span.0 * permille / 1_000);
        let work = &profile.work;
        let verbs = &profile.verbs;
        // Where the card's inside is modelled, each endpoint's cores have times of their own.
        let [verb_doorbell, verb_post, verb_completed] = match &profile.card {
            Some(card) => {
                let end = card.endpoint(here.side);
                [end.doorbell.value, end.post.value, end.completed.value]
            }
            None => [&verbs.doorbell, &verbs.post, &verbs.completed].map(|cost| scaled(cost.value)),
        };
        let has_engine = profile.card.as_ref().is_some_and(|card| card.dma.is_some());
        Self {
            here,
            separate: profile.cores.nic_is_separate.value,
            packet_payload: profile.link.packet_payload.value.0,
            poll: core.poll.value,
            packet_received: core.packet_received.value,
            packet_sent: core.packet_sent.value,
            local_received: core.local_received.value,
            local_sent: core.local_sent.value,
            message_received: core.message_received.value,
            message_sent: core.message_sent.value,
            copy: PerByte::new(core.copy.value),
            dma_submit: profile.dma.submit.value,
            dma_completed: profile.dma.completed.value,
            verb_doorbell,
            verb_post,
            verb_completed,
            dma_by_verbs: profile.off_path.is_some() && !has_engine,
            work: Computation {
                index_lookup: scaled(work.index_lookup.value),
                table_lookup: scaled(work.table_lookup.value),
                table_apply: scaled(work.table_apply.value),
                txn_setup: scaled(work.txn_setup.value),
                execute_key: scaled(work.execute_key.value),
                client: scaled(work.client.value),
                chain_operation: scaled(work.chain_operation.value),
                crc64_byte: scaled(work.crc64_byte.value),
            },
            // Taking a cache line from another core is also what receiving within a side costs.
            access: match (&core.synchronize, &work.access) {
                (Some(synchronize), _) => synchronize.value,
                (None, Some(access)) => scaled(access.value),
                (None, None) => core.local_received.value,
            },
        }
    }

    pub const fn poll(&self) -> Picos {
        self.poll
    }

    /// Passing a frame of `bytes` on between the host and the wire.
    pub fn forward(&self, bytes: u64) -> Picos {
        (self.packet_received + self.packet_sent) * self.packets(bytes)
    }

    /// The time that `charge` takes of this core.
    #[inline]
    pub fn of(&self, charge: Charge) -> Picos {
        match charge {
            Charge::FrameReceived { from, bytes } if self.is_local(from) => {
                self.local_received * self.packets(u64::from(bytes))
            }
            Charge::FrameReceived { bytes, .. } => {
                self.packet_received * self.packets(u64::from(bytes))
            }
            Charge::FrameSent { to, bytes } if self.is_local(to) => {
                self.local_sent * self.packets(u64::from(bytes))
            }
            Charge::FrameSent { bytes, .. } => self.packet_sent * self.packets(u64::from(bytes)),
            Charge::MessageReceived { bytes } => self.message_received + self.copied(bytes),
            Charge::MessageSent { bytes } => self.message_sent + self.copied(bytes),
            Charge::MessageCopied => self.message_sent,
            Charge::DmaSubmitted { requests } if self.dma_by_verbs => {
                self.verb_doorbell + self.verb_post * u64::from(requests)
            }
            Charge::DmaSubmitted { .. } => self.dma_submit,
            Charge::DmaCompleted => self.dma_completed,
            Charge::VerbsPosted { operations } => {
                self.verb_doorbell + self.verb_post * u64::from(operations)
            }
            Charge::VerbCompleted => self.verb_completed,
            Charge::Access => self.access,
            Charge::Work(work) => self.work(work),
        }
    }

    #[inline]
    fn work(&self, work: Work) -> Picos {
        match work {
            Work::IndexLookup => self.work.index_lookup,
            Work::TableLookup => self.work.table_lookup,
            Work::TableApply => self.work.table_apply,
            Work::TxnSetup => self.work.txn_setup,
            Work::Execute { keys } => self.work.execute_key * u64::from(keys),
            Work::Client => self.work.client,
            Work::Chain { operations } => self.work.chain_operation * u64::from(operations),
            Work::Crc64 { bytes } => self.work.crc64_byte * u64::from(bytes),
            Work::MessageFramed { bytes } => self.of(Charge::MessageSent { bytes }),
            Work::MessagePolled { bytes } => self.of(Charge::MessageReceived { bytes }),
            Work::Given { nanos } => Picos(nanos * 1_000),
            Work::Copy { bytes } => self.copied(bytes),
        }
    }

    fn copied(&self, bytes: u32) -> Picos {
        self.copy.of(Bytes(u64::from(bytes)))
    }

    #[inline]
    fn packets(&self, bytes: u64) -> u64 {
        packets(bytes, self.packet_payload)
    }

    /// Whether a frame between here and `other` stays in one memory.
    fn is_local(&self, other: EngineId) -> bool {
        other.node == self.here.node && (other.side == self.here.side || !self.separate)
    }
}
