//! Recovery at a survivor: what it knows of those who are lost, what it is told, and which shards
//! it comes to lead. [Xenic21 4.2.1] (decisions 0102 and 0103)

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, Message, ReplyTo, Timeout};
use nicol_core::ids::{EngineId, Epoch, Side};
use nicol_core::wire::{Malformed, Reader};
use nicol_kit::VIEW_WAIT;

use super::NicServer;
use crate::decided::{Decided, Decision, Fate};
use crate::log::RecordKind;
use crate::messages::Ack;
use crate::writes::Writes;
use crate::xenic::config::SLOT_WAIT;
use crate::xenic::messages::recovery::{
    Account, AccountReply, InView, ReportRecords, parse_in_view, parse_told,
};
use crate::xenic::messages::{FENCE, INSTALL, REPLICATE, REPORT};
use crate::xenic::node::inherited::{InheritedShard, keys_of};

impl<F: Fabric> NicServer<F> {
    /// Takes a request of recovery.
    pub(super) fn take_recovery(
        self: &Rc<Self>,
        kind: u16,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
        let this = self.clone();
        match kind {
            FENCE => {
                let epoch = parse_in_view(body)?;
                self.fabric.spawn(async move {
                    this.await_view(epoch).await;
                    this.fabric.reply(reply_to, &Ack);
                });
            }
            REPORT => {
                let epoch = parse_in_view(body)?;
                self.fabric.spawn(async move { this.report(epoch, reply_to).await });
            }
            REPLICATE => {
                let (epoch, account) = parse_told(body)?;
                self.check_records(&account, |server, writes| {
                    server.node.is_backup_of(writes.shard)
                })?;
                self.fabric.spawn(async move { this.replicate(epoch, account, reply_to).await });
            }
            INSTALL => {
                let (epoch, account) = parse_told(body)?;
                self.check_records(&account, |server, writes| {
                    server.node.expect_served(writes.keys()).is_ok()
                })?;
                self.fabric.spawn(async move {
                    this.apply(epoch, reply_to, this.install_held(&account.records)).await;
                });
            }
            _ => {
                let (epoch, account) = parse_told(body)?;
                self.fabric.spawn(async move {
                    this.apply(epoch, reply_to, this.resolve(epoch, &account.decisions)).await;
                });
            }
        }
        Ok(())
    }

    /// Errors: a record is for another node.
    fn check_records(
        &self,
        account: &Account,
        is_for: impl Fn(&Self, &Writes<&[u8]>) -> bool,
    ) -> Result<(), Malformed> {
        for record in &account.records {
            if !is_for(self, &Writes::parse(record)?) {
                return Err(Malformed { what: "a record for another node" });
            }
        }
        Ok(())
    }

    /// From here on this engine takes nothing any more of who the view of `epoch` leaves out.
    async fn await_view(&self, epoch: Epoch) {
        while self.fabric.view().epoch() < epoch {
            self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
        }
        self.node.learn(self.fabric.view());
    }

    /// REPORT: what this node knows of the transactions that lost coordinators began.
    async fn report(&self, epoch: Epoch, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: REPORT");
        match self.account(epoch).await {
            Ok(account) => self.fabric.reply(reply_to, &AccountReply(&account)),
            Err(error) => self.fabric.refuse(reply_to, error),
        }
    }

    /// What this node knows of the transactions that lost coordinators began. It takes nothing of
    /// them any more, nor anything of a recovery before that of `epoch`.
    pub(in crate::xenic) async fn account(&self, epoch: Epoch) -> Result<Account, FabricError> {
        self.await_view(epoch).await;
        while !self.node.recovery().begin(epoch) {
            self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
        }
        let here = self.fabric.here();
        for core in 0..self.fabric.view().engines(here.node, Side::Nic) as u8 {
            if core != here.core {
                self.call_own(EngineId::nic(here.node, core), &InView::<FENCE>(epoch)).await?;
            }
        }
        let account = self.ask_host(&ReportRecords::OfLost).await?;
        Ok(Account { locked: self.node.locks_of_lost(), ..account })
    }

    /// What the host knows, once it has read what stands in the logs.
    pub(super) async fn ask_host(&self, asked: &ReportRecords) -> Result<Account, FabricError> {
        let host = EngineId::host(self.fabric.here().node, 0);
        let reply = self.call_own(host, asked).await?;
        let account = Account::parse(&mut Reader::new(reply.as_ref()));
        account.map_err(|_| FabricError::Malformed)
    }

