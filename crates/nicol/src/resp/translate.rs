//! From a client's command to a command of a plan: keys hashed, options read, sizes checked.
//!
//! What is wrong with a command becomes a literal error in its place, as in Redis, where an EXEC
//! goes on after a command that failed.

use super::commands::{Data, Spec};
use super::config::Limits;
use super::encode::{Protocol, Reply};
use super::number::{parse_i64, push_i64};
use super::parse::Command;
use super::plan::{Op, PlanBuilder};
use super::procedure::{NOT_AN_INTEGER, SET_GET, SET_NX, SET_XX};
use super::record;

/// Adds commands to plans.
#[derive(Clone, Copy, Debug)]
pub struct Translator<'a> {
    /// The seed of the hash from RESP keys to rows.
    pub hash_seed: u64,
    /// Sizes of keys and values.
    pub limits: &'a Limits,
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
        });
        if let Err(text) = checked {
            let mut error = Vec::new();
            Reply::new(&mut error, Protocol::Resp2).error(&text);
            plan.literal(&error);
        }
    }

    /// Adds the keys of a WATCH to `plan`.
    pub fn observe(
        &self,
        plan: &mut PlanBuilder,
        spec: &Spec,
        command: &Command<'_>,
    ) -> Result<(), Vec<u8>> {
        for key in command.args(1) {
            self.check_key(key)?;
        }
        if command.len() > self.limits.transaction_keys {
            return Err(self.too_many_keys());
        }
        debug_assert_eq!(spec.name, "watch", "only WATCH observes; cheap, but the caller's table");
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
            (first, ..) => usize::from(first > 0),
        }
    }

    fn check(&self, spec: &Spec, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let step = spec.keys.2.max(1) as usize;
        let single = spec.keys.1 == 1;
        if step == 2 && command.len().is_multiple_of(2) {
            return Err(arity_error(spec.name));
        }
        if Self::keys(spec, command) > self.limits.transaction_keys {
            return Err(self.too_many_keys());
        }
        for (index, arg) in command.args(1).enumerate() {
            let key = if single { index == 0 } else { index % step == 0 };
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

    fn set(&self, plan: &mut PlanBuilder, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let mut flags = 0;
        let mut keep = false;
        let mut expiry: Option<&str> = None;
        let mut index = 3;
        while index < command.len() {
            match command.arg(index).to_ascii_uppercase().as_slice() {
                b"NX" if flags & SET_XX == 0 => flags |= SET_NX,
                b"XX" if flags & SET_NX == 0 => flags |= SET_XX,
                b"GET" => flags |= SET_GET,
                b"KEEPTTL" if expiry.is_none() => keep = true,
                option @ (b"EX" | b"PX" | b"EXAT" | b"PXAT")
                    if expiry.is_none() && !keep && index + 1 < command.len() =>
                {
                    expiry = Some(match option {
                        b"EX" => "EX",
                        b"PX" => "PX",
                        b"EXAT" => "EXAT",
                        _ => "PXAT",
                    });
                    index += 1;
                }
                _ => return Err(b"ERR syntax error".to_vec()),
            }
            index += 1;
        }
        if let Some(option) = expiry {
            return Err(format!("ERR expiry is not supported: SET option {option}").into());
        }
        let key = command.arg(1);
        plan.begin(Op::Set);
        plan.key(record::row(self.hash_seed, key), key);
        plan.plain(command.arg(2));
        plan.plain(&[flags]);
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
        plan.begin(Op::Add);
        plan.key(record::row(self.hash_seed, key), key);
        plan.plain(&text);
        Ok(())
    }
}

/// The error of a wrong number of arguments; `name` in lower case, a subcommand after a bar.
pub fn arity_error(name: &str) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{name}' command").into()
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
