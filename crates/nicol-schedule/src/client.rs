//! A client's part: the vector of its request, and where it sends it. [AlNiCo22, implementation]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, FabricError, Timeout};
use nicol_core::ids::{EngineId, NodeId, Side, TxnId};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn};

use super::config::Kind;
use super::decision::WORKERS_MAX;
use super::features::Features;
use super::messages::{DataOf, Done, Header, Part, RequestOf, Vector};
use super::shared::Shared;

/// Clients of an engine, at most: a slot names one.
const SLOT_BITS: u32 = 24;

/// The state that the clients of one engine share.
struct Clients<F: Fabric> {
    fabric: F,
    shared: Arc<Shared>,
    procedures: Procedures,
    server: NodeId,
    slots: Cell<u64>,
    sequence: Cell<u64>,
}

/// Steps from one worker to the next: primes above [`WORKERS_MAX`], so that a client comes to every
/// worker of any number before it comes to one again.
const STRIDES: [usize; 8] = [37, 41, 43, 47, 53, 59, 61, 67];
const _: () = assert!(STRIDES[0] > WORKERS_MAX, "no number of workers is a multiple of a stride");

/// Where a client goes next, and how.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    at: usize,
    stride: usize,
    /// Requests until it draws another one.
    left: usize,
}

/// A client: it has one request at a time.
///
/// Clients are out of step: each goes round the workers in an order of its own, drawn anew from the
/// seed for every round. In one order for all, two equal closed loops would meet at the same worker
/// again and again.
pub struct Client<F: Fabric> {
    clients: Rc<Clients<F>>,
    slot: u64,
    round: Cell<Round>,
}

impl<F: Fabric> Clone for Client<F> {
    fn clone(&self) -> Self {
        let Clients { fabric, slots, .. } = &*self.clients;
        let number = slots.replace(slots.get() + 1);
        assert!(number >> SLOT_BITS == 0, "an engine has fewer than 2^24 clients");
        let slot = u64::from(fabric.here().pack()) << SLOT_BITS | number;
        Self::of(&self.clients, slot)
    }
}

impl<F: Fabric> Client<F> {
    /// The first client of an engine, of the node `server`; the others are its clones.
    pub fn new(fabric: &F, shared: &Arc<Shared>, procedures: &Procedures, server: NodeId) -> Self {
        let clients = Clients {
            fabric: fabric.clone(),
            shared: Arc::clone(shared),
            procedures: procedures.clone(),
            server,
            slots: Cell::new(1),
            sequence: Cell::new(0),
        };
        let slot = u64::from(fabric.here().pack()) << SLOT_BITS;
        Self::of(&Rc::new(clients), slot)
    }

    fn of(clients: &Rc<Clients<F>>, slot: u64) -> Self {
        Self { clients: Rc::clone(clients), slot, round: Cell::default() }
    }

    /// Where the client would send its next request: a number of which some workers are the rest.
    fn hint(&self) -> usize {
        let mut round = self.round.get();
        if round.left == 0 {
            let drawn = self.clients.fabric.random() as usize;
            let at = drawn / STRIDES.len() % WORKERS_MAX;
            round = Round { at, stride: STRIDES[drawn % STRIDES.len()], left: WORKERS_MAX };
        }
        let Round { at, stride, left } = round;
        self.round.set(Round { at: at + stride, stride, left: left - 1 });
        at
    }

