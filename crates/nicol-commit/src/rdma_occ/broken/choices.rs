//! The choices of a system that is broken on purpose.

use crate::Sabotage;
use crate::rdma_occ::config::{
    Execution, Locking, Primitive, RdmaOccConfig, ValidateKeys, Validation,
};

/// The choices that are in force: a system that is broken on purpose locks, validates and commits
/// by RPC, since it is the owners of records that are broken.
pub(in crate::rdma_occ) fn in_force(mut config: RdmaOccConfig) -> RdmaOccConfig {
    if config.sabotage == Sabotage::None {
        return config;
    }
    if let Execution::Read(Locking { by, .. }) = &mut config.execution {
        *by = Primitive::Rpc;
    }
    config.validation = Validation::Rpc;
    config.validate_keys = ValidateKeys::Unlocked;
    config.commit_by = Primitive::Rpc;
    if config.sabotage == Sabotage::StealsLocks {
        // A READ would see the lock, and go away.
        config.execution = Execution::Rpc;
    }
    config
}
