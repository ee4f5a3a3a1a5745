//! The procedure that runs RESP commands over the records of one transaction.
//!
//! It interprets the commands of its plan in order, over the records that EXECUTE fetched; a later
//! command sees the writes of the earlier ones. Its output is a head ([`OutputHead`]) and the
//! replies of the commands, or the observations of a WATCH.

use nicol_core::ids::Key;
use nicol_core::txn::{Entry, Txn, Verdict};

use super::news::NO_RECEIVERS;
use super::output::OutputHead;
use super::plan::{Arg, Kind, Op, Plan, Watch};
use super::record;
use super::work::{Stop, Updates, Work, entry};
use crate::commands::spec::{Action, Admin};
use crate::commands::{TABLE, type_of};
use crate::connection::encode::Reply;

/// Bytes of replies behind which a batch ends, and the commands after it become another one.
const BATCH_REPLIES: usize = 256 << 10;

const TOO_LARGE: &[u8] = b"ERR transaction is too large: its values and replies exceed 4 MB";

/// Executes the plan in the arguments of `txn`.
pub fn execute(txn: &mut Txn) -> Verdict {
    let mut output = std::mem::take(&mut txn.output);
    output.clear();
    let (mut values, mut asked) = (Vec::new(), Vec::new());
    let done = run(txn, &mut output, &mut values, &mut asked);
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

/// Runs the plan, or fills `asked` with records that it needs besides: then its other results mean
/// nothing.
fn run(
    txn: &Txn,
    output: &mut Vec<u8>,
    values: &mut Vec<u8>,
    asked: &mut Vec<(Key, bool)>,
) -> Result<Updates, record::Malformed> {
    let plan = Plan::parse(txn.args())?;
    match plan.kind {
        Kind::Watch => observe(txn, &plan, output).map(|()| Vec::new()),
        Kind::Batch | Kind::Walk => {
            let mut work = Work::new(txn, &plan, type_of);
            OutputHead::begin(output);
            let executed = batch(&mut work, &plan, output)?;
            let (updates, growth) = work.updates(values)?;
            *asked = work.take_asked();
            let changed = !updates.is_empty();
            OutputHead { executed, lookups: work.lookups(), growth, changed }
                .finish(output, work.news());
            Ok(updates)
        }
        Kind::Exec => {
            OutputHead::begin(output);
            exec(txn, &plan, (output, values), asked)
        }
    }
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

/// Executes the body of a MULTI, unless a watched key has changed or it is too large.
fn exec(
    txn: &Txn,
    plan: &Plan<'_>,
    (output, values): (&mut Vec<u8>, &mut Vec<u8>),
    asked: &mut Vec<(Key, bool)>,
) -> Result<Updates, record::Malformed> {
    let nothing = OutputHead { executed: plan.commands, ..OutputHead::default() };
    for watch in plan.watches()? {
        if !unchanged(txn, watch, plan.now)? {
            Reply::new(output, plan.protocol).null_array();
            nothing.finish(output, &[]);
            return Ok(Vec::new());
        }
    }
    let (mut work, before) = (Work::new(txn, plan, type_of), output.len());
    if !all(&mut work, plan, output)? {
        output.truncate(before);
        Reply::new(output, plan.protocol).error(TOO_LARGE);
        nothing.finish(output, &[]);
        return Ok(Vec::new());
    }
    let (updates, growth) = work.updates(values)?;
    *asked = work.take_asked();
    let changed = !updates.is_empty();
    OutputHead { executed: plan.commands, lookups: work.lookups(), growth, changed }
        .finish(output, work.news());
    Ok(updates)
}

/// Executes every command; `false` if they do not fit the budget.
fn all<'t>(
    work: &mut Work<'t>,
    plan: &Plan<'t>,
    output: &mut Vec<u8>,
) -> Result<bool, record::Malformed> {
    let (mut cursor, mut args) = (plan.cursor(), Vec::new());
    Reply::new(output, plan.protocol).array(plan.commands);
    for _ in 0..plan.commands {
        let op = cursor.command(&mut args)?;
        match command(work, plan, (op, &args), output) {
            Ok(()) => {}
            Err(Stop::Overflow) => return Ok(false),
            Err(_) => return Err(record::Malformed),
        }
    }
    Ok(true)
}

/// Executes one command; an error that it answers stands in place of its reply.
fn command<'t>(
    work: &mut Work<'t>,
    plan: &Plan<'t>,
    (op, args): (Op, &[Arg<'t>]),
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let start = output.len();
    let spec = op.place().and_then(|place| TABLE.get(place));
    work.begin(
        plan.tells
            && spec
                .is_some_and(|spec| ["getdel", "getex", "getset", "pfmerge"].contains(&spec.name)),
    );
    let mut reply = Reply::new(output, plan.protocol);
    let done = match (op, args) {
        (Op::LITERAL, [text]) => {
            work.spend(text.bytes.len())?;
            output.extend_from_slice(text.bytes);
            Ok(())
        }
        (Op::LIST, [row]) => work.list(row, &mut reply),
        (Op::EMPTY, [row]) => work.empty(row).map(|keys| reply.integer(keys)),
        (Op::PURGE, [row]) => work.purge(row).map(|next| reply.integer(next)),
        (_, args) => match spec.map(|spec| (spec.name, spec.action)) {
            Some((name, Action::Data(_, run))) => {
                run(work, args, &mut reply).map(|()| work.tell(name, args))
            }
            Some((_, Action::Admin(Admin::Publish { sharded }, _))) => {
                work.publish(sharded, start, args)?;
                output.extend_from_slice(NO_RECEIVERS);
                Ok(())
            }
            Some((_, Action::Admin(..))) | None => Err(Stop::Malformed),
        },
    };
    if done == Err(Stop::More) {
        // Those behind it may ask for more; then all run again.
        output.truncate(start);
        return Ok(());
    }
    if let Err(Stop::Error(text)) = done {
        output.truncate(start);
        Reply::new(output, plan.protocol).error(text);
        return Ok(());
    }
    done
}
