//! One line of a file: every field that some line has, and which line has which.

use nicol_core::history::{
    Action, Crash, Effect, End, Found, Key, Loaded, Operation, Read, Scan, Txn, Write,
};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LOADED_MAX;

/// A key in a file: a number, or a string of hexadecimal digits.
#[derive(Clone, Debug)]
pub(super) struct FileKey(pub(super) Key);

impl Serialize for FileKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Key::Number(number) => to.serialize_u64(*number),
            Key::Bytes(bytes) => {
                let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
                to.serialize_str(&digits.collect::<String>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for FileKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = FileKey;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("a key: a whole number below 2^64, or bytes as a string of hex digits")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<FileKey, E> {
                Ok(FileKey(Key::Number(number)))
            }

            fn visit_str<E: Error>(self, digits: &str) -> Result<FileKey, E> {
                let bad =
                    || E::custom(format!("key '{digits}' is not an even number of hex digits"));
                if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
                    return Err(bad());
                }
                let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
                let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
                // `from_str_radix` takes a sign.
                match bytes.filter(|_| !digits.contains(['+', '-'])) {
                    Some(bytes) => Ok(FileKey(Key::Bytes(bytes.into()))),
                    None => Err(bad()),
                }
            }
        }
        from.deserialize_any(KeyVisitor)
    }
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn yes() -> bool {
    true
}

/// A read within a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileRead {
    key: FileKey,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    present: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<u64>,
}

impl FileRead {
    fn of(read: &Read) -> Self {
        let Read { key, present, version, digest } = read.clone();
        Self { key: FileKey(key), present, version, digest }
    }

    fn into_read(self) -> Result<Read, String> {
        let Self { key: FileKey(key), present, version, digest } = self;
        if !present && digest.is_some() {
            return Err("a read of an absent record with a digest".to_owned());
        }
        Ok(Read { key, present, version, digest })
    }
}

fn into_reads(reads: Option<Vec<FileRead>>) -> Result<Vec<Read>, String> {
    reads.unwrap_or_default().into_iter().map(FileRead::into_read).collect()
}

/// A write within a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWrite {
    key: FileKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    deleted: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    unknown: bool,
}

impl FileWrite {
    fn of(write: &Write) -> Self {
        let Write { key, effect, version } = write.clone();
        let digest = if let Effect::Put { digest } = effect { digest } else { None };
        let (deleted, unknown) = (effect == Effect::Delete, effect == Effect::Unknown);
        Self { key: FileKey(key), version, digest, deleted, unknown }
    }

    fn into_write(self) -> Result<Write, String> {
        let Self { key: FileKey(key), version, digest, deleted, unknown } = self;
        let effect = match (deleted, unknown) {
            (false, false) => Effect::Put { digest },
            (true, false) => Effect::Delete,
            (false, true) => Effect::Unknown,
            (true, true) => return Err("a write that is deleted and unknown".to_owned()),
        };
        if !matches!(effect, Effect::Put { .. }) && digest.is_some() {
            return Err("a digest of a write without a value".to_owned());
        }
        Ok(Write { key, effect, version })
    }
}

/// A scan within a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileScan {
    first: FileKey,
    last: FileKey,
    #[serde(default, skip_serializing_if = "is_false")]
    backward: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    found: Vec<FileRead>,
}

impl FileScan {
    fn of(scan: &Scan) -> Self {
        let Scan { first, last, backward, limit, found } = scan.clone();
        Self {
            first: FileKey(first),
            last: FileKey(last),
            backward,
            limit,
            found: found.iter().map(FileRead::of).collect(),
        }
    }

    fn into_scan(self) -> Result<Scan, String> {
        let Self { first: FileKey(first), last: FileKey(last), backward, limit, found } = self;
        let found: Vec<Read> =
            found.into_iter().map(FileRead::into_read).collect::<Result<_, _>>()?;
        if found.iter().any(|read| !read.present) {
            return Err("a scan that found an absent record".to_owned());
        }
        Ok(Scan { first, last, backward, limit, found })
    }
}

/// Every field of a line.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invoked: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    responded: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<FileKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    present: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reads: Option<Vec<FileRead>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scans: Option<Vec<FileScan>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writes: Option<Vec<FileWrite>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writes_more: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scan: Option<FileScan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovered: Option<Vec<FileRead>>,
}

/// The content of a line.
pub(super) enum Parsed {
    /// Initial records, and whether the line tells their version.
    Loaded(Vec<Loaded>, bool),
    Operation(Operation),
    Crash(Crash),
}

