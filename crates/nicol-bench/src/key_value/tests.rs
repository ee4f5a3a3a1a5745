//! The smallest system of single operations: one copy of each record, at the node that leads its
//! shard, reached by messages. It shows that the harness judges such a family in both worlds.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use nicol_core::fabric::{Delivery, Fabric, FabricError, Message, Service, Timeout};
use nicol_core::ids::{EngineId, Key, NodeId, ShardId, Side, Version};
use nicol_core::key_value::{
    Failure, Got, KeyValue, KeyValueNode, Offered, Reason as Why, Scanned,
};
use nicol_core::system::{Audit, NodeState, Opening, Origin, SystemNode, TooSmall};
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_workload::ycsb::Mix;

use super::{KeyValueConfig, system, workloads};
use crate::config::{BenchConfig, Length};
use crate::report::BenchRun;
use crate::settings::{
    Setting, Settings, Sizes, SystemConfig, broken, numbers_as, sabotage, switch,
};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// The registry does not have it.
static SYSTEM: System = System {
    sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
    ..system::<Node>("test", "single-copy", "a test")
};

fn run(config: &BenchConfig) -> Result<BenchRun> {
    (SYSTEM.run)(&SYSTEM, config)
}

const TIMEOUT: Timeout = Timeout::After(Nanos::from_micros(40));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    /// Some reads return what was there before the last write.
    OldReads,
    /// Some writes are acknowledged and not made.
    LostWrites,
    /// Some requests are not answered.
    LostAnswers,
}

const SABOTAGES: [(&str, Sabotage); 3] = [
    ("old_reads", Sabotage::OldReads),
    ("lost_writes", Sabotage::LostWrites),
    ("lost_answers", Sabotage::LostAnswers),
];

#[derive(Clone, Debug)]
struct Config {
    sabotage: Sabotage,
    /// Answers come so late.
    pause: Nanos,
    /// Does the system say so?
    told: bool,
}

impl Settings for Config {
    fn table() -> Vec<Setting<Self>> {
        let millis = numbers_as(
            0..=60_000,
            |ms| Some(Nanos::from_millis(ms)),
            |late| Some(late.0 / 1_000_000),
        );
        vec![
            sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage),
            Setting::new("pause_ms", millis, |to: &mut Self| &mut to.pause)
                .help("how late answers come"),
            Setting::new("told", switch(), |to: &mut Self| &mut to.told)
                .help("does it say that it pauses?"),
        ]
    }
}

impl SystemConfig for Config {
    fn published(_system: &str, _sizes: &Sizes<'_>) -> Self {
        Self { sabotage: Sabotage::None, pause: Nanos::ZERO, told: false }
    }

    fn longest_wait(&self) -> Nanos {
        if self.told { self.pause } else { Nanos::ZERO }
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }
}

impl KeyValueConfig for Config {}

#[derive(Clone, Debug, Default)]
struct Record {
    version: u64,
    value: Option<Vec<u8>>,
    before: Option<Vec<u8>>,
}

type Table = BTreeMap<Key, Record>;

struct Node {
    view: View,
    config: Config,
    table: Mutex<Table>,
}

impl SystemNode for Node {
    type Config = Config;

    type Shard = Table;

    fn load(from: &Origin<'_, Config>, shard: ShardId) -> Result<Table, TooSmall> {
        let mut table = Table::new();
        from.source.load(from.view, shard, &mut |key, value| {
            let value = Some(value.to_vec());
            table.insert(key, Record { version: 1, value, before: None });
        });
        Ok(table)
    }

    fn open(from: &Origin<'_, Config>, _: NodeId, _: &[Table]) -> Opening<Self, Table> {
        let (view, config) = (from.view.clone(), from.config.clone());
        Box::new(|table| Self { view, config, table: Mutex::new(table.unwrap_or_default()) })
    }
}

impl NodeState for Node {
    fn is_settled(&self) -> bool {
        true
    }

    fn audit(&self) -> Audit {
        Audit { leaks: vec![("locks", 0)], ..Audit::default() }
    }

    fn records(&self) -> u64 {
        self.table.lock().unwrap().values().filter(|record| record.value.is_some()).count() as u64
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        let found = self.table.lock().unwrap().get(&key).and_then(|record| record.value.clone());
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        found.is_some()
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        for (key, record) in &*self.table.lock().unwrap() {
            record.value.iter().for_each(|value| each(*key, value));
        }
    }
}

