//! `cargo xtask peers`: Nicol's simulator beside SimGrid, on the message pattern of MINOS-B with
//! the Synch model (`benches/peers/minos_simgrid.cpp`): protocol messages per second of a CPU.
//!
//! SimGrid is a Debian package that the gate does not need: where it is absent, this says so and
//! runs nothing. Whoever runs it wants a machine that does nothing else.

pub mod redis;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{cargo, finish};

/// Nodes, and requests of each: the default of MINOS' figures. [MINOS24 VII]
const NODES: u64 = 5;
const REQUESTS: u64 = 100_000;
/// Records of each node: the paper's database, and one that the processor's caches hold, since
/// SimGrid's program has no records. [MINOS24 VII]
const RECORDS: [u64; 2] = [20_000, 1_000];
/// Its default network model, and the one that computes least of those that have links.
const MODELS: [&str; 2] = ["LV08", "CM02"];

/// What a program took.
struct Took {
    messages: f64,
    cpu_s: f64,
    memory_mib: f64,
}

/// Runs both programs `times` times, in turns, and prints a line for each run.
pub fn run(root: &Path, times: u64) -> Result<()> {
    ensure!(times > 0, "TIMES is 0: give at least 1");
    let build = cargo::target(root)?.join("peers");
    std::fs::create_dir_all(&build).with_context(|| build.display().to_string())?;
    let source = root.join("benches/peers/minos_simgrid.cpp");
    let program = build.join("minos_simgrid");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-std=c++17", "-Wall", "-Wextra"]).arg(&source);
    if finish(compiler.arg("-lsimgrid").arg("-o").arg(&program)).is_err() {
        println!(
            "SimGrid's program was not built, so nothing is compared: apt-get install g++ libsimgrid-dev"
        );
        return Ok(());
    }
    let built = ["build", "--release", "-p", "nicol", "--bin", "nicol"];
    finish(cargo::command(root).args(built))?;
    let nicol = cargo::target(root)?.join("release/nicol");
    for _ in 0..times {
        for model in MODELS {
            let took = simgrid(&program, model)?;
            took.print(&format!("SimGrid, network model {model}"));
        }
        for records in RECORDS {
            for (told, more) in [("judged", &[][..]), ("without a history", &["--no-recorded-run"])]
            {
                let name = format!("Nicol, minos-b:synch, {records} records a node, {told}");
                simulated(&nicol, records, more)?.print(&name);
            }
        }
    }
    Ok(())
}

impl Took {
    fn print(&self, name: &str) {
        let Self { messages, cpu_s, memory_mib } = self;
        println!(
            "{name}: {messages:.0} messages in {cpu_s:.2} CPU seconds: {:.0} a CPU second, {memory_mib:.0} \
             MiB at most",
            messages / cpu_s
        );
    }
}

fn simgrid(program: &Path, model: &str) -> Result<Took> {
    let mut command = Command::new(program);
    let sizes = [NODES, REQUESTS].map(|size| size.to_string());
    command.args(sizes).arg(format!("--cfg=network/model:{model}")).arg("--log=root.thres:warning");
    let (told, cpu_s) = timed(&command)?;
    let told: Value = serde_json::from_str(told.trim()).context("what the program prints")?;
    let number = |name: &str| told[name].as_f64().with_context(|| format!("{name} in {told}"));
    Ok(Took { messages: number("messages")?, cpu_s, memory_mib: number("memory_kib")? / 1024.0 })
}

/// The same requests on the same hardware, with records, locks, timestamps, logs and a history that
/// is judged, unless `more` says otherwise: all of it counts.
fn simulated(nicol: &Path, records: u64, more: &[&str]) -> Result<Took> {
    let mut command = Command::new(nicol);
    command.args(["bench", "ycsb", "--system", "minos-b:synch", "--on", "minos-snic"]);
    command.args(["--clients", "5", "--records", &records.to_string(), "--value-bytes", "1024"]);
    command.args(["--read-percent", "50", "--warmup", "0", "--format", "json"]);
    command.args(["--nodes", &NODES.to_string()]).args(more);
    command.args(["--transactions", &(NODES * REQUESTS).to_string()]);
    let (told, cpu_s) = timed(&command)?;
    let told: Value = serde_json::from_str(&told).context("the report")?;
    let number = |value: &Value| value.as_f64().with_context(|| format!("a number in {told}"));
    let messages = number(&told["messages_per_txn"])? * number(&told["committed"])?;
    let memory_mib = number(&told["memory"]["peak_bytes"])? / f64::from(1 << 20);
    Ok(Took { messages, cpu_s, memory_mib })
}

/// What a command prints, and the time of a CPU that it takes, its start and its end included.
fn timed(command: &Command) -> Result<(String, f64)> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" && times", "sh"]).arg(command.get_program()).args(command.get_args());
    let output = shell.output().context("cannot start sh")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let (rest, children) = told.trim_end().rsplit_once('\n').context("what sh prints")?;
    let (told, _shell) = rest.rsplit_once('\n').context("what sh prints")?;
    let seconds = |word: &str| -> Option<f64> {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let words: Option<Vec<f64>> = children.split_whitespace().map(seconds).collect();
    let cpu = words.with_context(|| format!("'{children}' of sh's times"))?.iter().sum();
    Ok((told.to_owned(), cpu))
}