    /// REPLICATE: logs records that other survivors have, as if their coordinator had sent them.
    async fn replicate(&self, epoch: Epoch, account: Account, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: REPLICATE");
        for record in &account.records {
            let admitted = || self.node.recovery().is_in(epoch);
            let landed = match self.log.append(RecordKind::Log, record, admitted).await {
                Ok((_, landing)) => landing.await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = landed {
                return self.fabric.refuse(reply_to, error);
            }
        }
        self.fabric.reply(reply_to, &Ack);
    }

    /// Does what a recovery asks for, unless a later view recovers.
    async fn apply(
        &self,
        epoch: Epoch,
        reply_to: ReplyTo,
        asked: impl Future<Output = Result<(), FabricError>>,
    ) {
        let Some(_resolving) = self.node.recovery().resolve(epoch) else {
            return self.fabric.refuse(reply_to, FabricError::Unreachable);
        };
        match asked.await {
            Ok(()) => self.fabric.reply(reply_to, &Ack),
            Err(error) => self.fabric.refuse(reply_to, error),
        }
    }

    /// INSTALL: takes records of what commits, and is locked here, as COMMITs.
    async fn install_held(&self, records: &[Box<[u8]>]) -> Result<(), FabricError> {
        let _phase = self.fabric.phase("server: INSTALL");
        for record in records {
            let Ok(writes) = Writes::parse(record) else { continue };
            let is_held = || writes.keys().all(|key| self.node.holder(key) == Some(writes.txn));
            if !is_held() {
                continue;
            }
            let appended = self.log.append(RecordKind::Commit, record, is_held).await;
            if let Ok((position, landing)) = appended {
                self.install(&writes, position);
                landing.await?;
                self.unlock_written(&writes);
            }
        }
        Ok(())
    }

    /// RESOLVE: tells the backups' side of this node what is decided, releases every lock of that,
    /// and serves what this node has inherited.
    async fn resolve(&self, epoch: Epoch, decisions: &[Decision]) -> Result<(), FabricError> {
        let _phase = self.fabric.phase("server: RESOLVE");
        self.node.recovery().close(decisions);
        let here = self.fabric.here();
        let most = Decision::most(self.node.log(here.core).body_max());
        for core in 0..self.fabric.view().engines(here.node, Side::Nic) as u8 {
            for part in decisions.chunks(most) {
                self.call_own(EngineId::nic(here.node, core), &Decided(part)).await?;
            }
        }
        self.node.release_locks_of(decisions);
        self.open_inherited(epoch).await?;
        self.node.recovery().end(epoch);
        Ok(())
    }

    /// Calls an engine of this node.
    async fn call_own<M: Message>(
        &self,
        to: EngineId,
        message: &M,
    ) -> Result<F::Payload, FabricError> {
        loop {
            match self.fabric.call(to, message, Timeout::Never).await {
                Err(FabricError::NoResources) => {
                    self.fabric.sleep_until(self.fabric.now() + SLOT_WAIT).await;
                }
                answered => return answered,
            }
        }
    }

    /// Serves every shard from here on that this node has inherited by the view of `epoch`, whose
    /// recovery has decided about all that lost coordinators began.
    ///
    /// What is undecided still is locked before: the table has all the rest.
    pub(super) async fn open_inherited(&self, epoch: Epoch) -> Result<(), FabricError> {
        let waits = |one: &&InheritedShard| {
            !one.is_open() && self.fabric.view().led_since(one.shard()) <= epoch
        };
        for inherited in self.node.inherited().iter().filter(waits) {
            loop {
                // What is decided before this the host has applied when it answers.
                let so_far = inherited.decisions_so_far();
                let asked = ReportRecords::OfShard(inherited.shard());
                let records = self.ask_host(&asked).await?.records;
                let lock = |key, txn| {
                    if self.node.config().hooks().rebuilds_locks() {
                        self.node.lock_again(key, txn);
                    }
                };
                if inherited.open(records, so_far, lock) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends what is decided of the transactions whose keys are locked in shards that this node has
    /// inherited, and which stands in the log: nobody sends COMMIT or ABORT for what an earlier
    /// primary has locked.
    ///
    /// The host applies what commits, as a backup does. It may have a newer write of another that
    /// was decided before, so that the index learns from the table what has become of the keys.
    pub(super) async fn settle_inherited(
        &self,
        decisions: impl Iterator<Item = Decision>,
    ) -> Result<(), FabricError> {
        if self.node.inherited().iter().next().is_none() {
            return Ok(());
        }
        let decisions = decisions.filter(|one| one.fate != Fate::KnownToAll);
        let mut ended = Vec::new();
        for Decision { txn, .. } in decisions {
            for inherited in self.node.inherited().iter() {
                let records = inherited.decide(txn);
                if !records.is_empty() {
                    ended.push((inherited, txn, records));
                }
            }
        }
        if !ended.is_empty() {
            self.ask_host(&ReportRecords::OfLost).await?;
        }
        for (inherited, txn, records) in ended {
            keys_of(&records).for_each(|key| self.node.end_inherited(inherited, key, txn));
        }
        Ok(())
    }
}
