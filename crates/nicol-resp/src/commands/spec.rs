//! What a line of the table of commands says.

use super::errors::is_unknown_subcommand;
use super::key_places::KeyPlaces;
use crate::connection::clients::CommandNumber;
use crate::connection::encode::{Protocol, Reply};
use crate::connection::parse::Command;
use crate::pubsub::Scope;
use crate::transactions::plan::{Arg, Op, PlanBuilder};
use crate::transactions::planner::Planner;
use crate::transactions::work::{Stop, Work};

/// Adds a command to a plan. Errors: the text that the command answers in its place.
pub type Plan =
    fn(&Planner<'_>, &mut PlanBuilder, &'static Spec, &Command<'_>) -> Result<(), Vec<u8>>;
/// Runs a command over the records of a transaction. With an error it has had no effect.
pub type Run = for<'t> fn(&mut Work<'t>, &[Arg<'t>], &mut Reply<'_>) -> Result<(), Stop>;
/// A command that the front answers; `admin` says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    Acl,
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    DbSize,
    Discard,
    Echo,
    Exec,
    FlushAll,
    FlushDb,
    Hello,
    Info,
    Keys,
    Latency,
    Monitor,
    Multi,
    Ping,
    /// PUBLISH and SPUBLISH.
    Publish {
        sharded: bool,
    },
    PubSub,
    Quit,
    RandomKey,
    Reset,
    Scan,
    Script,
    Select,
    /// About the server as a whole.
    Server(Whole),
    SlowLog,
    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    Subscribe(Scope),
    Time,
    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE.
    Unsubscribe(Scope),
    Unwatch,
    Wait,
    Watch,
}

/// A command about the server as a whole; `admin::server` says how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    BgRewriteAof,
    BgSave,
    Debug,
    LastSave,
    Lolwut,
    /// MEMORY, but for USAGE.
    Memory,
    Module,
    ReplicaOf,
    /// SYNC, PSYNC, REPLCONF and FAILOVER.
    Replicate,
    Role,
    Save,
    Shutdown,
}

/// How a command is executed.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// As a part of a transaction: planned by the front, run by the engines.
    Data(Plan, Run),
    /// At once by the front.
    Admin(Admin, InMulti),
}

/// What becomes of a command without records after MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMulti {
    /// It runs at once: it ends the MULTI, or says why it cannot.
    AtOnce,
    /// It runs at once, and its reply is queued.
    Queued,
    /// It becomes a part of the transaction.
    Planned,
    /// It has no effect there, and OK is queued.
    Ok,
    Refused,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i32,
    /// How it is executed.
    pub action: Action,
    pub flags: &'static [&'static str],
    /// Where its keys stand.
    pub keys: KeyPlaces,
    pub group: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Arguments with which it is a single operation on one record.
    single: Option<usize>,
    /// The only subcommand that is executed as `action` says, and how the front answers the others.
    except: Option<(&'static str, Admin)>,
    /// Its place in the table.
    pub number: u16,
}

pub const READ: &[&str] = &["readonly", "fast"];
pub const SLOW_READ: &[&str] = &["readonly"];
pub const WRITE: &[&str] = &["write", "denyoom", "fast"];
pub const REMOVE: &[&str] = &["write", "fast"];
pub const SLOW_WRITE: &[&str] = &["write"];
pub const GROW: &[&str] = &["write", "denyoom"];

