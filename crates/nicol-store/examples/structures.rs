//! Memory, speed and bytes read of every structure:
//! `structures [--records N] [--value-bytes N] [--seed N] [--format table|json]`.
//!
//! | column | meaning |
//! |---|---|
//! | `bytes_per_record` | what the allocator gave out for the filled structure, per record |
//! | `reader_bytes_per_record` | the same for what a reader elsewhere keeps: hints, addresses |
//! | `lookups_per_second` | lookups of every key by the owner, in local memory |
//! | `remote_lookups_per_second` | the same as a reader elsewhere makes them: whole spans, parsed |
//! | `bytes_read_per_lookup` | bytes of these spans |
//! | `objects_read` | slots in these spans, per lookup |
//! | `roundtrips` | spans, per lookup |
//!
//! Tables are 90 % full; chained and hopscotch tables have half as many overflow slots besides. The
//! NIC index and the B+ tree are not read from elsewhere.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Instant;

use nicol_core::ids::{Key, Version};
use nicol_store::btree::BTree;
use nicol_store::host_table::{INLINE_MAX, SEGMENT_SLOTS, SlotHash};
use nicol_store::lookup_cost::{COMPARED, Filled, LookupCost, Structure, keys};
use nicol_store::nic_index::{HomesPerHint, IndexConfig, IndexLookup, NicIndex};
use nicol_store::remote_table::Design;
use serde_json::{Value, json};

