//! Messages of the ablation without combined operations. [Xenic21 5.7]

use nicol_core::fabric::Message;
use nicol_core::ids::{Epoch, Key};
use nicol_core::txn::Txn;
use nicol_core::wire::Writer;

use super::{LOCK, READ};
use crate::messages::{Validate, each_key, emit_began};

/// READ: one shard's keys of this round, none of which is locked. It reads as an EXECUTE without a
/// write set.
pub(in crate::xenic) struct Read<'a> {
    pub(in crate::xenic) txn: &'a Txn,
    /// See [`Validate::began`].
    pub(in crate::xenic) began: Option<Epoch>,
    /// Indices of the shard's keys.
    pub(in crate::xenic) keys: &'a [usize],
}

impl Message for Read<'_> {
    const KIND: u16 = READ;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        emit_began(self.keys.len(), self.began, to);
        for &index in self.keys {
            to.u64(self.txn.entries()[index].key.0);
            to.u8(0);
        }
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}

/// LOCK: one shard's part of the write set, with the versions read.
pub(in crate::xenic) struct Lock<'a> {
    pub(in crate::xenic) txn: &'a Txn,
    /// See [`Validate::began`].
    pub(in crate::xenic) began: Option<Epoch>,
    /// Indices of the shard's keys.
    pub(in crate::xenic) keys: &'a [usize],
}

impl Message for Lock<'_> {
    const KIND: u16 = LOCK;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.txn.id.0);
        Validate { txn: self.txn, began: self.began, keys: self.keys }.emit(to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each_key(self.txn, self.keys, each);
    }
}
