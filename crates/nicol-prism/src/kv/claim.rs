//! How a client gets a slot for a key that has none, where the slots of deleted keys are used
//! again: it asks the server. AMB-48

use nicol_core::fabric::{Fabric, FabricError, Message, Timeout};
use nicol_core::ids::{EngineId, Key};
use nicol_core::key_value::Reason;
use nicol_core::units::Nanos;
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_kit::count;

use super::client::{Client, NOT_READY_TRIES, NOT_READY_WAIT, Server, malformed};
use super::layout::{Located, SLOT_WORDS_MAX};
use super::name::Name;

/// Client to server: asks which slot this key gets.
pub(super) const CLAIM: u16 = 6;
const CLAIMED: u16 = 7;

/// Time that a CLAIM waits for its answer before it is sent anew: a slot is claimed once.
const CLAIM_TIMEOUT: Nanos = Nanos::from_millis(2);

/// CLAIM: asks the server for a slot for this key.
pub(super) struct Claim<'a>(pub(super) &'a [u8]);

impl Message for Claim<'_> {
    const KIND: u16 = CLAIM;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(self.0);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        Name::of(self.0).key().into_iter().for_each(each);
    }
}

/// The answer to a [`Claim`].
pub(super) enum Claimed {
    /// The key has this slot, with what was there when the server looked.
    Slot(Located),
    /// Every slot where it may be has another key.
    Full,
    /// No buffer is left at present.
    NotReady,
    /// The server's own chains have failed.
    Failed,
}

impl Message for Claimed {
    const KIND: u16 = CLAIMED;

    fn emit(&self, to: &mut Writer<'_>) {
        match self {
            Self::Slot(located) => {
                to.u8(0);
                to.u64(located.slot);
                located.words.iter().for_each(|word| to.u64(*word));
                to.u64(located.stamp.unwrap_or_default());
                to.u8(u8::from(located.live));
            }
            Self::Full => to.u8(1),
            Self::NotReady => to.u8(2),
            Self::Failed => to.u8(3),
        }
    }
}

impl Claimed {
    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let answer = match from.u8()? {
            0 => {
                let slot = from.u64()?;
                let mut words = [0; SLOT_WORDS_MAX];
                for word in &mut words {
                    *word = from.u64()?;
                }
                let (stamp, live) = (Some(from.u64()?), from.u8()? != 0);
                Self::Slot(Located { slot, words, stamp, live })
            }
            1 => Self::Full,
            2 => Self::NotReady,
            3 => Self::Failed,
            _ => return Err(Malformed { what: "an answer to CLAIM" }),
        };
        from.finish().map(|()| answer)
    }
}

impl<F: Fabric> Client<F> {
    /// Asks for the slot of `name`, which has none, or has had none just now.
    ///
    /// Cost: a round trip, and the server's work.
    pub(super) async fn claim(&self, server: &Server, name: Name<'_>) -> Result<Located, Reason> {
        let (fabric, node) = (&self.0.fabric, &self.0.node);
        let _phase = fabric.phase("claim a slot");
        let (keeper, claim) = (EngineId::host(server.node, 0), Claim(name.bytes()));
        let mut wait = NOT_READY_WAIT;
        for _ in 0..NOT_READY_TRIES {
            if node.lost().contain(server.node) {
                return Err(Reason::ShardUnavailable);
            }
            let answer = fabric.call(keeper, &claim, Timeout::After(CLAIM_TIMEOUT)).await;
            let answer = match answer {
                Ok(body) => Claimed::parse(body.as_ref()).map_err(malformed)?,
                Err(FabricError::TimedOut { .. }) => continue,
                Err(error) => return Err(Reason::Fabric(error)),
            };
            match answer {
                Claimed::Slot(located) => return Ok(located),
                Claimed::Full => {
                    count(&node.counts.no_slot);
                    return Err(Reason::NoResources);
                }
                Claimed::NotReady => {
                    count(&node.recycled.waits);
                    fabric.sleep_until(fabric.now() + wait).await;
                    wait = wait * 2;
                }
                Claimed::Failed => return Err(Reason::Conflict),
            }
        }
        Err(Reason::NoResources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(message: &impl Message) -> Vec<u8> {
        let mut body = Vec::new();
        message.emit(&mut Writer::new(&mut body));
        body
    }

    #[test]
    fn answers_survive_the_way_and_truncated_ones_are_refused() {
        let located = Located { slot: 96, words: [1, 2, 3, 0], stamp: Some(7), live: true };
        let body = emitted(&Claimed::Slot(located));
        let Ok(Claimed::Slot(found)) = Claimed::parse(&body) else { panic!("a slot") };
        assert_eq!((found.slot, found.words), (96, [1, 2, 3, 0]));
        assert_eq!((found.stamp, found.live), (Some(7), true));
        assert!((0..body.len()).all(|len| Claimed::parse(&body[..len]).is_err()));
        assert!(matches!(Claimed::parse(&emitted(&Claimed::Full)), Ok(Claimed::Full)));
        assert!(matches!(Claimed::parse(&emitted(&Claimed::NotReady)), Ok(Claimed::NotReady)));
        assert!(Claimed::parse(&[4]).is_err());
    }
}