thread_local! {
    /// Bytes that this thread has been given and has not returned.
    static IN_USE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    // A thread that ends returns memory after its counter is gone.
    let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `build` made, and the bytes that it holds.
fn built<T>(build: impl FnOnce() -> T) -> (T, u64) {
    let before = IN_USE.get();
    let structure = build();
    let held = IN_USE.get() - before;
    (structure, u64::try_from(held).unwrap_or_default())
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Load {
    records: u64,
    value_bytes: usize,
    seed: u64,
}

impl Load {
    /// Lookups a second of every key.
    fn speed(&self, mut lookup: impl FnMut(Key)) -> f64 {
        let begun = Instant::now();
        keys(self.records, self.seed).for_each(&mut lookup);
        self.records as f64 / begun.elapsed().as_secs_f64()
    }
}

/// One structure's figures.
#[derive(Clone, Debug)]
struct Row {
    structure: &'static str,
    parameter: Option<u16>,
    records: u64,
    bytes: u64,
    lookups_per_second: f64,
    remote: Option<Remote>,
}

/// Those of a structure that is read from elsewhere.
#[derive(Clone, Debug)]
struct Remote {
    reader_bytes: u64,
    lookups_per_second: f64,
    cost: LookupCost,
}

impl Row {
    fn json(&self) -> Value {
        let each = |total: u64| total as f64 / self.records as f64;
        let remote = self.remote.as_ref();
        json!({
            "structure": self.structure,
            "parameter": self.parameter,
            "records": self.records,
            "bytes_per_record": each(self.bytes),
            "reader_bytes_per_record": remote.map(|remote| each(remote.reader_bytes)),
            "lookups_per_second": self.lookups_per_second,
            "remote_lookups_per_second": remote.map(|remote| remote.lookups_per_second),
            "bytes_read_per_lookup": remote.map(|remote| each(remote.cost.bytes)),
            "objects_read": remote.map(|remote| remote.cost.objects_read()),
            "roundtrips": remote.map(|remote| remote.cost.mean_roundtrips()),
        })
    }
}

/// A table that is read from elsewhere.
fn table(load: &Load, structure: Structure) -> Row {
    let Load { records, value_bytes, seed } = *load;
    let (mut filled, bytes) = built(|| Filled::new(structure, records, value_bytes, seed));
    let ((), reader_bytes) = built(|| filled.teach());
    let cost = filled.cost();
    let mut into = Vec::with_capacity(value_bytes);
    let lookups_per_second = load.speed(|key| {
        into.clear();
        filled.look_up_locally(key, &mut into);
    });
    let remote = load.speed(|key| filled.look_up_remotely(key));
    Row {
        structure: structure.name(),
        parameter: structure.parameter(),
        records,
        bytes,
        lookups_per_second,
        remote: Some(Remote { reader_bytes, lookups_per_second: remote, cost }),
    }
}

/// A NIC's index that caches every record.
fn nic_index(load: &Load) -> Row {
    let Load { records, value_bytes, .. } = *load;
    let segments = records.div_ceil(SEGMENT_SLOTS);
    let (index, bytes) = built(|| {
        // Twice the space, since keys are spread over the index's parts by chance.
        let room = 2 * records as usize;
        let index = NicIndex::new(IndexConfig {
            segments,
            cached_objects_max: room,
            busy_objects_max: room,
            homes_per_hint: HomesPerHint::ONE,
            value_bytes_max: usize::MAX,
        });
        let value = vec![0x6e; value_bytes];
        for key in keys(records, load.seed) {
            let learnt = index.learn(SlotHash::of(key), key, 0, Version(1), Some((&value, 0)));
            assert!(learnt, "nobody installs");
        }
        index
    });
    let mut into = Vec::with_capacity(value_bytes);
    let lookups_per_second = load.speed(|key| {
        into.clear();
        let found = index.lookup(SlotHash::of(key), key, &mut into);
        assert!(matches!(found, IndexLookup::Hit { .. }), "every record is cached");
    });
    let structure = "nic-index";
    Row { structure, parameter: None, records, bytes, lookups_per_second, remote: None }
}

/// A node's own ordered table.
fn btree(load: &Load) -> Row {
    let Load { records, value_bytes, seed } = *load;
    let (tree, bytes) = built(|| {
        let (tree, value) = (BTree::new(), vec![0x6e; value_bytes]);
        keys(records, seed).for_each(|key| tree.load(key, &value));
        tree
    });
    let mut into = Vec::with_capacity(value_bytes);
    let lookups_per_second = load.speed(|key| {
        into.clear();
        assert!(tree.get(key, &mut into).present, "a loaded key is found");
    });
    Row { structure: "btree", parameter: None, records, bytes, lookups_per_second, remote: None }
}

/// Every structure, one after the other.
fn rows(load: &Load) -> Vec<Row> {
    let tables = COMPARED.into_iter().filter(|structure| structure.parameter().is_some());
    let cached = [4, 8, 16].map(|bucket| Structure::Cached(Design::Chained { bucket }));
    let mut rows: Vec<Row> = tables.chain(cached).map(|structure| table(load, structure)).collect();
    rows.push(nic_index(load));
    rows.push(btree(load));
    rows
}

fn print_table(rows: &[Row]) {
    println!(
        "{:<17}  {:>9}  {:>9}  {:>12}  {:>12}  {:>9}  {:>10}  {:>12}  {:>12}  {:>10}",
        "structure",
        "parameter",
        "records",
        "bytes/record",
        "reader_bytes",
        "lookups/s",
        "remote/s",
        "bytes/lookup",
        "objects_read",
        "roundtrips",
    );
    let each = |value: &Value, digits: usize| match value.as_f64() {
        Some(number) => format!("{number:.digits$}"),
        None => "-".to_owned(),
    };
    for row in rows {
        let json = row.json();
        println!(
            "{:<17}  {:>9}  {:>9}  {:>12}  {:>12}  {:>9}  {:>10}  {:>12}  {:>12}  {:>10}",
            row.structure,
            each(&json["parameter"], 0),
            row.records,
            each(&json["bytes_per_record"], 1),
            each(&json["reader_bytes_per_record"], 1),
            each(&json["lookups_per_second"], 0),
            each(&json["remote_lookups_per_second"], 0),
            each(&json["bytes_read_per_lookup"], 1),
            each(&json["objects_read"], 3),
            each(&json["roundtrips"], 4),
        );
    }
}

/// What the command line asks for; `None` if it cannot be read.
fn parse(mut arguments: impl Iterator<Item = String>) -> Option<(Load, bool)> {
    let mut load = Load { records: 1_000_000, value_bytes: 24, seed: 1 };
    let mut json = false;
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        match flag.as_str() {
            "--records" => load.records = value.parse().ok().filter(|records| *records > 0)?,
            "--value-bytes" => {
                let fits = |bytes: &usize| *bytes <= INLINE_MAX;
                load.value_bytes = value.parse().ok().filter(fits)?;
            }
            "--seed" => load.seed = value.parse().ok()?,
            "--format" => {
                json = match value.as_str() {
                    "json" => true,
                    "table" => false,
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some((load, json))
}

fn main() -> ExitCode {
    let Some((load, json)) = parse(std::env::args().skip(1)) else {
        eprintln!(
            "usage: structures [--records N] [--value-bytes 0..256] [--seed N] \
             [--format table|json]"
        );
        return ExitCode::from(2);
    };
    let rows = rows(&load);
    if json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let Load { value_bytes, seed, .. } = load;
        let schema = "nicol.structures/1";
        println!(
            "{}",
            json!({ "schema": schema, "value_bytes": value_bytes, "seed": seed, "rows": rows })
        );
    } else {
        print_table(&rows);
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Load = Load { records: 1_000, value_bytes: 24, seed: 1 };

    /// What does not depend on the machine: memory of the table and of its reader; bytes, objects
    /// and round trips of all remote lookups.
    fn counted(row: &Row) -> String {
        let Row { structure, bytes, .. } = row;
        let parameter = row.parameter.map_or("-".to_owned(), |value| value.to_string());
        let head = format!("{structure} {parameter}: {bytes}");
        match &row.remote {
            Some(Remote { reader_bytes, cost, .. }) => {
                let LookupCost { bytes, objects, roundtrips, .. } = cost;
                format!("{head}, {reader_bytes}; {bytes} {objects} {roundtrips}")
            }
            None => head,
        }
    }

    #[test]
    fn the_short_form_counts_exactly_this() {
        let rows = rows(&SHORT);
        let lines: Vec<String> = rows.iter().map(counted).collect();
        let expected = [
            "robinhood 8: 334096, 2016; 233528 3639 1079",
            "robinhood 16: 334608, 3040; 277616 4332 1046",
            "robinhood 32: 335632, 5088; 305760 4776 1012",
            "hopscotch 8: 121784, 0; 574000 8200 1050",
            "chained 4: 121504, 0; 329560 4708 1177",
            "chained 8: 116576, 0; 594424 8872 1109",
            "chained 16: 114496, 0; 1111928 16976 1061",
            "chained+addresses 4: 121504, 34280; 81120 1239 1011",
            "chained+addresses 8: 116576, 34536; 98432 1511 1007",
            "chained+addresses 16: 114496, 35048; 134248 2071 1006",
            "nic-index -: 146208",
            "btree -: 82368",
        ];
        assert_eq!(lines, expected);
        assert!(rows.iter().all(|row| row.lookups_per_second > 0.0));
    }

    #[test]
    fn memory_is_what_the_allocator_gave_out() {
        let (kept, bytes) = built(|| {
            drop(vec![0_u8; 1_000]);
            (Vec::<u64>::with_capacity(100), Box::new([0_u8; 24]))
        });
        assert_eq!(bytes, 824);
        drop(kept);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        assert!(
            parse("--records 10 --value-bytes 0 --seed 3 --format json").is_some_and(|it| it.1)
        );
        assert!(parse("").is_some_and(|it| !it.1));
        for wrong in ["--records 0", "--records", "--format csv", "--value-bytes 257", "--what 1"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
