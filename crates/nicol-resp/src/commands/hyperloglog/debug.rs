//! PFDEBUG and PFSELFTEST: how a sketch is kept, and whether the arithmetic of sketches holds.

use std::fmt::Write as _;

use super::sketch::{REGISTERS, Run, Sketch, runs};
use super::{put, sketch};
use crate::commands::errors::arity_error;
use crate::commands::spec::Spec;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::sizes::Sizes;
use crate::transactions::work::{Stop, Work};

/// PFDEBUG: GETREG, ENCODING, DECODE and TODENSE of a key.
pub fn pfdebug<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [word, key] = args else { return Err(Stop::Malformed) };
    let (found, sketch) = sketch(work, key)?;
    let mut sketch = sketch.ok_or(&b"ERR The specified key does not exist"[..])?;
    match word.bytes.to_ascii_lowercase().as_slice() {
        b"getreg" => {
            work.spend(8 * REGISTERS)?;
            if sketch.make_dense() {
                put(work, found, &sketch)?;
            }
            reply.array(REGISTERS);
            sketch.registers().iter().for_each(|register| reply.integer((*register).into()));
        }
        b"encoding" => reply.status(if sketch.is_dense() { "dense" } else { "sparse" }),
        b"decode" if sketch.is_dense() => {
            return Err(Stop::Error(b"ERR HLL encoding is not sparse"));
        }
        b"decode" => {
            let text = decoded(work.value(found).unwrap_or_default());
            work.spend(text.len())?;
            reply.bulk(text.as_bytes());
        }
        b"todense" => {
            let changes = sketch.make_dense();
            if changes {
                put(work, found, &sketch)?;
            }
            reply.integer(changes.into());
        }
        _ => {
            let text = [b"ERR Unknown PFDEBUG subcommand '", word.bytes, b"'"].concat();
            work.spend(text.len())?;
            reply.error(&text);
        }
    }
    Ok(())
}

/// The runs of a sparse sketch in Redis' words: `z` zeros in a byte, `Z` in two, `v` a value.
fn decoded(value: &[u8]) -> String {
    let mut text = String::new();
    for run in runs(value) {
        if !text.is_empty() {
            text.push(' ');
        }
        // Writing to a string does not fail.
        let _ = match run {
            Run::Zeros(count) => write!(text, "z:{count}"),
            Run::ManyZeros(count) => write!(text, "Z:{count}"),
            Run::Value(value, count) => write!(text, "v:{value},{count}"),
        };
    }
    text
}

/// Elements that the self test adds.
const ELEMENTS: u32 = 20_000;
/// Standard errors of the estimate that are taken for chance.
const DEVIATIONS: f64 = 6.0;

/// PFSELFTEST: the front tests, and the answer needs no record.
pub fn plan_selftest(
    _planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    if command.len() != 1 {
        return Err(arity_error(spec.name));
    }
    selftest()?;
    plan.literal(b"+OK\r\n");
    Ok(())
}

/// No plan has the command.
pub fn pfselftest<'t>(_: &mut Work<'t>, _: &[Arg<'t>], _: &mut Reply<'_>) -> Result<(), Stop> {
    Err(Stop::Malformed)
}

/// Adds elements; both formats must come back as they were, and the estimate must be near.
fn selftest() -> Result<(), Vec<u8>> {
    let mut sketch = Sketch::default();
    for element in 1..=ELEMENTS {
        sketch.add(&element.to_le_bytes());
        if !element.is_power_of_two() && element != ELEMENTS {
            continue;
        }
        let (mut dense, all) = (sketch.clone(), f64::from(element));
        dense.make_dense();
        for sketch in [&sketch, &dense] {
            let read = Sketch::parse(&sketch.format(&Sizes::default()));
            if read.is_none_or(|read| read.registers() != sketch.registers()) {
                return Err(format!("ERR TESTFAILED Register of {element} elements").into());
            }
        }
        let error = 1.04 / (REGISTERS as f64).sqrt() * DEVIATIONS;
        if (sketch.count() as f64 - all).abs() > 1.0 + all * error {
            let text = format!("ERR TESTFAILED Too big error. card:{all} est:{}", sketch.count());
            return Err(text.into());
        }
    }
    Ok(())
}
