use nicol_core::fabric::{FabricError, Message, RequestId};
use nicol_core::ids::{Epoch, Key, ShardId, TxnId, Version};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::{Abort, ProcedureId, RangeVersion, Txn, VersionRange};
use nicol_core::wire::Writer;
use nicol_store::host_table::ExhaustedSpace;

use super::local::{TxnLocal, parse_txn_local};
use super::ship::{Ship, ShipReply, Shipped, parse_ship, parse_ship_reply};
use super::split_requests::{Lock, Read};
use crate::messages::{
    Execute, ExecuteReply, Found, Keys, LockReads, Reads, Validate, parse_execute_reply,
};

fn bytes(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut Writer::new(&mut bytes));
    bytes
}

/// Keys that are read and absent, read and present, put, deleted, and in the write set for nothing.
fn keys() -> Txn {
    let mut txn = Txn::default();
    txn.reset(ProcedureId(7), b"arguments");
    (txn.id, txn.ship) = (TxnId(99), true);
    txn.read(Key(1));
    txn.read(Key(2));
    for key in 3..6 {
        txn.write(Key(key));
    }
    txn
}

fn executed() -> Txn {
    let mut txn = keys();
    txn.fetched(0, Version(4), None);
    for index in 1..5 {
        txn.fetched(index, Version(10 + index as u64), Some(b"old"));
    }
    txn.put(2, b"new");
    txn.delete(3);
    txn.output.extend_from_slice(b"output");
    txn
}

fn writes(txn: &Txn) -> Vec<(u64, u64, Option<Vec<u8>>)> {
    let write = |write: nicol_core::txn::Write<'_>| {
        (write.key.0, write.version.0, write.value.map(<[u8]>::to_vec))
    };
    txn.updates().map(write).collect()
}

fn reads(txn: &Txn) -> Vec<(u64, u64, bool, bool)> {
    let read =
        |entry: &nicol_core::txn::Entry| (entry.key.0, entry.version.0, entry.present, entry.write);
    txn.entries().iter().map(read).collect()
}

/// Every shorter body, and bodies with wrong bytes: an error or another message, never a panic.
fn withstands(body: &[u8], parse: impl Fn(&[u8]) -> bool) {
    assert!(parse(body), "the whole body is one");
    for len in 0..body.len() {
        assert!(!parse(&body[..len]), "the first {len} bytes are none");
    }
    let mut random = Stream::new(1, Purpose::Test, 0);
    for _ in 0..20_000 {
        let mut wrong = body.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(wrong.len() as u64) as usize;
            wrong[at] = random.bits() as u8;
        }
        parse(&wrong);
    }
}

#[test]
fn a_shipped_transaction_arrives_whole() {
    let mut sent = keys();
    sent.fetched(0, Version(4), None);
    sent.fetched(1, Version(11), Some(b"old"));
    let delegated = [RequestId { slot: 3, sequence: 5 }, RequestId { slot: 4, sequence: 6 }];
    for began in [None, Some(Epoch(7))] {
        let delegated = delegated.iter().copied();
        let body = bytes(&Ship { txn: &sent, began, delegated });
        assert_eq!(parse_ship(&body, &mut Txn::default(), &mut Vec::new()), Ok(began));
    }
    let began = Some(Epoch(u32::MAX));
    let body = bytes(&Ship { txn: &sent, began, delegated: delegated.iter().copied() });
    let (mut txn, mut requests) = (Txn::default(), Vec::new());
    assert_eq!(parse_ship(&body, &mut txn, &mut requests), Ok(began));
    assert_eq!(requests, delegated);
    assert_eq!((txn.id, txn.procedure, txn.args()), (sent.id, sent.procedure, sent.args()));
    assert_eq!(reads(&txn), reads(&sent));
    assert_eq!((txn.value(0), txn.value(1)), (None, Some(&b"old"[..])));
    assert!(txn.entries()[2..].iter().all(|entry| !entry.fetched));
    withstands(&body, |body| parse_ship(body, &mut Txn::default(), &mut Vec::new()).is_ok());
}

#[test]
fn what_was_executed_elsewhere_comes_back_whole() {
    let done = executed();
    let body = bytes(&ShipReply::Executed(&done));
    let mut txn = keys();
    assert!(matches!(parse_ship_reply(&body, &mut txn), Ok(Shipped::Executed)));
    assert_eq!((reads(&txn), writes(&txn)), (reads(&done), writes(&done)));
    assert_eq!(txn.output, b"output");
    let without_output = body.len() - done.output.len();
    withstands(&body[..without_output], |body| parse_ship_reply(body, &mut keys()).is_ok());

    let denied = bytes(&ShipReply::Denied(Abort::LockConflict { key: Key(3) }));
    let reply = parse_ship_reply(&denied, &mut keys());
    assert!(matches!(reply, Ok(Shipped::Denied(Abort::LockConflict { key: Key(3) }))));
    let reply = parse_ship_reply(&bytes(&ShipReply::More), &mut keys());
    assert!(matches!(reply, Ok(Shipped::More)));
    let reasons = [
        Abort::Stale { key: Key(4) },
        Abort::ShardUnavailable { shard: ShardId(u16::MAX) },
        Abort::AwaitsRecovery { key: Key(u64::MAX) },
    ];
    for reason in reasons {
        let body = bytes(&ShipReply::Denied(reason));
        let reply = parse_ship_reply(&body, &mut keys());
        assert!(matches!(reply, Ok(Shipped::Denied(told)) if told == reason), "{reason:?}");
    }
    let fabric = bytes(&ShipReply::Denied(Abort::Fabric(FabricError::Unreachable)));
    withstands(&fabric, |body| parse_ship_reply(body, &mut keys()).is_ok());
}