/// What is asked of a record's node.
enum Ask<'a> {
    Get(Key),
    Put(Key, &'a [u8]),
    Delete(Key),
    /// The first records from this key on.
    Scan(Key, u32),
}

impl Message for Ask<'_> {
    const KIND: u16 = 1;

    fn emit(&self, to: &mut Writer<'_>) {
        let (code, key, limit, value) = match *self {
            Self::Get(key) => (0, key, 0, &[][..]),
            Self::Put(key, value) => (1, key, 0, value),
            Self::Delete(key) => (2, key, 0, &[][..]),
            Self::Scan(key, limit) => (3, key, limit, &[][..]),
        };
        to.u8(code);
        to.u64(key.0);
        to.u32(limit);
        to.bytes(value);
    }
}

impl<'a> Ask<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let (code, key, limit) = (reader.u8()?, Key(reader.u64()?), reader.u32()?);
        Ok(match code {
            0 => Self::Get(key),
            1 => Self::Put(key, reader.rest()),
            2 => Self::Delete(key),
            3 => Self::Scan(key, limit),
            _ => return Err(Malformed { what: "no such request" }),
        })
    }
}

/// Records: key, version, is it there, length, value.
struct Answer(Vec<(Key, u64, Option<Vec<u8>>)>);

impl Message for Answer {
    const KIND: u16 = 2;

    fn emit(&self, to: &mut Writer<'_>) {
        for (key, version, value) in &self.0 {
            to.u64(key.0);
            to.u64(*version);
            to.u8(u8::from(value.is_some()));
            let value = value.as_deref().unwrap_or_default();
            to.u16(value.len() as u16);
            to.bytes(value);
        }
    }
}

impl Answer {
    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (mut reader, mut records) = (Reader::new(body), Vec::new());
        while !reader.rest().is_empty() {
            let (key, version) = (Key(reader.u64()?), reader.u64()?);
            let (present, len) = (reader.u8()? == 1, reader.u16()?);
            let value = reader.bytes(usize::from(len))?.to_vec();
            records.push((key, version, present.then_some(value)));
        }
        Ok(Self(records))
    }
}

struct Server<F> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let mut table = self.node.table.lock().unwrap();
        let breaks = |sabotage| {
            self.node.config.sabotage == sabotage && self.fabric.random().is_multiple_of(8)
        };
        let answer = match Ask::parse(delivery.body)? {
            Ask::Get(key) => {
                let Record { version, value, before } =
                    table.get(&key).cloned().unwrap_or_default();
                let value = if breaks(Sabotage::OldReads) { before } else { value };
                vec![(key, version, value)]
            }
            Ask::Put(key, value) => vec![write(&mut table, key, Some(value), breaks)],
            Ask::Delete(key) => vec![write(&mut table, key, None, breaks)],
            Ask::Scan(first, limit) => {
                let there = table.range(first..).filter(|(_, record)| record.value.is_some());
                let first = there.take(limit as usize);
                first.map(|(key, record)| (*key, record.version, record.value.clone())).collect()
            }
        };
        let Some(to) = delivery.reply_to.filter(|_| !breaks(Sabotage::LostAnswers)) else {
            return Ok(());
        };
        let (fabric, pause) = (self.fabric.clone(), self.node.config.pause);
        if pause == Nanos::ZERO {
            fabric.reply(to, &Answer(answer));
        } else {
            self.fabric.spawn(async move {
                fabric.sleep_until(fabric.now() + pause).await;
                fabric.reply(to, &Answer(answer));
            });
        }
        Ok(())
    }
}

fn write(
    table: &mut Table,
    key: Key,
    value: Option<&[u8]>,
    breaks: impl Fn(Sabotage) -> bool,
) -> (Key, u64, Option<Vec<u8>>) {
    let record = table.entry(key).or_default();
    record.version += 1;
    let version = record.version;
    if !breaks(Sabotage::LostWrites) {
        record.before = std::mem::replace(&mut record.value, value.map(<[u8]>::to_vec));
    }
    (key, version, None)
}

#[derive(Clone)]
struct Client<F> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Client<F> {
    async fn ask(&self, node: NodeId, ask: Ask<'_>) -> Result<Answer, FabricError> {
        let reply = self.fabric.call(EngineId::nic(node, 0), &ask, TIMEOUT).await?;
        Answer::parse(reply.as_ref()).map_err(|_| FabricError::Malformed)
    }

    fn of(&self, key: Key) -> NodeId {
        self.node.view.primary(self.node.view.shard_of(key))
    }

