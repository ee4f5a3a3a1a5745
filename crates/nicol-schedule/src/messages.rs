//! The messages of scheduled requests.

use nicol_core::fabric::{FabricError, Message, ReplyTo, RequestId};
use nicol_core::ids::{EngineId, Key, ShardId, TxnId};
use nicol_core::txn::{Abort, KEYS_MAX, Outcome, ProcedureId, Txn};
use nicol_core::wire::{Malformed, Reader, Writer};

use super::decision::Vectors;
use super::deposits::Entry;
use super::features::{FEATURES, Features};

/// Where the kinds of these messages begin: beyond those of the systems that are scheduled.
const KINDS: u16 = 0x100;
/// Client to scheduler, or to a worker.
pub(crate) const REQUEST: u16 = KINDS + 1;
/// Scheduler to worker: an entry of its completion queue. [AlNiCo22, implementation, step 3]
pub(crate) const WORK: u16 = KINDS + 2;
/// Worker to scheduler.
pub(crate) const COMPLETED: u16 = KINDS + 3;
/// Software to scheduler.
pub(crate) const VECTORS: u16 = KINDS + 4;
const DONE: u16 = KINDS + 5;
/// Client to worker: a part of a request that does not fit a slot.
pub(crate) const PART: u16 = KINDS + 6;
/// Client to the host: a request without its vector. [AlNiCo22, implementation, step 1]
pub(crate) const DATA: u16 = KINDS + 7;
/// Where its id stands in it: behind slot, hint and flags.
pub(crate) const DATA_ID: std::ops::Range<usize> = 10..18;
/// Client to the FPGA: the vector alone. [AlNiCo22, implementation, step 2]
pub(crate) const VECTOR: u16 = KINDS + 8;
/// FPGA to worker: an entry of its completion queue, for data that is on the host. [AlNiCo22,
/// implementation, step 3]
pub(crate) const ENTRY: u16 = KINDS + 9;

/// Bytes of a slot, which takes a request or a part of one. (C2.06)
pub(crate) const SLOT_BYTES: usize = 2_048;

/// In a request's flags: its transaction takes long; its logic may be shipped; it runs on the host
/// that has all its keys.
const LONG: u8 = 1;
const SHIP: u8 = 2;
const LOCAL: u8 = 4;
/// Its vector goes another way.
const APART: u8 = 8;
/// Of a key: it is written; without a look at what was there.
const WRITE: u8 = 1;
const BLIND: u8 = 2;

/// True if a message of this kind is one of these.
pub fn is_scheduling(kind: u16) -> bool {
    (REQUEST..=ENTRY).contains(&kind)
}

/// A request: its header with the vector [AlNiCo22, new header], then the transaction's arguments
/// and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) header: Header,
    /// The transaction, as its client names it.
    pub(crate) id: TxnId,
    pub(crate) procedure: ProcedureId,
    pub(crate) args: Vec<u8>,
    /// The keys, and what is done with each.
    pub(crate) keys: Vec<(Key, u8)>,
}

/// The part of a request that a scheduler looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The client: it has one request at a time. (AMB-24)
    pub(crate) slot: u64,
    /// Where the client would send it.
    pub(crate) hint: u8,
    /// Does it take long?
    pub(crate) long: bool,
    /// May its logic be shipped?
    pub(crate) ship: bool,
    /// Does it run on the host that has all its keys?
    pub(crate) local: bool,
    pub(crate) features: Features,
}

impl Header {
    /// `vector`: with the vector?
    fn emit(&self, vector: bool, to: &mut Writer<'_>) {
        to.u64(self.slot);
        to.u8(self.hint);
        let flag = |on, flag| if on { flag } else { 0 };
        let flags = flag(self.long, LONG) | flag(self.ship, SHIP) | flag(self.local, LOCAL);
        to.u8(flags | flag(!vector, APART));
        if vector {
            self.features.emit(to);
        }
    }

    pub(crate) fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (slot, hint, flags) = (from.u64()?, from.u8()?, from.u8()?);
        if flags & !(LONG | SHIP | LOCAL | APART) != 0 {
            return Err(Malformed { what: "a request's flags" });
        }
        let is = |flag| flags & flag != 0;
        let features = match is(APART) {
            true => Features::default(),
            false => Features::parse(from)?,
        };
        Ok(Self { slot, hint, long: is(LONG), ship: is(SHIP), local: is(LOCAL), features })
    }
}

/// A request as a client sends it.
pub(crate) struct RequestOf<'a> {
    pub(crate) header: Header,
    pub(crate) id: TxnId,
    pub(crate) txn: &'a Txn,
    /// Bytes besides.
    pub(crate) padding: u32,
    /// Does its vector go another way?
    pub(crate) apart: bool,
}

