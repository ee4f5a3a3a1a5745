//! Receivers of SENDs, and their messages.

use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Message, Service};
use nicol_core::wire::{Malformed, Writer};

use super::{Requests, Step};

/// A request of a SEND: which step it is, and as many bytes as the step says.
pub(super) struct Asked {
    pub(super) alternative: u8,
    pub(super) step: u8,
    pub(super) bytes: u64,
}

impl Message for Asked {
    const KIND: u16 = 1;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(&[self.alternative, self.step]);
        to.bytes(&vec![0; self.bytes.saturating_sub(2) as usize]);
    }
}

struct Answer(u64);

impl Message for Answer {
    const KIND: u16 = 2;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(&vec![0; self.0 as usize]);
    }
}

/// The receiver of a SEND, which takes the steps after it.
pub(super) struct Server<F: Fabric> {
    pub(super) fabric: F,
    pub(super) requests: Arc<Requests>,
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let &[alternative, step, ..] = delivery.body else {
            return Err(Malformed { what: "a planned request" });
        };
        let (alternative, step) = (usize::from(alternative), usize::from(step));
        let (fabric, requests) = (self.fabric.clone(), self.requests.clone());
        let Some(to) = delivery.reply_to else { return Ok(()) };
        let steps = &requests.alternatives[alternative].steps;
        let reply = match &steps[step] {
            Step::Operation { reply, .. } => *reply,
            Step::Compute { .. } => 0,
        };
        let nested = steps.get(step + 1).is_some_and(|_| requests.is_nested(alternative, step + 1));
        if !nested {
            fabric.reply(to, &Answer(reply));
            return Ok(());
        }
        self.fabric.spawn(async move {
            let done = requests.take(&fabric, (alternative, step + 1), 1).await;
            assert_eq!(done, Ok(()), "a plan meets no faults");
            fabric.reply(to, &Answer(reply));
        });
        Ok(())
    }
}
