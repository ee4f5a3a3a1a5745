//! What a description may say, and how a wrong one is refused.

use super::*;

const GOOD: &str = r#"
name = "two ways"
criteria = ["latency", "throughput"]
[[alternative]]
name = "a1"
steps = [
  { path = "1", verb = "READ", bytes = "64B", count = 2 },
]
[[alternative]]
name = "a2"
share_max = 0.5
steps = [
  { path = "2", verb = "SEND", bytes = "16B", reply = "64B" },
  { core = "soc", time = "150ns" },
  { path = "3*", verb = "READ", bytes = "64B" },
]
"#;

#[test]
fn a_description_is_read_with_its_defaults() {
    let read = Description::parse("x.toml", GOOD).unwrap();
    assert_eq!((read.hardware.as_str(), read.alternatives.len()), ("bluefield2", 2));
    assert_eq!(read.criteria, [Criterion::Latency, Criterion::Throughput]);
    let compute = Step::Compute { side: Side::Nic, ns: 150 };
    assert_eq!(read.alternatives[1].steps[1], compute);
    assert_eq!(read.mitigations.doorbell_batch, 1);
}

#[test]
fn a_wrong_description_is_refused_with_its_line_and_the_remedy() {
    for (from, to, line, remedy) in [
        ("path = \"1\"", "path = \"4\"", 7, "choose one of 1, 2, 1-out"),
        (
            "\"READ\", bytes = \"64B\", count",
            "\"FETCH\", bytes = \"64B\", count",
            7,
            "READ, WRITE, SEND",
        ),
        ("\"64B\", count", "\"64\", count", 7, "a size with its unit"),
        ("count = 2", "count = 0", 7, "from 0.001"),
        ("count = 2", "count = 0.0009", 7, "from 0.001"),
        ("count = 2", "count = 1e-300", 7, "from 0.001"),
        ("count = 2", "count = 1e300", 7, "up to 1000"),
        ("count = 2", "count = nan", 7, "up to 1000"),
        ("share_max = 0.5", "share_max = 1e-300", 11, "from 0.001"),
        ("reply = \"64B\"", "reply = \"64GiB\"", 13, "reply: give 0B to 64MiB"),
        ("reply = \"64B\"", "reply = \"67108865B\"", 13, "reply: give 0B to 64MiB"),
        ("bytes = \"16B\"", "bytes = \"67108865B\"", 13, "bytes: give 1B to 64MiB"),
        ("time = \"150ns\"", "time = \"0ns\"", 14, "leave out a step that takes no time"),
        ("time = \"150ns\"", "time = \"0.4ns\"", 14, "give 1ns or more"),
        ("time = \"150ns\"", "time = \"-1ns\"", 14, "up to 1000ms"),
        ("time = \"150ns\"", "time = \"nanns\"", 14, "up to 1000ms"),
        ("time = \"150ns\"", "time = \"1001ms\"", 14, "up to 1000ms"),
        ("count = 2", "cuont = 2", 7, "unknown field `cuont`"),
        ("reply = \"64B\"", "reply = \"64B\", range = \"1KiB\"", 13, "a SEND has no addresses"),
        ("name = \"a2\"", "name = \"a\\u0001\"", 10, "in one line, in characters that print"),
        ("name = \"a2\"", "name = \"a\\nb\"", 10, "in one line, in characters that print"),
        ("share_max = 0.5", "share_max = 1.5", 11, "up to 1"),
        ("time = \"150ns\"", "time = \"150\"", 14, "with its unit"),
        ("\"latency\"", "\"speed\"", 3, "throughput, latency"),
        ("name = \"a2\"", "name = \"a1\"", 10, "another alternative"),
        ("path = \"3*\", verb = \"READ\"", "path = \"3*\", verb = \"SEND\"", 15, "READ or WRITE"),
        ("\"soc\", time", "\"soc\", count = 1, time", 14, "nothing else"),
        ("core = \"soc\"", "core = \"host\"", 14, "a step of the SoC's"),
        (
            "verb = \"SEND\", bytes = \"16B\", reply = \"64B\"",
            "verb = \"READ\", bytes = \"16B\"",
            14,
            "SEND it to path",
        ),
    ] {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD, "{from}");
        let wrong = Description::parse("x.toml", &text).unwrap_err();
        assert_eq!(wrong.line, line, "{to}: {wrong}");
        assert!(wrong.to_string().starts_with("x.toml:"), "{wrong}");
        assert!(wrong.what.contains(remedy), "{to}: {wrong}");
    }
    let none = Description::parse("x.toml", "name = \"x\"").unwrap_err();
    assert!(none.what.contains("[[alternative]]"), "{none}");
}

#[test]
fn what_is_just_allowed_is_read() {
    for (from, to) in [
        ("count = 2", "count = 0.001"),
        ("count = 2", "count = 1000"),
        ("share_max = 0.5", "share_max = 0.001"),
        ("reply = \"64B\"", "reply = \"64MiB\""),
        ("reply = \"64B\"", "reply = \"0B\""),
        ("time = \"150ns\"", "time = \"0.5ns\""),
        ("time = \"150ns\"", "time = \"1000ms\""),
    ] {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD, "{from}");
        let read = Description::parse("x.toml", &text);
        assert!(read.is_ok(), "{to}: {}", read.unwrap_err());
    }
}

#[test]
fn a_segment_that_cuts_a_step_into_too_many_pieces_is_refused() {
    let of = |segment: &str| {
        let text = GOOD.replace("64B\", count = 2", "64MiB\", count = 16").replacen(
            "[[alternative]]",
            &format!("[mitigations]\nsegment = \"{segment}\"\n[[alternative]]"),
            1,
        );
        Description::parse("x.toml", &text)
    };
    assert_eq!(of("64KiB").unwrap().mitigations.segment, Some(64 << 10));
    let wrong = of("65535B").unwrap_err();
    assert_eq!((wrong.line, wrong.what.contains("give a larger one")), (5, true), "{wrong}");
    assert!(of("63B").unwrap_err().what.contains("64B or more"));
}

