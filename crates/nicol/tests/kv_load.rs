//! The example that loads servers over a socket, against `nicol serve`.

#[path = "../../nicol-resp/examples/kv_load.rs"]
#[allow(dead_code, reason = "its main is the example's")]
mod kv_load;
mod live;

use std::process::Command;

use live::{Live, live_with};
use serde_json::Value;

/// A server at a path, and the arguments of a load of it.
fn serve(system: &str, protocol: &str) -> (Live, Vec<String>) {
    let name = format!("nicol-load-{system}-{protocol}-{}.sock", std::process::id());
    let listen = format!("unix:{}", std::env::temp_dir().join(name).display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    command.args(["serve", "--records", "20000", "--threads", "1"]);
    let (server, address) = live_with(command.args(["--system", system, "--listen", &listen]));
    let process = server.process.id().to_string();
    let args = [protocol, &address, "8", "4", "512", "2000", "1", &process];
    (server, args.map(str::to_owned).to_vec())
}

#[test]
fn every_reply_is_right_and_what_it_takes_is_told() {
    for system in ["prism-kv", "xenic"] {
        let (_server, args) = serve(system, "resp");
        let told = kv_load::measure(&args).unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        for kind in ["fill", "set", "get"] {
            let of = |name: &str| told[kind][name].as_f64().unwrap();
            assert!(of("operations_per_s") > 100.0, "{system}: {told}");
            // The server has worked for them, and no core does so in no time.
            let cost = of("server_cpu_us");
            assert!(
                cost > 0.1 && (of("per_server_cpu_s") * cost / 1e6 - 1.0).abs() < 0.1,
                "{told}"
            );
            assert!(of("p50_us") > 0.0 && of("p50_us") <= of("p99_us"), "{told}");
        }
    }
}

#[test]
fn a_reply_that_is_not_the_one_expected_ends_the_load() {
    let (_server, args) = serve("prism-kv", "memcached");
    let error = kv_load::measure(&args).unwrap_err().to_string();
    assert!(error.contains("the server says"), "{error}");
}
