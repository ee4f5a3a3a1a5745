//! `cargo xtask rtl`: AlNiCo's scheduler in hardware (`crates/nicol-schedule/rtl/`), in each of its
//! two rankings, against the Rust model, under Verilator, and Yosys' estimate of what it takes.
//!
//! Both are Debian packages that the gate does not need: where one is absent, this says so and
//! leaves its part out.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, finish};

/// How much is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A million requests to each design, and the estimates.
    Whole,
    /// Few requests, and no estimates.
    Quick,
}

impl Form {
    const fn requests(self) -> u64 {
        match self {
            Self::Whole => 1_000_000,
            Self::Quick => 20_000,
        }
    }
}

/// A scheduler in hardware.
struct Design {
    /// The module at its top, and its file.
    top: &'static str,
    /// What it decides, in words.
    decides: &'static str,
    /// The model's ranking, as the example that writes its decisions is told.
    ranking: Option<&'static str>,
    /// Planes of features: what the testbench drives.
    planes: u8,
}

const DESIGNS: [Design; 2] = [
    Design { top: "scheduler", decides: "artifact, one plane", ranking: None, planes: 1 },
    Design {
        top: "serial_scheduler",
        decides: "improved, two planes",
        ranking: Some("improved"),
        planes: 2,
    },
];

/// What the designs have in common.
const PARTS: [&str; 5] =
    ["rank_tree.sv", "weighed_pair.sv", "sum_of_eight.sv", "sum_of_four.sv", "adder.sv"];

impl Design {
    /// Its files, the module at its top first.
    fn sources(&self, from: &Path) -> Vec<String> {
        let top = format!("{}.sv", self.top);
        let files = std::iter::once(top.as_str()).chain(PARTS);
        files.map(|file| from.join(file).display().to_string()).collect()
    }
}

/// Compares decisions, and estimates.
pub fn run(root: &Path, form: Form) -> Result<()> {
    let from = root.join("crates/nicol-schedule/rtl");
    let simulates = is_there("verilator", "--version");
    let estimates = form == Form::Whole && is_there("yosys", "-V");
    for design in &DESIGNS {
        let build = cargo::target(root)?.join("rtl").join(design.top);
        std::fs::create_dir_all(&build).with_context(|| build.display().to_string())?;
        println!("{}: {}", design.top, design.decides);
        if simulates {
            compare(root, design, &from, &build, form)?;
        }
        if estimates {
            estimate(design, &from, &build)?;
        }
    }
    Ok(())
}

fn is_there(tool: &str, version: &str) -> bool {
    let asked = Command::new(tool).arg(version).stdout(Stdio::null()).status();
    let found = asked.is_ok_and(|status| status.success());
    if !found {
        println!("{tool} is not installed, so its part is left out: apt-get install {tool}");
    }
    found
}

fn compare(root: &Path, design: &Design, from: &Path, build: &Path, form: Form) -> Result<()> {
    let mut verilator = Command::new("verilator");
    verilator.args(["-Wall", "-Wno-WIDTH", "-O3", "--cc", "--exe", "--build"]);
    let flags = format!("-O2 -DPLANES={}", design.planes);
    verilator.args(["-CFLAGS", &flags, "--top-module", design.top]);
    // One testbench for all.
    verilator.args(["--prefix", "Vscheduler", "--Mdir"]).arg(build);
    verilator.args(design.sources(from)).arg(from.join("testbench.cpp"));
    verilator.stdout(Stdio::null());
    finish(&mut verilator)?;
    // As tests build it: a million decisions take seconds.
    let example = ["-p", "nicol-schedule", "--example", "decisions"];
    finish(cargo::command(root).arg("build").args(example))?;
    let (mut model, requests) = (cargo::command(root), form.requests());
    model.args(["run", "--quiet"]).args(example).args(["--", &requests.to_string()]);
    model.args(design.ranking);
    let mut model = model.stdout(Stdio::piped()).spawn().context("the model")?;
    let trace = model.stdout.take().context("the model's trace")?;
    let hardware = Command::new(build.join("Vscheduler"))
        .arg((requests / 2).to_string())
        .stdin(trace)
        .status()
        .context("the testbench")?;
    let model = model.wait().context("the model")?;
    ensure!(hardware.success(), "the hardware decides otherwise than the model: see above");
    ensure!(model.success(), "the model has not written its whole trace");
    Ok(())
}

fn estimate(design: &Design, from: &Path, build: &Path) -> Result<()> {
    let (sources, top) = (design.sources(from).join(" "), design.top);
    let report = build.join("yosys.txt");
    // Each of the ranks' trees is the same: they are synthesized once.
    let script = format!(
        "read_verilog -sv {sources}; synth_xilinx -family xcup -top {top} -noiopad; \
         tee -o {} stat",
        report.display()
    );
    let mut yosys = Command::new("yosys");
    finish(yosys.args(["-q", "-p", &script]).stdout(Stdio::null()))?;
    let text = std::fs::read_to_string(&report).context("yosys' report")?;
    let Some(all) = text.split("design hierarchy").nth(1) else {
        bail!("{}: no numbers of the whole design", report.display());
    };
    let cells = |is: &dyn Fn(&str) -> bool| -> u64 {
        let lines = all.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse::<u64>().ok()?))
        });
        lines.filter(|(name, _)| is(name)).map(|(_, count)| count).sum()
    };
    println!(
        "yosys, UltraScale+: {} lookup tables, {} of memory, {} carry chains of 8, {} flip-flops, {} block \
         memories, {} multipliers; C2.06 has 88,294 lookup tables, 62,697 flip-flops, 332 block memories, \
         28 multipliers",
        cells(&|name| name.starts_with("LUT") || name == "INV"),
        cells(&|name| name.starts_with("RAM") && !name.starts_with("RAMB")),
        cells(&|name| name.starts_with("CARRY")),
        cells(&|name| name.starts_with("FD")),
        cells(&|name| name.starts_with("RAMB")),
        cells(&|name| name.starts_with("DSP")),
    );
    Ok(())
}