impl RequestOf<'_> {
    /// Cuts off what of the padding fills slots of its own; returns how many. Keys stay together.
    pub(crate) fn cut(&mut self) -> usize {
        /// Slot, hint, flags and vectors, id, procedure, three lengths.
        const FIXED: usize = 8 + 2 + 2 * FEATURES / 8 + 8 + 2 + 2 + 2 + 4;
        let entries = self.txn.entries().len() * KEY_BYTES;
        let vectors = if self.apart { 2 * FEATURES / 8 } else { 0 };
        let own = FIXED - vectors + self.txn.args().len() + entries;
        let all = own + self.padding as usize;
        let before = all.div_ceil(SLOT_BYTES) - own.div_ceil(SLOT_BYTES);
        self.padding = self.padding.saturating_sub((before * SLOT_BYTES) as u32);
        before
    }
}

impl Message for RequestOf<'_> {
    const KIND: u16 = REQUEST;

    fn emit(&self, to: &mut Writer<'_>) {
        let Self { header, id, txn, padding, apart } = self;
        header.emit(!apart, to);
        to.u64(id.0);
        to.u16(txn.procedure.0);
        to.u16(txn.args().len() as u16);
        to.bytes(txn.args());
        to.u16(txn.entries().len() as u16);
        for entry in txn.entries() {
            to.u64(entry.key.0);
            let blind = if entry.blind { BLIND } else { 0 };
            to.u8(u8::from(entry.write) | blind);
        }
        to.u32(*padding);
        to.zeros(*padding as usize);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.txn.entries().iter().for_each(|entry| each(entry.key));
    }
}

/// A request whose vector goes another way.
pub(crate) struct DataOf<'a>(pub(crate) RequestOf<'a>);

impl Message for DataOf<'_> {
    const KIND: u16 = DATA;

    fn emit(&self, to: &mut Writer<'_>) {
        self.0.emit(to);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        self.0.keys(each);
    }
}

/// The part of a request that a scheduler needs whose data is on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) header: Header,
    pub(crate) id: TxnId,
}

impl Message for Vector {
    const KIND: u16 = VECTOR;

    fn emit(&self, to: &mut Writer<'_>) {
        self.header.emit(true, to);
        to.u64(self.id.0);
    }
}

impl Vector {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (header, id) = (Header::parse(&mut from)?, TxnId(from.u64()?));
        from.finish().map(|()| Self { header, id })
    }
}

impl Message for Entry {
    const KIND: u16 = ENTRY;

    fn emit(&self, to: &mut Writer<'_>) {
        emit_reply_to(self.reply_to, to);
        to.u64(self.slot);
        to.u64(self.id.0);
    }
}

impl Entry {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let reply_to = parse_reply_to(&mut from)?;
        let (slot, id) = (from.u64()?, TxnId(from.u64()?));
        from.finish().map(|()| Self { reply_to, slot, id })
    }
}

fn emit_reply_to(reply_to: ReplyTo, to: &mut Writer<'_>) {
    to.u32(reply_to.engine.pack());
    to.u16(reply_to.request.slot);
    to.u32(reply_to.request.sequence);
}

fn parse_reply_to(from: &mut Reader<'_>) -> Result<ReplyTo, Malformed> {
    let engine = EngineId::unpack(from.u32()?).ok_or(Malformed { what: "an engine" })?;
    let request = RequestId { slot: from.u16()?, sequence: from.u32()? };
    Ok(ReplyTo { engine, request })
}

/// A request as it came: all of it was looked at, nothing copied.
pub(crate) struct Checked<'a> {
    pub(crate) header: Header,
    pub(crate) id: TxnId,
    procedure: ProcedureId,
    args: &'a [u8],
    /// Each as [`KEY_BYTES`] bytes.
    keys: &'a [u8],
}

/// Bytes of a key of a request, and of what is done with it.
const KEY_BYTES: usize = size_of::<u64>() + 1;

impl<'a> Checked<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let from = &mut Reader::new(body);
        let header = Header::parse(from)?;
        let (id, procedure) = (TxnId(from.u64()?), ProcedureId(from.u16()?));
        let len = from.u16()?;
        let args = from.bytes(usize::from(len))?;
        let count = usize::from(from.u16()?);
        if count > KEYS_MAX {
            return Err(Malformed { what: "too many keys" });
        }
        let keys = from.bytes(count * KEY_BYTES)?;
        if keys.chunks_exact(KEY_BYTES).any(|key| key[KEY_BYTES - 1] > WRITE | BLIND) {
            return Err(Malformed { what: "what is done with a key" });
        }
        let padding = from.u32()?;
        from.bytes(padding as usize)?;
        if from.rest().is_empty() {
            Ok(Self { header, id, procedure, args, keys })
        } else {
            Err(Malformed { what: "more than a request" })
        }
    }

    /// The keys, and what is done with each.
    fn keys(&self) -> impl Iterator<Item = (Key, u8)> {
        self.keys.as_chunks::<KEY_BYTES>().0.iter().map(|key| {
            let [row @ .., touch] = *key;
            (Key(u64::from_le_bytes(row)), touch)
        })
    }
}