    async fn write(&self, ask: Ask<'_>, key: Key) -> Result<Option<Version>, Failure> {
        match self.ask(self.of(key), ask).await {
            Ok(answer) => Ok(answer.0.first().map(|(_, version, _)| Version(*version))),
            Err(FabricError::NoResources) => Err(Failure::Aborted(Why::NoResources)),
            Err(_) => Err(Failure::Unknown),
        }
    }
}

fn failed(error: FabricError) -> Failure {
    Failure::Aborted(Why::Fabric(error))
}

impl<F: Fabric> KeyValue for Client<F> {
    async fn get(&self, key: Key, value: &mut Vec<u8>) -> Result<Got, Failure> {
        let answer = self.ask(self.of(key), Ask::Get(key)).await.map_err(failed)?;
        let Some((_, version, found)) = answer.0.into_iter().next() else {
            return Err(failed(FabricError::Malformed));
        };
        let present = found.is_some();
        *value = found.unwrap_or_default();
        Ok(Got { present, version: Some(Version(version)) })
    }

    async fn put(&self, key: Key, value: &[u8]) -> Result<Option<Version>, Failure> {
        self.write(Ask::Put(key, value), key).await
    }

    async fn delete(&self, key: Key) -> Result<Option<Version>, Failure> {
        self.write(Ask::Delete(key), key).await
    }

    async fn scan(&self, first: Key, limit: u32, found: &mut Vec<Scanned>) -> Result<(), Failure> {
        let view = &self.node.view;
        for shard in view.shard_ids() {
            let ask = Ask::Scan(first, limit);
            let answer = self.ask(view.primary(shard), ask).await.map_err(failed)?;
            found.extend(answer.0.into_iter().map(|(key, version, value)| Scanned {
                key,
                version: Some(Version(version)),
                value: value.unwrap_or_default(),
            }));
        }
        found.sort_by_key(|record| record.key);
        found.truncate(limit as usize);
        Ok(())
    }
}

impl KeyValueNode for Node {
    type Client<F: Fabric> = Client<F>;

    const OFFERED: Offered = Offered { inserts: true, deletes: true, scans: true, sparse: true };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Client<F>> {
        let (fabric, node) = (fabric.clone(), Arc::clone(self));
        if fabric.here().side == Side::Nic {
            fabric.serve(Rc::new(Server { fabric: fabric.clone(), node }));
            // What comes by the clock, as in many systems, comes on when everybody waits.
            fabric.clone().spawn(async move {
                loop {
                    fabric.sleep_until(fabric.now() + Nanos::from_millis(1)).await;
                }
            });
            return None;
        }
        Some(Client { fabric, node })
    }
}

fn config(workload: &str, mix: Option<Mix>, on: &str, seed: u64) -> BenchConfig {
    let mut spec = WorkloadSpec { mix, ..WorkloadSpec::named(workload) };
    spec.shrink();
    if mix.is_some_and(Mix::scans) {
        spec.value_bytes = Some(8);
    }
    BenchConfig {
        clients: Some(4),
        length: Some(Length::Transactions(600)),
        replicas: 1,
        ..BenchConfig::new("single-copy", spec, on, seed)
    }
}

fn held(config: &BenchConfig) -> BenchRun {
    let ran = run(config).unwrap();
    let check = &ran.report.check;
    assert!(check.held(), "seed {}: {:#?}", config.seed, check.violations);
    assert_eq!(check.held_promise, Some(true));
    assert!(check.checked >= 600, "{}", check.checked);
    ran
}

#[test]
fn every_mix_and_churn_are_linearizable_under_message_faults() {
    let (mut unknown, mut failed) = (0, 0);
    for seed in 0..4 {
        for mix in Mix::ALL.map(Some).into_iter().chain([None]) {
            let workload = if mix.is_some() { "ycsb" } else { "churn" };
            let mut config = config(workload, mix, "liquidio3", seed);
            config.faults.messages = seed % 2 > 0;
            let report = held(&config).report;
            assert!(report.committed > 400, "{mix:?}: {}", report.committed);
            unknown += report.unknown;
            failed += report.abort_reasons["fabric"];
        }
    }
    assert!(unknown > 0 && failed > 0, "{unknown} unknown, {failed} failed attempts");
}

#[test]
fn threads_run_it_too() {
    let report = held(&config("churn", None, "threads", 1)).report;
    assert_eq!(report.unknown, 0);
    assert!(report.kinds.iter().all(|kind| kind.committed > 0), "{:?}", report.kinds);
}

