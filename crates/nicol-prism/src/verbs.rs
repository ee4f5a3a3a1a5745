//! Plain verbs by the card, or by the software that executes chains. [PRISM21 7.4, 8.3]
//!
//! "We also compare against [the baseline] using the same software RDMA implementation as PRISM": a
//! verb that is sent as a chain of one operation goes to whatever executes chains at its target.

use nicol_core::chain::{Chain, ChainResults, Data, Outcome, Primitive, Target};
use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::NodeId;
use nicol_core::memory::{Compare, MaskedSwap};
use nicol_core::view::Halves;

/// The executor of plain verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// The target's card, where it can.
    Card,
    /// Software, where it executes chains.
    Software,
}

impl Verbs {
    /// The sides of a node that a system needs together whose hosts do everything by such verbs.
    pub(crate) const fn halves(self) -> Halves {
        match self {
            Self::Card => Halves::HostAlone,
            // NIC engines execute the chains.
            Self::Software => Halves::Together,
        }
    }

    /// Posts a verb to be executed by the card, or by software, of its target.
    pub(crate) fn post<F: Fabric>(
        self,
        fabric: &F,
        node: NodeId,
        verb: OneSided<'_>,
    ) -> F::Completion {
        if self == Self::Card {
            return fabric.one_sided(node, verb);
        }
        let at = Target::At;
        let (primitive, rkey) = match verb {
            OneSided::Chain(_) => return fabric.one_sided(node, verb),
            OneSided::Read { rkey, offset, len } => {
                (Primitive::Read { from: at(offset), len }, rkey)
            }
            OneSided::Write { rkey, offset, bytes } => {
                let data = Data::Inline(bytes);
                (Primitive::Write { to: at(offset), data }, rkey)
            }
            OneSided::CompareSwap { rkey, offset, expected, new } => {
                let swap = MaskedSwap::new(Compare::Equal, [expected], [new]);
                (Primitive::compare_swap(at(offset), swap), rkey)
            }
            OneSided::FetchAdd { rkey, offset, amount } => {
                (Primitive::FetchAdd { target: at(offset), amount }, rkey)
            }
        };
        let mut chain = Chain::default();
        chain.push(primitive.under(rkey));
        fabric.one_sided(node, OneSided::Chain(&chain))
    }

    /// The result of a verb.
    ///
    /// Errors: why it was refused.
    pub(crate) fn result<P: AsRef<[u8]>>(
        self,
        reply: &Result<P, FabricError>,
    ) -> Result<&[u8], FabricError> {
        let bytes = reply.as_ref().map_err(|error| *error)?.as_ref();
        if self == Self::Card {
            return Ok(bytes);
        }
        let results = ChainResults::parse(bytes).map_err(|_| FabricError::Malformed)?;
        match results.outcome(0) {
            Outcome::Done(bytes) | Outcome::NotSwapped(bytes) => Ok(bytes),
            Outcome::Refused(error) => Err(error),
            Outcome::Skipped => Err(FabricError::Malformed),
        }
    }
}
