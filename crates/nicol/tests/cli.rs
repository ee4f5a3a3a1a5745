//! Exit codes of the command: scripts depend on them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A file of this test run; `name` is used by one test only.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

fn nicol(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NICOL_")) {
        command.env_remove(name);
    }
    command.args(args).output().unwrap()
}

/// A server on a free port, and where it listens.
fn serve() -> (Child, String) {
    let flags = ["serve", "--listen", "127.0.0.1:0", "--records", "1000", "--threads", "1"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_nicol"))
        .args(flags)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut banner = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut banner).unwrap();
    let address = banner.split_whitespace().find_map(|word| word.strip_suffix(';')).unwrap();
    (child, address.to_owned())
}

/// Runs `nicol` and returns what it printed, if it ended with `code`.
fn ends(code: i32, args: &[&str]) -> String {
    let output = nicol(args);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "nicol {}: {told}", args.join(" "));
    assert!(!told.contains("panicked"), "{told}");
    assert!(
        matches!(code, 0 | 1 | 4) || !told.is_empty(),
        "nicol {} fails without a word",
        args.join(" ")
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A committed transaction that reads version `read` of key 7 and writes version `write`.
fn update(id: u64, (start, end): (u64, u64), read: u64, write: u64) -> String {
    format!(
        r#"{{"client":{id},"id":{id},"start_ns":{start},"end_ns":{end},"end":"committed","reads":[{{"key":7,"version":{read},"present":true}}],"writes":[{{"key":7,"version":{write},"deleted":false}}]}}"#
    )
}

fn history(name: &str, updates: [String; 2]) -> PathBuf {
    let header = r#"{"schema":"nicol.history/1","transactions":2}"#;
    file(name, &format!("{header}\n{}\n", updates.join("\n")))
}

#[test]
fn a_wrong_history_is_never_exit_0() {
    let good = history("good.jsonl", [update(1, (0, 10), 1, 2), update(2, (20, 30), 2, 3)]);
    let verdict = ends(0, &["check", good.to_str().unwrap(), "--format", "json"]);
    assert!(verdict.contains("\"serializable\": true"), "{verdict}");
    // A lost update: both read version 1 and both say that they installed version 2.
    let lost = history("lost.jsonl", [update(1, (0, 10), 1, 2), update(2, (5, 15), 1, 2)]);
    // Serializable, but not strictly: the second starts after the first ended and does not see it.
    let late = history("late.jsonl", [update(1, (0, 10), 2, 3), update(2, (20, 30), 1, 2)]);
    for bad in [lost, late] {
        for format in ["json", "csv", "table"] {
            let verdict = ends(1, &["check", bad.to_str().unwrap(), "--format", format]);
            assert!(format != "json" || verdict.contains("\"serializable\": false"), "{verdict}");
        }
    }
}

/// A right history whose transactions tell no versions: nobody can say whether it is right.
#[test]
fn what_is_undecided_is_neither_right_nor_wrong() {
    let header = concat!(
        r#"{"schema":"nicol.history/2","promise":"strict-serializable","operations":2,"#,
        r#""clock":"ns","initial":"listed"}"#
    );
    let txn = |id: u64, read: &str, digest: u64| {
        let (from, to) = (20 * id, 20 * id + 10);
        format!(
            r#"{{"op":"txn","client":{id},"seq":0,"id":{id},"invoked":{from},"outcome":"committed","reads":[{{"key":1,{read}}}],"scans":[],"writes":[{{"key":1,"digest":{digest}}}],"responded":{to}}}"#
        )
    };
    let (first, second) = (txn(1, r#""present":false"#, 1), txn(2, r#""digest":1"#, 2));
    let text = format!("{header}\n{first}\n{second}\n");
    let told = file("no_versions.jsonl", &text);
    let verdict = ends(4, &["check", told.to_str().unwrap(), "--format", "json"]);
    let verdict: serde_json::Value = serde_json::from_str(&verdict).unwrap();
    assert!(verdict["held"].is_null() && verdict["serializable"].is_null(), "{verdict}");
    assert!(verdict["undecided"].as_str().unwrap().contains("version"), "{verdict}");
}

/// 296 transactions of a run with `local_read=paper`, up to one in which client 8 reads version 9
/// of a key in the nanosecond in which its own write of version 10 was acknowledged. The first
/// checker, which took a client's order from times that differ, held this run to be right.
#[test]
fn a_client_that_misses_its_own_write_is_refused() {
    let recorded = include_str!("histories/own_order.jsonl");
    let read = r#""id":72057594037928030,"start_ns":196898,"end_ns":197438,"end":"committed","reads":[{"key":72057594037927955,"version":"#;
    assert_eq!(recorded.matches(&format!("{read}9")).count(), 1);
    let verdict = ends(1, &["check", file("own_order.jsonl", recorded).to_str().unwrap()]);
    assert!(verdict.contains("ClientOrder: client 8"), "{verdict}");
    let mended = recorded.replace(&format!("{read}9"), &format!("{read}10"));
    ends(0, &["check", file("own_order_mended.jsonl", &mended).to_str().unwrap()]);
}

#[test]
fn a_history_from_standard_input_is_judged_and_a_bad_one_is_the_user_s_to_mend() {
    let check = |text: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
        command.args(["check", "-"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let header = r#"{"schema":"nicol.history/1","transactions":2}"#;
    let (first, second) = (update(1, (0, 10), 1, 2), update(2, (20, 30), 2, 3));
    assert_eq!(check(&format!("{header}\n{first}\n{second}\n")).0, Some(0));
    let stale = update(2, (20, 30), 1, 3);
    assert_eq!(check(&format!("{header}\n{first}\n{stale}\n")).0, Some(1));
    for (text, told) in [
        ("{\"schema\":\"something.else/1\"}\n".to_owned(), "something.else/1"),
        (format!("{header}\n{first}\n"), "cut short"),
        (format!("{header}\n{first}\n{first}\n"), "line 3"),
    ] {
        let (code, words) = check(&text);
        assert_eq!(code, Some(2), "{words}");
        assert!(words.contains(told), "{words}");
    }
}

/// Only durability says what a crash may leave: another promise would be judged without it.
#[test]
fn crashes_under_a_promise_that_says_nothing_of_them_are_refused() {
    let lost = concat!(
        r#"{"schema":"nicol.history/2","promise":"durable:strict","operations":1,"#,
        r#""clock":"ns","initial":"listed","crashes":1}"#,
        "\n",
        r#"{"op":"put","client":1,"seq":1,"id":1,"invoked":0,"responded":5,"outcome":"ok","#,
        r#""key":2,"version":2}"#,
        "\n",
        r#"{"op":"crash","at":10,"recovered":[{"key":2,"present":false}]}"#,
    );
    ends(1, &["check", file("crash.jsonl", lost).to_str().unwrap()]);
    for promise in ["linearizable", "serializable", "strict-serializable"] {
        let other = lost.replace("durable:strict", promise);
        ends(2, &["check", file("crash_untold.jsonl", &other).to_str().unwrap()]);
    }
}

#[test]
fn a_file_that_the_system_does_not_read_is_the_environment_s() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    for command in ["trace", "decisions", "check", "plan"] {
        ends(3, &[command, folder]);
        ends(2, &[command, file("no_text", "\u{1}\n").to_str().unwrap()]);
    }
    let bench = ["bench", "smallbank", "--on", "liquidio3", "--fault-plan"];
    for missing in [folder, "/nonexistent/plan.json"] {
        ends(3, &[&bench[..], &[missing]].concat());
    }
    for profile in [folder, "/nonexistent/mine.toml"] {
        ends(3, &["profiles", "show", profile]);
        ends(3, &["bench", "smallbank", "--on", profile]);
        ends(3, &["sweep", "smallbank", "--on", profile, "--seeds", "0..1"]);
    }
}

#[test]
fn a_sweep_runs_nothing_twice() {
    for (flags, named) in [
        (["smallbank,smallbank", "--system", "xenic", "--on", "liquidio3"], "'smallbank'"),
        (["smallbank", "--system", "all,xenic", "--on", "liquidio3"], "'all'"),
        (["smallbank", "--system", "xenic", "--on", "liquidio3,liquidio3"], "'liquidio3'"),
    ] {
        let output = nicol(&[&["sweep"], &flags[..], &["--seeds", "0..1"]].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(named), "{told}");
    }
}

#[test]
fn a_sweep_that_witnessed_too_little_fails() {
    let few = ["sweep", "smallbank", "--on", "liquidio3", "--seeds", "0..1", "--transactions", "3"];
    ends(0, &few);
    let printed = ends(1, &[&few[..], &["--require-coverage", "--format", "json"]].concat());
    assert!(printed.contains("never_seen"), "{printed}");
}

#[test]
fn a_sweep_keeps_the_histories_of_failed_runs_and_of_no_others() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("failed-histories");
    let _gone = fs::remove_dir_all(&folder);
    // As printed in the paper, which a checker finds within a few seeds.
    let gaps = ["--set", "faithful=paper", "--records", "40", "--keys", "2", "--zipf", "0"];
    let runs = ["--on", "connectx5", "--seeds", "0..8", "--transactions", "300"];
    let kept = ["--histories", folder.to_str().unwrap(), "--format", "json"];
    let printed = ends(1, &[&["sweep", "ycsb-t"][..], &gaps, &runs, &kept].concat());
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let failures = report["failures"].as_array().unwrap();
    assert!((1..8).contains(&failures.len()), "{printed}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), failures.len());
    for failure in failures {
        let history = folder.join(format!("ycsb-t-xenic-connectx5-{}.jsonl", failure["seed"]));
        ends(1, &["check", history.to_str().unwrap()]);
    }
}

#[test]
fn the_help_and_the_readme_tell_the_same_exit_codes() {
    let help = ends(0, &["--help"]);
    let (_, listed) = help.split_once("Exit codes:\n").unwrap();
    let listed: Vec<_> = listed.lines().take_while(|line| !line.is_empty()).collect();
    let readme = include_str!("../../../README.md");
    let (_, table) = readme.split_once("| exit code | meaning |\n|---|---|\n").unwrap();
    let table: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let codes = |line: &&str| line.trim_matches(['|', ' ']).split(' ').next().unwrap().to_owned();
    assert_eq!(
        listed.iter().map(codes).collect::<Vec<_>>(),
        ["0", "1", "2", "3", "4", "130", "143"]
    );
    assert_eq!(listed.len(), table.len());
    for (line, row) in listed.iter().zip(table) {
        let (code, meaning) = line.trim().split_once(' ').unwrap();
        assert!(row.starts_with(&format!("| {code} | {}", meaning.trim())), "{line}: {row}");
    }
}

#[test]
fn a_history_that_cannot_be_written_does_not_cost_the_report() {
    let run = ["bench", "smallbank", "--on", "liquidio3", "--seconds", "0.001", "--warmup", "0"];
    // That it is full shows when it is written to.
    let printed = ends(3, &[&run[..], &["--history", "/dev/full", "--format", "json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(report["committed"].as_u64().unwrap() > 0, "{printed}");
}

#[test]
fn a_slip_in_a_name_is_asked_about() {
    for (args, meant) in [
        (&["bench", "smalbank"][..], "smallbank"),
        (&["bench", "smallbank", "--system", "xenik"], "xenic"),
        (&["bench", "smallbank", "--on", "liquidio"], "liquidio3"),
        (&["bench", "smallbank", "--on", "thread"], "threads"),
        (&["bench", "smallbank", "--on", "liquidio3", "--set", "agregation=off"], "aggregation"),
        (&["lab", "run", "fig8d"], "xenic-fig8d"),
        (&["profiles", "show", "conectx5"], "connectx5"),
        (&["sweep", "churn,retwsi"], "retwis"),
        (&["bench", "smallbank", "--faults", "crashs"], "crashes"),
    ] {
        let told = String::from_utf8(nicol(args).stderr).unwrap();
        assert!(told.contains(&format!("did you mean '{meant}'?")), "{args:?}: {told}");
        ends(2, args);
    }
    let told =
        String::from_utf8(nicol(&["bench", "smallbank", "--system", "redis"]).stderr).unwrap();
    assert!(!told.contains("did you mean") && told.contains("nicol systems"), "{told}");
}

#[test]
fn systems_are_listed_in_short_and_told_one_by_one() {
    let list = ends(0, &["systems"]);
    let inner = list.lines().filter_map(|line| line.strip_prefix("│ "));
    let mut rows = inner.map(|line| line.trim_end_matches('│'));
    let header: Vec<_> = rows.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["system", "family", "guarantee", "survives", "serves"], "{list}");
    for (system, serves) in [("xenic", "yes"), ("drtm-h-nc", "no"), ("prism-kv", "yes")] {
        let row = rows.find(|row| row.split_whitespace().next() == Some(system)).unwrap();
        assert_eq!(row.split_whitespace().last(), Some(serves), "{row}");
    }
    assert!(!list.contains("smallbank"), "{list}");
    let told = ends(0, &["systems", "show", "farm"]);
    assert!(told.contains("survives") && !told.contains("drtm-h-nc"), "{told}");
    // A reason stands once, behind every workload that it refuses.
    let told = ends(0, &["systems", "show", "pilaf", "--format", "json"]);
    let row: serde_json::Value = serde_json::from_str(&told).unwrap();
    let refuses = row["rows"][0]["refuses"].as_str().unwrap().to_owned();
    assert!(refuses.starts_with("smallbank ycsb-t "), "{refuses}");
    ends(2, &["systems", "show", "redis"]);
}

#[test]
fn what_a_configuration_says_is_judged_as_a_flag_is() {
    for (name, text) in [
        ("slow.toml", "transaction_ms = 3600001\n"),
        ("hasty.toml", "transaction_ms = 0\n"),
        ("unknown.toml", "nodez = 3\n"),
        ("tape.toml", "log_device = \"tape\"\n"),
    ] {
        let config = file(name, text);
        let args = ["serve", "--config", config.to_str().unwrap()];
        let told = String::from_utf8(nicol(&args).stderr).unwrap();
        let (key, _) = text.split_once(' ').unwrap();
        assert!(told.contains(key) && told.contains("--config"), "{told}");
        ends(2, &args);
    }
}

#[test]
fn a_cluster_of_one_node_needs_no_flag_but_its_size() {
    let run = ["bench", "smallbank", "--on", "liquidio3", "--transactions", "20", "--nodes", "1"];
    let printed = ends(0, &[&run[..], &["--format", "json"]].concat());
    assert!(printed.contains("\"replicas\": 1"), "{printed}");
    ends(2, &[&run[..], &["--replicas", "2"]].concat());
}

#[test]
fn a_sweep_for_people_is_not_json() {
    let few = ["sweep", "smallbank", "--on", "liquidio3", "--seeds", "0..1", "--transactions", "3"];
    let printed = ends(0, &few);
    let line = printed.lines().find(|line| line.contains("never_seen")).unwrap();
    assert!(line.contains(", ") && !line.contains(['"', '[', '\\']), "{line}");
}

#[test]
fn bad_usage_is_exit_2() {
    for args in [
        &["--no-such-flag"][..],
        &["no-such-command"],
        &["check"],
        &["bench", "no-such-workload"],
        &["bench", "smallbank", "--system", "no-such-system"],
        &["bench", "smallbank", "--set", "no_such_key=1"],
        &["bench", "smallbank", "--set", "log_bytes=1"],
        &["bench", "smallbank", "--threads", "0"],
        &["bench", "smallbank", "--transactions", "0"],
        &["bench", "smallbank", "--transactions", "18446744073709551615"],
        &["sweep", "smallbank", "--transactions", "18446744073709551615"],
        &["sweep", "smallbank", "--seeds", "0..18446744073709551615"],
        &["sweep", "smallbank", "--jobs", "0"],
        &["sweep", "smallbank", "--jobs", "1000000"],
        &["bench", "smallbank", "--seconds", "nan"],
        &["bench", "smallbank", "--warmup", "1e300"],
        &["bench", "smallbank", "--nodes", "0"],
        &["bench", "smallbank", "--nodes", "4097"],
        &["bench", "smallbank", "--clients", "99999999999"],
        &["bench", "smallbank", "--log-device", "tape"],
        &["bench", "smallbank", "--log-device", "file:/tmp", "--on", "liquidio3"],
        &["bench", "smallbank", "--log-device", "file:/tmp", "--system", "farm"],
        &["bench", "smallbank", "--suppliers", "home"],
        &["bench", "tpcc", "--suppliers", "nowhere"],
        &["bench", "tpcc", "--mix", "a"],
        &["bench", "tpcc-no", "--mix", "payment"],
        &["bench", "ycsb", "--mix", "full"],
        &["bench", "smallbank", "--terminals", "own"],
        &["bench", "tpcc", "--terminals", "own", "--zipf", "99"],
        &["bench", "tpcc", "--on", "liquidio3", "--transactions", "1000000000000"],
        &["bench", "churn", "--indices", "records"],
        &["bench", "churn", "--full-size"],
        &["sweep", "smallbank", "--seeds", "9..3"],
        &["sweep", "smallbank", "--on", "no-such-profile"],
        &["serve", "--replicas", "9"],
        &["serve", "--replicas", "1", "--log-device", "file:/tmp"],
        &["bench", "smallbank", "--replicas", "1", "--log-device", "file:/tmp"],
        &["serve", "--threads", "0"],
        &["serve", "--listen", "localhost"],
        &["lab", "report", "/no/such/folder"],
        &["lab", "report", "/dev/null"],
        &["serve", "--records", "4294967296"],
        &["serve", "--listen", "0.0.0.0:0", "--records", "1000"],
    ] {
        ends(2, args);
    }
}

#[test]
fn a_profile_off_its_published_measurements_fails_the_check() {
    let printed = ends(0, &["profiles", "check", "connectx5"]);
    assert!(printed.contains("13 of 13 lines are within 10 %"), "{printed}");
    let slower = "connectx5:verbs.requester_interval=100ns";
    let printed = ends(1, &["profiles", "check", slower]);
    assert!(printed.contains("FAILS"), "{printed}");
    let printed = ends(1, &["profiles", "check", slower, "--format", "json"]);
    assert!(printed.contains("\"holds\": false"), "{printed}");
}

#[test]
fn a_live_run_by_turns_repeats_step_by_step() {
    let flags = ["bench", "smallbank", "--records", "300", "--transactions", "2000"];
    let turns = ["--threads", "1", "--turn-us", "20", "--no-recorded-run", "--format", "json"];
    let run = || {
        let printed = ends(0, &[&flags[..], &turns].concat());
        let mut report: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let fields = report.as_object_mut().unwrap();
        // What threads were busy with goes by the machine's clock.
        for name in ["wall_s", "memory", "start_us_per_node", "resources", "binds", "busiest"] {
            fields.remove(name);
        }
        report
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first["committed"].as_u64().unwrap() > 1_500, "{first}");
    assert!(first["warnings"].as_array().unwrap().len() >= 2, "nothing was judged: {first}");
    for refused in [
        &["--threads", "2", "--turn-us", "20"][..],
        &["--threads", "1", "--turn-us", "0"],
        &["--threads", "1", "--turn-us", "20", "--faults", "messages"],
        &["--turn-us", "20"],
        &["--on", "liquidio3", "--threads", "1", "--turn-us", "20"],
        &["--on", "liquidio3", "--no-recorded-run", "--faults", "messages"],
        &["--no-recorded-run", "--faults", "messages"],
    ] {
        ends(2, &[&flags[..], refused].concat());
    }
}

#[test]
fn a_simulated_run_without_a_history_is_the_same_run_and_says_that_it_was_not_judged() {
    let flags = ["bench", "smallbank", "--on", "liquidio3", "--records", "300"];
    let run = |more: &[&str]| -> serde_json::Value {
        let format = ["--transactions", "500", "--format", "json"];
        serde_json::from_str(&ends(0, &[&flags[..], &format, more].concat())).unwrap()
    };
    let (judged, unjudged) = (run(&[]), run(&["--no-recorded-run"]));
    assert_eq!(judged["check"]["serializable"], true, "{judged}");
    assert!(unjudged["check"]["serializable"].is_null(), "{unjudged}");
    assert!(unjudged["warnings"].to_string().contains("not judged"), "{unjudged}");
    for same in ["committed", "throughput_per_s", "latency_us", "trace_digest"] {
        assert_eq!(judged[same], unjudged[same], "{same}");
        assert!(!judged[same].is_null(), "{same}: {judged}");
    }
}

#[test]
fn an_empty_password_is_refused_wherever_it_is_given() {
    let flags = ["serve", "--listen", "127.0.0.1:0", "--records", "1000"];
    let config = file("empty-password.toml", "password = \"\"\n");
    let config = ["--config", config.to_str().unwrap()];
    for given in [&["--password", ""][..], &config] {
        let args = [&flags[..], given].concat();
        let told = String::from_utf8(nicol(&args).stderr).unwrap();
        assert!(told.contains("--password: the password has 0 bytes"), "{told}");
        ends(2, &args);
    }
}

#[test]
fn a_profile_s_values_are_rows_whose_names_end_in_units() {
    let printed = ends(0, &["profiles", "show", "connectx5", "--format", "json"]);
    assert!(printed.starts_with("{\n  \"schema\": \"nicol.profile/1\""), "{printed}");
    let shown: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let rows = shown["rows"].as_array().unwrap();
    for (name, value) in [
        ("verbs.requester_interval_ps", 69_000_u64.into()),
        ("link.rate_bits_per_s", 100_000_000_000_u64.into()),
        ("link.packet_payload_bytes", 1_024.into()),
        ("cores.host", 32.into()),
        ("cores.on_path", serde_json::Value::from(false)),
    ] {
        let row = rows.iter().find(|row| row["name"] == name).expect(name);
        assert_eq!(row["value"], value, "{name}");
        assert!(name.starts_with(row["key"].as_str().unwrap()));
        assert!(!row["source"].as_str().unwrap().is_empty());
    }
    let csv = ends(0, &["profiles", "show", "connectx5:link.rate=50Gbps", "--format", "csv"]);
    assert!(csv.starts_with("profile,key,name,value,source,reason\n"), "{csv}");
    assert!(csv.contains("link.rate,link.rate_bits_per_s,50000000000,assumed,"), "{csv}");
    assert_eq!(csv.lines().count(), rows.len() + 1);
    let whole = ends(0, &["profiles", "show", "connectx5"]);
    assert!(whole.contains("rate = { value = \"100Gbps\""), "{whole}");
    let empty = file("empty-profile.toml", "");
    for unusable in [empty.to_str().unwrap(), "connectx5:link.rate=50"] {
        ends(2, &["profiles", "show", unusable]);
        ends(2, &["profiles", "show", unusable, "--format", "json"]);
    }
}

#[test]
fn a_number_below_zero_is_refused_by_name() {
    for args in [
        &["bench", "smallbank", "--nodes", "-1"][..],
        &["bench", "smallbank", "--seconds", "-1"],
        &["bench", "smallbank", "--seed", "-1"],
        &["lab", "run", "xenic-fig2", "--jobs", "-1"],
        &["serve", "--records", "-1"],
    ] {
        let told = String::from_utf8(nicol(args).stderr).unwrap();
        assert!(told.contains(args[args.len() - 2]) && !told.contains("tip:"), "{args:?}: {told}");
        ends(2, args);
    }
}

/// Runs `nicol` with standard output and standard error where a shell puts them.
fn redirected(arguments: &str) -> Output {
    let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_nicol"));
    Command::new("bash").args(["-c", &line]).output().unwrap()
}

#[test]
fn a_reader_that_goes_away_changes_no_verdict() {
    let bench = "bench smallbank --on liquidio3 --transactions 50";
    for (command, code) in [
        ("profiles show liquidio3".to_owned(), 0),
        ("completions bash".to_owned(), 0),
        ("lab run xenic-fig2 --format csv".to_owned(), 0),
        (bench.to_owned(), 0),
        (format!("{bench} --format json"), 0),
        ("check tests-lost.jsonl".to_owned(), 1),
    ] {
        let lost = [update(1, (0, 10), 1, 2), update(2, (5, 15), 1, 2)];
        let lost = history(&format!("gone-{}.jsonl", command.len()), lost);
        let command = command.replace("tests-lost.jsonl", lost.to_str().unwrap());
        let ended = redirected(&format!("{command} | true; exit ${{PIPESTATUS[0]}}"));
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{command}: {told}");
        assert!(!told.contains("panicked") && !told.contains("Broken pipe"), "{command}: {told}");
    }
}

#[test]
fn a_full_disk_under_the_output_is_exit_3() {
    for command in ["profiles show liquidio3", "completions bash", "lab run xenic-fig2"] {
        let told = redirected(&format!("{command} > /dev/full"));
        assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
    }
    let unheard = redirected("lab run xenic-fig2 2> /dev/full");
    assert_eq!(unheard.status.code(), Some(0), "what nobody hears on standard error is no failure");
}

#[test]
fn a_history_that_was_cut_short_is_not_judged() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("whole.jsonl");
    let whole = path.to_str().unwrap();
    let run = ["bench", "smallbank", "--on", "liquidio3", "--transactions", "50"];
    ends(0, &[&run[..], &["--history", whole]].concat());
    ends(0, &["check", whole]);
    let text = fs::read_to_string(&path).unwrap();
    let half: Vec<_> = text.lines().take(20).collect();
    let cut = file("cut.jsonl", &format!("{}\n", half.join("\n")));
    let told = nicol(&["check", cut.to_str().unwrap()]);
    assert_eq!(told.status.code(), Some(2));
    let told = String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("cut.jsonl") && told.contains("the file was cut short"), "{told}");
}

#[test]
fn a_failing_environment_is_exit_3() {
    ends(3, &["check", "/no/such/history.jsonl"]);
    ends(3, &["check", "/"]);
    let out = ["--transactions", "10", "--on", "liquidio3", "--history", "/no/such/folder/h.jsonl"];
    ends(3, &[&["bench", "smallbank"][..], &out].concat());
    ends(3, &["bench", "smallbank", "--log-device", "file:/dev/null/log"]);
    ends(3, &["lab", "run", "xenic-fig2", "--out", "/dev/null/results"]);
    ends(3, &["serve", "--config", "/no/such/config.toml"]);
    ends(3, &["serve", "--config", "/"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    ends(3, &["serve", "--listen", &address, "--records", "1000"]);
}

#[test]
fn a_log_that_cannot_grow_ends_the_run_as_an_environment_s_failure() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("small-log");
    // The limit on a file's size (in half KiB) stands for a full disk; the signal would end the
    // process before the write could fail.
    let line = "trap '' XFSZ; ulimit -f 64; exec \"$0\" bench smallbank --records 100 \
                --transactions 20000 --clients 8 --log-device \"file:$1\"";
    let nicol = env!("CARGO_BIN_EXE_nicol");
    let output = Command::new("sh").args(["-c", line, nicol]).arg(&dir).output().unwrap();
    let _gone = fs::remove_dir_all(&dir);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("the log device fails: node "), "{told}");
    assert!(!told.contains("panicked"), "{told}");
}

#[test]
fn a_server_that_is_asked_to_end_answers_first_and_ends_well() {
    for signal in ["INT", "TERM"] {
        let (mut server, address) = serve();
        let mut client = TcpStream::connect(&address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"SET k v\r\nGET k\r\n").unwrap();
        let mut replies = [0; 12];
        client.read_exact(&mut replies).unwrap();
        assert_eq!(&replies, b"+OK\r\n$1\r\nv\r\n");
        let id = server.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        // The connection is closed properly, not reset, and the process ends well.
        assert_eq!(client.read(&mut replies).unwrap(), 0);
        assert_eq!(server.wait().unwrap().code(), Some(0), "{signal}");
        assert!(TcpStream::connect(&address).is_err());
    }
}

#[test]
fn a_plan_names_the_line_that_is_wrong_and_a_good_one_says_what_binds() {
    let good = "name = \"x\"\n[[alternative]]\nname = \"a\"\nsteps = [{ path = \"1\", verb = \"READ\", \
                bytes = \"64B\" }]\n";
    let path = file("plan.toml", good);
    let path = path.to_str().unwrap();
    assert!(ends(0, &["plan", path]).contains("host memory, READs"));
    assert!(ends(0, &["plan", path, "--format", "json"]).contains("\"nicol.plan/1\""));
    assert!(ends(0, &["plan", path, "--format", "svg"]).starts_with("<svg"));
    let wrong = file("wrong-plan.toml", &good.replace("READ", "FETCH"));
    let output = nicol(&["plan", wrong.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("wrong-plan.toml:4: verb = \"FETCH\": choose one of"), "{told}");
    ends(3, &["plan", "no-such-plan.toml"]);
}

#[test]
fn decisions_of_a_run_are_written_shown_and_replayed_and_changed_ones_are_noticed() {
    let path = file("decisions.jsonl", "");
    let path = path.to_str().unwrap();
    let run = ["bench", "smallbank", "--on", "liquidio3", "--nodes", "2", "--clients", "8"];
    let scale = ["--host-engines", "2", "--nic-engines", "2", "--records", "2000"];
    let length = ["--transactions", "6000", "--system", "xenic", "--decisions", path];
    let run = [&run[..], &scale, &length].concat();
    let nothing = nicol(&run);
    let told = String::from_utf8_lossy(&nothing.stderr);
    assert_eq!(nothing.status.code(), Some(2), "{told}");
    assert!(told.contains("execute_at=planned"), "{told}");
    ends(0, &[&run[..], &["--set", "execute_at=planned"]].concat());
    let shown = ends(0, &["decisions", path]);
    assert!(shown.contains("host at first, or nic") && !shown.contains(" 0 switches"), "{shown}");
    let all = ends(0, &["decisions", path, "--all", "--format", "json"]);
    assert!(all.contains("\"do_not_follow\": 0"), "{all}");
    let text = std::fs::read_to_string(path).unwrap();
    let changed = file("changed.jsonl", &text.replacen("\"way\":\"nic\"", "\"way\":\"host\"", 1));
    let output = nicol(&["decisions", changed.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("host was decided, and nic follows"), "{told}");
    let wrong = file("no-decisions.jsonl", "{}\n");
    ends(2, &["decisions", wrong.to_str().unwrap()]);
    ends(3, &["decisions", "no-such-file"]);
}

#[test]
fn a_trace_without_a_message_about_the_key_is_a_sentence_and_no_empty_table() {
    let empty = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n";
    let path = file("empty.trace.json", empty);
    let path = path.to_str().unwrap();
    let output = nicol(&["trace", path, "--key", "0x11"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &[][..]), "{told}");
    assert!(told.contains("no message in") && told.contains("is about key 0x11"), "{told}");
    assert!(ends(0, &["trace", path, "--key", "17", "--format", "json"]).contains("\"rows\": []"));
}

/// What a run cannot do is said before it, in words, and never left out in silence.
#[test]
fn what_a_run_would_leave_out_is_refused_before_it() {
    let refused = |code: i32, args: &str, words: &[&str]| {
        let args: Vec<&str> = args.split_whitespace().collect();
        let output = nicol(&args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "nicol {}: {told}", args.join(" "));
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert!(output.stdout.is_empty(), "nothing has run: {told}");
    };
    let bench = "bench smallbank --records 100 --transactions 100";
    refused(2, &format!("{bench} --no-recorded-run --history x"), &["--history"]);
    refused(2, &format!("{bench} --warmup 1"), &["--warmup", "--transactions"]);
    refused(2, &format!("{bench} --decisions x"), &["--decisions", "execute_at=planned"]);
    refused(3, &format!("{bench} --history /nowhere/x"), &["--history /nowhere/x", "make it"]);
    refused(3, &format!("{bench} --trace /proc/x"), &["--trace /proc/x", "cannot write"]);
    refused(2, &format!("{bench} --on liquidio3:dma.queues=999999999999"), &["queues", "at most"]);
    refused(3, &format!("{bench} --trace /tmp"), &["--trace /tmp", "give a file"]);
    refused(2, &format!("{bench} --system silo --set waiting=wait-die"), &["--system 2pl"]);
    refused(2, "systems show minos-b", &["minos-b:synch", "minos-b:strict"]);
    refused(
        2,
        "bench smallbank --host-engines 255 --nic-engines 255 --nodes 64",
        &["GB", "--nodes"],
    );
}

#[test]
fn settings_of_a_scheduler_may_come_before_it_and_an_engine_has_a_log_device() {
    let run = "bench smallbank --records 1000 --transactions 100 --no-recorded-run --system";
    let scheduled = "silo --on innova2 --client-nodes 1 --set window=5 --set scheduler=alnico";
    ends(0, &format!("{run} {scheduled}").split_whitespace().collect::<Vec<_>>());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("engine-log");
    let logged = format!("{run} silo --set log=on --log-device file:{}", dir.display());
    ends(0, &logged.split_whitespace().collect::<Vec<_>>());
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_open_loop_says_that_it_is_overloaded() {
    let run = "bench smallbank --no-recorded-run --rate 300000000 --seconds 0.005 --on liquidio3";
    let told = ends(0, &run.split_whitespace().collect::<Vec<_>>());
    assert!(told.contains("overloaded: ") && told.contains("none"), "{told}");
}
