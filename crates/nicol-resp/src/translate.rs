//! From a client's command to a command of a plan: keys hashed, options read, sizes checked.
//!
//! What is wrong with a command becomes a literal error in its place, as in Redis, where an EXEC
//! goes on after a command that failed.

use nicol_core::ids::Key;

use super::commands::{Data, Spec};
use super::config::Limits;
use super::encode::{Protocol, Reply};
use super::expiry::{Expiry, Unit, conditions};
use super::number::{NOT_AN_INTEGER, parse_i64, push_i64};
use super::object::{HELP as OBJECT_HELP, Question};
use super::parse::Command;
use super::plan::{Op, PlanBuilder};
use super::procedure::{SET_GET, SET_NX, SET_XX};
use super::record;

const SYNTAX: &[u8] = b"ERR syntax error";

/// Adds commands to plans.
#[derive(Clone, Copy, Debug)]
pub struct Translator<'a> {
    /// The seed of the hash from RESP keys to rows.
    pub hash_seed: u64,
    /// Sizes of keys and values.
    pub limits: &'a Limits,
    /// Milliseconds of Unix time.
    pub now: i64,
}

impl Translator<'_> {
    /// Adds `command` to `plan`, or the error that it answers. Its arity has been checked.
    pub fn add(&self, plan: &mut PlanBuilder, spec: &Spec, data: Data, command: &Command<'_>) {
        let checked = self.check(spec, command).and_then(|()| match data {
            Data::Plain(op) => {
                self.plain(plan, op, spec.keys, command);
                Ok(())
            }
            Data::Set => self.set(plan, command),
            Data::Add { sign, by } => self.step(plan, sign, by, command),
            Data::SetEx(unit) => self.set_ex(plan, unit, spec.name, command),
            Data::GetEx => self.get_ex(plan, command),
            Data::Expire(unit) => self.expire(plan, unit, spec.name, command),
            Data::Ttl(unit) => {
                self.begin(plan, Op::Ttl, command.arg(1));
                plan.plain(&[u8::from(unit.seconds), u8::from(unit.absolute)]);
                Ok(())
            }
            Data::Object => self.object(plan, command),
        });
        if let Err(text) = checked {
            let mut error = Vec::new();
            Reply::new(&mut error, Protocol::Resp2).error(&text);
            plan.literal(&error);
        }
    }

    /// Adds the keys of `command`, a WATCH, to `plan`.
    pub fn observe(
        &self,
        plan: &mut PlanBuilder,
        spec: &Spec,
        command: &Command<'_>,
    ) -> Result<(), Vec<u8>> {
        self.check(spec, command)?;
        plan.begin(Op::Observe);
        for key in command.args(1) {
            plan.key(record::row(self.hash_seed, key), key);
        }
        Ok(())
    }

    /// The number of keys that `spec` reads from `command`.
    pub fn keys(spec: &Spec, command: &Command<'_>) -> usize {
        match spec.keys {
            (1, -1, step) => (command.len() - 1).div_ceil(step as usize),
            (first, last, _) if first > 0 => (last - first + 1) as usize,
            _ => 0,
        }
    }

    /// The records of the keys of `command`, each once.
    pub fn rows(&self, spec: &Spec, command: &Command<'_>) -> Vec<Key> {
        let (first, last, step) = spec.keys;
        let named = (first.max(1) as usize..command.len()).step_by(step.max(1) as usize);
        let keys = named.take(if last < 0 { usize::MAX } else { Self::keys(spec, command) });
        let mut rows: Vec<_> =
            keys.map(|index| record::row(self.hash_seed, command.arg(index))).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn check(&self, spec: &Spec, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let step = spec.keys.2.max(1) as usize;
        let (first, last, _) = spec.keys;
        if step == 2 && command.len().is_multiple_of(2) {
            return Err(arity_error(spec.name));
        }
        let max = self.limits.transaction_keys;
        if Self::keys(spec, command) > max && self.rows(spec, command).len() > max {
            return Err(self.too_many_keys());
        }
        for (index, arg) in command.args(1).enumerate() {
            let key = if first == last { index + 1 == first as usize } else { index % step == 0 };
            if key {
                self.check_key(arg)?;
            } else if arg.len() > self.limits.value_bytes {
                let max = self.limits.value_bytes;
                return Err(format!("ERR value is too large (limit {max} bytes)").into());
            }
        }
        if command.bytes() > self.limits.transaction_bytes {
            let max = self.limits.transaction_bytes;
            return Err(format!("ERR command is too large (limit {max} bytes)").into());
        }
        Ok(())
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Vec<u8>> {
        let max = self.limits.key_bytes;
        match key.len() <= max {
            true => Ok(()),
            false => Err(format!("ERR key is too large (limit {max} bytes)").into()),
        }
    }

    fn too_many_keys(&self) -> Vec<u8> {
        format!("ERR too many keys (limit {} keys)", self.limits.transaction_keys).into()
    }

    fn plain(&self, plan: &mut PlanBuilder, op: Op, keys: (i64, i64, i64), command: &Command<'_>) {
        plan.begin(op);
        for (index, arg) in command.args(1).enumerate() {
            let key = if keys.1 == 1 { index == 0 } else { index % keys.2 as usize == 0 };
            match key {
                true => plan.key(record::row(self.hash_seed, arg), arg),
                false => plan.plain(arg),
            }
        }
    }

    /// OBJECT: the question stands before the key.
    fn object(&self, plan: &mut PlanBuilder, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let name = command.arg(1).to_ascii_lowercase();
        let question = Question::parse(&name);
        let wanted = match (&*name, question) {
            (b"help", _) => 2,
            (_, Some(_)) => 3,
            (_, None) => return Err(unknown_subcommand(command)),
        };
        if command.len() != wanted {
            let name = String::from_utf8_lossy(&name);
            return Err(arity_error(&format!("object|{name}")));
        }
        match question {
            Some(question) => {
                self.begin(plan, Op::Object, command.arg(2));
                plan.plain(&[question as u8]);
            }
            None => {
                let mut lines = Vec::new();
                Reply::new(&mut lines, Protocol::Resp2).lines(&OBJECT_HELP);
                plan.literal(&lines);
            }
        }
        Ok(())
    }

    fn begin(&self, plan: &mut PlanBuilder, op: Op, key: &[u8]) {
        plan.begin(op);
        plan.key(record::row(self.hash_seed, key), key);
    }

    /// Adds the last argument of a command that moves the deadline of `key`.
    fn end(&self, plan: &mut PlanBuilder, flags: &[u8], expiry: Expiry, key: &[u8]) {
        let mut how = flags.to_vec();
        expiry.emit(&mut how);
        plan.plain(&how);
        if let Expiry::In(_) | Expiry::At(_) = expiry
            && let Some(deadline) = expiry.deadline(self.now, None)
        {
            plan.expires(deadline, record::row(self.hash_seed, key));
        }
    }

    fn set(&self, plan: &mut PlanBuilder, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let (mut flags, mut timing) = (0, Timing::default());
        let mut index = 3;
        while index < command.len() {
            let option = command.arg(index).to_ascii_uppercase();
            match option.as_slice() {
                b"NX" if flags & SET_XX == 0 => flags |= SET_NX,
                b"XX" if flags & SET_NX == 0 => flags |= SET_XX,
                b"GET" => flags |= SET_GET,
                b"KEEPTTL" => timing.without(Expiry::Keep)?,
                option => index += timing.with(option, command, index)?,
            }
            index += 1;
        }
        let expiry = timing.read(self.now, "set", Expiry::Never)?;
        let key = command.arg(1);
        self.begin(plan, Op::Set, key);
        plan.plain(command.arg(2));
        self.end(plan, &[flags], expiry, key);
        Ok(())
    }

    fn set_ex(
        &self,
        plan: &mut PlanBuilder,
        unit: Unit,
        name: &str,
        command: &Command<'_>,
    ) -> Result<(), Vec<u8>> {
        let expiry = unit.read(command.arg(2), false, self.now, name)?;
        let key = command.arg(1);
        self.begin(plan, Op::Set, key);
        plan.plain(command.arg(3));
        self.end(plan, &[0], expiry, key);
        Ok(())
    }

    fn get_ex(&self, plan: &mut PlanBuilder, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let mut timing = Timing::default();
        let mut index = 2;
        while index < command.len() {
            let option = command.arg(index).to_ascii_uppercase();
            match option.as_slice() {
                b"PERSIST" => timing.without(Expiry::Never)?,
                option => index += timing.with(option, command, index)?,
            }
            index += 1;
        }
        let key = command.arg(1);
        self.begin(plan, Op::GetEx, key);
        match timing.read(self.now, "getex", Expiry::Keep) {
            Ok(expiry) => self.end(plan, &[], expiry, key),
            // As in Redis, an absent key is answered before the time is judged.
            Err(text) => {
                self.end(plan, &[], Expiry::Keep, key);
                plan.plain(&text);
            }
        }
        Ok(())
    }

    fn expire(
        &self,
        plan: &mut PlanBuilder,
        unit: Unit,
        name: &str,
        command: &Command<'_>,
    ) -> Result<(), Vec<u8>> {
        let conditions = conditions(command.args(3))?;
        let expiry = unit.read(command.arg(2), true, self.now, name)?;
        let key = command.arg(1);
        self.begin(plan, Op::Expire, key);
        self.end(plan, &[conditions], expiry, key);
        Ok(())
    }

    fn step(
        &self,
        plan: &mut PlanBuilder,
        sign: i64,
        by: bool,
        command: &Command<'_>,
    ) -> Result<(), Vec<u8>> {
        let step = if by { parse_i64(command.arg(2)).ok_or(NOT_AN_INTEGER)? } else { 1 };
        let Some(step) = step.checked_mul(sign) else {
            return Err(b"ERR decrement would overflow".to_vec());
        };
        let (key, mut text) = (command.arg(1), Vec::with_capacity(20));
        push_i64(&mut text, step);
        self.begin(plan, Op::Add, key);
        plan.plain(&text);
        Ok(())
    }
}

/// What the options of SET and GETEX say of a deadline. The same one may be said again.
#[derive(Debug, Default)]
enum Timing<'a> {
    #[default]
    Unsaid,
    /// KEEPTTL or PERSIST.
    Without(Expiry),
    With(Unit, &'a [u8]),
}

impl<'a> Timing<'a> {
    fn without(&mut self, expiry: Expiry) -> Result<(), &'static [u8]> {
        match self {
            Self::With(..) => Err(SYNTAX),
            _ => {
                *self = Self::Without(expiry);
                Ok(())
            }
        }
    }

    /// Takes an option with the time that follows it; the number of arguments that follow.
    fn with(
        &mut self,
        option: &[u8],
        command: &Command<'a>,
        index: usize,
    ) -> Result<usize, &'static [u8]> {
        let unit = Unit::of_option(option).ok_or(SYNTAX)?;
        match self {
            Self::Without(_) => return Err(SYNTAX),
            Self::With(said, _) if *said != unit => return Err(SYNTAX),
            _ if index + 1 == command.len() => return Err(SYNTAX),
            _ => *self = Self::With(unit, command.arg(index + 1)),
        }
        Ok(1)
    }

    fn read(&self, now: i64, command: &str, unsaid: Expiry) -> Result<Expiry, Vec<u8>> {
        match *self {
            Self::Unsaid => Ok(unsaid),
            Self::Without(expiry) => Ok(expiry),
            Self::With(unit, text) => unit.read(text, false, now, command),
        }
    }
}

