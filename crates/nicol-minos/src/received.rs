//! An INV, kept for the task that follows it.

use std::cell::RefCell;

use nicol_core::ids::EngineId;
use nicol_core::units::Nanos;
use nicol_kit::Open;

use super::messages::Inv;
use super::value::Value;

/// An INV that was received.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) from: EngineId,
    pub(super) at: Nanos,
    pub(super) inv: Inv<'static>,
    pub(super) value: Option<Value>,
    /// While its update may still land here.
    pub(super) updating: RefCell<Option<Open>>,
}

impl Received {
    /// `inv`, which has come now, kept; its value is `value`.
    pub(super) fn of(from: EngineId, inv: &Inv<'_>, value: Option<Value>, at: Nanos) -> Self {
        Self { from, at, inv: Inv { value: None, ..*inv }, value, updating: RefCell::default() }
    }

    pub(super) fn inv(&self) -> Inv<'_> {
        Inv { value: self.value.as_deref(), ..self.inv }
    }
}
