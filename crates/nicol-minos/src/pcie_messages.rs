//! What a host and its SmartNIC tell one another over PCIe. [MINOS24 V-B3, figure 6]

use nicol_core::fabric::Message;
use nicol_core::ids::{Key, NodeId};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::messages::{Inv, Val, val_kind};
use super::model::Memory;
use super::timestamp::Timestamp;

pub(super) const HOST_INV: u16 = 16;

/// Names no follower: the INV is for all of them.
pub(super) const ALL: u16 = u16::MAX;

/// INV from the host to its SmartNIC: batched, for all followers; or one of several, for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostInv<'a> {
    pub(super) key: Key,
    pub(super) ts: Timestamp,
    pub(super) scope: u64,
    /// The follower, or [`ALL`].
    pub(super) to: u16,
    /// The number of INVs of this write.
    pub(super) of: u16,
    /// `None` removes the record.
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> HostInv<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let [key, ts, scope] = reader.u64s()?;
        let (to, of, has_value) = (reader.u16()?, reader.u16()?, reader.u8()?);
        if of == 0 || has_value > 1 {
            return Err(Malformed { what: "an INV of a host that is none" });
        }
        let value = (has_value == 1).then(|| reader.rest());
        if value.is_none() {
            reader.finish()?;
        }
        Ok(Self { key: Key(key), ts: Timestamp::of_bits(ts), scope, to, of, value })
    }
}

impl Message for HostInv<'_> {
    const KIND: u16 = HOST_INV;

    fn emit(&self, to: &mut Writer<'_>) {
        for word in [self.key.0, self.ts.bits(), self.scope] {
            to.u64(word);
        }
        to.u16(self.to);
        to.u16(self.of);
        to.u8(u8::from(self.value.is_some()));
        to.bytes(self.value.unwrap_or_default());
    }

    fn name() -> &'static str {
        "INV"
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.key);
    }
}

/// ACK from the SmartNIC to its host: batched, or of one follower.
pub(super) struct HostAck;

impl Message for HostAck {
    const KIND: u16 = 17;

    fn emit(&self, _: &mut Writer<'_>) {}

    fn name() -> &'static str {
        "ACK"
    }
}

pub(super) const RELAY_INV: u16 = 20;
pub(super) const RELAY_VAL: u16 = 21;

/// An INV for these followers.
pub(super) struct RelayInv<'a> {
    pub(super) to: &'a [NodeId],
    pub(super) inv: Inv<'a>,
}

impl Message for RelayInv<'_> {
    const KIND: u16 = RELAY_INV;

    fn emit(&self, to: &mut Writer<'_>) {
        emit_nodes(self.to, to);
        self.inv.emit(to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        each(self.inv.key);
    }
}

/// A VAL, VAL_C or VAL_P for these followers.
pub(super) struct RelayVal<'a> {
    pub(super) to: &'a [NodeId],
    pub(super) memory: Memory,
    pub(super) val: Val,
}

impl Message for RelayVal<'_> {
    const KIND: u16 = RELAY_VAL;

    fn emit(&self, to: &mut Writer<'_>) {
        emit_nodes(self.to, to);
        to.u16(val_kind(self.memory));
        self.val.emit(to);
    }
}

fn emit_nodes(nodes: &[NodeId], to: &mut Writer<'_>) {
    to.u16(nodes.len() as u16);
    nodes.iter().for_each(|node| to.u16(node.0));
}

pub(super) fn parse_nodes(reader: &mut Reader<'_>) -> Result<Vec<NodeId>, Malformed> {
    let count = reader.u16()?;
    (0..count).map(|_| reader.u16().map(NodeId)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inv_of_a_host_survives_pcie_and_what_is_none_is_refused() {
        let (key, ts) = (Key(7), Timestamp::of_bits(9));
        for value in [Some(&b"value"[..]), Some(b""), None] {
            let inv = HostInv { key, ts, scope: 5, to: 3, of: 4, value };
            let mut body = Vec::new();
            inv.emit(&mut Writer::new(&mut body));
            assert_eq!(HostInv::parse(&body), Ok(inv));
            assert!(HostInv::parse(&body[..28]).is_err());
            body[26] = 0;
            assert!(HostInv::parse(&body).is_err(), "of none");
        }
    }

    #[test]
    fn what_is_relayed_survives_pcie() {
        let (key, ts) = (Key(7), Timestamp::of_bits(9));
        let value = Some(&b"value"[..]);
        let inv = Inv { write: 1, epoch: 2, key, ts, scope: 5, again: false, value };
        let to = [NodeId(3), NodeId(4)];
        let mut body = Vec::new();
        RelayInv { to: &to, inv }.emit(&mut Writer::new(&mut body));
        let mut reader = Reader::new(&body);
        assert_eq!(parse_nodes(&mut reader), Ok(to.to_vec()));
        assert_eq!(Inv::parse(reader.rest()), Ok(inv));
        assert!(parse_nodes(&mut Reader::new(&body[..5])).is_err());
    }
}
