use nicol_core::history::{
    Action, Crash, Effect, End, Found, Initial, Key, Loaded, Persistency, Promise, Read, Scan, Txn,
    Write,
};

use super::*;

fn number(key: u64) -> Key {
    Key::Number(key)
}

fn bytes(key: &[u8]) -> Key {
    Key::Bytes(key.into())
}

fn read_at(key: Key, version: u64) -> Read {
    Read { key, present: true, version: Some(version), digest: Some(u64::MAX) }
}

fn operation(id: u64, end: End, action: Action) -> Operation {
    let responded = Some(20 * id + 10);
    Operation { client: 1, sequence: id, id, invoked: 20 * id, responded, end, action }
}

/// One operation of each kind, and of each end.
fn every_kind() -> Vec<Operation> {
    let scan = Scan {
        first: number(3),
        last: bytes(b"zz"),
        backward: true,
        limit: Some(7),
        found: vec![read_at(bytes(b""), 4), read_at(number(u64::MAX), 2)],
    };
    let write = |key, effect, version| Write { key, effect, version };
    let put = Effect::Put { digest: Some(77) };
    let committed = Txn {
        reads: vec![
            read_at(number(5), 1),
            Read { key: number(6), present: false, version: None, digest: None },
        ],
        scans: vec![scan.clone()],
        writes: vec![write(number(5), put, Some(2)), write(number(6), Effect::Delete, Some(9))],
        writes_more: false,
    };
    let unknown = Txn {
        writes: vec![write(number(5), Effect::Unknown, None), write(number(7), put, None)],
        writes_more: true,
        ..Txn::default()
    };
    let found = Found { present: true, version: Some(3), digest: None };
    let key = || bytes(&[0, 255, 16]);
    vec![
        operation(1, End::Ok, Action::Txn(committed.clone())),
        operation(2, End::Failed, Action::Txn(committed)),
        operation(3, End::Unknown, Action::Txn(unknown)),
        operation(4, End::Ok, Action::Get { key: key(), found: Some(found) }),
        operation(5, End::Failed, Action::Get { key: key(), found: None }),
        operation(6, End::Ok, Action::Put { write: write(key(), put, None), scope: Some(4) }),
        operation(
            7,
            End::Unknown,
            Action::Delete { write: write(key(), Effect::Delete, Some(8)), scope: None },
        ),
        operation(8, End::Ok, Action::Scan(scan)),
        Operation {
            responded: None,
            ..operation(9, End::Unknown, Action::Persist { scope: Some(4) })
        },
    ]
}

#[test]
fn a_history_survives_its_file() {
    let loaded = vec![
        Loaded { key: number(5), version: 1, digest: Some(3) },
        Loaded { key: bytes(b"a"), version: 1, digest: None },
    ];
    let recovered = vec![read_at(number(5), 2)];
    for promise in [Promise::StrictSerializable, Promise::Durable(Persistency::Scope)] {
        let history = History {
            promise,
            initial: Initial::Listed(loaded.clone()),
            operations: every_kind(),
            crashes: vec![Crash { at: 1_000, recovered: recovered.clone() }],
        };
        let origin = Origin { seed: Some(7), ..Origin::default() };
        let mut file = Vec::new();
        write(&mut file, &origin, &history).unwrap();
        let back = read(file.as_slice()).unwrap();
        assert_eq!((back.origin, back.history, back.schema.as_str()), (origin, history, SCHEMA));
    }
}

const HEADER: &str = r#"{"schema":"nicol.history/2","promise":"linearizable","operations":1,"clock":"ns","initial":"listed"}"#;
const GET: &str = r#"{"op":"get","client":1,"seq":1,"id":1,"invoked":10,"responded":20,"outcome":"ok","key":5,"present":true,"version":1}"#;