#[test]
fn a_local_transaction_reaches_its_nic_whole() {
    let mut done = executed();
    for (range, writes) in [(3, 4), (5, 0)] {
        done.note_range_version(RangeVersion { range: VersionRange(range), writes });
    }
    done.mark_range_checked(1);
    let body = bytes(&TxnLocal { txn: &done, refused: false });
    let mut txn = Txn::default();
    assert!(matches!(parse_txn_local(&body, &mut txn), Ok(false)));
    assert_eq!((reads(&txn), writes(&txn)), (reads(&done), writes(&done)));
    assert_eq!(txn.range_versions(), done.range_versions());
    let range_checked: Vec<bool> = txn.entries().iter().map(|entry| entry.range_checked).collect();
    assert_eq!(range_checked, [false, true, false, false, false]);
    withstands(&body, |body| parse_txn_local(body, &mut Txn::default()).is_ok());
}

#[test]
fn a_local_transaction_that_was_refused_is_only_read() {
    let done = executed();
    let body = bytes(&TxnLocal { txn: &done, refused: true });
    let mut txn = Txn::default();
    assert!(matches!(parse_txn_local(&body, &mut txn), Ok(true)));
    let read =
        |&(key, version, present, _): &(u64, u64, bool, bool)| (key, version, present, false);
    assert_eq!(reads(&txn), reads(&done).iter().map(read).collect::<Vec<_>>());
    assert_eq!(writes(&txn), []);
    withstands(&body, |body| parse_txn_local(body, &mut Txn::default()).is_ok());
}

#[test]
fn separate_requests_name_their_keys() {
    let done = executed();
    let body = bytes(&Read { txn: &done, began: None, keys: &[1, 2] });
    let Ok(keys) = Keys::parse(&body) else { panic!("a READ reads as an EXECUTE") };
    let found: Vec<_> = keys.iter().map(|access| (access.key.0, access.write)).collect();
    assert_eq!((keys.txn, found), (done.id, vec![(2, false), (3, false)]));
    let body = bytes(&Lock { txn: &done, began: None, keys: &[2, 4] });
    let Ok(LockReads { txn, reads }) = LockReads::parse(&body) else { panic!("a LOCK parses") };
    let found: Vec<_> = reads.iter().map(|read| (read.key.0, read.version.0)).collect();
    assert_eq!((txn, found), (done.id, vec![(3, 12), (5, 14)]));
    withstands(&body, |body| LockReads::parse(body).is_ok());
}

#[test]
fn requests_say_when_their_transaction_began_if_they_are_to() {
    let done = executed();
    let (txn, keys) = (&done, &[1, 2][..]);
    for (began, more) in [(None, 0), (Some(Epoch(0)), 4), (Some(Epoch(u32::MAX)), 4)] {
        let body = bytes(&Execute { txn, began, keys });
        assert_eq!(body.len(), 8 + 2 + more + 2 * 9);
        assert!(matches!(Keys::parse(&body), Ok(keys) if keys.began == began));
        withstands(&body, |body| Keys::parse(body).is_ok());
        let body = bytes(&Validate { txn, began, keys });
        assert_eq!(body.len(), 2 + more + 2 * 17);
        assert!(matches!(Reads::parse(&body), Ok(reads) if reads.began == began));
        withstands(&body, |body| Reads::parse(body).is_ok());
    }
}

#[test]
fn an_execute_reply_tells_a_shortage() {
    let found = [Found { version: Version(3), value: Some((1, 2)) }];
    let bits = [(0, false), (5 << 16 | 64, false), (0, true), (5 << 16 | 64, true)];
    for (values, records) in bits {
        let exhausted = ExhaustedSpace::from_bits(values, records);
        let body = bytes(&ExecuteReply::Granted(exhausted, found.iter().copied(), b"?ab"));
        assert_eq!(body.len(), 1 + 8 + 4 + 2 + if values == 0 { 0 } else { 4 });
        let mut txn = keys();
        assert_eq!(parse_execute_reply(&body, &mut txn, &[2]), Ok(Ok(exhausted)));
        assert_eq!((txn.entries()[2].version, txn.value(2)), (Version(3), Some(&b"ab"[..])));
        withstands(&body, |body| parse_execute_reply(body, &mut keys(), &[2]).is_ok());
    }
}