impl Request {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let checked = Checked::parse(body)?;
        let Checked { header, id, procedure, args, .. } = checked;
        let keys = checked.keys().collect();
        Ok(Self { header, id, procedure, args: args.to_vec(), keys })
    }

    /// That it is done.
    pub(crate) const fn completed(&self) -> Completed {
        Completed { slot: self.header.slot, id: self.id }
    }

    /// Makes `txn` the transaction that was asked for.
    pub(crate) fn begin(&self, txn: &mut Txn) {
        txn.reset(self.procedure, &self.args);
        (txn.ship, txn.local) = (self.header.ship, self.header.local);
        for &(key, touch) in &self.keys {
            match touch {
                0 => txn.read(key),
                WRITE => txn.write(key),
                _ => txn.overwrite(key),
            };
        }
    }
}

/// A part of a request: as many bytes as fit a slot.
pub(crate) struct Part;

impl Message for Part {
    const KIND: u16 = PART;

    fn emit(&self, to: &mut Writer<'_>) {
        to.zeros(SLOT_BYTES);
    }
}

impl Part {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        match body.len() {
            SLOT_BYTES => Ok(Self),
            _ => Err(Malformed { what: "a part of a request" }),
        }
    }
}

/// A request that was scheduled: where the reply goes, and the request as it came.
pub(crate) struct Work<'a> {
    pub(crate) reply_to: ReplyTo,
    pub(crate) request: &'a [u8],
}

impl Message for Work<'_> {
    const KIND: u16 = WORK;

    fn emit(&self, to: &mut Writer<'_>) {
        emit_reply_to(self.reply_to, to);
        to.bytes(self.request);
    }

    fn keys(&self, each: &mut dyn FnMut(Key)) {
        let request = Request::parse(self.request);
        request.iter().flat_map(|request| &request.keys).for_each(|(key, _)| each(*key));
    }
}

impl<'a> Work<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        Ok(Self { reply_to: parse_reply_to(&mut from)?, request: from.rest() })
    }
}

/// A request is done: its client's slot, and the transaction. By then the client may have sent its
/// next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) slot: u64,
    pub(crate) id: TxnId,
}

impl Message for Completed {
    const KIND: u16 = COMPLETED;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.slot);
        to.u64(self.id.0);
    }
}

impl Completed {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (slot, id) = (from.u64()?, TxnId(from.u64()?));
        from.finish().map(|()| Self { slot, id })
    }
}

impl Message for Vectors {
    const KIND: u16 = VECTORS;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.epoch);
        to.bytes(&self.weights[..]);
        to.bytes(&self.steering[..]);
    }
}

impl Vectors {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let mut vectors = Self { epoch: from.u64()?, ..Self::none() };
        vectors.weights.copy_from_slice(from.bytes(FEATURES)?);
        vectors.steering.copy_from_slice(from.bytes(FEATURES)?);
        from.finish().map(|()| vectors)
    }
}

/// The reply: how the transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done(pub(crate) Outcome);

impl Message for Done {
    const KIND: u16 = DONE;

    fn emit(&self, to: &mut Writer<'_>) {
        let (code, key) = match self.0 {
            Outcome::Committed => (0, Key(0)),
            Outcome::Aborted(Abort::LockConflict { key }) => (1, key),
            Outcome::Aborted(Abort::Stale { key }) => (2, key),
            Outcome::Aborted(Abort::ValidateLocked { key }) => (3, key),
            Outcome::Aborted(Abort::Refused) => (4, Key(0)),
            Outcome::Aborted(Abort::NoResources) => (5, Key(0)),
            Outcome::Aborted(Abort::Fabric(_)) => (6, Key(0)),
            Outcome::Aborted(Abort::ShardUnavailable { shard }) => (7, Key(shard.0.into())),
            Outcome::Aborted(Abort::AwaitsRecovery { key }) => (8, key),
            Outcome::Unknown => (9, Key(0)),
        };
        to.u8(code);
        to.u64(key.0);
    }
}

