//! The procedure that runs RESP commands over the records of one transaction.
//!
//! It interprets the commands of its plan in order, over the records that EXECUTE fetched; a later
//! command sees the writes of the earlier ones. Its output is a head ([`OutputHead`]) and the
//! replies of the commands, or the observations of a WATCH.

use nicol_core::ids::Key;
use nicol_core::txn::{Entry, Txn, Verdict};

use super::calls::{COMMANDS, command, exec};
use super::news::News;
use super::output::OutputHead;
use super::plan::{Kind, Plan, Watch};
use super::record;
use super::work::{Scripted, Stop, Updates, Work, entry};
use crate::connection::encode::Reply;
use crate::scripts::arena::Arena;

/// Bytes of replies behind which a batch ends, and the commands after it become another one.
const BATCH_REPLIES: usize = 256 << 10;

const TOO_LARGE: &[u8] = b"ERR transaction is too large: its values and replies exceed 4 MB";

/// Executes the plan in the arguments of `txn`.
pub fn execute(txn: &mut Txn) -> Verdict {
    let mut output = std::mem::take(&mut txn.output);
    output.clear();
    let (mut values, mut asked) = (Vec::new(), Vec::new());
    let arena = Arena::default();
    let done = run(txn, &arena, (&mut output, &mut values), &mut asked);
    txn.output = output;
    match done {
        Ok(_) if !asked.is_empty() => {
            txn.output.clear();
            for (row, writes) in asked {
                match writes {
                    true => txn.write(row),
                    false => txn.read(row),
                };
            }
            Verdict::More
        }
        Ok(updates) => {
            for (entry, update) in updates {
                match update {
                    Some(span) => txn.put(entry, &values[span]),
                    None => txn.delete(entry),
                }
            }
            Verdict::Commit
        }
        Err(record::Malformed) => {
            txn.output.clear();
            Verdict::Refuse
        }
    }
}

/// Runs the plan, or fills `asked` with records that it needs besides, and whether to write them:
/// then its other results mean nothing.
fn run<'t>(
    txn: &'t Txn,
    arena: &'t Arena,
    (output, values): (&mut Vec<u8>, &mut Vec<u8>),
    asked: &mut Vec<(Key, bool)>,
) -> Result<Updates, record::Malformed> {
    let plan = Plan::parse(txn.args())?;
    if plan.kind == Kind::Watch {
        return observe(txn, &plan, output).map(|()| Vec::new());
    }
    OutputHead::begin(output);
    let mut work = Work::new(txn, &plan, arena, &COMMANDS);
    let executed = match plan.kind {
        Kind::Batch | Kind::Walk | Kind::Watch => batch(&mut work, &plan, output)?,
        Kind::Exec | Kind::Script => match whole(&mut work, &plan, (txn, output))? {
            Whole::Done => plan.commands,
            Whole::Refused(mut news) => {
                let nothing = OutputHead { executed: plan.commands, ..OutputHead::default() };
                nothing.finish(output, news.finish());
                return Ok(Vec::new());
            }
        },
    };
    *asked = work.take_asked();
    if !asked.is_empty() {
        return Ok(Vec::new());
    }
    let (updates, growth) = work.updates(values)?;
    // Pages that are written need their records.
    *asked = work.take_asked();
    let changed = !updates.is_empty();
    let head = OutputHead { executed, lookups: work.lookups(), growth, changed };
    head.finish(output, work.news());
    Ok(updates)
}

fn observe(txn: &Txn, plan: &Plan<'_>, output: &mut Vec<u8>) -> Result<(), record::Malformed> {
    let (mut cursor, mut args) = (plan.cursor(), Vec::new());
    OutputHead::begin(output);
    for _ in 0..plan.commands {
        cursor.command(&mut args)?;
        for arg in &args {
            let row = arg.row.ok_or(record::Malformed)?;
            let Entry { version, present, .. } = txn.entries()[entry(txn, row)?];
            Watch { row, version, present, seen: plan.now }.emit(output);
        }
    }
    OutputHead { executed: plan.commands, ..OutputHead::default() }.finish(output, &[]);
    Ok(())
}

