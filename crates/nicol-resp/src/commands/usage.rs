//! MEMORY USAGE: what a key takes.

use super::errors::SYNTAX;
use super::number::{NOT_AN_INTEGER, parse_i64};
use super::sequence::Sequence;
use super::spec::Spec;
use crate::connection::encode::Reply;
use crate::connection::parse::Command;
use crate::transactions::plan::{Arg, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::record::HEADER_LEN;
use crate::transactions::work::{Stop, Work};

/// Elements of a large list that are looked at, unless SAMPLES says otherwise. As in Redis.
const SAMPLES: usize = 5;
/// Bytes before an element in its page.
const ELEMENT_HEAD: usize = 4;

/// The key and the number of samples. The other subcommands are the front's, and no part of a
/// script.
pub fn plan(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    if !command.arg(1).eq_ignore_ascii_case(b"usage") {
        return Err(b"ERR This Redis command is not allowed from script".to_vec());
    }
    if command.len() < 3 {
        return Err(super::errors::arity_error("memory|usage"));
    }
    let mut samples = SAMPLES;
    let mut at = 3;
    while at < command.len() {
        if !command.arg(at).eq_ignore_ascii_case(b"samples") || at + 1 == command.len() {
            return Err(SYNTAX.to_vec());
        }
        let number = parse_i64(command.arg(at + 1)).ok_or(NOT_AN_INTEGER)?;
        samples = usize::try_from(number).map_err(|_| SYNTAX)?;
        at += 2;
    }
    spec.begin(plan);
    planner.key(plan, command.arg(2));
    plan.plain(&(samples as u64).to_le_bytes());
    Ok(())
}

/// The bytes of the key and its value in one copy, as its record and its pages hold them; the slot
/// of the table is not counted.
///
/// Cost: that of reading the samples, 0: all elements, of a list in pages; else nothing.
pub fn run<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [key, samples] = args else { return Err(Stop::Malformed) };
    let samples = samples.bytes.try_into().map(u64::from_le_bytes).map_err(|_| Stop::Malformed)?;
    let found = work.find(key)?;
    let Some(value) = work.value(found) else {
        reply.null();
        return Ok(());
    };
    let mut bytes = HEADER_LEN + key.bytes.len() + value.len();
    if work.root(found).is_some() {
        let list = Sequence::open(work, found);
        let len = list.len()?;
        let looked_at = if samples == 0 { len } else { len.min(samples as usize) };
        let elements = list.part(work, 0..looked_at)?;
        let sampled: usize = elements.iter().map(|element| element.len() + ELEMENT_HEAD).sum();
        bytes += sampled * len / looked_at.max(1);
    }
    reply.integer(bytes as i64);
    Ok(())
}