/// The lines that there are, and the fields of each besides those of every operation.
const KINDS: [(&str, &[&str]); 8] = [
    ("load", &["key", "version", "digest", "from", "to"]),
    ("txn", &["reads", "scans", "writes", "writes_more"]),
    ("get", &["key", "present", "version", "digest"]),
    ("put", &["key", "version", "digest", "scope"]),
    ("delete", &["key", "version", "scope"]),
    ("scan", &["scan"]),
    ("persist", &["scope"]),
    ("crash", &["at", "recovered"]),
];
/// The fields of every operation.
const OPERATION: [&str; 6] = ["client", "seq", "id", "invoked", "responded", "outcome"];

impl Line {
    pub(super) fn of_loaded(loaded: &Loaded) -> Self {
        let Loaded { key, version, digest } = loaded.clone();
        let (key, version) = (Some(FileKey(key)), Some(version));
        Self { op: "load".to_owned(), key, version, digest, ..Self::default() }
    }

    pub(super) fn of_crash(crash: &Crash) -> Self {
        let recovered = Some(crash.recovered.iter().map(FileRead::of).collect());
        Self { op: "crash".to_owned(), at: Some(crash.at), recovered, ..Self::default() }
    }

    pub(super) fn of_operation(operation: &Operation) -> Self {
        let Operation { client, sequence, id, invoked, responded, end, action } = operation;
        let (op, line) = Self::of_action(action);
        let outcome = match (end, op) {
            (End::Ok, "txn") => "committed",
            (End::Failed, "txn") => "aborted",
            (End::Ok, _) => "ok",
            (End::Failed, _) => "failed",
            (End::Unknown, _) => "unknown",
        };
        Self {
            op: op.to_owned(),
            client: Some(*client),
            seq: Some(*sequence),
            id: Some(*id),
            invoked: Some(*invoked),
            responded: *responded,
            outcome: Some(outcome.to_owned()),
            ..line
        }
    }

    fn of_action(action: &Action) -> (&'static str, Self) {
        let empty = Self::default();
        match action {
            Action::Txn(txn) => {
                let listed = |some: bool| some.then_some(());
                let line = Self {
                    reads: listed(!txn.reads.is_empty())
                        .map(|()| txn.reads.iter().map(FileRead::of).collect()),
                    scans: listed(!txn.scans.is_empty())
                        .map(|()| txn.scans.iter().map(FileScan::of).collect()),
                    writes: listed(!txn.writes.is_empty())
                        .map(|()| txn.writes.iter().map(FileWrite::of).collect()),
                    writes_more: txn.writes_more.then_some(true),
                    ..empty
                };
                ("txn", line)
            }
            Action::Get { key, found } => {
                let key = Some(FileKey(key.clone()));
                let line = match *found {
                    Some(Found { present, version, digest }) => {
                        Self { key, present: Some(present), version, digest, ..empty }
                    }
                    None => Self { key, ..empty },
                };
                ("get", line)
            }
            Action::Put { write, scope } | Action::Delete { write, scope } => {
                let Write { key, effect, version } = write.clone();
                let (op, digest) = match effect {
                    Effect::Put { digest } => ("put", digest),
                    Effect::Delete | Effect::Unknown => ("delete", None),
                };
                let key = Some(FileKey(key));
                (op, Self { key, version, digest, scope: *scope, ..empty })
            }
            Action::Scan(scan) => ("scan", Self { scan: Some(FileScan::of(scan)), ..empty }),
            Action::Persist { scope } => ("persist", Self { scope: *scope, ..empty }),
        }
    }

    /// The fields that the line has, besides `op`.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("client", self.client.is_some()),
            ("seq", self.seq.is_some()),
            ("id", self.id.is_some()),
            ("invoked", self.invoked.is_some()),
            ("responded", self.responded.is_some()),
            ("outcome", self.outcome.is_some()),
            ("key", self.key.is_some()),
            ("present", self.present.is_some()),
            ("version", self.version.is_some()),
            ("digest", self.digest.is_some()),
            ("scope", self.scope.is_some()),
            ("reads", self.reads.is_some()),
            ("scans", self.scans.is_some()),
            ("writes", self.writes.is_some()),
            ("writes_more", self.writes_more.is_some()),
            ("scan", self.scan.is_some()),
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("at", self.at.is_some()),
            ("recovered", self.recovered.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }

    /// The content of a line; the error says what is wrong with it.
    pub(super) fn parse(self) -> Result<Parsed, String> {
        let Some((op, fields)) = KINDS.iter().find(|(op, _)| *op == self.op) else {
            let known: Vec<_> = KINDS.iter().map(|(op, _)| *op).collect();
            return Err(format!("unknown op '{}': use one of {}", self.op, known.join(", ")));
        };
        let is_operation = !matches!(*op, "load" | "crash");
        let belongs =
            |name: &str| fields.contains(&name) || is_operation && OPERATION.contains(&name);
        if let Some(name) = self.given().find(|name| !belongs(name)) {
            return Err(format!("field '{name}' does not belong to a {op}"));
        }
        match *op {
            "load" => {
                let told = self.version.is_some();
                self.into_loaded().map(|loaded| Parsed::Loaded(loaded, told))
            }
            "crash" => {
                let at = self.at.ok_or("a crash without 'at'")?;
                Ok(Parsed::Crash(Crash { at, recovered: into_reads(self.recovered)? }))
            }
            _ => self.into_operation().map(Parsed::Operation),
        }
    }

    fn into_loaded(self) -> Result<Vec<Loaded>, String> {
        // The others tell what one that is not told may be.
        let version = self.version.unwrap_or_default();
        match (self.key, self.from, self.to) {
            (Some(FileKey(key)), None, None) => {
                Ok(vec![Loaded { key, version, digest: self.digest }])
            }
            (None, Some(from), Some(to)) if self.digest.is_none() => {
                if to < from || to - from >= LOADED_MAX as u64 {
                    return Err(format!("a load from {from} to {to}: give 1 to {LOADED_MAX} keys"));
                }
                let loaded = |key| Loaded { key: Key::Number(key), version, digest: None };
                Ok((from..=to).map(loaded).collect())
            }
            _ => Err("a load takes 'key' with or without 'digest', or 'from' and 'to'".to_owned()),
        }
    }

    fn into_operation(mut self) -> Result<Operation, String> {
        let missing = |name: &str| format!("'{name}' is missing");
        let outcome = self.outcome.take().ok_or_else(|| missing("outcome"))?;
        let end = match (outcome.as_str(), self.op.as_str()) {
            ("committed", "txn") => End::Ok,
            ("aborted", "txn") => End::Failed,
            ("ok", op) if op != "txn" => End::Ok,
            ("failed", op) if op != "txn" => End::Failed,
            ("unknown", _) => End::Unknown,
            (_, "txn") => {
                return Err(format!("outcome '{outcome}': use committed, aborted or unknown"));
            }
            _ => return Err(format!("outcome '{outcome}': use ok, failed or unknown")),
        };
        Ok(Operation {
            client: self.client.ok_or_else(|| missing("client"))?,
            sequence: self.seq.ok_or_else(|| missing("seq"))?,
            id: self.id.ok_or_else(|| missing("id"))?,
            invoked: self.invoked.ok_or_else(|| missing("invoked"))?,
            responded: self.responded,
            end,
            action: self.into_action()?,
        })
    }

    fn into_action(self) -> Result<Action, String> {
        let key = || self.key.clone().map(|FileKey(key)| key).ok_or("'key' is missing");
        let version = self.version;
        let scope = self.scope;
        Ok(match self.op.as_str() {
            "txn" => {
                let scans = self.scans.unwrap_or_default().into_iter().map(FileScan::into_scan);
                let writes = self.writes.unwrap_or_default().into_iter().map(FileWrite::into_write);
                Action::Txn(Txn {
                    reads: into_reads(self.reads)?,
                    scans: scans.collect::<Result<_, _>>()?,
                    writes: writes.collect::<Result<_, _>>()?,
                    writes_more: self.writes_more.unwrap_or_default(),
                })
            }
            "get" => {
                let found =
                    self.present.map(|present| Found { present, version, digest: self.digest });
                if found.is_none() && (version.is_some() || self.digest.is_some()) {
                    return Err("a get with a version or digest and without 'present'".to_owned());
                }
                if found.is_some_and(|found| !found.present && found.digest.is_some()) {
                    return Err("a get of an absent record with a digest".to_owned());
                }
                Action::Get { key: key()?, found }
            }
            "put" => {
                let effect = Effect::Put { digest: self.digest };
                Action::Put { write: Write { key: key()?, effect, version }, scope }
            }
            "delete" => {
                let effect = Effect::Delete;
                Action::Delete { write: Write { key: key()?, effect, version }, scope }
            }
            "scan" => Action::Scan(self.scan.ok_or("'scan' is missing")?.into_scan()?),
            _ => Action::Persist { scope },
        })
    }
}