#[test]
fn what_is_broken_on_purpose_is_caught() {
    let wrong = SABOTAGES.iter().filter(|(_, way)| *way != Sabotage::LostAnswers);
    for (name, _) in wrong {
        let caught = (0..10).any(|seed| {
            let mut config = config("churn", None, "connectx5", seed);
            config.settings = vec![format!("sabotage={name}")];
            let report = run(&config).unwrap().report;
            assert_eq!(report.warnings.len(), 1, "a broken protocol warns");
            report.check.held_promise == Some(false)
        });
        assert!(caught, "{name}");
    }
}

/// A run of two operations of each client, in which each takes as long as settings say.
fn slow(settings: &[&str]) -> BenchConfig {
    BenchConfig {
        length: Some(Length::Transactions(24)),
        settings: settings.iter().map(ToString::to_string).collect(),
        ..config("ycsb", Some(Mix::A), "connectx5", 3)
    }
}

#[test]
fn a_run_in_which_everybody_waits_ends_and_names_who_waits() {
    let ran = run(&slow(&["sabotage=lost_answers"])).unwrap();
    let check = &ran.report.check;
    assert!(!check.held());
    let stuck = &check.violations[0];
    let since =
        "work is stuck: no operation or attempt has begun or ended for 10.000 s (it is 10.00";
    assert!(stuck.starts_with(since), "{stuck}");
    let named = ["read", "update"].iter().any(|kind| stuck.contains(&format!(" for {kind}, due")));
    assert!(named && stuck.contains(" clients wait: client "), "{stuck}");
    assert!(stuck.contains(" us, in attempt 1, since "), "{stuck}");
    // What others have done is judged, and what was cut off is unknown.
    assert!(ran.report.committed > 0 && ran.report.unknown > 0, "{stuck}");
    assert_eq!(check.held_promise, Some(true));
}

#[test]
fn a_run_on_threads_in_which_everybody_waits_ends_as_well() {
    let on_threads = |settings| BenchConfig {
        on: "threads".to_owned(),
        silence: Some(Nanos::from_millis(400)),
        ..slow(settings)
    };
    let check = run(&on_threads(&["sabotage=lost_answers"])).unwrap().report.check;
    let stuck = &check.violations[0];
    let since = "work is stuck: no operation or attempt has begun or ended for 0.4 s: ";
    assert!(stuck.starts_with(since) && stuck.contains(", in attempt 1, since "), "{stuck}");
    assert!(!check.held());
    let slow = run(&on_threads(&["pause_ms=600", "told=on"])).unwrap().report;
    assert!(slow.check.held(), "it says so: {:?}", slow.check.violations);
}

#[test]
fn a_slow_run_is_not_stuck() {
    let seconds = |settings: &[&str]| {
        let report = run(&slow(settings)).unwrap().report;
        assert!(report.check.held(), "{settings:?}: {:#?}", report.check.violations);
        assert_eq!(report.committed, 24);
        report.simulated_s.unwrap()
    };
    assert!(seconds(&["pause_ms=9000"]) > 18.0);
    assert!(seconds(&["pause_ms=30000", "told=on"]) > 60.0, "it says so");
    let untold = run(&slow(&["pause_ms=30000"])).unwrap().report;
    assert!(untold.check.violations[0].contains(": 12 clients wait: "), "{:?}", untold.check);
}

#[test]
fn what_is_not_offered_is_refused_in_words() {
    let refusal = |workload: &str, mix| {
        let spec = WorkloadSpec { mix, ..WorkloadSpec::named(workload) };
        workloads::accepts(&spec, Offered::default(), 64).unwrap_err()
    };
    assert!(refusal("ycsb", Some(Mix::D)).starts_with("`mix` D: it inserts records"));
    assert!(refusal("ycsb", Some(Mix::E)).starts_with("`mix` E: it scans"));
    assert!(refusal("churn", None).starts_with("it inserts records"));
    assert!(refusal("smallbank", None).contains("choose one of ycsb, churn"));
    let mut spec = WorkloadSpec::named("ycsb");
    assert_eq!(workloads::accepts(&spec, Offered::default(), 24), Ok(()));
    workloads::fit(&mut spec, 24);
    assert_eq!(spec.value_bytes, Some(24), "the default is made to fit");
    spec.value_bytes = Some(32);
    let refusal = workloads::accepts(&spec, Offered::default(), 24).unwrap_err();
    assert!(refusal.starts_with("`value_bytes` 32"), "{refusal}");
}