/// Mistakes of newcomers; a plan must refuse each.
#[test]
fn what_a_newcomer_gets_wrong_is_named_with_its_line() {
    const OWN: &str = r#"# My sessions.
name = "sessions"
hardware = "bluefield2"
clients = "connectx4"
bytes = "1KiB"
criteria = ["throughput"]
[limits]
host_cores = 4
soc_cores = 8
[[alternative]]
name = "read"
share_max = 0.7
steps = [{ path = "1", verb = "READ", bytes = "1KiB" }]
[[alternative]]
name = "ask"
share_max = 0.5
steps = [
  { path = "2", verb = "SEND", bytes = "32B", reply = "1KiB" },
  { core = "soc", time = "350ns" },
]
"#;
    assert!(Description::parse("own.toml", OWN).is_ok());
    for (from, to, line, remedy) in [
        ("name = \"sessions\"", "name = \" \"", 2, "give it one"),
        ("\"bluefield2\"", "\"bluefeld2\"", 3, "did you mean 'bluefield2'"),
        ("\"bluefield2\"", "\"connectx6\"", 9, "choose bluefield2"),
        ("\"bluefield2\"", "\"connectx5\"", 3, "connectx6 without a SoC"),
        ("\"connectx4\"", "\"liquidio3\"", 4, "such as connectx4"),
        ("bytes = \"1KiB\"", "bytes = \"0B\"", 5, "give 1B to 62GiB"),
        ("bytes = \"1KiB\"", "bytes = \"63GiB\"", 5, "1B to 62GiB"),
        ("bytes = \"1KiB\"", "bytes = 1024", 5, "in quotes"),
        ("[\"throughput\"]", "\"throughput\"", 6, "write a list"),
        ("[\"throughput\"]", "[]", 6, "one at least"),
        ("[\"throughput\"]", "[\"latency\", \"latency\"]", 6, "there twice"),
        ("host_cores = 4", "host_cores = 0", 8, "give 1 to 24"),
        ("host_cores = 4", "host_cores = -1", 8, "a whole number"),
        ("soc_cores = 8", "soc_cores = 80", 9, "the hardware has 8"),
        ("soc_cores = 8", "soc_core = 8", 9, "unknown field `soc_core`"),
        ("name = \"read\"", "name = \"\"", 11, "give it one"),
        ("share_max = 0.5", "share_max = \"50%\"", 16, "write a number"),
        ("share_max = 0.5", "share_max = 0.2", 16, "90 % of requests"),
        ("share_max = 0.5", "share_max = 0.2999", 16, "99.99 % of requests"),
        ("time = \"350ns\"", "time = \"350ns\", reply = \"8B\"", 19, "nothing else"),
        ("[[alternative]]\nname = \"ask\"", "[alternative]\nname = \"ask\"", 14, "duplicate key"),
    ] {
        let text = OWN.replacen(from, to, 1);
        assert_ne!(text, OWN, "{from}");
        let wrong = Description::parse("own.toml", &text).unwrap_err();
        assert_eq!(wrong.line, line, "{to}: {wrong}");
        assert!(wrong.what.contains(remedy), "{to}: {wrong}");
    }
}

/// A plain NIC can do what needs no SoC, and the SoC's memory holds so much.
#[test]
fn what_needs_a_soc_is_refused_without_one_and_so_is_what_it_cannot_hold() {
    let of = |hardware: &str, memory: &str, more: &str, steps: &str| {
        let text = format!(
            "name = \"x\"\nhardware = \"{hardware}\"\n[soc_memory]\n{memory}\n[[alternative]]\n\
             name = \"a\"\n{more}\nsteps = [{steps}]\n"
        );
        Description::parse("x.toml", &text).map_err(|wrong| (wrong.line, wrong.what))
    };
    let plain = r#"{ path = "1", verb = "READ", bytes = "64B" }"#;
    let asks = r#"{ path = "2", verb = "SEND", bytes = "64B" }"#;
    let (index, keeps) = ("index = \"12GB\"", "keeps = [\"index\"]");
    assert!(of("connectx6", "", "", plain).is_ok_and(|read| !read.needs_soc()));
    let kept = of("bluefield2", index, keeps, asks).unwrap();
    assert_eq!((kept.needs_soc(), kept.kept_bytes(&[0])), (true, 12_000_000_000));
    for (found, line, remedy) in [
        (of("connectx6", "", "", asks), 8, "has no SoC; choose bluefield2"),
        (of("connectx6", index, keeps, plain), 7, "has no SoC; choose bluefield2"),
        (of("bluefield2", "index = \"17GB\"", keeps, plain), 7, "the 16.0 GB of bluefield2's SoC"),
        (of("bluefield2", "other = \"1GB\"", keeps, plain), 4, "write keeps = [\"other\"]"),
        (of("bluefield2", "", keeps, plain), 7, "index = \"4GB\""),
        (of("bluefield2", "index = \"0B\"", keeps, plain), 4, "1B or more"),
    ] {
        let (at, what) = found.unwrap_err();
        assert!(at == line && what.contains(remedy), "{at}: {what}");
    }
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_line() {
    let path = std::env::temp_dir().join(format!("nicol-plan-{}.toml", std::process::id()));
    std::fs::write(&path, b"name = \"x\"\n\xff\xfe\n").unwrap();
    let wrong = Description::load(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(wrong.contains(".toml:2: this is no text"), "{wrong}");
}