    /// The engine that a request goes to.
    fn target(&self, txn: &Txn, header: &Header, hint: usize) -> EngineId {
        let Header { long, ref features, .. } = *header;
        let Clients { shared, server, .. } = &*self.clients;
        let host = |core: usize| EngineId::host(*server, core as u8);
        let ordinary = shared.ordinary();
        match shared.config.kind {
            Kind::RoundRobin | Kind::StaticPartition if long && ordinary < shared.workers => {
                host(shared.reserved_for(features))
            }
            Kind::RoundRobin => host(hint % ordinary),
            Kind::StaticPartition => {
                let first = txn.entries().first().map(|entry| entry.key);
                let range = txn.scans().first().map(|scan| scan.range.first);
                // "TPC-C: warehouse ID, YCSB: table ID". [AlNiCo22, setup]
                let partition = first.or(range).and_then(|key| match key.partition() {
                    Some(partition) => Some(usize::from(partition)),
                    None => shared.map.table(key),
                });
                let feature = || Features::of(features.touched()).next().unwrap_or_default();
                host(partition.unwrap_or_else(feature) % ordinary)
            }
            Kind::Alnico => EngineId::nic(*server, 0),
            Kind::AlnicoCpu2 => host(shared.workers + hint % 2),
            Kind::AlnicoCpuN => host(hint % ordinary),
            Kind::Strife => host(shared.workers),
        }
    }
}

impl<F: Fabric> Client<F> {
    /// Writes the data to the host, where the worker that the client hints at receives it, and the
    /// vector to the scheduler; the reply. [AlNiCo22, implementation, steps 1 and 2]
    async fn write_twice(
        &self,
        scheduler: EngineId,
        request: RequestOf<'_>,
        hinted: u8,
        timeout: Timeout,
    ) -> Result<F::Payload, FabricError> {
        let Clients { fabric, server, .. } = &*self.clients;
        let (host, vector) =
            (EngineId::host(*server, hinted), Vector { header: request.header, id: request.id });
        let data = DataOf(request);
        let written = if fabric.is_reliable(host) {
            fabric.send(host, &data);
            None
        } else {
            Some(fabric.call(host, &data, timeout))
        };
        let replied = fabric.call(scheduler, &vector, timeout).await;
        if let Some(written) = written {
            // What became of it the reply says.
            let _ = written.await;
        }
        replied
    }
}

impl<F: Fabric> CommitProtocol for Client<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        let Clients { fabric, shared, procedures, server, sequence, .. } = &*self.clients;
        sequence.set(sequence.get() + 1);
        let id = TxnId::new(fabric.here(), fabric.incarnation(), sequence.get());
        txn.id = id;
        let features = shared.map.features(txn, procedures);
        let hint = self.hint();
        let long = procedures.is_long(txn.procedure);
        let hinted = (hint % shared.workers) as u8;
        let (ship, local) = (txn.ship, txn.local);
        let header = Header { slot: self.slot, hint: hinted, long, ship, local, features };
        let target = self.target(txn, &header, hint);
        debug_assert!(target.side == Side::Host || target.core == 0);
        let apart = shared.config.writes_twice();
        let mut request = RequestOf { header, id, txn, padding: shared.config.padding, apart };
        let timeout = Timeout::After(shared.config.timeout);
        // Parts that do not fit the request's slot are sent first, one slot after the other: a slot
        // is free again when its reply has come. (C2.06)
        for _ in 0..request.cut() {
            let worker = EngineId::host(*server, hinted);
            if let Err(error) = fabric.call(worker, &Part, timeout).await {
                return Outcome::Aborted(Abort::Fabric(error));
            }
        }
        let asked = fabric.phase("scheduled");
        let replied = match apart {
            true => self.write_twice(target, request, hinted, timeout).await,
            false => fabric.call(target, &request, timeout).await,
        };
        drop(asked);
        let outcome = match replied {
            Ok(reply) => match Done::parse(reply.as_ref()) {
                Ok(Done(outcome)) => outcome,
                Err(_) => Outcome::Unknown,
            },
            Err(error @ (FabricError::NoResources | FabricError::Malformed)) => {
                Outcome::Aborted(match error {
                    FabricError::NoResources => Abort::NoResources,
                    error => Abort::Fabric(error),
                })
            }
            Err(_) => Outcome::Unknown,
        };
        match (&outcome, shared.transcripts.take(id, txn)) {
            // It may still be executed, keys that it adds included.
            (Outcome::Unknown, None) => txn.ship = true,
            // It was, and all that it wrote is known.
            (Outcome::Unknown, Some(true)) => txn.ship = false,
            _ => {}
        }
        outcome
    }
}
