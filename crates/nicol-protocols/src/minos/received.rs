//! An INV, kept for the task that follows it.

use nicol_core::ids::EngineId;
use nicol_core::units::Nanos;

use super::messages::Inv;

/// An INV that was received.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) from: EngineId,
    pub(super) at: Nanos,
    pub(super) inv: Inv<'static>,
    value: Option<Box<[u8]>>,
}

impl Received {
    /// `inv`, which has come now, kept.
    pub(super) fn of(from: EngineId, inv: &Inv<'_>, at: Nanos) -> Self {
        Self { from, at, inv: Inv { value: None, ..*inv }, value: inv.value.map(Into::into) }
    }

    pub(super) fn inv(&self) -> Inv<'_> {
        Inv { value: self.value.as_deref(), ..self.inv }
    }
}