#[test]
fn a_range_of_keys_is_loaded_by_one_line() {
    let file = format!("{HEADER}\n{}\n{GET}\n", r#"{"op":"load","from":4,"to":6,"version":1}"#);
    let Initial::Listed(loaded) = read(file.as_bytes()).unwrap().history.initial else {
        panic!("the load is listed");
    };
    let keys: Vec<_> = loaded.into_iter().map(|record| record.key).collect();
    assert_eq!(keys, [4, 5, 6].map(Key::Number));
}

#[test]
fn a_load_need_not_tell_the_version_that_the_others_leave_to_it() {
    let loaded = |lines: &[&str]| {
        let header =
            HEADER.replace(r#""operations":1"#, &format!(r#""operations":{}"#, lines.len()));
        let all = [&[header.as_str(), r#"{"op":"load","key":5}"#], lines].concat();
        read(all.join("\n").as_bytes()).map(|content| match content.history.initial {
            Initial::Listed(loaded) => loaded[0].version,
            Initial::Untold => panic!("the load is listed"),
        })
    };
    let get = |version: u64| GET.replace(r#""version":1"#, &format!(r#""version":{version}"#));
    let put = |version: u64| {
        format!(
            r#"{{"op":"put","client":2,"seq":1,"id":9,"invoked":10,"outcome":"ok","responded":20,"key":5,"version":{version}}}"#
        )
    };
    let untold = GET.replace(r#","version":1"#, "");
    assert_eq!(loaded(&[&untold]).unwrap(), 1, "nobody tells one");
    assert_eq!(loaded(&[&get(7)]).unwrap(), 7);
    assert_eq!(loaded(&[&get(7), &put(9)]).unwrap(), 7);
    assert_eq!(loaded(&[&get(9), &put(9)]).unwrap(), 8, "the read is of the put");
    assert_eq!(loaded(&[&put(4)]).unwrap(), 3);
    let refused = loaded(&[&put(1)]).unwrap_err().to_string();
    assert!(refused.contains("line 2: a load without 'version'"), "{refused}");
}

/// The error of `read` for a file of these lines.
fn refused(lines: &[&str]) -> String {
    read(lines.join("\n").as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_bad_first_line_is_named() {
    let change = |from: &str, to: &str| refused(&[&HEADER.replace(from, to), GET]);
    assert!(refused(&[]).contains("empty"));
    for (from, to, expected) in [
        ("nicol.history/2", "other/9", "'other/9'"),
        ("linearizable", "eventual", "line 1: unknown promise 'eventual'"),
        (r#","operations":1"#, "", "line 1: column 85: missing field `operations`"),
        (r#","clock":"ns""#, "", "`clock`"),
        (r#""ns""#, r#""years""#, "`years`"),
        (r#","initial":"listed""#, "", "`initial`"),
        (r#""operations":1"#, r#""operations":2"#, "has 1 operations, and its first line says 2"),
        (r#""clock""#, r#""surprise":1,"clock""#, "`surprise`"),
        (r#""listed""#, r#""listed","crashes":1"#, "has 0 crashes"),
        ("}", "", "line 1"),
    ] {
        let error = change(from, to);
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
    let first = r#"{"schema":"nicol.history/1"}"#;
    assert!(refused(&[first]).contains("missing field `transactions`"));
}

#[test]
fn a_bad_line_is_named_with_a_remedy() {
    let cases = [
        (GET.replace(r#""op":"get""#, r#""op":"look""#), "unknown op 'look': use one of load, txn"),
        (GET.replace(r#","seq":1"#, ""), "'seq' is missing"),
        (GET.replace(r#""outcome":"ok""#, r#""outcome":"committed""#), "use ok, failed or unknown"),
        (GET.replace(r#""key":5"#, r#""key":"5""#), "even number of hex digits"),
        (GET.replace(r#""key":5"#, r#""key":"+5""#), "even number of hex digits"),
        (GET.replace(r#""key":5"#, r#""key":-5"#), "a whole number below 2^64"),
        (GET.replace("}", r#","scope":1}"#), "'scope' does not belong to a get"),
        (GET.replace("}", r#","surprise":1}"#), "unknown field `surprise`"),
        (GET.replace(r#""responded":20"#, r#""responded":2"#), "before its start"),
        (GET.replace(r#","responded":20"#, ""), "no time at which the client learnt it"),
        (GET.replace(r#","present":true,"version":1"#, ""), "does not say whether"),
        (GET.replace(r#""ok""#, r#""failed""#), "did not end well and says"),
        (
            GET.replace("true", "false").replace("}", r#","digest":1}"#),
            "absent record with a digest",
        ),
        (GET[..GET.len() - 9].to_owned(), "EOF"),
    ];
    for (line, expected) in cases {
        let error = refused(&[HEADER, "", &line]);
        assert!(error.starts_with("line 3: "), "{error}");
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        assert!(error.contains("record the history again"), "{error}");
    }
    let load = r#"{"op":"load","key":5,"version":1}"#;
    assert!(refused(&[HEADER, load, load, GET]).starts_with("line 3: a record that line 2 loads"));
    let untold = HEADER.replace("listed", "untold");
    assert!(refused(&[&untold, load, GET]).contains("untold"));
    let range = r#"{"op":"load","from":5,"to":4,"version":1}"#;
    assert!(refused(&[HEADER, range, GET]).contains("from 5 to 4"));
    let bytes = [HEADER.as_bytes(), b"\n\xff\xfe\n"].concat();
    assert!(read(bytes.as_slice()).unwrap_err().to_string().starts_with("line 2: not UTF-8"));
}

#[test]
fn operations_that_contradict_each_other_are_refused() {
    let header = HEADER.replace(r#""operations":1"#, r#""operations":2"#);
    let second = GET.replace(r#""id":1"#, r#""id":2"#).replace(r#""seq":1"#, r#""seq":2"#);
    let later = second.replace(r#""invoked":10"#, r#""invoked":20"#);
    assert!(read([&header, GET, &later].map(str::to_owned).join("\n").as_bytes()).is_ok());
    let unended = GET.replace(r#","responded":20"#, "").replace(r#""ok""#, r#""unknown""#);
    let unended = unended.replace(r#","present":true,"version":1"#, "");
    for (first, second, expected) in [
        (GET, GET, "operation 1 was recorded before"),
        (GET, &later.replace(r#""seq":2"#, r#""seq":1"#), "two operations numbered 1"),
        (GET, &second, "a client's operations do not overlap"),
        (&unended, &later, "goes on after operation 1, which never ended"),
    ] {
        let error = refused(&[&header, first, second]);
        assert!(error.starts_with("line 3: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_history_of_the_first_format_is_converted_and_says_what_it_lacks() {
    let file = r#"{"schema":"nicol.history/1","seed":3,"transactions":3}
{"client":1,"id":2,"start_ns":10,"end_ns":20,"end":"committed","reads":[{"key":7,"version":1,"present":true}],"writes":[{"key":7,"version":2,"deleted":false}]}
{"client":1,"id":1,"start_ns":0,"end_ns":10,"end":"unknown","reads":[],"writes":[],"unseen_writes":[8]}
{"client":2,"id":3,"start_ns":0,"end_ns":10,"end":"aborted","reads":[],"writes":[],"unseen_writes":[8]}
"#;
    let content = read(file.as_bytes()).unwrap();
    assert_eq!(content.origin.seed, Some(3));
    assert_eq!(content.history.initial, Initial::Untold);
    assert_eq!(content.not_told.len(), 4);
    let [committed, unknown, aborted] = content.history.operations.as_slice() else {
        panic!("three operations");
    };
    assert!(unknown.sequence < committed.sequence, "a client's order is that of its times");
    let writes = |operation: &Operation| operation.txn().unwrap().writes.clone();
    assert_eq!(writes(unknown)[0].effect, Effect::Unknown);
    assert!(writes(aborted).is_empty(), "an aborted transaction explains nothing");
    let overlap = file.replace(r#""end_ns":10,"end":"unknown""#, r#""end_ns":11,"end":"unknown""#);
    let error = read(overlap.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("line 2: ") && error.contains("do not overlap"), "{error}");
}

#[test]
fn crashes_are_in_the_order_of_time_whatever_that_of_their_lines() {
    let header = HEADER.replace("linearizable", "durable:strict");
    let header = header.replace(r#""listed""#, r#""listed","crashes":2"#);
    let [late, early] = [40, 30].map(|at| format!(r#"{{"op":"crash","at":{at}}}"#));
    let read = read([&*header, GET, &late, &early].join("\n").as_bytes()).unwrap();
    let times: Vec<u64> = read.history.crashes.iter().map(|crash| crash.at).collect();
    assert_eq!(times, [30, 40]);
}

#[test]
fn values_without_digests_are_not_told_whoever_read_them() {
    let load = r#"{"op":"load","key":5,"version":1}"#;
    let scan = GET.replace(r#""op":"get""#, r#""op":"scan""#).replace(
        r#""key":5,"present":true,"version":1"#,
        r#""scan":{"first":1,"last":9,"found":[{"key":5,"version":1}]}"#,
    );
    for (line, told) in [
        (GET.to_owned(), false),
        (GET.replace(r#""version":1"#, r#""version":1,"digest":7"#), true),
        (scan.clone(), false),
        (scan.replace(r#""version":1"#, r#""version":1,"digest":7"#), true),
    ] {
        let content = read([HEADER, load, &line].join("\n").as_bytes()).unwrap();
        assert_eq!(content.not_told.is_empty(), told, "{line}: {:?}", content.not_told);
    }
}

#[test]
fn a_line_has_a_greatest_length_and_one_without_an_end_is_not_read_on() {
    let file = [HEADER, GET].join("\n");
    let longest = file.lines().map(str::len).max().unwrap();
    for file in [file.clone(), format!("{file}\n"), format!("\r\n{}\r\n", file.trim())] {
        assert!(read_up_to(file.as_bytes(), longest + 1).is_ok(), "{file:?}");
    }
    assert!(read_up_to(file.as_bytes(), longest).is_ok());
    let error = read_up_to(file.as_bytes(), longest - 1).unwrap_err().to_string();
    assert!(error.contains(&format!("longer than {} bytes", longest - 1)), "{error}");
    let endless = io::BufReader::new(io::repeat(b'7'));
    let error = read_up_to(endless, 1_000_000).unwrap_err().to_string();
    assert!(error.starts_with("line 1: longer than 1000000 bytes"), "{error}");
}