impl Spec {
    /// A command over records: `(flags, keys)`, `(plan, run)`.
    pub const fn data(
        group: &'static str,
        name: &'static str,
        arity: i32,
        (flags, keys): (&'static [&'static str], KeyPlaces),
        (plan, run): (Plan, Run),
        summary: &'static str,
    ) -> Self {
        let action = Action::Data(plan, run);
        Self {
            name,
            arity,
            action,
            flags,
            keys,
            group,
            summary,
            single: None,
            except: None,
            number: 0,
        }
    }

    /// A command that the front answers.
    pub const fn admin(
        group: &'static str,
        name: &'static str,
        arity: i32,
        flags: &'static [&'static str],
        (admin, in_multi): (Admin, InMulti),
        summary: &'static str,
    ) -> Self {
        let action = Action::Admin(admin, in_multi);
        Self {
            name,
            arity,
            action,
            flags,
            keys: KeyPlaces::NONE,
            group,
            summary,
            single: None,
            except: None,
            number: 0,
        }
    }

    /// The same command, a single operation if it has `len` arguments.
    pub const fn single(self, len: usize) -> Self {
        Self { single: Some(len), ..self }
    }

    /// The same command, of which only the subcommand `name` is a part of a transaction.
    pub const fn except(self, name: &'static str, admin: Admin) -> Self {
        Self { except: Some((name, admin)), ..self }
    }

    /// How `command`, a request for it, is executed.
    pub fn action_of(&self, command: &Command<'_>) -> Action {
        match self.except {
            Some((name, admin)) if !command.arg(1).eq_ignore_ascii_case(name.as_bytes()) => {
                Action::Admin(admin, InMulti::Queued)
            }
            _ => self.action,
        }
    }

    /// The same command with keys at `keys`.
    pub const fn with_keys(self, keys: KeyPlaces) -> Self {
        Self { keys, ..self }
    }

    /// Its name as a number.
    pub const fn command_number(&self) -> CommandNumber {
        CommandNumber(1 + self.number)
    }

    /// Whether its keys are written.
    pub fn writes(&self) -> bool {
        self.flags.contains(&"write")
    }

    /// Whether it may need more memory.
    pub fn may_grow(&self) -> bool {
        self.flags.contains(&"denyoom")
    }

    /// Whether its client may wait until there is something for it.
    pub fn blocks(&self) -> bool {
        self.flags.contains(&"blocking")
    }

    /// Whether no other command joins it in a group.
    pub fn is_alone(&self) -> bool {
        self.blocks() || self.is_script()
    }

    /// Whether it runs a script, or deals with functions.
    pub fn is_script(&self) -> bool {
        self.group == "scripting"
    }

    /// Whether it takes `len` arguments, its name included.
    pub fn accepts(&self, len: usize) -> bool {
        takes(self.arity, len)
    }

    /// Adds `command` to `plan`, or the error that it answers; its arity has been checked. Nothing
    /// is added for a command that only the front answers.
    pub fn plan(
        &'static self,
        planner: &Planner<'_>,
        plan: &mut PlanBuilder,
        command: &Command<'_>,
    ) {
        let how = match self.action {
            Action::Data(how, _) => how,
            Action::Admin(_, InMulti::Planned) => {
                plan.publishes();
                as_sent
            }
            Action::Admin(..) => return,
        };
        let checked = planner.check(self.name, self.keys, command);
        if let Err(text) = checked.and_then(|()| how(planner, plan, self, command)) {
            let mut error = Vec::new();
            Reply::new(&mut error, Protocol::Resp2).error(&text);
            // As in Redis, a subcommand that does not exist is no call.
            match is_unknown_subcommand(&error[1..]) {
                true => plan.literal(&error),
                false => plan.failed(self.number, &error),
            }
        }
    }

    /// Begins the command in `plan`; its arguments follow.
    pub fn begin(&self, plan: &mut PlanBuilder) {
        plan.begin(Op::command(self.number), self.writes());
    }

    /// Why a store of single operations refuses `command`; `None`: it takes it.
    pub fn single_refusal(&self, command: &Command<'_>) -> Option<Vec<u8>> {
        let takes = match self.action {
            Action::Data(..) => self.single == Some(command.len()),
            Action::Admin(_, in_multi) => {
                self.group != "transactions" || in_multi != InMulti::AtOnce
            }
        };
        let name = self.name.to_uppercase();
        (!takes).then(|| {
            format!(
                "ERR this store runs single operations and not this {name}: it takes GET key, SET \
                 key value, DEL key and EXISTS key"
            )
            .into_bytes()
        })
    }

    /// The element of COMMAND and COMMAND INFO, of a command in these `categories`.
    pub fn describe(&self, categories: &[&str], reply: &mut Reply<'_>) {
        let KeyPlaces { first, last, step, counted, streams } = self.keys;
        let stores = ["georadius", "georadiusbymember", "sort", "sort_ro"].contains(&self.name);
        let movable = (counted > 0 || streams || stores).then_some("movablekeys");
        reply.array(10);
        reply.bulk(self.name.as_bytes());
        reply.integer(i64::from(self.arity));
        reply.set(self.flags.len() + usize::from(movable.is_some()));
        self.flags.iter().copied().chain(movable).for_each(|flag| reply.status(flag));
        [first, last, step].into_iter().for_each(|number| reply.integer(number));
        reply.set(categories.len());
        categories.iter().for_each(|name| reply.status(&format!("@{name}")));
        // No tips, key specifications or subcommands.
        (0..3).for_each(|_| reply.array(0));
    }

    /// The value of COMMAND DOCS.
    pub fn document(&self, reply: &mut Reply<'_>) {
        reply.map(2);
        reply.bulk(b"summary");
        reply.bulk(self.summary.as_bytes());
        reply.bulk(b"group");
        reply.bulk(self.group.as_bytes());
    }
}

/// Whether a command of this arity takes `len` arguments, its name included.
pub fn takes(arity: i32, len: usize) -> bool {
    let wanted = arity.unsigned_abs() as usize;
    if arity < 0 { len >= wanted } else { len == wanted }
}

/// Keys and other arguments as they were sent.
pub fn as_sent(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    spec.begin(plan);
    let places = spec.keys.of(command.len(), |place| command.arg(place));
    for (index, arg) in command.args(1).enumerate() {
        match places.has(index + 1) {
            true => planner.key(plan, arg),
            false => plan.plain(arg),
        }
    }
    Ok(())
}

/// As [`as_sent`], for a command that writes its first key and reads the others.
pub fn into_first(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    spec.begin(plan);
    planner.key(plan, command.arg(1));
    let places = spec.keys.of(command.len(), |place| command.arg(place));
    for (index, arg) in command.args(2).enumerate() {
        match places.has(index + 2) {
            true => planner.source(plan, arg),
            false => plan.plain(arg),
        }
    }
    Ok(())
}

/// As [`as_sent`], and behind the arguments a seed for what the command draws.
pub fn with_seed(
    planner: &Planner<'_>,
    plan: &mut PlanBuilder,
    spec: &'static Spec,
    command: &Command<'_>,
) -> Result<(), Vec<u8>> {
    as_sent(planner, plan, spec, command)?;
    plan.plain(&planner.seed.to_le_bytes());
    Ok(())
}