/// A key that has expired since it was watched has changed, though its record has not.
fn unchanged(txn: &Txn, watch: Watch, now: i64) -> Result<bool, record::Malformed> {
    let index = entry(txn, watch.row)?;
    let entry = txn.entries()[index];
    for pair in record::pairs(txn.value(index).unwrap_or_default()) {
        let pair = pair?;
        if pair.is_over(now) && !pair.is_over(watch.seen) {
            return Ok(false);
        }
    }
    Ok(entry.version == watch.version && entry.present == watch.present)
}

impl From<super::plan::Malformed> for record::Malformed {
    fn from(_: super::plan::Malformed) -> Self {
        Self
    }
}

/// Executes as many commands as fit the budget, the first one in any case, and none behind
/// [`BATCH_REPLIES`]: other clients wait for as long as a batch takes.
fn batch<'t>(
    work: &mut Work<'t>,
    plan: &Plan<'t>,
    output: &mut Vec<u8>,
) -> Result<usize, record::Malformed> {
    let (mut cursor, mut args) = (plan.cursor(), Vec::new());
    for index in 0..plan.commands {
        let start = output.len();
        let op = cursor.command(&mut args)?;
        match command(work, plan, (op, &args), output) {
            Ok(()) if output.len() > BATCH_REPLIES => return Ok(index + 1),
            Ok(()) => {}
            Err(Stop::Overflow) => {
                output.truncate(start);
                if index > 0 {
                    return Ok(index);
                }
                Reply::new(output, plan.protocol).error(TOO_LARGE);
                return Ok(1);
            }
            Err(_) => return Err(record::Malformed),
        }
    }
    Ok(plan.commands)
}

/// How a list ended of which all commands are executed or none.
#[derive(Debug)]
enum Whole {
    Done,
    /// It has no effect, and its reply says why.
    Refused(News),
}

/// Executes a script or the body of a MULTI, unless a watched key has changed or it is too large.
fn whole<'t>(
    work: &mut Work<'t>,
    plan: &Plan<'t>,
    (txn, output): (&'t Txn, &mut Vec<u8>),
) -> Result<Whole, record::Malformed> {
    for watch in plan.watches()? {
        if !unchanged(txn, watch, plan.now)? {
            Reply::new(output, plan.protocol).null_array();
            return Ok(Whole::Refused(News::default()));
        }
    }
    let before = output.len();
    let refused = match all(work, plan, output) {
        Ok(()) => return Ok(Whole::Done),
        // What failed has not seen all of its records.
        Err(_) if work.asked() > 0 => return Ok(Whole::Done),
        Err(Stop::Overflow) => TOO_LARGE,
        Err(Stop::Spent(text)) => text,
        Err(_) => return Err(record::Malformed),
    };
    output.truncate(before);
    Reply::new(output, plan.protocol).error(refused);
    let mut news = News::default();
    news.tally().failed(failed(plan)?, refused);
    Ok(Whole::Refused(news))
}

/// The command of the plan whose reply is an error if the whole plan is refused: a script, or EXEC.
fn failed(plan: &Plan<'_>) -> Result<Option<u16>, record::Malformed> {
    match plan.kind {
        Kind::Exec => Ok(exec()),
        _ => Ok(plan.cursor().command(&mut Vec::new())?.place().map(|place| place as u16)),
    }
}

/// Executes every command. Errors: it does not fit a budget.
fn all<'t>(work: &mut Work<'t>, plan: &Plan<'t>, output: &mut Vec<u8>) -> Result<(), Stop> {
    let (mut cursor, mut args) = (plan.cursor(), Vec::new());
    if plan.kind == Kind::Exec {
        Reply::new(output, plan.protocol).array(plan.commands);
    }
    for _ in 0..plan.commands {
        let op = cursor.command(&mut args)?;
        command(work, plan, (op, &args), output)?;
    }
    Ok(())
}
