//! `nicol doctor`: what this machine offers, and what that means for a run.

use std::fs;
use std::thread;

use anyhow::Result;
use nicol_bench::memory;
use serde_json::json;

use crate::cli::FormatArgs;
use crate::output;

struct Finding {
    what: &'static str,
    found: String,
    /// The remedy; empty if none is needed.
    advice: &'static str,
}

/// Prints the findings. They are never an error: every one has a fall-back.
pub fn run(args: &FormatArgs) -> Result<()> {
    let rows: Vec<_> = findings()
        .iter()
        .map(|finding| {
            json!({"what": finding.what, "found": finding.found, "advice": finding.advice})
        })
        .collect();
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.doctor/1", "rows": rows}))
}

fn findings() -> Vec<Finding> {
    let mut all = vec![cores(), memory(), load(), huge_pages(), governor()];
    all.push(Finding { what: "transports", found: "in-process rings".to_owned(), advice: "" });
    all
}

fn cores() -> Finding {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let advice = match cores {
        0..4 => "engines of several nodes share a thread: compare ratios, not absolute figures",
        _ => "",
    };
    Finding { what: "cores", found: cores.to_string(), advice }
}

fn memory() -> Finding {
    let bytes = memory::available();
    let found =
        bytes.map_or("unknown".to_owned(), |bytes| format!("{} MiB available", bytes >> 20));
    let advice = match bytes {
        Some(bytes) if bytes < 4 << 30 => "lower --records: the default data may not fit",
        _ => "",
    };
    Finding { what: "memory", found, advice }
}

fn load() -> Finding {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let one_minute = text.split_whitespace().next().unwrap_or("unknown").to_owned();
    let busy = one_minute.parse::<f64>().is_ok_and(|load| load > 1.0);
    let advice =
        if busy { "other work is running: live figures will be low and noisy" } else { "" };
    Finding { what: "load (1 min)", found: one_minute, advice }
}

fn huge_pages() -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = fs::read_to_string(path).unwrap_or_default();
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let advice = match chosen.as_str() {
        "never" => "large tables will miss the TLB: consider madvise",
        _ => "",
    };
    Finding { what: "transparent huge pages", found: chosen, advice }
}

fn governor() -> Finding {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    match fs::read_to_string(path) {
        Ok(text) => {
            let found = text.trim().to_owned();
            let advice = if found == "performance" { "" } else { "figures vary with the clock" };
            Finding { what: "frequency governor", found, advice }
        }
        Err(_) => Finding {
            what: "frequency governor",
            found: "not visible (virtual machine?)".to_owned(),
            advice: "compare within one run only",
        },
    }
}