impl Done {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let (code, key) = (from.u8()?, Key(from.u64()?));
        from.finish()?;
        let abort = match code {
            0 => return Ok(Self(Outcome::Committed)),
            1 => Abort::LockConflict { key },
            2 => Abort::Stale { key },
            3 => Abort::ValidateLocked { key },
            4 => Abort::Refused,
            5 => Abort::NoResources,
            6 => Abort::Fabric(FabricError::Unreachable),
            7 => Abort::ShardUnavailable { shard: ShardId(key.0 as u16) },
            8 => Abort::AwaitsRecovery { key },
            9 => return Ok(Self(Outcome::Unknown)),
            _ => return Err(Malformed { what: "an outcome" }),
        };
        Ok(Self(Outcome::Aborted(abort)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way_and_truncated_or_hostile_ones_are_refused() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(3), b"args");
        (0..5).for_each(|row| {
            _ = if row % 2 == 0 { txn.read(Key(row)) } else { txn.write(Key(row)) }
        });
        let mut header = Header { slot: 9, hint: 3, long: true, local: true, ..Header::default() };
        header.features.add(77, true);
        let mut body = Vec::new();
        RequestOf { header, id: TxnId(8), txn: &txn, padding: 9, apart: false }
            .emit(&mut Writer::new(&mut body));
        let parsed = Request::parse(&body).unwrap();
        let mut again = Txn::default();
        parsed.begin(&mut again);
        assert_eq!((parsed.header, again.args(), again.entries().len()), (header, &b"args"[..], 5));
        assert!(again.local && !again.ship && again.entries()[1].write);
        assert!((0..body.len()).all(|len| Request::parse(&body[..len]).is_err()));
        for (padding, before, left) in
            [(9, 0, 9), (1_839, 0, 1_839), (3_800, 1, 1_752), (3_900, 2, 0)]
        {
            let mut request = RequestOf { header, id: TxnId(8), txn: &txn, padding, apart: false };
            assert_eq!((request.cut(), request.padding), (before, left));
            let mut body = Vec::new();
            request.emit(&mut Writer::new(&mut body));
            assert!(body.len() <= SLOT_BYTES, "{}", body.len());
        }
        let mut data = Vec::new();
        DataOf(RequestOf { header, id: TxnId(8), txn: &txn, padding: 0, apart: true })
            .emit(&mut Writer::new(&mut data));
        assert_eq!(Reader::new(&data[DATA_ID]).u64(), Ok(8));
        assert!(Part::parse(&[0; SLOT_BYTES]).is_ok() && Part::parse(&[0; 7]).is_err());
        body[9] = 255;
        assert!(Request::parse(&body).is_err(), "unknown flags");
    }

    #[test]
    fn data_and_vector_survive_apart() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(3), b"args");
        txn.write(Key(5));
        let mut header = Header { slot: 9, hint: 3, long: true, ..Header::default() };
        header.features.add(77, true);
        let data = RequestOf { header, id: TxnId(8), txn: &txn, padding: 0, apart: true };
        let mut body = Vec::new();
        DataOf(data).emit(&mut Writer::new(&mut body));
        let parsed = Request::parse(&body).unwrap();
        assert_eq!(parsed.header, Header { features: Features::default(), ..header });
        assert_eq!((parsed.id, parsed.keys.len()), (TxnId(8), 1));
        let (mut body, vector) = (Vec::new(), Vector { header, id: TxnId(8) });
        vector.emit(&mut Writer::new(&mut body));
        assert_eq!(Vector::parse(&body), Ok(vector));
        assert!((0..body.len()).all(|len| Vector::parse(&body[..len]).is_err()));
        let engine = EngineId::host(nicol_core::ids::NodeId(1), 2);
        let reply_to = ReplyTo { engine, request: RequestId { slot: 4, sequence: 5 } };
        let (mut body, entry) = (Vec::new(), Entry { reply_to, slot: 9, id: TxnId(8) });
        entry.emit(&mut Writer::new(&mut body));
        assert_eq!(Entry::parse(&body), Ok(entry));
        assert!((0..body.len()).all(|len| Entry::parse(&body[..len]).is_err()));
    }

    #[test]
    fn outcomes_and_vectors_survive_the_way() {
        for outcome in [
            Outcome::Committed,
            Outcome::Aborted(Abort::Refused),
            Outcome::Aborted(Abort::Stale { key: Key(7) }),
            Outcome::Aborted(Abort::ShardUnavailable { shard: ShardId(3) }),
            Outcome::Aborted(Abort::AwaitsRecovery { key: Key(9) }),
            Outcome::Unknown,
        ] {
            let mut body = Vec::new();
            Done(outcome).emit(&mut Writer::new(&mut body));
            assert_eq!(Done::parse(&body), Ok(Done(outcome)));
        }
        let (mut body, done) = (Vec::new(), Completed { slot: 3, id: TxnId(8) });
        done.emit(&mut Writer::new(&mut body));
        assert_eq!(Completed::parse(&body), Ok(done));
        let mut body = Vec::new();
        let vectors = Vectors { epoch: 4, ..Vectors::none() };
        vectors.emit(&mut Writer::new(&mut body));
        assert_eq!(Vectors::parse(&body), Ok(vectors));
        assert!(Vectors::parse(&body[1..]).is_err());
    }
}