/// The error of a wrong number of arguments; `name` in lower case, a subcommand after a bar.
pub fn arity_error(name: &str) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The error of a subcommand that does not exist.
pub fn unknown_subcommand(command: &Command<'_>) -> Vec<u8> {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend(command.arg(1).iter().take_while(|byte| **byte != 0).take(128));
    text.extend_from_slice(b"'. Try ");
    text.extend(command.arg(0).to_ascii_uppercase());
    text.extend_from_slice(b" HELP.");
    text
}

/// The error of a command that does not exist, which quotes some of what was sent.
pub fn unknown_command(command: &Command<'_>) -> Vec<u8> {
    /// Bytes of the name, and of the arguments, that are quoted.
    const QUOTED_MAX: usize = 128;
    let text = |bytes: &[u8], max: usize| -> Vec<u8> {
        // Redis prints C strings: up to a NUL.
        bytes.iter().copied().take_while(|byte| *byte != 0).take(max).collect()
    };
    let mut error = b"ERR unknown command '".to_vec();
    error.extend(text(command.arg(0), QUOTED_MAX));
    error.extend_from_slice(b"', with args beginning with: ");
    let mut quoted = Vec::new();
    for arg in command.args(1) {
        if quoted.len() >= QUOTED_MAX {
            break;
        }
        quoted.push(b'\'');
        let room = QUOTED_MAX.saturating_sub(quoted.len() - 1);
        quoted.extend(text(arg, room));
        quoted.extend_from_slice(b"' ");
    }
    error.extend(quoted);
    error
}
